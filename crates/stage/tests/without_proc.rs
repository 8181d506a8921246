//! Where /proc is not mounted, nobody knows what is mounted where, nor what is in memory: no job is begun or gone on with.

use std::path::Path;
use std::process::Command;

use stage::ErrorClass;
use stage::journal::Journal;

#[test]
fn a_journal_is_not_opened() {
    const INSIDE: &str = "FLASHWRIGHT_CHILD_STATE_WITHOUT_PROC";
    if let Some(state) = std::env::var_os(INSIDE) {
        assert!(!Path::new("/proc/self").exists());
        let error = Journal::open(Path::new(&state)).expect_err("refused");
        assert_eq!(error.class(), ErrorClass::Refused);
        assert!(error.to_string().contains("/proc/self/mountinfo"), "{error}");
        println!("DONE");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().canonicalize().unwrap().join("state");
    let ended = Command::new("unshare")
        .args(["--mount", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "a_journal_is_not_opened", "--nocapture"])
        .env(INSIDE, &state)
        .output();
    match ended {
        Ok(ended) if String::from_utf8_lossy(&ended.stdout).contains("running 1 test") => {
            let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.success() && said.contains("DONE"), "{said}");
            assert!(!state.exists(), "nothing is made");
        }
        _ => println!("SKIP a process without /proc: it takes root and a mount namespace"),
    }
}
