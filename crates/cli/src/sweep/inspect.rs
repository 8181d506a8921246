//! `flashwright sweep status` and `flashwright sweep diff`.

use serde::Serialize;
use sweep::diff::diff as compare;
use sweep::status::Status;
use sweep::store::Store;

use super::args::{DiffArgs, StatusArgs};
use crate::failure::Failure;
use crate::output;

/// Tells how far a sweep is.
pub fn status(args: &StatusArgs) -> Result<(), Failure> {
    show(&Status::read(&args.sweep)?, args.json)
}

/// Tells what changed between two sweeps.
pub fn diff(args: &DiffArgs) -> Result<(), Failure> {
    let (a, b) = (Store::open_read_only(&args.a)?, Store::open_read_only(&args.b)?);
    let alike = args.like.iter().map(|sweep| Store::open_read_only(sweep)).collect::<Result<Vec<_>, _>>()?;
    show(&compare(&a, &b, &alike)?, args.json)
}

fn show(document: &(impl Serialize + std::fmt::Display), json: bool) -> Result<(), Failure> {
    if json { output::print_document(document) } else { output::print(&document.to_string()) }
}
