//! `flashwright stage serve`: flags, a file and signals turned into a server.

use std::io;
use std::path::{Path, PathBuf};

use stage::StageError;
use stage_service::MoverConfig;
use stage_service::config::FileConfig;
use stage_service::house::Limits;
use stage_service::listen::{Access, Listening};
use stage_service::own;
use stage_service::place::Surroundings;
use stage_service::pools::Pools;
use stage_service::qos::{Qos, QosConfig};
use stage_service::scrape::Scraping;
use tracing_subscriber::EnvFilter;

use super::args::{LogFormat, ServeArgs};
use super::{pools, request};
use crate::failure::Failure;
use crate::signals;

/// Jobs at once, where nobody says how many.
const JOBS: usize = 4;
/// Threads for each.
const THREADS: usize = 4;

/// Serves until a signal comes.
pub fn serve(args: &ServeArgs) -> Result<(), Failure> {
    // First of all, while there are no threads: it takes variables out of the environment.
    let handed_over = Listening::handed_over().map_err(failure)?;
    let file = match &args.config {
        Some(config) => FileConfig::read(&request::file("--config", config)?).map_err(failure)?,
        None => FileConfig::default(),
    };
    log(args.log_format);
    let stop = signals::stop_flag()?.into();
    let work = Work::of(args, &file)?;
    let metrics = args.metrics.clone().or(file.metrics.clone());
    let described = args.pools.clone().or(file.pools.clone());
    let described = described.map(|described| request::file("--pools", &described)).transpose()?;
    let around = Surroundings::here();
    let named = args.state.clone().or(file.state);
    let config = work.mover(state(named.as_deref(), &around)?);
    let socket = args.socket.clone().or(file.socket).filter(|_| handed_over.is_none());
    socket.as_deref().map_or(Ok(()), check_socket)?;
    stage::journal::make_state_directory(&config.state).map_err(failure)?;
    let listening = match (handed_over, socket) {
        (Some(listening), _) => Ok(listening),
        (None, Some(socket)) => Listening::bind(&socket, Access::Own),
        (None, None) => {
            around.own_socket(named.as_deref()).and_then(|socket| Listening::bind(&socket, Access::Own))
        }
    };
    let kept = match described.or_else(pools::own_config).or_else(pools::host_config) {
        Some(described) => Some(Pools::open(&described, &pools::ledger(&described, &config.state)?)?),
        None => None,
    };
    listening
        .and_then(|listening| {
            let scraping = metrics.as_ref().map(Scraping::bind).transpose()?;
            own::serve(&config, work.limits(), listening, scraping, kept, &stop)
        })
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
        if work.qos.iops_limit == Some(0) {
            return Err(Failure::invalid("--config: iops-limit=0: must be above zero")
                .hint("leave it out for no limit"));
        }
        Ok(work)
    }

    fn limits(&self) -> Limits {
        Limits { connections: self.max_connections, jobs: self.max_jobs, ..Limits::default() }
    }

    fn mover(&self, state: PathBuf) -> MoverConfig {
        let (qos, tiers) = (Qos::new(self.qos.clone()), super::tiers());
        MoverConfig { state, jobs: self.jobs, threads: self.threads, qos, tiers, crew: None }
    }
}

/// Refuses a socket whose name something else has.
fn check_socket(socket: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::FileTypeExt;
    match socket.symlink_metadata() {
        Ok(facts) if !facts.file_type().is_socket() => {
            let shown = stage::error::shown(socket);
            Err(Failure::invalid(format!("--socket={shown}: is there, and is not a socket"))
                .hint("name a path that is free, or the socket of a server that has ended"))
        }
        _ => Ok(()),
    }
}

/// The state directory of a user's own server.
fn state(named: Option<&Path>, around: &Surroundings) -> Result<PathBuf, Failure> {
    match named {
        Some(state) => request::directory("--state", state),
        None => around.state().map_err(failure),
    }
}

/// Sends what happens to standard error. systemd's journal knows the time itself.
fn log(format: LogFormat) {
    let filter = EnvFilter::try_from_env(base::environment::LOG).unwrap_or_else(|_| EnvFilter::new("info"));
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
fn failure(error: StageError) -> Failure {
    Failure::of(error.class(), &error).hint_if(error.hint())
}
