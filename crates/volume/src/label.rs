//! The label of a member: who it is, of which volume, and where its data lie.
//!
//! A label is one block of 4096 bytes, little endian, laid out as below and described in `docs/formats.md`. It is
//! there twice: at byte 4096, and as the last whole block of 4096 bytes of the device. Whoever is torn in the
//! middle of a write, or overwrites one end of a device, leaves the other copy.
//!
//! The last four bytes are the CRC-32C of all others, unused ones included, so that no bit of a label can change
//! unnoticed; they stand there in every version of the format, so that one that this version cannot read is still
//! told from one that is damaged. A copy knows which of the two it is: a head found at the tail is no copy.
//!
//! All that a label says stands in its first 512 bytes, which have a checksum of their own, and the rest is zero: of a
//! write that the power cut between two sectors the label before or the one after is left, and never neither.

use std::io;
use std::ops::Range;

use storage::device::Device;
use storage::safety::{LABEL_AT, LABEL_BYTES, LABEL_MAGIC, LABEL_NAME};

use storage::uuid::Uuid;

use crate::sums_layout::{BLOCK as BLOCK_BYTES, SumsLayout};

/// The version of the format of a volume without checksums.
pub const PLAIN_VERSION: u32 = 2;
/// The version of the format of a volume with checksums, and the latest that is read.
pub const VERSION: u32 = 3;
/// Where a member's data begin, bytes: a boundary of every erase block, page and cluster below.
pub const DATA_START: u64 = 1 << 20;
/// The longest name, bytes of UTF-8.
pub const LONGEST_NAME: usize = (LABEL_NAME.end - LABEL_NAME.start) as usize;
/// The most members.
const WIDEST: u32 = 1024;

/// Bytes of a label.
pub const BYTES: u64 = LABEL_BYTES;
const BLOCK: usize = LABEL_BYTES as usize;
const SUM_AT: usize = BLOCK - 4;
/// The part that says everything, which a device writes whole or not at all.
const SECTOR: usize = 512;
const SECTOR_SUM_AT: usize = SECTOR - 4;

/// How far a volume has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its members are being labelled: not a volume yet, and nothing is on it.
    Creating,
    /// All its members were labelled before this was written, and whoever wrote to it has closed it.
    Ready,
    /// It is being written, or was when whoever wrote to it was stopped.
    Open,
}

/// A span of a volume's life in which its members belong together: one that was written to, from the first write to
/// the end, or the rest after it. Members of different epochs are of different times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch {
    /// Counts them.
    pub number: u64,
    /// Drawn at random, because of two copies of a volume each may come to the same number by itself.
    pub id: Uuid,
}

impl Epoch {
    /// The one after `number`.
    ///
    /// # Errors
    /// The system's, where it has no random bytes.
    pub fn after(number: u64) -> io::Result<Self> {
        Ok(Self { number: number + 1, id: Uuid::random()? })
    }
}

/// Which of the two copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelPosition {
    /// At byte 4096.
    Head,
    /// The last whole block.
    Tail,
}

impl LabelPosition {
    /// Both, in the order in which they are written.
    pub const BOTH: [Self; 2] = [Self::Head, Self::Tail];

    /// The word in messages and documents: `head`, `tail`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Tail => "tail",
        }
    }

    /// Where it begins on a device of `size` bytes; none where there is no room for it.
    #[must_use]
    pub fn offset(self, size: u64) -> Option<u64> {
        match self {
            Self::Head => (size >= LABEL_AT + LABEL_BYTES).then_some(LABEL_AT),
            Self::Tail => {
                let at = (size / LABEL_BYTES * LABEL_BYTES).checked_sub(LABEL_BYTES)?;
                (at > LABEL_AT).then_some(at)
            }
        }
    }
}

/// What a label says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// How far the volume has come.
    pub state: State,
    /// Counts the times that the member's label was written; of its two copies the one with the higher holds.
    pub generation: u64,
    /// The last epoch whose writes may be on the member.
    pub epoch: Epoch,
    /// The one that was to follow when this was written; the member's own where none was.
    pub next: Epoch,
    /// The volume.
    pub volume: Uuid,
    /// This member of it.
    pub member: Uuid,
    /// Which one it is, from 0.
    pub position: u32,
    /// How many there are.
    pub width: u32,
    /// Bytes that one member holds before the next.
    pub chunk: u64,
    /// Where the data begin on the member, bytes.
    pub data_start: u64,
    /// Bytes of data on each member, whole chunks.
    pub data_bytes: u64,
    /// Bytes of the device that was labelled.
    pub member_bytes: u64,
    /// When the volume was made, seconds since 1970.
    pub created: u64,
    /// What the volume is called; may be empty.
    pub name: String,
    /// How its checksums are laid out, if it keeps any.
    pub sums: Option<SumsLayout>,
}

/// One copy of a label, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Whole.
    Whole(Label),
    /// All that it says is there, but the block around it is not as it was written: its write was cut short.
    Torn(Label),
    /// No label.
    Nothing,
    /// A label, but not as it was written.
    Damaged(&'static str),
    /// A whole label of a version that is not understood.
    Later(u32),
}

impl Found {
    /// What it says, where that is known.
    #[must_use]
    pub fn label(&self) -> Option<&Label> {
        match self {
            Self::Whole(label) | Self::Torn(label) => Some(label),
            _ => None,
        }
    }
}

impl Label {
    /// Bytes of the volume.
    #[must_use]
    pub fn volume_bytes(&self) -> u64 {
        self.data_bytes * u64::from(self.width)
    }

    /// The part of the member where the volume's data lie, and their checksums behind them.
    #[must_use]
    pub fn data(&self) -> Range<u64> {
        self.data_start..self.data_start + self.data_bytes + self.sums_bytes()
    }

    /// Bytes of the member that checksums take.
    #[must_use]
    pub fn sums_bytes(&self) -> u64 {
        self.sums.map_or(0, |sums| sums.bytes_for(self.data_bytes))
    }

    /// Whether it says of the volume what `other` says, whatever the member.
    #[must_use]
    pub fn agrees(&self, other: &Self) -> bool {
        let volume = |l: &Self| (l.volume, l.width, l.chunk, l.data_start, l.data_bytes, l.created, l.sums);
        volume(self) == volume(other) && self.name == other.name
    }

    /// The block that is written at `place`.
    #[must_use]
    pub fn encode(&self, place: LabelPosition) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, LABEL_MAGIC);
        let version = if self.sums.is_some() { VERSION } else { PLAIN_VERSION };
        put(16, &version.to_le_bytes());
        put(20, &(BLOCK as u32).to_le_bytes());
        put(24, &self.generation.to_le_bytes());
        put(32, &self.volume.0);
        put(48, &self.member.0);
        put(64, &self.position.to_le_bytes());
        put(68, &self.width.to_le_bytes());
        put(72, &self.chunk.to_le_bytes());
        put(80, &self.data_start.to_le_bytes());
        put(88, &self.data_bytes.to_le_bytes());
        put(96, &self.member_bytes.to_le_bytes());
        put(104, &self.created.to_le_bytes());
        put(112, &(place as u32).to_le_bytes());
        put(116, &(self.state as u32).to_le_bytes());
        put(120, &self.epoch.number.to_le_bytes());
        put(LABEL_NAME.start as usize, self.name.as_bytes());
        put(192, &self.epoch.id.0);
        put(208, &self.next.number.to_le_bytes());
        put(216, &self.next.id.0);
        if let Some(sums) = self.sums {
            put(232, &sums.group_blocks.to_le_bytes());
            put(236, &sums.region_groups.to_le_bytes());
        }
        let sum = crc32c::crc32c(&block[..SECTOR_SUM_AT]);
        block[SECTOR_SUM_AT..SECTOR].copy_from_slice(&sum.to_le_bytes());
        let sum = crc32c::crc32c(&block[..SUM_AT]);
        block[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// What a block says that was read at `place`.
    #[must_use]
    pub fn decode(block: &[u8], place: LabelPosition) -> Found {
        let u32_at = |at: usize| u32::from_le_bytes(bytes(block, at));
        let u64_at = |at: usize| u64::from_le_bytes(bytes(block, at));
        if block.len() != BLOCK || block[..16] != LABEL_MAGIC[..] {
            return Found::Nothing;
        }
        let version = u32_at(16);
        let whole = u32_at(SUM_AT) == crc32c::crc32c(&block[..SUM_AT]);
        let says_all = u32_at(SECTOR_SUM_AT) == crc32c::crc32c(&block[..SECTOR_SUM_AT])
            && block[SECTOR..SUM_AT].iter().all(|byte| *byte == 0);
        match version {
            PLAIN_VERSION | VERSION if says_all => {}
            later if whole && !matches!(later, PLAIN_VERSION | VERSION) => return Found::Later(later),
            _ => return Found::Damaged("its checksum does not match its contents"),
        }
        let state = match u32_at(116) {
            0 => State::Creating,
            1 => State::Ready,
            2 => State::Open,
            _ => return Found::Damaged("its state is unknown"),
        };
        if u32_at(112) != place as u32 {
            return Found::Damaged("it is a copy of the label at the other end");
        }
        let name = &block[LABEL_NAME.start as usize..LABEL_NAME.end as usize];
        let name = &name[..name.iter().position(|byte| *byte == 0).unwrap_or(name.len())];
        let Ok(name) = std::str::from_utf8(name) else { return Found::Damaged("its name is not UTF-8") };
        let epoch_at = |number: usize, id: [u8; 16]| Epoch { number: u64_at(number), id: Uuid(id) };
        let label = Self {
            state,
            generation: u64_at(24),
            epoch: epoch_at(120, bytes(block, 192)),
            next: epoch_at(208, bytes(block, 216)),
            volume: Uuid(bytes(block, 32)),
            member: Uuid(bytes(block, 48)),
            position: u32_at(64),
            width: u32_at(68),
            chunk: u64_at(72),
            data_start: u64_at(80),
            data_bytes: u64_at(88),
            member_bytes: u64_at(96),
            created: u64_at(104),
            name: name.to_owned(),
            sums: (version == VERSION)
                .then(|| SumsLayout { group_blocks: u32_at(232), region_groups: u32_at(236) }),
        };
        match u32_at(20) as usize == BLOCK && label.makes_sense() {
            true if whole => Found::Whole(label),
            true => Found::Torn(label),
            false => Found::Damaged("its fields contradict each other"),
        }
    }

    /// Whether arithmetic on the fields can be relied on. The sum says that they are what somebody wrote, not that
    /// whoever wrote them was right.
    fn makes_sense(&self) -> bool {
        let sums_make_sense = |sums: SumsLayout| {
            sums.makes_sense() && self.chunk.is_multiple_of(BLOCK_BYTES) && self.data_bytes <= i64::MAX as u64
        };
        if !self.sums.is_none_or(sums_make_sense) {
            return false;
        }
        let end = self.data_start.checked_add(self.data_bytes);
        let end = end.and_then(|end| end.checked_add(self.sums_bytes()));
        let fits = |end: u64| LabelPosition::Tail.offset(self.member_bytes).is_some_and(|tail| end <= tail);
        (1..=WIDEST).contains(&self.width)
            && self.position < self.width
            && (512..=1 << 30).contains(&self.chunk)
            && self.chunk.is_multiple_of(512)
            && self.data_start >= LABEL_AT + LABEL_BYTES
            && self.data_start.is_multiple_of(LABEL_BYTES)
            && self.data_bytes > 0
            && self.data_bytes.is_multiple_of(self.chunk)
            && [self.generation, self.epoch.number, self.next.number]
                .iter()
                .all(|number| *number <= i64::MAX as u64)
            && end.is_some_and(fits)
            && self
                .data_bytes
                .checked_mul(u64::from(self.width))
                .is_some_and(|all| i64::try_from(all).is_ok())
    }
}

/// `N` bytes of a block, which is long enough.
fn bytes<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| block[at + i])
}

/// Reads the copy at `place`.
///
/// # Errors
/// The device's. A device without room for it has none.
pub fn read(device: &dyn Device, place: LabelPosition) -> io::Result<Found> {
    let Some(at) = place.offset(device.size()) else { return Ok(Found::Nothing) };
    let mut block = vec![0; BLOCK];
    device.read_at(&mut block, at)?;
    Ok(Label::decode(&block, place))
}

/// Writes the copy at `place`, which is durable after the device's next sync.
pub fn write(device: &dyn Device, place: LabelPosition, label: &Label) -> io::Result<()> {
    let at = place.offset(device.size()).ok_or(io::ErrorKind::WriteZero)?;
    device.write_at(&label.encode(place), at)
}

/// Zeroes the copy at `place`, if there is room for one.
pub fn wipe(device: &dyn Device, place: LabelPosition) -> io::Result<()> {
    match place.offset(device.size()) {
        Some(at) => device.write_at(&[0; BLOCK], at),
        None => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn label() -> Label {
        Label {
            state: State::Ready,
            generation: 2,
            epoch: Epoch { number: 4, id: Uuid([3; 16]) },
            next: Epoch { number: 5, id: Uuid([4; 16]) },
            volume: Uuid([1; 16]),
            member: Uuid([2; 16]),
            position: 1,
            width: 3,
            chunk: 64 << 10,
            data_start: DATA_START,
            data_bytes: 64 << 10,
            member_bytes: 2 << 20,
            created: 1_700_000_000,
            name: "scratch ä".to_owned(),
            sums: None,
        }
    }

    #[test]
    fn what_is_written_reads_back_at_its_own_place_only() {
        for (place, other) in
            [(LabelPosition::Head, LabelPosition::Tail), (LabelPosition::Tail, LabelPosition::Head)]
        {
            let block = label().encode(place);
            assert_eq!(Label::decode(&block, place), Found::Whole(label()));
            assert!(matches!(Label::decode(&block, other), Found::Damaged(_)));
        }
        let summed = Label { sums: Some(SumsLayout::default()), ..label() };
        assert_eq!(
            Label::decode(&summed.encode(LabelPosition::Head), LabelPosition::Head),
            Found::Whole(summed)
        );
        let longest = Label { name: "n".repeat(LONGEST_NAME), ..label() };
        assert_eq!(
            Label::decode(&longest.encode(LabelPosition::Head), LabelPosition::Head),
            Found::Whole(longest)
        );
    }

    #[test]
    fn a_bit_flipped_anywhere_is_noticed() {
        let block = label().encode(LabelPosition::Head);
        for bit in 0..8 * BLOCK {
            let mut flipped = block.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = Label::decode(&flipped, LabelPosition::Head);
            let expected = match bit / 8 {
                ..16 => Found::Nothing,
                16..SUM_AT => Found::Damaged("its checksum does not match its contents"),
                _ => Found::Torn(label()),
            };
            assert_eq!(found, expected, "bit {bit}");
        }
    }

    #[test]
    fn a_write_that_is_cut_between_two_sectors_leaves_the_label_before_or_the_one_after() {
        let later = Label { generation: 3, state: State::Open, ..label() };
        let (before, after) = (label().encode(LabelPosition::Head), later.encode(LabelPosition::Head));
        for cut in 0_usize..1 << (BLOCK / SECTOR) {
            let of = |n: usize| if cut & (1 << n) == 0 { &before } else { &after };
            let torn: Vec<u8> =
                (0..BLOCK / SECTOR).flat_map(|n| &of(n)[n * SECTOR..][..SECTOR]).copied().collect();
            match Label::decode(&torn, LabelPosition::Head) {
                Found::Whole(found) | Found::Torn(found) => {
                    assert!(found == label() || found == later, "{cut:b}")
                }
                other => panic!("{cut:b}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_later_version_is_told_from_a_damaged_label() {
        let mut block = label().encode(LabelPosition::Head);
        block[16] = 9;
        assert!(matches!(Label::decode(&block, LabelPosition::Head), Found::Damaged(_)));
        let sum = crc32c::crc32c(&block[..SUM_AT]).to_le_bytes();
        block[SUM_AT..].copy_from_slice(&sum);
        assert_eq!(Label::decode(&block, LabelPosition::Head), Found::Later(9));
    }

    #[test]
    fn labels_with_a_good_sum_that_make_no_sense_are_damaged() {
        for wrong in [
            Label { position: 3, ..label() },
            Label { width: 0, position: 0, ..label() },
            Label { chunk: 100, ..label() },
            Label { data_start: 0, ..label() },
            Label { data_bytes: 1 << 20, ..label() },
            Label { data_bytes: u64::MAX / 512 * 512, chunk: 512, ..label() },
            Label { member_bytes: 4096, ..label() },
            Label { epoch: Epoch { number: u64::MAX, ..label().epoch }, ..label() },
            Label { sums: Some(SumsLayout { group_blocks: 0, region_groups: 1 }), ..label() },
            Label { sums: Some(SumsLayout { group_blocks: 1021, region_groups: 1 }), ..label() },
            Label { sums: Some(SumsLayout::default()), chunk: 32_768 + 512, data_bytes: 33_280, ..label() },
            Label { sums: Some(SumsLayout::default()), chunk: 4096, data_bytes: 1020 << 10, ..label() },
        ] {
            assert!(
                matches!(
                    Label::decode(&wrong.encode(LabelPosition::Head), LabelPosition::Head),
                    Found::Damaged(_)
                ),
                "{wrong:?}"
            );
        }
    }

    /// Byte for byte, so that a change of the layout does not pass for the same version.
    #[test]
    fn the_layout_is_the_documented_one() {
        let block = label().encode(LabelPosition::Tail);
        let hex =
            |range: Range<usize>| block[range].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(&block[..16], b"flashwright\0v\0\0\0");
        assert_eq!(hex(16..32), "02000000001000000200000000000000");
        assert_eq!(hex(32..64), "01".repeat(16) + &"02".repeat(16));
        assert_eq!(hex(64..80), "01000000030000000000010000000000");
        assert_eq!(hex(80..96), "00001000000000000000010000000000");
        assert_eq!(hex(96..112), "000020000000000000f1536500000000");
        assert_eq!(hex(112..128), "01000000010000000400000000000000");
        assert_eq!(&block[128..138], "scratch ä".as_bytes());
        assert!(block[138..192].iter().all(|byte| *byte == 0));
        assert_eq!(hex(192..232), "03".repeat(16) + "0500000000000000" + &"04".repeat(16));
        assert!(block[232..SECTOR_SUM_AT].iter().all(|byte| *byte == 0));
        let summed = Label { sums: Some(SumsLayout::default()), ..label() }.encode(LabelPosition::Tail);
        assert_eq!((summed[16], &summed[232..240]), (3, &[0xfc, 3, 0, 0, 4, 0, 0, 0][..]));
        assert!(summed[240..SECTOR_SUM_AT].iter().all(|byte| *byte == 0));
        assert_eq!(
            hex(SECTOR_SUM_AT..SECTOR),
            format!("{:08x}", crc32c::crc32c(&block[..SECTOR_SUM_AT]).swap_bytes())
        );
        assert!(block[SECTOR..SUM_AT].iter().all(|byte| *byte == 0));
        assert_eq!(hex(SUM_AT..BLOCK), format!("{:08x}", crc32c::crc32c(&block[..SUM_AT]).swap_bytes()));
    }

    proptest! {
        #[test]
        fn no_block_makes_the_reader_panic(
            seed in proptest::collection::vec(any::<u8>(), 224), sealed in any::<bool>(), version in 1_u32..5,
        ) {
            let mut block = vec![0; BLOCK];
            block[..16].copy_from_slice(LABEL_MAGIC);
            block[16..240].copy_from_slice(&seed);
            block[16..20].copy_from_slice(&version.to_le_bytes());
            if sealed {
                let sum = crc32c::crc32c(&block[..SECTOR_SUM_AT]).to_le_bytes();
                block[SECTOR_SUM_AT..SECTOR].copy_from_slice(&sum);
                let sum = crc32c::crc32c(&block[..SUM_AT]).to_le_bytes();
                block[SUM_AT..].copy_from_slice(&sum);
            }
            for place in LabelPosition::BOTH {
                if let Found::Whole(label) | Found::Torn(label) = Label::decode(&block, place) {
                    prop_assert!(label.makes_sense());
                }
            }
        }
    }
}
