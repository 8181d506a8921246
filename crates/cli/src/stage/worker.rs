//! `flashwright stage worker`: what `stage serve --system` starts for each user. Not for people.

use std::path::PathBuf;

use clap::Args;
use stage::MoverConfig;
use stage::qos::Qos;
use stage::service::pools::Relayed;
use stage::service::server::Limits;
use stage::service::system::credentials::Credentials;
use stage::service::system::worker;

use crate::failure::Failure;
use crate::signals;
use crate::stage::serve::{LogFormat, failure, log, positive};

/// `flashwright stage worker`.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// The user to become
    #[arg(long, value_name = "UID")]
    uid: u32,
    /// The group to become
    #[arg(long, value_name = "GID")]
    gid: u32,
    /// The supplementary groups to have, separated by commas; none where it is empty
    #[arg(long, value_name = "GIDS")]
    groups: String,
    /// The journal's directory
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Jobs at once
    #[arg(long, value_name = "N", value_parser = positive)]
    jobs: usize,
    /// Threads for each job
    #[arg(long, value_name = "N", value_parser = positive)]
    threads: usize,
    /// Jobs that have not ended
    #[arg(long, value_name = "N", value_parser = positive)]
    max_jobs: usize,
    /// Connections at a time
    #[arg(long, value_name = "N", value_parser = positive)]
    max_connections: usize,
    /// What holds jobs back, as JSON
    #[arg(long, value_name = "JSON")]
    qos: String,
    /// The socket of whoever keeps the pools
    #[arg(long, value_name = "PATH")]
    pools: Option<PathBuf>,
    /// How the log is written
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: LogFormat,
}

/// Becomes the user, then works.
pub fn work(args: &WorkerArgs) -> Result<(), Failure> {
    let groups: Result<Vec<u32>, _> =
        args.groups.split(',').filter(|word| !word.is_empty()).map(str::parse).collect();
    let groups =
        groups.map_err(|_| Failure::invalid(format!("--groups={}: numbers are expected", args.groups)))?;
    let credentials = Credentials { uid: args.uid, gid: args.gid, groups };
    // Before anything else: nothing of what follows is to be done with more rights than the user has.
    let channel = worker::become_user(&credentials).map_err(failure)?;
    log(args.log_format);
    let stop = signals::stop_flag()?.into();
    let qos = serde_json::from_str(&args.qos).map_err(|error| Failure::invalid(format!("--qos: {error}")))?;
    let config =
        MoverConfig { state: args.state.clone(), jobs: args.jobs, threads: args.threads, qos: Qos::new(qos) };
    let limits = Limits { connections: args.max_connections, jobs: args.max_jobs, ..Limits::default() };
    worker::run(&config, limits, channel, args.pools.clone().map(Relayed::new), &stop).map_err(failure)
}
