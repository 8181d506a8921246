//! `flashwright sim papers`: paper and simulation side by side.

use ::sim::papers::figures::{Reproduced, reproduce};
use ::sim::papers::refit::{Refit, Refitted, refit};
use ::sim::papers::sensitivity::{MOVES, Moved, STEP, sensitivity};
use ::sim::papers::shapes::{Shape, shapes};
use ::sim::papers::{AMBIGUITIES, SEEDS, TOLERANCE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::PapersArgs;
use crate::failure::Failure;
use crate::{output, paint};

/// The name of the format.
pub const SCHEMA: &str = "flashwright.papers/1";

/// The papers' figures and those of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PapersDocument {
    /// `flashwright.papers/1`.
    pub schema: String,
    /// Seeds of each figure.
    pub seeds: u64,
    /// By what part a figure may differ.
    pub tolerance: f64,
    /// The figures.
    pub figures: Vec<PapersFigure>,
    /// What the papers show without numbers, and the Cray's tables.
    pub shapes: Vec<PapersShape>,
    /// What the papers leave open or say in two ways.
    pub ambiguities: Vec<String>,
    /// Constants, moved, and the figures that moved with them; empty unless asked for.
    #[serde(default)]
    pub sensitivity: Vec<PapersConstant>,
    /// The constants set again from the figures that pin them; none unless asked for.
    #[serde(default)]
    pub refit: Option<PapersRefit>,
}

/// The constants set again, and what the figures then come to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PapersRefit {
    /// The constants, in the order in which they are set.
    pub constants: Vec<PapersPin>,
    /// All figures with these constants; what is `fit` was looked at, the others were not.
    pub figures: Vec<PapersFigure>,
}

/// A constant and the figure that pins it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PapersPin {
    /// The machine file.
    pub machine: String,
    /// The key.
    pub key: String,
    /// The value in the file, as TOML.
    pub of_file: Option<String>,
    /// The value that the fit came to, as TOML; none where the key is to be absent.
    pub refitted: Option<String>,
    /// The one by the other, less one; none where one of them is no number.
    pub moved: Option<f64>,
    /// Where the figure stands.
    pub source: String,
    /// What it is of.
    pub what: String,
}

/// A figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PapersFigure {
    /// Where it stands.
    pub source: String,
    /// What it is of.
    pub what: String,
    /// `IOPS` or `MB/s`.
    pub unit: String,
    /// The paper's value.
    pub paper: f64,
    /// The model's, the mean over the seeds.
    pub model: f64,
    /// The least of the seeds.
    pub least: f64,
    /// The largest of the seeds.
    pub largest: f64,
    /// The model by the paper, less one.
    pub error: f64,
    /// `fit` (a constant is set from it), `predicted`, or `predicted, missed`.
    pub standing: String,
    /// The machine file.
    pub machine: String,
}

/// A claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PapersShape {
    /// Where it stands.
    pub source: String,
    /// What it says.
    pub claim: String,
    /// The model's figures by name; MB/s unless the claim says otherwise.
    pub model: Vec<(String, f64)>,
    /// Whether they show it.
    pub holds: bool,
    /// What the model needs for it.
    pub note: String,
}

/// A constant that was moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PapersConstant {
    /// The machine file.
    pub machine: String,
    /// The key.
    pub key: String,
    /// By what part.
    pub step: f64,
    /// Figures that moved by more than a tenth, and how far.
    pub figures: Vec<(String, f64)>,
    /// Figures beyond the tolerance then.
    pub beyond: usize,
}

/// Prints it.
pub fn papers(args: &PapersArgs) -> Result<(), Failure> {
    let (figures, refit) = (reproduce(), args.refit.then(refit));
    let document = PapersDocument {
        schema: SCHEMA.to_owned(),
        seeds: SEEDS,
        tolerance: TOLERANCE,
        figures: figures.iter().map(figure).collect(),
        shapes: shapes().into_iter().map(shape).collect(),
        ambiguities: AMBIGUITIES.iter().map(|text| (*text).to_owned()).collect(),
        sensitivity: if args.sensitivity {
            sensitivity().into_iter().map(constant).collect()
        } else {
            Vec::new()
        },
        refit: refit.as_ref().map(refitted),
    };
    if args.json {
        return output::print_document(&document);
    }
    output::print(&text(&document, &figures, refit.as_ref()))
}

fn figure(one: &Reproduced) -> PapersFigure {
    PapersFigure {
        source: one.figure.source.to_owned(),
        what: one.figure.what.to_owned(),
        unit: if one.figure.is_bandwidth() { "MB/s" } else { "IOPS" }.to_owned(),
        paper: one.figure.paper,
        model: one.model,
        least: one.range[0],
        largest: one.range[1],
        error: one.error(),
        standing: one.figure.standing.word().to_owned(),
        machine: one.figure.setup.machine.to_owned(),
    }
}

fn refitted(refit: &Refit) -> PapersRefit {
    let constant = |one: &Refitted| PapersPin {
        machine: one.pin.machine.to_owned(),
        key: one.pin.key.to_owned(),
        of_file: one.pin.of_file().map(|value| value.to_string()),
        refitted: one.value.as_ref().map(ToString::to_string),
        moved: one.moved(),
        source: one.pin.source.to_owned(),
        what: one.pin.what.to_owned(),
    };
    PapersRefit {
        constants: refit.constants.iter().map(constant).collect(),
        figures: refit.figures.iter().map(figure).collect(),
    }
}

fn shape(one: Shape) -> PapersShape {
    PapersShape {
        source: one.source.to_owned(),
        claim: one.claim.to_owned(),
        model: one.model,
        holds: one.holds,
        note: one.note.to_owned(),
    }
}

fn constant(one: Moved) -> PapersConstant {
    PapersConstant {
        machine: one.machine.to_owned(),
        key: one.key.to_owned(),
        step: one.step,
        figures: one.figures,
        beyond: one.beyond,
    }
}

/// The table of figures, and how many of them are what.
fn table(figures: &[Reproduced]) -> String {
    let mut text = format!(
        "{:<28} {:<40} {:>11} {:>11} {:>7}  {}\n",
        "source", "figure", "paper", "model", "error", "standing"
    );
    for one in figures.iter().map(figure) {
        text += &format!(
            "{:<28} {:<40} {:>11.0} {:>11.0} {:>+6.1}%  {}\n",
            one.source,
            format!("{}, {}", one.what, one.unit),
            one.paper,
            one.model,
            one.error * 100.0,
            one.standing
        );
    }
    let within = |held_out: bool| figures.iter().filter(move |one| one.is_held_out() == held_out);
    let count = |held_out| within(held_out).filter(|one| one.holds()).count();
    text += &format!(
        "within {:.0} %: {} of {} that constants are set from, {} of {} that are predicted\n",
        TOLERANCE * 100.0,
        count(false),
        within(false).count(),
        count(true),
        within(true).count()
    );
    text
}

/// The constants that were set again, and the figures with them.
fn text_of_refit(refit: &PapersRefit, figures: &[Reproduced]) -> String {
    let mut text = format!(
        "\n{}\n{:<18} {:<34} {:>10} {:>10} {:>7}  {}\n",
        paint::title("The constants, each set again from one figure"),
        "machine",
        "constant",
        "file",
        "refitted",
        "moved",
        "pinned by"
    );
    for one in &refit.constants {
        let [of_file, refitted] = [&one.of_file, &one.refitted].map(|value| short(value.as_deref()));
        let moved = one.moved.map_or_else(|| "–".to_owned(), |part| format!("{:+.1}%", part * 100.0));
        text += &format!(
            "{:<18} {:<34} {of_file:>10} {refitted:>10} {moved:>7}  {}, {}\n",
            one.machine, one.key, one.source, one.what
        );
    }
    text += &format!("\n{}\n", paint::title("The figures with these constants"));
    text + &table(figures)
}

/// A value of a machine file in ten columns.
fn short(value: Option<&str>) -> String {
    let Some(text) = value else { return "absent".to_owned() };
    match text.parse::<f64>() {
        Ok(number) if number >= 1e6 => format!("{number:.4e}"),
        Ok(number) if text.contains('.') => format!("{number:.4}"),
        _ => text.to_owned(),
    }
}

fn text(document: &PapersDocument, figures: &[Reproduced], refit: Option<&Refit>) -> String {
    let title = format!("The papers' figures, mean of {} seeds", document.seeds);
    let mut text = format!("{}\n{}", paint::title(&title), table(figures));
    text += "No constant is set from a predicted figure; the model's mechanisms were chosen with all of them known.\n";
    if let Some((shown, refit)) = document.refit.as_ref().zip(refit) {
        text += &text_of_refit(shown, &refit.figures);
    }
    text += &format!("\n{}\n", paint::title("What the papers show"));
    for one in &document.shapes {
        let figures: Vec<String> =
            one.model.iter().map(|(name, value)| format!("{name}: {value:.0}")).collect();
        let holds = if one.holds { paint::good("shown") } else { paint::bad("not shown") };
        text += &format!(
            "{}: {} — {holds}\n    {}\n    {}\n",
            one.source,
            one.claim,
            figures.join(", "),
            one.note
        );
    }
    if !document.sensitivity.is_empty() {
        let title =
            format!("What moves by more than {:.0} % with a constant ± {:.0} %", MOVES * 100.0, STEP * 100.0);
        text += &format!("\n{}\n", paint::title(&title));
        for one in &document.sensitivity {
            let moved: Vec<String> =
                one.figures.iter().map(|(name, part)| format!("{name} {:+.0} %", part * 100.0)).collect();
            let moved = if moved.is_empty() { "nothing".to_owned() } else { moved.join("; ") };
            let beyond = format!("{} beyond the tolerance", one.beyond);
            text += &format!("{} {} {:+.0} %: {moved} ({beyond})\n", one.machine, one.key, one.step * 100.0);
        }
    }
    text += &format!("\n{}\n", paint::title("What the papers leave open"));
    document.ambiguities.iter().for_each(|one| text += &format!("- {one}\n"));
    text
}
