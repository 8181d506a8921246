//! Two spaces that alternate in one sweep: A against B.
//!
//! Both have the same `[space]`, and differ in `[base]`: in the target, an engine, any choice. Each point of A and
//! the point of B with the same settings are a *pair*, two alternatives of one contest, so that they run back to back
//! in random order and what the machine does to both is not taken for a difference between them.

use super::{Overrides, Space, SpaceError};
use crate::model::{Point, SIDE};
use crate::work::Work;

/// What the sides are called, in order.
pub const SIDES: [&str; 2] = ["A", "B"];

impl Space {
    /// This space's points beside those of `other`, with [`SIDE`] among their settings. How the sweep is run stands in
    /// this one. `overrides` are the flags that both were given.
    ///
    /// # Errors
    /// [`SpaceError`] where layouts are built, passes are made, a point has no partner, or partners do different work.
    pub fn against(mut self, other: &Self, overrides: &Overrides) -> Result<Self, SpaceError> {
        for space in [&self, other] {
            if !space.drives().is_empty() {
                let hint = "make both, and name each as the target of its side";
                return Err(space.fault(
                    None,
                    "drives",
                    "is built anew for each side, so that sides cannot alternate",
                    hint,
                ));
            }
            let reason = if space.protocol.is_planned_ahead() {
                "makes passes, in which the sides do not alternate"
            } else if space.protocol.is_screened() {
                "leaves points out, with one side or the other"
            } else {
                continue;
            };
            return Err(space.fault(
                None,
                "protocol",
                reason,
                "leave out protocol, search, discard_first and order",
            ));
        }
        let mut points = self.points.clone();
        for point in &mut points {
            let partner = other.points.iter().find(|of_other| of_other.settings == point.settings);
            let Some(partner) = partner else { return Err(self.lacks_partner(point, other)) };
            let (a, b) = (Work::of(point), Work::of(partner));
            if (a.class, &a.request, &a.demands) != (b.class, &b.request, &b.demands) {
                let reason =
                    format!("does other work than {}: {} against {}", self.origin, b.label(), a.label());
                let hint = "give both the same demands (rw, bs of random work, fsync, …); docs/options.md";
                return Err(other.fault(None, &point.label(), &reason, hint));
            }
            point.settings.insert(SIDE.to_owned(), SIDES[0].to_owned());
        }
        if let Some(alone) =
            other.points.iter().find(|p| self.points.iter().all(|of| of.settings != p.settings))
        {
            return Err(other.lacks_partner(alone, &self));
        }
        let first = points.len() as u32;
        points.extend(other.points.iter().map(|point| {
            let mut point = Point { id: first + point.id, ..point.clone() };
            point.settings.insert(SIDE.to_owned(), SIDES[1].to_owned());
            point
        }));
        self.points = points;
        self.name = format!("{} against {}", self.name, other.name);
        self.text = format!("# A: {}\n{}\n# B: {}\n{}", self.origin, self.text, other.origin, other.text);
        self.check_settings()?;
        self.settle_budget(overrides);
        Ok(self)
    }

    fn lacks_partner(&self, point: &Point, other: &Self) -> SpaceError {
        let reason = format!("has no partner in {}", other.origin);
        self.fault(
            None,
            &point.label(),
            &reason,
            "give both files the same [space]; what differs belongs into [base]",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::Contest;

    fn space(origin: &str, text: &str) -> Space {
        Space::side(origin, text).expect("a space")
    }

    #[test]
    fn each_pair_is_a_contest_of_its_own() {
        let text = "[base]\nrw = \"randread\"\nTARGET\n[space]\niodepth = [1, 16]\nbs = [\"4k\", \"64k\"]\n";
        let a = space("a.toml", &text.replace("TARGET", "target = \"mem:1g\""));
        let b = space("b.toml", &text.replace("TARGET", "target = \"mem:2g\""));
        let both = a.against(&b, &Overrides::default()).expect("they fit");
        assert_eq!(both.name, "a against b");
        assert_eq!(both.points.iter().map(|p| p.id).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        let contests = Contest::all(&both.points);
        assert_eq!(contests.len(), 4);
        for contest in contests {
            let [a, b] = contest.members.as_slice() else { panic!("a pair: {contest:?}") };
            let (a, b) = (&both.points[*a as usize], &both.points[*b as usize]);
            assert_eq!((a.settings[SIDE].as_str(), b.settings[SIDE].as_str()), ("A", "B"));
            assert_eq!((a.target.as_str(), b.target.as_str()), ("mem:1g", "mem:2g"));
            assert_eq!(a.workload.iodepth, b.workload.iodepth);
        }
        let labels: Vec<String> = Contest::all(&both.points).iter().map(|c| c.work.label()).collect();
        assert_eq!(labels[0], "Random reads, 4k, iodepth=1");
    }

    #[test]
    fn files_without_dimensions_are_one_pair() {
        let a = space("a.toml", "[base]\nioengine = \"psync\"\n");
        let b = space("b.toml", "[base]\nioengine = \"io_uring\"\n");
        let both = a.against(&b, &Overrides::default()).expect("they fit");
        assert_eq!((both.points.len(), Contest::all(&both.points).len()), (2, 1));
    }

    #[test]
    fn what_cannot_be_paired_is_refused_by_name() {
        let a = space("a.toml", "[base]\nrw = \"randread\"\n[space]\niodepth = [1, 16]\n");
        for (text, words) in [
            ("[base]\nrw = \"randread\"\n[space]\niodepth = [1]\n", "iodepth=16: has no partner in b.toml"),
            (
                "[base]\nrw = \"randread\"\n[space]\niodepth = [1, 16, 32]\n",
                "iodepth=32: has no partner in a.toml",
            ),
            ("[base]\nrw = \"randwrite\"\n[space]\niodepth = [1, 16]\n", "does other work than a.toml"),
            (
                "[sweep]\nprotocol = \"dash\"\n[base]\nrw = \"randread\"\n[space]\niodepth = [1, 16]\n",
                "makes passes",
            ),
            (
                "[sweep]\nsearch = \"screen\"\n[base]\nrw = \"randread\"\n[space]\niodepth = [1, 16]\n",
                "leaves points out",
            ),
        ] {
            let error =
                a.clone().against(&space("b.toml", text), &Overrides::default()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
