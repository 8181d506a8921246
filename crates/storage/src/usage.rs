//! What this process and its threads use, and where they run.

use std::io;

/// getrusage(2), Linux: the calling thread. The libc crate lacks it for some targets.
const RUSAGE_THREAD: libc::c_int = 1;

/// CPU time and switches, from getrusage(2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode, nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel, nanoseconds.
    pub system_ns: u64,
    /// Context switches because a thread waited.
    pub voluntary_context_switches: u64,
    /// Context switches because a thread was preempted.
    pub involuntary_context_switches: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
}

impl Usage {
    /// What was used since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            voluntary_context_switches: self
                .voluntary_context_switches
                .saturating_sub(earlier.voluntary_context_switches),
            involuntary_context_switches: self
                .involuntary_context_switches
                .saturating_sub(earlier.involuntary_context_switches),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
        }
    }
}

/// What the calling thread has used so far: user and system time together to the microsecond.
#[must_use]
pub fn thread() -> Usage {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // The kernel adds the time of a running thread at its ticks, a few milliseconds apart, and when it is asked for the
    // thread's clock: then getrusage(2) has all of it. How it divides the sum into user and system goes by ticks.
    // SAFETY: the pointer is to a timespec on our stack.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    usage(RUSAGE_THREAD)
}

/// What the process has used so far, all threads together.
#[must_use]
pub fn process() -> Usage {
    usage(libc::RUSAGE_SELF)
}

fn usage(who: libc::c_int) -> Usage {
    // SAFETY: rusage is plain integers, for which all zeros is a value.
    let mut raw: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a rusage on our stack. With these two values of `who` it cannot fail.
    unsafe { libc::getrusage(who, &raw mut raw) };
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1_000;
    Usage {
        user_ns: ns(raw.ru_utime),
        system_ns: ns(raw.ru_stime),
        voluntary_context_switches: raw.ru_nvcsw as u64,
        involuntary_context_switches: raw.ru_nivcsw as u64,
        minor_faults: raw.ru_minflt as u64,
        major_faults: raw.ru_majflt as u64,
    }
}

/// The CPU on which the calling thread is at this moment (sched_getcpu(3)); none where the kernel does not say.
#[must_use]
pub fn current_cpu() -> Option<u32> {
    // SAFETY: the call takes nothing and touches no memory of ours.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// As many CPUs as any kernel is built for (`NR_CPUS`); sched_getaffinity(2) refuses a set that is
/// smaller than the machine.
const MAX_CPUS: usize = 8192;

/// A set of CPUs as sched_setaffinity(2) takes it: one bit each, in words of the machine.
type CpuSet = [libc::c_ulong; MAX_CPUS / libc::c_ulong::BITS as usize];

/// The word and bit of a CPU in a set.
fn place(cpu: u32) -> (usize, libc::c_ulong) {
    ((cpu / libc::c_ulong::BITS) as usize, 1 << (cpu % libc::c_ulong::BITS))
}

/// The CPUs that the calling thread may run on, ascending (sched_getaffinity(2)).
#[must_use]
pub fn allowed_cpus() -> Vec<u32> {
    let mut set: CpuSet = [0; MAX_CPUS / libc::c_ulong::BITS as usize];
    // SAFETY: the pointer and size describe the set on our stack; a cpu_set_t is the same words, fewer.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), set.as_mut_ptr().cast()) };
    if result != 0 {
        return Vec::new();
    }
    (0..MAX_CPUS as u32)
        .filter(|cpu| {
            let (word, bit) = place(*cpu);
            set[word] & bit != 0
        })
        .collect()
}

/// Binds the calling thread to one CPU.
///
/// # Errors
/// `EINVAL` where the CPU does not exist or is not allowed.
pub fn bind_to_cpu(cpu: u32) -> io::Result<()> {
    bind_to_cpus(&[cpu])
}

/// Binds the calling thread, and those that it starts from now on, to some CPUs (sched_setaffinity(2)). Of
/// those that do not exist the kernel takes no notice, as long as there is one that does.
///
/// # Errors
/// `EINVAL` where none of them exists and is allowed, or one has a number that no kernel gives.
pub fn bind_to_cpus(cpus: &[u32]) -> io::Result<()> {
    if cpus.iter().any(|cpu| *cpu as usize >= MAX_CPUS) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set: CpuSet = [0; MAX_CPUS / libc::c_ulong::BITS as usize];
    for cpu in cpus {
        let (word, bit) = place(*cpu);
        set[word] |= bit;
    }
    // SAFETY: as in `allowed_cpus`; the call only reads the set.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&set), set.as_ptr().cast()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Where the kernel puts the memory that a thread touches first: the modes of set_mempolicy(2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// On the node of the CPU that touches it, whatever the process was started with.
    Default,
    /// On the node of the CPU that touches it.
    Local,
    /// On this node while it has room.
    Prefer(u32),
    /// On these nodes and no other.
    Bind(Vec<u32>),
    /// On these nodes in turn, page by page.
    Interleave(Vec<u32>),
}

/// As many NUMA nodes as any kernel is built for (`MAX_NUMNODES`).
const MAX_NODES: u32 = 1024;

/// Sets the policy for all memory that the calling thread touches first from now on (set_mempolicy(2)).
///
/// # Errors
/// `EINVAL` where a node is not there or not allowed, `ENOSYS` where the kernel knows no nodes.
pub fn set_memory_policy(policy: &MemoryPolicy) -> io::Result<()> {
    const WORD: u32 = libc::c_ulong::BITS;
    let (mode, nodes): (libc::c_int, &[u32]) = match policy {
        MemoryPolicy::Default => (libc::MPOL_DEFAULT, &[]),
        MemoryPolicy::Local => (libc::MPOL_LOCAL, &[]),
        MemoryPolicy::Prefer(node) => (libc::MPOL_PREFERRED, std::slice::from_ref(node)),
        MemoryPolicy::Bind(nodes) => (libc::MPOL_BIND, nodes),
        MemoryPolicy::Interleave(nodes) => (libc::MPOL_INTERLEAVE, nodes),
    };
    let mut mask: [libc::c_ulong; (MAX_NODES / WORD) as usize] = [0; (MAX_NODES / WORD) as usize];
    for node in nodes {
        let word = mask.get_mut((node / WORD) as usize).ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (node % WORD);
    }
    // The kernel reads one bit less than it is told of.
    let (mask, bits) = match nodes {
        [] => (std::ptr::null(), 0),
        _ => (mask.as_ptr(), libc::c_ulong::from(MAX_NODES) + 1),
    };
    // SAFETY: the mask is null with no bits, or on our stack with as many bits as the kernel reads of it.
    match unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, bits) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A class of the kernel's I/O scheduling (ioprio_set(2)). It is heeded by the schedulers bfq and mq-deadline and by some
/// drives, and by nothing where there are neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoClass {
    /// None of its own: as the thread's CPU priority has it.
    Unset,
    /// Before all others. It takes a right (`CAP_SYS_NICE`).
    RealTime,
    /// The usual one.
    BestEffort,
    /// Only when there is nothing else to do.
    Idle,
}

/// The priority of a request, or of all of a thread's, as the kernel has it: class, level and hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoPriority(u16);

impl IoPriority {
    /// None of its own.
    pub const UNSET: Self = Self(0);
    /// The idle class.
    pub const IDLE: Self = Self(3 << 13);

    /// A class, in it a level of 0 (first) to 7, and a hint for the drive of 0 (none) to 1023. None if one is out of range.
    #[must_use]
    pub fn new(class: IoClass, level: u16, hint: u16) -> Option<Self> {
        let class: u16 = match class {
            IoClass::Unset => 0,
            IoClass::RealTime => 1,
            IoClass::BestEffort => 2,
            IoClass::Idle => 3,
        };
        (level < 8 && hint < 1024).then_some(Self(class << 13 | hint << 3 | level))
    }

    /// The number that system calls take, and logs hold.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }
}

impl std::fmt::Display for IoPriority {
    /// `rt/4`, `be/0 hint 2`, `idle`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (level, hint) = (self.0 & 7, self.0 >> 3 & 1023);
        match self.0 >> 13 {
            0 => f.write_str("none")?,
            1 => write!(f, "rt/{level}")?,
            2 => write!(f, "be/{level}")?,
            _ => f.write_str("idle")?,
        }
        if hint > 0 { write!(f, " hint {hint}") } else { Ok(()) }
    }
}

/// Gives the calling thread's requests a priority, of those that have none of their own.
///
/// # Errors
/// `EPERM` for the real-time class without the right to it, `EINVAL` for a level without a class.
pub fn set_io_priority(priority: IoPriority) -> io::Result<()> {
    const WHO_PROCESS: libc::c_int = 1;
    // SAFETY: the call takes three numbers and no pointer; 0 is the calling thread.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, libc::c_int::from(priority.0)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has this thread's requests served only when nobody else has any.
pub fn idle_io_priority() -> io::Result<()> {
    set_io_priority(IoPriority::IDLE)
}

/// Lets the calling thread's timers expire when they are due, instead of up to 50 µs later
/// (PR_SET_TIMERSLACK, prctl(2)). A rate that is kept by sleeping would otherwise show the slack as
/// latency.
pub fn precise_timers() {
    // SAFETY: PR_SET_TIMERSLACK takes a number and changes only this thread's slack.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// Raises a soft limit to the hard one, so that only a limit that somebody really set stands in the
/// way. Returns the limit in force.
#[must_use]
pub fn raise_limit(resource: Limit) -> u64 {
    let resource = match resource {
        Limit::LockedMemory => libc::RLIMIT_MEMLOCK,
        Limit::OpenFiles => libc::RLIMIT_NOFILE,
    };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to an rlimit on our stack.
    if unsafe { libc::getrlimit(resource, &raw mut limit) } != 0 {
        return 0;
    }
    if limit.rlim_cur < limit.rlim_max {
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        // SAFETY: the pointer is to an rlimit on our stack.
        if unsafe { libc::setrlimit(resource, &raw const raised) } == 0 {
            limit = raised;
        }
    }
    limit.rlim_cur
}

/// A resource whose soft limit may stand in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Memory that may be locked, which registered buffers count against (io_uring_register(2)).
    LockedMemory,
    /// Open descriptors.
    OpenFiles,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_in_the_threads_usage_as_it_is_done_and_not_at_the_kernels_ticks() {
        let before = thread();
        let mut seen = std::collections::BTreeSet::from([0]);
        while *seen.last().expect("never empty") < 2_000_000 {
            let used = thread().since(before);
            seen.insert(used.user_ns + used.system_ns);
        }
        // Two milliseconds have three ticks at most, of a thousand a second.
        assert!(seen.len() > 20, "{seen:?}");
        let all = process();
        assert!(all.user_ns + all.system_ns > 0);
    }

    #[test]
    fn priorities_are_the_numbers_that_the_kernel_takes() {
        let number = |class, level, hint| IoPriority::new(class, level, hint).map(IoPriority::number);
        // linux/ioprio.h: IOPRIO_PRIO_VALUE_HINT.
        assert_eq!(number(IoClass::RealTime, 4, 0), Some(0x2004));
        assert_eq!(number(IoClass::BestEffort, 7, 0), Some(0x4007));
        assert_eq!(number(IoClass::Idle, 0, 0), Some(IoPriority::IDLE.number()));
        assert_eq!(number(IoClass::BestEffort, 0, 3), Some(0x4018));
        assert_eq!(number(IoClass::Unset, 0, 0), Some(0));
        assert_eq!(number(IoClass::BestEffort, 8, 0), None);
        assert_eq!(number(IoClass::BestEffort, 0, 1024), None);
        let text = |class, level, hint| IoPriority::new(class, level, hint).expect("in range").to_string();
        assert_eq!(text(IoClass::RealTime, 4, 0), "rt/4");
        assert_eq!(text(IoClass::BestEffort, 0, 2), "be/0 hint 2");
        assert_eq!(text(IoClass::Idle, 0, 0), "idle");
    }

    #[test]
    fn a_thread_has_the_io_priority_that_it_was_given() {
        std::thread::spawn(|| {
            let low = IoPriority::new(IoClass::BestEffort, 6, 0).expect("in range");
            set_io_priority(low).expect("takes no right");
            // SAFETY: the call takes two numbers and no pointer; 0 is the calling thread.
            let is = unsafe { libc::syscall(libc::SYS_ioprio_get, 1, 0) };
            assert_eq!(is, libc::c_long::from(low.number()));
            let wrong = IoPriority::new(IoClass::Unset, 3, 0).expect("in range");
            assert_eq!(set_io_priority(wrong).expect_err("no class").raw_os_error(), Some(libc::EINVAL));
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn a_thread_can_be_bound_to_each_cpu_it_may_use() {
        std::thread::spawn(|| {
            let cpus = allowed_cpus();
            assert!(!cpus.is_empty());
            bind_to_cpus(&cpus).expect("all that are allowed");
            assert_eq!(allowed_cpus(), cpus);
            for cpu in cpus {
                bind_to_cpu(cpu).expect("an allowed CPU");
                assert_eq!(allowed_cpus(), [cpu]);
            }
            for missing in [8191, 8192, u32::MAX] {
                let error = bind_to_cpu(missing).expect_err("no such CPU");
                assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{missing}");
            }
        })
        .join()
        .expect("no panic");
    }
}
