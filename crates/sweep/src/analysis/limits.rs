//! What limits each configuration, judged with what its siblings tell.
//!
//! A record's own verdict knows one run. A sweep has the same workload on the same drives in other forms, and
//! comparing proves what counters only suggest. For each point these siblings are looked up by their
//! settings, all others equal:
//!
//! | sibling | what may differ |
//! |---|---|
//! | the same drives separately | `layout` (there `separate`) and `chunk` |
//! | without file system | `filesystem` (there `raw`) and `mount_options` |
//! | the drives alone | `layout`, `chunk`, `width`, `drives` (there one drive) |
//! | other depths | `iodepth` and `numjobs` |
//!
//! Figures are means of kept runs, with their intervals as noise: a point without an interval, of which one run was
//! kept, is compared with nothing and keeps its record's own verdict. The rules are [`measure::limit`]'s.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use measure::Limit;
use measure::limit::{Achieved, Context, DrivesAlone, Sibling, Verdict, refine};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choices::further;
use super::{PointSummary, SweepData, points};
use crate::model::Point;

/// How often one limit was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitSummary {
    /// The limit.
    pub limit: Limit,
    /// Points with it, in order.
    pub points: Vec<u32>,
    /// The point whose evidence is shown: the one with the highest figure, where the limit matters most.
    pub example: u32,
    /// What was seen there.
    pub evidence: String,
    /// What it means.
    pub meaning: String,
    /// What to do.
    pub remedy: String,
}

/// Settings that say what is built, and not how it is set.
const FORM: [&str; 4] = ["layout", "chunk", "width", "drives"];
/// Layouts that join drives by a layer of the kernel's or of ours.
const LAYERS: [&str; 4] = ["md-raid0", "btrfs-raid0", "lvm-stripe", "stripe"];

/// Puts a verdict into each summary, of those whose own verdict is known, and counts the limits.
pub(crate) fn judge(data: &SweepData, points: &mut [PointSummary]) -> Vec<LimitSummary> {
    if data.verdicts.is_empty() {
        return Vec::new();
    }
    let layouts: BTreeMap<u32, &Point> = super::by_id(&data.points);
    let sites: Vec<Site> = points.iter().filter_map(|p| Site::of(p, layouts.get(&p.point)?)).collect();
    let families = Families::of(&sites);
    let verdicts: BTreeMap<u32, Verdict> = sites
        .iter()
        .filter_map(|site| {
            let own = data.verdicts.get(&site.point)?;
            Some((site.point, refine(own, &site.achieved(), &families.context(site))))
        })
        .collect();
    for point in points.iter_mut().filter(|point| point.bandwidth.is_some()) {
        point.verdict = verdicts.get(&point.point).or_else(|| data.verdicts.get(&point.point)).cloned();
    }
    summarise(points)
}

fn summarise(points: &[PointSummary]) -> Vec<LimitSummary> {
    let mut found: BTreeMap<Limit, Vec<&PointSummary>> = BTreeMap::new();
    for point in points {
        if let Some(verdict) = &point.verdict {
            found.entry(verdict.limit).or_default().push(point);
        }
    }
    let figure = |p: &PointSummary| p.bandwidth.map_or(0.0, |b| b.mean);
    let mut summaries: Vec<LimitSummary> = found
        .into_iter()
        .filter_map(|(limit, points)| {
            let example = points.iter().max_by(|a, b| figure(a).total_cmp(&figure(b)))?;
            let explanation = limit.explain();
            Some(LimitSummary {
                limit,
                points: points.iter().map(|p| p.point).collect(),
                example: example.point,
                evidence: example.verdict.as_ref()?.evidence.clone(),
                meaning: explanation.meaning.to_owned(),
                remedy: explanation.remedy.to_owned(),
            })
        })
        .collect();
    summaries.sort_by(|a, b| b.points.len().cmp(&a.points.len()).then(a.limit.cmp(&b.limit)));
    summaries
}

/// A point by its place in the space, with its figure.
struct Site {
    point: u32,
    /// Direction, request size and what else its work fixes.
    workload: String,
    settings: BTreeMap<String, String>,
    iodepth: u32,
    numjobs: u32,
    bandwidth: f64,
    noise: f64,
}

impl Site {
    /// None where the point has no figure, or one that nobody knows the noise of.
    fn of(summary: &PointSummary, point: &Point) -> Option<Self> {
        let bandwidth = summary.bandwidth.filter(|b| b.mean > 0.0)?;
        let mut settings: BTreeMap<String, String> =
            further(&summary.settings).map(|(name, value)| (name.clone(), value.clone())).collect();
        settings.extend(further(layout_of(point)).map(|(name, value)| (name.clone(), value.clone())));
        settings.insert("target".to_owned(), summary.target.clone());
        let noise = bandwidth.interval.map(|i| (i.high - i.low) / 2.0 / bandwidth.mean)?;
        Some(Self {
            point: summary.point,
            workload: format!(
                "{} {} {:?} {:?}",
                summary.rw, summary.request, summary.work.demands, summary.work.conditions
            ),
            settings,
            iodepth: summary.iodepth,
            numjobs: summary.numjobs,
            bandwidth: bandwidth.mean,
            noise,
        })
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    fn drives(&self) -> u32 {
        points::drives(|name| self.get(name))
    }

    fn in_flight(&self) -> u64 {
        points::in_flight(self.iodepth, self.numjobs, |name| self.get(name))
    }

    fn achieved(&self) -> Achieved {
        Achieved { bandwidth_bytes_per_s: self.bandwidth, noise: self.noise, in_flight: self.in_flight() }
    }

    fn sibling(&self, name: impl Into<String>) -> Sibling {
        Sibling { name: name.into(), bandwidth_bytes_per_s: self.bandwidth, noise: self.noise }
    }

    /// What it has in common with its siblings: everything but the settings named, and the depth unless that
    /// is to be the same.
    fn key(&self, but: &[&str], with_depth: bool) -> String {
        let mut key = self.workload.clone();
        if with_depth {
            key += &format!(" {}×{}", self.iodepth, self.numjobs);
        }
        for (name, value) in self.settings.iter().filter(|(name, _)| !but.contains(&name.as_str())) {
            key += &format!("\n{name}={value}");
        }
        key
    }
}

/// What is built below a point, what all points share included; where nothing is, its settings.
fn layout_of(point: &Point) -> &BTreeMap<String, String> {
    if point.layout.is_empty() { &point.settings } else { &point.layout }
}

/// The sites by what they have in common.
struct Families<'a> {
    separate: HashMap<String, &'a Site>,
    raw: HashMap<String, &'a Site>,
    /// Single drives, whatever their depth.
    alone: HashMap<String, Vec<&'a Site>>,
    depths: HashMap<String, Vec<&'a Site>>,
}

const SEPARATE: [&str; 2] = ["layout", "chunk"];
const RAW: [&str; 2] = ["filesystem", "mount_options"];

impl<'a> Families<'a> {
    fn of(sites: &'a [Site]) -> Self {
        let mut families = Self {
            separate: HashMap::new(),
            raw: HashMap::new(),
            alone: HashMap::new(),
            depths: HashMap::new(),
        };
        for site in sites {
            if site.get("layout") == Some("separate") {
                families.separate.entry(site.key(&SEPARATE, true)).or_insert(site);
            }
            if site.get("filesystem") == Some("raw") {
                families.raw.entry(site.key(&RAW, true)).or_insert(site);
            }
            if site.get("layout").is_some() && site.drives() == 1 {
                families.alone.entry(site.key(&FORM, false)).or_default().push(site);
            }
            families.depths.entry(site.key(&[], false)).or_default().push(site);
        }
        families
    }

    fn context(&self, site: &Site) -> Context {
        let layered = site.get("layout").is_some_and(|layout| LAYERS.contains(&layout)) && site.drives() > 1;
        let mounted = site.get("filesystem").is_some_and(|filesystem| filesystem != "raw");
        let separate = self.separate.get(&site.key(&SEPARATE, true)).filter(|_| layered);
        let raw = self.raw.get(&site.key(&RAW, true)).filter(|_| mounted);
        let depths = self.depths.get(&site.key(&[], false)).into_iter().flatten();
        Context {
            drives_alone: self.alone(site),
            same_drives_separate: separate.map(|other| other.sibling("layout=separate")),
            raw_below: raw.map(|other| other.sibling("filesystem=raw")),
            depths: depths
                .filter(|other| other.point != site.point && other.in_flight() != site.in_flight())
                .map(|other| (other.in_flight(), other.sibling(format!("depth {}", other.in_flight()))))
                .collect(),
        }
    }

    /// The drives one by one, where there are several: each that was measured, or one taken for all.
    fn alone(&self, site: &Site) -> Option<DrivesAlone> {
        let drives = site.drives();
        if drives < 2 {
            return None;
        }
        let single = self.alone.get(&site.key(&FORM, false))?;
        let same_depth = |s: &&&Site| (s.iodepth, s.numjobs) == (site.iodepth, site.numjobs);
        // A layer over one drive costs what the layer costs; the drive itself is preferred.
        let plainest = |s: &&&Site| match s.get("layout") {
            Some("single") => 0,
            Some("separate") => 1,
            Some("stripe") => 2,
            _ => 3,
        };
        let rank = single.iter().filter(same_depth).map(|s| plainest(&s)).min()?;
        let measured: Vec<&&Site> =
            single.iter().filter(same_depth).filter(|s| plainest(s) == rank).collect();
        let ours: BTreeSet<&str> = site.get("drives").into_iter().flat_map(|d| d.split(',')).collect();
        let each: BTreeMap<&str, f64> = measured
            .iter()
            .filter_map(|s| Some((s.get("drives")?, s.bandwidth)))
            .filter(|(name, _)| ours.contains(name))
            .collect();
        let mean = measured.iter().map(|s| s.bandwidth).sum::<f64>() / measured.len() as f64;
        let all = each.len() == drives as usize;
        let sum = if all { each.values().sum() } else { mean * f64::from(drives) };
        // The largest depth that gives each drive no more than it has here.
        let share = site.in_flight() / u64::from(drives);
        let shallow = single.iter().filter(|s| plainest(s) == rank && s.in_flight() <= share);
        let shallow = shallow.max_by_key(|s| s.in_flight());
        Some(DrivesAlone {
            sum,
            each: each.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect(),
            drives,
            as_shallow: shallow
                .filter(|s| {
                    s.in_flight() > 0 && s.in_flight() < site.in_flight() && s.in_flight() * 2 > share
                })
                .map(|s| (s.in_flight(), s.bandwidth * f64::from(drives))),
        })
    }
}
