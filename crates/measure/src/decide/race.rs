//! The state of a race: who is alive, what is known of each pair, which certificates were granted.

use super::analysis::{self, Analysis, Pairs, Run};
use super::{Answer, Outcome, Rules, Standing, critical, outcome};
use crate::stats::Direction;

/// A race between settings, numbered from the cheapest, 0, to the dearest.
///
/// The same rules and blocks give the same race; a stored race is resumed by giving its blocks again.
#[derive(Debug, Clone, PartialEq)]
pub struct Race {
    pub(super) rules: Rules,
    pub(super) settings: usize,
    /// Every block that was given, without the runs that have no figure.
    pub(super) blocks: Vec<Vec<Run>>,
    pub(super) standings: Vec<Standing>,
    /// The settings with [`Standing::Alive`].
    pub(super) alive: Vec<usize>,
    /// How many figures each setting has.
    figures: Vec<usize>,
    /// By pair of settings, as last analysed with both alive; none before that.
    pairs: Vec<Option<Known>>,
    /// By setting, the interval of its difference from the reference with which it was certified.
    pub(super) certificates: Vec<Option<Known>>,
    /// The setting that certificates are relative to.
    reference: usize,
    pub(super) analysis: Option<Analysis>,
    /// The sufficient setting with which the race ended.
    ended_with: Option<Enough>,
}

/// A setting that no other living one exceeds by more than the margin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Enough {
    /// The cheapest living setting of which it is shown.
    pub setting: usize,
    /// No other living setting is more than this many times better; at least 1.
    pub at_most: f64,
}

/// What is known of a pair of settings, ln.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Known {
    /// First minus second.
    pub difference: f64,
    /// Variance of the difference.
    pub variance: f64,
    /// Degrees of freedom of the variance.
    pub freedom: f64,
    /// Blocks that it rests on.
    pub blocks: usize,
    /// Half of the interval that holds for all comparisons with the best together; infinite if there is none yet.
    pub half_of_best: f64,
    /// Half of the interval that equivalence is judged by.
    pub half_of_equivalence: f64,
}

impl Known {
    fn reversed(self) -> Self {
        Self { difference: -self.difference, ..self }
    }
}

/// The place of a pair of different settings, the smaller number first, among all pairs of so many settings.
pub(super) fn pair_index(settings: usize, first: usize, second: usize) -> usize {
    first * (2 * settings - first - 1) / 2 + second - first - 1
}

/// How the race ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// One setting is better than every other.
    Better,
    /// The living settings are equivalent.
    Equivalent,
    /// A setting is sufficient, and more is not in sight.
    Sufficient,
    /// Only one setting has figures.
    Single,
    /// No setting has figures.
    Nothing,
}

impl Race {
    /// A race between `settings` settings, 1 or more, in order from the cheapest to the dearest.
    ///
    /// # Panics
    /// If there are no settings, or a rule is outside its range.
    #[must_use]
    pub fn new(settings: usize, rules: Rules) -> Self {
        assert!(settings > 0, "a race needs a setting");
        assert!(rules.alpha > 0.0 && rules.alpha < 0.5, "alpha {} is not within (0, 0.5)", rules.alpha);
        assert!(rules.equivalence > 0.0, "equivalence {} is not above 0", rules.equivalence);
        assert!(rules.min_blocks >= 2, "{} blocks have no variance", rules.min_blocks);
        Self {
            rules,
            settings,
            blocks: Vec::new(),
            standings: vec![Standing::Alive; settings],
            alive: (0..settings).collect(),
            figures: vec![0; settings],
            pairs: vec![None; settings * (settings - 1) / 2],
            certificates: vec![None; settings],
            reference: 0,
            analysis: None,
            ended_with: None,
        }
    }

    /// Takes the figures of one block, in the order in which the settings ran: `(setting, figure)`.
    ///
    /// A run that failed is left out, or has a figure that is zero, negative or not finite. Runs of settings that
    /// were dropped before are ignored, save as neighbours. Of two figures of a setting in one block the
    /// first counts. A setting that has no figure in the first blocks ([`Rules::min_blocks`]) leaves the race. A
    /// block given to a decided race changes nothing.
    ///
    /// # Panics
    /// If a setting's number is not below the number of settings.
    pub fn block(&mut self, runs: &[(usize, f64)]) {
        if self.rules.stops && self.decided().is_some() {
            return;
        }
        let mut block: Vec<Run> = Vec::with_capacity(runs.len());
        for &(setting, figure) in runs {
            assert!(setting < self.settings, "setting {setting} of {}", self.settings);
            let is_first = block.iter().all(|run| run.setting != setting);
            if figure > 0.0 && figure.is_finite() && is_first {
                let y = match self.rules.direction {
                    Direction::HigherIsBetter => figure.ln(),
                    Direction::LowerIsBetter => -figure.ln(),
                };
                block.push(Run { setting, y });
                self.figures[setting] += 1;
            }
        }
        self.blocks.push(block);
        if self.rules.stops {
            self.conclude();
        }
    }

    /// Takes settings out of the race that the caller will not run again, for reasons that the blocks do not give: nothing is
    /// concluded of them, and comparisons of the others share the error chance as if they were there. Those that are not
    /// alive are ignored, and so are all in a decided race. Two settings stay at least, so that the race decides between them.
    /// Returns those that were struck.
    pub fn strike(&mut self, settings: &[usize]) -> Vec<usize> {
        if self.rules.stops && self.decided().is_some() {
            return Vec::new();
        }
        let alive = settings.iter().copied().filter(|setting| self.alive.contains(setting));
        let struck: Vec<usize> = alive.take(self.alive.len().saturating_sub(2)).collect();
        for setting in &struck {
            self.standings[*setting] = Standing::Struck { after_blocks: self.blocks.len() };
        }
        self.update_alive();
        if self.rules.stops && !struck.is_empty() {
            // Certificates that are relative to a struck setting are void, and what is left may be decided.
            self.conclude();
        }
        struck
    }

    /// How it is decided.
    #[must_use]
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// The settings that the next block runs, ascending: those that may still win.
    #[must_use]
    pub fn alive(&self) -> &[usize] {
        &self.alive
    }

    /// Blocks given so far; a decided race counts none after its decision.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// How the race ended; None while it is open. A race of a fixed number of blocks ([`Rules::stops`] is false)
    /// stays open unless it has only one setting.
    #[must_use]
    pub fn decided(&self) -> Option<Decision> {
        let is_dropped = |standing: &Standing| matches!(standing, Standing::Dropped { .. });
        let is_certified = |i: &usize| *i == self.reference || self.certificates[*i].is_some();
        match self.alive.len() {
            0 => Some(Decision::Nothing),
            1 if self.standings.iter().any(is_dropped) => Some(Decision::Better),
            1 => (self.blocks.len() >= self.rules.min_blocks).then_some(Decision::Single),
            _ if self.alive.iter().all(is_certified) => Some(Decision::Equivalent),
            _ => self.ended_with.map(|_| Decision::Sufficient),
        }
    }

    /// The setting that is sufficient by the blocks so far, if there is one: the one with which the race ended, else the
    /// cheapest living one of which it is shown.
    #[must_use]
    pub fn enough(&self) -> Option<Enough> {
        let now = || outcome::enough(self);
        self.ended_with.or_else(now)
    }

    /// What the blocks so far say. Of an open race that is what would be said if it ended now.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        if self.rules.stops {
            return Outcome::of(self);
        }
        let mut race = self.clone();
        race.conclude();
        Outcome::of(&race)
    }

    /// The answer alone.
    #[must_use]
    pub fn answer(&self) -> Answer {
        self.outcome().answer
    }

    /// The cheapest living setting, which the others are compared with.
    pub(super) fn reference(&self) -> Option<usize> {
        self.alive.first().copied()
    }

    /// What is known of `first` minus `second`, as last analysed while both were alive.
    pub(super) fn known(&self, first: usize, second: usize) -> Option<Known> {
        if first == second {
            return None;
        }
        let known = self.pairs[pair_index(self.settings, first.min(second), first.max(second))];
        if first < second { known } else { known.map(Known::reversed) }
    }

    /// Analyses all blocks, drops settings and grants certificates.
    fn conclude(&mut self) {
        if self.blocks.len() >= self.rules.min_blocks {
            self.remove_settings_without_figures();
        }
        if self.alive.len() < 2 {
            return;
        }
        self.analysis =
            analysis::analyse(&self.blocks, self.settings, &self.alive, Pairs::All, self.rules.steps);
        let Some(analysis) = self.analysis.clone() else { return };
        self.learn(&analysis);
        if analysis.weights.len() >= self.rules.min_blocks {
            self.drop_losers(&analysis);
            self.certify();
            if self.rules.stops && self.rules.ends_at_sufficient && !outcome::is_nearly_decided(self) {
                self.ended_with = outcome::enough(self);
            }
        }
    }

    fn remove_settings_without_figures(&mut self) {
        for (setting, figures) in self.figures.iter().enumerate() {
            if *figures == 0 && self.standings[setting] == Standing::Alive {
                self.standings[setting] = Standing::Failed;
            }
        }
        self.update_alive();
    }

    fn update_alive(&mut self) {
        self.alive = (0..self.settings).filter(|i| self.standings[*i] == Standing::Alive).collect();
    }

    /// Keeps what the analysis says of each pair.
    fn learn(&mut self, analysis: &Analysis) {
        let mut pairs = analysis.pairs.iter();
        for (at, first) in self.alive.iter().enumerate() {
            for second in &self.alive[at + 1..] {
                let pair = pairs.next().expect("an analysis has every pair");
                let index = pair_index(self.settings, *first, *second);
                self.pairs[index] = pair.map(|pair| {
                    let half = |alpha| self.rules.half(alpha, pair.variance, pair.freedom, pair.blocks);
                    Known {
                        difference: pair.difference,
                        variance: pair.variance,
                        freedom: pair.freedom,
                        blocks: pair.blocks,
                        half_of_best: half(self.rules.alpha_of_best(self.settings)),
                        half_of_equivalence: half(self.rules.alpha_of_equivalence()),
                    }
                });
            }
        }
    }

    fn drop_losers(&mut self, analysis: &Analysis) {
        // With missing figures the pairs may disagree; the highest level is never dropped.
        let levels = analysis.levels.iter().copied();
        let leader = levels.zip(&self.alive).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, setting)| *setting);
        let is_beaten_by = |loser: usize, winner: usize| {
            self.known(winner, loser)
                .is_some_and(|k| k.blocks >= self.rules.min_blocks && k.difference > k.half_of_best)
        };
        let losers: Vec<usize> = self
            .alive
            .iter()
            .copied()
            .filter(|j| Some(*j) != leader && self.alive.iter().any(|i| is_beaten_by(*j, *i)))
            .collect();
        for loser in losers {
            self.standings[loser] = Standing::Dropped { after_blocks: self.blocks.len() };
        }
        self.update_alive();
    }

    /// Grants certificates relative to the cheapest living setting; those relative to another are void.
    fn certify(&mut self) {
        let reference = self.alive[0];
        if reference != self.reference {
            self.certificates.fill(None);
            self.reference = reference;
        }
        let margin = self.rules.equivalence.ln_1p();
        for setting in self.alive.clone() {
            if self.certificates[setting].is_none() {
                self.certificates[setting] = self.known(setting, reference).filter(|k| {
                    k.blocks >= self.rules.min_blocks && k.difference.abs() + k.half_of_equivalence <= margin
                });
            }
        }
    }
}

impl Rules {
    /// The error chance of one comparison with the best of `settings`.
    pub(super) fn alpha_of_best(&self, settings: usize) -> f64 {
        self.alpha / (settings as f64 - 1.0).max(1.0)
    }

    /// The error chance of both ends of an interval of equivalence, of which one is at stake.
    pub(super) fn alpha_of_equivalence(&self) -> f64 {
        2.0 * self.alpha
    }

    /// Half of an interval; infinite if there is none yet.
    pub(super) fn half(&self, alpha: f64, variance: f64, freedom: f64, blocks: usize) -> f64 {
        let critical = if self.steps.every_block {
            critical::at_every_block(alpha, freedom, blocks)
        } else {
            critical::at_one_block(alpha, freedom)
        };
        // Infinity stays infinity where all figures are equal.
        if critical.is_finite() { critical * variance.sqrt() } else { f64::INFINITY }
    }
}
