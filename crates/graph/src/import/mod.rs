//! Edge lists from files that people have.
//!
//! | format | what it is |
//! |---|---|
//! | SNAP | text: two vertices a line, lines of comment begin with `#` or `%`; further columns are skipped |
//! | Matrix Market | text: `%%MatrixMarket matrix coordinate …`, vertices from 1, `general` or symmetric |
//! | GAP | `.sg` of the GAP Benchmark Suite: compressed sparse rows |
//! | Parquet | two columns of whole numbers |
//! | raw | pairs of `u32` or `u64`, little-endian |
//!
//! All but GAP and Parquet, which need seeking, may be compressed by gzip or zstd. Formats are told by their first bytes; what
//! has none is SNAP text if it looks like text, and raw pairs only if the caller says so. Input is streamed: memory does
//! not grow with it, but for a row group of Parquet.
//!
//! A malformed line, pair or row ends the import and is named by its number: a graph that silently lacks edges gives wrong
//! answers.

mod gap;
mod matrix_market;
mod parquet;
mod text;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::edges::{EdgeWriter, EdgesConfig, EdgesHeader};
use crate::vertex::MOST_COUNT;
use crate::{GraphError, IdWidth, Steps, VertexId};

base::words! {
    /// What is imported.
    pub enum InputFormat {
        /// Lines of two vertices.
        Snap = "snap" | "text",
        /// A sparse matrix.
        MatrixMarket = "matrix-market" | "mtx",
        /// A graph of the GAP Benchmark Suite.
        Gap = "gap" | "sg",
        /// Two columns.
        Parquet = "parquet",
        /// Pairs of 4-byte vertices.
        Raw32 = "raw32",
        /// Pairs of 8-byte vertices.
        Raw64 = "raw64",
    }
}

base::words! {
    /// How an input is compressed.
    pub enum Compression {
        /// Not at all.
        None = "none",
        /// By gzip.
        Gzip = "gzip",
        /// By zstd.
        Zstd = "zstd",
    }
}

/// How an import is done.
#[derive(Debug, Clone, Copy, Default)]
pub struct ImportOptions {
    /// The format; None tells it by the first bytes.
    pub format: Option<InputFormat>,
    /// Whether edges have a direction; None takes what the input says, and no direction where it says nothing.
    pub directed: Option<bool>,
    /// The number of vertices; None takes what the input says, and the largest vertex + 1 where it says nothing.
    pub vertices: Option<u64>,
}

/// What was imported.
#[derive(Debug)]
pub struct Imported {
    /// The edge list.
    pub header: EdgesHeader,
    /// The format of the input.
    pub format: InputFormat,
    /// Its compression.
    pub compression: Compression,
}

/// Bytes by which an input is read.
const BUFFER_BYTES: usize = 1 << 20;
/// Edges that are handed over at once.
const BATCH: usize = 1 << 12;

/// Imports `input` as the edge list `output`. The steps are bytes of the input file.
///
/// Vertices are written in 4 bytes. An input of which no number of vertices is known and that has a vertex that needs 8 is
/// read a second time.
///
/// # Errors
/// [`GraphError::Io`] if `input` cannot be read or `output` cannot be written; [`GraphError::BadInput`] if a line, pair, list or
/// row is malformed or names a vertex that is too large; [`GraphError::Truncated`] or [`GraphError::Corrupt`] if a GAP file is
/// unsound; [`GraphError::Parquet`] if a Parquet file cannot be decoded; [`GraphError::Invalid`] if the format is not known,
/// cannot be read through compression, or lacks two columns of whole numbers, or if there are more than 2^48 vertices;
/// [`GraphError::Busy`] if another process writes `output`; [`GraphError::Interrupted`] if `steps` asks to stop.
pub fn import(
    input: &Path,
    output: &Path,
    options: &ImportOptions,
    steps: &Steps,
) -> Result<Imported, GraphError> {
    let source = Input::probe(input, options)?;
    let narrow = options.vertices.map_or(IdWidth::Four, IdWidth::for_vertices);
    match source.import(output, options, narrow, steps) {
        Err(GraphError::VertexTooLarge { limit, .. })
            if narrow == IdWidth::Four && options.vertices.is_none() && limit == 1 << 32 =>
        {
            source.import(output, options, IdWidth::Eight, steps)
        }
        imported => imported,
    }
}

/// A file whose format is known.
#[derive(Debug)]
struct Input<'a> {
    path: &'a Path,
    format: InputFormat,
    compression: Compression,
}

impl<'a> Input<'a> {
    /// Looks at the first bytes.
    fn probe(path: &'a Path, options: &ImportOptions) -> Result<Self, GraphError> {
        let read = |source| GraphError::io("read", path, source);
        let file = File::open(path).map_err(|source| GraphError::io("open", path, source))?;
        let compression = match first_bytes(BufReader::new(file)).map_err(read)?.as_slice() {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            _ => Compression::None,
        };
        let first = first_bytes(open(path, compression, &Steps::default())?).map_err(read)?;
        let format = match (options.format, first.as_slice()) {
            (Some(format), _) => format,
            (None, [b'P', b'A', b'R', b'1', ..]) => InputFormat::Parquet,
            (None, first) if first.starts_with(b"%%MatrixMarket") => InputFormat::MatrixMarket,
            (None, _) if is_gap(path) => InputFormat::Gap,
            (None, first) if first.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | 32..)) => {
                InputFormat::Snap
            }
            _ => {
                let message = format!("{}: its format cannot be told from its first bytes", path.display());
                return Err(GraphError::Invalid { message });
            }
        };
        let seeks = matches!(format, InputFormat::Gap | InputFormat::Parquet);
        if seeks && compression != Compression::None {
            let (format, word) = (format.word(), compression.word());
            let message = format!("{}: a {format} file cannot be read through {word}", path.display());
            return Err(GraphError::Invalid { message });
        }
        Ok(Self { path, format, compression })
    }

    fn import(
        &self,
        output: &Path,
        options: &ImportOptions,
        width: IdWidth,
        steps: &Steps,
    ) -> Result<Imported, GraphError> {
        let file_bytes =
            std::fs::metadata(self.path).map_err(|e| GraphError::io("stat", self.path, e))?.len();
        steps.begin(1, file_bytes);
        let open = || open(self.path, self.compression, steps);
        let mut edges = Edges {
            output,
            options,
            width,
            origin: self.origin(),
            writer: None,
            limit: MOST_COUNT,
            batch: Vec::new(),
        };
        match self.format {
            InputFormat::Snap => text::snap(self.path, &mut *open()?, &mut edges),
            InputFormat::MatrixMarket => matrix_market::read(self.path, &mut *open()?, &mut edges),
            InputFormat::Gap => gap::read(self.path, &mut edges, steps),
            InputFormat::Parquet => parquet::read(self.path, &mut edges, steps),
            InputFormat::Raw32 => raw(self.path, &mut *open()?, IdWidth::Four, &mut edges),
            InputFormat::Raw64 => raw(self.path, &mut *open()?, IdWidth::Eight, &mut edges),
        }
        .map_err(|error| stopped(error, steps))?;
        Ok(Imported { header: edges.finish()?, format: self.format, compression: self.compression })
    }

    fn origin(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        format!("{} {name}", self.format.word())
    }
}

/// An interruption arrives as an error of a read, since readers of compressed data know of nothing else.
fn stopped(error: GraphError, steps: &Steps) -> GraphError {
    match steps.add(0, "importing edges") {
        Err(stopped) if matches!(error, GraphError::Io { .. }) => stopped,
        _ => error,
    }
}

fn is_gap(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sg")
}

/// The first bytes of a stream, at most 512.
fn first_bytes(stream: impl Read) -> io::Result<Vec<u8>> {
    let mut first = Vec::with_capacity(512);
    stream.take(512).read_to_end(&mut first)?;
    Ok(first)
}

/// A file, counted and decompressed.
fn open<'a>(
    path: &Path,
    compression: Compression,
    steps: &'a Steps,
) -> Result<Box<dyn BufRead + 'a>, GraphError> {
    let file = File::open(path).map_err(|source| GraphError::io("open", path, source))?;
    let counted = BufReader::with_capacity(BUFFER_BYTES, Counted { file, steps });
    Ok(match compression {
        Compression::None => Box::new(counted),
        Compression::Gzip => {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, flate2::bufread::MultiGzDecoder::new(counted)))
        }
        Compression::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(counted)
                .map_err(|source| GraphError::io("decompress", path, source))?;
            Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
        }
    })
}

/// Counts the bytes of a file as steps.
#[derive(Debug)]
struct Counted<'a> {
    file: File,
    steps: &'a Steps,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read(buffer)?;
        self.steps.add(bytes as u64, "importing edges").map_err(io::Error::other)?;
        Ok(bytes)
    }
}

/// The edge list that grows. It begins with the first edge, when the input has told of its vertices and its direction.
#[derive(Debug)]
struct Edges<'a> {
    output: &'a Path,
    options: &'a ImportOptions,
    width: IdWidth,
    origin: String,
    writer: Option<EdgeWriter>,
    /// Vertices are below this, if somebody said how many there are; otherwise what a list can hold.
    limit: u64,
    batch: Vec<(VertexId, VertexId)>,
}

impl Edges<'_> {
    /// Begins the list, with what the input says of it.
    fn begin(&mut self, vertices: Option<u64>, directed: bool) -> Result<(), GraphError> {
        let vertices = self.options.vertices.or(vertices);
        let config = EdgesConfig {
            vertices,
            directed: self.options.directed.unwrap_or(directed),
            width: vertices.map_or(self.width, IdWidth::for_vertices),
            origin: self.origin.clone(),
        };
        self.limit = vertices.unwrap_or(MOST_COUNT);
        self.writer = Some(EdgeWriter::create(self.output, config)?);
        Ok(())
    }

    /// Adds an edge; `bad` makes the error of its place in the input.
    fn push(
        &mut self,
        (source, target): (VertexId, VertexId),
        bad: impl FnOnce(String) -> GraphError,
    ) -> Result<(), GraphError> {
        let (larger, limit) = (source.max(target), self.limit);
        if larger >= limit {
            let what = if limit == MOST_COUNT { "that a list can have" } else { "that it has" };
            return Err(bad(format!("vertex {larger} is not below {limit}, the vertices {what}")));
        }
        self.batch.push((source, target));
        if self.batch.len() == BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), GraphError> {
        let writer = self.writer.as_mut().expect("the list was begun");
        writer.extend(&self.batch)?;
        self.batch.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<EdgesHeader, GraphError> {
        self.flush()?;
        self.writer.expect("the list was begun").finish()
    }
}

/// Reads pairs of vertices of a width.
fn raw(
    path: &Path,
    input: &mut dyn BufRead,
    width: IdWidth,
    edges: &mut Edges<'_>,
) -> Result<(), GraphError> {
    edges.begin(None, false)?;
    let pair_bytes = 2 * width.bytes();
    let mut bytes = vec![0; BUFFER_BYTES];
    let (mut held, mut pair) = (0, 0);
    loop {
        let read = input.read(&mut bytes[held..]).map_err(|source| GraphError::io("read", path, source))?;
        held += read;
        let whole = held - held % pair_bytes;
        for both in bytes[..whole].chunks_exact(pair_bytes) {
            pair += 1;
            edges.push((width.get(both), width.get(&both[width.bytes()..])), |detail| {
                GraphError::BadInput { path: path.to_owned(), unit: "pair", number: pair, detail }
            })?;
        }
        bytes.copy_within(whole..held, 0);
        held -= whole;
        if read == 0 {
            break;
        }
    }
    if held > 0 {
        let detail = format!("has {held} of {pair_bytes} bytes");
        return Err(GraphError::BadInput { path: path.to_owned(), unit: "pair", number: pair + 1, detail });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
