//! The flags of `bench`: every option of a workload in fio's spelling, and where it runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use measure::Workload;
use measure::options::{self, ValueKind, WorkloadOption};
use measure::precondition::Precondition;
use serde_json::Value;

use crate::failure::Failure;
use crate::output::Sink;
use crate::values::{self, BadValue};

const EXAMPLES: &str = "\
Examples:
  flashwright bench --rw=randread --bs=4k --iodepth=32 --target FILE
  flashwright bench --rw=write --bs=1m --size=1g --target NEWFILE
                       make NEWFILE and write it
  flashwright bench --rw=randwrite --bs=4k \\
      --target /dev/nvme1n1 --destroy /dev/nvme1n1
  flashwright bench --rw=randread --rate_iops=20k --target FILE
                       open loop: latency under a given load
  flashwright bench job.fio --dry-run
  flashwright bench job.fio --runtime=30 --output-format=fio-json
  flashwright bench --rw=randwrite --bs=4k --purge --precondition=steady \\
      --target /dev/nvme1n1 --destroy /dev/nvme1n1
  flashwright bench --wsat --purge --output curve/ \\
      --target /dev/nvme1n1 --destroy /dev/nvme1n1
  mpirun -n 64 flashwright bench --rw=write --bs=1m --size=4g --target /pfs/f
                       64 tasks on all nodes, a file each
  flashwright bench --tasks 4 --rw=read --bs=1m --size=4g --target /pfs/f \\
      --reorder        four processes here; each reads another's file

A target is a path, file:PATH?size=4g, mem:4g, or several of these as one: stripe(chunk=64k):SPEC,SPEC, \
separate:SPEC,SPEC, or a labelled volume (flashwright volume), volume:SPEC,SPEC. Sizes are powers of two (4k is 4096), times are \
seconds unless they name a unit. Flags are spelled as fio spells them; hyphens do as well as \
underscores.";

/// `flashwright bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// A workload in TOML, or a fio job file; flags go before what the file says
    #[arg(value_name = "JOBFILE.fio|WORKLOAD.toml")]
    pub file: Option<PathBuf>,

    /// What to measure: a file, a block device, file:PATH?size=4g, mem:4g, stripe(chunk=64k):SPEC,SPEC,
    /// separate:SPEC,SPEC or volume:SPEC,SPEC
    #[arg(long, alias = "filename", value_name = "SPEC", help_heading = "Target and safety")]
    pub target: Option<String>,
    /// A device or file whose contents may be lost; may be given several times
    #[arg(long, value_name = "DEV", help_heading = "Target and safety")]
    pub destroy: Vec<PathBuf>,
    /// Measure reads of holes and unwritten extents, which the kernel answers from nothing
    #[arg(long, alias = "allow_unwritten", help_heading = "Target and safety")]
    pub allow_unwritten: bool,

    #[command(flatten)]
    pub workload: WorkloadArgs,

    /// Do it with so many processes at once, each with its share; mpirun starts them itself
    #[arg(long, value_name = "N", value_parser = values::whole::<u32>, help_heading = "Several tasks")]
    pub tasks: Option<u32>,
    /// One target for all tasks, each with its own --size bytes of it; else each has a file, TARGET.00000000 and on
    #[arg(long, help_heading = "Several tasks")]
    pub shared: bool,
    /// Each task reads what another one wrote, on another node where there are several
    #[arg(long, help_heading = "Several tasks")]
    pub reorder: bool,

    /// Print what becomes of each key of fio's job files, or of one, and exit
    #[arg(
        long,
        value_name = "KEY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
        help_heading = "Output"
    )]
    pub cmdhelp: Option<String>,

    /// Say what would run and on what, and change nothing
    #[arg(long = "dry-run", alias = "dry_run", conflicts_with_all = ["json", "output_format", "tasks"], help_heading = "Output")]
    pub dry_run: bool,

    #[command(flatten)]
    pub prepare: PrepareArgs,

    /// Print one JSON document (flashwright.bench/1)
    #[arg(long, conflicts_with = "output_format", help_heading = "Output")]
    pub json: bool,
    /// The form of the result: text, json, or fio's own: fio-json, or json+ with all latency bins
    #[arg(
        long,
        alias = "output_format",
        value_enum,
        value_name = "FORMAT",
        hide_possible_values = true,
        help_heading = "Output"
    )]
    pub output_format: Option<OutputFormat>,
    /// Write the result to a file instead of standard output; with --wsat, plot, CSV and JSON to a directory
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Replace the file that --output names even if flashwright did not write it
    #[arg(long, help_heading = "Output")]
    pub force: bool,
    /// Say each second how it goes, on standard error, even if that is no terminal
    #[arg(long, help_heading = "Output")]
    pub live: bool,
}

/// What happens before the run, or in its place.
#[derive(Debug, Clone, Default, Args)]
pub struct PrepareArgs {
    /// Before measuring: fill writes the region twice; steady then repeats the workload until it is steady
    #[arg(long, value_parser = values::word::<Precondition>, value_name = "none|fill|steady", help_heading = "Preconditioning")]
    pub precondition: Option<Precondition>,
    /// Discard the region first; a file is punched and written again, which is no purge of the drive
    #[arg(long, help_heading = "Preconditioning")]
    pub purge: bool,
    /// Length of a round in which steadiness is judged [default: 60s]
    #[arg(long = "round_time", alias = "round-time", value_parser = values::positive_duration, value_name = "TIME", help_heading = "Preconditioning")]
    pub round_time: Option<Duration>,
    /// The most rounds of --precondition=steady [default: 25]
    #[arg(long = "max_rounds", alias = "max-rounds", value_parser = values::whole::<u32>, value_name = "N", help_heading = "Preconditioning")]
    pub max_rounds: Option<u32>,
    /// Write-saturation curve: write at random until the drive is steady, and find where its rate falls
    #[arg(long, help_heading = "Preconditioning")]
    pub wsat: bool,
    /// With --wsat: end after so many times the region [default: 4]
    #[arg(long, value_parser = values::whole::<u32>, value_name = "N", help_heading = "Preconditioning")]
    pub capacities: Option<u32>,
    /// With --wsat: 0 goes on to --capacities even if it is steady [default: 1]
    #[arg(long = "until_steady", alias = "until-steady", value_parser = values::switch, value_name = "0|1", help_heading = "Preconditioning")]
    pub until_steady: Option<bool>,
}

impl PrepareArgs {
    /// The first flag that was given.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("precondition", self.precondition.is_some()),
            ("purge", self.purge),
            ("round_time", self.round_time.is_some()),
            ("max_rounds", self.max_rounds.is_some()),
            ("wsat", self.wsat),
            ("capacities", self.capacities.is_some()),
            ("until_steady", self.until_steady.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}

/// The forms of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people
    #[value(alias = "normal")]
    Text,
    /// flashwright.bench/1
    Json,
    /// What fio's `--output-format=json` prints
    #[value(name = "fio-json")]
    FioJson,
    /// The same with the bins of the latency histograms
    #[value(name = "json+", alias = "fio-json+")]
    FioJsonPlus,
}

impl BenchArgs {
    /// The first flag that was given and needs several tasks.
    pub fn first_of_tasks(&self) -> Option<&'static str> {
        let given = [("shared", self.shared), ("reorder", self.reorder)];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    /// Where the result goes. A name's extension must not promise another form than the one asked for.
    pub fn sink(&self) -> Result<Sink, Failure> {
        if self.cmdhelp.is_none() {
            self.check_extension()?;
        }
        Sink::of(self.output.as_deref(), self.force)
    }

    fn check_extension(&self) -> Result<(), Failure> {
        let Some(path) = &self.output else { return Ok(()) };
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
        let is_text = self.format() == OutputFormat::Text;
        let (form, hint) = match extension.as_str() {
            "json" if is_text => ("text", "add --json, or name a file that ends in .txt"),
            "txt" | "log" if !is_text => ("JSON", "name a file that ends in .json"),
            "html" | "htm" | "csv" | "md" => {
                ("text or JSON", "name a file that ends in .txt or .json; pages and tables are of sweeps")
            }
            _ => return Ok(()),
        };
        Err(Failure::invalid(format!("--output={}: what is written is {form}", path.display())).hint(hint))
    }

    /// The form asked for.
    pub fn format(&self) -> OutputFormat {
        match self.output_format {
            Some(format) => format,
            None if self.json => OutputFormat::Json,
            None => OutputFormat::Text,
        }
    }
}

/// Every option of a workload: a flag for each row of [`options::OPTIONS`].
#[derive(Debug, Clone, Default)]
pub struct WorkloadArgs {
    given: Vec<(&'static WorkloadOption, Value)>,
}

impl WorkloadArgs {
    /// Puts what was given into a workload.
    pub fn apply(&self, workload: &mut Workload) -> Result<(), Failure> {
        for (option, value) in &self.given {
            option
                .set(workload, value.clone())
                .map_err(|why| Failure::invalid(format!("--{}: {why}", option.name)))?;
        }
        Ok(())
    }

    /// The first flag that was given, in fio's spelling.
    pub fn first_given(&self) -> Option<&'static str> {
        self.given.first().map(|(option, _)| option.name)
    }

    /// What was given, as keys of fio's job files with their values.
    pub fn fio_settings(&self) -> Result<Vec<(String, String)>, Failure> {
        let mut settings = Vec::new();
        for (option, value) in &self.given {
            let Some(key) = option.fio else { continue };
            let mut workload = Workload::default();
            option
                .set(&mut workload, value.clone())
                .map_err(|why| Failure::invalid(format!("--{}: {why}", option.name)))?;
            let text = fio_value(option, value, &workload)?;
            settings.push((key.to_owned(), text));
        }
        Ok(settings)
    }

    /// Puts what was given and fio has no key for into a workload.
    pub fn apply_own(&self, workload: &mut Workload) -> Result<(), Failure> {
        for (option, value) in self.given.iter().filter(|(option, _)| option.fio.is_none()) {
            option
                .set(workload, value.clone())
                .map_err(|why| Failure::invalid(format!("--{}: {why}", option.name)))?;
        }
        Ok(workload.validate()?)
    }

    /// Whether an option was given.
    pub fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(option, _)| option.name == name)
    }
}

/// An option's value in the words of fio's job files.
fn fio_value(option: &WorkloadOption, value: &Value, workload: &Workload) -> Result<String, Failure> {
    let text = option.text(workload).unwrap_or_default();
    Ok(match (option.name, option.kind, text.as_str()) {
        ("verify", _, "xxh3") => "xxhash".to_owned(),
        ("pages", _, "auto") => "malloc".to_owned(),
        ("pages", _, "huge") => "mmaphuge".to_owned(),
        ("pages", ..) => {
            return Err(Failure::invalid(format!("--pages={text} cannot be combined with a job file"))
                .hint("fio has no word for these pages; leave it out, or write --pages=huge"));
        }
        // fio reads no fractions.
        (_, ValueKind::Duration | ValueKind::PositiveDuration, _) => {
            format!("{}us", (value.as_f64().unwrap_or_default() * 1e6).round() as u64)
        }
        _ => text,
    })
}

impl FromArgMatches for WorkloadArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value =
            |option: &'static WorkloadOption| Some((option, matches.get_one::<Value>(option.name)?.clone()));
        Ok(Self { given: options::OPTIONS.iter().filter_map(value).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for WorkloadArgs {
    fn augment_args(command: Command) -> Command {
        options::OPTIONS.iter().fold(command, |command, option| command.arg(flag(option)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The flag of an option.
fn flag(option: &'static WorkloadOption) -> Arg {
    let flag = Arg::new(option.name)
        .long(option.name)
        .aliases(option.aliases)
        .help(option.help)
        .help_heading(option.heading)
        .value_name(option.kind.placeholder())
        .value_parser(move |text: &str| value(option.kind, text));
    match option.kind {
        ValueKind::Switch => flag.num_args(0..=1).require_equals(true).default_missing_value("1"),
        ValueKind::Split if option.name == "bssplit" => flag.conflicts_with("bs"),
        _ => flag,
    }
}

/// What a flag's text means, in the form that the field has in a record.
fn value(kind: ValueKind, text: &str) -> Result<Value, BadValue> {
    let json = |value: Result<Value, serde_json::Error>| {
        value.map_err(|error| BadValue::new(error.to_string(), "a plain value"))
    };
    Ok(match kind {
        ValueKind::Size => values::size(text)?.into(),
        // fio reads `20k` requests a second as 20,480, as it does every size, and so does this.
        ValueKind::PositiveSize | ValueKind::Rate => values::positive_size(text)?.into(),
        ValueKind::SignedSize => values::signed_size(text)?.into(),
        ValueKind::Duration => values::duration(text)?.as_secs_f64().into(),
        ValueKind::PositiveDuration => values::positive_duration(text)?.as_secs_f64().into(),
        ValueKind::Switch => values::switch(text)?.into(),
        ValueKind::Count => values::whole::<u32>(text)?.into(),
        ValueKind::Seed => values::whole::<u64>(text)?.into(),
        ValueKind::Percent => values::whole::<u8>(text)?.into(),
        ValueKind::Fraction => values::fraction(text)?.into(),
        ValueKind::Word(words) => {
            (words.canonical)(text).ok_or_else(|| values::unknown_word(text, words.list))?.into()
        }
        ValueKind::Distribution => json(serde_json::to_value(values::random_distribution(text)?))?,
        ValueKind::Split => json(serde_json::to_value(values::bssplit(text)?))?,
        ValueKind::Numbers => values::number_list(text)?.to_string().into(),
        ValueKind::Pattern => values::pattern(text)?.to_string().into(),
        ValueKind::Text if text.is_empty() => return Err(BadValue::new("is empty", "leave it out")),
        ValueKind::Text => text.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_option_is_a_flag_and_documented_as_the_table_has_it() {
        let command = WorkloadArgs::augment_args(Command::new("bench"));
        let page = include_str!("../../../../docs/options.md");
        let mut expected = String::new();
        for option in options::OPTIONS {
            assert!(command.get_arguments().any(|arg| arg.get_id() == option.name), "{}", option.name);
            let code = |text: Option<String>| match text {
                Some(text) if !text.is_empty() => format!("`{text}`"),
                _ => "–".to_owned(),
            };
            let default = code(option.text(&Workload::default()));
            let fio = code(option.fio.map(str::to_owned));
            let (name, unit, class) = (option.name, option.kind.unit(), option.class.word());
            let (help, _) = option.help.split_once(" [default").unwrap_or((option.help, ""));
            expected += &format!("| `{name}` | {unit} | {default} | {class} | {fio} | {help} |\n");
        }
        let rows: String =
            page.lines().filter(|line| line.starts_with("| `")).map(|row| format!("{row}\n")).collect();
        assert!(rows == expected, "docs/options.md is to have these rows:\n{expected}");
    }

    /// Python passes False as a flag of these alone; for all other flags it leaves the flag out, and a file's value stands.
    #[test]
    fn python_knows_every_flag_that_takes_0_or_1() {
        let command = BenchArgs::augment_args(Command::new("bench"));
        let takes_switch = |arg: &&Arg| {
            arg.get_value_names().is_some_and(|names| names == [ValueKind::Switch.placeholder()])
        };
        let switches: BTreeSet<&str> =
            command.get_arguments().filter(takes_switch).filter_map(Arg::get_long).collect();
        assert!(switches.contains("direct") && switches.contains("until_steady"), "{switches:?}");
        let module = include_str!("../../../../python/flashwright/_run.py");
        let known = module.split_once("_SWITCHES = frozenset((").and_then(|(_, list)| list.split_once("))"));
        let (known, _) = known.expect("a list of switches");
        let known: BTreeSet<&str> = known.split('"').skip(1).step_by(2).collect();
        assert_eq!(known, switches);
    }
}
