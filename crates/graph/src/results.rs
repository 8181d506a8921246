//! Results of a search in a file: a parent and a level for each vertex, in the input's numbers.
//!
//! ```text
//! page 0     magic, version, width, vertices, source, vertices reached, levels, checksum of the sums; its own checksum at its end
//! PARENTS    4 or 8 bytes a vertex; all ones for a vertex that was not reached, its own number for the source
//! LEVELS     4 bytes a vertex; all ones for a vertex that was not reached
//! SUMS       CRC-32C of each page of PARENTS and LEVELS
//! ```
//!
//! Sections begin at multiples of 4096 and are padded with zeros; so with an offset the two arrays can be mapped as they
//! are. The file appears under its name once it is whole.
//!
//! A name that ends in `.parquet`, in whichever case, gives a table instead (`table`), which [`TreeWriter`] chooses.

mod table;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::format::{GraphPlace, PAGE_BYTES, PageSums, Stream, write_sums};
use crate::vertex::MOST_COUNT;
use crate::{GraphError, IdWidth, VertexId};

pub use self::table::{TableWriter, is_results_table};

const MAGIC: [u8; 8] = *b"FWBFSOUT";
/// The version that this program writes, and the newest that it reads.
pub const VERSION: u32 = 1;
const SUMMED_BYTES: usize = PAGE_BYTES as usize - 4;
/// Bytes that are read at a time.
const PART_BYTES: u64 = 1 << 20;
/// The level of a vertex that was not reached.
pub const NO_LEVEL: u32 = u32::MAX;

/// What the first page says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultsHeader {
    /// Vertices.
    pub vertices: u64,
    /// Where the search began.
    pub source: VertexId,
    /// Vertices reached, the source included.
    pub reached: u64,
    /// Levels that have vertices.
    pub levels: u32,
    /// Bytes of a parent.
    pub width: IdWidth,
}

impl ResultsHeader {
    fn new(vertices: u64, source: VertexId) -> Self {
        // The number that means "not reached" must be none of a vertex.
        let width = IdWidth::for_vertices(vertices + 1);
        Self { vertices, source, reached: 0, levels: 0, width }
    }

    fn encode(&self, sums_checksum: u32) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES as usize];
        page[..8].copy_from_slice(&MAGIC);
        for (at, value) in
            [(8, VERSION), (12, self.width.bytes() as u32), (16, self.levels), (20, sums_checksum)]
        {
            page[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        for (at, value) in [(32, self.vertices), (40, self.source), (48, self.reached)] {
            page[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let sum = crc32c::crc32c(&page[..SUMMED_BYTES]);
        page[SUMMED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        page
    }

    fn decode(page: &[u8], path: &Path) -> Result<(Self, u32), GraphError> {
        let long = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
        let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes"));
        if page[..8] != MAGIC {
            return Err(GraphError::NotResults { path: path.to_owned() });
        }
        if word(8) > VERSION {
            let (path, found, newest) = (path.to_owned(), word(8), VERSION);
            return Err(GraphError::NewerVersion { path, found, newest });
        }
        let width = IdWidth::from_bytes(word(12).into());
        let (found, stored) = (crc32c::crc32c(&page[..SUMMED_BYTES]), word(SUMMED_BYTES));
        let corrupt = |detail| {
            let (path, what) = (path.to_owned(), "header".to_owned());
            Err(GraphError::Corrupt { path, what, offset: 0, detail })
        };
        let (true, Some(width)) = (found == stored, width) else {
            return corrupt(format!("its checksum is {found:08x}, {stored:08x} was stored"));
        };
        let header =
            Self { vertices: long(32), source: long(40), reached: long(48), levels: word(16), width };
        if header.vertices > MOST_COUNT {
            return corrupt(format!("{} vertices, more than any drive holds", header.vertices));
        }
        Ok((header, word(20)))
    }

    /// Where levels and checksums begin, and where the file ends.
    fn offsets(&self) -> [u64; 3] {
        let levels = PAGE_BYTES + (self.vertices * self.width.bytes() as u64).next_multiple_of(PAGE_BYTES);
        let sums = levels + (self.vertices * 4).next_multiple_of(PAGE_BYTES);
        let end = sums + ((sums / PAGE_BYTES - 1) * 4).next_multiple_of(PAGE_BYTES);
        [levels, sums, end]
    }
}

/// Writes results in the order of the input's numbers.
#[derive(Debug)]
pub struct ResultsWriter {
    header: ResultsHeader,
    place: GraphPlace,
    parents: Stream,
    levels: Stream,
    written: u64,
}

impl ResultsWriter {
    /// Begins a file.
    ///
    /// # Errors
    /// [`GraphError::Io`] if the partial file cannot be made; [`GraphError::Busy`] if another process writes the same file.
    pub fn create(path: &Path, vertices: u64, source: VertexId) -> Result<Self, GraphError> {
        Ok(Self::on(GraphPlace::file(path)?, ResultsHeader::new(vertices, source)))
    }

    /// Begins a file in `folder` that has no name: [`into_results`](Self::into_results) reads it, and when the process ends, in
    /// whichever way, it is gone.
    ///
    /// # Errors
    /// [`GraphError::External`] if the file cannot be made in `folder`.
    pub fn unnamed(folder: &Path, vertices: u64, source: VertexId) -> Result<Self, GraphError> {
        let header = ResultsHeader::new(vertices, source);
        let [_, _, end] = header.offsets();
        Ok(Self::on(GraphPlace::unnamed(folder, end)?, header))
    }

    fn on(place: GraphPlace, header: ResultsHeader) -> Self {
        let parents = Stream::at(PAGE_BYTES, header.vertices * header.width.bytes() as u64);
        let levels = Stream::at(parents.end(), 0);
        Self { header, place, parents, levels, written: 0 }
    }

    /// Adds the next vertex: its parent and level, or None if it was not reached.
    ///
    /// # Errors
    /// [`GraphError::Io`] with the path and the offset if a full buffer cannot be written.
    ///
    /// # Panics
    /// If there are more vertices than were promised.
    pub fn vertex(&mut self, found: Option<(VertexId, u32)>) -> Result<(), GraphError> {
        assert!(self.written < self.header.vertices, "more vertices than were promised");
        self.written += 1;
        let (parent, level) = found.unwrap_or((VertexId::MAX, NO_LEVEL));
        if found.is_some() {
            self.header.reached += 1;
            self.header.levels = self.header.levels.max(level + 1);
        }
        self.parents.add(&parent.to_le_bytes()[..self.header.width.bytes()], &self.place)?;
        self.levels.add(&level.to_le_bytes(), &self.place)
    }

    /// Completes the file and puts it into its place.
    ///
    /// # Errors
    /// [`GraphError::Io`] with the path if the file cannot be written, synced or renamed.
    ///
    /// # Panics
    /// If vertices are missing.
    pub fn finish(mut self) -> Result<ResultsHeader, GraphError> {
        self.complete()?;
        Ok(self.header)
    }

    /// Completes the file; what is in it, if it has no name.
    ///
    /// # Errors
    /// As [`finish`](Self::finish), and those of reading it.
    ///
    /// # Panics
    /// If vertices are missing.
    pub fn into_results(mut self) -> Result<Option<Results>, GraphError> {
        self.complete()?;
        let file = self.place.unnamed_file()?;
        file.map(|file| Results::of(file, Path::new("results without a name"))).transpose()
    }

    fn complete(&mut self) -> Result<(), GraphError> {
        assert_eq!(self.written, self.header.vertices, "vertices are missing");
        self.parents.close(&self.place)?;
        let levels = self.levels.close(&self.place)?;
        let sums = [std::mem::take(&mut self.parents.sums), std::mem::take(&mut self.levels.sums)].concat();
        let (_, checksum) = write_sums(&sums, levels.padded_end(), &self.place)?;
        self.place.complete(&self.header.encode(checksum))
    }
}

/// Writes results as the name of their file says.
#[derive(Debug)]
pub enum TreeWriter {
    /// Both arrays, with checksums.
    Raw(Box<ResultsWriter>),
    /// A Parquet table.
    Table(Box<TableWriter>),
}

impl TreeWriter {
    /// Whether a file of this name is a table.
    #[must_use]
    pub fn is_table(path: &Path) -> bool {
        path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("parquet"))
    }

    /// Begins a file.
    ///
    /// # Errors
    /// [`GraphError::Io`] if the partial file cannot be made; [`GraphError::Busy`] if another process writes the same file;
    /// [`GraphError::Parquet`] if a table cannot be begun.
    pub fn create(path: &Path, vertices: u64, source: VertexId) -> Result<Self, GraphError> {
        if Self::is_table(path) {
            TableWriter::create(path, vertices, source).map(|table| Self::Table(Box::new(table)))
        } else {
            ResultsWriter::create(path, vertices, source).map(|raw| Self::Raw(Box::new(raw)))
        }
    }

    /// Adds the next vertex: its parent and level, or None if it was not reached.
    ///
    /// # Errors
    /// [`GraphError::Io`] if a full buffer cannot be written; [`GraphError::Parquet`] if a full group of rows of a table cannot.
    pub fn vertex(&mut self, found: Option<(VertexId, u32)>) -> Result<(), GraphError> {
        match self {
            Self::Raw(raw) => raw.vertex(found),
            Self::Table(table) => table.vertex(found),
        }
    }

    /// Begins a file without a name ([`ResultsWriter::unnamed`]).
    ///
    /// # Errors
    /// [`GraphError::External`] if the file cannot be made in `folder`.
    pub fn unnamed(folder: &Path, vertices: u64, source: VertexId) -> Result<Self, GraphError> {
        ResultsWriter::unnamed(folder, vertices, source).map(|raw| Self::Raw(Box::new(raw)))
    }

    /// Completes the file, and puts it into its place; what is in it, if it has no name.
    ///
    /// # Errors
    /// [`GraphError::Io`] if the file cannot be written, synced or renamed; [`GraphError::Parquet`] if the end of a table cannot
    /// be written; the errors of [`Results::open`] if a file without a name cannot be read back.
    pub fn finish(self) -> Result<Option<Results>, GraphError> {
        match self {
            Self::Raw(raw) => raw.into_results(),
            Self::Table(table) => table.finish().map(|()| None),
        }
    }
}

/// An open file of results.
#[derive(Debug)]
pub struct Results {
    file: File,
    path: PathBuf,
    header: ResultsHeader,
    sums: PageSums,
}

impl Results {
    /// Opens a file of results.
    ///
    /// # Errors
    /// [`GraphError::Io`] if the file cannot be opened or read; [`GraphError::NotResults`], [`GraphError::NewerVersion`],
    /// [`GraphError::Truncated`] or [`GraphError::Corrupt`] if it is not a whole and sound file of results that this version
    /// reads.
    pub fn open(path: &Path) -> Result<Self, GraphError> {
        Self::of(File::open(path).map_err(|source| GraphError::io("open", path, source))?, path)
    }

    /// What the first page of a file of results says, of which nothing else is read.
    ///
    /// # Errors
    /// As of [`Results::open`], but for what lies behind the first page.
    pub fn header_of(path: &Path) -> Result<ResultsHeader, GraphError> {
        let file = File::open(path).map_err(|source| GraphError::io("open", path, source))?;
        Self::first_page(&file, path).map(|(header, _)| header)
    }

    /// The header, and the checksum of the checksums, of a file that is long enough.
    fn first_page(file: &File, path: &Path) -> Result<(ResultsHeader, u32), GraphError> {
        let found = file.metadata().map_err(|source| GraphError::io("stat", path, source))?.len();
        let truncated = |needed: u64| {
            let (path, what) = (path.to_owned(), "results".to_owned());
            GraphError::Truncated { path, what, needed, found }
        };
        let mut page = vec![0; PAGE_BYTES as usize];
        let available = found.min(PAGE_BYTES) as usize;
        file.read_exact_at(&mut page[..available], 0)
            .map_err(|source| GraphError::io_at("read", path, 0, source))?;
        if available < page.len() && page[..8] == MAGIC {
            return Err(truncated(PAGE_BYTES));
        }
        let (header, stored) = ResultsHeader::decode(&page, path)?;
        let [_, _, end] = header.offsets();
        if found < end { Err(truncated(end)) } else { Ok((header, stored)) }
    }

    fn of(file: File, path: &Path) -> Result<Self, GraphError> {
        let (header, stored) = Self::first_page(&file, path)?;
        let [_, sums, end] = header.offsets();
        let count = (sums / PAGE_BYTES - 1) as usize;
        let (mut all, mut checksum, mut bytes) = (Vec::with_capacity(count), 0, Vec::new());
        for at in (sums..end).step_by(PART_BYTES as usize) {
            bytes.resize((end - at).min(PART_BYTES) as usize, 0);
            file.read_exact_at(&mut bytes, at)
                .map_err(|source| GraphError::io_at("read", path, at, source))?;
            checksum = crc32c::crc32c_append(checksum, &bytes);
            let word = |sum: &[u8]| u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]);
            all.extend(bytes.chunks_exact(4).take(count - all.len()).map(word));
        }
        if checksum != stored {
            return Err(GraphError::Corrupt {
                path: path.to_owned(),
                what: "checksums".to_owned(),
                offset: sums,
                detail: format!("the checksum of all is {checksum:08x}, {stored:08x} was stored"),
            });
        }
        Ok(Self { file, path: path.to_owned(), header, sums: PageSums::new(all) })
    }

    /// What the first page says.
    #[must_use]
    pub fn header(&self) -> &ResultsHeader {
        &self.header
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all vertices in order: a call for each with its number, and its parent and level if it was reached.
    ///
    /// # Errors
    /// [`GraphError::Io`] if the file cannot be read; [`GraphError::Corrupt`] if the checksum of a page does not fit.
    pub fn scan(&self, mut each: impl FnMut(VertexId, Option<(VertexId, u32)>)) -> Result<(), GraphError> {
        let width = self.header.width;
        let (step, none) = (PART_BYTES / 8, u64::MAX >> (64 - 8 * width.bytes()));
        let (mut parents, mut levels) = (Vec::new(), Vec::new());
        for first in (0..self.header.vertices).step_by(step as usize) {
            let count = (self.header.vertices - first).min(step);
            self.read(&mut parents, PAGE_BYTES + first * width.bytes() as u64, count * width.bytes() as u64)?;
            self.read(&mut levels, self.header.offsets()[0] + first * 4, count * 4)?;
            let parents = parents.chunks_exact(width.bytes()).map(|id| width.get(id));
            let levels = levels.chunks_exact(4).map(|level| IdWidth::Four.get(level) as u32);
            for (i, (parent, level)) in parents.zip(levels).take(count as usize).enumerate() {
                each(first + i as u64, (parent != none).then_some((parent, level)));
            }
        }
        Ok(())
    }

    /// Reads whole pages from `offset`, a multiple of a page, and verifies them.
    fn read(&self, bytes: &mut Vec<u8>, offset: u64, length: u64) -> Result<(), GraphError> {
        bytes.resize(length.next_multiple_of(PAGE_BYTES) as usize, 0);
        self.file
            .read_exact_at(bytes, offset)
            .map_err(|source| GraphError::io_at("read", &self.path, offset, source))?;
        self.sums.check(offset, bytes).map_err(|bad| GraphError::Corrupt {
            path: self.path.clone(),
            what: format!("page {}", bad.offset / PAGE_BYTES),
            offset: bad.offset,
            detail: format!("its checksum is {:08x}, {:08x} was stored", bad.found, bad.stored.unwrap_or(0)),
        })
    }
}
