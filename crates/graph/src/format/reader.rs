//! Opening a stored graph, and verified reads of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use external::WaitClock;
use storage::device::{AlignedBuffer, Device, DeviceSpec, OpenOptions};

use super::header::{MAGIC, get32};
use super::sums::{BadPage, device_sums_bytes};
use super::{Header, Index, IndexCursor, PAGE_BYTES, PageSums, SectionKind};
use crate::GraphError;

/// Bytes that a plain read moves at a time.
const READ_BYTES: usize = 1 << 20;
/// Entries of the index that are read at once: a file's bytes are not to lie in memory beside what is made of them.
const INDEX_ENTRIES: u64 = 8 << 10;

/// An open stored graph.
#[derive(Debug)]
pub struct Fwg {
    device: Arc<dyn Device>,
    path: PathBuf,
    header: Header,
    sums: PageSums,
    clock: WaitClock,
    plain_bytes: AtomicU64,
    /// Bytes of memory that other open graphs take.
    beside_bytes: u64,
}

impl Fwg {
    /// Opens the graph on a file, or on a device that a spec names, such as `stripe(chunk=64k):a,b`. Reads are direct where
    /// the file system has direct I/O. The checksums are read and stay in memory.
    ///
    /// # Errors
    /// A file that cannot be opened or read, is not a graph, is of a newer version, truncated or corrupt.
    pub fn open(spec: &str) -> Result<Self, GraphError> {
        let parsed = DeviceSpec::parse(spec)?;
        let direct = OpenOptions { allow_unwritten: true, ..OpenOptions::reading() };
        let device =
            volume::open(&parsed, &direct).or_else(|_| volume::open(&parsed, &direct.clone().buffered()))?;
        Self::on(device, Path::new(spec))
    }

    /// Opens the graph on an open device; `path` is what messages call it.
    ///
    /// # Errors
    /// As of [`Fwg::open`].
    pub fn on(device: Arc<dyn Device>, path: &Path) -> Result<Self, GraphError> {
        let mut page = AlignedBuffer::zeroed(PAGE_BYTES as usize, PAGE_BYTES as usize);
        let available = device.size().min(PAGE_BYTES) as usize;
        let clock = WaitClock::default();
        clock
            .during(|| device.read_at(&mut page[..available], 0))
            .map_err(|source| GraphError::io_at("read", path, 0, source))?;
        if available < PAGE_BYTES as usize && available >= 8 && page[..8] == MAGIC {
            let (what, found) = ("header".to_owned(), device.size());
            return Err(GraphError::Truncated { path: path.to_owned(), what, needed: PAGE_BYTES, found });
        }
        let header = Header::decode(&page, path, device.size())?;
        let (sums, plain_bytes) = (PageSums::default(), AtomicU64::new(available as u64));
        let mut graph =
            Self { device, path: path.to_owned(), header, sums, clock, plain_bytes, beside_bytes: 0 };
        graph.sums = graph.load_sums()?;
        Ok(graph)
    }

    fn load_sums(&self) -> Result<PageSums, GraphError> {
        let section = self.header.section(SectionKind::Sums);
        let mut sums = Vec::with_capacity((section.length / 4) as usize);
        let (mut checksum, mut at) = (0, section.offset);
        let mut buffer = self.buffer(section.padded_end() - section.offset);
        while at < section.padded_end() {
            let take = (section.padded_end() - at).min(buffer.len() as u64) as usize;
            self.read_raw(&mut buffer[..take], at)?;
            checksum = crc32c::crc32c_append(checksum, &buffer[..take]);
            let left = (section.length / 4) as usize - sums.len();
            sums.extend(buffer[..take].chunks_exact(4).take(left).map(|sum| get32(sum, 0)));
            at += take as u64;
        }
        if checksum != self.header.sums_checksum {
            let stored = self.header.sums_checksum;
            return Err(GraphError::Corrupt {
                path: self.path.clone(),
                what: SectionKind::Sums.word().to_owned(),
                offset: section.offset,
                detail: format!("the checksum of all is {checksum:08x}, {stored:08x} was stored"),
            });
        }
        Ok(PageSums::new(sums))
    }

    fn buffer(&self, wanted: u64) -> AlignedBuffer {
        let length = wanted.next_multiple_of(PAGE_BYTES).clamp(PAGE_BYTES, READ_BYTES as u64);
        AlignedBuffer::zeroed(length as usize, PAGE_BYTES as usize)
    }

    fn read_raw(&self, bytes: &mut [u8], offset: u64) -> Result<(), GraphError> {
        let failed = |source| GraphError::io_at("read", &self.path, offset, source);
        self.plain_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.clock.during(|| self.device.read_at(bytes, offset)).map_err(failed)
    }

    /// What the first page says.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What messages call the graph.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it lies on, for engines. Pages that an engine reads are to be [checked](Self::check).
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The clock on which waits for requests to this graph are counted.
    #[must_use]
    pub fn clock(&self) -> &WaitClock {
        &self.clock
    }

    /// Bytes read by plain calls since the graph was opened: header, checksums, index, numbers.
    #[must_use]
    pub fn plain_bytes_read(&self) -> u64 {
        self.plain_bytes.load(Ordering::Relaxed)
    }

    /// Counts memory that other graphs take which stay open as long as this one, so that a budget holds all of them.
    #[must_use]
    pub fn with_memory_beside(mut self, bytes: u64) -> Self {
        self.beside_bytes = bytes;
        self
    }

    /// Bytes of memory that the open graph takes: its checksums, those that its device keeps of it, and what was said to be
    /// [beside it](Self::with_memory_beside).
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let of_device = device_sums_bytes(&*self.device, self.header.file_bytes);
        self.sums.memory_bytes() + of_device + self.beside_bytes
    }

    /// Compares whole pages that were read at `offset` with their checksums.
    ///
    /// # Errors
    /// [`GraphError::Corrupt`] with the page and its offset.
    pub fn check(&self, offset: u64, pages: &[u8]) -> Result<(), GraphError> {
        self.sums.check(offset, pages).map_err(|bad| self.corrupt_page(bad))
    }

    fn corrupt_page(&self, bad: BadPage) -> GraphError {
        let section = self.header.section_at(bad.offset).map_or("no section", SectionKind::word);
        let stored = bad.stored.map_or_else(|| "none".to_owned(), |sum| format!("{sum:08x}"));
        GraphError::Corrupt {
            path: self.path.clone(),
            what: format!("page {} ({section})", bad.offset / PAGE_BYTES),
            offset: bad.offset,
            detail: format!("its checksum is {:08x}, {stored} was stored", bad.found),
        }
    }

    /// Reads and verifies any bytes of any section but the checksums, by plain calls.
    ///
    /// # Errors
    /// Of the device, or of a page whose checksum does not fit.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), GraphError> {
        let end = offset + bytes.len() as u64;
        let first = offset - offset % PAGE_BYTES;
        let mut buffer = self.buffer(end - first);
        let mut at = first;
        while at < end {
            let take = (end.next_multiple_of(PAGE_BYTES) - at).min(buffer.len() as u64);
            let pages = &mut buffer[..take as usize];
            self.read_raw(pages, at)?;
            self.check(at, pages)?;
            let (from, to) = (offset.max(at), end.min(at + take));
            bytes[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&pages[(from - at) as usize..(to - at) as usize]);
            at += take;
        }
        Ok(())
    }

    /// Reads the whole index into memory.
    ///
    /// # Errors
    /// Of reading; [`GraphError::Corrupt`] if a vertex has more neighbours than the header tells of any.
    pub fn index(&self) -> Result<Index, GraphError> {
        let section = self.header.section(SectionKind::Index);
        let mut index = Index::empty(&self.header);
        let step = INDEX_ENTRIES * Index::entry_bytes(&self.header);
        let mut bytes = Vec::new();
        for at in (0..section.length).step_by(step as usize) {
            bytes.resize((section.length - at).min(step) as usize, 0);
            self.read_at(&mut bytes, section.offset + at)?;
            if !index.push(&bytes, &self.header) {
                return Err(GraphError::Corrupt {
                    path: self.path.clone(),
                    what: SectionKind::Index.word().to_owned(),
                    offset: section.offset + at,
                    detail: format!("a vertex has more neighbours than any ({})", self.header.max_degree),
                });
            }
        }
        Ok(index)
    }

    /// A cursor that reads the index as it goes, through a window of 64 KiB. For ascending look-ups.
    #[must_use]
    pub fn windowed_cursor(&self) -> IndexCursor<'_> {
        IndexCursor::windowed(self)
    }

    /// The neighbours of a vertex, by plain calls: for checks and single look-ups.
    ///
    /// # Errors
    /// [`GraphError::NoVertex`]; of reading.
    pub fn neighbours(&self, cursor: &mut IndexCursor<'_>, vertex: u64) -> Result<Vec<u64>, GraphError> {
        self.has_vertex(vertex)?;
        let list = cursor.list(vertex)?;
        let width = self.header.width;
        let mut bytes = vec![0; list.degree as usize * width.bytes()];
        self.read_at(&mut bytes, list.offset)?;
        Ok(bytes.chunks_exact(width.bytes()).map(|id| width.get(id)).collect())
    }

    /// The stored number of an input vertex.
    ///
    /// # Errors
    /// [`GraphError::NoVertex`]; of reading.
    pub fn stored_number(&self, old: u64) -> Result<u64, GraphError> {
        self.number(SectionKind::OldToNew, old)
    }

    /// The input's number of a stored vertex.
    ///
    /// # Errors
    /// As of [`Fwg::stored_number`].
    pub fn input_number(&self, new: u64) -> Result<u64, GraphError> {
        self.number(SectionKind::NewToOld, new)
    }

    fn number(&self, kind: SectionKind, vertex: u64) -> Result<u64, GraphError> {
        self.has_vertex(vertex)?;
        if !self.header.is_renumbered() {
            return Ok(vertex);
        }
        let width = self.header.width;
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..width.bytes()];
        self.read_at(bytes, self.header.section(kind).offset + vertex * width.bytes() as u64)?;
        Ok(width.get(bytes))
    }

    /// Reads all stored numbers of input vertices, or the other way round, in order, a part at a time.
    ///
    /// # Errors
    /// Of reading, and those of `part`.
    pub fn numbers(
        &self,
        kind: SectionKind,
        mut part: impl FnMut(u64, &mut dyn Iterator<Item = u64>) -> Result<(), GraphError>,
    ) -> Result<(), GraphError> {
        let vertices = self.header.vertices;
        if !self.header.is_renumbered() {
            return part(0, &mut (0..vertices));
        }
        let width = self.header.width;
        let (section, step) = (self.header.section(kind), READ_BYTES as u64 / 8);
        let mut bytes = Vec::new();
        for first in (0..vertices).step_by(step as usize) {
            bytes.resize((vertices - first).min(step) as usize * width.bytes(), 0);
            self.read_at(&mut bytes, section.offset + first * width.bytes() as u64)?;
            part(first, &mut bytes.chunks_exact(width.bytes()).map(|id| width.get(id)))?;
        }
        Ok(())
    }

    fn has_vertex(&self, vertex: u64) -> Result<(), GraphError> {
        let vertices = self.header.vertices;
        if vertex < vertices {
            return Ok(());
        }
        Err(GraphError::NoVertex { path: self.path.clone(), vertex, vertices })
    }
}
