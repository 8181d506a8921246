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
/// Identify, of the admin commands.
const IDENTIFY: u8 = 0x06;
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

    /// Makes all completed writes durable.
    pub fn flush(nsid: u32) -> Self {
        Self { opcode: FLUSH, nsid, ..Self::default() }
    }

    /// Asks what a namespace is, in 4096 bytes.
    pub fn identify(nsid: u32) -> Self {
        Self { opcode: IDENTIFY, nsid, data_len: 4096, ..Self::default() }
    }

    /// With its data at this address.
    pub fn with_data(self, addr: u64) -> Self {
        Self { addr, ..self }
    }

    /// Past the drive's cache.
    pub fn with_fua(self, fua: bool) -> Self {
        Self { cdw12: if fua { self.cdw12 | FUA } else { self.cdw12 }, ..self }
    }
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
    fn a_flush_has_a_namespace_and_nothing_else() {
        let mut expected = [0; 18];
        expected[1] = 5;
        assert_eq!(words(Command::flush(5)), expected);
        (expected[0], expected[9]) = (6, 4096);
        assert_eq!(words(Command::identify(5)), expected);
    }

    #[test]
    fn the_largest_transfer_has_65536_blocks() {
        assert_eq!(Command::read(1, 0, 65536 * 512, 512).cdw12, 0xffff);
        assert_eq!(Command::read(1, 0, 512, 512).cdw12, 0);
    }
}
