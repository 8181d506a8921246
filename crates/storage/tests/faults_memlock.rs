//! Without memory that may be locked, io_uring goes on with plain buffers, or gives way to another engine
//! where not even its ring is allowed; and both are said.
//!
//! The limit does not bind whoever has CAP_IPC_LOCK, so the checks run in a child process that has given
//! up its privileges and its limit.

mod rig;

use std::process::Command;
use std::sync::{Mutex, PoisonError};

use rig::{MIB, config, memory, seed};
use storage::conformance::check_engine;
use storage::engine::{AnyEngine, Engine, EngineConfig, IoEngine, IoUring, open};

const CHILD: &str = "FLASHWRIGHT_CHILD_LOCKABLE_BYTES";
const UNPRIVILEGED: &str = "65534";

/// Whether this is the child; otherwise runs the test of this name as one that may lock so many bytes.
fn is_child(test: &str, lockable_bytes: u64) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    // A child that another test starts while the copy is being written would inherit its descriptor, and
    // what somebody has open for writing cannot be executed (ETXTBSY).
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // The test binary may lie where only root can go; a copy in the directory for temporary files does not.
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("child");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).unwrap();
    let mut command = Command::new("setpriv");
    if std::fs::read_to_string("/proc/self/status").unwrap().contains("Uid:\t0\t0") {
        command.args(["--reuid", UNPRIVILEGED, "--regid", UNPRIVILEGED, "--clear-groups"]);
    }
    command.args(["--inh-caps=-all", "--no-new-privs", "prlimit"]);
    command.arg(format!("--memlock={lockable_bytes}:{lockable_bytes}"));
    command.arg(&program).args(["--exact", test, "--nocapture"]).env(CHILD, lockable_bytes.to_string());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("SKIPPED: setpriv: {error}");
            return false;
        }
    };
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("the child got"), "{said}");
    said.lines().filter(|line| line.contains("the child got")).for_each(|line| eprintln!("{line}"));
    false
}

#[test]
fn a_user_who_may_lock_too_little_gets_plain_buffers() {
    if !is_child("a_user_who_may_lock_too_little_gets_plain_buffers", 512 << 10) {
        return;
    }
    let device = memory(4 * MIB);
    // One slot alone exceeds the limit.
    let enlarged = |config: &EngineConfig| EngineConfig {
        slot_bytes: if config.slot_bytes == 8192 { 1 << 20 } else { config.slot_bytes },
        ..config.clone()
    };
    let features = IoUring::new(device.clone(), &enlarged(&config(4))).expect("the ring fits").features();
    println!("the child got {features:?}");
    let plain = features.iter().find(|feature| feature.starts_with("plain buffers (registration: "));
    assert!(plain.is_some_and(|feature| feature.contains("annot allocate memory")), "{features:?}");
    check_engine(&device, seed(), |device, config| IoUring::new(device, &enlarged(config)));
}

#[test]
fn a_user_who_may_lock_nothing_gets_an_engine_all_the_same() {
    if !is_child("a_user_who_may_lock_nothing_gets_an_engine_all_the_same", 0) {
        return;
    }
    let device = rig::any_file(4 * MIB);
    let (engine, fallback) = open(IoEngine::Auto, &device, &config(4)).expect("some engine");
    match engine {
        // Kernels differ in whether the ring itself counts.
        AnyEngine::IoUring(engine) => {
            println!("the child got {:?}", engine.features());
            assert!(engine.features().iter().any(|feature| feature.starts_with("plain buffers")));
        }
        AnyEngine::Libaio(_) | AnyEngine::Psync(_) => {
            let said = fallback.expect("a reason");
            println!("the child got another engine: {said}");
            assert!(said.contains("RLIMIT_MEMLOCK") || said.contains("io_uring_disabled"), "{said}");
        }
        other => panic!("a file is on this machine, and no memory: {}", other.name()),
    }
}
