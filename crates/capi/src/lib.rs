//! The C interface: `include/flashwright.h`, which says what each call does, over `stage::store`.
//!
//! The only `unsafe` here is at the border, where pointers of a C or Fortran program become references, each with what
//! the header asks of the caller for it. No panic leaves a call: it becomes `FW_BUG`. What went wrong in a thread's
//! last call is kept for that thread. A `stage_service::store::Store` may be used by several threads, and so may a `fw_store`.

use std::cell::RefCell;
use std::ffi::{CStr, OsStr, c_char, c_double, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use stage::pace::always;
use stage::{ErrorClass, Level, StageError};
use stage_service::store::{Store, StoreConfig};

/// Done.
pub const FW_OK: c_int = 0;
/// The system would not.
pub const FW_FAILED: c_int = 1;
/// The request makes no sense.
pub const FW_INVALID: c_int = 2;
/// Refused, because it might cost somebody data.
pub const FW_REFUSED: c_int = 3;
/// The time was up.
pub const FW_TIMEOUT: c_int = 4;
/// There is none.
pub const FW_NONE: c_int = 5;
/// A fault of this library's.
pub const FW_BUG: c_int = 6;

/// On the fast tier.
pub const FW_LOCAL: c_int = 1;
/// On the slow tier, verified.
pub const FW_DURABLE: c_int = 2;

thread_local! {
    static LAST_ERROR: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A store, as C holds it.
pub struct FwStore(Store);

/// What opens tiers: directories, and object stores if this library has them.
fn tiers() -> stage::tier::Tiers {
    #[cfg(feature = "s3")]
    return stage_object::tiers();
    #[cfg(not(feature = "s3"))]
    stage::tier::Tiers::default()
}

/// What a call comes to, if it is not what was asked for.
enum Not {
    Done(StageError),
    InTime,
    There,
}

impl From<StageError> for Not {
    fn from(error: StageError) -> Self {
        Self::Done(error)
    }
}

fn tell(message: &str) {
    // In a destructor of this thread's, after this library's own: there is nobody left who could ask.
    let _ = LAST_ERROR.try_with(|last| {
        let mut last = last.borrow_mut();
        last.clear();
        // A NUL would end the message for C; names are escaped before they get here, so there is none.
        last.extend(message.bytes().filter(|byte| *byte != 0));
    });
}

/// Runs what a call does, so that nothing unwinds into C: a panic becomes `otherwise`.
fn guarded<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    // Unwind safety: a store keeps its promises whatever ends a call, that being what it is for; its locks do not care
    // for poison.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// Runs a call, keeps what went wrong for this thread, and returns its code.
fn call(work: impl FnOnce() -> Result<(), Not>) -> c_int {
    // What is said of the end may panic as well: a cause's own words are shown.
    guarded(FW_BUG, || answer(guarded(None, || Some(work()))))
}

/// Keeps what went wrong for this thread; `came` is none after a panic.
fn answer(came: Option<Result<(), Not>>) -> c_int {
    tell("");
    match came {
        Some(Ok(())) => FW_OK,
        Some(Err(Not::InTime)) => {
            tell("the time is up; it goes on");
            FW_TIMEOUT
        }
        Some(Err(Not::There)) => {
            tell("there is no checkpoint");
            FW_NONE
        }
        Some(Err(Not::Done(error))) => {
            let mut message = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(source) = cause {
                message.push_str(&format!(": {source}"));
                cause = source.source();
            }
            if let Some(hint) = error.hint() {
                message.push_str(&format!("\nhint: {hint}"));
            }
            tell(&message);
            match error.class() {
                ErrorClass::Invalid => FW_INVALID,
                ErrorClass::Refused => FW_REFUSED,
                ErrorClass::Failed | ErrorClass::Interrupted => FW_FAILED,
            }
        }
        None => {
            tell("a fault of libflashwright's: it panicked; what it had begun is as a crash would leave it");
            FW_BUG
        }
    }
}

fn null(what: &str) -> Not {
    Not::Done(StageError::invalid(format!("{what} is NULL"), "see flashwright.h"))
}

/// The text that a pointer leads to.
///
/// # Safety
/// NULL, or a string that ends with NUL and stays as it is during the call: what flashwright.h asks for.
unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a OsStr, Not> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: not NULL as just seen; that it ends with NUL and lives during the call is the caller's to see to.
    Ok(OsStr::from_bytes(unsafe { CStr::from_ptr(pointer) }.to_bytes()))
}

/// The store that a pointer leads to.
///
/// # Safety
/// NULL, or what `fw_open` returned and `fw_close` was not given yet.
unsafe fn store<'a>(pointer: *const FwStore) -> Result<&'a Store, Not> {
    // SAFETY: `fw_open` made it by Box::into_raw, so it is aligned and whole, and nothing makes a unique reference to
    // it before `fw_close`, after which the caller does not use it.
    unsafe { pointer.as_ref() }.map(|store| &store.0).ok_or_else(|| null("store"))
}

/// Copies bytes to a caller's buffer, with a NUL behind them.
///
/// # Safety
/// `buffer` is NULL or has `size` bytes that may be written, which nobody else uses during the call.
unsafe fn give(bytes: &[u8], buffer: *mut c_char, size: usize) -> Result<(), Not> {
    if buffer.is_null() {
        return Err(null("buffer"));
    }
    if bytes.len() >= size {
        return Err(Not::Done(StageError::invalid(
            format!("size {size}: {} bytes are needed", bytes.len() + 1),
            "PATH_MAX of limits.h is enough",
        )));
    }
    // SAFETY: `buffer` has `size` bytes, more than `bytes` as just seen; `bytes` is ours, so the two do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast::<u8>(), bytes.len());
        *buffer.add(bytes.len()) = 0;
    }
    Ok(())
}

fn options(config: &mut StoreConfig, words: &str) -> Result<(), StageError> {
    for word in words.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let wrong = |why: &str| {
            StageError::invalid(
                format!("option {word:?}: {why}"),
                "keep_fast=N, keep_slow=N, bwlimit=RATE, state=DIR, read_only, parents, jobs=N, threads=N",
            )
        };
        let number = || value.parse::<u32>().map_err(|_| wrong("a number is expected"));
        match key {
            "keep_fast" => config.keep_fast = Some(number()?),
            "keep_slow" => config.keep_slow = Some(number()?),
            "bwlimit" => {
                let rate = stage_service::qos::rate(value).map_err(|error| wrong(&error.to_string()))?;
                config.options.bwlimit = Some(rate);
            }
            "state" if !value.is_empty() => config.state = Some(value.into()),
            "parents" if value.is_empty() => config.options.parents = true,
            "read_only" if value.is_empty() => config.read_only = true,
            "jobs" => config.jobs = number()?.max(1) as usize,
            "threads" => config.threads = number()?.max(1) as usize,
            _ => return Err(wrong("there is no such option")),
        }
    }
    Ok(())
}

/// See flashwright.h.
///
/// # Safety
/// `fast`, `slow` and `words` are NULL or strings that end with NUL; `opened` is NULL or has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_open(
    fast: *const c_char,
    slow: *const c_char,
    words: *const c_char,
    opened: *mut *mut FwStore,
) -> c_int {
    call(|| {
        if opened.is_null() {
            return Err(null("store"));
        }
        // SAFETY: strings, as this function's own contract has it.
        let (fast, slow) = unsafe { (text(fast, "fast")?, text(slow, "slow")?) };
        let mut config = StoreConfig { tiers: tiers(), ..StoreConfig::new(Path::new(fast), Path::new(slow)) };
        if !words.is_null() {
            // SAFETY: a string, as this function's own contract has it.
            let words = unsafe { text(words, "options")? };
            let words = words.to_str().ok_or_else(|| {
                Not::Done(StageError::invalid(
                    "options: not UTF-8",
                    "name the state directory by another way",
                ))
            })?;
            options(&mut config, words)?;
        }
        let store = Box::new(FwStore(Store::open(config)?));
        // SAFETY: not NULL as seen above, and room for a pointer, as this function's own contract has it.
        unsafe { *opened = Box::into_raw(store) };
        Ok(())
    })
}

/// See flashwright.h.
///
/// # Safety
/// `closed` is NULL or what `fw_open` gave, and nobody uses it from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_close(closed: *mut FwStore) -> c_int {
    call(|| {
        if closed.is_null() {
            return Ok(());
        }
        // SAFETY: Box::into_raw made it, and it is given back once, as this function's own contract has it.
        let store = unsafe { Box::from_raw(closed) };
        Ok(store.0.close()?)
    })
}

/// See flashwright.h.
///
/// # Safety
/// `open` is NULL or an open store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_begin(open: *const FwStore, step: u64) -> c_int {
    // SAFETY: as this function's own contract has it.
    call(|| Ok(unsafe { store(open)? }.begin(step).map(drop)?))
}

/// See flashwright.h.
///
/// # Safety
/// `open` is NULL or an open store; `buffer` is NULL or has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_path(open: *const FwStore, step: u64, buffer: *mut c_char, size: usize) -> c_int {
    call(|| {
        // SAFETY: as this function's own contract has it.
        let path = unsafe { store(open)? }.path(step)?;
        // SAFETY: as this function's own contract has it.
        unsafe { give(path.as_os_str().as_bytes(), buffer, size) }
    })
}

/// See flashwright.h.
///
/// # Safety
/// `open` is NULL or an open store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_commit(open: *const FwStore, step: u64) -> c_int {
    // SAFETY: as this function's own contract has it.
    call(|| Ok(unsafe { store(open)? }.commit(step).map(drop)?))
}

/// See flashwright.h.
///
/// # Safety
/// `open` is NULL or an open store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_abandon(open: *const FwStore, step: u64) -> c_int {
    // SAFETY: as this function's own contract has it.
    call(|| Ok(unsafe { store(open)? }.abandon(step)?))
}

fn level(level: c_int) -> Result<Level, Not> {
    match level {
        FW_LOCAL => Ok(Level::Local),
        FW_DURABLE => Ok(Level::Durable),
        other => Err(Not::Done(StageError::invalid(
            format!("level {other}: there is no such level"),
            "FW_LOCAL or FW_DURABLE",
        ))),
    }
}

/// See flashwright.h.
///
/// # Safety
/// `open` is NULL or an open store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_wait(open: *const FwStore, step: u64, upto: c_int, seconds: c_double) -> c_int {
    call(|| {
        // SAFETY: as this function's own contract has it.
        let store = unsafe { store(open)? };
        // More than a Duration holds, infinity and NaN are as long as it takes, as is what is negative.
        let most = Duration::try_from_secs_f64(seconds).ok();
        if store.wait(Some(step), level(upto)?, most, &always)? { Ok(()) } else { Err(Not::InTime) }
    })
}

/// See flashwright.h.
///
/// # Safety
/// `open` is NULL or an open store; `step` is NULL or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_latest(open: *const FwStore, upto: c_int, step: *mut u64) -> c_int {
    call(|| {
        if step.is_null() {
            return Err(null("step"));
        }
        // SAFETY: as this function's own contract has it.
        let newest = unsafe { store(open)? }.latest(level(upto)?)?.ok_or(Not::There)?;
        // SAFETY: not NULL as seen above, and room for a number, as this function's own contract has it.
        unsafe { *step = newest };
        Ok(())
    })
}

/// See flashwright.h.
///
/// # Safety
/// `open` is NULL or an open store; `buffer` is NULL or has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_restore(
    open: *const FwStore,
    step: u64,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    call(|| {
        // SAFETY: as this function's own contract has it.
        let path = unsafe { store(open)? }.restore(step, true, &always)?;
        // SAFETY: as this function's own contract has it.
        unsafe { give(path.as_os_str().as_bytes(), buffer, size) }
    })
}

/// See flashwright.h.
///
/// # Safety
/// `buffer` is NULL or has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_last_error(buffer: *mut c_char, size: usize) -> usize {
    guarded(0, || {
        let last = LAST_ERROR.try_with(|last| last.borrow().clone()).unwrap_or_default();
        if size > 0 {
            let cut = &last[..last.len().min(size - 1)];
            // SAFETY: as this function's own contract has it; `cut` has fewer bytes than `size`. A NULL is refused there.
            let _ = unsafe { give(cut, buffer, size) };
        }
        last.len()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls the library when its thread ends, as a destructor of pthread_key_create(3) may.
    struct Late;

    impl Drop for Late {
        fn drop(&mut self) {
            // SAFETY: NULL is what both calls allow; there is no store.
            let (code, length) =
                unsafe { (fw_begin(std::ptr::null(), 1), fw_last_error(std::ptr::null_mut(), 0)) };
            assert_eq!((code, length), (FW_INVALID, 0));
        }
    }

    thread_local! {
        static LATE: Late = const { Late };
    }

    #[test]
    fn a_call_after_the_thread_has_lost_its_last_error_is_answered() {
        let ended = std::thread::spawn(|| {
            // Destructors run in the reverse order of first use.
            LATE.with(|_| {});
            tell("something");
        });
        ended.join().expect("no call unwinds");
    }

    #[test]
    fn what_panics_is_a_fault_of_the_librarys() {
        assert_eq!(call(|| panic!("a defect, for the test")), FW_BUG);
        assert!(LAST_ERROR.with_borrow(|last| last.starts_with(b"a fault of libflashwright's")));
    }
}
