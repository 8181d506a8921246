//! A server of our own: a cluster in a directory of the tier under test, and the processes that serve it.
//!
//! ```text
//! DIRECTORY/  lock        held while this program uses the directory
//!             data.new/   a cluster that is being made; removed by the next start
//!             data/       the cluster, once initdb has ended and synced
//!             server.log  what the server said since its last start
//! ```
//!
//! Nothing is left running, however this program ends. A shell stands between it and the server, and reads from a pipe whose other
//! end only this program holds. When the pipe closes, by [`Server::stop`], by an exit or by `kill -9`, the shell stops the server. If
//! the shell was killed as well, the next start finds the server by its working directory, which is that of the cluster, and stops it.
//! Both have a process group of their own, so that Ctrl-C at a terminal reaches this program alone.
//!
//! A cluster appears under its name in one step, after it is complete and durable: a directory is never half made.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::mem;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, fchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use storage::fs_type;
use storage::locks::{self, Attempt, Held};
use tempfile::TempDir;

use super::memory::MemoryLimit;
use super::problem::{failed, problem};
use super::programs::{self, Account, Programs};
use super::settings::{MANAGED, Setting};
use crate::error::DatabaseError;

/// What names of control groups and of temporary directories begin with.
const NAME_PREFIX: &str = "flashwright-postgres-";
/// The user and the database within the cluster. The socket is closed to all users but the server's own.
pub(super) const ROLE: &str = "flashwright";

const DATA: &str = "data";
const DATA_NEW: &str = "data.new";
const LOG: &str = "server.log";
/// Bytes that an address of a Unix socket has room for, less the name of PostgreSQL's socket.
const SOCKET_DIRECTORY_MAX_BYTES: usize = 107 - "/.s.PGSQL.5432.lock".len();
/// A server recovers after a crash before it answers, which takes as long as the log is.
const START_TIMEOUT: Duration = Duration::from_secs(600);
/// Words after a PANIC are waited for no longer; the processes that it ends take less.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(20);
/// A stop writes all changed blocks first.
const STOP_TIMEOUT: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(10);
/// Of a log, the end that is searched for a reason.
const LOG_TAIL_BYTES: u64 = 16 << 10;

/// Starts the server on a word, says its number, waits for the end of its own input, stops the server and waits for it. `SIGINT` is
/// PostgreSQL's fast shutdown: it ends sessions and writes a checkpoint.
const KEEPER: &str = r#"read -r go || exit 0
"$@" </dev/null &
server=$!
echo "$server"
exec >&-
while read -r more; do :; done
kill -INT "$server"
wait "$server""#;

/// What a managed server is made of.
#[derive(Debug, Clone, Default)]
pub struct Managed {
    /// The server's own directory on the tier, which is made if its parent is there.
    pub directory: PathBuf,
    /// The directory of PostgreSQL's programs; None looks for them.
    pub programs: Option<PathBuf>,
    /// Settings of the user, which win over our own.
    pub settings: Vec<Setting>,
    /// Limit of memory for the server and the pages that it reads.
    pub memory_bytes: Option<u64>,
}

/// A cluster, and its server while that runs.
#[derive(Debug)]
pub(super) struct Server {
    place: PathBuf,
    programs: Programs,
    account: Option<Account>,
    settings: Vec<Setting>,
    running: Option<Running>,
    memory: Option<MemoryLimit>,
    sockets: SocketDirectory,
    // Last, so that the lock goes when nothing runs any more.
    _lock: Held<File>,
}

#[derive(Debug)]
struct Running {
    keeper: Child,
    /// The keeper stops the server when this is dropped.
    pipe: Option<ChildStdin>,
    process: u32,
}

/// Where the socket is: with the cluster, or in a directory of its own where that path is too long for an address.
#[derive(Debug)]
enum SocketDirectory {
    Place(PathBuf),
    Temporary(TempDir),
}

impl SocketDirectory {
    fn path(&self) -> &Path {
        match self {
            Self::Place(path) => path,
            Self::Temporary(folder) => folder.path(),
        }
    }
}

impl Server {
    /// Makes the cluster if there is none, without starting the server.
    ///
    /// # Errors
    /// [`DatabaseError`]: no programs, of another version, no right to the directory, no room; what was made is removed then. The
    /// directory in use by another process.
    pub(super) fn new(managed: &Managed) -> Result<Self, DatabaseError> {
        let place = resolved(&managed.directory)?;
        let data = place.join(DATA);
        let demanded = version_of(&data)?;
        let programs = programs::find(managed.programs.as_deref(), demanded)?;
        let account = programs::account(&data)?;
        let is_new = make_directory(&place, account.as_ref())?;
        let made = lock(&place).and_then(|lock| {
            stop_stray(&data)?;
            if demanded.is_none() {
                make_cluster(&place, &programs, account.as_ref())?;
            }
            Ok(lock)
        });
        let lock = made.inspect_err(|_| {
            if is_new {
                // What failed is told; the directory is as it was.
                let _ = fs::remove_dir_all(&place);
            }
        })?;
        let sockets = socket_directory(&place, account.as_ref())?;
        let memory =
            managed.memory_bytes.map(|bytes| MemoryLimit::new(&group_name(&place), bytes)).transpose()?;
        let settings = managed.settings.clone();
        Ok(Self { place, programs, account, settings, running: None, memory, sockets, _lock: lock })
    }

    /// How clients reach it.
    pub(super) fn address(&self) -> postgres::Config {
        let mut config = postgres::Config::new();
        config.host_path(self.sockets.path()).user(ROLE).dbname("postgres");
        config
    }

    /// The directory of the cluster.
    pub(super) fn data(&self) -> PathBuf {
        self.place.join(DATA)
    }

    /// The limit of its memory.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        self.memory.as_ref().map(|memory| memory.bytes)
    }

    /// The user's settings, for the next start. Returns those from before.
    pub(super) fn set(&mut self, settings: Vec<Setting>) -> Vec<Setting> {
        mem::replace(&mut self.settings, settings)
    }

    /// Starts it, and returns when it answers.
    ///
    /// # Errors
    /// [`DatabaseError::Engine`] with the server's own words if it ends before.
    pub(super) fn start(&mut self) -> Result<(), DatabaseError> {
        if self.running.is_some() {
            return Ok(());
        }
        let mut keeper = self.spawn_keeper()?;
        let (pipe, said) = (keeper.stdin.take(), keeper.stdout.take());
        let mut running = Running { keeper, pipe, process: 0 };
        if let Some(memory) = &self.memory {
            memory.enter(running.keeper.id())?;
        }
        let begun = running.pipe.as_mut().map_or(Ok(()), |pipe| pipe.write_all(b"go\n"));
        begun.map_err(DatabaseError::io("start a server", &self.place))?;
        let mut number = String::new();
        if let Some(said) = said {
            BufReader::new(said)
                .read_line(&mut number)
                .map_err(DatabaseError::io("start a server", &self.place))?;
        }
        running.process = number.trim().parse().unwrap_or_default();
        self.running = Some(running);
        self.wait_until_it_answers().inspect_err(|_| drop(self.running.take()))
    }

    fn spawn_keeper(&self) -> Result<Child, DatabaseError> {
        let log_path = self.place.join(LOG);
        // The directory is the server's user's, who may have put a link here. Its processes write one after another, never over each other.
        let log = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::APPEND).bits().cast_signed())
            .open(&log_path)
            .map_err(DatabaseError::io("write the server's log", &log_path))?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", KEEPER, "flashwright-postgres"]).arg(self.programs.directory.join("postgres"));
        command.arg("-D").arg(self.data());
        for (name, value) in self.all_settings() {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        as_account(&mut command, self.account.as_ref());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).current_dir("/").process_group(0);
        command.spawn().map_err(DatabaseError::io("start a server", &self.place))
    }

    /// Ours, then the user's; the last one of a name holds.
    fn all_settings(&self) -> Vec<Setting> {
        let ours = MANAGED.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut all: Vec<Setting> = ours.chain(self.settings.iter().cloned()).collect();
        all.push(("unix_socket_directories".to_owned(), self.sockets.path().display().to_string()));
        all
    }

    fn wait_until_it_answers(&mut self) -> Result<(), DatabaseError> {
        let begun = Instant::now();
        let at = self.place.display().to_string();
        loop {
            match self.address().connect(postgres::NoTls) {
                Ok(_) => return Ok(()),
                Err(error) if !self.is_running() => {
                    let said = self.last_words().unwrap_or_else(|| error.to_string());
                    let failure = problem(&at, "start a server", said.clone());
                    return Err(failure.hinted(hint_of_log(
                        &said,
                        &self.place.join(LOG),
                        self.account.as_ref(),
                    )));
                }
                Err(error) if begun.elapsed() > START_TIMEOUT => {
                    return Err(failed(&at, "reach the server after its start", error));
                }
                Err(_) => sleep(PAUSE),
            }
        }
    }

    /// Whether the server's first process is there.
    pub(super) fn is_running(&self) -> bool {
        self.running.as_ref().is_some_and(|running| is_alive(running.process))
    }

    /// Why the server has ended; None while it serves. A process that panics closes its connection before the first process has ended
    /// them all, so after a PANIC that end is waited for.
    pub(super) fn last_words(&self) -> Option<String> {
        let begun = Instant::now();
        loop {
            let is_running = self.is_running();
            let said = last_error(&self.place.join(LOG));
            if !is_running {
                return said;
            }
            let is_ending = said.is_some_and(|said| said.starts_with("PANIC:"));
            if !is_ending || begun.elapsed() > LAST_WORDS_TIMEOUT {
                return None;
            }
            sleep(PAUSE);
        }
    }

    /// Stops it, and returns when all its processes have ended.
    ///
    /// # Errors
    /// [`DatabaseError::Engine`] if it does not end.
    pub(super) fn stop(&mut self) -> Result<(), DatabaseError> {
        let Some(running) = self.running.take() else { return Ok(()) };
        let stopped = running.stop();
        if !stopped {
            let at = self.place.display().to_string();
            return Err(problem(&at, "stop the server", format!("it still runs after {STOP_TIMEOUT:?}")));
        }
        Ok(())
    }

    /// Stops it, and removes its directory.
    ///
    /// # Errors
    /// As [`Server::stop`]; [`DatabaseError::Io`] if the directory cannot be removed.
    pub(super) fn remove(&mut self) -> Result<(), DatabaseError> {
        self.stop()?;
        fs::remove_dir_all(&self.place).map_err(DatabaseError::io("remove it", &self.place))
    }

    /// Whether the tier's files are memory themselves (tmpfs, ramfs), so that nothing can be evicted.
    pub(super) fn is_in_memory(&self) -> Result<bool, DatabaseError> {
        fs_type::at(&self.place)
            .map(fs_type::is_memory)
            .map_err(DatabaseError::io("ask for its file system", &self.place))
    }

    /// All regular files of the cluster.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect_files(&self.data(), &mut found);
        found
    }
}

impl Running {
    /// Closes the pipe and waits; true if all ended. What does not end in time gets `SIGQUIT`, at which PostgreSQL ends at once and recovers
    /// later.
    fn stop(mut self) -> bool {
        self.end()
    }

    fn end(&mut self) -> bool {
        drop(self.pipe.take());
        let begun = Instant::now();
        let mut has_been_pressed = false;
        loop {
            match self.keeper.try_wait() {
                Ok(Some(_)) => return true,
                Err(_) => return false,
                Ok(None) if begun.elapsed() > STOP_TIMEOUT * 2 => return false,
                Ok(None) if begun.elapsed() > STOP_TIMEOUT && !has_been_pressed => {
                    has_been_pressed = true;
                    send(self.process, Signal::QUIT);
                }
                Ok(None) => sleep(PAUSE),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Removes a managed server's directory and all data in it. No other process may use it.
///
/// # Errors
/// [`DatabaseError`] if another process uses it, or it cannot be removed. A directory that is not there is no error.
pub fn remove(directory: &Path) -> Result<(), DatabaseError> {
    if !directory.join("lock").exists() {
        return Ok(());
    }
    let place = resolved(directory)?;
    let _lock = lock(&place)?;
    stop_stray(&place.join(DATA))?;
    fs::remove_dir_all(&place).map_err(DatabaseError::io("remove it", &place))
}

/// The directory by a path without links, which processes' working directories are compared with. It need not be there itself.
fn resolved(directory: &Path) -> Result<PathBuf, DatabaseError> {
    let absolute = std::path::absolute(directory).map_err(DatabaseError::io("find it", directory))?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(problem(&directory.display().to_string(), "make a server in it", "it has no name"));
    };
    Ok(fs::canonicalize(parent).map_err(DatabaseError::io("enter it", parent))?.join(name))
}

/// Whether there is a cluster in a directory.
#[must_use]
pub fn is_there(directory: &Path) -> bool {
    directory.join(DATA).join("PG_VERSION").exists()
}

fn version_of(data: &Path) -> Result<Option<u32>, DatabaseError> {
    let path = data.join("PG_VERSION");
    match fs::read_to_string(&path) {
        Ok(text) => programs::parse_major(&text).map(Some).ok_or_else(|| {
            problem(
                &data.display().to_string(),
                "tell the version of the cluster",
                format!("PG_VERSION says {text:?}"),
            )
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DatabaseError::io("read it", &path)(error)),
    }
}

/// Makes the directory for the server's user; true if it was not there.
fn make_directory(place: &Path, account: Option<&Account>) -> Result<bool, DatabaseError> {
    match DirBuilder::new().mode(0o755).create(place) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        Err(error) => return Err(DatabaseError::io("make it", place)(error)),
    }
    give(place, account).inspect_err(|_| {
        let _ = fs::remove_dir(place);
    })?;
    Ok(true)
}

fn give(directory: &Path, account: Option<&Account>) -> Result<(), DatabaseError> {
    let Some(account) = account else { return Ok(()) };
    let given = File::open(directory).and_then(|open| fchown(open, Some(account.user), Some(account.group)));
    given.map_err(DatabaseError::io("give it to the server's user", directory))
}

fn lock(place: &Path) -> Result<Held<File>, DatabaseError> {
    let path = place.join("lock");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(&path)
        .map_err(DatabaseError::io("open it", &path))?;
    match locks::try_exclusive(file.as_fd()).map_err(DatabaseError::io("lock it", &path))? {
        Attempt::Taken | Attempt::Unsupported => Ok(Held::new(file)),
        Attempt::Held { by } => {
            let by = by.unwrap_or_else(|| "another process".to_owned());
            Err(problem(&place.display().to_string(), "use it", format!("{by} uses it"))
                .hinted("wait for it, or name another directory"))
        }
    }
}

/// Makes a cluster: all of it, or nothing.
fn make_cluster(place: &Path, programs: &Programs, account: Option<&Account>) -> Result<(), DatabaseError> {
    let new = place.join(DATA_NEW);
    if new.exists() {
        fs::remove_dir_all(&new).map_err(DatabaseError::io("remove what an interrupted run left", &new))?;
    }
    let mut command = Command::new(programs.directory.join("initdb"));
    command.arg("-D").arg(&new);
    command.args(["--username", ROLE, "--auth=trust", "--encoding=UTF8", "--locale=C"]);
    as_account(&mut command, account);
    // A process group of its own: an interrupted run removes what it made, after initdb has ended.
    let said = command.stdin(Stdio::null()).current_dir("/").process_group(0).output();
    let said = said.map_err(DatabaseError::io("start initdb", &programs.directory))?;
    if !said.status.success() {
        let _ = fs::remove_dir_all(&new);
        let words = String::from_utf8_lossy(&said.stderr).into_owned();
        let words =
            words.lines().filter(|line| line.contains("error") || line.contains("FATAL")).collect::<Vec<_>>();
        let words = if words.is_empty() { format!("initdb: {}", said.status) } else { words.join("; ") };
        let hint = hint_of_log(&words, &place.join(LOG), account);
        return Err(problem(&place.display().to_string(), "make a cluster", words).hinted(hint));
    }
    fs::rename(&new, place.join(DATA)).map_err(DatabaseError::io("name the cluster", &new))?;
    File::open(place).and_then(|open| open.sync_all()).map_err(DatabaseError::io("sync it", place))
}

fn as_account(command: &mut Command, account: Option<&Account>) {
    command.env_remove("PGDATA").env("LC_ALL", "C");
    if let Some(account) = account {
        // Also leaves root's further groups.
        command.uid(account.user).gid(account.group);
    }
}

fn hint_of_log(words: &str, log: &Path, account: Option<&Account>) -> String {
    let reads = format!("{} has all that the server said", log.display());
    if words.contains("No space left") {
        "the tier is full: free some room, or name another directory".to_owned()
    } else if words.contains("Permission denied") {
        account.map_or(reads, |account| {
            format!("the user {} must be able to enter each directory above", account.name)
        })
    } else if words.contains("shared memory") || words.contains("Cannot allocate memory") {
        "a smaller shared_buffers needs less memory".to_owned()
    } else {
        reads
    }
}

/// Stops a server that an earlier run left in a cluster.
fn stop_stray(data: &Path) -> Result<(), DatabaseError> {
    let begun = Instant::now();
    let postmaster = fs::read_to_string(data.join("postmaster.pid"))
        .ok()
        .and_then(|text| text.lines().next()?.trim().parse::<u32>().ok());
    let mut has_been_asked = false;
    loop {
        let running = processes_in(data);
        if running.is_empty() {
            return Ok(());
        }
        // Its own processes end with it. If it has gone, they end by themselves.
        if let Some(process) = postmaster.filter(|process| running.contains(process) && !has_been_asked) {
            send(process, Signal::INT);
            has_been_asked = true;
        }
        if begun.elapsed() > STOP_TIMEOUT {
            let what = format!("processes of a server run in it: {running:?}");
            return Err(problem(&data.display().to_string(), "use it", what).hinted("stop that server"));
        }
        sleep(PAUSE);
    }
}

/// Processes whose working directory it is: PostgreSQL's all are in their cluster's.
fn processes_in(data: &Path) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|process| fs::read_link(format!("/proc/{process}/cwd")).is_ok_and(|cwd| cwd == data))
        .collect()
}

/// Whether a process is there and has not ended.
fn is_alive(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with('Z'))
}

fn send(process: u32, signal: Signal) {
    if let Some(process) = process.try_into().ok().and_then(Pid::from_raw) {
        // It may have ended by now.
        let _ = kill_process(process, signal);
    }
}

fn last_error(log: &Path) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    io::Seek::seek(&mut file, io::SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES))).ok()?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).ok()?;
    let tail = String::from_utf8_lossy(&tail).into_owned();
    let mut errors =
        tail.lines().filter(|line| ["PANIC:", "FATAL:", "ERROR:"].iter().any(|word| line.contains(word)));
    // The server names why it cannot start once, and before it what it could not do.
    let line = errors.next_back()?;
    Some(line.split_once("] ").map_or(line, |(_, words)| words).to_owned())
}

fn collect_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect_files(&entry.path(), found),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

fn socket_directory(place: &Path, account: Option<&Account>) -> Result<SocketDirectory, DatabaseError> {
    if place.as_os_str().len() <= SOCKET_DIRECTORY_MAX_BYTES {
        return Ok(SocketDirectory::Place(place.to_owned()));
    }
    let folder = tempfile::Builder::new().prefix(NAME_PREFIX).tempdir();
    let folder = folder.map_err(DatabaseError::io("make a directory for its socket", place))?;
    give(folder.path(), account)?;
    Ok(SocketDirectory::Temporary(folder))
}

/// Of a directory, always the same.
fn group_name(place: &Path) -> String {
    let letters =
        place.display().to_string().bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{NAME_PREFIX}{letters:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_of_a_log_is_told_without_its_prefix() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, "2026 UTC [7] LOG:  starting\n2026 UTC [7] FATAL:  could not: No space left on device\n2026 UTC [7] LOG:  down\n")
            .unwrap();
        assert_eq!(last_error(&log).unwrap(), "FATAL:  could not: No space left on device");
        assert!(hint_of_log(&last_error(&log).unwrap(), &log, None).contains("full"));
    }

    #[test]
    fn a_process_that_is_not_there_is_not_alive() {
        assert!(is_alive(std::process::id()));
        assert!(!is_alive(0));
    }

    #[test]
    fn names_of_groups_differ_by_directory() {
        assert_eq!(group_name(Path::new("/a")), group_name(Path::new("/a")));
        assert_ne!(group_name(Path::new("/a")), group_name(Path::new("/b")));
    }
}
