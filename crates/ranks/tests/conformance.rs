//! What every transport of ranks must do, and what becomes of ranks that die, stop or fail.
//!
//! The other ranks are processes of this test program, in `rank_process`; the root's first broadcast tells them what to do.

use std::ffi::OsString;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use ranks::local::{self, Listener};
use ranks::{Lost, Ranks, RanksError, Why};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Nothing takes this long unless it hangs.
fn long() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Starts ranks that do `task`; what they print.
fn start(others: u32, task: &str) -> (Ranks, mpsc::Receiver<(u32, String)>) {
    let (sender, lines) = mpsc::channel();
    let listener: Listener = Arc::new(move |rank, line: &str| {
        let _ = sender.send((rank, line.to_owned()));
    });
    let arguments = ["rank_process", "--exact", "--nocapture", "--quiet"].map(OsString::from);
    let mut ranks = local::start(others, &arguments, &listener, long()).unwrap();
    ranks.broadcast(Some(task.as_bytes()), long()).unwrap();
    (ranks, lines)
}

/// The other ranks.
#[test]
fn rank_process() {
    let Some(mut ranks) = local::join(long()).unwrap() else { return };
    let task = String::from_utf8(ranks.broadcast(None, long()).unwrap()).unwrap();
    let end = match task.as_str() {
        "collectives" => collectives(&mut ranks),
        "fail" if ranks.rank() == 2 => Err(ranks.fail("No space left on device").into()),
        "ends after its part" if ranks.rank() == 3 => {
            // Contributes, and waits no longer than it takes to.
            std::thread::spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                std::process::exit(9);
            });
            ranks.barrier(long())
        }
        "ends after its part" => ranks.broadcast(None, long()).and_then(|_| ranks.barrier(long())),
        "exit" if ranks.rank() == 1 => std::process::exit(7),
        // Before it has sent its part: of ranks that have all arrived none is missed.
        "killed" if ranks.rank() == 2 => loop {
            kill_process(rustix::process::getpid(), Signal::KILL).unwrap();
        },
        "silent" if ranks.rank() == 1 => loop {
            std::thread::park();
        },
        _ => ranks.barrier(long()),
    };
    match end {
        Ok(()) => ranks.finish(long()).unwrap(),
        Err(RanksError::Lost(lost)) => println!("\nLOST {}", serde_json::to_string(&lost).unwrap()),
        Err(other) => panic!("{other}"),
    }
}

fn collectives(ranks: &mut Ranks) -> Result<(), RanksError> {
    for bytes in [0, 1, 3 << 20] {
        let own = vec![ranks.rank() as u8; bytes];
        let all = ranks.gather(&own, long())?;
        assert_eq!(all.is_some(), ranks.is_root());
        for (rank, got) in all.iter().flatten().enumerate() {
            assert!(got.len() == bytes && got.iter().all(|byte| usize::from(*byte) == rank), "{rank}");
        }
        let word = vec![42; bytes];
        let got = ranks.broadcast(ranks.is_root().then_some(&word[..]), long())?;
        assert_eq!(got, word);
    }
    ranks.barrier(long())?;
    let offsets = ranks.clock_offsets(20, long())?;
    assert_eq!(offsets.len(), ranks.size() as usize);
    for offset in &offsets {
        // All have one clock: the error is within half of the round trip.
        assert!(offset.offset_ns.abs() <= offset.round_trip_ns / 2 + 1, "{offset:?}");
    }
    Ok(())
}

fn lost(result: Result<(), RanksError>) -> Lost {
    match result {
        Err(RanksError::Lost(lost)) => lost,
        other => panic!("{other:?}"),
    }
}

/// Each of these ranks printed who is lost, and it is that one.
fn told(lines: &mpsc::Receiver<(u32, String)>, ranks: &[u32], expected: &Lost) {
    let mut missing = ranks.to_vec();
    while !missing.is_empty() {
        let (rank, line) = lines.recv_timeout(Duration::from_secs(60)).expect("every rank says who is lost");
        if let Some(lost) = line.strip_prefix("LOST ") {
            assert_eq!(&serde_json::from_str::<Lost>(lost).unwrap(), expected, "rank {rank}");
            missing.retain(|other| *other != rank);
        }
    }
}

fn signal(ranks: &Ranks, rank: usize, signal: Signal) {
    kill_process(pid(ranks.members()[rank].pid), signal).unwrap();
}

fn pid(pid: u32) -> Pid {
    Pid::from_raw(pid as i32).unwrap()
}

#[test]
fn what_ranks_gather_and_broadcast_arrives_and_clocks_agree() {
    let (mut ranks, _lines) = start(3, "collectives");
    assert_eq!((ranks.rank(), ranks.size()), (0, 4));
    let on_node: Vec<u32> = ranks.members().iter().map(|member| member.rank_on_node).collect();
    assert_eq!(on_node, [0, 1, 2, 3]);
    collectives(&mut ranks).unwrap();
    ranks.finish(long()).unwrap();
}

#[test]
fn a_single_rank_needs_no_other() {
    let mut ranks = Ranks::join(Box::new(ranks::transport::Alone), long()).unwrap();
    collectives(&mut ranks).unwrap();
    ranks.finish(long()).unwrap();
}

#[test]
fn a_killed_rank_is_named_to_all_others() {
    let (mut ranks, lines) = start(3, "killed");
    let lost = lost(ranks.barrier(long()));
    assert_eq!((lost.rank, &lost.why), (2, &Why::Ended(Some("killed by signal 9".to_owned()))));
    assert_eq!(lost.node, ranks.members()[2].node);
    told(&lines, &[1, 3], &lost);
    assert_eq!(lost.to_string(), format!("rank 2 on {} ended: killed by signal 9", lost.node));
}

/// The root sends to a rank that is gone while another has sent its part of the next collective already.
#[test]
fn a_rank_that_ends_before_it_gets_the_answer_is_named_and_no_other() {
    let (mut ranks, lines) = start(3, "ends after its part");
    let pidfd = pidfd_open(pid(ranks.members()[3].pid), PidfdFlags::empty()).unwrap();
    poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
    let bytes = vec![0; 1 << 20];
    let lost = loop {
        // The part of rank 3 has arrived; its answer cannot be sent.
        match ranks.broadcast(Some(&bytes), long()) {
            Ok(_) => {}
            Err(RanksError::Lost(lost)) => break lost,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!((lost.rank, &lost.why), (3, &Why::Ended(Some("exit code 9".to_owned()))));
    told(&lines, &[1, 2], &lost);
}

#[test]
fn a_rank_that_exits_early_is_named_with_its_exit_code() {
    let (mut ranks, lines) = start(2, "exit");
    let lost = lost(ranks.barrier(long()));
    assert_eq!((lost.rank, &lost.why), (1, &Why::Ended(Some("exit code 7".to_owned()))));
    told(&lines, &[2], &lost);
}

#[test]
fn a_stopped_rank_is_named_when_the_deadline_has_passed() {
    let (mut ranks, lines) = start(3, "silent");
    signal(&ranks, 1, Signal::STOP);
    let lost = lost(ranks.barrier(Instant::now() + Duration::from_millis(200)));
    assert!(lost.rank == 1 && matches!(lost.why, Why::Late(_)), "{lost:?}");
    told(&lines, &[2, 3], &lost);
}

#[test]
fn a_rank_that_reports_an_error_is_named_with_it() {
    let (mut ranks, lines) = start(3, "fail");
    let lost = lost(ranks.barrier(long()));
    assert_eq!((lost.rank, &lost.why), (2, &Why::Failed("No space left on device".to_owned())));
    told(&lines, &[1, 2, 3], &lost);
    // All later collectives say the same.
    assert_eq!(lost, self::lost(ranks.barrier(long())));
}

#[test]
fn an_error_of_the_root_reaches_all() {
    let (mut ranks, lines) = start(2, "wait");
    let lost = ranks.fail("interrupted");
    assert_eq!((lost.rank, &lost.why), (0, &Why::Failed("interrupted".to_owned())));
    told(&lines, &[1, 2], &lost);
}

#[test]
fn a_wait_ends_once_its_flag_is_set() {
    let (mut ranks, lines) = start(2, "silent");
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(true));
    ranks.stop_on(stop);
    let lost = lost(ranks.barrier(long()));
    assert_eq!((lost.rank, &lost.why), (0, &Why::Failed("interrupted".to_owned())));
    told(&lines, &[2], &lost);
}

#[test]
fn a_message_that_is_too_large_is_refused_before_it_is_sent() {
    let mut ranks = Ranks::join(Box::new(ranks::transport::Alone), long()).unwrap();
    let bytes = vec![0; (64 << 20) + 1];
    assert!(matches!(ranks.gather(&bytes, long()), Err(RanksError::TooLarge { .. })));
}

#[test]
fn ranks_end_with_the_work_that_started_them() {
    let (ranks, _lines) = start(2, "silent");
    signal(&ranks, 2, Signal::STOP);
    let pids: Vec<u32> = ranks.members()[1..].iter().map(|member| member.pid).collect();
    drop(ranks);
    for of in pids {
        assert!(rustix::process::test_kill_process(pid(of)).is_err(), "process {of} is still there");
    }
}

const ROOT: &str = "FLASHWRIGHT_CHILD_RANKS_ROOT";

/// A root that is killed.
#[test]
fn root_process() {
    if std::env::var_os(ROOT).is_none() {
        return;
    }
    let (ranks, _lines) = start(2, "silent");
    let pids: Vec<u32> = ranks.members().iter().map(|member| member.pid).collect();
    println!("\nPIDS {}", serde_json::to_string(&pids).unwrap());
    loop {
        std::thread::park();
    }
}

#[test]
fn ranks_end_when_the_root_is_killed() {
    use std::io::BufRead;
    let mut root = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["root_process", "--exact", "--nocapture", "--quiet"])
        .env(ROOT, "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(root.stdout.take().unwrap()).lines();
    let pids = lines.map_while(Result::ok).find_map(|line| Some(line.strip_prefix("PIDS ")?.to_owned()));
    let pids: Vec<u32> = serde_json::from_str(&pids.unwrap()).unwrap();
    let watched: Vec<_> =
        pids[1..].iter().map(|of| pidfd_open(pid(*of), PidfdFlags::empty()).unwrap()).collect();
    root.kill().unwrap();
    root.wait().unwrap();
    for (watched, of) in watched.iter().zip(&pids[1..]) {
        let minute = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        let ended = poll(&mut [PollFd::new(watched, PollFlags::IN)], Some(&minute)).unwrap();
        if ended == 0 {
            let _ = kill_process(pid(*of), Signal::KILL);
            panic!("rank process {of} outlives the root");
        }
    }
}
