//! The space of a sweep: what varies, over which values, and what is common to all points.
//!
//! ```toml
//! [sweep]                     # how it is run; every key may be left out
//! name = "depth ladder"
//! protocol = "blocks"         # or "dash": the papers' passes; or "screen"
//! search = "race"             # the same as blocks; "exhaustive": the same as dash; "screen": few points, few constructions
//! budget = "30m"              # the longest that blocks run until each work is decided
//! block_spacing = "5s"        # between the starts of two blocks of one work
//! passes = 6                  # a fixed number of blocks; or of passes: each point once in each
//! discard_first = true        # with passes, set the first one aside, as the papers do
//! runtime = "0.25s"           # of each run
//! ramp_time = "0.1s"
//! seed = 7                    # of all random orders; drawn and recorded where left out
//! control = { iodepth = 1 }   # repeated to show drift; true: the first 4 KiB random read; false: none
//! control_every = 20          # runs between two controls; 0: at the ends of blocks only
//! baseline = { iodepth = 1 }  # where the recipe's ladder starts; left out: each dimension's first value
//! order = "random"            # or "given"
//! precondition = "none"       # or "fill", or "steady": what is done to each target before its first run
//! purge = false               # whether it is discarded before that
//! limits = { points = 100000, time = "3h", failures = 3 }
//!
//! [base]                      # any option of a workload, and `target`
//! rw = "randread"
//!
//! [space]                     # one line a dimension; the points are all combinations
//! iodepth = [1, 4, 16, 64]
//! ioengine = ["io_uring", "psync"]
//!
//! [[exclude]]                 # combinations to leave out; [[only]] leaves out all others
//! ioengine = "psync"
//! iodepth = [16, 64]
//! ```
//!
//! What is to be built below the points is written with the same tables: `drives` under `[base]`, and the options
//! of a layout in either (docs/sweep.md has them all).
//!
//! Points are numbered in written order, the last dimension varying fastest. Every point's workload
//! is validated before anything runs: a combination that makes no sense is an error which names it,
//! unless a filter leaves it out. Nothing is skipped silently.

mod against;
mod baseline;
mod document;
mod error;
mod expand;
mod filter;
mod fitting;
mod header;
mod layouts;
mod names;
mod overrides;
mod settings;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

pub use against::SIDES;
pub use error::{Fault, SpaceError};
pub use header::Limits;
pub use layouts::{LeftOut, NOT_APPLICABLE};

use measure::decide::SETTINGS_MAX;

use crate::contest::Contest;
use crate::model::Point;
use crate::plan::{Margin, OVERHEAD_PER_RUN, Order, Plan, Prepare, Protocol, Rules};
use document::{Entry, Node, Source, Value};
use expand::Base;
use filter::{Filter, Filters};
use header::Header;
use settings::{Kind, Setting};

const TABLES: [&str; 5] = ["sweep", "base", "space", "exclude", "only"];

/// The papers' fourteen test types: what runs when no space is named.
pub const DASH14: &str = include_str!("../../../../examples/dash14.toml");

/// Blocks of everything for which the default budget suffices; fewer decide, as a rule, for settings drop out.
const BLOCKS_WITHIN_BUDGET: u32 = 20;
/// The smallest default budget.
const LEAST_BUDGET: Duration = Duration::from_secs(120);

/// One thing that varies.
#[derive(Debug, Clone)]
pub struct Dimension {
    /// Name of the option.
    pub name: String,
    kind: Kind,
    settings: Vec<Setting>,
}

impl Dimension {
    /// The values in written order, each as it would be typed after `--name=`.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.settings.iter().map(|setting| setting.text.as_str())
    }
}

/// What flags put in the place of the file's words.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overrides {
    /// Targets; several become a dimension.
    pub targets: Vec<String>,
    /// How the runs are chosen.
    pub protocol: Option<Protocol>,
    /// The longest that blocks are run.
    pub budget: Option<Duration>,
    /// How far apart settings may lie that count as equally good.
    pub equivalence: Option<Margin>,
    /// Passes, or blocks.
    pub passes: Option<u32>,
    /// Length of each run.
    pub runtime: Option<Duration>,
    /// Time before each run's measured part.
    pub ramp_time: Option<Duration>,
    /// Bytes of each target that are used.
    pub size: Option<u64>,
    /// Seed of all random orders.
    pub seed: Option<u64>,
    /// Drives of which layouts are built.
    pub drives: Vec<String>,
}

/// A space with its points.
#[derive(Debug, Clone)]
pub struct Space {
    /// Where it came from, for messages: a file's name.
    pub origin: String,
    /// The file as it was written.
    pub text: String,
    /// Name of the sweep.
    pub name: String,
    /// How the runs are chosen.
    pub protocol: Protocol,
    /// The longest that blocks are run until each work is decided; none where `passes` says how often.
    pub budget: Option<Duration>,
    /// How far apart settings may lie that count as equally good.
    pub equivalence: Margin,
    /// Passes, or a fixed number of blocks; 0 for blocks until a decision.
    pub passes: u32,
    /// Whether analysis sets the first pass aside.
    pub discard_first: bool,
    /// The seed, where one was written.
    pub seed: Option<u64>,
    /// The order inside a block.
    pub order: Order,
    /// Runs between two controls; 0 for at the ends of blocks only.
    pub control_every: u32,
    /// What stops it.
    pub limits: Limits,
    /// What is done to each construction, or target, before its first run.
    pub prepare: Prepare,
    /// What varies, in written order.
    pub dimensions: Vec<Dimension>,
    /// The points, by id.
    pub points: Vec<Point>,
    /// Combinations that are no points.
    pub excluded: u64,
    /// Why they are none, in the order in which that first showed.
    pub left_out: Vec<LeftOut>,
    /// Values that the machine does not have and that were taken out of their dimensions, with the reason of each.
    pub unavailable: Vec<String>,
    /// Machines that share the sweep, 1 or more.
    pub shards: u32,
    /// The shard that is measured here; none where all of it is.
    pub shard: Option<u32>,
    /// The point that is repeated as a control.
    pub control: Option<u32>,
    /// Where the recipe's ladder starts, by dimension; a dimension that is not named starts from its first value.
    pub baseline: BTreeMap<String, String>,
    header: Header,
    base: Base,
    filters: Filters,
}

impl Space {
    /// Reads a space from a file.
    ///
    /// # Errors
    /// [`SpaceError`] naming file, line, key and value.
    pub fn load(path: &Path) -> Result<Self, SpaceError> {
        Self::parse(&path.display().to_string(), &read(path)?)
    }

    /// Reads one side of a sweep of two from a file.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_side(path: &Path) -> Result<Self, SpaceError> {
        Self::side(&path.display().to_string(), &read(path)?)
    }

    /// Reads a space from text; `origin` names it in messages.
    ///
    /// # Errors
    /// [`SpaceError`] naming line, key and value.
    pub fn parse(origin: &str, text: &str) -> Result<Self, SpaceError> {
        let space = Self::side(origin, text)?;
        if space.dimensions.is_empty() {
            let hint = "write for instance [space] and below it iodepth = [1, 4, 16]";
            let source = Source { origin, text };
            return Err(source.bad_key(1, "[space]", "has no dimension, so there is nothing to sweep", hint));
        }
        Ok(space)
    }

    /// Reads one side of a sweep of two ([`Self::against`]), which may be a single point, without `[space]`.
    ///
    /// # Errors
    /// [`SpaceError`] naming line, key and value.
    pub fn side(origin: &str, text: &str) -> Result<Self, SpaceError> {
        let source = Source { origin, text };
        let tables = Tables::read(source)?;
        let header = Header::read(source, &tables.sweep)?;
        let dimensions = dimensions(source, &tables.space)?;
        let base = Base::read(source, &tables.base, &header, &dimensions)?;
        let read_all = |place: &str, nodes: &[Node]| {
            nodes
                .iter()
                .map(|node| Filter::read(source, place, node, &dimensions))
                .collect::<Result<Vec<_>, _>>()
        };
        let filters = Filters {
            exclude: read_all("[[exclude]]", &tables.exclude)?,
            only: read_all("[[only]]", &tables.only)?,
        };
        let baseline = baseline::read(source, &header.baseline, &dimensions)?;
        let mut space = Self {
            baseline,
            origin: origin.to_owned(),
            text: text.to_owned(),
            name: header.name.clone().unwrap_or_else(|| stem(origin)),
            protocol: Protocol::default(),
            budget: None,
            equivalence: header.equivalence,
            passes: 0,
            discard_first: false,
            seed: header.seed,
            order: header.order,
            control_every: header.control_every,
            limits: header.limits,
            prepare: header.prepare,
            dimensions,
            points: Vec::new(),
            excluded: 0,
            left_out: Vec::new(),
            unavailable: Vec::new(),
            shards: 1,
            shard: None,
            control: None,
            header,
            base,
            filters,
        };
        space.settle_protocol(&Overrides::default())?;
        space.expand()?;
        space.settle_budget(&Overrides::default());
        Ok(space)
    }

    /// How the runs are chosen, and how often each point runs.
    fn settle_protocol(&mut self, overrides: &Overrides) -> Result<(), SpaceError> {
        // Layouts are built one after the other, so that most of what such a space compares shares no block; and what
        // belongs to passes asks for them.
        let builds = self.base.get("drives").is_some() || !overrides.drives.is_empty();
        let is_of_passes = self.header.discard_first == Some(true) || self.order == Order::Given;
        let implied = if builds || is_of_passes { Protocol::Dash } else { Protocol::Blocks };
        self.protocol = overrides.protocol.or(self.header.protocol).unwrap_or(implied);
        if let Some(passes) = overrides.passes.filter(|_| self.protocol.is_screened()) {
            let reason = "a screened sweep runs blocks until a decision";
            let hint = "leave it out, or say --search=race";
            return Err(flag_error("--passes", &passes.to_string(), reason, hint));
        }
        let passes = match overrides.budget {
            // The passes of a file belong to the protocol that a flag has overruled.
            _ if self.protocol.is_screened() => None,
            Some(_) => overrides.passes,
            None => overrides.passes.or(self.header.passes),
        };
        self.discard_first = self.protocol.is_papers() && self.header.discard_first.unwrap_or(true);
        if self.protocol.is_planned_ahead() {
            // Six passes of which the first is set aside leave five, one more than the papers had: with four,
            // Chauvenet's limit lies above the largest deviation possible.
            self.passes = passes.unwrap_or(6);
            if let Some(budget) = overrides.budget {
                let hint = "leave it out, or say --protocol=blocks";
                let reason = "its passes say how long the protocol takes";
                return Err(flag_error("--budget", &units::seconds(budget), reason, hint));
            }
            let least = 1 + u32::from(self.discard_first);
            if self.passes < least {
                let hint = format!("give {least} or more");
                let reason = match self.passes {
                    0 => "there would be no run",
                    _ => "the first pass is set aside, and none would be left",
                };
                return Err(flag_error("--passes", &self.passes.to_string(), reason, &hint));
            }
        } else {
            self.passes = passes.unwrap_or(0);
            if let (Some(budget), Some(_)) = (overrides.budget, overrides.passes) {
                let hint = "give one of the two";
                let reason = "--passes fixes the number of blocks";
                return Err(flag_error("--budget", &units::seconds(budget), reason, hint));
            }
            if overrides.passes == Some(0) {
                return Err(flag_error("--passes", "0", "there would be no run", "give 1 or more"));
            }
            if self.order == Order::Given {
                return Err(flag_error(
                    "--protocol",
                    self.protocol.word(),
                    "order = \"given\" confounds settings with time",
                    "leave order out of [sweep], or say --protocol=dash",
                ));
            }
        }
        Ok(())
    }

    /// How long blocks may run: what was asked for, else enough for [`BLOCKS_WITHIN_BUDGET`] blocks of everything.
    fn settle_budget(&mut self, overrides: &Overrides) {
        self.budget = None;
        if self.protocol.is_planned_ahead() || self.passes > 0 {
            return;
        }
        if self.protocol.is_screened() {
            self.budget = overrides.budget.or(self.header.budget).or(self.limits.time);
            return;
        }
        let once = self.plan(0).estimate(OVERHEAD_PER_RUN).time;
        let enough = once.saturating_mul(BLOCKS_WITHIN_BUDGET).max(LEAST_BUDGET);
        let most = self.limits.time.unwrap_or(Duration::MAX);
        // In whole seconds, for it is read by people.
        let rounded = Duration::from_secs(enough.as_secs_f64().ceil() as u64).min(most);
        self.budget = overrides.budget.or(self.header.budget).or(Some(rounded));
    }

    /// Refuses more settings of one work than can be decided between.
    fn check_settings(&self) -> Result<(), SpaceError> {
        let most = Contest::all(&self.points).iter().map(|contest| contest.members.len()).max().unwrap_or(0);
        if self.protocol.is_planned_ahead() || most <= SETTINGS_MAX {
            return Ok(());
        }
        let reason =
            format!("has {most} settings of one kind of work; blocks decide between {SETTINGS_MAX} at most");
        Err(self.fault(None, "[space]", &reason, "leave values out, or say protocol = \"dash\""))
    }

    /// The space with what flags say instead of the file.
    ///
    /// # Errors
    /// [`SpaceError`] where a flag and the space contradict each other.
    pub fn with(mut self, overrides: &Overrides) -> Result<Self, SpaceError> {
        self.settle_protocol(overrides)?;
        if self.protocol.is_planned_ahead() && self.header.budget.is_some() {
            let reason = "belongs to protocol = \"blocks\", and this sweep makes passes";
            let hint = "say protocol = \"blocks\" in [sweep], or take budget out: passes says how long the other takes";
            return Err(self.fault(None, "budget", reason, hint));
        }
        self.seed = overrides.seed.or(self.seed);
        self.equivalence = overrides.equivalence.unwrap_or(self.equivalence);
        self.override_time("runtime", "--runtime", overrides.runtime)?;
        self.override_time("ramp_time", "--ramp_time", overrides.ramp_time)?;
        if let Some(size) = overrides.size {
            let text = units::bytes_short(size);
            self.refuse_varied("size", "--size", &text)?;
            self.base.set("size", Setting::size(size));
        }
        self.override_targets(&overrides.targets)?;
        self.override_drives(&overrides.drives)?;
        self.expand()?;
        self.check_settings()?;
        self.settle_budget(overrides);
        Ok(self)
    }

    /// The whole plan under this seed.
    #[must_use]
    pub fn plan(&self, seed: u64) -> Plan {
        Plan::new(self.points.clone(), self.rules(seed))
    }

    /// What of the plan is measured here: all of it, or one shard.
    #[must_use]
    pub fn plan_here(&self, seed: u64) -> Plan {
        let here = |shard| self.shard.is_none_or(|wanted| wanted == shard);
        Plan::of_shards(self.points.clone(), self.rules(seed), here)
    }

    /// The space, of which one shard of several is measured here.
    ///
    /// # Errors
    /// [`SpaceError`] where there are not that many shards.
    pub fn share(mut self, shard: u32, shards: u32) -> Result<Self, SpaceError> {
        let flag = format!("{shard}/{shards}");
        if shard == 0 || shard > shards {
            let hint = "the first of four is 1/4, the last 4/4";
            return Err(flag_error("--shard", &flag, "there is no such shard", hint));
        }
        let most = Plan::most_shards(&self.points, self.protocol);
        if self.protocol.is_screened() {
            let reason = "what a screened sweep runs next depends on all that it has run";
            return Err(flag_error("--shard", &flag, reason, "leave one of --shard and --search=screen out"));
        }
        if shards > most {
            let what = match self.drives().is_empty() {
                false => "constructions",
                true if self.protocol.is_planned_ahead() => "points",
                true => "works",
            };
            let reason = format!("the space has {most} {what} to share");
            return Err(flag_error("--shard", &flag, &reason, &format!("share it among at most {most}")));
        }
        (self.shards, self.shard) = (shards, Some(shard));
        Ok(self)
    }

    /// How a plan is made under this seed.
    #[must_use]
    pub fn rules(&self, seed: u64) -> Rules {
        Rules {
            passes: self.passes,
            order: self.order,
            control: self.control,
            control_every: self.control_every,
            seed,
            shards: self.shards,
            prepare: self.prepare,
            protocol: self.protocol,
            equivalence: self.equivalence,
            spacing: if self.protocol.is_planned_ahead() { Duration::ZERO } else { self.header.spacing },
        }
    }

    /// The seed that machines agree on without a word: of the space where it names one, else drawn from all
    /// that decides what is measured. 53 bits, as [`crate::plan::fresh_seed`].
    #[must_use]
    pub fn common_seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| xxhash_rust::xxh3::xxh3_64(self.plan(0).digest().as_bytes()) >> 11)
    }
}

fn read(path: &Path) -> Result<String, SpaceError> {
    std::fs::read_to_string(path).map_err(|source| SpaceError::Read { path: path.to_owned(), source })
}

fn flag_error(flag: &str, value: &str, reason: &str, hint: &str) -> SpaceError {
    Fault {
        origin: "the command line".into(),
        line: None,
        key: flag.into(),
        value: Some(value.into()),
        reason: reason.into(),
        hint: Some(hint.into()),
    }
    .into()
}

fn stem(origin: &str) -> String {
    Path::new(origin).file_stem().map_or_else(|| origin.to_owned(), |s| s.to_string_lossy().into_owned())
}

/// The file's tables.
#[derive(Default)]
struct Tables {
    sweep: Vec<Entry>,
    base: Vec<Entry>,
    space: Vec<Entry>,
    exclude: Vec<Node>,
    only: Vec<Node>,
}

impl Tables {
    fn read(source: Source<'_>) -> Result<Self, SpaceError> {
        let mut tables = Self::default();
        for entry in source.parse()? {
            match (entry.key.as_str(), entry.node.value) {
                ("sweep", Value::Table(entries)) => tables.sweep = entries,
                ("base", Value::Table(entries)) => tables.base = entries,
                ("space", Value::Table(entries)) => tables.space = entries,
                ("exclude", Value::Array(nodes)) => tables.exclude = nodes,
                ("only", Value::Array(nodes)) => tables.only = nodes,
                (key @ ("exclude" | "only"), _) => {
                    let hint = format!("write [[{key}]], in double brackets");
                    return Err(source.bad_key(entry.line, key, "is a list of tables", &hint));
                }
                (key, _) if TABLES.contains(&key) => {
                    return Err(source.bad_key(entry.line, key, "is a table", &format!("write [{key}]")));
                }
                (_, value) => {
                    let entry = Entry { node: Node { value, ..entry.node }, ..entry };
                    return Err(source.unknown_key(&entry, "a space", TABLES.into_iter()));
                }
            }
        }
        Ok(tables)
    }
}

/// Reads `[space]`.
fn dimensions(source: Source<'_>, entries: &[Entry]) -> Result<Vec<Dimension>, SpaceError> {
    let mut dimensions: Vec<Dimension> = Vec::new();
    for entry in entries {
        let Some(kind) = settings::kind_of(&entry.key) else {
            return Err(source.unknown_key(entry, "[space]", settings::names()));
        };
        if entry.key == "drives" {
            let hint = "write drives = […] under [base]; width says how many of them are used";
            return Err(source.bad_key(entry.line, "drives", "is what all points are built of", hint));
        }
        let Value::Array(nodes) = &entry.node.value else {
            let hint = "write a list, [4096, 65536]; what is common to all points goes under [base]";
            return Err(source.bad_value(&entry.key, &entry.node, "is not a list of values", hint));
        };
        if nodes.is_empty() {
            return Err(source.bad_value(&entry.key, &entry.node, "has no value", "name at least one"));
        }
        let mut settings: Vec<Setting> = Vec::new();
        for node in nodes {
            let setting = settings::read(source, &entry.key, kind, node)?;
            if settings.iter().any(|earlier| earlier.text == setting.text) {
                return Err(source.bad_value(
                    &entry.key,
                    node,
                    "stands here twice",
                    "name each value once; passes repeats them all",
                ));
            }
            settings.push(setting);
        }
        dimensions.push(Dimension { name: entry.key.clone(), kind, settings });
    }
    refuse_conflicts(source, entries, &dimensions)?;
    Ok(dimensions)
}

/// What a test type fixes.
const FIXED_BY_TEST_TYPE: [&str; 4] = ["rw", "bs", "bssplit", "iodepth"];

/// Refuses dimensions that would overrule each other.
fn refuse_conflicts(
    source: Source<'_>,
    entries: &[Entry],
    dimensions: &[Dimension],
) -> Result<(), SpaceError> {
    let varies = |name: &str| dimensions.iter().any(|d| d.name == name);
    for entry in entries {
        if varies("test_type") && FIXED_BY_TEST_TYPE.contains(&entry.key.as_str()) {
            let hint = "vary test_type, or rw, bs and iodepth, not both";
            return Err(source.bad_key(entry.line, &entry.key, "is fixed by the dimension test_type", hint));
        }
        if entry.key == "bssplit" && varies("bs") {
            return Err(source.bad_key(
                entry.line,
                "bssplit",
                "takes the place of bs, which varies as well",
                "vary one of the two",
            ));
        }
    }
    Ok(())
}
