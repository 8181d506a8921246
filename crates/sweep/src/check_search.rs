//! How good the recommendations of a screened sweep are, and what they cost, on a space whose figures are all known.
//!
//! The truth is an exhaustive sweep, real or simulated. Its figures get the noise of a machine of
//! [`measure::simulation::machine`], and a screened sweep runs on them: the blocks of [`crate::board`], the analysis and the
//! recommendation are those of a sweep. Beside it, on the same runs and constructions, two common ways to search.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use measure::pattern::Rng;
use measure::simulation::machine::{Machine, World};
use measure::simulation::trial::on_all_cpus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::analysis::{Analysis, AnalysisError, PointSummary, SweepData, SweepMeta, analyse};
use crate::board::{Board, Entry};
use crate::model::{Point, RunRow};
use crate::plan::{Margin, Plan, Protocol, Rules};
use crate::recommend::{Outcome, Recommendation, recommend};
use crate::search::design::Factors;
use crate::search::{Allowance, SearchSummary};
use crate::work::Work;

/// The name of the format, in each document's `schema`.
pub const SCHEMA: &str = "flashwright.search-check/1";
/// Passes of the exhaustive sweep that runs are counted against: the papers'.
pub const EXHAUSTIVE_PASSES: usize = 5;
/// A recommendation is near if its figure is at least this part of the best.
pub const NEAR: f64 = 0.98;
/// Part of the seeds in which every recommendation should be near.
pub const NEAR_SEEDS: f64 = 0.95;

/// A space whose figures are all known.
#[derive(Debug, Clone)]
pub struct Truth {
    /// The points, by id.
    pub points: Vec<Point>,
    /// The bandwidth of each, above 0; the unit does not matter.
    pub figures: Vec<f64>,
    /// The works that occur, and by point the position of its work among them.
    works: Vec<Work>,
    of_work: Vec<usize>,
}

/// A way to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// [`crate::search`].
    Screen,
    /// Points drawn at random, each run once; the highest figure counts.
    Random,
    /// One dimension after the other, the others held at what is best so far; the highest mean counts.
    OneFactor,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Screen, Self::Random, Self::OneFactor];

    /// Its name in the table.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Screen => "screen",
            Self::Random => "random search",
            Self::OneFactor => "one factor at a time",
        }
    }
}

/// What one search came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// Runs it made.
    pub runs: usize,
    /// Constructions it built.
    pub builds: usize,
    /// The truth of what it recommends for each work, by the best; 0 where it recommends nothing.
    pub shares: Vec<f64>,
    /// What it says of how sure that is; none of a method that gives no verdict.
    pub verdicts: Option<Verdicts>,
}

/// What a search says of how sure its answers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdicts {
    /// Recommendations that are *better*, *equivalent* or *sufficient*, or of the one setting that the screening left.
    pub decided: usize,
    /// The others.
    pub undecided: usize,
    /// Races of a work on a construction that ended by themselves.
    pub races_decided: usize,
    /// Those that were open when their runs were used.
    pub races_open: usize,
}

impl Verdicts {
    /// Those of two searches together.
    fn and(self, other: Self) -> Self {
        Self {
            decided: self.decided + other.decided,
            undecided: self.undecided + other.undecided,
            races_decided: self.races_decided + other.races_decided,
            races_open: self.races_open + other.races_open,
        }
    }

    fn of(recommendations: &[Recommendation], search: &SearchSummary) -> Self {
        let is_decided = |r: &&Recommendation| {
            matches!(
                r.outcome,
                Outcome::Better | Outcome::Equivalent | Outcome::Sufficient | Outcome::OnlyOne
            )
        };
        let decided = recommendations.iter().filter(is_decided).count();
        let races_decided = search.contests.iter().filter(|contest| contest.is_decided).count();
        Self {
            decided,
            undecided: recommendations.len() - decided,
            races_decided,
            races_open: search.contests.len() - races_decided,
        }
    }
}

/// What a method came to over all seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MethodResult {
    /// The method.
    pub method: Method,
    /// The most runs of a search, by those of the exhaustive sweep.
    pub runs_most: f64,
    /// The most constructions of a search, by those of the space.
    pub builds_most: f64,
    /// Part of the searches in which every recommendation is near the best.
    pub near: f64,
    /// By work, the mean of the recommendation's truth by the best.
    pub shares: Vec<f64>,
    /// The least of all works and searches.
    pub least: f64,
    /// The verdicts of all searches together; none of a method that gives none.
    #[serde(default)]
    pub verdicts: Option<Verdicts>,
}

/// The table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchCheck {
    /// `flashwright.search-check/1`.
    pub schema: String,
    /// Points of the space.
    pub points: usize,
    /// Constructions of the space.
    pub constructions: usize,
    /// Runs of an exhaustive sweep of five passes.
    pub exhaustive_runs: usize,
    /// The noise.
    pub world: World,
    /// Length of a run, seconds.
    pub run_s: f64,
    /// Searches of each method.
    pub seeds: usize,
    /// The works, as [`MethodResult::shares`] counts them.
    pub works: Vec<Work>,
    /// The methods.
    pub methods: Vec<MethodResult>,
}

impl Truth {
    /// Points by id, with the bandwidth of each.
    #[must_use]
    pub fn new(points: Vec<Point>, figures: Vec<f64>) -> Self {
        let of_point: Vec<Work> = points.iter().map(Work::of).collect();
        let works: Vec<Work> = of_point.iter().cloned().collect::<BTreeSet<Work>>().into_iter().collect();
        let of_work = of_point.iter().filter_map(|work| works.binary_search(work).ok()).collect();
        Self { points, figures, works, of_work }
    }

    /// The points of a sweep with the mean bandwidth of each; none where one has no figure.
    #[must_use]
    pub fn of(points: Vec<Point>, summaries: &[PointSummary]) -> Option<Self> {
        let figures = summaries.iter().filter_map(|point| Some(point.bandwidth?.mean));
        let figures: Vec<f64> = figures.filter(|figure| *figure > 0.0).collect();
        (figures.len() == points.len()).then(|| Self::new(points, figures))
    }

    fn members(&self, work: usize) -> Vec<usize> {
        (0..self.points.len()).filter(|at| self.of_work[*at] == work).collect()
    }

    fn constructions(&self) -> BTreeMap<String, Vec<usize>> {
        let mut found: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, point) in self.points.iter().enumerate() {
            found.entry(point.construction().unwrap_or_default()).or_default().push(at);
        }
        found
    }

    /// The truth of the points that are recommended, by work, by the best of each.
    fn shares(&self, recommended: &BTreeMap<usize, usize>) -> Vec<f64> {
        let share = |work: usize| {
            let best = self.members(work).iter().map(|at| self.figures[*at]).fold(0.0, f64::max);
            recommended.get(&work).map_or(0.0, |at| self.figures[*at] / best)
        };
        (0..self.works.len()).map(share).collect()
    }

    fn machine(&self, world: World, seed: u64) -> Machine {
        let levels: Vec<f64> = self.figures.iter().map(|figure| figure.ln()).collect();
        Machine::new(world, &levels, seed)
    }

    fn allowance(&self) -> Allowance {
        let constructions = self.constructions().len();
        Allowance::of(self.points.len(), constructions, self.works.len())
    }
}

/// Tries each method with `seeds` seeds.
///
/// # Errors
/// [`AnalysisError`] where runs contradict themselves, which would be a fault of this program.
pub fn check(
    truth: &Truth,
    world: World,
    run_s: f64,
    seeds: usize,
    seed: u64,
) -> Result<SearchCheck, AnalysisError> {
    let constructions = truth.constructions().len();
    let exhaustive_runs = truth.points.len() * EXHAUSTIVE_PASSES;
    let mut methods = Vec::new();
    for method in Method::ALL {
        let found = on_all_cpus(seeds, |job| {
            let seed = seed.wrapping_add(job as u64);
            match method {
                Method::Screen => screen(truth, world, run_s, seed),
                Method::Random => Ok(random(truth, world, run_s, seed)),
                Method::OneFactor => Ok(one_factor(truth, world, run_s, seed)),
            }
        });
        let found: Vec<Found> = found.into_iter().collect::<Result<_, _>>()?;
        methods.push(summarise(method, &found, exhaustive_runs, constructions));
    }
    let (points, works) = (truth.points.len(), truth.works.clone());
    let schema = SCHEMA.to_owned();
    Ok(SearchCheck { schema, points, constructions, exhaustive_runs, world, run_s, seeds, works, methods })
}

impl SearchCheck {
    /// The part of the screened searches in which every recommendation is near, if that is less than [`NEAR_SEEDS`].
    #[must_use]
    pub fn missed(&self) -> Option<f64> {
        let screened = self.methods.iter().find(|line| line.method == Method::Screen)?;
        (screened.near < NEAR_SEEDS).then_some(screened.near)
    }
}

fn summarise(method: Method, found: &[Found], runs: usize, constructions: usize) -> MethodResult {
    let most = |of: fn(&Found) -> usize| found.iter().map(of).max().unwrap_or_default() as f64;
    let least = |found: &Found| found.shares.iter().copied().fold(1.0, f64::min);
    let count = found.len() as f64;
    let works = found.first().map_or(0, |found| found.shares.len());
    MethodResult {
        method,
        runs_most: most(|found| found.runs) / runs as f64,
        builds_most: most(|found| found.builds) / constructions as f64,
        near: found.iter().filter(|found| least(found) >= NEAR).count() as f64 / count,
        shares: (0..works).map(|w| found.iter().map(|found| found.shares[w]).sum::<f64>() / count).collect(),
        least: found.iter().map(least).fold(1.0, f64::min),
        verdicts: found.iter().map(|found| found.verdicts).reduce(|a, b| Some(a?.and(b?))).flatten(),
    }
}

/// A screened sweep.
///
/// # Errors
/// [`AnalysisError`], as [`check`].
pub fn screen(truth: &Truth, world: World, run_s: f64, seed: u64) -> Result<Found, AnalysisError> {
    let (runs, board) = screened(truth, world, run_s, seed);
    let (count, builds) = (runs.len(), board.begun().len());
    let analysis = analysed(truth, runs, &board)?;
    let recommendations = recommend(&analysis);
    let point = |r: &Recommendation| Some((truth.works.binary_search(&r.work).ok()?, r.point? as usize));
    let shares = truth.shares(&recommendations.iter().filter_map(point).collect());
    let verdicts = analysis.search.map(|search| Verdicts::of(&recommendations, &search));
    Ok(Found { runs: count, builds, shares, verdicts })
}

/// The runs of a screened sweep, and where its contests stand then.
#[must_use]
pub fn screened(truth: &Truth, world: World, run_s: f64, seed: u64) -> (Vec<RunRow>, Board) {
    let plan = Plan::new(truth.points.clone(), rules(seed));
    let mut board = Board::new(&plan, &[1], None, &[], &BTreeSet::new());
    let mut machine = truth.machine(world, seed);
    let (mut runs, mut passed): (Vec<RunRow>, _) = (Vec::new(), BTreeSet::new());
    while let Some(stage) = board.stage(passed.len(), &passed) {
        passed.insert(stage);
        let mut began = vec![f64::NEG_INFINITY; board.stages[stage].entries.len()];
        while let Some(at) = next(&board, stage, &began) {
            machine.wait_until(began[at] + plan.rules.spacing.as_secs_f64());
            machine.rest();
            began[at] = machine.now();
            let entry = &board.stages[stage].entries[at];
            let number = entry.last_block + 1;
            let block = entry.ordered(seed, &|_| false);
            let first = runs.len();
            for point in block {
                let figure = machine.run(point as usize, run_s);
                runs.push(row(runs.len(), point, number, figure));
            }
            board.stages[stage].entries[at].block(number, &runs[first..]);
        }
    }
    (runs, board)
}

fn rules(seed: u64) -> Rules {
    Rules {
        passes: 0,
        order: crate::plan::Order::Random,
        control: None,
        control_every: 0,
        seed,
        shards: 1,
        prepare: crate::plan::Prepare::default(),
        protocol: Protocol::Screen,
        equivalence: Margin::default(),
        spacing: measure::decide::SPACING,
    }
}

/// The contest whose block is owed longest.
fn next(board: &Board, stage: usize, began: &[f64]) -> Option<usize> {
    let entries = &board.stages[stage].entries;
    let is_open =
        |(_, entry): &(usize, &Entry)| board.is_open(stage, entry, Duration::ZERO, None, &|_| false);
    let open = entries.iter().enumerate().filter(is_open);
    open.min_by(|a, b| began[a.0].total_cmp(&began[b.0])).map(|(at, _)| at)
}

fn row(at: usize, point: u32, pass: u32, figure: f64) -> RunRow {
    RunRow {
        id: i64::try_from(at).unwrap_or(i64::MAX),
        point,
        pass,
        position: u32::try_from(at).unwrap_or(u32::MAX),
        bandwidth_bytes_per_s: figure,
        iops: figure,
        ..RunRow::default()
    }
}

/// The sweep's own analysis of these runs.
///
/// # Errors
/// [`AnalysisError`], as [`check`].
pub fn analysed(truth: &Truth, runs: Vec<RunRow>, board: &Board) -> Result<Analysis, AnalysisError> {
    let run: BTreeSet<u32> = runs.iter().map(|run| run.point).collect();
    let points = truth.points.iter().filter(|point| run.contains(&point.id)).cloned().collect();
    let meta = SweepMeta { protocol: Protocol::Screen, ..SweepMeta::default() };
    analyse(&SweepData { meta, points, runs, search: board.summary(), ..SweepData::default() })
}

/// Points drawn at random from as many constructions as screening may build.
fn random(truth: &Truth, world: World, run_s: f64, seed: u64) -> Found {
    let allowance = truth.allowance();
    let (mut random, mut machine) = (Rng::new(seed), truth.machine(world, seed));
    let mut constructions: Vec<Vec<usize>> = truth.constructions().into_values().collect();
    let mut best: BTreeMap<usize, (f64, usize)> = BTreeMap::new();
    for _ in 0..allowance.builds {
        let points = constructions.swap_remove(random.below(constructions.len() as u64) as usize);
        for _ in 0..allowance.runs / allowance.builds {
            let at = points[random.below(points.len() as u64) as usize];
            machine.rest();
            let figure = machine.run(at, run_s);
            let best = best.entry(truth.of_work[at]).or_insert((0.0, at));
            *best = if figure > best.0 { (figure, at) } else { *best };
        }
    }
    let best = best.into_iter().map(|(work, (_, at))| (work, at)).collect();
    Found {
        runs: allowance.runs as usize,
        builds: allowance.builds as usize,
        shares: truth.shares(&best),
        verdicts: None,
    }
}

/// From the first point of each work one dimension after the other, in random order, each value with as many runs as
/// there are for it. A construction beyond those that screening may build is not looked at.
fn one_factor(truth: &Truth, world: World, run_s: f64, seed: u64) -> Found {
    let allowance = truth.allowance();
    let (mut random, mut machine) = (Rng::new(seed), truth.machine(world, seed));
    let (mut runs, mut built, mut best) = (0, BTreeSet::new(), BTreeMap::new());
    for work in 0..truth.works.len() {
        let members = truth.members(work);
        let factors = Factors::of(members.iter().map(|at| &truth.points[*at]));
        let values: usize = factors.values.iter().map(|values| values.len() - 1).sum::<usize>() + 1;
        let repetitions = (allowance.runs as usize / truth.works.len() / values).max(1);
        let mut measure = |member: usize| -> Option<f64> {
            let construction = truth.points[members[member]].construction().unwrap_or_default();
            if !built.contains(&construction) && built.len() >= allowance.builds as usize {
                return None;
            }
            built.insert(construction);
            runs += repetitions;
            machine.rest();
            let figures = (0..repetitions).map(|_| machine.run(members[member], run_s).ln());
            Some(figures.sum::<f64>() / repetitions as f64)
        };
        // The first of the constructions that there are, so that each work can begin.
        let mut at = random.below(members.len() as u64) as usize;
        let mut level = loop {
            match measure(at) {
                Some(level) => break level,
                None => at = random.below(members.len() as u64) as usize,
            }
        };
        let mut dimensions: Vec<usize> = (0..factors.names.len()).collect();
        for last in (1..dimensions.len()).rev() {
            dimensions.swap(last, random.below(last as u64 + 1) as usize);
        }
        for dimension in dimensions {
            let held = factors.rows[at].clone();
            let differs_here =
                |row: &Vec<usize>| (0..row.len()).all(|d| (d == dimension) != (row[d] == held[d]));
            for other in (0..members.len()).filter(|other| differs_here(&factors.rows[*other])) {
                if let Some(found) = measure(other).filter(|found| *found > level) {
                    (at, level) = (other, found);
                }
            }
        }
        best.insert(work, members[at]);
    }
    Found { runs, builds: built.len(), shares: truth.shares(&best), verdicts: None }
}

impl fmt::Display for SearchCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} points on {} constructions; an exhaustive sweep makes {} runs. Noise: {}, runs of {} s; {} seeds.\n",
            self.points, self.constructions, self.exhaustive_runs, self.world, self.run_s, self.seeds
        )?;
        let works: String = self.works.iter().map(|work| format!(" {} |", work.label())).collect();
        writeln!(
            f,
            "| method | runs | constructions | all within 2 % |{works} least | decided | races decided |"
        )?;
        writeln!(f, "|---|---|---|---|{}---|---|---|", "---|".repeat(self.works.len()))?;
        for line in &self.methods {
            let of = |decided: usize, open: usize| format!("{decided} of {}", decided + open);
            let decided =
                line.verdicts.map(|v| [of(v.decided, v.undecided), of(v.races_decided, v.races_open)]);
            let [decided, races] = decided.unwrap_or_else(|| ["-".to_owned(), "-".to_owned()]);
            let shares: String = line.shares.iter().map(|share| format!(" {share:.3} |")).collect();
            writeln!(
                f,
                "| {} | {:.1} % | {:.1} % | {:.0} % |{shares} {:.3} | {decided} | {races} |",
                line.method.words(),
                line.runs_most * 100.0,
                line.builds_most * 100.0,
                line.near * 100.0,
                line.least
            )?;
        }
        Ok(())
    }
}
