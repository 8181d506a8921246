//! Opening a stored graph, and verified reads of it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use external::WaitClock;
use storage::device::{AlignedBuffer, Device, DeviceSpec, OpenOptions};

use super::header::{MAGIC, get32};
use super::sums::{BadPage, device_sums_bytes};
use super::walk::Walk;
use super::{Header, Index, IndexCursor, PAGE_BYTES, PageSums, SectionKind};
use crate::{GraphError, IdWidth};

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
    /// Read at the first page that is checked: a search plans its memory before that.
    sums: OnceLock<PageSums>,
    clock: WaitClock,
    plain_bytes: AtomicU64,
    /// Bytes of memory that other open graphs take.
    beside_bytes: u64,
    /// Set once the index was followed.
    is_index_sound: OnceLock<()>,
}

impl Fwg {
    /// Opens the graph on a file, or on a device that a spec names, such as `stripe(chunk=64k):a,b`. Reads are direct where
    /// the file system has direct I/O. Only the header is read. The checksums follow with the first other page, and stay in memory.
    ///
    /// # Errors
    /// A file that cannot be opened or read, is not a graph, is of a newer version or truncated, or whose header is corrupt.
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
        let (sums, plain_bytes) = (OnceLock::new(), AtomicU64::new(available as u64));
        let (path, is_index_sound) = (path.to_owned(), OnceLock::new());
        Ok(Self { device, path, header, sums, clock, plain_bytes, beside_bytes: 0, is_index_sound })
    }

    /// Reads the checksums now: once their [memory](Self::memory_bytes) is planned, and before threads read pages.
    ///
    /// # Errors
    /// [`GraphError::Io`] if the checksums cannot be read; [`GraphError::Corrupt`] if they are not what was written.
    pub fn load(&self) -> Result<(), GraphError> {
        self.sums().map(|_| ())
    }

    fn sums(&self) -> Result<&PageSums, GraphError> {
        if let Some(sums) = self.sums.get() {
            return Ok(sums);
        }
        let loaded = self.load_sums()?;
        Ok(self.sums.get_or_init(|| loaded))
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
            let detail = format!("the checksum of all is {checksum:08x}, {stored:08x} was stored");
            return Err(self.contradicts(SectionKind::Sums, detail));
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

    /// Bytes of memory that the graph takes once it is read: its checksums, those that its device keeps of it, and what was said
    /// to be [beside it](Self::with_memory_beside).
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let of_device = device_sums_bytes(&*self.device, self.header.file_bytes);
        self.header.section(SectionKind::Sums).length + of_device + self.beside_bytes
    }

    /// Compares whole pages that were read at `offset` with their checksums, and vertices on them with the number that they are
    /// below. All readers pass here, so a vertex of a page that was checked is one of the graph.
    ///
    /// # Errors
    /// [`GraphError::Corrupt`] with the page and its offset.
    pub fn check(&self, offset: u64, pages: &[u8]) -> Result<(), GraphError> {
        self.sums()?.check(offset, pages).map_err(|bad| self.corrupt_page(bad))?;
        let width = self.header.width;
        for (at, page) in (offset..).step_by(PAGE_BYTES as usize).zip(pages.chunks_exact(PAGE_BYTES as usize))
        {
            let kind = self.header.section_at(at);
            // Padding is zero, which is below each limit but 0, and then there is no page of vertices.
            if let Some(limit) = kind.and_then(|kind| self.header.limit_of(kind))
                && !are_below(page, width, limit)
            {
                return Err(self.corrupt_id(at, page, limit));
            }
        }
        Ok(())
    }

    fn corrupt_id(&self, page_offset: u64, page: &[u8], limit: u64) -> GraphError {
        let width = self.header.width;
        let ids = page.chunks_exact(width.bytes()).map(|id| width.get(id)).enumerate();
        let (at, id) = ids.into_iter().find(|(_, id)| *id >= limit).unwrap_or_default();
        let what = self.header.section_at(page_offset).map_or("no section", SectionKind::word);
        self.corrupt(
            what,
            page_offset + (at * width.bytes()) as u64,
            format!("vertex {id} is not below {limit}"),
        )
    }

    fn corrupt(&self, what: impl Into<String>, offset: u64, detail: String) -> GraphError {
        GraphError::Corrupt { path: self.path.clone(), what: what.into(), offset, detail }
    }

    /// That a section contradicts another one, or itself.
    pub(crate) fn contradicts(&self, kind: SectionKind, detail: impl Into<String>) -> GraphError {
        self.corrupt(kind.word(), self.header.section(kind).offset, detail.into())
    }

    fn corrupt_page(&self, bad: BadPage) -> GraphError {
        let section = self.header.section_at(bad.offset).map_or("no section", SectionKind::word);
        let stored = bad.stored.map_or_else(|| "none".to_owned(), |sum| format!("{sum:08x}"));
        let detail = format!("its checksum is {:08x}, {stored} was stored", bad.found);
        self.corrupt(format!("page {} ({section})", bad.offset / PAGE_BYTES), bad.offset, detail)
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
    /// [`GraphError::Io`] if the index or the checksums cannot be read; [`GraphError::Corrupt`] if a checksum does not fit, or if
    /// the index contradicts the header or itself.
    pub fn index(&self) -> Result<Index, GraphError> {
        let mut index = Index::empty(&self.header);
        self.walk_index(|bytes| index.push(bytes))?;
        Ok(index)
    }

    /// A cursor that reads the index as it goes, through a window of 64 KiB. For ascending look-ups. The first one of an open graph
    /// reads the index once from end to end.
    ///
    /// # Errors
    /// As of [`Fwg::index`].
    pub fn windowed_cursor(&self) -> Result<IndexCursor<'_>, GraphError> {
        if self.is_index_sound.get().is_none() {
            self.walk_index(|_| ())?;
        }
        Ok(IndexCursor::windowed(self))
    }

    /// Reads the index, and shows what was found to be sound of it.
    fn walk_index(&self, mut see: impl FnMut(&[u8])) -> Result<(), GraphError> {
        let section = self.header.section(SectionKind::Index);
        let mut walk = Walk::of(&self.header);
        let step = INDEX_ENTRIES * Index::entry_bytes(&self.header);
        let mut bytes = Vec::new();
        for at in (section.offset..section.offset + section.length).step_by(step as usize) {
            bytes.resize((section.offset + section.length - at).min(step) as usize, 0);
            self.read_at(&mut bytes, at)?;
            walk.follow(&bytes)
                .map_err(|(within, detail)| self.corrupt(SectionKind::Index.word(), at + within, detail))?;
            see(&bytes);
        }
        walk.finish().map_err(|detail| self.contradicts(SectionKind::Index, detail))?;
        self.is_index_sound.get_or_init(|| ());
        Ok(())
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
    /// [`GraphError::Io`] if the numbers cannot be read; [`GraphError::Corrupt`] if the checksum of a page of them does not fit;
    /// any error that `part` returns.
    pub fn numbers(
        &self,
        kind: SectionKind,
        mut part: impl FnMut(u64, &mut dyn Iterator<Item = u64>) -> Result<(), GraphError>,
    ) -> Result<(), GraphError> {
        let vertices = self.header.vertices;
        let width = self.header.width;
        let (section, step) = (self.header.section(kind), READ_BYTES as u64 / 8);
        let mut bytes = Vec::new();
        for first in (0..vertices).step_by(step as usize) {
            let count = (vertices - first).min(step);
            if !self.header.is_renumbered() {
                part(first, &mut (first..first + count))?;
                continue;
            }
            bytes.resize(count as usize * width.bytes(), 0);
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

/// Whether all vertices on a page are below `limit`. Without a branch, so that many are compared at once.
fn are_below(page: &[u8], width: IdWidth, limit: u64) -> bool {
    match (width, u32::try_from(limit)) {
        (IdWidth::Four, Ok(limit)) => {
            let ids = page.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]));
            !ids.fold(false, |is_above, id| is_above | (id >= limit))
        }
        (IdWidth::Four, Err(_)) => true,
        (IdWidth::Eight, _) => {
            !page.chunks_exact(8).fold(false, |is_above, id| is_above | (width.get(id) >= limit))
        }
    }
}
