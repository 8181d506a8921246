//! From dimensions to points.

use std::collections::{BTreeMap, BTreeSet};

use measure::Workload;
use measure::options::ValueKind;

use super::document::{Entry, Node, Source};
use super::error::Fault;
use super::header::{Control, Header};
use super::layouts::LeftOut;
use super::settings::{self, Kind, Setting};
use super::{Dimension, FIXED_BY_TEST_TYPE, Space, SpaceError};
use crate::model::{LAYOUT, Point, SCRATCH};
use crate::plan::{Protocol, default_control};

/// Length of a run of a pass, by default, in seconds: the fourteen test types, six passes each, end within three minutes.
const RUNTIME_OF_PASSES_S: f64 = 0.5;
/// Length of a run of a block, by default, in seconds. It is counted from when every request of the queue has been
/// answered once. Shorter runs favour deep queues; longer ones have as much noise.
const RUNTIME_OF_BLOCKS_S: f64 = 0.25;

/// Combinations that are looked at before filters, whatever the limit of points: a bound on the time
/// that a space of a few lines can take.
const MOST_COMBINATIONS: u64 = 10_000_000;

/// Runs that a plan may have; it is held in memory.
const MOST_RUNS: u64 = 10_000_000;

/// What is common to all points, by option.
#[derive(Debug, Clone, Default)]
pub(super) struct Base {
    settings: BTreeMap<String, Setting>,
}

impl Base {
    /// Reads `[base]`, and from `[sweep]` the times.
    pub fn read(
        source: Source<'_>,
        entries: &[Entry],
        header: &Header,
        dimensions: &[Dimension],
    ) -> Result<Self, SpaceError> {
        let mut base = Self::default();
        let varies = |name: &str| dimensions.iter().any(|d| d.name == name);
        for entry in entries {
            let key = entry.key.as_str();
            let Some(kind) = settings::kind_of(key) else {
                return Err(source.unknown_key(entry, "[base]", settings::names()));
            };
            if varies(key) {
                return Err(source.bad_key(
                    entry.line,
                    key,
                    "stands in [space] as well",
                    "keep one of the two",
                ));
            }
            if varies("test_type") && FIXED_BY_TEST_TYPE.contains(&key) {
                return Err(source.bad_key(
                    entry.line,
                    key,
                    "is fixed by the dimension test_type",
                    "take it out",
                ));
            }
            if kind == Kind::TestType {
                return Err(source.bad_key(
                    entry.line,
                    key,
                    "is a dimension",
                    "write it under [space], in a list",
                ));
            }
            base.settings.insert(entry.key.clone(), settings::read(source, key, kind, &entry.node)?);
        }
        for (key, node) in [("runtime", &header.runtime), ("ramp_time", &header.ramp_time)] {
            if let Some(node) = node {
                base.take_time(source, key, node, varies(key))?;
            }
        }
        Ok(base)
    }

    fn take_time(
        &mut self,
        source: Source<'_>,
        key: &str,
        node: &Node,
        varies: bool,
    ) -> Result<(), SpaceError> {
        if varies || self.settings.contains_key(key) {
            let elsewhere = if varies { "[space]" } else { "[base]" };
            let reason = format!("stands in [sweep] and in {elsewhere}");
            return Err(source.bad_value(key, node, reason, "keep one of the two"));
        }
        self.settings
            .insert(key.to_owned(), settings::read(source, key, Kind::Workload(ValueKind::Duration), node)?);
        Ok(())
    }

    /// Puts in a setting, in the place of what stood there.
    pub fn set(&mut self, option: &str, setting: Setting) {
        self.settings.insert(option.to_owned(), setting);
    }

    /// Takes a setting out.
    pub fn unset(&mut self, option: &str) {
        self.settings.remove(option);
    }

    /// The setting of an option, where it has one.
    pub fn get(&self, option: &str) -> Option<&Setting> {
        self.settings.get(option)
    }

    /// The settings that say what is to be built, by name.
    pub fn all_of_layout(&self) -> impl Iterator<Item = (&str, &Setting)> {
        let of_layout = self.settings.iter().filter(|(_, setting)| setting.is_of_layout());
        of_layout.map(|(name, setting)| (name.as_str(), setting))
    }

    /// The first of them.
    pub fn of_layout(&self) -> Option<(&str, &Setting)> {
        self.all_of_layout().next()
    }

    /// The fields that all points share.
    fn fields(&self, protocol: Protocol) -> toml::Table {
        let mut table: toml::Table = self
            .settings
            .iter()
            .filter_map(|(name, setting)| Some((name.clone(), setting.field()?.clone())))
            .collect();
        // A sweep compares rates, so runs last a time and not a size, unless the space says so.
        if !table.contains_key("time_based") {
            table.insert("time_based".into(), true.into());
        }
        if table["time_based"].as_bool() == Some(true) && !table.contains_key("runtime") {
            let runtime = if protocol.is_planned_ahead() { RUNTIME_OF_PASSES_S } else { RUNTIME_OF_BLOCKS_S };
            table.insert("runtime".into(), runtime.into());
        }
        table
    }
}

impl Space {
    /// Makes the points anew out of dimensions, base and filters.
    pub(super) fn expand(&mut self) -> Result<(), SpaceError> {
        self.points.clear();
        self.left_out.clear();
        self.check_drives()?;
        let fields = self.base.fields(self.protocol);
        let mut known = BTreeSet::new();
        for combination in 0..self.count_combinations()? {
            let mut chosen = self.choose(combination);
            if !self.filters.keep(|name| text_of(&self.dimensions, &chosen, name)) {
                self.leave_out("filters");
                continue;
            }
            let layout = match self.fit(&mut chosen)? {
                Ok(fitted) => fitted,
                Err(reason) => {
                    self.leave_out(&reason);
                    continue;
                }
            };
            if let Some(why) = &layout.why {
                // Of combinations that came to the same configuration the first is the point.
                let texts: Vec<String> = chosen.iter().map(|setting| setting.text.clone()).collect();
                if !known.insert(texts) {
                    self.leave_out(why);
                    continue;
                }
            }
            if self.points.len() as u64 >= u64::from(self.limits.points) {
                return Err(self.too_many_points());
            }
            let id = self.points.len() as u32;
            let point = self.point(id, &chosen, layout.layout, &fields)?;
            self.points.push(point);
        }
        self.excluded = self.left_out.iter().map(|left_out| left_out.combinations).sum();
        if self.points.is_empty() {
            return Err(self.no_point());
        }
        self.refuse_idle_options()?;
        self.control = self.choose_control()?;
        self.check_time()
    }

    fn leave_out(&mut self, reason: &str) {
        match self.left_out.iter_mut().find(|left_out| left_out.reason == reason) {
            Some(known) => known.combinations += 1,
            None => self.left_out.push(LeftOut { reason: reason.to_owned(), combinations: 1 }),
        }
    }

    fn count_combinations(&self) -> Result<u64, SpaceError> {
        let mut sizes = self.dimensions.iter().map(|d| d.settings.len() as u64);
        let product = sizes.try_fold(1u64, u64::checked_mul);
        product.filter(|n| *n <= MOST_COMBINATIONS).ok_or_else(|| {
            let reason = format!("has more than {MOST_COMBINATIONS} combinations");
            self.fault(None, "[space]", &reason, "split it into several sweeps")
        })
    }

    /// The value of each dimension in one combination: the last dimension varies fastest.
    fn choose(&self, combination: u64) -> Vec<Setting> {
        let mut rest = combination;
        let mut chosen: Vec<Setting> = Vec::with_capacity(self.dimensions.len());
        for dimension in self.dimensions.iter().rev() {
            let count = dimension.settings.len() as u64;
            chosen.push(dimension.settings[(rest % count) as usize].clone());
            rest /= count;
        }
        chosen.reverse();
        chosen
    }

    fn point(
        &self,
        id: u32,
        chosen: &[Setting],
        layout: BTreeMap<String, String>,
        fields: &toml::Table,
    ) -> Result<Point, SpaceError> {
        let mut fields = fields.clone();
        let mut settings = BTreeMap::new();
        for (dimension, setting) in self.dimensions.iter().zip(chosen) {
            settings.insert(dimension.name.clone(), setting.text.clone());
            if let Some(value) = setting.field() {
                fields.insert(dimension.name.clone(), value.clone());
            }
        }
        let words = self.words(chosen);
        let mut workload: Workload = toml::Value::Table(fields)
            .try_into()
            .map_err(|e: toml::de::Error| self.fault(None, &words, e.message(), "exclude it"))?;
        let test_type = chosen.iter().find_map(Setting::test_type);
        if let Some(test_type) = test_type {
            workload = test_type.workload(&workload);
        }
        workload.name.clone_from(&words);
        workload.validate().map_err(|e| self.invalid_point(&words, chosen, &e))?;
        let of_base = self.base.settings.get("target");
        let target = chosen.iter().chain(of_base).find_map(Setting::device_spec);
        let target = target.unwrap_or(if layout.is_empty() { SCRATCH } else { LAYOUT }).to_owned();
        Ok(Point { id, settings, test_type, target, workload, layout })
    }

    /// The settings of a combination in written order, as they would be typed.
    fn words(&self, chosen: &[Setting]) -> String {
        let pairs = self.dimensions.iter().zip(chosen);
        pairs.map(|(d, s)| format!("{}={}", d.name, s.text)).collect::<Vec<_>>().join(" ")
    }

    fn invalid_point(
        &self,
        words: &str,
        chosen: &[Setting],
        error: &measure::workload::InvalidWorkload,
    ) -> SpaceError {
        let of_space = self.dimensions.iter().zip(chosen).find(|(d, _)| d.name == error.option);
        let setting = of_space.map(|(_, setting)| setting).or_else(|| self.base.settings.get(error.option));
        Fault {
            origin: self.origin.clone(),
            line: setting.and_then(|setting| setting.line),
            key: error.option.to_owned(),
            value: Some(error.value.clone()),
            reason: format!("{} (at the point {words})", error.reason),
            hint: Some(format!("{}; or leave the point out by an [[exclude]]", error.hint)),
        }
        .into()
    }

    fn choose_control(&self) -> Result<Option<u32>, SpaceError> {
        match &self.header.control {
            Control::Off => Ok(None),
            Control::Default => Ok(default_control(self.points.iter())),
            Control::Settings(entries) => self.named_control(entries).map(Some),
        }
    }

    fn named_control(&self, entries: &[Entry]) -> Result<u32, SpaceError> {
        let source = self.source();
        let mut wanted = Vec::new();
        for entry in entries {
            let Some(dimension) = self.dimensions.iter().find(|d| d.name == entry.key) else {
                let names = self.dimensions.iter().map(|d| d.name.as_str());
                return Err(source.unknown_key(entry, "control", names));
            };
            let setting = settings::read(source, &entry.key, dimension.kind, &entry.node)?;
            wanted.push((entry, setting.text));
        }
        let fits = |p: &&Point| wanted.iter().all(|(entry, text)| p.settings.get(&entry.key) == Some(text));
        self.points.iter().find(fits).map(|point| point.id).ok_or_else(|| {
            let words: Vec<String> =
                wanted.iter().map(|(entry, text)| format!("{}={text}", entry.key)).collect();
            let line = entries.first().map(|entry| entry.line);
            self.fault(
                line,
                "control",
                &format!("no point has {}", words.join(" ")),
                "name settings of one of the points",
            )
        })
    }

    fn too_many_points(&self) -> SpaceError {
        let reason = format!("has more than {} points", self.limits.points);
        self.fault(None, "[space]", &reason, "leave values out, or raise points in [sweep] limits")
    }

    /// Refuses what would take longer than its limit, or has more runs than can be numbered.
    fn check_time(&self) -> Result<(), SpaceError> {
        let runs = self.points.len() as u64 * u64::from(self.passes);
        if runs > MOST_RUNS {
            return Err(self.fault(
                None,
                "passes",
                &format!("would make {runs} runs"),
                "lower passes, or leave values out",
            ));
        }
        let Some(limit) = self.limits.time else {
            return Ok(());
        };
        let mut estimate = self.plan(0).estimate(crate::plan::OVERHEAD_PER_RUN);
        if !self.protocol.is_planned_ahead() {
            estimate.time = self.header.budget.unwrap_or(estimate.time.saturating_mul(self.passes.max(1)));
        }
        if estimate.time <= limit {
            return Ok(());
        }
        let reason = format!(
            "the plan takes about {}, above its limit of {}",
            units::seconds(estimate.time),
            units::seconds(limit)
        );
        Err(self.fault(None, "limits.time", &reason, "lower passes or runtime, or raise the limit"))
    }

    pub(super) fn fault(&self, line: Option<usize>, key: &str, reason: &str, hint: &str) -> SpaceError {
        Fault {
            origin: self.origin.clone(),
            line,
            key: key.to_owned(),
            value: None,
            reason: reason.split_whitespace().collect::<Vec<_>>().join(" "),
            hint: Some(hint.to_owned()),
        }
        .into()
    }
}

/// A combination's value of the dimension of that name.
fn text_of<'s>(dimensions: &[Dimension], chosen: &'s [Setting], name: &str) -> &'s str {
    let position = dimensions.iter().position(|d| d.name == name);
    position.map_or("", |i| chosen[i].text.as_str())
}
