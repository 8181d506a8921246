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
    /// Time that a CPU must spend in it for entering to pay off (target residency), microseconds; 0 where the kernel does
    /// not say. A CPU does not enter it when it expects to sleep for less.
    pub residency_us: u64,
}

/// The states that the first CPU may enter, in the kernel's order; empty where the kernel names none.
#[must_use]
pub fn allowed(sysfs: &Sysfs) -> Vec<IdleState> {
    let states = super::entries(&sysfs.at_root("/sys/devices/system/cpu/cpu0/cpuidle"), "state");
    let state = |folder: std::path::PathBuf| {
        let text = |file: &str| super::read(&folder.join(file));
        let number = |file: &str| text(file)?.parse().ok();
        let exit_latency_us = number("latency")?;
        let residency_us = number("residency").unwrap_or(0);
        let name = text("name").unwrap_or_default();
        let is_allowed = text("disable").is_none_or(|disable| disable == "0");
        is_allowed.then_some(IdleState { name, exit_latency_us, residency_us })
    };
    states.into_iter().filter_map(state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_that_are_allowed_are_read_with_their_residency() {
        let dir = tempfile::tempdir().expect("a directory");
        let put = |state: &str, file: &str, text: &str| {
            let folder = dir.path().join("sys/devices/system/cpu/cpu0/cpuidle").join(state);
            std::fs::create_dir_all(&folder).expect("directories");
            std::fs::write(folder.join(file), text).expect("a file");
        };
        for (state, name, latency) in
            [("state0", "POLL", "0"), ("state1", "C1E", "10"), ("state2", "C6", "133")]
        {
            put(state, "name", name);
            put(state, "latency", latency);
            put(state, "disable", "0");
        }
        put("state2", "residency", "600");
        let sysfs = Sysfs::at(dir.path());
        let found = || {
            allowed(&sysfs).into_iter().map(|state| (state.name, state.exit_latency_us, state.residency_us))
        };
        let named = |name: &str, latency, residency| (name.to_owned(), latency, residency);
        assert!(found().eq([named("POLL", 0, 0), named("C1E", 10, 0), named("C6", 133, 600)]));
        put("state2", "disable", "1");
        assert_eq!(found().next_back(), Some(named("C1E", 10, 0)));
        assert_eq!(allowed(&Sysfs::at(dir.path().join("nothing"))), []);
    }
}
