//! `bench --wsat`: the write-saturation curve for people, for programs, and as a page with a plot.

use std::path::Path;
use std::time::Duration;

use measure::remedy::OptionsBy;
use measure::saturation::{Ended, Saturation};
use measure::{RunRecord, WarningCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sweep::report::SaturationPage;

use super::args::{BenchArgs, OutputFormat};
use super::figures::{BenchWarning, warnings};
use super::request::Request;
use super::{run, text};
use crate::failure::Failure;
use crate::{output, paint, signals};

/// The name of the format.
pub const SCHEMA: &str = "flashwright.wsat/1";

/// What a write-saturation run came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WsatReport {
    /// `flashwright.wsat/1`.
    pub schema: String,
    /// Whether it was stopped before its end; the curve is then of the time before.
    pub interrupted: bool,
    /// The curve and what it says.
    #[serde(flatten)]
    pub curve: Saturation,
    /// The run's warnings, but for those that say that the drive was fresh and its rate not steady, which is
    /// what was to be seen.
    pub warnings: Vec<BenchWarning>,
    /// The whole record.
    pub record: RunRecord,
}

impl WsatReport {
    fn new(record: RunRecord, curve: Saturation) -> Self {
        let expected = [WarningCode::Unsteady, WarningCode::Unpreconditioned];
        let mut warnings = warnings(std::iter::once(&record), OptionsBy::Flags);
        warnings.retain(|warning| !expected.contains(&warning.code));
        let interrupted = curve.ended == Ended::Interrupted;
        Self { schema: SCHEMA.to_owned(), interrupted, curve, warnings, record }
    }
}

/// Runs what the flags say.
pub fn wsat(args: &BenchArgs) -> Result<(), Failure> {
    let format = match args.format() {
        OutputFormat::FioJson | OutputFormat::FioJsonPlus => {
            return Err(Failure::invalid("--output-format=fio-json cannot be combined with --wsat")
                .hint("fio has no such document; --json is ours"));
        }
        format => format,
    };
    let folder = args.output.as_deref().map(directory).transpose()?;
    let request = Request::read(args)?;
    let plan = request.saturate.expect("--wsat was given");
    let stop = signals::stop_flag()?;
    let (record, curve) = run::saturate(&request, &plan, &stop, args.live)?;
    let report = WsatReport::new(record, curve);
    if let Some(folder) = folder {
        write_all(folder, &report)?;
    }
    match format {
        OutputFormat::Text => output::print(&screen(&report))?,
        _ => output::print_document(&report)?,
    }
    if report.interrupted {
        return Err(Failure::interrupted("interrupted; the curve is of the time before"));
    }
    Ok(())
}

/// The directory of `--output`, made if need be, before the hours of writing.
fn directory(path: &Path) -> Result<&Path, Failure> {
    if path.exists() && !path.is_dir() {
        return Err(Failure::invalid(format!("--output={}: is no directory", path.display()))
            .hint("with --wsat several files are written; name a directory for them"));
    }
    std::fs::create_dir_all(path).map_err(|error| Failure::io(path, "make the directory", &error))?;
    Ok(path)
}

fn write_all(folder: &Path, report: &WsatReport) -> Result<(), Failure> {
    let title = format!("Write saturation of {}", report.record.target.spec);
    let page = SaturationPage {
        title: &title,
        answer: &answer(&report.curve),
        facts: &rows(report),
        curve: &report.curve,
    };
    output::write_file(&folder.join("wsat.html"), &sweep::report::saturation(&page))?;
    output::write_file(&folder.join("wsat.csv"), &csv(&report.curve))?;
    output::write_file(&folder.join("wsat.json"), &output::document_text(report)?)
}

/// The curve for a spreadsheet.
fn csv(curve: &Saturation) -> String {
    let mut text = String::from("end_ns,written_bytes,bandwidth_bytes_per_s,iops\n");
    for point in &curve.points {
        let (bandwidth, iops) = (point.bandwidth_bytes_per_s, point.iops);
        text += &format!("{},{},{bandwidth:.1},{iops:.1}\n", point.end_ns, point.written_bytes);
    }
    text
}

/// What the curve says, in a sentence.
fn answer(curve: &Saturation) -> String {
    let steady = match (curve.steady_bytes_per_s, curve.steady_iops) {
        (Some(rate), Some(iops)) => format!("steady at {}, {}", units::bandwidth(rate), units::iops(iops)),
        _ => format!("no steady state seen ({})", curve.steadiness.explain()),
    };
    let cliff = match curve.cliff {
        Some(cliff) => format!(
            "falls for good after {}, {:.2} times the region, from {} to {} at the bottom",
            units::bytes(cliff.written_bytes),
            cliff.of_region,
            units::bandwidth(cliff.before_bytes_per_s),
            units::bandwidth(cliff.bottom_bytes_per_s)
        ),
        None if curve.has_shape() => "no knee seen".to_owned(),
        None => format!("too short to have a shape ({} steps)", curve.shape.points),
    };
    format!("{cliff}; {steady}")
}

fn ended(curve: &Saturation) -> &'static str {
    match curve.ended {
        Ended::Capacity => "as much was written as was asked for",
        Ended::Steady => "it was steady",
        Ended::Time => "the time was up",
        Ended::Interrupted => "it was stopped",
    }
}

/// Everything in names and values.
fn rows(report: &WsatReport) -> Vec<(String, String)> {
    let curve = &report.curve;
    let record = &report.record;
    let times = curve.written_bytes as f64 / curve.region_bytes.max(1) as f64;
    let purge = match &record.precondition {
        Some(done) => super::prepare::words(done),
        None => "not purged: the curve begins where the drive was left".to_owned(),
    };
    let mut rows = vec![
        ("target", text::target(record)),
        ("prepared", purge),
        ("workload", text::workload(record)),
        ("engine", text::engine(record)),
        (
            "written",
            format!(
                "{} in {}, {times:.2} times the region of {}; it ended because {}",
                units::bytes(curve.written_bytes),
                units::seconds(Duration::from_nanos(curve.elapsed_ns)),
                units::bytes(curve.region_bytes),
                ended(curve)
            ),
        ),
    ];
    match curve.cliff {
        Some(cliff) => rows.extend([
            (
                "knee",
                format!(
                    "after {} = {:.2} times the region, at {}",
                    units::bytes(cliff.written_bytes),
                    cliff.of_region,
                    units::nanoseconds(cliff.at_ns as f64)
                ),
            ),
            ("before", text::bandwidth(cliff.before_bytes_per_s)),
            ("bottom", text::bandwidth(cliff.bottom_bytes_per_s)),
            ("after", text::bandwidth(cliff.after_bytes_per_s)),
        ]),
        None if curve.has_shape() => {
            rows.push(("knee", "no knee seen: the rate never fell by a fifth for good".to_owned()));
        }
        None => rows.push(("knee", format!("too short to say ({} steps)", curve.shape.points))),
    }
    let rounds =
        format!("{}; rounds of {}", curve.steadiness.explain(), units::nanoseconds(curve.round_ns as f64));
    rows.push((
        "steady",
        match (curve.steady_bytes_per_s, curve.steady_iops) {
            (Some(rate), Some(iops)) => {
                format!("{}, {} ({rounds})", text::bandwidth(rate), units::iops(iops))
            }
            _ => format!("no ({rounds})"),
        },
    ));
    rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Everything on a screen.
fn screen(report: &WsatReport) -> String {
    let mut screen: String = rows(report).iter().map(|(name, value)| text::row(name, value)).collect();
    screen += &format!("\n{}\n\n", paint::title(&answer(&report.curve)));
    screen + &text::warning_lines(&report.warnings)
}
