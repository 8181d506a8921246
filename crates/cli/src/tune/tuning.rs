//! What is to be set, out of a sweep's report.

use std::collections::BTreeMap;

use ::layout::{LayoutError, LayoutSpec};
use sweep::analysis::Work;
use sweep::recommend::{Measured, Setting, ratio};
use sweep::report::Report;

use super::args::Which;
use super::failed;
use crate::failure::Failure;

/// Settings with what is behind them.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    /// The sweep, for people: its name, its runs.
    pub origin: String,
    /// What the settings are for, in a sentence.
    pub sentence: String,
    /// Every setting, by name.
    pub settings: BTreeMap<String, Setting>,
    /// The layout that they describe; none where the sweep had none.
    pub spec: Option<LayoutSpec>,
}

/// What a kind of work is called on the command line: `random-reads-4k`.
pub fn slug(work: &Work) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let mut slug: String = work.label().chars().map(plain).collect();
    while slug.contains("--") {
        slug = slug.replace("--", "-");
    }
    slug.trim_matches('-').to_owned()
}

impl Tuning {
    /// The settings that are asked for.
    ///
    /// # Errors
    /// Where the report has none, or a kind of work is not in it.
    pub fn of(report: &Report, which: &Which) -> Result<Self, Failure> {
        let origin = format!(
            "sweep \"{}\", {} runs of {} configurations",
            one_line(&report.meta.name),
            report.completeness.done,
            report.points.len()
        );
        let (sentence, settings) = match (&which.work, &report.compromise) {
            (Some(work), _) => of_work(report, work)?,
            (None, Some(compromise)) => (compromise.sentence.clone(), compromise.settings.clone()),
            (None, None) => (report.headline.clone(), BTreeMap::new()),
        };
        let spec = spec(&settings, which.drives.as_deref())?;
        Ok(Self { origin, sentence: one_line(&sentence), settings, spec })
    }

    /// The measurements behind a setting, a line each.
    pub fn evidence(&self, name: &str) -> Vec<String> {
        let Some(setting) = self.settings.get(name) else { return Vec::new() };
        if setting.measured.is_empty() {
            return vec![
                if setting.varied {
                    "no configuration of the sweep differs in it alone"
                } else {
                    "the same in the whole sweep"
                }
                .to_owned(),
            ];
        }
        setting.measured.iter().map(measured).collect()
    }
}

/// `Random reads, 4k: 1.31× (1.28–1.34) that of bfq, the baseline; 8 runs`.
fn measured(m: &Measured) -> String {
    let baseline = if m.is_baseline { ", the baseline" } else { "" };
    let noise = if m.beyond_noise { "" } else { ", not told apart" };
    one_line(&format!(
        "{}: {} that of {}{baseline}{noise}; {} runs",
        m.work.label(),
        ratio(m.ratio, m.interval),
        m.against,
        m.runs
    ))
}

/// Text that cannot end a comment's line.
pub fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c })
        .collect()
}

fn of_work(report: &Report, work: &str) -> Result<(String, BTreeMap<String, Setting>), Failure> {
    let found = report.recommendations.iter().find(|r| slug(&r.work) == work);
    let Some(recommendation) = found else {
        let known: Vec<String> = report.recommendations.iter().map(|r| slug(&r.work)).collect();
        return Err(Failure::invalid(format!("--for={work}: the sweep has no such work"))
            .hint(format!("there are: {}", known.join(", "))));
    };
    Ok((recommendation.sentence.clone(), recommendation.settings.clone()))
}

/// The layout that the settings describe, on the sweep's drives or on others.
fn spec(settings: &BTreeMap<String, Setting>, drives: Option<&str>) -> Result<Option<LayoutSpec>, Failure> {
    let of_layout = settings.iter().filter(|(_, setting)| setting.of_layout);
    let mut values: BTreeMap<String, String> =
        of_layout.map(|(name, setting)| (name.clone(), setting.value.clone())).collect();
    if values.is_empty() {
        return Ok(None);
    }
    if let Some(drives) = drives {
        values.insert("drives".to_owned(), drives.to_owned());
    }
    LayoutSpec::from_settings(&values).map(Some).map_err(|error| failed(LayoutError::from(error)))
}
