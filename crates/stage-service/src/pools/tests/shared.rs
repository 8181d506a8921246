//! Users who share a pool: what each sees of the others, and what the kernel, the ledger and a project quota keep them from.

use std::collections::BTreeSet;

use super::*;

#[test]
fn a_user_is_told_how_much_others_hold_and_not_how_they_call_it() {
    let f = fixture(100, 100, 1000);
    for (owner, label) in [(ALICE, "s"), (ALICE, "secret-1"), (BOB, "t"), (ALICE, "secret-2")] {
        let reservation = f.reserve("a", owner, label, 10).unwrap();
        write(&reservation, "data", 5);
    }
    f.clock.pass(Duration::from_secs(10));
    let seen = f.status("a").seen_by(BOB);
    assert!(!format!("{seen:?}").contains("secret"), "{seen:?}");
    let held: Vec<_> = seen.holders.iter().map(|h| (h.owner, h.used, h.reserved)).collect();
    assert_eq!(held, [(ALICE, 15 * BLOCK, 15 * BLOCK), (BOB, 5 * BLOCK, 5 * BLOCK)]);
    let sets: Vec<_> = seen.sets.iter().map(|set| (set.owner, set.bytes)).collect();
    assert_eq!(sets, [(BOB, 5 * BLOCK), (ALICE, 15 * BLOCK)]);
    assert_eq!(seen.reservations.iter().filter(|row| row.label == "t").count(), 1);
    assert_eq!(f.status("a").seen_by(0), f.status("a"));
}

#[test]
fn reservations_have_numbers_of_their_own_whatever_is_in_the_files_of_other_users() {
    let f = fixture(100, 100, 1000);
    let file = |last: i64| {
        let schema = "flashwright.stage-ledger/1";
        serde_json::json!({ "schema": schema, "last": last, "changes": 0, "reservations": [] }).to_string()
    };
    for last in [1 << 53, i64::MAX] {
        for (owner, name) in [(BOB, "1001.json"), (ALICE, "1000.json")] {
            fs::write(f.at("ledger").join(name), file(last)).unwrap();
            let labels = ["x", "y", "z"].map(|label| format!("{label} {last} {owner}"));
            let made = labels.map(|label| f.reserve("a", ALICE, &label, 1).unwrap().id);
            let distinct: BTreeSet<_> = made.iter().collect();
            assert_eq!(distinct.len(), 3, "{made:?}");
            f.pools.release(made[1], ALICE).unwrap();
            let left = f.status("a").reservations;
            assert_eq!(left.iter().map(|row| row.id).collect::<Vec<_>>(), [made[0], made[2]]);
            f.pools.release(made[0], ALICE).unwrap();
            f.pools.release(made[2], ALICE).unwrap();
        }
    }
}

#[test]
fn a_name_that_another_user_takes_in_the_ledger_does_not_block_reservations() {
    let f = fixture(100, 100, 1000);
    fs::create_dir(f.at("ledger").join(format!(".{ALICE}.part"))).unwrap();
    f.reserve("a", ALICE, "s", 1).unwrap();
    // A file that a process left when it died while writing goes with the next step.
    let me = rustix::process::geteuid().as_raw();
    let left = f.at("ledger").join(format!(".{me}.0123456789abcdef0123456789abcdef.part"));
    fs::write(&left, "half").unwrap();
    f.status("a");
    assert!(!left.exists());
}

/// Does something as another user, in a thread that ends with it. On Linux identity belongs to a thread.
fn by<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    use rustix::process::{Gid, Uid};
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn users_who_share_a_ledger_can_neither_change_each_others_reservations_nor_claim_more_than_their_share() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP users who share a ledger: not root");
        return;
    }
    let f = fixture(100, 60, 1000);
    set_mode(f.directory.path(), 0o755);
    for shared in ["ledger", "tier/a", "tier/b"] {
        set_mode(&f.at(shared), 0o1777);
    }
    let open = || Pools::open(&f.at("pools.toml"), &f.at("ledger"));
    let status = || status(&open().unwrap(), "a");
    let hers = by(ALICE, || reserve(&open().unwrap(), "a", ALICE, "s", 50)).unwrap();
    // The kernel keeps him from her file, under whatever name.
    let his = |name: &str| f.at(&format!("ledger/{name}"));
    by(BOB, || {
        assert!(fs::write(his("1000.json"), "{}").is_err());
        assert!(fs::remove_file(his("1000.json")).is_err());
        fs::write(his("x"), "{}").unwrap();
        assert!(fs::rename(his("x"), his("1000.json")).is_err());
        assert_eq!(open().unwrap().release(hers.id, BOB).unwrap_err().class(), stage::ErrorClass::Refused);
        // Nor does it help to say that one is she.
        open().unwrap().release(hers.id, ALICE).unwrap();
    });
    assert_eq!(status().reserved, 50 * BLOCK);
    // What he claims in his own file counts as far as his share goes, and garbage not at all.
    let row = |id: i64, blocks: u64, label: &str| {
        let (bytes, boot) = (blocks * BLOCK, "x");
        serde_json::json!({ "id": id, "pool": "a", "owner": ALICE, "label": label, "bytes": bytes, "created": 1,
            "lease": { "expires": 1u64 << 60, "until": { "boot": boot, "seconds": 1u64 << 60 } } })
    };
    let file = |rows: &[serde_json::Value]| {
        serde_json::json!({ "schema": "flashwright.stage-ledger/1", "last": i64::MAX, "changes": 0,
            "reservations": rows })
    };
    let claim =
        file(&[row(1, 40, "t"), row(2, 1000, "u"), row(3, u64::MAX / BLOCK, "v"), row(4, 1, "../1000/s")]);
    by(BOB, || fs::write(his("1001.json"), claim.to_string()).unwrap());
    let seen = status();
    assert_eq!(seen.reserved, 90 * BLOCK, "{seen:?}");
    assert!(seen.reservations.iter().all(|row| row.owner != ALICE || row.label == "s"), "{seen:?}");
    by(BOB, || fs::write(his("1001.json"), "garbage").unwrap());
    assert_eq!(status().reserved, 50 * BLOCK);
    by(ALICE, || reserve(&open().unwrap(), "a", ALICE, "more", 10)).unwrap();
    // Somebody who was there first with her name is told of, and not followed.
    by(BOB, || fs::create_dir(f.at("tier/b/1000")).unwrap());
    by(ALICE, || assert!(reserve(&open().unwrap(), "b", ALICE, "s", 1).is_err()));
}

#[test]
fn a_ledger_or_a_users_file_that_a_stranger_made_first_is_refused() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP users who share a ledger: not root");
        return;
    }
    let f = fixture(100, 60, 1000);
    set_mode(f.directory.path(), 0o1777);
    for shared in ["ledger", "tier/a"] {
        set_mode(&f.at(shared), 0o1777);
    }
    let open = |ledger: &str| Pools::open(&f.at("pools.toml"), &f.at(ledger));
    let refused = |result: Result<(), StageError>, why: &str| {
        let error = result.unwrap_err();
        assert_eq!(error.class(), stage::ErrorClass::Refused, "{error}");
        assert!(error.to_string().contains(why) && error.hint().is_some(), "{error}");
    };
    // The owner of a sticky directory may remove what others have in it.
    by(BOB, || fs::create_dir(f.at("squatted")).unwrap());
    set_mode(&f.at("squatted"), 0o1777);
    by(ALICE, || refused(open("squatted").map(drop), "squatted: belongs to uid 1001"));
    let earlier = by(ALICE, || open("ledger").unwrap());
    fs::rename(f.at("ledger"), f.at("moved")).unwrap();
    fs::rename(f.at("squatted"), f.at("ledger")).unwrap();
    by(ALICE, || refused(reserve(&earlier, "a", ALICE, "s", 1).map(drop), "ledger: belongs to uid 1001"));
    fs::remove_dir(f.at("ledger")).unwrap();
    fs::rename(f.at("moved"), f.at("ledger")).unwrap();
    // The one who describes the pools is believed.
    std::os::unix::fs::chown(f.at("pools.toml"), Some(BOB), None).unwrap();
    by(BOB, || fs::create_dir(f.at("described")).unwrap());
    set_mode(&f.at("described"), 0o1777);
    by(ALICE, || reserve(&open("described").unwrap(), "a", ALICE, "described", 1)).unwrap();
    std::os::unix::fs::chown(f.at("pools.toml"), Some(0), None).unwrap();
    // Her file, made by him before she has one: nothing in it counts, and she is told.
    let row = serde_json::json!({ "id": 1, "pool": "a", "owner": ALICE, "label": "t", "bytes": 40 * BLOCK, "created": 1,
        "lease": { "expires": 1u64 << 60, "until": { "boot": "x", "seconds": 1u64 << 60 } } });
    let file = serde_json::json!({ "schema": "flashwright.stage-ledger/1", "last": 1, "changes": 0,
        "reservations": [row] });
    by(BOB, || fs::write(f.at("ledger/1000.json"), file.to_string()).unwrap());
    assert_eq!(status(&by(2000, || open("ledger").unwrap()), "a").reserved, 0);
    by(ALICE, || refused(open("ledger").map(drop), "1000.json: belongs to uid 1001"));
    by(BOB, || reserve(&open("ledger").unwrap(), "a", BOB, "s", 1)).unwrap();
}

#[test]
fn a_directory_in_which_members_could_replace_each_others_files_is_refused() {
    let f = fixture(100, 100, 1000);
    for (mode, refused) in [(0o777, true), (0o775, true), (0o1777, false), (0o1770, false)] {
        set_mode(&f.at("tier/b"), mode);
        let label = format!("s{mode:o}");
        let reserved = f.reserve("b", ALICE, &label, 1);
        assert_eq!(reserved.is_err(), refused, "{mode:o}: {reserved:?}");
        let ledger = f.at(&label);
        fs::create_dir(&ledger).unwrap();
        set_mode(&ledger, mode);
        assert_eq!(Ledger::open(&ledger, 0).is_err(), refused, "{mode:o}");
    }
}

#[test]
fn a_locked_ledger_is_waited_for_with_a_bound_and_its_holder_is_named() {
    let f = fixture(100, 100, 1000);
    let held = calls::open_directory(&f.at("ledger")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockShared).unwrap();
    let error = f.reserve("a", ALICE, "s", 1).unwrap_err().to_string();
    assert!(error.contains(&format!("locked by process {}", std::process::id())), "{error}");
    drop(held);
    f.reserve("a", ALICE, "s", 1).unwrap();
}

#[test]
fn under_a_project_quota_the_file_system_says_what_is_used_and_free() {
    use std::process::Command;
    if !rustix::process::geteuid().is_root() {
        println!("SKIP project quotas: not root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let run = |line: &str| {
        Command::new("sh")
            .args(["-ec", line])
            .current_dir(directory.path())
            .status()
            .is_ok_and(|s| s.success())
    };
    fs::create_dir(path("mnt")).unwrap();
    if !run("truncate -s 400m image && mkfs.xfs -q image && mount -o loop,prjquota image mnt 2>mount.err") {
        println!("SKIP project quotas: no xfs with prjquota can be mounted here");
        return;
    }
    struct Unmount<F: Fn(&str) -> bool>(F);
    impl<F: Fn(&str) -> bool> Drop for Unmount<F> {
        fn drop(&mut self) {
            (self.0)("umount mnt");
        }
    }
    let _unmount = Unmount(run);
    assert!(run(
        "mkdir mnt/pool && xfs_quota -x -c 'project -s -p mnt/pool 7' -c 'limit -p bhard=40m 7' mnt >/dev/null"
    ));
    let text = format!("[pool.a]\npath = {:?}\nquota = '60m'\n", path("mnt/pool"));
    fs::write(path("pools.toml"), text).unwrap();
    let pools = Pools::open(&path("pools.toml"), &path("ledger")).unwrap();
    let reserve = |label: &str, mebibytes: u64| {
        let bytes = mebibytes << 20;
        let wish = Wish { pool: "a".into(), name: label.into(), bytes, wait: None };
        pools.reserve(&wish, ALICE, &|| true)
    };
    let error = reserve("s", 41).unwrap_err().to_string();
    assert!(error.contains("the file system has 40 MiB free"), "{error}");
    // What a walk cannot see is counted all the same: a file without a name.
    let file = tempfile::tempfile_in(path("mnt/pool")).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 30 << 20).unwrap();
    pools.room_was_made();
    let seen = status(&pools, "a");
    assert!(seen.used >= 30 << 20 && seen.free <= 10 << 20, "{seen:?}");
    assert!(reserve("t", 11).is_err());
    reserve("u", 5).unwrap();
}
