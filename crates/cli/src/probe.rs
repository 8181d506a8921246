//! `flashwright probe`: what is here, on one screen.

use crate::args::ProbeArgs;
use crate::failure::Failure;
use crate::output;

mod screen;

/// Looks and prints.
pub fn probe(args: &ProbeArgs) -> Result<(), Failure> {
    let survey = storage::survey::survey(&args.paths).map_err(|error| {
        let class = match error.source.kind() {
            std::io::ErrorKind::NotFound => sweep::error::Class::Invalid,
            _ => sweep::error::Class::Failed,
        };
        Failure::of(class, &error).hint(error.hint())
    })?;
    if args.json {
        let text = serde_json::to_string_pretty(&survey).unwrap_or_default();
        return output::print(&format!("{text}\n"));
    }
    output::print(&screen::screen(&survey))
}
