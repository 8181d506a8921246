//! `flashwright stage`: crash-safe moves between a fast and a slow tier.
//!
//! A verb becomes jobs (`request`), which are handed in at a desk (`desk`): a server's, or that of a mover in this
//! process. What becomes of them is told by `words`, in lines, on a screen that is redrawn (`screen`), or in documents.

pub mod args;
pub mod documents;
pub mod serve;

mod control;
mod crew;
mod desk;
mod doctor;
mod evict;
mod foreground;
#[cfg(feature = "s3")]
mod objects;
mod pools;
mod request;
mod screen;
mod sets;
mod status;
mod transfer;
mod values;
mod verify;
mod wait;
mod watch;
mod words;

use ::stage::{StageError, Verb};

use self::args::{StageArgs, StageCommand};
use crate::failure::Failure;

/// Does what is asked.
pub fn stage(args: &StageArgs) -> Result<(), Failure> {
    match &args.command {
        StageCommand::Mv(args) => transfer::transfer(Verb::Move, args),
        StageCommand::Cp(args) => transfer::transfer(Verb::Copy, args),
        StageCommand::Get(args) => transfer::get(args),
        StageCommand::Watch(args) => watch::watch(args),
        StageCommand::Wait(args) => wait::wait(args),
        StageCommand::Status(args) => status::status(args),
        StageCommand::Cancel(args) => control::cancel(args),
        StageCommand::Retry(args) => control::retry(args),
        StageCommand::Verify(args) => verify::verify(args),
        StageCommand::Evict(args) => evict::evict(args),
        StageCommand::Pools(args) => pools::pools(args),
        StageCommand::Sets(args) => sets::sets(args),
        StageCommand::Doctor(args) => doctor::doctor(args),
        StageCommand::Serve(args) => serve::serve(args),
    }
}

/// What opens tiers: directories, and object stores if this program has them.
fn tiers() -> ::stage::tier::Tiers {
    #[cfg(feature = "s3")]
    return stage_object::tiers();
    #[cfg(not(feature = "s3"))]
    ::stage::tier::Tiers::default()
}

impl From<StageError> for Failure {
    fn from(error: StageError) -> Self {
        Self::of(error.class(), &error).hint_if(error.hint())
    }
}
