//! The first page of a stored graph.

use std::path::Path;

use super::PAGE_BYTES;
use super::index::{GROUP, GROUP_BYTES, RUN_BYTES};
use crate::{GraphError, IdWidth};

/// First bytes of the file.
pub(super) const MAGIC: [u8; 8] = *b"FWGRAPH\0";
/// The version that this program writes, and the newest that it reads.
pub const VERSION: u32 = 1;
/// Bytes of the page that come before its checksum.
const SUMMED_BYTES: usize = PAGE_BYTES as usize - 4;
/// Where the section table begins in the page.
const TABLE_OFFSET: usize = 128;
/// Bytes of an entry of the section table.
const ENTRY_BYTES: usize = 24;
/// The longest file, bytes. No drive is as large, and what is computed of counts that fit into it does not overflow.
const MOST_FILE_BYTES: u64 = 1 << 56;
/// The most neighbours of a vertex in the heads section. More would be a second copy of the graph.
pub const MOST_HEADS: u32 = 64;

/// How vertices are numbered in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// As in the input.
    Given,
    /// By falling degree.
    Degree,
}

impl Order {
    /// The word in results: `given`, `degree`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Degree => "degree",
        }
    }
}

/// The parts of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum SectionKind {
    /// The input's number of each stored vertex.
    NewToOld = 1,
    /// The stored number of each input vertex.
    OldToNew = 2,
    /// First neighbours of each listed vertex.
    Heads = 3,
    /// All neighbours.
    Adjacency = 4,
    /// Where lists begin.
    Index = 5,
    /// Checksums of pages.
    Sums = 6,
}

impl SectionKind {
    /// All of them, in the order of the file.
    pub const ALL: [Self; 6] =
        [Self::NewToOld, Self::OldToNew, Self::Heads, Self::Adjacency, Self::Index, Self::Sums];

    /// The word in messages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::NewToOld => "new-to-old numbers",
            Self::OldToNew => "old-to-new numbers",
            Self::Heads => "heads",
            Self::Adjacency => "adjacency",
            Self::Index => "index",
            Self::Sums => "checksums",
        }
    }
}

/// A range of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Section {
    /// First byte; a multiple of [`PAGE_BYTES`].
    pub offset: u64,
    /// Bytes in use, without padding.
    pub length: u64,
}

impl Section {
    /// The first byte behind the section's last page.
    #[must_use]
    pub const fn padded_end(self) -> u64 {
        self.offset + self.length.next_multiple_of(PAGE_BYTES)
    }
}

/// What the first page says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Vertices.
    pub vertices: u64,
    /// Vertices at the front of the numbering that may have neighbours; the others have none.
    pub listed: u64,
    /// Neighbours in all lists together: twice the edges of an undirected graph without self-loops.
    pub entries: u64,
    /// Edges of the input, self-loops and duplicates included.
    pub input_edges: u64,
    /// Neighbours of the vertex that has the most.
    pub max_degree: u64,
    /// Whether edges have a direction; lists then hold successors.
    pub directed: bool,
    /// How vertices are numbered.
    pub order: Order,
    /// Bytes of a vertex in the file.
    pub width: IdWidth,
    /// Neighbours of each listed vertex in the heads section; 0 if there is none.
    pub heads: u32,
    /// Length of the whole file, bytes.
    pub file_bytes: u64,
    /// CRC-32C of the checksum section, padding included.
    pub sums_checksum: u32,
    /// By [`SectionKind`], in the order of [`SectionKind::ALL`].
    pub(super) sections: [Section; 6],
}

impl Header {
    /// Where a part of the file lies; of length 0 if it is absent.
    #[must_use]
    pub const fn section(&self, kind: SectionKind) -> Section {
        self.sections[kind as usize - 1]
    }

    /// Whether stored numbers differ from the input's.
    #[must_use]
    pub const fn is_renumbered(&self) -> bool {
        self.section(SectionKind::NewToOld).length > 0
    }

    /// The part of the file that a byte belongs to.
    #[must_use]
    pub fn section_at(&self, offset: u64) -> Option<SectionKind> {
        SectionKind::ALL.into_iter().find(|kind| {
            let section = self.section(*kind);
            (section.offset..section.padded_end()).contains(&offset)
        })
    }

    /// The page's bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES as usize];
        page[..8].copy_from_slice(&MAGIC);
        let flags = u32::from(self.directed) | u32::from(self.order == Order::Degree) << 1;
        for (at, value) in [
            (8, VERSION),
            (12, flags),
            (16, self.width.bytes() as u32),
            (20, self.heads),
            (24, self.sums_checksum),
        ] {
            page[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let longs =
            [self.vertices, self.listed, self.entries, self.input_edges, self.max_degree, self.file_bytes];
        for (i, value) in longs.into_iter().enumerate() {
            put64(&mut page, 32 + 8 * i, value);
        }
        for (i, section) in self.sections.iter().enumerate() {
            let at = TABLE_OFFSET + ENTRY_BYTES * i;
            put64(&mut page, at, i as u64 + 1);
            put64(&mut page, at + 8, section.offset);
            put64(&mut page, at + 16, section.length);
        }
        let sum = crc32c::crc32c(&page[..SUMMED_BYTES]);
        page[SUMMED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        page
    }

    /// Reads the page. `device_bytes` is what there is of the file.
    pub(super) fn decode(page: &[u8], path: &Path, device_bytes: u64) -> Result<Self, GraphError> {
        let path = || path.to_owned();
        if page[..8] != MAGIC {
            return Err(GraphError::WrongFormat { path: path(), expected: "a graph (.fwg)" });
        }
        let corrupt = |offset: usize, detail: String| GraphError::Corrupt {
            path: path(),
            what: "header".to_owned(),
            offset: offset as u64,
            detail,
        };
        let version = get32(page, 8);
        if version > VERSION {
            return Err(GraphError::NewerVersion { path: path(), found: version, newest: VERSION });
        }
        let (stored, found) = (get32(page, SUMMED_BYTES), crc32c::crc32c(&page[..SUMMED_BYTES]));
        if stored != found {
            return Err(corrupt(0, format!("its checksum is {found:08x}, {stored:08x} was stored")));
        }
        let flags = get32(page, 12);
        let width = IdWidth::from_bytes(get32(page, 16).into())
            .ok_or_else(|| corrupt(16, format!("{} bytes a vertex", get32(page, 16))))?;
        let long = |i: usize| get64(page, 32 + 8 * i);
        let file_bytes = long(5);
        if !file_bytes.is_multiple_of(PAGE_BYTES) || file_bytes > MOST_FILE_BYTES {
            return Err(corrupt(72, format!("{file_bytes} bytes are not the length of a graph")));
        }
        let mut sections = [Section::default(); 6];
        for (i, section) in sections.iter_mut().enumerate() {
            let at = TABLE_OFFSET + ENTRY_BYTES * i;
            *section = Section { offset: get64(page, at + 8), length: get64(page, at + 16) };
            if !section.offset.is_multiple_of(PAGE_BYTES)
                || section.offset.checked_add(section.length).is_none_or(|end| end > file_bytes)
            {
                return Err(corrupt(at, format!("section {} lies outside of the file", i + 1)));
            }
        }
        let header = Self {
            vertices: long(0),
            listed: long(1),
            entries: long(2),
            input_edges: long(3),
            max_degree: long(4),
            directed: flags & 1 != 0,
            order: if flags & 2 == 0 { Order::Given } else { Order::Degree },
            width,
            heads: get32(page, 20),
            file_bytes,
            sums_checksum: get32(page, 24),
            sections,
        };
        let sound = header.check_counts().and_then(|()| header.check_lengths());
        sound.and_then(|()| header.check_places()).map_err(|(at, detail)| corrupt(at, detail))?;
        if header.file_bytes > device_bytes {
            let what = header.section_at(device_bytes).map_or("checksums", SectionKind::word).to_owned();
            let needed = header.file_bytes;
            return Err(GraphError::Truncated { path: path(), what, needed, found: device_bytes });
        }
        Ok(header)
    }

    /// The number that all vertices in a section are below; None for a section without vertices.
    pub(super) const fn limit_of(&self, kind: SectionKind) -> Option<u64> {
        match kind {
            SectionKind::NewToOld | SectionKind::OldToNew => Some(self.vertices),
            SectionKind::Heads | SectionKind::Adjacency if self.directed => Some(self.vertices),
            // An undirected edge is in the lists of both ends.
            SectionKind::Heads | SectionKind::Adjacency => Some(self.listed),
            SectionKind::Index | SectionKind::Sums => None,
        }
    }

    /// The counts go with each other; the place in the page and the contradiction otherwise.
    fn check_counts(&self) -> Result<(), (usize, String)> {
        let Self { vertices, listed, entries, max_degree, heads, .. } = *self;
        let lists = self.section(SectionKind::Adjacency).length;
        let is_listed = listed == vertices || self.order == Order::Degree && listed < vertices;
        let width = self.width.bytes() as u64;
        let checks = [
            (self.width == IdWidth::for_vertices(vertices), 16, format!("{width} bytes for {vertices}")),
            (heads <= MOST_HEADS, 20, format!("{heads} heads a vertex")),
            (is_listed, 40, format!("{listed} of {vertices} vertices have lists")),
            (entries <= lists / width, 48, format!("{entries} neighbours in {lists} bytes of lists")),
            (max_degree <= entries, 64, format!("{max_degree} of {entries} neighbours are of one vertex")),
        ];
        checks.into_iter().find(|check| !check.0).map_or(Ok(()), |(_, at, detail)| Err((at, detail)))
    }

    /// Sections are as long as the counts ask; the place in the page and the contradiction otherwise.
    fn check_lengths(&self) -> Result<(), (usize, String)> {
        let width = self.width.bytes() as u64;
        let wanted = |kind: SectionKind| match kind {
            SectionKind::NewToOld | SectionKind::OldToNew if self.order == Order::Given => Some(0),
            SectionKind::NewToOld | SectionKind::OldToNew => self.vertices.checked_mul(width),
            SectionKind::Heads => self.listed.checked_mul(width * u64::from(self.heads)),
            SectionKind::Sums => {
                (self.section(kind).offset / PAGE_BYTES).checked_sub(1).map(|pages| pages * 4)
            }
            SectionKind::Index if self.order == Order::Given => {
                self.listed.div_ceil(GROUP).checked_mul(GROUP_BYTES)
            }
            // At least one run, if there is a list, and at most one for each.
            SectionKind::Index => {
                let (runs, rest) =
                    (self.section(kind).length / RUN_BYTES, self.section(kind).length % RUN_BYTES);
                let fits = rest == 0 && runs <= self.listed && (runs > 0) == (self.listed > 0);
                fits.then_some(runs * RUN_BYTES)
            }
            SectionKind::Adjacency => Some(self.section(kind).length),
        };
        for kind in SectionKind::ALL {
            let found = self.section(kind).length;
            if wanted(kind) != Some(found) {
                return Err((
                    entry_at(kind),
                    format!("{found} bytes of {} do not fit its counts", kind.word()),
                ));
            }
        }
        Ok(())
    }

    /// No two sections share a byte, nor one of the first page; the place in the page and the overlap otherwise.
    fn check_places(&self) -> Result<(), (usize, String)> {
        let mut kinds = SectionKind::ALL.map(|kind| (self.section(kind), kind));
        kinds.sort_unstable_by_key(|(section, kind)| (section.offset, *kind as u32));
        let mut behind = PAGE_BYTES;
        for (section, kind) in kinds.into_iter().filter(|(section, _)| section.length > 0) {
            if section.offset < behind {
                return Err((entry_at(kind), format!("the {} lie on other bytes of the file", kind.word())));
            }
            behind = section.padded_end();
        }
        Ok(())
    }
}

/// Where a section stands in the table of the first page.
const fn entry_at(kind: SectionKind) -> usize {
    TABLE_OFFSET + ENTRY_BYTES * (kind as usize - 1)
}

fn put64(page: &mut [u8], at: usize, value: u64) {
    page[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn get32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

pub(super) fn get64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}
