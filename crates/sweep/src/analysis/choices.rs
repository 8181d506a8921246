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

/// The settings that no other figure of a summary holds and that no work fixes: of the options of a workload the choices,
/// and everything that is not an option of a workload, such as a layout's chunk.
pub(crate) fn further(settings: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    const ELSEWHERE: [&str; 4] = ["test_type", "iodepth", "numjobs", "target"];
    let is_choice = |name: &str| options::find(name).is_none_or(|o| o.class == OptionClass::Choice);
    settings.iter().filter(move |(name, _)| !ELSEWHERE.contains(&name.as_str()) && is_choice(name))
}

#[cfg(test)]
mod tests {
    use measure::Workload;
    use measure::options::WorkloadOption;
    use measure::workload::Rw;

    use super::*;
    use crate::analysis::Work;
    use crate::model::{Point, SCRATCH};

    /// A point in whose sweep this option is a dimension.
    fn point(workload: Workload, option: &WorkloadOption) -> Point {
        let value = option.text(&workload).map(|text| (option.name.to_owned(), text));
        let (target, layout) = (SCRATCH.to_owned(), BTreeMap::new());
        Point { id: 0, settings: value.into_iter().collect(), test_type: None, target, workload, layout }
    }

    /// Each field of a workload that a sweep varies, by its class in the table: a choice has its values compete for one
    /// recommendation; a demand or a condition separates them, and is not named among the choices.
    #[test]
    fn points_that_differ_in_one_option_compete_only_where_it_is_a_choice() {
        for option in options::OPTIONS {
            let base = Workload { rw: Rw::RandRw, ..Workload::default() };
            let mut other = base.clone();
            option.set(&mut other, option.example()).unwrap();
            let (a, b) = (point(base, option), point(other, option));
            let is_choice = option.class == OptionClass::Choice;
            assert_eq!(Work::of(&a) == Work::of(&b), is_choice, "{}", option.name);
            let named = further(&b.settings).any(|(name, _)| name == option.name);
            let elsewhere = ["iodepth", "numjobs"].contains(&option.name);
            assert_eq!(named, is_choice && !elsewhere, "{}", option.name);
        }
    }
}
