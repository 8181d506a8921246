//! `flashwright stage serve`: flags, a file and signals turned into a server.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use stage::pools::Pools;
use stage::qos::{Qos, QosConfig};
use stage::service::config::FileConfig;
use stage::service::listen::{Access, Listening};
use stage::service::own;
use stage::service::place::{SYSTEM_SOCKET, SYSTEM_STATE, Surroundings};
use stage::service::scrape::{Endpoint, Scraping};
use stage::service::server::Limits;
use stage::service::system::front;
use stage::service::system::keeper::{self, Keeper};
use stage::service::system::register::Register;
use stage::service::system::roster::{Roster, RosterConfig};
use stage::{ErrorClass, MoverConfig, StageError};
use sweep::error::Class;
use tracing_subscriber::EnvFilter;

use super::{pools, request};
use crate::failure::Failure;
use crate::signals;
use crate::values::{self, BadValue};

/// Jobs at once, where nobody says how many.
const JOBS: usize = 4;
/// Threads for each.
const THREADS: usize = 4;
/// Processes for users at a time.
const WORKERS: usize = 64;
/// Processes for one user, who may come with many sets of groups.
const WORKERS_OF_USER: usize = 8;
/// How long one may have nothing to do.
const WORKER_IDLE: Duration = Duration::from_secs(60);
/// The variable that filters what is logged, as tracing-subscriber's `EnvFilter` reads it.
const LOG_VARIABLE: &str = "FLASHWRIGHT_LOG";

/// `flashwright stage serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
What was accepted is carried out by the next server if this one dies. SIGTERM or Ctrl-C: stops between
two steps, exit code 0; the next start goes on.

Examples:
  flashwright stage serve                                  for this user, until a signal comes
  flashwright stage serve --metrics 127.0.0.1:9750         with figures for Prometheus
  systemctl --user enable --now flashwright-stage.socket   the same under systemd (dist/systemd/)")]
pub struct ServeArgs {
    /// Serve all users of this host, each with their own rights (as root; see dist/systemd/)
    #[arg(long)]
    pub system: bool,
    /// Where the journal is kept: a directory on a local disk [$STATE_DIRECTORY, else
    /// $XDG_STATE_HOME/flashwright/stage; with --system /var/lib/flashwright/stage]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Listen at this Unix socket [$XDG_RUNTIME_DIR/flashwright/stage.sock; with --system
    /// /run/flashwright/stage.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Read flags from this file; those on the command line go before it
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// Jobs at once (4)
    #[arg(long, value_name = "N", value_parser = positive)]
    pub jobs: Option<usize>,
    /// Threads for each job (4)
    #[arg(long, value_name = "N", value_parser = positive)]
    pub threads: Option<usize>,
    /// Move at most so many bytes a second, all jobs together; with --system of each user
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub bwlimit: Option<u64>,
    /// Make at most so many reads and writes a second, all jobs together; with --system of each user
    #[arg(long, value_name = "N", value_parser = values::whole::<u64>)]
    pub iops_limit: Option<u64>,
    /// Figures for Prometheus at unix:PATH or 127.0.0.1:PORT
    #[arg(long, value_name = "WHERE", value_parser = endpoint)]
    pub metrics: Option<Endpoint>,
    /// Keep the pools that this file describes; with --system for all users, with a ledger that root alone can write
    /// [~/.config/flashwright/pools.toml if it is there; with --system /etc/flashwright/pools.toml]
    #[arg(long, value_name = "FILE.toml")]
    pub pools: Option<PathBuf>,
    /// With --system: users (and sets of their groups) with work at a time (64)
    #[arg(long, value_name = "N", value_parser = positive, requires = "system")]
    pub max_workers: Option<usize>,
    /// With --system: how long a user's process may have nothing to do (60s)
    #[arg(long, value_name = "TIME", value_parser = values::duration, requires = "system")]
    pub worker_idle: Option<Duration>,
    /// Jobs that have not ended, at most, with --system of each user (100000)
    #[arg(long, value_name = "N", value_parser = positive)]
    pub max_jobs: Option<usize>,
    /// Connections at a time, at most, with --system of each user (128)
    #[arg(long, value_name = "N", value_parser = positive)]
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

pub fn positive(text: &str) -> Result<usize, BadValue> {
    match values::whole::<usize>(text)? {
        0 => Err(BadValue::new("must be above zero", "for instance 4")),
        number => Ok(number),
    }
}

fn rate(text: &str) -> Result<u64, BadValue> {
    stage::qos::rate(text).map_err(|error| BadValue::new(error.to_string(), error.hint()))
}

fn endpoint(text: &str) -> Result<Endpoint, BadValue> {
    text.parse::<Endpoint>().map_err(|what| BadValue::new(what, "for instance 127.0.0.1:9750"))
}

/// Serves until a signal comes.
pub fn serve(args: &ServeArgs) -> Result<(), Failure> {
    // First of all, while there are no threads: it takes variables out of the environment.
    let handed_over = Listening::handed_over().map_err(failure)?;
    let file = args.config.as_deref().map(FileConfig::read).transpose().map_err(failure)?.unwrap_or_default();
    log(args.log_format);
    let stop = signals::stop_flag()?.into();
    let work = Work::of(args, &file)?;
    let metrics = args.metrics.clone().or(file.metrics.clone());
    let scraping = || metrics.as_ref().map(Scraping::bind).transpose();
    let described = args.pools.clone().or(file.pools.clone());
    if args.system {
        let described = described.or_else(pools::host_config);
        let keeper = described.map(|config| keeper(args, &file, &config)).transpose()?;
        let roster = roster(args, &file, &work, keeper.is_some())?;
        let listening = handed_over.map_or_else(
            || {
                Listening::bind(
                    &args.socket.clone().or(file.socket).unwrap_or(SYSTEM_SOCKET.into()),
                    Access::All,
                )
            },
            Ok,
        );
        return listening
            .and_then(|listening| front::serve(roster, listening, scraping()?, keeper, &stop))
            .map_err(failure);
    }
    let around = Surroundings::here();
    let named = args.state.clone().or(file.state);
    let config = work.mover(state(named.as_deref(), &around)?);
    let listening = match (handed_over, args.socket.clone().or(file.socket)) {
        (Some(listening), _) => Ok(listening),
        (None, Some(socket)) => Listening::bind(&socket, Access::Own),
        (None, None) => {
            around.own_socket(named.as_deref()).and_then(|socket| Listening::bind(&socket, Access::Own))
        }
    };
    let kept = match described.or_else(pools::own_config) {
        Some(described) => {
            std::fs::create_dir_all(&config.state)
                .map_err(|error| Failure::io(&config.state, "make it", &error))?;
            Some(Pools::open(&request::absolute(&described)?, &config.state.join(pools::LEDGER))?)
        }
        None => None,
    };
    listening
        .and_then(|listening| own::serve(&config, work.limits(), listening, scraping()?, kept, &stop))
        .map_err(failure)
}

/// How a mover works and what clients may take up: flags, else the file, else what is usual.
#[derive(Debug, Clone)]
struct Work {
    jobs: usize,
    threads: usize,
    max_jobs: usize,
    max_connections: usize,
    qos: QosConfig,
}

impl Work {
    fn of(args: &ServeArgs, file: &FileConfig) -> Result<Self, Failure> {
        let usual = Limits::default();
        let pick = |flag: Option<usize>, file: Option<usize>, usual: usize| flag.or(file).unwrap_or(usual);
        let work = Self {
            jobs: pick(args.jobs, file.jobs, JOBS),
            threads: pick(args.threads, file.threads, THREADS),
            max_jobs: pick(args.max_jobs, file.max_jobs, usual.jobs),
            max_connections: pick(args.max_connections, file.max_connections, usual.connections),
            qos: QosConfig {
                bwlimit: args.bwlimit.or(file.qos.bwlimit),
                iops_limit: args.iops_limit.or(file.qos.iops_limit),
                governor: file.qos.governor.clone(),
            },
        };
        if [work.jobs, work.threads, work.max_jobs, work.max_connections].contains(&0) {
            return Err(Failure::invalid(
                "--config: jobs, threads, max-jobs and max-connections must be above zero",
            ));
        }
        Ok(work)
    }

    fn limits(&self) -> Limits {
        Limits { connections: self.max_connections, jobs: self.max_jobs, ..Limits::default() }
    }

    fn mover(&self, state: PathBuf) -> MoverConfig {
        MoverConfig { state, jobs: self.jobs, threads: self.threads, qos: Qos::new(self.qos.clone()) }
    }

    /// As flags of a worker.
    fn flags(&self, format: LogFormat) -> Vec<OsString> {
        let format = format.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        [
            ("jobs", self.jobs.to_string()),
            ("threads", self.threads.to_string()),
            ("max-jobs", self.max_jobs.to_string()),
            ("max-connections", self.max_connections.to_string()),
            ("log-format", format),
            ("qos", serde_json::to_string(&self.qos).unwrap_or_default()),
        ]
        .map(|(name, value)| format!("--{name}={value}").into())
        .into()
    }
}

/// The state directory of a user's own server.
fn state(named: Option<&Path>, around: &Surroundings) -> Result<PathBuf, Failure> {
    match named {
        Some(state) => std::path::absolute(state)
            .map_err(|error| Failure::io(state, "find it from the current directory", &error)),
        None => around.state().map_err(failure),
    }
}

/// The state directory of the system's service, which root alone can have.
fn system_state(args: &ServeArgs, file: &FileConfig) -> Result<PathBuf, Failure> {
    if !stage::service::system::credentials::is_root() {
        return Err(Failure::invalid("--system: only root can work with the rights of all users")
            .hint("leave it out for a server of your own"));
    }
    let around = Surroundings::here();
    let named = args.state.clone().or(file.state.clone());
    let usual = || around.state_directory.is_none().then(|| PathBuf::from(SYSTEM_STATE));
    state(named.or_else(usual).as_deref(), &around)
}

/// Pools for all users.
fn keeper(args: &ServeArgs, file: &FileConfig, config: &Path) -> Result<Keeper, Failure> {
    let state = system_state(args, file)?;
    // Makes the state directory, and looks whether it is root's.
    Register::open(&state).map_err(failure)?;
    Keeper::open(&request::absolute(config)?, &state).map_err(failure)
}

/// The processes behind the system's door: this program again, as `stage worker`.
fn roster(args: &ServeArgs, file: &FileConfig, work: &Work, pools: bool) -> Result<Roster, Failure> {
    let state = system_state(args, file)?;
    let register = Register::open(&state).map_err(failure)?;
    let mut flags = work.flags(args.log_format);
    if pools {
        flags.extend(["--pools".into(), keeper::socket(&state).into()]);
    }
    let most = args.max_workers.or(file.max_workers).unwrap_or(WORKERS);
    let kept = [LOG_VARIABLE, "JOURNAL_STREAM", "NO_COLOR"]
        .into_iter()
        .filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
    let config = RosterConfig {
        // The program as it was when this process began, even if the file was replaced since.
        program: ["/proc/self/exe", "stage", "worker"].map(OsString::from).into(),
        flags,
        variables: kept.collect(),
        most,
        most_of_user: WORKERS_OF_USER.min(most),
        idle: args.worker_idle.unwrap_or(WORKER_IDLE),
    };
    Roster::new(config, register).map_err(failure)
}

/// Sends what happens to standard error. systemd's journal knows the time itself.
pub fn log(format: LogFormat) {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    match format {
        LogFormat::Json => lines.json().init(),
        LogFormat::Text if std::env::var_os("JOURNAL_STREAM").is_some() => {
            lines.with_ansi(false).without_time().init();
        }
        LogFormat::Text => {
            use std::io::IsTerminal;
            let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            lines.with_ansi(colours).init();
        }
    }
}

/// An error of the library, with the exit code that its class has.
pub fn failure(error: StageError) -> Failure {
    let class = match error.class() {
        ErrorClass::Invalid => Class::Invalid,
        ErrorClass::Refused => Class::Refused,
        ErrorClass::Failed => Class::Failed,
        ErrorClass::Interrupted => Class::Interrupted,
    };
    Failure::of(class, &error).hint_if(error.hint())
}
