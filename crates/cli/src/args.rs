//! The command line: verbs, and what stands in front of them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::bench::args::BenchArgs;
use crate::bfs::args::BfsArgs;
use crate::db::args::DbArgs;
use crate::failure::Failure;
use crate::flashio::args::FlashioArgs;
use crate::forms::ReportFormat;
use crate::layout::args::LayoutArgs;
use crate::memory::args::MemoryArgs;
use crate::output;
use crate::plan::args::PlanArgs;
use crate::probe::args::ProbeArgs;
use crate::sim::args::SimArgs;
use crate::stage::args::StageArgs;
use crate::sweep::args::SweepArgs;
use crate::tune::args::TuneArgs;
use crate::usage;
use crate::volume::args::VolumeArgs;

const ABOUT: &str = "Find the fastest way to use the flash you have, then use it";

const EXAMPLES: &str = "\
Start here:
  flashwright sweep      measure this directory's flash in two minutes
  flashwright probe .    what is here, and what bears on measuring it
  flashwright bench --rw=randread --bs=4k --iodepth=32 --target FILE

Exit codes: 0 done, 1 the work failed, 2 the request was wrong, 3 refused for safety,
130 interrupted.
`flashwright help VERB` tells all of a verb, `flashwright VERB -h` the most used of it.";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "flashwright", version, about = ABOUT, after_help = EXAMPLES)]
#[command(disable_help_subcommand = true, arg_required_else_help = true, subcommand_value_name = "VERB")]
#[command(subcommand_help_heading = "Verbs", max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what is here: drives, topology, file systems, engines, limits; how far away it is (--ladder)
    Probe(Box<ProbeArgs>),
    /// Run one workload, a TOML workload or a fio job file
    Bench(Box<BenchArgs>),
    /// Measure a whole design space, clean the data, and say what to use
    Sweep(Box<SweepArgs>),
    /// Run a workload on a machine described in a file, in virtual time
    Sim(Box<SimArgs>),
    /// Make and unmake arrays, file systems and settings, all of it undone by one word
    Layout(LayoutArgs),
    /// Show, set, set back or export what a sweep recommends
    Tune(TuneArgs),
    /// Serve this host's memory over NBD
    Memory(Box<MemoryArgs>),
    /// Make, list, check, take apart and serve volumes over many devices
    Volume(VolumeArgs),
    /// Move checkpoints between a fast and a slow tier, crash-safe, in the background
    Stage(Box<StageArgs>),
    /// Compute and checkpoint on two tiers, with and without a drain: what it is worth here
    Flashio(Box<FlashioArgs>),
    /// Load and ask the DASH paper's databases on your tiers: which is faster at what, and why
    Db(Box<DbArgs>),
    /// Search graphs larger than memory, breadth first: make, import, build, search and check them
    Bfs(Box<BfsArgs>),
    /// What to buy, how often to checkpoint, how long it lasts: from measured figures and prices
    Plan(PlanArgs),
    /// Make a sweep's report again: HTML, Markdown, CSV or JSON
    Report(ReportArgs),
    /// Print the JSON Schemas of the documents that flashwright writes
    Schema(SchemaArgs),
    /// Tell all of a verb: flashwright help sweep plan
    Help(HelpArgs),
    /// Write the manual pages and the shells' completions, for packages
    #[command(hide = true)]
    Pages(PagesArgs),
}

/// `flashwright help`.
#[derive(Debug, Args)]
pub struct HelpArgs {
    /// The verb, and the verb below it
    #[arg(value_name = "VERB")]
    pub verbs: Vec<OsString>,
}

/// `flashwright pages`.
#[derive(Debug, Args)]
pub struct PagesArgs {
    /// Where man1/ and completions/ are made
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// `flashwright report`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without --format the output's name decides, and HTML where it does not. HTML \
goes to report.html beside results.db unless --output says otherwise; the \
other formats go to standard output.

Examples:
  flashwright report results/                    make results/report.html again
  flashwright report results/ --format md        a summary for a ticket
  flashwright report results/ --output runs.csv  every run, for a spreadsheet
  flashwright report results/ --output page.svg  one picture, for a slide")]
pub struct ReportArgs {
    /// A sweep's directory, or its results.db
    #[arg(value_name = "DIR|results.db")]
    pub sweep: PathBuf,
    /// The form of the report
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<ReportFormat>,
    /// With CSV: the numbers of every figure instead of the runs
    #[arg(long)]
    pub figures: bool,
    /// Where it goes; - is standard output
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the file that --output names even if flashwright did not write it
    #[arg(long)]
    pub force: bool,
}

/// `flashwright schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// The document; all of them, in one object, where none is named
    #[arg(value_enum, value_name = "DOCUMENT")]
    pub document: Option<Document>,
}

/// The documents with a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Document {
    /// One run's record, as results.db keeps it (flashwright.run/1)
    Run,
    /// `probe --json` (flashwright.probe/1)
    Probe,
    /// `probe --ladder --json` (flashwright.ladder/1)
    Ladder,
    /// `bench --json` (flashwright.bench/1)
    Bench,
    /// `bench --json` of several tasks (flashwright.bench-tasks/1)
    BenchTasks,
    /// `bench --wsat --json` (flashwright.wsat/1)
    Wsat,
    /// `report --format json`, `sweep --json` and results.json (flashwright.report/2)
    Report,
    /// `sweep plan --json` (flashwright.plan/1)
    Plan,
    /// `plan cost --json` and `plan power --json` (flashwright.plan-efficiency/1)
    PlanEfficiency,
    /// `plan checkpoint --json` (flashwright.plan-checkpoint/1)
    PlanCheckpoint,
    /// `plan endurance --json` (flashwright.plan-endurance/1)
    PlanEndurance,
    /// `plan hierarchy --json` (flashwright.plan-hierarchy/1)
    PlanHierarchy,
    /// `plan tier --json` (flashwright.plan-tier/1)
    PlanTier,
    /// `flashio --json` (flashwright.flashio/2)
    Flashio,
    /// `db load --json` (flashwright.db-load/1)
    DbLoad,
    /// `db run --json` (flashwright.db-run/1)
    DbRun,
    /// `db run --rate --json` (flashwright.db-stream/1)
    DbStream,
    /// `db ingest --json` (flashwright.db-ingest/1)
    DbIngest,
    /// `db compare --json` and `db report --json` (flashwright.db-compare/1)
    DbCompare,
    /// `db advise --json` (flashwright.db-advise/1)
    DbAdvise,
    /// `bfs generate --json`, `bfs import --json`, and `bfs info --json` of an edge list (flashwright.edges/1)
    Edges,
    /// `bfs build --json`, and `bfs info --json` of a graph (flashwright.graph/1)
    Graph,
    /// `bfs run --json` (flashwright.bfs/1)
    Bfs,
    /// `bfs run --sources --json` (flashwright.bfs-many/1)
    BfsMany,
    /// `bfs validate --json` (flashwright.bfs-validate/1)
    BfsValidate,
    /// `bfs bench --json` (flashwright.bfs-bench/1)
    BfsBench,
    /// `bfs export --json` (flashwright.bfs-export/1)
    BfsExport,
    /// `bfs bench --tiers --json` (flashwright.bfs-tiers/1)
    BfsTiers,
    /// `sweep status --json` (flashwright.status/1)
    Status,
    /// `sweep diff --json` (flashwright.diff/2)
    Diff,
    /// `sweep check-statistics --json` (flashwright.statistics/1)
    Statistics,
    /// `sweep check-search --json` (flashwright.search-check/1)
    SearchCheck,
    /// `sim papers --json` (flashwright.papers/1)
    Papers,
    /// `sim fit --json` (flashwright.fit/1)
    Fit,
    /// `tune show --json` (flashwright.tune/1)
    Tune,
    /// `layout up --json` and `tune apply --json` (flashwright.layout/1)
    Layout,
    /// `layout undo --json`, `layout down --json` and `tune undo --json` (flashwright.layout-undone/1)
    LayoutUndone,
    /// `layout show --json` (flashwright.layout-standing/1)
    LayoutStanding,
    /// `layout survey --json` (flashwright.layout-survey/1)
    LayoutSurvey,
    /// `memory serve --json` and `volume export --json` (flashwright.serve/1)
    Serve,
    /// `volume show --json` and `volume create --json` (flashwright.volumes/1)
    Volumes,
    /// `volume check --json` (flashwright.volume-check/1)
    VolumeCheck,
    /// `volume check --data --json` (flashwright.volume-data/1)
    VolumeData,
    /// `stage status --json`, and of all verbs of stage that hand jobs in (flashwright.stage-status/1)
    StageStatus,
    /// `stage watch --json`, a line (flashwright.stage-watch/1)
    StageWatch,
    /// `stage verify --json` (flashwright.stage-verify/1)
    StageVerify,
    /// `stage evict --json` (flashwright.stage-evict/1)
    StageEvict,
    /// `stage sets --json` (flashwright.stage-sets/1)
    StageSets,
    /// `stage doctor --json` (flashwright.stage-doctor/1)
    StageDoctor,
    /// `stage pools list --json` (flashwright.stage-pools/1)
    StagePools,
    /// `stage pools reserve --json` (flashwright.stage-reservation/1)
    StageReservation,
    /// An error, with `--json` (flashwright.error/1)
    Error,
    /// What the socket of `stage serve` is asked, a document a line (flashwright.stage/1)
    StageRequest,
    /// What it answers
    StageAnswer,
    /// The first line of a set's manifest (flashwright.manifest/1)
    StageManifestHeader,
    /// The lines after that
    StageManifestEntry,
}

/// What the command line came to.
#[derive(Debug)]
pub enum Parsed {
    /// Something to do.
    Command(Box<Command>),
    /// Help or version, which has been printed.
    Answered,
    /// Nothing that can be done.
    Wrong(Failure),
}

/// Flags beyond which `-h` shows only the most used.
const MANY: usize = 16;

/// The most used flags of verbs with many.
const MOST_USED: [&str; 24] = [
    "rw",
    "bs",
    "iodepth",
    "numjobs",
    "runtime",
    "size",
    "direct",
    "ioengine",
    "rate_iops",
    "target",
    "destroy",
    "json",
    "output",
    "file",
    "space",
    "machine",
    "budget",
    "passes",
    "source",
    "destination",
    "to",
    "foreground",
    "wait",
    "bwlimit",
];

/// The command line with its two helps: `--help` tells all, `-h` the most used flags of a verb and no examples.
pub fn command() -> clap::Command {
    shaped(Cli::command(), "flashwright")
}

fn shaped(command: clap::Command, path: &str) -> clap::Command {
    let below: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let flags: Vec<String> = command.get_arguments().map(|flag| flag.get_id().to_string()).collect();
    let is_rare = |flag: &str| flags.len() > MANY && !MOST_USED.contains(&flag);
    let is_shortened = flags.iter().any(|flag| is_rare(flag));
    let mut command = command;
    if path != "flashwright"
        && let Some(examples) = command.get_after_help().cloned()
    {
        let all = match is_shortened {
            true => format!("These are the most used flags; `{path} --help` has all of them, and examples."),
            false => format!("`{path} --help` has examples."),
        };
        command = command.after_long_help(examples).after_help(all);
    } else if is_shortened {
        command =
            command.after_help(format!("These are the most used flags; `{path} --help` has all of them."));
        command = command.after_long_help("");
    }
    command = command.mut_args(|flag| {
        let rare = is_rare(flag.get_id().as_str());
        if rare { flag.hide_short_help(true) } else { flag }
    });
    for name in below {
        let path = format!("{path} {name}");
        command = command.mut_subcommand(name, |verb| shaped(verb, &path));
    }
    command
}

/// Prints the help of a verb.
pub fn help(args: &HelpArgs) -> Result<(), Failure> {
    let mut verb = command();
    verb.build();
    for word in &args.verbs {
        let Some(below) = verb.find_subcommand(word) else {
            let (word, name) = (word.display(), verb.get_bin_name().unwrap_or("flashwright"));
            return Err(Failure::invalid(format!("'{word}' is no verb of {name}"))
                .hint("`flashwright help` lists the verbs"));
        };
        verb = below.clone();
    }
    // As clap answers the flag, which knows whether a verb has two lengths of help.
    let flag = [OsString::from("flashwright")].into_iter().chain(args.verbs.clone()).chain(["--help".into()]);
    match command().try_get_matches_from(flag) {
        Err(answer) => output::print(&answer.render().ansi().to_string()),
        Ok(_) => Err(Failure::failed("a verb has no help")),
    }
}

/// Reads the command line.
pub fn parse() -> Parsed {
    let read = command().try_get_matches().and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
    match read {
        Ok(cli) => Parsed::Command(Box::new(cli.command)),
        Err(error) => match usage::explain(&error, &command()) {
            Ok(()) => Parsed::Answered,
            Err(failure) => Parsed::Wrong(failure),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::CommandFactory;

    use crate::usage::command_of;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn examples_of_help_fit_a_terminal_of_80_columns() {
        let mut commands = vec![super::command()];
        let mut wide = Vec::new();
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands().cloned());
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            let lines = help.lines().filter(|line| line.starts_with("  ") && line.chars().count() > 80);
            wide.extend(lines.map(|line| format!("{}: {line}", command.get_name())));
        }
        assert!(wide.is_empty(), "{wide:#?}");
    }
    #[test]
    fn every_verb_is_named_in_errors_about_its_flags() {
        let mut open = vec![(Vec::new(), super::Cli::command())];
        while let Some((path, command)) = open.pop() {
            for verb in command.get_subcommands() {
                let path = [&path[..], &[verb.get_name().to_owned()]].concat();
                let typed = path.iter().map(String::as_str).chain(["--nonsense", "run"]).map(OsString::from);
                assert_eq!(
                    command_of(&super::Cli::command(), typed),
                    format!("flashwright {}", path.join(" "))
                );
                open.push((path, verb.clone()));
            }
        }
        let name = ["bench", "run"].map(OsString::from);
        assert_eq!(
            command_of(&super::Cli::command(), name),
            "flashwright bench",
            "an argument that is a verb elsewhere"
        );
    }
}
