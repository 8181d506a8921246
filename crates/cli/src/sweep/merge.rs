//! `flashwright sweep merge`: the parts of a sweep, put together.

use sweep::merge::merge as put_together;
use sweep::store::Store;

use super::args::MergeArgs;
use super::outcome;
use super::session::{Session, make_folder};
use crate::failure::Failure;
use crate::output;

/// Puts shards together and reports on the whole.
pub fn merge(args: &MergeArgs) -> Result<(), Failure> {
    let made = make_folder(&args.output)?;
    let merged = put_together(&args.sweeps, &args.output).inspect_err(|_| {
        for folder in made {
            // Only what was made just now is empty and goes.
            let _ = std::fs::remove_dir(folder);
        }
    })?;
    let mut store = Store::open(&merged.path)?;
    let permits = super::args::PermitArgs::default();
    let session = Session { folder: args.output.clone(), permits: &permits, json: args.json };
    if !args.json {
        output::print(&said(&merged, &args.output.display().to_string()))?;
    }
    outcome::report(&session, &mut store, None)
}

/// How much of the whole is there.
fn said(merged: &sweep::merge::Merged, folder: &str) -> String {
    let all = &merged.completeness;
    let held = merged.shards - merged.absent.len() as u32;
    let mut text =
        format!("{held} of {} shards, {} of their {} runs\n", merged.shards, all.done, all.planned);
    if !merged.absent.is_empty() {
        let absent: Vec<String> = merged.absent.iter().map(|s| format!("{s}/{}", merged.shards)).collect();
        text += &format!(
            "missing: shard {}; merge again when it is measured, into another directory\n",
            absent.join(", ")
        );
    }
    if !all.is_complete() {
        text += &format!("`flashwright sweep resume {folder}` makes the runs that are missing\n");
    }
    text
}
