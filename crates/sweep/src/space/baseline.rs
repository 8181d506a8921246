//! `[sweep] baseline`: what the recipe's ladder starts from.
//!
//! ```toml
//! baseline = { layout = "md-raid0", width = 16, scheduler = "mq-deadline" }
//! ```
//!
//! Each setting must be a dimension and each value one of its values, so that the ladder can start from something that
//! was measured. Dimensions that are not named start from the value that is written first.

use std::collections::BTreeMap;

use super::document::{Entry, Source};
use super::{Dimension, SpaceError, settings};

/// Understands the entries of `baseline`.
pub(super) fn read(
    source: Source<'_>,
    entries: &[Entry],
    dimensions: &[Dimension],
) -> Result<BTreeMap<String, String>, SpaceError> {
    let mut baseline = BTreeMap::new();
    for entry in entries {
        let Some(dimension) = dimensions.iter().find(|d| d.name == entry.key) else {
            return Err(source.unknown_key(entry, "baseline", dimensions.iter().map(|d| d.name.as_str())));
        };
        let setting = settings::read(source, &entry.key, dimension.kind, &entry.node)?;
        if !dimension.values().any(|value| value == setting.text) {
            let hint = format!("one of {}", dimension.values().collect::<Vec<_>>().join(", "));
            return Err(source.bad_value(&entry.key, &entry.node, "is no value of that dimension", &hint));
        }
        baseline.insert(entry.key.clone(), setting.text);
    }
    Ok(baseline)
}
