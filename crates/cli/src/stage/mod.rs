//! `flashwright stage`: crash-safe moves between a fast and a slow tier.

pub mod serve;
pub mod worker;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// `flashwright stage`.
#[derive(Debug, Args)]
pub struct StageArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: StageCommand,
}

/// The verbs below `stage`.
#[derive(Debug, Subcommand)]
pub enum StageCommand {
    /// Take jobs over a socket and carry them out, until a signal comes
    Serve(Box<serve::ServeArgs>),
    /// Work for one user of the system's service, which starts this itself
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
}

/// Does what is asked.
pub fn stage(args: &StageArgs) -> Result<(), Failure> {
    match &args.command {
        StageCommand::Serve(args) => serve::serve(args),
        StageCommand::Worker(args) => worker::work(args),
    }
}
