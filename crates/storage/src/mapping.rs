//! A file or block device as memory (mmap(2), shared), of which an access that fails is an error and not the end.
//!
//! Loads and stores are copies that the language defines under races ([`crate::memory`]), because other mappings, and other
//! programs, may change the same bytes. What a system call would answer with an error, a load or store answers with the signal
//! SIGBUS: the file has been cut short, the medium failed, or there was no room for a page of a hole. So:
//!
//! 1. **All accesses lie inside the size that the mapping was made with**; nothing beyond it is touched.
//! 2. **An access says where it is** before it begins, in a variable of its thread. The handler of SIGBUS looks there. An address
//!    in the range gets a page of zeros in the place of the one that cannot be had, and the access goes on. Any other address is
//!    the affair of the handler that was there before. A signal that no access has met, but a process has sent, does what it
//!    would do without this handler: it ends the process, unless it was ignored before.
//! 3. **The range is mapped again** after such an access, so that no later one sees the zeros, and the access is an error.
//!
//! The handler is installed with the first mapping and stays. In the last page of a file that has been cut short, bytes behind
//! the end can be stored without a signal, and are lost: there the kernel says nothing.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

use crate::device::sys;
use crate::memory::{copy_racing_in, copy_racing_out};

/// The mapping of a whole file or device. See the module's argument.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: NonNull<u8>,
    /// Bytes that may be accessed.
    length: usize,
    writable: bool,
    /// Whether a range could not be mapped again, so that what it holds is not the file.
    lost: Cell<bool>,
}

/// An access that met SIGBUS. What it transferred is worth nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BusError;

impl Mapping {
    /// Maps the first `size` bytes.
    pub fn new(fd: BorrowedFd<'_>, size: u64, writable: bool) -> io::Result<Self> {
        install()?;
        let length = usize::try_from(size).map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let address = unsafe { map(std::ptr::null_mut(), length, writable, 0, fd, 0) }?;
        Ok(Self { address, length, writable, lost: Cell::new(false) })
    }

    /// Copies bytes out. `fd` is what was mapped.
    pub fn load(&self, fd: BorrowedFd<'_>, offset: usize, buffer: &mut [u8]) -> Result<(), BusError> {
        let length = buffer.len();
        assert!(offset.checked_add(length).is_some_and(|end| end <= self.length), "inside the mapping");
        // SAFETY: the bytes lie inside the mapping, which lives as long as self, and of which no reference exists.
        self.access(fd, offset, length, || unsafe { copy_racing_out(self.address.as_ptr(), offset, buffer) })
    }

    /// Copies bytes in. `fd` is what was mapped.
    pub fn store(&self, fd: BorrowedFd<'_>, offset: usize, buffer: &[u8]) -> Result<(), BusError> {
        let length = buffer.len();
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(self.writable && inside, "inside a mapping that may be written");
        // SAFETY: as for `load`, and the mapping is writable.
        self.access(fd, offset, length, || unsafe { copy_racing_in(self.address.as_ptr(), offset, buffer) })
    }

    fn access(
        &self,
        fd: BorrowedFd<'_>,
        offset: usize,
        length: usize,
        copy: impl FnOnce(),
    ) -> Result<(), BusError> {
        if self.lost.get() {
            return Err(BusError);
        }
        let page = page_bytes();
        // Whole pages, because copies may touch the word that a byte lies in.
        let first = offset / page * page;
        let last = (offset + length).next_multiple_of(page);
        let start = self.address.as_ptr().addr() + first;
        let faults = ACCESS.with(|access| {
            access.faults.set(0);
            access.range.set((start, start + (last - first)));
            // The handler runs on this thread, in the middle of the copy.
            compiler_fence(SeqCst);
            copy();
            compiler_fence(SeqCst);
            access.range.set((0, 0));
            access.faults.get()
        });
        if faults == 0 {
            return Ok(());
        }
        let at = self.address.as_ptr().wrapping_add(first);
        // SAFETY: the range lies in this mapping, and no access to it is under way: this thread has just ended the only one, for a
        // mapping is not shared by threads.
        let again =
            unsafe { map(at, last - first, self.writable, libc::MAP_FIXED, fd, first as libc::off_t) };
        self.lost.set(again.is_err());
        Err(BusError)
    }

    /// madvise(2): whether accesses come in no order. If not told so, the kernel reads dozens of pages around each fault.
    pub fn advise(&self, random: bool) -> io::Result<()> {
        let advice = if random { libc::MADV_RANDOM } else { libc::MADV_SEQUENTIAL };
        // SAFETY: the range is this mapping; its contents stay.
        unsafe { sys::advise(self.address, self.length, advice) }
    }

    /// msync(2) of all of it: what was stored is durable then, without the file's times.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping; nothing of it changes.
        let result = unsafe { libc::msync(self.address.as_ptr().cast(), self.length, libc::MS_SYNC) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what this value mapped, unmapped once.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.length) };
    }
}

/// # Safety
/// With `MAP_FIXED`, what lies at `at` must be the caller's to replace.
unsafe fn map(
    at: *mut u8,
    length: usize,
    writable: bool,
    flags: c_int,
    fd: BorrowedFd<'_>,
    offset: libc::off_t,
) -> io::Result<NonNull<u8>> {
    let access = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    // SAFETY: the caller vouches for the address.
    let address =
        unsafe { libc::mmap(at.cast(), length, access, libc::MAP_SHARED | flags, fd.as_raw_fd(), offset) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(address.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}

/// Where this thread accesses a mapping.
struct Access {
    /// From, and up to and without; empty while there is no access.
    range: Cell<(usize, usize)>,
    /// Pages of it that could not be had.
    faults: Cell<u32>,
}

thread_local! {
    // Without a destructor and with a constant for its start, so that a signal handler may look at it.
    static ACCESS: Access = const { Access { range: Cell::new((0, 0)), faults: Cell::new(0) } };
}

/// What handled SIGBUS before, and the size of a page; there once the handler is installed.
static INSTALLED: OnceLock<Installed> = OnceLock::new();

struct Installed {
    previous: libc::sigaction,
    page: usize,
}

fn page_bytes() -> usize {
    INSTALLED.get().map_or(4096, |installed| installed.page)
}

/// Installs the handler, once.
fn install() -> io::Result<()> {
    let mut failed = None;
    INSTALLED.get_or_init(|| {
        // SAFETY: integers and a set of signals, of which zero is a value; filled in below.
        let (mut action, mut previous): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_bus_error as *const () as libc::sighandler_t;
        // On the stack for signals, where the thread has one, as handlers of stack overflows are.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: both structures are valid, and the handler does only what a handler may: see there.
        if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut previous) } != 0 {
            failed = Some(io::Error::last_os_error());
        }
        // SAFETY: takes and gives integers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        Installed { previous, page: usize::try_from(page).unwrap_or(4096) }
    });
    failed.map_or(Ok(()), Err)
}

/// Puts a page of zeros where an access of this thread met a page that cannot be had. It calls mmap(2) and nothing else that
/// the C library has, takes no lock and allocates nothing.
extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands a valid siginfo_t to a handler with SA_SIGINFO.
    if unsafe { (*info).si_code } <= 0 {
        // Sent (SI_USER and its kin): it has no address, and comes but once.
        return end_by(signal);
    }
    // SAFETY: as above, and a SIGBUS of the kernel's has an address.
    let address = unsafe { (*info).si_addr() }.addr();
    let replaced = ACCESS.try_with(|access| {
        let (start, end) = access.range.get();
        if !(start..end).contains(&address) || !replace(address) {
            return false;
        }
        access.faults.set(access.faults.get().saturating_add(1));
        true
    });
    if !matches!(replaced, Ok(true)) {
        // SAFETY: the arguments are those of this very call.
        unsafe { pass_on(signal, info, context) };
    }
}

/// Does by default what a signal that was sent does: it ends the process once the handler has returned, for until then it is
/// blocked. The handler that was there before is not asked: it may take every SIGBUS for one that an access has met, as Rust's does,
/// and count on its coming again.
fn end_by(signal: c_int) {
    if INSTALLED.get().is_some_and(|installed| installed.previous.sa_sigaction == libc::SIG_IGN) {
        return;
    }
    // SAFETY: the structure is valid (zero is a value of its fields, and SIG_DFL is zero), and raise(3) may be called in a handler.
    unsafe {
        let action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        libc::raise(signal);
    }
}

/// Maps zeros over the page of an address. Called for pages of a mapping that this thread accesses.
fn replace(address: usize) -> bool {
    let page = page_bytes();
    let start = (address / page * page) as *mut c_void;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the page lies in a mapping of this module's, in the range of the access that was interrupted, which a page of
    // zeros lets go on. errno is the interrupted code's, and put back.
    unsafe {
        let errno = *libc::__errno_location();
        let mapped = libc::mmap(start, page, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        *libc::__errno_location() = errno;
        mapped != libc::MAP_FAILED
    }
}

/// Leaves a signal to the handler that was there before; where there was none, to the kernel, which ends the process when
/// the access is made again.
///
/// # Safety
/// The arguments must be those of a signal handler that is running.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = INSTALLED.get().map(|installed| &installed.previous);
    match previous {
        Some(action) if action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN => {
            let function = std::ptr::with_exposed_provenance::<()>(action.sa_sigaction);
            if action.sa_flags & libc::SA_SIGINFO != 0 {
                type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
                // SAFETY: with SA_SIGINFO that is the type of what was installed.
                let handler = unsafe { std::mem::transmute::<*const (), Handler>(function) };
                handler(signal, info, context);
            } else {
                // SAFETY: without SA_SIGINFO that is its type.
                let handler = unsafe { std::mem::transmute::<*const (), extern "C" fn(c_int)>(function) };
                handler(signal);
            }
        }
        _ => {
            // SAFETY: zero is a value of its fields, and SIG_DFL is zero.
            let action: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: the structure is valid.
            unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn file(bytes: usize) -> std::fs::File {
        use std::io::Write;
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&vec![7; bytes]).expect("has room");
        file
    }

    #[test]
    fn what_is_stored_is_in_the_file_and_what_is_in_the_file_is_loaded() {
        use std::os::unix::fs::FileExt;
        let file = file(10_000);
        let mapping = Mapping::new(file.as_fd(), 10_000, true).expect("maps");
        mapping.store(file.as_fd(), 4090, &[9; 20]).expect("stores");
        let mut buffer = [0; 30];
        file.read_exact_at(&mut buffer, 4085).expect("reads");
        assert_eq!(buffer[..5], [7; 5]);
        assert_eq!(buffer[5..25], [9; 20]);
        file.write_all_at(&[5; 10], 9990).expect("writes");
        mapping.load(file.as_fd(), 9990, &mut buffer[..10]).expect("loads");
        assert_eq!(buffer[..10], [5; 10]);
        mapping.sync().expect("syncs");
    }

    #[test]
    fn a_file_that_is_cut_short_gives_an_error_and_no_signal_and_heals_when_it_grows() {
        let page = 1 << 16;
        let file = file(4 * page);
        let mapping = Mapping::new(file.as_fd(), 4 * page as u64, true).expect("maps");
        let mut buffer = vec![0; 2 * page];
        file.set_len(2 * page as u64).expect("is cut");
        for _ in 0..2 {
            assert_eq!(mapping.load(file.as_fd(), page, &mut buffer), Err(BusError));
            assert_eq!(mapping.store(file.as_fd(), 3 * page, &buffer[..100]), Err(BusError));
        }
        mapping.load(file.as_fd(), 0, &mut buffer).expect("what is left is there");
        assert!(buffer.iter().all(|byte| *byte == 7));
        file.set_len(4 * page as u64).expect("grows");
        mapping.store(file.as_fd(), 3 * page, &[9; 100]).expect("is there again");
        mapping.load(file.as_fd(), 3 * page, &mut buffer[..200]).expect("is there again");
        assert_eq!((buffer[..100].to_vec(), buffer[100..200].to_vec()), (vec![9; 100], vec![0; 100]));
    }

    #[test]
    fn a_range_that_cannot_be_mapped_again_is_not_accessed_any_more() {
        let file = file(1 << 16);
        let mapping = Mapping::new(file.as_fd(), 1 << 16, true).expect("maps");
        let (pipe, _other) = std::io::pipe().expect("a pipe");
        file.set_len(0).expect("is cut");
        // In the place of the file something that cannot be mapped.
        assert_eq!(mapping.store(pipe.as_fd(), 0, &[1]), Err(BusError));
        file.set_len(1 << 16).expect("grows");
        assert_eq!(mapping.store(file.as_fd(), 0, &[1]), Err(BusError), "it would go to a page of zeros");
        assert_eq!(mapping.load(file.as_fd(), 0, &mut [0]), Err(BusError));
    }

    /// Runs the test `name` of this file in a process of its own, where it plays `part`; the signal that ended it.
    fn ended_by(name: &str, part: &str) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt;
        let program = std::env::current_exe().expect("this program");
        let mut child = std::process::Command::new("sh");
        // Without a core file in the working directory.
        child.args(["-c", "ulimit -c 0; exec \"$0\" \"$@\""]).arg(program);
        child.args([&format!("mapping::tests::{name}"), "--exact"]).env(PART, part);
        child.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        child.status().expect("it runs").signal()
    }

    /// Names what a process plays that a test has started; not an option of the product's.
    const PART: &str = "MAPPING_TEST_PART";

    #[test]
    fn a_signal_that_is_sent_or_that_an_access_elsewhere_meets_ends_the_process() {
        const NAME: &str = "a_signal_that_is_sent_or_that_an_access_elsewhere_meets_ends_the_process";
        let Ok(part) = std::env::var(PART) else {
            for part in ["sent", "elsewhere"] {
                assert_eq!(ended_by(NAME, part), Some(libc::SIGBUS), "{part}");
            }
            assert_eq!(ended_by(NAME, "nothing"), None, "the process ends by itself otherwise");
            return;
        };
        let mapped = file(1 << 16);
        let mapping = Mapping::new(mapped.as_fd(), 1 << 16, true).expect("maps");
        mapped.set_len(0).expect("is cut");
        assert_eq!(mapping.load(mapped.as_fd(), 0, &mut [0]), Err(BusError), "the handler is there");
        match part.as_str() {
            "sent" => {
                let command = format!("kill -BUS {}", std::process::id());
                let sent = std::process::Command::new("sh").args(["-c", &command]).status();
                assert!(sent.expect("kill runs").success());
                std::thread::sleep(std::time::Duration::from_secs(60));
            }
            "elsewhere" => {
                // SAFETY: the mapping is new, and read where the file has no page, which ends this process.
                let byte = unsafe {
                    let at = map(std::ptr::null_mut(), 1 << 16, false, 0, mapped.as_fd(), 0).expect("maps");
                    at.as_ptr().read_volatile()
                };
                assert_eq!(byte, 0, "this is not reached");
            }
            _ => {}
        }
    }

    #[test]
    fn threads_that_meet_it_at_once_each_have_their_error() {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    let file = file(1 << 18);
                    let mapping = Mapping::new(file.as_fd(), 1 << 18, true).expect("maps");
                    file.set_len(0).expect("is cut");
                    let mut buffer = [0; 4096];
                    (0..50).all(|n| mapping.load(file.as_fd(), n * 4096, &mut buffer) == Err(BusError))
                })
            })
            .collect();
        assert!(threads.into_iter().all(|thread| thread.join().expect("no thread ends")));
    }
}
