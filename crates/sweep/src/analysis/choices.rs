//! What of a point may be chosen: everything that its [`Work`](super::Work) does not fix.

use std::collections::BTreeMap;

use measure::options::{self, OptionClass};

use super::{Access, PointSummary};

/// All choices of a point with their values, in the order in which they are named. Settings that its work fixes
/// (`fdatasync`, the request size of random work) are not among them.
pub(crate) fn choices(point: &PointSummary) -> Vec<(String, String)> {
    let mut choices = vec![("rw".to_owned(), point.rw.clone())];
    if point.work.class.access == Access::Sequential {
        choices.push(("bs".to_owned(), point.request.clone()));
    }
    choices.push(("iodepth".to_owned(), point.iodepth.to_string()));
    choices.push(("numjobs".to_owned(), point.numjobs.to_string()));
    choices.push(("target".to_owned(), point.target.clone()));
    choices.extend(further(&point.settings).map(|(name, value)| (name.clone(), value.clone())));
    choices
}

/// The settings that no figure of a summary holds already and that no work fixes.
pub(crate) fn further(settings: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    const ELSEWHERE: [&str; 4] = ["test_type", "iodepth", "numjobs", "target"];
    let is_demand = |name: &str| options::find(name).is_some_and(|o| o.class == OptionClass::Demand);
    settings.iter().filter(move |(name, _)| !ELSEWHERE.contains(&name.as_str()) && !is_demand(name))
}
