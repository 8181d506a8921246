//! A command as the kernel's interfaces take it.

/// `struct nvme_uring_cmd`; with a result in its last field, `struct nvme_passthru_cmd`.
// Public by name only: nothing outside of the crate can reach it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Command {
    pub opcode: u8,
    pub flags: u8,
    pub reserved: u16,
    pub nsid: u32,
    pub cdw2: u32,
    pub cdw3: u32,
    pub metadata: u64,
    pub addr: u64,
    pub metadata_len: u32,
    pub data_len: u32,
    pub cdw10: u32,
    pub cdw11: u32,
    pub cdw12: u32,
    pub cdw13: u32,
    pub cdw14: u32,
    pub cdw15: u32,
    pub timeout_ms: u32,
    pub result: u32,
}

const _: () = assert!(size_of::<Command>() == 72);

const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const WRITE_UNCORRECTABLE: u8 = 0x04;
const WRITE_ZEROES: u8 = 0x08;
const DATASET_MANAGEMENT: u8 = 0x09;
const VERIFY: u8 = 0x0c;
/// Of the Zoned Namespace Command Set.
const ZONE_APPEND: u8 = 0x7d;
const IO_MANAGEMENT_RECEIVE: u8 = 0x12;
/// Operation Reclaim Unit Handle Status, of I/O Management Receive.
const HANDLE_STATUS: u32 = 1;
/// Directive type Data Placement, in dword 12 of a write.
const DATA_PLACEMENT: u32 = 2 << 20;
/// Attribute Deallocate, in dword 11 of dataset management.
const DEALLOCATE: u32 = 1 << 2;
/// Identify, of the admin commands.
const IDENTIFY: u8 = 0x06;
/// What is asked of Identify, in dword 10; 0 for a namespace.
const CONTROLLER: u32 = 1;
const COMMAND_SET_NAMESPACE: u32 = 5;
/// Force Unit Access, in dword 12 of reads and writes.
const FUA: u32 = 1 << 30;
/// `NVME_URING_CMD_IO`, `_IOWR('N', 0x80, struct nvme_uring_cmd)`.
pub(crate) const URING_COMMAND: u32 = libc::_IOWR::<Command>(b'N' as u32, 0x80) as u32;

impl Command {
    /// Reads `length` bytes, whole blocks and one at least, from block `first` on.
    pub fn read(nsid: u32, first: u64, length: u32, block_bytes: u32) -> Self {
        Self::transfer(READ, nsid, first, length, block_bytes)
    }

    /// Writes them.
    pub fn write(nsid: u32, first: u64, length: u32, block_bytes: u32) -> Self {
        Self::transfer(WRITE, nsid, first, length, block_bytes)
    }

    /// Writes them at the write pointer of the zone that begins with block `zone`; the completion says where that was.
    pub fn zone_append(nsid: u32, zone: u64, length: u32, block_bytes: u32) -> Self {
        Self::transfer(ZONE_APPEND, nsid, zone, length, block_bytes)
    }

    fn transfer(opcode: u8, nsid: u32, first: u64, length: u32, block_bytes: u32) -> Self {
        Self {
            opcode,
            nsid,
            data_len: length,
            cdw10: first as u32,
            cdw11: (first >> 32) as u32,
            // The number of blocks counts from 0, and has 16 bits.
            cdw12: (length / block_bytes).saturating_sub(1) & 0xffff,
            ..Self::default()
        }
    }

    /// Makes blocks read as zeros.
    pub fn write_zeroes(nsid: u32, first: u64, length: u32, block_bytes: u32) -> Self {
        Self { data_len: 0, ..Self::transfer(WRITE_ZEROES, nsid, first, length, block_bytes) }
    }

    /// Makes blocks unreadable, until they are written anew.
    pub fn write_uncorrectable(nsid: u32, first: u64, length: u32, block_bytes: u32) -> Self {
        Self { data_len: 0, ..Self::transfer(WRITE_UNCORRECTABLE, nsid, first, length, block_bytes) }
    }

    /// Has the drive read blocks and compare them with its own checks, and moves none.
    pub fn verify(nsid: u32, first: u64, length: u32, block_bytes: u32) -> Self {
        Self { data_len: 0, ..Self::transfer(VERIFY, nsid, first, length, block_bytes) }
    }

    /// Deallocates ranges, 256 at most, which are the command's data: see [`range`].
    pub fn deallocate(nsid: u32, ranges: u32) -> Self {
        Self {
            opcode: DATASET_MANAGEMENT,
            nsid,
            data_len: ranges * RANGE_BYTES as u32,
            // It counts from 0.
            cdw10: ranges.saturating_sub(1) & 0xff,
            cdw11: DEALLOCATE,
            ..Self::default()
        }
    }

    /// Asks for the status of a namespace's reclaim unit handles, in `length` bytes.
    pub fn handle_status(nsid: u32, length: u32) -> Self {
        Self {
            opcode: IO_MANAGEMENT_RECEIVE,
            nsid,
            data_len: length,
            cdw10: HANDLE_STATUS,
            // The number of double words counts from 0.
            cdw11: (length / 4).saturating_sub(1),
            ..Self::default()
        }
    }

    /// Where a write's data go, by the namespace's placement identifier.
    pub fn with_placement(self, identifier: u16) -> Self {
        Self { cdw12: self.cdw12 | DATA_PLACEMENT, cdw13: self.cdw13 | u32::from(identifier) << 16, ..self }
    }

    /// Makes all completed writes durable.
    pub fn flush(nsid: u32) -> Self {
        Self { opcode: FLUSH, nsid, ..Self::default() }
    }

    /// Asks what a namespace is, in 4096 bytes.
    pub fn identify(nsid: u32) -> Self {
        Self { opcode: IDENTIFY, nsid, data_len: 4096, ..Self::default() }
    }

    /// Asks what a controller is, likewise.
    pub fn identify_controller() -> Self {
        Self { cdw10: CONTROLLER, ..Self::identify(0) }
    }

    /// Asks for the part of a namespace's formats that is of the NVM Command Set (number 0) alone, likewise.
    pub fn identify_format(nsid: u32) -> Self {
        Self { cdw10: COMMAND_SET_NAMESPACE, ..Self::identify(nsid) }
    }

    /// With its data at this address.
    pub fn with_data(self, addr: u64) -> Self {
        Self { addr, ..self }
    }

    /// Whether it knows the flag that has a write on the medium when it completes.
    pub fn can_be_forced(self) -> bool {
        matches!(self.opcode, WRITE | WRITE_ZEROES | ZONE_APPEND)
    }

    /// Past the drive's cache.
    pub fn with_fua(self, fua: bool) -> Self {
        Self { cdw12: if fua { self.cdw12 | FUA } else { self.cdw12 }, ..self }
    }
}

/// Bytes of a range of dataset management.
pub(crate) const RANGE_BYTES: usize = 16;
/// The most ranges of one command.
pub(crate) const MOST_RANGES: u32 = 256;

/// A range of dataset management, without attributes: so many blocks from block `first` on.
pub(crate) fn range(first: u64, blocks: u32) -> [u8; RANGE_BYTES] {
    let mut range = [0; RANGE_BYTES];
    range[4..8].copy_from_slice(&blocks.to_le_bytes());
    range[8..].copy_from_slice(&first.to_le_bytes());
    range
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes as they lie in memory, 32-bit words of them.
    fn words(command: Command) -> [u32; 18] {
        // A union or a cast would be unsafe; the fields are in their order, and have no gaps between them.
        let Command {
            opcode, flags, reserved, nsid, cdw2, cdw3, metadata, addr, metadata_len, data_len, ..
        } = command;
        let Command { cdw10, cdw11, cdw12, cdw13, cdw14, cdw15, timeout_ms, result, .. } = command;
        let first = u32::from(opcode) | u32::from(flags) << 8 | u32::from(reserved) << 16;
        [
            [first, nsid, cdw2, cdw3, metadata as u32, (metadata >> 32) as u32, addr as u32].as_slice(),
            &[(addr >> 32) as u32, metadata_len, data_len, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15],
            &[timeout_ms, result],
        ]
        .concat()
        .try_into()
        .expect("18 words")
    }

    #[test]
    fn fields_lie_where_linux_nvme_ioctl_h_has_them() {
        use std::mem::offset_of;
        assert_eq!(offset_of!(Command, nsid), 4);
        assert_eq!(offset_of!(Command, metadata), 16);
        assert_eq!(offset_of!(Command, addr), 24);
        assert_eq!((offset_of!(Command, metadata_len), offset_of!(Command, data_len)), (32, 36));
        assert_eq!((offset_of!(Command, cdw10), offset_of!(Command, cdw15)), (40, 60));
        assert_eq!((offset_of!(Command, timeout_ms), offset_of!(Command, result)), (64, 68));
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert_eq!(URING_COMMAND, 0xc048_4e80);
        }
    }

    #[test]
    fn a_read_beyond_two_to_the_32_blocks_has_its_address_in_two_words() {
        let read = Command::read(3, 0x1_2345_6789, 8192, 512).with_data(0xdead_beef_0000);
        let mut expected = [0; 18];
        (expected[0], expected[1]) = (2, 3);
        (expected[6], expected[7], expected[9]) = (0xbeef_0000, 0xdead, 8192);
        (expected[10], expected[11], expected[12]) = (0x2345_6789, 1, 15);
        assert_eq!(words(read), expected);
        expected[0] = 1;
        expected[12] |= 1 << 30;
        let write = Command::write(3, 0x1_2345_6789, 8192, 512).with_data(0xdead_beef_0000);
        assert_eq!(words(write.with_fua(true)), expected);
        assert_eq!(write.with_fua(false), write);
    }

    #[test]
    fn a_flush_has_a_namespace_and_nothing_else_and_identify_says_what_of() {
        let mut expected = [0; 18];
        expected[1] = 5;
        assert_eq!(words(Command::flush(5)), expected);
        (expected[0], expected[9]) = (6, 4096);
        assert_eq!(words(Command::identify(5)), expected);
        expected[10] = 5;
        assert_eq!(words(Command::identify_format(5)), expected);
        (expected[1], expected[10]) = (0, 1);
        assert_eq!(words(Command::identify_controller()), expected);
    }

    #[test]
    fn a_placed_write_names_directive_and_identifier_and_handles_are_asked_for_in_words() {
        let mut expected = [0; 18];
        (expected[0], expected[1], expected[9]) = (1, 3, 8192);
        (expected[12], expected[13]) = (15 | 2 << 20 | 1 << 30, 0x8002 << 16);
        let write = Command::write(3, 0, 8192, 512).with_placement(0x8002).with_fua(true);
        assert_eq!(words(write), expected);
        let mut expected = [0; 18];
        (expected[0], expected[1], expected[9]) = (0x12, 3, 4112);
        (expected[10], expected[11]) = (1, 1027);
        assert_eq!(words(Command::handle_status(3, 4112)), expected);
    }

    #[test]
    fn commands_without_data_have_their_blocks_and_nothing_else() {
        type Make = fn(u32, u64, u32, u32) -> Command;
        let made: [(u32, Make); 3] =
            [(4, Command::write_uncorrectable), (8, Command::write_zeroes), (12, Command::verify)];
        for (opcode, make) in made {
            let mut expected = [0; 18];
            (expected[0], expected[1]) = (opcode, 3);
            (expected[10], expected[11], expected[12]) = (0x2345_6789, 1, 15);
            assert_eq!(words(make(3, 0x1_2345_6789, 8192, 512)), expected);
        }
    }

    #[test]
    fn a_dataset_management_command_deallocates_the_ranges_in_its_data() {
        let mut expected = [0; 18];
        (expected[0], expected[1], expected[9]) = (9, 3, 8 * 16);
        (expected[10], expected[11]) = (7, 4);
        assert_eq!(words(Command::deallocate(3, 8)), expected);
        assert_eq!(Command::deallocate(3, MOST_RANGES).cdw10, 255);
        let bytes = [0, 0, 0, 0, 0x10, 0x20, 0, 0, 0x89, 0x67, 0x45, 0x23, 1, 0, 0, 0];
        assert_eq!(range(0x1_2345_6789, 0x2010), bytes);
    }

    #[test]
    fn the_largest_transfer_has_65536_blocks() {
        assert_eq!(Command::read(1, 0, 65536 * 512, 512).cdw12, 0xffff);
        assert_eq!(Command::read(1, 0, 512, 512).cdw12, 0);
    }
}
