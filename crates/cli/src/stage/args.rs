//! Flags of `flashwright stage`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand, ValueEnum};
use stage::parts::{PartId, RunId};
use stage::{Algorithm, Level, Preserve};
use stage_service::scrape::Endpoint;

use crate::stage::values;

/// `flashwright stage`.
#[derive(Debug, Args)]
#[command(after_help = "\
A checkpoint on flash, moved to disk while the job computes on:
  flashwright stage serve &                        or under systemd
  flashwright stage mv /flash/ckpt-7 /lustre/run/  returns at once
  flashwright stage status --follow                what the server does
  flashwright stage wait /lustre/run/ckpt-7        until durable and verified

Without a server:
  flashwright stage mv --foreground /flash/ckpt-7 /lustre/run/

A destination name appears when its bytes are durable and have been read back; a source goes after that.")]
pub struct StageArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: StageCommand,
}

/// The verbs below `stage`.
#[derive(Debug, Subcommand)]
pub enum StageCommand {
    /// Move files or directories: the sources go when their copies are durable and verified
    Mv(Box<TransferArgs>),
    /// Copy files or directories
    Cp(Box<TransferArgs>),
    /// Bring files or directories from the slow tier to the fast one
    Get(Box<GetArgs>),
    /// Move what semaphore files vouch for, as they come
    Watch(Box<WatchArgs>),
    /// Wait until a job has come as far as is asked for
    Wait(WaitArgs),
    /// Show jobs: what is done, what is left, what holds them back
    Status(StatusArgs),
    /// Give a job up; its source stays
    Cancel(JobArgs),
    /// Begin a failed job again, with what it has copied so far
    Retry(JobArgs),
    /// Read what is stored around the page cache and compare it with its manifest or the journal
    Verify(VerifyArgs),
    /// Remove a fast copy whose slow copy is durable and has been read back
    Evict(EvictArgs),
    /// Show pools of a fast tier, reserve room in them, give it back
    Pools(PoolsArgs),
    /// Show checkpoints that many nodes write: what is complete, and what the others lack
    Sets(SetsArgs),
    /// Explain what is stuck and why
    Doctor(DoctorArgs),
    /// Take jobs over a socket and carry them out, until a signal comes
    Serve(Box<ServeArgs>),
}

/// Which server, or which state.
#[derive(Debug, Args, Clone, Default)]
pub struct ServerArgs {
    /// The server's socket (by default your own server's, then that of your unit `flashwright-stage@USER`)
    #[arg(long, value_name = "PATH", env = base::environment::STAGE_SOCKET, help_heading = "Server")]
    pub socket: Option<PathBuf>,
    /// Where the journal is, for work without a server, and the socket of a server that was started with it [default:
    /// $STATE_DIRECTORY, else $XDG_STATE_HOME/flashwright/stage, else ~/.local/state/flashwright/stage]
    #[arg(long, value_name = "DIR", help_heading = "Server")]
    pub state: Option<PathBuf>,
}

/// How things are moved.
#[derive(Debug, Args, Clone)]
pub struct OptionArgs {
    /// Move at most so many bytes a second: 2GB/s, 500MB/s, 2g
    #[arg(long, value_name = "RATE", value_parser = values::rate, help_heading = "Quality of service")]
    pub bwlimit: Option<u64>,
    /// Make at most so many reads and writes a second
    #[arg(long, value_name = "N", value_parser = values::positive, help_heading = "Quality of service")]
    pub iops_limit: Option<u64>,
    /// Go before jobs of a lower priority
    #[arg(long, value_name = "N", default_value = "0", allow_hyphen_values = true)]
    #[arg(value_parser = values::priority, help_heading = "Quality of service")]
    pub priority: i32,
    /// Be durable by then: in 30m, or at 2026-12-01T10:00; the rate is raised as late as possible, as far as needed
    #[arg(long, value_name = "WHEN", value_parser = values::deadline, help_heading = "Quality of service")]
    pub deadline: Option<SystemTime>,
    /// Yield to the application: idle I/O priority, and slower when the fast tier answers late
    #[arg(long, help_heading = "Quality of service")]
    pub background: bool,

    /// What goes with the bytes: owner,mode,times,xattrs,acls,sparse,links, or all, or none
    #[arg(long, value_name = "LIST", default_value = "mode,times,sparse,links")]
    #[arg(value_parser = values::preserve)]
    pub preserve: Preserve,
    /// How bytes are digested: xxh3 against accidents, blake3 against intent as well
    #[arg(long, value_name = "ALGORITHM", default_value = "xxh3", value_parser = values::digest)]
    pub digest: Algorithm,
    /// Leave the manifest out of directories
    #[arg(long)]
    pub no_manifest: bool,
    /// Make directories above the destination that are not there; without it, that is an error
    #[arg(long)]
    pub parents: bool,
    /// Have the link `latest`, beside the destination, point to it once it is durable
    #[arg(long)]
    pub latest: bool,
    /// Once durable, keep the newest N of the set and its siblings on the fast tier
    #[arg(long, value_name = "N", value_parser = values::keep)]
    pub keep_fast: Option<u32>,
    /// Once durable, keep the newest N on the slow tier; the last durable one always stays
    #[arg(long, value_name = "N", value_parser = values::keep)]
    pub keep_slow: Option<u32>,
}

/// What is done besides handing the job in.
#[derive(Debug, Args, Clone)]
pub struct ModeArgs {
    /// Do it here and now, without a server; the same command goes on after an interruption
    #[arg(long)]
    pub foreground: bool,
    /// Wait for the server to bring it this far: staged, local or durable
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "durable")]
    #[arg(value_parser = values::level, conflicts_with = "foreground")]
    pub wait: Option<Level>,
    /// DST is the name itself, also where a directory has it already
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
    /// What is at its destination already, whole and right, is no error and not done again
    #[arg(long)]
    pub idempotent: bool,
    /// Print one JSON document (flashwright.stage-status/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright stage mv` and `flashwright stage cp`.
#[derive(Debug, Args)]
#[command(after_help = "\
DST is as for cp(1): a directory that is there takes each SRC under its own name, and so does a DST that ends with a \
slash, which --parents makes; otherwise DST is the name that SRC is to have. s3://BUCKET/PREFIX/NAME is a DST as well. \
A relative name with a colon before its first slash is ./NAME.

Examples:
  flashwright stage mv /flash/ckpt-7 /lustre/run/
  flashwright stage cp --bwlimit 2GB/s --background /flash/ckpt-7 /lustre/run/
  mpirun -n 16 flashwright stage cp /flash/tree /lustre/run/
  flashwright stage cp --deadline 30m --wait /flash/ckpt-7 s3://bucket/ckpt-7

In a job script:
  flashwright stage mv --foreground --idempotent -T /flash/out /lustre/run/out
  flashwright stage cp --part 3/8 --step 7 --latest /flash/ckpt-7 /lustre/run")]
pub struct TransferArgs {
    /// What is moved, then where to; both absolute or relative to the current directory
    #[arg(value_name = "SRC… DST", required = true, num_args = 1..)]
    pub paths: Vec<OsString>,
    /// cp: copy by so many processes of this host, in the foreground; mpirun starts them itself
    #[arg(long, value_name = "N")]
    pub tasks: Option<u32>,
    /// SRC is this rank's part of a checkpoint that many write, counted from 0, of so many; DST is the directory of sets
    #[arg(long, value_name = "RANK/RANKS", value_parser = values::part, help_heading = "Sets")]
    #[arg(requires = "step", conflicts_with = "tasks")]
    pub part: Option<PartId>,
    /// The checkpoint's number
    #[arg(long, value_name = "N", requires = "part", help_heading = "Sets")]
    pub step: Option<u64>,
    /// The identity of this launch, the same on all ranks [default: $FLASHWRIGHT_RUN, else Slurm's job, step and restart]
    #[arg(long, value_name = "ID", requires = "part", value_parser = values::run, help_heading = "Sets")]
    pub run: Option<RunId>,
    #[command(flatten)]
    pub options: OptionArgs,
    #[command(flatten)]
    pub mode: ModeArgs,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `flashwright stage get`.
#[derive(Debug, Args)]
#[command(after_help = "\
Whether the slow copy is still what was written, tells flashwright stage verify.

Examples:
  flashwright stage get --wait /lustre/run/ckpt-7 /flash/
  flashwright stage get --foreground s3://bucket/run/ckpt-7 /flash/ckpt-7")]
pub struct GetArgs {
    /// What is brought, and where to: a directory that is there takes SRC under its own name
    #[arg(value_name = "SRC DST", required = true, num_args = 1..)]
    pub paths: Vec<OsString>,
    #[command(flatten)]
    pub options: OptionArgs,
    #[command(flatten)]
    pub mode: ModeArgs,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `flashwright stage watch`.
#[derive(Debug, Args)]
#[command(after_help = "\
NAME.done, by '*.done', vouches for the file or directory NAME beside it; DONE in a directory, by 'ckpt-*/DONE', for that \
directory. One with lines PATH [SIZE [DIGEST]] vouches for exactly these files, relative to its own directory: if one is \
missing or differs, or another file is among them, nothing moves. The semaphore goes when all is durable.

Write data, fsync, write the semaphore under another name, fsync, and rename it into place.

Examples:
  flashwright stage watch /flash --to /lustre/run --trigger '*.done'
  flashwright stage watch /flash --to /slow --trigger '*/DONE' --keep-fast 2
  flashwright stage watch . --to /slow --trigger '*.done' --foreground --once")]
pub struct WatchArgs {
    /// The directory that is watched
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Where things go: each has the path there that it has below DIR
    #[arg(long, value_name = "DST")]
    pub to: OsString,
    /// Which names are semaphores: a pattern, or one for each level below DIR
    #[arg(long, value_name = "PATTERN")]
    pub trigger: String,
    /// Leave the sources where they are (implied by --keep-fast)
    #[arg(long)]
    pub copy: bool,
    /// Leave the semaphores where they are; what is at its destination already is not moved again
    #[arg(long)]
    pub keep_trigger: bool,
    /// Take semaphores as they are, whatever they hold
    #[arg(long)]
    pub no_list: bool,
    /// End when all that is vouched for by now is durable
    #[arg(long)]
    pub once: bool,
    /// Look through the directory this often, for semaphores that no event told of
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = crate::values::positive_duration)]
    pub rescan: Duration,
    /// Take a semaphore that no event told of when it has stayed the same for so long
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = crate::values::duration)]
    pub settle: Duration,
    /// Do the work here, without a server
    #[arg(long)]
    pub foreground: bool,
    /// Print what happens as JSON, a document a line (flashwright.stage-watch/1)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub options: OptionArgs,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `flashwright stage wait`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 it has come this far, 1 it failed, or the time is up; what failed because it was refused or made no sense \
has the codes of that.

Examples:
  flashwright stage wait 7
  flashwright stage wait /lustre/run/ckpt-7 --level durable --timeout 10m")]
pub struct WaitArgs {
    /// A job's number, or the source or destination of its newest job
    #[arg(value_name = "ID|PATH")]
    pub job: OsString,
    /// How far: staged (accepted), local (synced where it is), durable (at the destination, verified)
    #[arg(long, value_name = "LEVEL", default_value = "durable", value_parser = values::level)]
    pub level: Level,
    /// Give up waiting after this time; the job goes on
    #[arg(long, value_name = "TIME", value_parser = crate::values::duration)]
    pub timeout: Option<Duration>,
    /// Print one JSON document (flashwright.stage-status/1)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `flashwright stage status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashwright stage status              under way, failed, and just ended
  flashwright stage status --follow     the same, kept up to date until Ctrl-C
  flashwright stage status 7 --json")]
pub struct StatusArgs {
    /// A job's number, or the source or destination of its newest job; all where none is named
    #[arg(value_name = "ID|PATH")]
    pub job: Option<OsString>,
    /// Keep it up to date, until Ctrl-C, or until the named job has ended
    #[arg(long)]
    pub follow: bool,
    /// Show all jobs that the journal has
    #[arg(long)]
    pub all: bool,
    /// Print one JSON document (flashwright.stage-status/1); with --follow one a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `flashwright stage cancel` and `flashwright stage retry`.
#[derive(Debug, Args)]
pub struct JobArgs {
    /// A job's number, or the source or destination of its newest job
    #[arg(value_name = "ID|PATH")]
    pub job: OsString,
    /// Print one JSON document (flashwright.stage-status/1)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `flashwright stage verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
Every byte is read from the medium. Exit codes: 0 all is as it was written, 1 it is not, and the file and offset are \
said.

Examples:
  flashwright stage verify /lustre/run/ckpt-7
  flashwright stage verify s3://bucket/run/ckpt-7
  flashwright stage verify 7 --json")]
pub struct VerifyArgs {
    /// A directory with a manifest, a set in an object store, or a job: its number, or what it made
    #[arg(value_name = "PATH|ID")]
    pub what: OsString,
    /// Read at most so many bytes a second
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub bwlimit: Option<u64>,
    /// Print one JSON document (flashwright.stage-verify/1)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `flashwright stage evict`.
#[derive(Debug, Args)]
#[command(after_help = "\
The slow copy is synced, read around the page cache and compared with its manifest by digests, the fast copy with the \
same manifest by names, sizes and times; then the fast copy goes. If anything differs or is missing, nothing goes: exit \
code 3.

Examples:
  flashwright stage evict /flash/ckpt-7
  flashwright stage evict /flash/ckpt-7 --copy /lustre/run/ckpt-7
  flashwright stage evict /flash/ckpt-7 --copy s3://bucket/run/ckpt-7")]
pub struct EvictArgs {
    /// The fast copy
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Where the slow copy is, if no job knows: a path, or s3://BUCKET/PREFIX/NAME
    #[arg(long, value_name = "PATH")]
    pub copy: Option<OsString>,
    /// Print one JSON document (flashwright.stage-evict/1)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `flashwright stage sets`.
#[derive(Debug, Args)]
#[command(after_help = "\
A set has a part of each rank, and is complete when every part is durable. `latest` and restores take complete sets alone. What a \
node that never comes back has not drained is named by its rank, and by its node where another set of the run tells it.

Examples:
  flashwright stage sets /lustre/run
  flashwright stage sets /lustre/run --drain /flash   what a lost job left here
  flashwright stage sets /lustre/run --remove step-00000300.run-slurm-4711.0.0")]
pub struct SetsArgs {
    /// The slow tier: a directory, or s3://BUCKET/PREFIX
    #[arg(value_name = "SLOW")]
    pub slow: OsString,
    /// Before that, drain the parts that are left on this node's flash: its own ranks', and those it keeps as a partner
    #[arg(long, value_name = "FAST")]
    pub drain: Option<PathBuf>,
    /// Before that, publish the records of sets whose parts are all there: what a rank that died was about to do
    #[arg(long)]
    pub complete: bool,
    /// Before that, remove a set, also an incomplete one; the newest complete one stays
    #[arg(long, value_name = "NAME")]
    pub remove: Option<String>,
    /// Print one JSON document (flashwright.stage-sets/1)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `flashwright stage doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Looks for a server, at its jobs, at the tiers that they use, and at this machine's settings. Exit code 1 where something \
is stuck.")]
pub struct DoctorArgs {
    /// Print one JSON document (flashwright.stage-doctor/1)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `flashwright stage pools`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
A pool is a directory of a fast tier with a quota. A program that will write a set reserves its bytes first, and is \
given a directory for it, or is refused before the first byte. The server is asked if it keeps pools; if it does not, or \
a file is named, reservations are kept in a file.

Examples:
  flashwright stage pools list
  flashwright stage pools list --config pools.toml
  dir=$(flashwright stage pools reserve scratch ckpt-7 --size 20g) && cd \"$dir\"
  flashwright stage pools release 3")]
pub struct PoolsArgs {
    /// Where no verb is given: of `list`.
    #[command(flatten)]
    pub list: PoolsListArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Option<PoolsCommand>,
}

/// The verbs below `stage pools`.
#[derive(Debug, Subcommand)]
pub enum PoolsCommand {
    /// Show each pool: quota, what is used, reserved and free, and what is in it
    List(PoolsListArgs),
    /// Reserve room for a set, and print the directory to write it to
    Reserve(ReserveArgs),
    /// Give a reservation back; what was written stays
    Release(ReleaseArgs),
    /// Have a reservation last for a day from now on
    Renew(ReleaseArgs),
}

/// Which pools.
#[derive(Debug, Args, Clone, Default)]
pub struct PoolPlaceArgs {
    /// Without a server: the file that describes the pools [default: ~/.config/flashwright/pools.toml, else
    /// /etc/flashwright/pools.toml]
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// Without a server: the directory where reservations are kept, the same for all who reserve in a pool [default: the
    /// configuration's `ledger`, else pools in the state directory]
    #[arg(long, value_name = "DIR")]
    pub ledger: Option<PathBuf>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// `flashwright stage pools list`.
#[derive(Debug, Args, Default)]
pub struct PoolsListArgs {
    #[command(flatten)]
    pub place: PoolPlaceArgs,
    /// Print one JSON document (flashwright.stage-pools/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright stage pools reserve`.
#[derive(Debug, Args)]
pub struct ReserveArgs {
    /// The pool
    #[arg(value_name = "POOL")]
    pub pool: String,
    /// The set that is going to be written: the last part of its directory's path
    #[arg(value_name = "NAME")]
    pub name: String,
    /// How much
    #[arg(long, value_name = "SIZE", value_parser = crate::values::positive_size)]
    pub size: u64,
    /// Wait so long for room, where there is none [default: refuse at once]
    #[arg(long, value_name = "TIME", value_parser = crate::values::duration)]
    pub wait: Option<Duration>,
    #[command(flatten)]
    pub place: PoolPlaceArgs,
    /// Print one JSON document (flashwright.stage-reservation/1)
    #[arg(long)]
    pub json: bool,
}

/// `flashwright stage pools release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// The reservation's number
    #[arg(value_name = "ID", value_parser = values::reservation)]
    pub id: i64,
    #[command(flatten)]
    pub place: PoolPlaceArgs,
}

/// `flashwright stage serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
What was accepted is carried out by the next server if this one dies. SIGTERM or Ctrl-C: stops between two \
steps, exit code 0; the next start goes on.

Examples:
  flashwright stage serve                           until a signal comes
  flashwright stage serve --metrics 127.0.0.1:9750  figures for Prometheus

Under systemd (dist/systemd/):
  systemctl --user enable --now flashwright-stage.socket")]
pub struct ServeArgs {
    /// Where the journal is kept: a directory on a local disk [$STATE_DIRECTORY, else
    /// $XDG_STATE_HOME/flashwright/stage]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Listen at this Unix socket [$XDG_RUNTIME_DIR/flashwright/stage.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Read flags from this file; those on the command line go before it
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// Jobs at once (4)
    #[arg(long, value_name = "N", value_parser = values::at_least_one)]
    pub jobs: Option<usize>,
    /// Threads for each job (4)
    #[arg(long, value_name = "N", value_parser = values::at_least_one)]
    pub threads: Option<usize>,
    /// Move at most so many bytes a second, all jobs together
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub bwlimit: Option<u64>,
    /// Make at most so many reads and writes a second, all jobs together
    #[arg(long, value_name = "N", value_parser = values::positive)]
    pub iops_limit: Option<u64>,
    /// Figures for Prometheus at unix:PATH or 127.0.0.1:PORT
    #[arg(long, value_name = "WHERE", value_parser = values::endpoint)]
    pub metrics: Option<Endpoint>,
    /// Keep the pools that this file describes [~/.config/flashwright/pools.toml, else
    /// /etc/flashwright/pools.toml, if it is there]
    #[arg(long, value_name = "FILE.toml")]
    pub pools: Option<PathBuf>,
    /// Jobs that have not ended, at most (100000)
    #[arg(long, value_name = "N", value_parser = values::at_least_one)]
    pub max_jobs: Option<usize>,
    /// Connections at a time, at most (128)
    #[arg(long, value_name = "N", value_parser = values::at_least_one)]
    pub max_connections: Option<usize>,
    /// How the log on standard error is written; FLASHWRIGHT_LOG says how much (error, warn, info, debug)
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// The forms of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line an event, for people
    Text,
    /// A JSON document an event, for programs
    Json,
}
