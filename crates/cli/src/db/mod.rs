//! `flashwright db`: the database workloads of the DASH paper on the user's tiers.

mod advise;
pub mod args;
mod compare;
pub mod document;
mod load;
mod page;
mod plans;
mod report;
mod run;
pub mod why;

use database::DatabaseError;

use self::args::{DbArgs, DbCommand};
use crate::failure::Failure;

/// Runs one of the verbs below `db`.
pub fn db(args: &DbArgs) -> Result<(), Failure> {
    match &args.command {
        DbCommand::Load(args) => load::load(args),
        DbCommand::Run(args) => run::run(args),
        DbCommand::Ingest(args) => load::ingest(args),
        DbCommand::Compare(args) => compare::compare(args),
        DbCommand::Advise(args) => advise::advise(args),
        DbCommand::Report(args) => report::report(args),
    }
}

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Self {
        Self::of(error.class(), &error).hint_if(error.hint())
    }
}

/// What a reader of figures from a tier in memory has to know.
const IN_MEMORY: &str = "the tier is in memory: nothing can be evicted, and cold is as warm";

/// What a reader of cold figures has to know about this machine.
fn machine_notes() -> Vec<String> {
    let host = storage::survey::Host::read(&storage::sysfs::Sysfs::host());
    let guest = host.virtualization.map(|kind| {
        format!("guest-cold: in a virtual machine ({kind}) the host may keep in memory what this system has dropped")
    });
    guest.into_iter().collect()
}
