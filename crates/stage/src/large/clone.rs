//! Sharing a file's blocks instead of copying them: ioctl_ficlone(2), within one file system that can.

use rustix::io::Errno;

use super::LargeFile;
use crate::calls;
use crate::error::{StageError, shown};
use crate::fault::{Barrier, Call, before, changed};

/// Makes the destination share the source's blocks, durably. False where that cannot be, and bytes have to be copied.
pub(super) fn clone(file: &LargeFile<'_>) -> Result<bool, StageError> {
    let path = file.destination_path;
    changed(file.destination);
    let cloned = before(Call::Ficlone).and_then(|verdict| {
        let cloned = rustix::io::retry_on_intr(|| rustix::fs::ioctl_ficlone(file.destination, file.source));
        verdict.made();
        cloned
    });
    match cloned {
        Ok(()) => {}
        // Two file systems; one that cannot share; ranges that it cannot share; a swap file; a filter or policy.
        Err(
            Errno::XDEV
            | Errno::OPNOTSUPP
            | Errno::INVAL
            | Errno::TXTBSY
            | Errno::NOTTY
            | Errno::NOSYS
            | Errno::PERM
            | Errno::ACCESS,
        ) => return Ok(false),
        Err(error) => return Err(StageError::io("share blocks with the source", path, error)),
    }
    let size = calls::stat(file.destination).map_err(|error| StageError::io("stat", path, error))?.stx_size;
    if size < file.bytes {
        let how = format!("it ends at {size}, and {} bytes were expected", file.bytes);
        return Err(StageError::SourceChanged { path: shown(file.source_path), how });
    }
    if size > file.bytes {
        calls::truncate(file.destination, file.bytes)
            .map_err(|error| StageError::io("set the length of", path, error))?;
    }
    calls::sync_data(file.destination, Barrier::SharedBlocks)
        .map_err(|error| StageError::sync("fdatasync", path, error))?;
    Ok(true)
}
