//! Placement identifiers of a namespace (Flexible Data Placement, NVM Express Base Specification 2.1, 8.1.10).
//!
//! A namespace has a list of them, each of which stands for a reclaim unit handle; a write names one in its directive. The list is
//! read by I/O Management Receive, operation Reclaim Unit Handle Status.

use std::io;
use std::os::fd::BorrowedFd;

use super::command::Command;
use super::ioctl::submit;

/// The most identifiers of a namespace.
const MOST: usize = 128;
const HEADER_BYTES: usize = 16;
const DESCRIPTOR_BYTES: usize = 32;
const STATUS_BYTES: usize = HEADER_BYTES + MOST * DESCRIPTOR_BYTES;

/// The placement identifiers of a namespace, in the drive's order.
pub(crate) fn placement_identifiers(fd: BorrowedFd<'_>, nsid: u32) -> io::Result<Vec<u16>> {
    let mut data = vec![0_u8; STATUS_BYTES];
    let command = Command::handle_status(nsid, STATUS_BYTES as u32).with_data(data.as_mut_ptr() as u64);
    // SAFETY: the command asks for STATUS_BYTES bytes at `data`, which has as many and lives until the call returns.
    unsafe { submit(fd, command) }?;
    Ok(identifiers(&data))
}

/// Their number is in bytes 14 and 15, and each descriptor begins with its identifier.
fn identifiers(status: &[u8]) -> Vec<u16> {
    let word = |at: usize| u16::from_le_bytes([status[at], status[at + 1]]);
    let count = usize::from(word(14)).min((status.len() - HEADER_BYTES) / DESCRIPTOR_BYTES);
    (0..count).map(|each| word(HEADER_BYTES + each * DESCRIPTOR_BYTES)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_read_in_their_order_and_no_more_than_there_is_room_for() {
        let mut status = vec![0; HEADER_BYTES + 3 * DESCRIPTOR_BYTES];
        status[14] = 3;
        for (each, identifier) in [0x0001_u16, 0x8002, 0x1234].into_iter().enumerate() {
            let at = HEADER_BYTES + each * DESCRIPTOR_BYTES;
            status[at..at + 2].copy_from_slice(&identifier.to_le_bytes());
            // The handle, which is another number.
            status[at + 2] = 0xff;
        }
        assert_eq!(identifiers(&status), [0x0001, 0x8002, 0x1234]);
        status[15] = 1;
        assert_eq!(identifiers(&status).len(), 3, "259 are said to be there");
        status[14..16].fill(0);
        assert!(identifiers(&status).is_empty());
    }
}
