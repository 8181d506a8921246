//! Where the contests of a sweep stand: their whole blocks so far, what these decide, and which contest owes another.
//!
//! A board is made from what is stored and nothing else, so that a resumed sweep goes on as the one that was
//! stopped would have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use measure::decide::Race;

use crate::contest::Contest;
use crate::model::{CONSTRUCTION, Point, RunRow};
use crate::plan::blocks::{Stage, order, race_rules, stages};
use crate::plan::{Plan, PlannedRun, Rules};
use crate::search::constructions::{Constructions, Levels};
use crate::search::design::Factors;
use crate::search::screen::Screen;
use crate::search::{Allowance, ScreenedContest, SearchSummary, StruckPoint};

/// Blocks of a work that has one setting only: nothing is decided, and its figure gets an interval.
pub const BLOCKS_OF_ONE: u32 = 5;

/// All contests that are measured here.
#[derive(Debug, Clone)]
pub struct Board {
    /// In the order of time.
    pub stages: Vec<BoardStage>,
    /// The longest that a shard measures; none where the number of blocks is fixed.
    budget: Option<Duration>,
    /// The number of blocks; 0 where they are as many as a decision takes.
    fixed: u32,
    /// What a screened sweep chooses its constructions by.
    search: Option<(Allowance, Constructions)>,
}

/// Contests that take turns.
#[derive(Debug, Clone)]
pub struct BoardStage {
    /// The machine that measures them, from 1.
    pub shard: u32,
    /// The contests.
    pub entries: Vec<Entry>,
    /// The point that is repeated as a control.
    pub control: Option<u32>,
}

/// A contest with its blocks.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The alternatives.
    pub contest: Contest,
    /// The number of the last block that was begun; 0 before the first.
    pub last_block: u32,
    /// Blocks that are whole.
    pub whole: u32,
    /// What they decide, of the points that race.
    pub race: Race,
    /// The numbers of the points that race, by those of the race's settings.
    pub racing: Vec<usize>,
    /// How the points that race are found; none where all of them do.
    pub screen: Option<Screen>,
    /// The number of the last block of the screening.
    pub last_screened: u32,
    /// The points that left the race without having lost.
    struck: Vec<StruckPoint>,
    /// Runs of whole blocks.
    runs: u32,
    /// The position of the first of them.
    first: Option<u32>,
    /// By the number of the point, the sum of the logarithms of its figures in the race, and how many there are.
    sums: BTreeMap<usize, (f64, f64)>,
    /// The points with a stored run in a whole block.
    measured: BTreeSet<u32>,
}

impl Entry {
    fn new(contest: Contest, plan: &Plan, screen: Option<Screen>) -> Self {
        let Rules { protocol, passes, equivalence, .. } = plan.rules;
        let rules = race_rules(&contest, &plan.points, protocol, passes, equivalence);
        let racing: Vec<usize> = (0..contest.members.len()).collect();
        let race = Race::new(racing.len(), rules);
        let (sums, measured) = (BTreeMap::new(), BTreeSet::new());
        Self {
            contest,
            last_block: 0,
            whole: 0,
            race,
            racing,
            screen,
            last_screened: 0,
            struck: Vec::new(),
            runs: 0,
            first: None,
            sums,
            measured,
        }
    }

    /// Takes a whole block: its runs in the order in which they ran.
    pub fn block<'r>(&mut self, number: u32, runs: impl IntoIterator<Item = &'r RunRow>) {
        let runs: Vec<&RunRow> = runs.into_iter().collect();
        self.measured.extend(runs.iter().map(|run| run.point));
        self.first = self.first.into_iter().chain(runs.iter().map(|run| run.position)).min();
        self.runs += u32::try_from(runs.len()).unwrap_or(u32::MAX);
        let counting = self.contest.counting(runs);
        let figures: Vec<(usize, f64)> =
            counting.iter().map(|(setting, run)| (*setting, run.bandwidth_bytes_per_s)).collect();
        self.whole += 1;
        self.last_block = self.last_block.max(number);
        if let Some(screen) = self.screen.as_mut().filter(|screen| screen.owed().is_some()) {
            screen.block(&figures);
            self.last_screened = number;
            if screen.owed().is_none() {
                self.racing = screen.finalists().to_vec();
                self.race = Race::new(self.racing.len(), self.race.rules());
            }
            return;
        }
        for (setting, figure) in figures.iter().filter(|(_, figure)| *figure > 0.0) {
            let (sum, count) = self.sums.entry(*setting).or_default();
            (*sum, *count) = (*sum + figure.ln(), *count + 1.0);
        }
        if let Some(screen) = &mut self.screen {
            screen.block(&figures);
        }
        let place = |setting: &usize| self.racing.binary_search(setting).ok();
        let racing: Vec<(usize, f64)> =
            figures.iter().filter_map(|(s, figure)| Some((place(s)?, *figure))).collect();
        self.race.block(&racing);
        self.strike(number);
    }

    /// Takes those out of the race that by the sum of effects are not worth further runs.
    fn strike(&mut self, number: u32) {
        let Some(screen) = self.screen.as_ref().filter(|_| self.race.decided().is_none()) else { return };
        let alive: Vec<usize> = self.race.alive().iter().map(|place| self.racing[*place]).collect();
        let may_win = screen.may_win(&alive);
        let is_behind = |place: &usize| !may_win.contains(&self.racing[*place]);
        let behind: Vec<usize> = self.race.alive().iter().copied().filter(is_behind).collect();
        let struck =
            self.race.strike(&behind).into_iter().map(|place| self.contest.members[self.racing[place]]);
        self.struck.extend(struck.map(|point| StruckPoint { point, last_block: number }));
    }

    /// The points of the next block: those that the screening owes, or those that may still win.
    pub fn alive(&self) -> impl Iterator<Item = u32> + '_ {
        let owed = self.screen.as_ref().and_then(Screen::owed);
        let alive = self.race.alive().iter().map(|setting| self.racing[*setting]);
        let settings: Vec<usize> = owed.map_or_else(|| alive.collect(), <[usize]>::to_vec);
        settings.into_iter().map(|setting| self.contest.members[setting])
    }

    /// The points of the next block in the order in which they run, without those that are `given_up`. It is random; of a screened
    /// contest neighbours also have few values in common, and every second block is turned around, beginning with either, so that
    /// none of its points runs later than others on average.
    pub fn ordered(&self, seed: u64, given_up: &dyn Fn(u32) -> bool) -> Vec<u32> {
        let number = self.last_block + 1;
        let alive: BTreeSet<u32> = self.alive().filter(|point| !given_up(*point)).collect();
        let mut points = order(&self.contest, seed, number);
        points.retain(|point| alive.contains(point));
        let Some(screen) = &self.screen else { return points };
        let members = &self.contest.members;
        let place = |id: &u32| members.iter().position(|member| member == id).unwrap_or_default();
        let mut settings = screen.alternating(points.iter().map(place).collect());
        // No block has the number 0, so that its order is a coin to toss.
        let coin = order(&self.contest, seed, 0);
        if (coin.first() < coin.last()) == number.is_multiple_of(2) {
            settings.reverse();
        }
        settings.into_iter().map(|setting| members[setting]).collect()
    }

    /// Whether the race is decided; it is not while the screening lasts.
    fn is_decided(&self) -> bool {
        self.screen.as_ref().is_none_or(|screen| screen.owed().is_none()) && self.race.decided().is_some()
    }

    /// The level of the best point that may still win, ln; none before the race.
    fn level(&self) -> Option<f64> {
        let alive = self.race.alive().iter().filter_map(|setting| self.sums.get(&self.racing[*setting]));
        alive.map(|(sum, count)| sum / count).reduce(f64::max)
    }

    /// The points that may still win and have no run yet.
    pub fn unmeasured(&self) -> impl Iterator<Item = u32> + '_ {
        self.alive().filter(|point| !self.measured.contains(point))
    }
}

impl Board {
    /// The contests of the shards `parts`, with what is stored of them. `cut` are the runs of blocks that were cut
    /// short.
    #[must_use]
    pub fn new(
        plan: &Plan,
        parts: &[u32],
        budget: Option<Duration>,
        runs: &[RunRow],
        cut: &BTreeSet<PlannedRun>,
    ) -> Self {
        let fixed = plan.rules.passes;
        let here = stages(&plan.points, &plan.rules).into_iter().filter(|stage| parts.contains(&stage.shard));
        let here: Vec<Stage> = here.collect();
        let search = plan.rules.protocol.is_screened().then(|| search(&here, plan));
        let first = search.as_ref().and_then(|(_, all)| all.next(&BTreeSet::new(), &Levels::new()));
        let stages = here.into_iter().enumerate().map(|(at, stage)| {
            // Runs of each contest, if the constructions come in the order that is expected.
            let works = u32::try_from(stage.contests.len().max(1)).unwrap_or(u32::MAX);
            let runs = |(allowance, _): &(Allowance, Constructions)| match first == Some(at) {
                true => allowance.share(allowance.runs, 0) / works,
                false => allowance.later / works,
            };
            BoardStage::new(stage, plan, search.as_ref().map(runs))
        });
        let stages: Vec<BoardStage> = stages.collect();
        let mut board = Self { stages, budget, fixed, search };
        let rows: BTreeMap<u32, &RunRow> = runs.iter().map(|run| (run.position, run)).collect();
        let mut of: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        for (stage, entries) in board.stages.iter().map(|stage| &stage.entries).enumerate() {
            for (entry, Entry { contest, .. }) in entries.iter().enumerate() {
                of.extend(contest.members.iter().map(|point| (*point, (stage, entry))));
            }
        }
        // By contest and number; each with its positions, in order.
        let mut blocks: BTreeMap<((usize, usize), u32), BTreeSet<u32>> = BTreeMap::new();
        for run in &plan.runs {
            if let Some(place) = of.get(&run.point) {
                blocks.entry((*place, run.pass)).or_default().insert(run.position);
            }
        }
        let cut: BTreeSet<u32> = cut.iter().map(|run| run.position).collect();
        for (((stage, entry), number), positions) in blocks {
            let entry = &mut board.stages[stage].entries[entry];
            if positions.is_disjoint(&cut) {
                entry.block(number, positions.iter().filter_map(|position| rows.get(position).copied()));
            }
            entry.last_block = entry.last_block.max(number);
        }
        board
    }

    /// The longest that a shard measures; none where the number of blocks is fixed.
    #[must_use]
    pub fn budget(&self) -> Option<Duration> {
        self.budget
    }

    /// Whether a contest owes another block, given the time that its stage may take and has taken. Points in `given_up`
    /// are not waited for.
    #[must_use]
    pub fn is_open(
        &self,
        stage: usize,
        entry: &Entry,
        used: Duration,
        end: Option<Duration>,
        given_up: &dyn Fn(u32) -> bool,
    ) -> bool {
        // A block for which there are too few runs is not begun.
        let next = u32::try_from(entry.alive().count()).unwrap_or(u32::MAX).max(1);
        let is_up =
            end.is_some_and(|end| used >= end) || self.runs_left_on(stage).is_some_and(|left| left < next);
        let enough = match (self.fixed, entry.contest.members.len()) {
            (0, 1) => entry.whole >= BLOCKS_OF_ONE || is_up,
            (0, _) => entry.is_decided() || is_up,
            (fixed, _) => entry.whole >= fixed,
        };
        // Each point is measured once, whatever the budget.
        !enough || entry.unmeasured().any(|point| !given_up(point))
    }

    /// When a stage has to end: it gets its share of what is left of its shard's budget, given the time that the
    /// shard has used.
    #[must_use]
    pub fn end_of(&self, stage: usize, used: Duration) -> Option<Duration> {
        let budget = self.budget?;
        let shard = self.stages[stage].shard;
        let is_open = |at: &usize| {
            let entries = &self.stages[*at].entries;
            self.stages[*at].shard == shard
                && entries.iter().any(|entry| self.is_open(*at, entry, used, Some(budget), &|_| false))
        };
        let rest = budget.saturating_sub(used);
        if let Some((allowance, _)) = &self.search {
            // Time is shared out as runs are.
            let begun = u32::try_from(self.begun_beside(stage).count()).unwrap_or(u32::MAX);
            let share = allowance.share(allowance.runs, begun);
            return Some(used + rest.mul_f64(f64::from(share) / f64::from(allowance.runs.max(1))));
        }
        let left = (stage..self.stages.len()).filter(is_open).count();
        Some(used + rest / u32::try_from(left.max(1)).unwrap_or(u32::MAX))
    }

    /// The stage that is measured after `turn` others in this session, `passed`; none where none is left. Of a sweep
    /// that is not screened that is each of them, and each once more for what a later one has left of the budget.
    #[must_use]
    pub fn stage(&self, turn: usize, passed: &BTreeSet<usize>) -> Option<usize> {
        if self.search.is_none() {
            return (turn < 2 * self.stages.len()).then(|| turn % self.stages.len());
        }
        let begun = self.begun();
        let is_open = |stage: &usize| {
            let entries = &self.stages[*stage].entries;
            entries.iter().any(|entry| self.is_open(*stage, entry, Duration::ZERO, None, &|_| false))
        };
        let open = begun.iter().copied().filter(is_open).find(|stage| !passed.contains(stage));
        open.or_else(|| self.next_construction().filter(|stage| !passed.contains(stage)))
    }

    /// The construction that a screened sweep builds next.
    fn next_construction(&self) -> Option<usize> {
        let (allowance, constructions) = self.search.as_ref()?;
        let begun = self.begun();
        if begun.len() >= allowance.builds as usize {
            return None;
        }
        constructions.next(&begun, &self.levels())
    }

    /// The stages that a block was begun on.
    #[must_use]
    pub fn begun(&self) -> BTreeSet<usize> {
        self.begun_beside(usize::MAX).collect()
    }

    fn begun_beside(&self, stage: usize) -> impl Iterator<Item = usize> + '_ {
        let has_begun = |stage: &BoardStage| stage.entries.iter().any(|entry| entry.last_block > 0);
        let begun = self
            .stages
            .iter()
            .enumerate()
            .filter(move |(at, stage_there)| *at != stage && has_begun(stage_there));
        begun.map(|(at, _)| at)
    }

    /// By work, the level of the best point of each construction, ln.
    fn levels(&self) -> Levels {
        let mut works: Vec<&crate::work::Work> = Vec::new();
        let mut levels = Levels::new();
        for (at, stage) in self.stages.iter().enumerate() {
            for entry in &stage.entries {
                let work = works.iter().position(|work| **work == entry.contest.work);
                let work = work.unwrap_or_else(|| {
                    works.push(&entry.contest.work);
                    works.len() - 1
                });
                levels.entry(work).or_default().extend(entry.level().map(|level| (at, level)));
            }
        }
        levels
    }

    /// What a screened sweep may spend; none of another.
    #[must_use]
    pub fn allowance(&self) -> Option<Allowance> {
        self.search.as_ref().map(|(allowance, _)| *allowance)
    }

    /// What a screened sweep has looked at; none of another.
    #[must_use]
    pub fn summary(&self) -> Option<SearchSummary> {
        let (allowance, constructions) = self.search.as_ref()?;
        let begun = self.begun();
        let entries = || self.measured_stages().flat_map(|(_, stage)| &stage.entries);
        let screened = |entry: &Entry| ScreenedContest {
            work: entry.contest.work.clone(),
            construction: entry.contest.construction.clone(),
            last_screened: entry.last_screened,
            points: match entry.screen.as_ref().is_some_and(|screen| screen.owed().is_some()) {
                true => Vec::new(),
                false => entry.racing.iter().map(|setting| entry.contest.members[*setting]).collect(),
            },
            estimates: entry.screen.as_ref().map(Screen::estimates).unwrap_or_default(),
            effects: entry.screen.as_ref().map(Screen::effects).unwrap_or_default(),
            struck: entry.struck.clone(),
            is_decided: entry.is_decided(),
        };
        let contests: Vec<ScreenedContest> = entries().map(screened).collect();
        let all = self.stages.iter().flat_map(|stage| &stage.entries);
        let of = |stage: &usize| self.stages[*stage].entries.first()?.contest.construction.clone();
        let mut built: Vec<usize> = begun.iter().copied().collect();
        built.sort_by_key(|stage| self.stages[*stage].entries.iter().filter_map(|entry| entry.first).min());
        Some(SearchSummary {
            points: all.map(|entry| entry.contest.members.len() as u64).sum(),
            points_run: entries().map(|entry| entry.measured.len() as u64).sum(),
            points_raced: contests.iter().map(|contest| contest.points.len() as u64).sum(),
            runs_most: allowance.runs,
            constructions: self.stages.len() as u64,
            built: built.iter().filter_map(of).collect(),
            never_built: constructions.never_built(&begun),
            chance_unbuilt: (begun.len() < self.stages.len())
                .then(|| constructions.chance(&begun, &self.levels())),
            contests,
        })
    }

    /// Runs that a stage of a screened sweep may still make: its share of what is left of all of them.
    fn runs_left_on(&self, stage: usize) -> Option<u32> {
        let (allowance, _) = self.search.as_ref()?;
        let runs = |stage: usize| self.stages[stage].entries.iter().map(|entry| entry.runs).sum::<u32>();
        let beside: Vec<usize> = self.begun_beside(stage).collect();
        let begun = u32::try_from(beside.len()).unwrap_or(u32::MAX);
        let left = allowance.runs.saturating_sub(beside.into_iter().map(runs).sum());
        Some(allowance.share(left, begun).saturating_sub(runs(stage)))
    }

    /// Contests that owe another block.
    #[must_use]
    pub fn open_works(&self, used: &BTreeMap<u32, Duration>) -> u32 {
        let open = self.measured_stages().flat_map(|(at, stage)| {
            let used = used.get(&stage.shard).copied().unwrap_or_default();
            stage.entries.iter().filter(move |entry| self.is_open(at, entry, used, self.budget, &|_| false))
        });
        let is_used = self.budget.is_some_and(|budget| used.values().any(|used| *used >= budget));
        let unbuilt = usize::from(!is_used && self.next_construction().is_some());
        u32::try_from(open.count() + unbuilt).unwrap_or(u32::MAX)
    }

    /// Contests of several settings of which none was found the best, nor all of them equivalent: those that are still open,
    /// and those whose time was up before.
    #[must_use]
    pub fn undecided_works(&self) -> u32 {
        let entries = self.measured_stages().flat_map(|(_, stage)| &stage.entries);
        let is_undecided = |entry: &&Entry| entry.contest.members.len() > 1 && !entry.is_decided();
        if self.fixed > 0 { 0 } else { entries.filter(is_undecided).count() as u32 }
    }

    /// The stages that are measured whatever is found: all of them, or those that a screened sweep has begun.
    fn measured_stages(&self) -> impl Iterator<Item = (usize, &BoardStage)> {
        let begun = self.search.is_some().then(|| self.begun());
        self.stages
            .iter()
            .enumerate()
            .filter(move |(at, _)| begun.as_ref().is_none_or(|begun| begun.contains(at)))
    }

    /// The points that lack runs, with the blocks that they lack: of a fixed number those that are left, else the first
    /// one of a point that has no run.
    #[must_use]
    pub fn missing(&self) -> Vec<(u32, Vec<u32>)> {
        let mut missing = Vec::new();
        for entry in self.measured_stages().flat_map(|(_, stage)| &stage.entries) {
            let next = entry.last_block + 1;
            let left = self.fixed.saturating_sub(entry.whole);
            if left > 0 {
                let blocks: Vec<u32> = (next..next + left).collect();
                missing.extend(entry.contest.members.iter().map(|point| (*point, blocks.clone())));
            } else {
                missing.extend(entry.unmeasured().map(|point| (point, vec![next])));
            }
        }
        missing.sort_unstable();
        missing
    }

    /// Runs that are left at most, of all contests that are open: of a fixed number of blocks; none where nobody knows.
    #[must_use]
    pub fn runs_left(&self) -> Option<Vec<u32>> {
        if let Some((allowance, _)) = &self.search {
            let entries = || self.stages.iter().flat_map(|stage| &stage.entries);
            let made: u32 = entries().map(|entry| entry.runs).sum();
            let point = entries().next()?.contest.members[0];
            return Some(vec![point; allowance.runs.saturating_sub(made) as usize]);
        }
        if self.fixed == 0 {
            return None;
        }
        let entries = self.stages.iter().flat_map(|stage| &stage.entries);
        let left = entries.flat_map(|entry| {
            let blocks = self.fixed.saturating_sub(entry.whole) as usize;
            entry.contest.members.iter().flat_map(move |point| std::iter::repeat_n(*point, blocks))
        });
        Some(left.collect())
    }
}

impl BoardStage {
    /// A stage; of a screened sweep with the runs that each contest may make.
    fn new(stage: Stage, plan: &Plan, runs: Option<u32>) -> Self {
        let entry = |contest: Contest| {
            let screened = runs.and_then(|runs| screen(&contest, plan, runs as usize));
            Entry::new(contest, plan, screened)
        };
        let entries = stage.contests.into_iter().map(entry).collect();
        Self { shard: stage.shard, entries, control: stage.control }
    }
}

/// The screening of a contest that may make so many runs.
fn screen(contest: &Contest, plan: &Plan, runs: usize) -> Option<Screen> {
    let points = contest.members.iter().map(|id| &plan.points[*id as usize]);
    let place = |id: &u32| contest.members.iter().position(|member| member == id).unwrap_or_default();
    let number = |block: usize| u32::try_from(block).unwrap_or(u32::MAX).saturating_add(1);
    Screen::new(Factors::of(points), runs, |block| {
        order(contest, plan.rules.seed, number(block)).iter().map(place).collect()
    })
}

/// What a screened sweep may spend, and what it chooses its constructions by.
fn search(stages: &[Stage], plan: &Plan) -> (Allowance, Constructions) {
    let built = |point: &Point| {
        let options = CONSTRUCTION
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), point.layout.get(*name)?.clone())));
        options.collect::<BTreeMap<String, String>>()
    };
    let first =
        |stage: &Stage| stage.contests.first().map(|contest| &plan.points[contest.members[0] as usize]);
    let options: Vec<BTreeMap<String, String>> =
        stages.iter().map(|stage| first(stage).map(built).unwrap_or_default()).collect();
    let works = stages.iter().map(|stage| stage.contests.len()).max().unwrap_or(1);
    (Allowance::of(plan.members.len(), stages.len(), works), Constructions::new(&options))
}
