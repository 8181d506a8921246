//! Idle states of the CPUs (kernel, `Documentation/admin-guide/pm/cpuidle.rst`).
//!
//! A CPU with nothing to do sleeps, the deeper the longer it expects to, and takes up to the state's exit latency to wake
//! up when a completion comes. That time is in the latency of each request that was waited for.

use storage::sysfs::Sysfs;

/// An idle state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleState {
    /// Its name: `C6`.
    pub name: String,
    /// Time that it takes to leave it, microseconds.
    pub exit_latency_us: u64,
}

/// The deepest state that the first CPU may enter; None where the kernel names none.
#[must_use]
pub fn deepest(sysfs: &Sysfs) -> Option<IdleState> {
    let states = super::entries(&sysfs.at_root("/sys/devices/system/cpu/cpu0/cpuidle"), "state");
    let state = |folder: std::path::PathBuf| {
        let text = |file: &str| super::read(&folder.join(file));
        let exit_latency_us = text("latency")?.parse().ok()?;
        let allowed = text("disable").is_none_or(|disable| disable == "0");
        allowed.then(|| IdleState { name: text("name").unwrap_or_default(), exit_latency_us })
    };
    states.into_iter().filter_map(state).max_by_key(|state| state.exit_latency_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_state_that_is_allowed_counts() {
        let dir = tempfile::tempdir().expect("a directory");
        let put = |state: &str, file: &str, text: &str| {
            let folder = dir.path().join("sys/devices/system/cpu/cpu0/cpuidle").join(state);
            std::fs::create_dir_all(&folder).expect("directories");
            std::fs::write(folder.join(file), text).expect("a file");
        };
        for (state, name, latency, disable) in
            [("state0", "POLL", "0", "0"), ("state1", "C1E", "10", "0"), ("state2", "C6", "133", "0")]
        {
            put(state, "name", name);
            put(state, "latency", latency);
            put(state, "disable", disable);
        }
        let sysfs = Sysfs::at(dir.path());
        assert_eq!(deepest(&sysfs), Some(IdleState { name: "C6".into(), exit_latency_us: 133 }));
        put("state2", "disable", "1");
        assert_eq!(deepest(&sysfs).map(|state| state.exit_latency_us), Some(10));
        assert_eq!(deepest(&Sysfs::at(dir.path().join("nothing"))), None);
    }
}
