//! `flashwright probe`: what is here, on one screen; with `--ladder`, how far away it is.

use std::path::PathBuf;

use bench::target::Problem;
use storage::device::DeviceSpec;
use storage::survey::Survey;

use crate::args::ProbeArgs;
use crate::failure::Failure;
use crate::output;

pub mod ladder;
mod screen;

/// Looks and prints; with `--ladder`, measures.
pub fn probe(args: &ProbeArgs) -> Result<(), Failure> {
    if args.ladder.ladder {
        return ladder::ladder(args);
    }
    args.ladder.refuse_without_ladder()?;
    let survey = survey(&paths_of(&args.paths)?)?;
    if args.json {
        let text = serde_json::to_string_pretty(&survey).unwrap_or_default();
        return output::print(&format!("{text}\n"));
    }
    output::print(&screen::screen(&survey))
}

/// What the paths stand on.
fn survey(paths: &[PathBuf]) -> Result<Survey, Failure> {
    storage::survey::survey(paths).map_err(|error| {
        let class = match error.source.kind() {
            std::io::ErrorKind::NotFound => sweep::error::Class::Invalid,
            _ => sweep::error::Class::Failed,
        };
        Failure::of(class, &error).hint(error.hint())
    })
}

/// What is to be looked at: a path as it is, and of a device spec the paths of all its members.
fn paths_of(given: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut paths = Vec::new();
    for text in given {
        let spec = match text.to_str().filter(|_| std::fs::symlink_metadata(text).is_err()) {
            Some(text) => DeviceSpec::parse(text).map_err(Problem::from)?,
            None => DeviceSpec::Path(text.clone()),
        };
        for leaf in spec.leaves() {
            let path = leaf.path().ok_or_else(|| {
                Failure::invalid(format!("{leaf} stands on no device"))
                    .hint("name files, directories, block devices, or specs over them")
            })?;
            paths.push(path.to_owned());
        }
    }
    Ok(paths)
}
