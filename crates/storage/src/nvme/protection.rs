//! End-to-end protection information of a namespace's blocks (NVM Command Set Specification 1.0, 5.2).
//!
//! A namespace can be formatted with metadata for each block. Some of it can be protection information, a tuple of three tags: a
//! **guard**, which is the checksum of the block's data; an **application tag**, which is the application's; and a **reference
//! tag**, which is the number of the block. The tuple is the first or the last bytes of the metadata. Where it is the last, the
//! guard covers the metadata before it as well. All of it is big-endian.
//!
//! | guard | bytes | guard | application tag | reference tag |
//! |---|---|---|---|---|
//! | 16 bits | 8 | 0–1 | 2–3 | 4–7 |
//! | 64 bits | 16 | 0–7 | 8–9 | 10–15, without a storage tag |
//!
//! Protection of type 1 and 2 has reference tags that count the blocks; of type 3 it has none that could be checked. A block
//! whose application tag is 0xffff, of type 3 with a reference tag of all ones besides, is not checked by anybody: it is what a
//! drive answers for a block that was never written.

use std::io;

use super::command::Command;
use super::crc;

/// How long a guard tag is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// CRC-16/T10-DIF, in a tuple of 8 bytes.
    Bits16,
    /// The 64-bit CRC of NVMe, in a tuple of 16 bytes.
    Bits64,
}

impl Guard {
    /// Bytes of the tuple.
    #[must_use]
    pub fn tuple_bytes(self) -> usize {
        match self {
            Self::Bits16 => 8,
            Self::Bits64 => 16,
        }
    }

    /// The bits that a reference tag has.
    fn reference_mask(self) -> u64 {
        match self {
            Self::Bits16 => 0xffff_ffff,
            Self::Bits64 => 0xffff_ffff_ffff,
        }
    }

    /// The checksum of a block's data, and of the metadata before its tuple.
    fn of(self, data: &[u8], before: &[u8]) -> u64 {
        match self {
            Self::Bits16 => u64::from(crc::t10_dif(crc::t10_dif(0, data), before)),
            Self::Bits64 => crc::nvme_64(crc::nvme_64(0, data), before),
        }
    }
}

/// How a namespace is formatted with protection information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtectionFormat {
    /// The type of protection: 1, 2 or 3.
    pub kind: u8,
    /// The tuple is the first bytes of the metadata, and not the last.
    pub is_first: bool,
    /// The guard tag.
    pub guard: Guard,
}

/// Who makes and checks protection information.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProtectionAction {
    /// The controller: it puts it in on a write, and checks it on a read. Where the metadata is nothing else, none is transferred.
    Controller,
    /// The host: what it sends is stored, and what is stored comes back. The controller may check both.
    Host,
}

/// How metadata reaches the drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataTransfer {
    /// Not at all: the controller makes and strips it.
    None,
    /// Behind the data of each block: blocks are that much longer.
    Interleaved,
    /// In a buffer of its own.
    Separate,
}

/// The metadata of a namespace's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockMetadata {
    /// Bytes of a block's data.
    pub data_bytes: u32,
    /// Bytes of a block's metadata.
    pub bytes: u32,
    /// Where it goes.
    pub transfer: MetadataTransfer,
    /// Who makes and checks protection information, if there is any.
    pub action: ProtectionAction,
    /// The protection information in it.
    pub protection: Option<ProtectionFormat>,
}

/// Which tags are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TagChecks {
    /// The guard.
    pub guard: bool,
    /// The application tag.
    pub application: bool,
    /// The reference tag.
    pub reference: bool,
}

impl TagChecks {
    /// Their words, as fio's `pi_chk` has them.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        let each = [(self.guard, "GUARD"), (self.application, "APPTAG"), (self.reference, "REFTAG")];
        each.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word)
    }
}

/// The application tag of blocks, and what of their tags is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tags {
    /// The application tag.
    pub application: u16,
    /// The bits of it that are compared.
    pub mask: u16,
    /// What is checked.
    pub checks: TagChecks,
}

/// A part of a tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// The guard.
    Guard,
    /// The application tag.
    Application,
    /// The reference tag.
    Reference,
}

impl Tag {
    fn words(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Application => "application tag",
            Self::Reference => "reference tag",
        }
    }
}

/// Protection information that does not fit its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("protection information of block {block}, at offset {offset}: the {} is {found:#x}, and {expected:#x} was expected", .tag.words())]
pub struct TagMismatch {
    /// The block's number.
    pub block: u64,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// What is wrong.
    pub tag: Tag,
    /// What should be there.
    pub expected: u64,
    /// What is there.
    pub found: u64,
}

/// Bits of dword 12 of reads and writes (PRINFO).
const CHECK_REFERENCE: u32 = 1 << 26;
const CHECK_APPLICATION: u32 = 1 << 27;
const CHECK_GUARD: u32 = 1 << 28;
const ACTION: u32 = 1 << 29;
/// The application tag that has a block not checked.
const UNCHECKED: u64 = 0xffff;

/// The `bytes` at `at`, big-endian.
fn number(tuple: &[u8], at: usize, bytes: usize) -> u64 {
    tuple[at..at + bytes].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn put(tuple: &mut [u8], at: usize, bytes: usize, number: u64) {
    tuple[at..at + bytes].copy_from_slice(&number.to_be_bytes()[8 - bytes..]);
}

impl ProtectionFormat {
    /// Whether its reference tags count the blocks.
    #[must_use]
    pub fn has_references(self) -> bool {
        self.kind != 3
    }

    /// The reference tag of a block.
    fn reference(self, block: u64) -> u64 {
        if self.has_references() { block & self.guard.reference_mask() } else { 0 }
    }

    /// Where the tuple begins in metadata of `bytes` bytes.
    fn start(self, bytes: usize) -> usize {
        if self.is_first { 0 } else { bytes - self.guard.tuple_bytes() }
    }

    /// Bytes of the guard, and of the reference tag behind the application tag.
    fn sizes(self) -> (usize, usize) {
        match self.guard {
            Guard::Bits16 => (2, 4),
            Guard::Bits64 => (8, 6),
        }
    }

    /// Puts the tuple of a block into its metadata.
    pub fn seal(self, data: &[u8], metadata: &mut [u8], block: u64, application: u16) {
        let (before, tuple) = metadata.split_at_mut(self.start(metadata.len()));
        let (guard, reference) = self.sizes();
        put(tuple, 0, guard, self.guard.of(data, before));
        put(tuple, guard, 2, u64::from(application));
        put(tuple, guard + 2, reference, self.reference(block));
    }

    /// Compares the tuple of a block with its data, its number and the application's tag, as far as `tags` says; the first
    /// tag that is wrong, with what was expected and what was found.
    pub fn check(self, data: &[u8], metadata: &[u8], block: u64, tags: &Tags) -> Option<(Tag, u64, u64)> {
        let (before, tuple) = metadata.split_at(self.start(metadata.len()));
        let (guard, reference) = self.sizes();
        let application = number(tuple, guard, 2);
        let found = number(tuple, guard + 2, reference);
        let is_unchecked =
            application == UNCHECKED && (self.has_references() || found == self.guard.reference_mask());
        if is_unchecked {
            return None;
        }
        let wrong = |tag, expected, found| (expected != found).then_some((tag, expected, found));
        let TagChecks { guard: checks_guard, application: checks_application, reference: checks_reference } =
            tags.checks;
        let guard = checks_guard
            .then(|| wrong(Tag::Guard, self.guard.of(data, before), number(tuple, 0, guard)))
            .flatten();
        let mask = u64::from(tags.mask);
        let application = checks_application
            .then(|| wrong(Tag::Application, u64::from(tags.application) & mask, application & mask))
            .flatten();
        let reference = (checks_reference && self.has_references())
            .then(|| wrong(Tag::Reference, self.reference(block), found))
            .flatten();
        guard.or(application).or(reference)
    }

    /// A read or write from a block on, with what the controller is to check, or to make, of it.
    fn on(self, command: Command, block: u64, action: ProtectionAction, tags: &Tags) -> Command {
        let TagChecks { guard, application, reference } = tags.checks;
        let flags = [
            (guard, CHECK_GUARD),
            (application, CHECK_APPLICATION),
            (reference && self.has_references(), CHECK_REFERENCE),
            (action == ProtectionAction::Controller, ACTION),
        ];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
        let reference = self.reference(block);
        Command {
            cdw3: (reference >> 32) as u32,
            cdw12: command.cdw12 | flags,
            cdw14: reference as u32,
            cdw15: u32::from(tags.mask) << 16 | u32::from(tags.application),
            ..command
        }
    }
}

impl BlockMetadata {
    /// Bytes of a block on its way: its data, and its metadata where that lies behind them.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        match self.transfer {
            MetadataTransfer::Interleaved => self.data_bytes + self.bytes,
            MetadataTransfer::None | MetadataTransfer::Separate => self.data_bytes,
        }
    }

    /// Bytes of the buffer of their own that the metadata of `blocks` blocks takes.
    #[must_use]
    pub fn separate_bytes(&self, blocks: usize) -> usize {
        if self.transfer == MetadataTransfer::Separate { blocks * self.bytes as usize } else { 0 }
    }

    /// The bytes of data in the blocks before `place`, which is where a block begins, in bytes of what is transferred: where that
    /// block begins for the block layer, which counts data alone.
    #[must_use]
    pub fn data_before(&self, place: u64) -> u64 {
        place / u64::from(self.block_bytes()) * u64::from(self.data_bytes)
    }

    /// Reads data without metadata, from byte `at` of what the blocks hold of them. `read` reads whole blocks, from an offset in bytes
    /// of data and interleaved metadata; as many at a time as `bounce` has room for, which is one at least.
    pub fn read_data(
        &self,
        buffer: &mut [u8],
        at: u64,
        bounce: &mut [u8],
        read: &dyn Fn(&mut [u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let (block, data) = (self.block_bytes() as usize, self.data_bytes as usize);
        let mut done = 0;
        while done < buffer.len() {
            let place = at + done as u64;
            let (first, skip) = (place / data as u64, (place % data as u64) as usize);
            let rest = &mut buffer[done..];
            let count = (skip + rest.len()).div_ceil(data).min(bounce.len() / block);
            let blocks = &mut bounce[..count * block];
            read(blocks, first * block as u64)?;
            let bytes = blocks.chunks_exact(block).flat_map(|block| &block[..data]).skip(skip);
            rest.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            done += (count * data - skip).min(rest.len());
        }
        Ok(())
    }

    /// A read or write from a block on, as the namespace's format asks. Metadata in a buffer of its own lies at `metadata`.
    pub fn on(&self, command: Command, block: u64, metadata: u64, tags: &Tags) -> Command {
        let blocks = command.data_len / self.block_bytes();
        let command = match self.separate_bytes(blocks as usize) {
            0 => command,
            bytes => Command { metadata, metadata_len: bytes as u32, ..command },
        };
        match self.protection {
            Some(format) => format.on(command, block, self.action, tags),
            None => command,
        }
    }

    /// Whether the host makes and checks protection information.
    #[must_use]
    pub fn is_sealed_here(&self) -> bool {
        self.protection.is_some() && self.action == ProtectionAction::Host
    }

    /// Puts protection information into blocks that are about to be written, from block `first` on. `separate` has their
    /// metadata where that is not part of `blocks`.
    pub fn seal(&self, blocks: &mut [u8], separate: &mut [u8], first: u64, application: u16) {
        let Some(format) = self.protection else { return };
        let blocks = blocks.chunks_exact_mut(self.block_bytes() as usize);
        if self.transfer == MetadataTransfer::Interleaved {
            for (block, number) in blocks.zip(first..) {
                let (data, metadata) = block.split_at_mut(self.data_bytes as usize);
                format.seal(data, metadata, number, application);
            }
        } else {
            for ((data, metadata), number) in
                blocks.zip(separate.chunks_exact_mut(self.bytes as usize)).zip(first..)
            {
                format.seal(data, metadata, number, application);
            }
        }
    }

    /// Checks blocks that were read, likewise; the first that is wrong.
    pub fn check(&self, blocks: &[u8], separate: &[u8], first: u64, tags: &Tags) -> Option<TagMismatch> {
        let format = self.protection?;
        let bytes = self.block_bytes();
        let said = |number, wrong: Option<(Tag, u64, u64)>| {
            let offset = number * u64::from(bytes);
            wrong.map(|(tag, expected, found)| TagMismatch { block: number, offset, tag, expected, found })
        };
        let mut blocks = blocks.chunks_exact(bytes as usize).zip(first..);
        if self.transfer == MetadataTransfer::Interleaved {
            return blocks.find_map(|(block, number)| {
                let (data, metadata) = block.split_at(self.data_bytes as usize);
                said(number, format.check(data, metadata, number, tags))
            });
        }
        blocks
            .zip(separate.chunks_exact(self.bytes as usize))
            .find_map(|((data, number), metadata)| said(number, format.check(data, metadata, number, tags)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: TagChecks = TagChecks { guard: true, application: true, reference: true };

    fn tags(checks: TagChecks) -> Tags {
        Tags { application: 0x0888, mask: 0xffff, checks }
    }

    fn format(kind: u8, is_first: bool, guard: Guard) -> ProtectionFormat {
        ProtectionFormat { kind, is_first, guard }
    }

    #[test]
    fn a_tuple_has_its_tags_in_big_endian_at_the_end_or_the_beginning_of_the_metadata() {
        let data = b"123456789";
        let mut metadata = [0; 8];
        format(1, false, Guard::Bits16).seal(data, &mut metadata, 0x1_2345_6789, 0x0888);
        assert_eq!(metadata, [0xd0, 0xdb, 0x08, 0x88, 0x23, 0x45, 0x67, 0x89]);
        let mut metadata = [0; 16];
        format(2, false, Guard::Bits64).seal(data, &mut metadata, 0x1_2345_6789_abcd, 0x1234);
        let guard = [0xae, 0x8b, 0x14, 0x86, 0x0a, 0x79, 0x98, 0x88];
        assert_eq!(metadata[..8], guard);
        assert_eq!(metadata[8..], [0x12, 0x34, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd]);
        // The guard covers the metadata before the tuple, and not what comes behind.
        let mut metadata = *b"789.....";
        metadata.copy_from_slice(b"789\0\0\0\0\0");
        let mut long = [0; 11];
        long[..3].copy_from_slice(&metadata[..3]);
        format(1, false, Guard::Bits16).seal(b"123456", &mut long, 7, 0);
        assert_eq!((&long[..3], &long[3..]), (&b"789"[..], &[0xd0, 0xdb, 0, 0, 0, 0, 0, 7][..]));
        let mut long = [0x55; 11];
        format(3, true, Guard::Bits16).seal(data, &mut long, 7, 0x0888);
        assert_eq!(long, [0xd0, 0xdb, 0x08, 0x88, 0, 0, 0, 0, 0x55, 0x55, 0x55], "type 3 counts no blocks");
    }

    #[test]
    fn what_the_controller_checks_and_makes_is_said_in_dwords_3_12_14_and_15() {
        let metadata = |action, kind, guard| BlockMetadata {
            data_bytes: 4096,
            bytes: 64,
            transfer: MetadataTransfer::Separate,
            action,
            protection: Some(format(kind, false, guard)),
        };
        let read = Command::read(1, 0x1_2345_6789, 8192, 4096);
        let of = |of: BlockMetadata, checks| {
            let command = of.on(read, 0x1_2345_6789, 0x7000, &tags(checks));
            assert_eq!((command.metadata, command.metadata_len, command.data_len), (0x7000, 128, 8192));
            (command.cdw3, command.cdw12 >> 16, command.cdw14, command.cdw15)
        };
        let (host, controller) = (ProtectionAction::Host, ProtectionAction::Controller);
        let each = |guard, application, reference| TagChecks { guard, application, reference };
        let tag = 0xffff_0888;
        assert_eq!(of(metadata(host, 1, Guard::Bits16), ALL), (0, 0x1c00, 0x2345_6789, tag));
        assert_eq!(of(metadata(controller, 1, Guard::Bits16), ALL), (0, 0x3c00, 0x2345_6789, tag));
        let none = TagChecks::default();
        assert_eq!(of(metadata(controller, 2, Guard::Bits64), none), (1, 0x2000, 0x2345_6789, tag));
        assert_eq!(of(metadata(host, 1, Guard::Bits16), each(true, false, false)).1, 0x1000);
        assert_eq!(of(metadata(host, 1, Guard::Bits16), each(false, true, false)).1, 0x0800);
        assert_eq!(of(metadata(host, 1, Guard::Bits16), each(false, false, true)).1, 0x0400);
        assert_eq!(of(metadata(host, 3, Guard::Bits16), ALL), (0, 0x1800, 0, tag), "type 3");
        let stripped = BlockMetadata {
            bytes: 8,
            transfer: MetadataTransfer::None,
            ..metadata(controller, 1, Guard::Bits16)
        };
        let command = stripped.on(read, 9, 0x7000, &tags(ALL));
        assert_eq!((command.metadata, command.metadata_len), (0, 0), "nothing is transferred");
    }

    #[test]
    fn the_block_layer_counts_data_alone() {
        let of = |transfer| BlockMetadata {
            data_bytes: 4096,
            bytes: 64,
            transfer,
            action: ProtectionAction::Host,
            protection: None,
        };
        let interleaved = of(MetadataTransfer::Interleaved);
        assert_eq!([0, 4160, 7 * 4160].map(|place| interleaved.data_before(place)), [0, 4096, 7 * 4096]);
        // More blocks than 32 bits count.
        assert_eq!(interleaved.data_before(5_000_000_000 * 4160), 5_000_000_000 * 4096);
        for transfer in [MetadataTransfer::Separate, MetadataTransfer::None] {
            assert_eq!(of(transfer).data_before(7 * 4096), 7 * 4096);
        }
    }

    #[test]
    fn a_block_that_says_so_is_not_checked() {
        for (kind, reference, is_checked) in [(1, 0, false), (2, 0, false), (3, 0, true), (3, 0xff, false)] {
            let metadata = [1, 2, 0xff, 0xff, reference, reference, reference, reference];
            let wrong = format(kind, false, Guard::Bits16).check(b"data", &metadata, 5, &tags(ALL));
            assert_eq!(wrong.is_some(), is_checked, "type {kind}, {reference:#x}");
        }
    }

    /// Any format, with all that a namespace can have.
    fn any_metadata() -> impl Strategy<Value = BlockMetadata> {
        let guards = prop_oneof![Just(Guard::Bits16), Just(Guard::Bits64)];
        (1_u8..=3, any::<bool>(), guards, 0_u32..20, any::<bool>()).prop_map(
            |(kind, is_first, guard, more, is_interleaved)| BlockMetadata {
                data_bytes: 512,
                bytes: guard.tuple_bytes() as u32 + more,
                transfer: match is_interleaved {
                    true => MetadataTransfer::Interleaved,
                    false => MetadataTransfer::Separate,
                },
                action: ProtectionAction::Host,
                protection: Some(format(kind, is_first, guard)),
            },
        )
    }

    proptest! {
        #[test]
        fn sealed_blocks_pass_and_a_bit_that_is_turned_in_what_a_tag_covers_is_found(
            of in any_metadata(), count in 1_usize..5, first in 0_u64..1 << 50, at in any::<usize>(), bit in 0_u32..8,
            byte in any::<u8>(),
        ) {
            let (size, format) = (of.block_bytes() as usize, of.protection.expect("drawn so"));
            let mut blocks = vec![byte; count * size];
            let mut separate = vec![byte; of.separate_bytes(count)];
            of.seal(&mut blocks, &mut separate, first, 0x0888);
            prop_assert_eq!(of.check(&blocks, &separate, first, &tags(ALL)), None);
            // A tuple of another block does not fit this one, where blocks are counted.
            let moved = of.check(&blocks, &separate, first + 1, &tags(ALL));
            prop_assert_eq!(moved.map(|wrong| wrong.tag), format.has_references().then_some(Tag::Reference));
            let other = Tags { application: 0x0889, ..tags(ALL) };
            let wrong = of.check(&blocks, &separate, first, &other).expect("another application's");
            prop_assert_eq!((wrong.tag, wrong.expected, wrong.found), (Tag::Application, 0x0889, 0x0888));
            prop_assert_eq!((wrong.block, wrong.offset), (first, first * size as u64));
            prop_assert_eq!(of.check(&blocks, &separate, first, &Tags { mask: 0xfffe, ..other }), None);
            // Data, and metadata that the guard covers.
            let covered = 512 + if format.is_first { 0 } else { of.bytes as usize - format.guard.tuple_bytes() };
            let (block, at) = (at % count, at / count % covered);
            match at.checked_sub(512) {
                Some(within) if of.transfer == MetadataTransfer::Separate => {
                    separate[block * of.bytes as usize + within] ^= 1 << bit;
                }
                _ => blocks[block * size + at] ^= 1 << bit,
            }
            let wrong = of.check(&blocks, &separate, first, &tags(ALL)).expect("is found");
            prop_assert_eq!((wrong.tag, wrong.block), (Tag::Guard, first + block as u64));
            prop_assert_ne!(wrong.expected, wrong.found);
            let no_guard = TagChecks { guard: false, ..ALL };
            prop_assert_eq!(of.check(&blocks, &separate, first, &tags(no_guard)), None);
        }
    }
}
