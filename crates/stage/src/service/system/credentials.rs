//! Whose rights a worker has: user, group, supplementary groups; and how a process comes to have them and no others.
//!
//! On Linux identity belongs to a thread. The calls here change the calling thread alone, so they are made while it is
//! the only one; that is looked at before, and the outcome is read back from `/proc/self/status` afterwards: a worker
//! that is not exactly who it should be does not work.

use std::collections::HashMap;

use rustix::process::{DumpableBehavior, Gid, Uid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};
use serde::{Deserialize, Serialize};

use crate::error::StageError;

/// Whose rights.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups, sorted, each once.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// The name of their directory: two sets of groups of one user do not share one.
    #[must_use]
    pub fn name(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for group in &self.groups {
            hasher.update(&group.to_le_bytes());
        }
        let digest = crate::names::hex(&hasher.finalize().as_bytes()[..8]);
        format!("{}-{}-{digest}", self.uid, self.gid)
    }

    /// Takes them on for good. To be called before there is a second thread.
    ///
    /// # Errors
    /// The process has threads; the kernel's; what came of it is not what was asked for.
    pub fn assume(&self) -> Result<(), StageError> {
        let refused = |what: String| StageError::refused(what, "");
        let before = Status::read()?;
        if before.number("Threads") != Some(1) {
            return Err(refused("rights cannot be given up by a process that has threads".to_owned()));
        }
        let failed = |call: &'static str| {
            move |error: rustix::io::Errno| StageError::io(call, "this process".as_ref(), error)
        };
        set_no_new_privs(true).map_err(failed("prctl(PR_SET_NO_NEW_PRIVS)"))?;
        let groups: Vec<Gid> = self.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        // Groups first: once the user is changed, nothing else may be.
        set_thread_groups(&groups).map_err(failed("setgroups"))?;
        let gid = Gid::from_raw(self.gid);
        set_thread_res_gid(gid, gid, gid).map_err(failed("setresgid"))?;
        let uid = Uid::from_raw(self.uid);
        set_thread_res_uid(uid, uid, uid).map_err(failed("setresuid"))?;
        if self.uid != 0 {
            // The kernel has dropped them with the change of user, unless somebody has set secure bits.
            let none = CapabilitySets {
                effective: CapabilitySet::empty(),
                permitted: CapabilitySet::empty(),
                inheritable: CapabilitySet::empty(),
            };
            set_capabilities(None, none).map_err(failed("capset"))?;
        }
        // The user may not look into, or write to, the memory of a process that was root a moment ago.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed("prctl(PR_SET_DUMPABLE)"))?;
        let status = Status::read()?;
        self.differs(&status)
            .map_or(Ok(()), |what| Err(refused(format!("this process is not who it should be: {what}"))))
    }

    /// What in the kernel's account of a process is not as it should be.
    fn differs(&self, status: &Status) -> Option<String> {
        let mut groups = status.numbers("Groups");
        groups.sort_unstable();
        groups.dedup();
        let mut expected = vec![
            ("Uid", status.numbers("Uid"), vec![self.uid; 4]),
            ("Gid", status.numbers("Gid"), vec![self.gid; 4]),
            ("Groups", groups, self.groups.clone()),
            ("NoNewPrivs", status.numbers("NoNewPrivs"), vec![1]),
        ];
        if self.uid != 0 {
            for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
                let held = status.0.get(set).and_then(|text| u64::from_str_radix(text, 16).ok());
                expected.push((set, vec![u32::from(held != Some(0))], vec![0]));
            }
        }
        let (name, is, should) = expected.into_iter().find(|(_, is, should)| is != should)?;
        Some(format!("{name} is {is:?} and not {should:?}"))
    }
}

/// May this process take on anybody's?
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// `/proc/self/status`, by its fields (proc_pid_status(5)).
struct Status(HashMap<String, String>);

impl Status {
    fn read() -> Result<Self, StageError> {
        let path = "/proc/self/status";
        let text =
            std::fs::read_to_string(path).map_err(|error| StageError::io("read", path.as_ref(), error))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    }

    fn numbers(&self, name: &str) -> Vec<u32> {
        let words = self.0.get(name).map(|value| value.split_whitespace());
        words.into_iter().flatten().filter_map(|word| word.parse().ok()).collect()
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.numbers(name).first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DROPPED: &str = "Name:\tx\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t9 8 \nNoNewPrivs:\t1\n\
        CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapAmb:\t0000000000000000\n";

    #[test]
    fn a_process_that_kept_anything_is_told_from_one_that_did_not() {
        let wanted = Credentials { uid: 7, gid: 8, groups: vec![8, 9] };
        assert_eq!(wanted.differs(&Status::parse(DROPPED)), None);
        for (right, wrong) in [
            ("Uid:\t7\t7\t7\t7", "Uid:\t7\t7\t0\t7"),
            ("Gid:\t8\t8\t8\t8", "Gid:\t8\t8\t8\t0"),
            ("Groups:\t9 8", "Groups:\t9 8 0"),
            ("Groups:\t9 8", "Groups:\t9"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
            ("CapEff:\t0000000000000000", "CapEff:\t0000000000000001"),
            ("CapPrm:\t0000000000000000", "CapPrm:\t0000003fffffffff"),
            ("CapAmb:\t0000000000000000\n", ""),
        ] {
            let text = DROPPED.replace(right, wrong);
            assert_ne!(text, DROPPED);
            assert!(wanted.differs(&Status::parse(&text)).is_some(), "{wrong}");
        }
    }

    #[test]
    fn groups_tell_directories_apart() {
        let name = |groups: &[u32]| Credentials { uid: 7, gid: 8, groups: groups.to_vec() }.name();
        assert!(name(&[]).starts_with("7-8-"));
        assert_ne!(name(&[]), name(&[0]));
        assert_ne!(name(&[1, 2]), name(&[1, 3]));
        assert_eq!(name(&[1, 2]), name(&[1, 2]));
    }

    #[test]
    fn a_process_with_threads_does_not_pretend_to_give_rights_up() {
        // The test harness runs each test in a thread beside the main one.
        let me = Credentials { uid: 65534, gid: 65534, groups: Vec::new() };
        assert!(matches!(me.assume(), Err(StageError::Refused { .. })));
    }
}
