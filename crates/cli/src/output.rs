//! Where results go: standard output or a file.
//!
//! A reader that closes the pipe early (`flashwright … | head`) is not a failure. A file is written beside its place and
//! renamed into it, so that a full disk or an interruption leaves neither half a document nor a lost earlier one. A symbolic
//! link, a FIFO or a character device is written through instead, without that guarantee. A block device, and a file with
//! data that is not text, are refused, also behind a link: they are more likely a target or results than an earlier document.
//! Of the other files only those are replaced that flashwright wrote itself ([`is_ours`]), unless `--force` is given.

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::failure::Failure;
use crate::terminal;
pub use crate::terminal::tell;

/// Writes results to standard output; colours are dropped where it is no terminal, and under `NO_COLOR`.
pub fn print(text: &str) -> Result<(), Failure> {
    match terminal::print(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Text of a JSON document of one object: its fields in their declared order, indented, with a final line break.
pub fn document_text(document: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(document).map_err(|error| no_document(&error))?;
    Ok(text + "\n")
}

/// Writes a JSON document to standard output.
pub fn print_document(document: &impl Serialize) -> Result<(), Failure> {
    print(&document_text(document)?)
}

/// Writes a JSON document to standard output in one line, as one of many.
pub fn print_line(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(document).map_err(|error| no_document(&error))?;
    print(&(text + "\n"))
}

fn no_document(error: &serde_json::Error) -> Failure {
    Failure::failed(format!("cannot make the JSON document: {error}"))
}

/// Whether somebody watches standard error.
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Columns of the terminal; of a generous page where there is none, so that nothing is cut from a file.
pub fn width() -> usize {
    let columns = || std::env::var("COLUMNS").ok()?.parse::<usize>().ok().filter(|c| *c > 0);
    let terminal = || terminal_size::terminal_size().map(|(terminal_size::Width(w), _)| usize::from(w));
    if io::stdout().is_terminal() {
        terminal().or_else(columns).unwrap_or(100)
    } else {
        columns().unwrap_or(160)
    }
}

/// Columns of the terminal that standard error is; [`width`] where it is none.
pub fn watched_width() -> usize {
    terminal_size::terminal_size_of(io::stderr())
        .map_or_else(width, |(terminal_size::Width(columns), _)| usize::from(columns))
}

/// Where a command's document goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sink {
    /// Standard output.
    Stdout,
    /// A file.
    File(PathBuf),
}

impl Sink {
    /// The sink that `--output` names; `-` and None are standard output. Checked before the work
    /// starts, so that an hour's measurement does not end at a misspelt directory, or at one that cannot be written.
    ///
    /// # Errors
    /// Exit code 2 for a directory, or a file in a directory that does not exist; 3 for a block device and for a file with data
    /// that is not text (a target, a sweep's results), directly or through a link, and, without `force`, for one that somebody
    /// else wrote; 1 if the file cannot be made.
    pub fn of(path: Option<&Path>, force: bool) -> Result<Self, Failure> {
        Self::of_flag("output", path, force)
    }

    /// The same for a flag of another name.
    pub fn of_flag(flag: &str, path: Option<&Path>, force: bool) -> Result<Self, Failure> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else { return Ok(Self::Stdout) };
        let option = format!("--{flag}={}", path.display());
        if path.is_dir() {
            return Err(Failure::invalid(format!("{option}: is a directory")).hint("name a file in it"));
        }
        let folder = folder(path);
        if !folder.is_dir() {
            return Err(Failure::invalid(format!("{option}: there is no directory {}", folder.display()))
                .hint("make it first, or name another file"));
        }
        check_destroys_no_data(&option, path)?;
        if !force && path.is_file() && !is_ours(path) {
            return Err(Failure::refused(format!(
                "{option}: is there already, and flashwright did not write it"
            ))
            .hint("name another file, or replace this one with --force"));
        }
        if is_replaced(path) {
            tempfile::Builder::new().tempfile_in(folder).map_err(|error| {
                let why = error.kind();
                Failure::failed(format!("{option}: no file can be made in {}: {why}", folder.display()))
                    .hint("name a file in a directory that you may write to")
            })?;
        }
        Ok(Self::File(path.to_owned()))
    }

    /// Refuses a sink that is one of the files that the command reads or measures, under whatever name.
    pub fn is_none_of<'a>(&self, inputs: impl IntoIterator<Item = &'a Path>) -> Result<(), Failure> {
        let Self::File(path) = self else { return Ok(()) };
        let identity = |path: &Path| std::fs::metadata(path).map(|facts| (facts.dev(), facts.ino())).ok();
        let own = identity(path);
        if inputs.into_iter().any(|input| input == path || own.is_some() && identity(input) == own) {
            return Err(Failure::invalid(format!("--output={}: is what this command reads", path.display()))
                .hint("name another file"));
        }
        Ok(())
    }

    /// Writes the document.
    pub fn write(&self, text: &str) -> Result<(), Failure> {
        match self {
            Self::Stdout => print(text),
            Self::File(path) => write_file(path, &anstream::adapter::strip_str(text).to_string()),
        }
    }
}

/// Refuses a block device and a file that holds data, where `path` is one or a symbolic link to one. `name` begins the message.
fn check_destroys_no_data(name: &str, path: &Path) -> Result<(), Failure> {
    // Follows links, because writing does.
    let facts = match std::fs::metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::failed(format!("{name}: cannot be examined: {error}"))),
    };
    if facts.file_type().is_block_device() {
        return Err(Failure::refused(format!("{name}: is a block device, and would be overwritten"))
            .hint("name a file"));
    }
    if facts.is_file() && holds_data(path) {
        return Err(Failure::refused(format!("{name}: holds data that is not text, and would be replaced"))
            .hint("name another file, or remove this one"));
    }
    Ok(())
}

/// Whether a regular file begins with a zero byte among its first 4096, which documents of ours never have, and images,
/// databases and archives do. A file that cannot be read counts as data.
fn holds_data(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(4096).read_to_end(&mut start));
    read.is_err() || start.contains(&0)
}

/// Whether flashwright wrote the file: it is empty, or begins as one of its documents does. A reader of them can tell by the
/// same: `schema` or `fio version` in JSON, `generator` in HTML, the header of a table, the rows of a run in text.
fn is_ours(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(4096).read_to_end(&mut start));
    let start = String::from_utf8_lossy(&start);
    let has_line = |word: &str| start.lines().any(|line| line.starts_with(word));
    read.is_ok()
        && (start.is_empty()
            || start.contains("<meta name=\"generator\" content=\"flashwright\">")
            || start.trim_start().starts_with('{')
                && (start.contains("\"flashwright.") || start.contains("flashwright-"))
            || CSV_HEADERS.iter().any(|header| start.starts_with(header))
            || start.starts_with("# ") && has_line("[//]: # (flashwright report)")
            || start.starts_with("# A drive fitted to ")
            || start.starts_with("<svg") && start.contains("<desc>flashwright report</desc>")
            || ["target ", "engine ", "IOPS "].into_iter().all(has_line))
}

/// What the tables of runs, of figures and of a comparison of databases begin with.
const CSV_HEADERS: [&str; 3] =
    ["run,position,point,pass,verdict,", "figure,papers,", "block,tier,query,temperature,"];

/// Whether a document takes the place of `path` by rename: it is a regular file, or does not exist. A symbolic link, a
/// FIFO and a device are written through.
fn is_replaced(path: &Path) -> bool {
    std::fs::symlink_metadata(path).map_or(true, |facts| facts.is_file())
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a document to `path`: a plain file appears as a whole; a symbolic link, a FIFO or a character device is written
/// through. Fails with exit code 3 where that would destroy data, as [`Sink::of`] does: hours may lie between the two.
#[expect(
    clippy::disallowed_methods,
    reason = "a link, a device or a FIFO that the user names is written through"
)]
pub fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    check_destroys_no_data(&path.display().to_string(), path)?;
    let result = if is_replaced(path) { replace(path, text) } else { std::fs::write(path, text) };
    result.map_err(|error| Failure::io(path, "write it", &error))
}

/// Puts a whole file into its place: writes a new file of an unpredictable name beside it, syncs it, and renames it.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut beside = tempfile::Builder::new()
        .prefix(&format!(".{name}."))
        // As of any other file; the umask takes from it.
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(folder(path))?;
    beside.write_all(text.as_bytes())?;
    beside.as_file().sync_all()?;
    beside.persist(path).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_nothing_stays_beside_it() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("report.html");
        write_file(&path, "old").expect("writes");
        write_file(&path, "new").expect("writes");
        assert_eq!(std::fs::read_to_string(&path).expect("reads"), "new");
        assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 1);
    }

    #[test]
    fn neither_data_nor_what_is_read_is_replaced() {
        let folder = tempfile::tempdir().expect("a directory");
        let [data, workload] = ["results.db", "workload.toml"].map(|name| folder.path().join(name));
        std::fs::write(&data, b"SQLite format 3\0").expect("writes");
        std::fs::write(&workload, "bs = 4096").expect("writes");
        assert!(Sink::of(Some(&data), true).is_err());
        let sink = Sink::of(Some(&workload), true).expect("text");
        let link = folder.path().join("link");
        std::fs::hard_link(&workload, &link).expect("links");
        assert!(sink.is_none_of([data.as_path(), &link]).is_err());
        assert!(sink.is_none_of([data.as_path()]).is_ok());
    }

    #[test]
    fn only_what_flashwright_wrote_is_replaced_unless_forced() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("file");
        let ours = [
            "",
            "{\n  \"schema\": \"flashwright.bench/1\"",
            "{\n  \"fio version\" : \"fio-3.33-flashwright-0.1.0\"",
            "<!doctype html>\n<meta name=\"generator\" content=\"flashwright\">",
            "run,position,point,pass,verdict,deviations\n",
            "target     data\nworkload   x\nengine     psync\n\nIOPS       3\n",
        ];
        for text in ours {
            std::fs::write(&path, text).expect("writes");
            Sink::of(Some(&path), false).unwrap_or_else(|_| panic!("{text}"));
        }
        for text in ["my notes", "{\"a\": 1}", "<!doctype html>\n<p>", "run,who\n", "target audience\n"] {
            std::fs::write(&path, text).expect("writes");
            let refused = Sink::of(Some(&path), false).expect_err(text);
            assert!(refused.message().contains("did not write it"), "{}", refused.message());
            Sink::of(Some(&path), true).unwrap_or_else(|_| panic!("{text}"));
        }
    }

    #[test]
    fn a_link_to_data_and_a_file_that_cannot_be_read_are_refused() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = |name: &str| folder.path().join(name);
        let data = [vec![b'x'; 4095], vec![0]].concat();
        std::fs::write(path("data"), &data).expect("writes");
        std::fs::write(path("old.json"), "{}").expect("writes");
        for (link, to) in
            [("to-data", "data"), ("twice", "to-data"), ("to-text", "old.json"), ("to-none", "new.json")]
        {
            std::os::unix::fs::symlink(to, path(link)).expect("links");
        }
        for name in ["data", "to-data", "twice"] {
            let refused = Sink::of(Some(&path(name)), true).expect_err(name);
            assert!(refused.message().contains("is not text"), "{}", refused.message());
            let refused = write_file(&path(name), "text").expect_err(name);
            assert!(refused.message().contains("is not text"), "{}", refused.message());
        }
        assert_eq!(std::fs::read(path("data")).expect("reads"), data);
        for (link, to) in [("to-text", "old.json"), ("to-none", "new.json")] {
            Sink::of(Some(&path(link)), true).and_then(|sink| sink.write("new")).expect("is written through");
            assert_eq!(std::fs::read_to_string(path(to)).expect("reads"), "new");
            assert!(path(link).is_symlink(), "{link}");
        }
        // A socket stands for a file without permission, which root would read all the same.
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).expect("binds");
        assert!(holds_data(&path("socket")));
    }

    #[test]
    fn a_block_device_is_refused_also_behind_a_link() {
        let devices = std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
        let mut nodes = devices.map(|entry| Path::new("/dev").join(entry.file_name()));
        let is_block =
            |node: &PathBuf| std::fs::metadata(node).is_ok_and(|facts| facts.file_type().is_block_device());
        let Some(node) = nodes.find(is_block) else {
            eprintln!("skipped: this machine shows no block device");
            return;
        };
        let folder = tempfile::tempdir().expect("a directory");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&node, &link).expect("links");
        // Only the check before the work: were it missing, nothing would be written here.
        for path in [&node, &link] {
            let refused = Sink::of(Some(path), true).expect_err("a block device");
            assert!(refused.message().contains("is a block device"), "{}", refused.message());
        }
    }

    #[test]
    fn an_output_that_cannot_be_is_refused_before_the_work() {
        let folder = tempfile::tempdir().expect("a directory");
        assert!(Sink::of(Some(folder.path()), true).is_err());
        assert!(Sink::of(Some(&folder.path().join("no/such/file")), true).is_err());
        assert_eq!(Sink::of(Some(Path::new("-")), false).expect("is one"), Sink::Stdout);
    }
}
