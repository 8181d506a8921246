//! `[[exclude]]` and `[[only]]`: which combinations of the dimensions are points.
//!
//! A table matches a combination where each of its keys names the combination's value, or lists it.
//! A combination is kept where some `[[only]]` matches (if there are any) and no `[[exclude]]` does.
//! Keys must be dimensions and values must be among theirs: a filter with a slip of the pen that
//! silently matched nothing would measure what was meant to be left out.

use super::document::{Node, Source, Value};
use super::{Dimension, SpaceError, settings};

/// One table: what each dimension named in it may be, by index of the dimension.
#[derive(Debug, Clone, Default)]
pub(super) struct Filter {
    conditions: Vec<(String, Vec<String>)>,
}

/// All filters of a space.
#[derive(Debug, Clone, Default)]
pub(super) struct Filters {
    pub exclude: Vec<Filter>,
    pub only: Vec<Filter>,
}

impl Filters {
    /// Whether the combination is a point; `value_of` gives its value of a dimension.
    pub fn keep<'v>(&self, value_of: impl Fn(&str) -> &'v str + Copy) -> bool {
        let wanted = self.only.is_empty() || self.only.iter().any(|f| f.matches(value_of));
        wanted && !self.exclude.iter().any(|f| f.matches(value_of))
    }
}

impl Filter {
    /// Whether each condition names the combination's value.
    pub fn matches<'v>(&self, value_of: impl Fn(&str) -> &'v str) -> bool {
        self.conditions.iter().all(|(name, allowed)| allowed.iter().any(|text| text == value_of(name)))
    }

    /// Reads one table.
    pub fn read(
        source: Source<'_>,
        place: &str,
        node: &Node,
        dimensions: &[Dimension],
    ) -> Result<Self, SpaceError> {
        let Some(entries) = node.table().filter(|entries| !entries.is_empty()) else {
            return Err(source.bad_value(
                place,
                node,
                "is not a table of settings",
                "for instance ioengine = \"psync\"",
            ));
        };
        let mut filter = Self::default();
        for entry in entries {
            let known = dimensions.iter().map(|d| d.name.as_str());
            let Some(dimension) = dimensions.iter().find(|d| d.name == entry.key) else {
                return Err(match settings::kind_of(&entry.key) {
                    Some(_) => source.bad_key(
                        entry.line,
                        &entry.key,
                        format!("is not a dimension of this space, so {place} cannot choose by it"),
                        "",
                    ),
                    None => source.unknown_key(entry, place, known),
                });
            };
            let nodes: Vec<&Node> = match &entry.node.value {
                Value::Array(nodes) => nodes.iter().collect(),
                _ => vec![&entry.node],
            };
            let allowed = nodes.into_iter().map(|node| value(source, dimension, node));
            filter.conditions.push((entry.key.clone(), allowed.collect::<Result<_, _>>()?));
        }
        Ok(filter)
    }
}

/// The text of a value that must be one of the dimension's.
fn value(source: Source<'_>, dimension: &Dimension, node: &Node) -> Result<String, SpaceError> {
    let text = settings::read(source, &dimension.name, dimension.kind, node)?.text;
    if dimension.settings.iter().any(|setting| setting.text == text) {
        return Ok(text);
    }
    let all = dimension.values().collect::<Vec<_>>().join(", ");
    Err(source.bad_value(
        &dimension.name,
        node,
        "is not among the dimension's values",
        &format!("they are {all}"),
    ))
}
