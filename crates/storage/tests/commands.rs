//! NVMe commands without a drive: a ring of them over a file, whose file system takes none. What is sent comes back with that
//! answer, and what must not be sent does not reach the kernel. With drives: `tools/lab`, scenario `commands`.

mod rig;

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use rig::{BLOCK, MIB, any_file, config, errno, finish};
use storage::device::{Device, DeviceKind, Geometry, Namespace, Piece, Spread, longest_request};
use storage::engine::{
    Engine, EngineConfig, EngineError, IoEngine, IoUringCmd, Libaio, Misfit, Mmap, Op, Placement, Posixaio,
    Protection, Psync, RequestError,
};
use storage::fault::{Call, Effect, Fault, Faulty};

/// A file that says of itself that it is a namespace.
#[derive(Debug)]
struct Claimed {
    file: Arc<dyn Device>,
    namespace: Namespace,
    writable: bool,
    claim: Option<File>,
}

fn claimed_by(claim: Option<File>, writable: bool) -> Arc<dyn Device> {
    let namespace = Namespace { nsid: 1, block_bytes: 512, metadata: None, most_bytes: 64 << 10, twin: None };
    Arc::new(Claimed { file: any_file(MIB), namespace, writable, claim })
}

fn claimed(writable: bool) -> Arc<dyn Device> {
    claimed_by(None, writable)
}

impl Device for Claimed {
    fn spec(&self) -> &str {
        "claimed"
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Block
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        self.file.size()
    }

    fn geometry(&self) -> Geometry {
        Geometry { logical_block: 512, physical_block: 4096, memory_alignment: 512 }
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn is_writable(&self) -> bool {
        self.writable
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.file.fd()
    }

    fn namespace(&self) -> Option<&Namespace> {
        Some(&self.namespace)
    }

    fn claim(&self) -> Option<BorrowedFd<'_>> {
        self.claim.as_ref().map(File::as_fd)
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::ENOTTY))
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::ENOSPC))
    }
}

/// What the kernel says of the rings of this process (proc_pid_fdinfo(5)).
fn rings() -> Vec<String> {
    let descriptors = fs::read_dir("/proc/self/fd").expect("its descriptors");
    let is_ring =
        |path: &Path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("[io_uring]"));
    let rings = descriptors.flatten().map(|entry| entry.path()).filter(|path| is_ring(path));
    let info = |path: std::path::PathBuf| {
        let number = path.file_name().expect("a number").to_owned();
        fs::read_to_string(Path::new("/proc/self/fdinfo").join(number)).ok()
    };
    rings.filter_map(info).collect()
}

#[test]
fn a_claim_is_the_rings_as_well_so_that_it_goes_with_the_last_command() {
    let claim = tempfile::NamedTempFile::with_prefix("claim-of-a-namespace-").expect("a file");
    let name = claim.path().file_name().expect("a name").to_string_lossy().into_owned();
    let device = claimed_by(Some(claim.reopen().expect("opens")), true);
    let Some(engine) = ring(device, &config(2)) else { return };
    let rings = rings();
    if !rings.iter().any(|ring| ring.contains("UserFiles:")) {
        return eprintln!("SKIPPED: this kernel does not say which files a ring has");
    }
    assert!(rings.iter().any(|ring| ring.contains(&name)), "{rings:?}");
    assert!(engine.features().contains(&"registered file".to_owned()), "{:?}", engine.features());
}

#[test]
fn a_claim_that_no_ring_can_hold_keeps_commands_from_being_sent() {
    let refused = || {
        Faulty::new([Fault {
            call: Call::UringRegister,
            after: 0,
            times: 1,
            effect: Effect::Errno(libc::EMFILE),
        }])
    };
    let claim = tempfile::tempfile().expect("a file");
    if ring(claimed(true), &config(2)).is_none() {
        return;
    }
    let error = IoUringCmd::of_commands_with_kernel(refused(), claimed_by(Some(claim), true), &config(2));
    let error = error.expect_err("the claim would end before the commands");
    assert!(error.operation == "register files" && error.source.to_string().contains("claim"), "{error:?}");
    let kernel = Faulty::new([
        Fault { call: Call::UringRegister, after: 0, times: 1, effect: Effect::Errno(libc::EMFILE) },
        Fault { call: Call::Completion, after: 0, times: 1, effect: Effect::Errno(libc::EIO) },
    ]);
    let reader =
        IoUringCmd::of_commands_with_kernel(kernel, claimed(false), &config(2)).expect("claims nothing");
    assert!(reader.features().contains(&"plain file".to_owned()), "{:?}", reader.features());
}

/// Opens a ring of commands whose first read meets an error that says nothing about commands. None, said aloud, where the
/// kernel has no such ring.
fn ring(device: Arc<dyn Device>, config: &EngineConfig) -> Option<IoUringCmd<Faulty>> {
    let fault = Fault { call: Call::Completion, after: 0, times: 1, effect: Effect::Errno(libc::EIO) };
    match IoUringCmd::of_commands_with_kernel(Faulty::new([fault]), device, config) {
        Ok(engine) => Some(engine),
        Err(EngineError { source, .. }) => {
            eprintln!("SKIPPED: no ring of commands: {source}");
            None
        }
    }
}

#[test]
fn a_file_that_takes_no_commands_is_refused_when_the_engine_is_opened() {
    let error = IoUringCmd::of_commands(claimed(true), &config(2)).expect_err("takes none");
    let said = format!("{error}: {}", error.source);
    assert!(said.starts_with("io_uring_cmd: "), "{said}");
    assert!(said.contains("passes no NVMe commands") || error.operation == "io_uring_setup", "{said}");
    let (auto, chosen) = [IoEngine::Auto, IoEngine::IoUringCmd]
        .map(|choice| storage::engine::open(choice, &claimed(true), &config(2)).expect_err("takes none"))
        .map(|error| error.to_string())
        .into();
    assert_eq!(auto, chosen, "auto tries no other engine");
}

#[test]
fn each_command_comes_back_once_with_the_kernels_answer() {
    for sqthread_poll in [false, true] {
        let asked = EngineConfig { sqthread_poll, ..config(8) };
        let Some(mut engine) = ring(claimed(true), &asked) else { return };
        assert!(engine.features().contains(&"NVMe commands".to_owned()));
        for _ in 0..5 {
            for slot in 0..8 {
                let op = [Op::Read, Op::Write, Op::SyncData, Op::Sync][slot as usize % 4];
                let length = if op.is_sync() { 0 } else { BLOCK };
                engine.prepare(slot, op, u64::from(slot * BLOCK), length);
            }
            // `finish` fails where a slot comes back twice, or not at all.
            for ending in finish(&mut engine) {
                let failure = ending.expect("each comes back").expect_err("no file system takes commands");
                assert_eq!(errno(&failure), Some(libc::EOPNOTSUPP), "{failure:?}");
            }
        }
    }
}

#[test]
fn what_the_block_layer_would_refuse_does_not_reach_the_kernel() {
    let Some(mut engine) = ring(claimed(false), &config(8)) else { return };
    engine.prepare(0, Op::Write, 0, BLOCK);
    engine.prepare(1, Op::Read, 100, BLOCK);
    engine.prepare(2, Op::Read, 0, 100);
    engine.prepare(3, Op::Read, MIB, BLOCK);
    engine.prepare(4, Op::Trim, 0, BLOCK);
    let mut endings =
        finish(&mut engine).into_iter().map(|ending| ending.map(|e| e.expect_err("is refused")));
    for expected in [libc::EBADF, libc::EINVAL, libc::EINVAL] {
        assert_eq!(errno(&endings.next().unwrap().unwrap()), Some(expected));
    }
    let beyond = endings.next().unwrap().unwrap();
    assert!(matches!(beyond.cause, RequestError::Short { transferred: 0 }), "{beyond:?}");
    assert_eq!(errno(&endings.next().unwrap().unwrap()), Some(libc::ENOSPC), "the device's own discard");
}

#[test]
fn only_commands_are_sent_to_a_namespace_and_none_that_is_too_long() {
    type Open = fn(Arc<dyn Device>, &EngineConfig) -> Option<EngineError>;
    let others: [(&str, Open); 5] = [
        ("io_uring", |device, config| storage::engine::IoUring::new(device, config).err()),
        ("libaio", |device, config| Libaio::new(device, config).err()),
        ("psync", |device, config| Psync::new(device, config).err()),
        ("posixaio", |device, config| Posixaio::new(device, config).err()),
        ("mmap", |device, config| Mmap::new(device, config).err()),
    ];
    for (name, open) in others {
        let said = open(claimed(true), &config(1)).expect("is refused").source.to_string();
        assert!(said.contains(&format!("ioengine={name} is not possible on claimed")), "{said}");
    }
    let long = EngineConfig { slot_bytes: 128 << 10, ..config(1) };
    let said = IoUringCmd::of_commands(claimed(true), &long).expect_err("is too long").source.to_string();
    assert!(said.contains("bs=131072") && said.contains("65536"), "{said}");
    let error = IoUringCmd::of_commands(any_file(MIB), &config(1)).expect_err("is no namespace");
    let misfit = error.misfit().expect("a wrong request");
    assert!(matches!(misfit, Misfit::TakesNoCommands { .. }) && misfit.hint().contains("/dev/ng0n1"));
}

/// Two namespaces as one device, chunk by chunk.
#[derive(Debug)]
struct Pair {
    members: [Arc<dyn Device>; 2],
    chunk: u64,
}

impl Spread for Pair {
    fn members(&self) -> &[Arc<dyn Device>] {
        &self.members
    }

    fn chunk(&self) -> Option<u64> {
        Some(self.chunk)
    }

    fn piece(&self, offset: u64, length: u64) -> Piece {
        let (chunk, within) = (offset / self.chunk, offset % self.chunk);
        let length = length.min(self.chunk - within);
        Piece { member: (chunk % 2) as u32, offset: chunk / 2 * self.chunk + within, length }
    }

    fn most_pieces(&self, length: u64) -> u64 {
        1 + length.div_ceil(self.chunk)
    }

    fn extents(&self, _: Range<u64>) -> Vec<(u32, Range<u64>)> {
        Vec::new()
    }
}

#[derive(Debug)]
struct Volume {
    spread: Arc<dyn Spread>,
    first: Arc<dyn Device>,
    verifies: bool,
}

fn volume(chunk: u64, verifies: bool) -> Arc<dyn Device> {
    let members = [claimed(true), claimed(true)];
    let first = Arc::clone(&members[0]);
    Arc::new(Volume { spread: Arc::new(Pair { members, chunk }), first, verifies })
}

impl Device for Volume {
    fn spec(&self) -> &str {
        "volume"
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Volume
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        2 * self.first.size()
    }

    fn geometry(&self) -> Geometry {
        self.first.geometry()
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.first.fd()
    }

    fn spread(&self) -> Option<&Arc<dyn Spread>> {
        Some(&self.spread)
    }

    fn verifies(&self) -> bool {
        self.verifies
    }

    fn read_at(&self, buffer: &mut [u8], _: u64) -> io::Result<()> {
        buffer.fill(7);
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn of_a_stripe_what_goes_to_one_member_is_a_command() {
    let large = EngineConfig { slot_bytes: 256 << 10, ..config(1) };
    if ring(volume(64 << 10, false), &large).is_none() {
        // Either this kernel has no such ring, or the slot was taken for a command.
        let alone = ring(claimed(true), &config(1));
        return assert!(alone.is_none(), "256 KiB are four commands of 64 KiB");
    }
    let error = IoUringCmd::of_commands(volume(128 << 10, false), &large).expect_err("chunks are too long");
    let misfit = error.misfit().expect("a wrong request");
    assert!(matches!(misfit, Misfit::TooLong { bs: 131_072, most: 65_536, .. }), "{misfit}");
    assert_eq!(longest_request(&volume(128 << 10, false), 1 << 20), 64 << 10);
    assert_eq!(longest_request(&any_file(MIB), 1 << 20), 1 << 20);
}

#[test]
fn a_device_that_verifies_makes_its_requests_itself_whatever_lies_below() {
    for choice in [IoEngine::Auto, IoEngine::Psync] {
        let (mut engine, _) =
            storage::engine::open(choice, &volume(64 << 10, true), &config(1)).expect("opens");
        assert_eq!(engine.name(), "psync");
        storage::on_engine!(&mut engine, engine => {
            engine.prepare(0, Op::Read, 0, BLOCK);
            finish(engine)[0].take().expect("comes back").expect("is the device's own call");
            assert_eq!(engine.buffer(0)[0], 7);
        });
    }
    let error = storage::engine::open(IoEngine::IoUringCmd, &volume(64 << 10, true), &config(1));
    assert!(error.expect_err("goes past it").source.to_string().contains("the checksums of volume"));
}

#[test]
fn discards_that_share_a_command_come_back_each_by_itself_with_its_answer() {
    for (ranges_per_trim, sqthread_poll) in [(3, false), (8, false), (5, true)] {
        let asked = EngineConfig { ranges_per_trim, sqthread_poll, ..config(8) };
        // The first is of the read with which the engine is opened.
        let told =
            Fault { call: Call::Completion, after: 0, times: u32::MAX, effect: Effect::Errno(libc::EIO) };
        let kernel = Faulty::new([told]);
        let Ok(mut engine) = IoUringCmd::of_commands_with_kernel(kernel.clone(), claimed(true), &asked)
        else {
            return eprintln!("SKIPPED: no ring of commands");
        };
        assert!(engine.features().contains(&format!("{ranges_per_trim} ranges a command")));
        let before = kernel.fired();
        for round in 1..=4 {
            for slot in 0..8 {
                engine.prepare(slot, Op::Trim, u64::from(slot * BLOCK), BLOCK);
            }
            for ending in finish(&mut engine) {
                let failure = ending.expect("each comes back").expect_err("no file system takes commands");
                assert_eq!(errno(&failure), Some(libc::EIO), "{failure:?}");
            }
            assert_eq!(kernel.fired() - before, round * 8_u32.div_ceil(ranges_per_trim), "{ranges_per_trim}");
        }
    }
}

#[test]
fn ranges_of_a_command_are_of_one_drive() {
    let asked = EngineConfig { ranges_per_trim: 4, ..config(1) };
    let error = IoUringCmd::of_commands(volume(64 << 10, false), &asked).expect_err("several members");
    let misfit = error.misfit().expect("a wrong request");
    assert!(matches!(misfit, Misfit::RangesOfSeveral { ranges: 4, .. }), "{misfit}");
}

#[test]
fn a_discard_that_reaches_beyond_the_end_is_no_range_of_a_command() {
    let asked = EngineConfig { ranges_per_trim: 4, ..config(4) };
    let Some(mut engine) = ring(claimed(true), &asked) else { return };
    for (slot, offset) in [(0, 0), (1, MIB - 512), (2, 100), (3, u64::from(BLOCK))] {
        engine.prepare(slot, Op::Trim, offset, BLOCK);
    }
    let endings = finish(&mut engine).into_iter().map(|ending| errno(&ending.unwrap().expect_err("fails")));
    let expected = [libc::EOPNOTSUPP, libc::EINVAL, libc::EINVAL, libc::EOPNOTSUPP].map(Some);
    assert_eq!(endings.collect::<Vec<_>>(), expected);
}

#[test]
fn data_are_not_placed_where_the_drive_does_not_say_where() {
    let asked = EngineConfig { placement: Some(Placement::default()), ..config(2) };
    let error =
        IoUringCmd::of_commands(claimed(true), &asked).expect_err("a file has no placement identifiers");
    let misfit = error.misfit().expect("a wrong request");
    assert!(matches!(misfit, Misfit::NoPlacement { .. }) && misfit.hint().contains("fdp"), "{misfit}");
}

#[test]
fn metadata_is_of_the_blocks_of_one_namespace() {
    let asked = EngineConfig { protection: Some(Protection::default()), ..config(1) };
    let error = IoUringCmd::of_commands(volume(64 << 10, false), &asked).expect_err("several members");
    let misfit = error.misfit().expect("a wrong request");
    assert!(matches!(misfit, Misfit::MetadataOfSeveral { .. }), "{misfit}");
    let error = IoUringCmd::of_commands(claimed(true), &asked).expect_err("has no metadata");
    let misfit = error.misfit().expect("a wrong request");
    assert!(matches!(misfit, Misfit::NoMetadata { .. }) && misfit.hint().contains("nvme format"), "{misfit}");
}

#[test]
fn what_a_member_says_of_its_failure_is_told_of_the_stripe_that_it_is_a_part_of() {
    let members = [any_file(MIB), any_file(MIB)];
    let first = Arc::clone(&members[0]);
    let cut = File::from(members[1].fd().try_clone_to_owned().expect("a descriptor"));
    let spread = Arc::new(Pair { members, chunk: 64 << 10 });
    let mut engine =
        Mmap::new(Arc::new(Volume { spread, first, verifies: false }), &config(2)).expect("maps");
    cut.set_len(4096).expect("is cut short");
    for _ in 0..2 {
        engine.prepare(0, Op::SyncData, 0, 0);
        let failure = finish(&mut engine).remove(0).expect("ends").expect_err("fails");
        assert!(failure.member.is_some(), "{failure:?}");
        let said = failure.cause.to_string();
        assert!(said.contains("was cut short to 4096 of 1048576 bytes"), "{said}");
    }
    // What has failed explains no later request.
    engine.prepare(0, Op::Read, 0, BLOCK);
    finish(&mut engine).remove(0).expect("ends").expect("the first member is whole");
}
