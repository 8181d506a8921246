//! `flashwright layout`: arrays, file systems and settings by hand, with the machinery that a sweep uses.

pub mod args;
pub mod documents;

use std::os::unix::fs::FileTypeExt;

use ::layout::{Built, LayoutError, LayoutSpec, Layouts, Permits, Undone};

use base::{Filesystem, LayoutKind};

use self::args::{DownArgs, LayoutArgs, LayoutCommand, ShowArgs, SurveyArgs, UpArgs};
use crate::failure::Failure;
use crate::{output, paint, signals};

/// Makes, takes down or shows.
pub fn layout(args: &LayoutArgs) -> Result<(), Failure> {
    match &args.command {
        LayoutCommand::Up(args) => up(args),
        LayoutCommand::Down(args) | LayoutCommand::Undo(args) => undo(args),
        LayoutCommand::Show(args) => show(args),
        LayoutCommand::Survey(args) => survey(args),
    }
}

impl From<LayoutError> for Failure {
    fn from(error: LayoutError) -> Self {
        Self::of(error.class(), &error).hint_if(error.hint())
    }
}

/// Words on long steps, for somebody who watches.
fn say(words: &str) {
    if output::is_watched() {
        output::tell(&format!("{}\n", paint::dim(words)));
    }
}

fn up(args: &UpArgs) -> Result<(), Failure> {
    let spec = LayoutSpec::parse(&args.spec).map_err(LayoutError::from)?;
    let stop = signals::stop_flag()?;
    let permits = Permits { destroy: args.destroy.clone() };
    let mut layouts = Layouts::open(&::layout::state_dir(), permits, stop.into())?;
    layouts.tell(say);
    layouts.set_file_bytes(args.file_size);
    let built = match layouts.switch(&spec) {
        Ok(built) => built,
        Err(error) => {
            let failure = Failure::from(error);
            return Err(match layouts.down() {
                Ok(_) => failure,
                // What went wrong matters more than that its remains are still there; both are said.
                Err(left) => failure.hint(format!("{left}; `flashwright layout undo` tries again")),
            });
        }
    };
    layouts.leave()?;
    if args.json {
        return output::print_document(&documents::Up::new(&spec, built));
    }
    output::print(&describe(&spec, &built))
}

fn describe(spec: &LayoutSpec, built: &Built) -> String {
    let mut text = format!("{}\n", paint::title(&spec.to_string()));
    let mut row = |name: &str, value: &str| text += &format!("  {name:<20} {value}\n");
    row("measure it as", &built.device_spec);
    for (name, value) in &built.facts {
        row(name, value);
    }
    for note in &built.notes {
        row("note", note);
    }
    row("take it down", "flashwright layout down");
    text
}

fn undo(args: &DownArgs) -> Result<(), Failure> {
    let (state, stop) = (::layout::state_dir(), signals::stop_flag()?.into());
    let host = &mut ::layout::system::Host::default();
    let undone = ::layout::undo_on(host, &state, &stop, &mut say, args.abandon)?;
    if args.json {
        return output::print_document(&documents::Down::new(undone));
    }
    output::print(&words(&undone))
}

fn words(undone: &Undone) -> String {
    if undone.undone.is_empty() && undone.abandoned.is_empty() {
        return "nothing stands, nothing was changed\n".to_owned();
    }
    let done = undone.undone.iter().map(|change| format!("undone: {change}\n"));
    let abandoned = undone.abandoned.iter().map(|change| format!("{}: {change}\n", paint::warn("given up")));
    done.chain(abandoned).collect()
}

fn show(args: &ShowArgs) -> Result<(), Failure> {
    let standing = ::layout::standing(&::layout::state_dir())?;
    if args.json {
        return output::print_document(&documents::Show::new(standing));
    }
    let Some(standing) = standing else { return output::print("nothing stands\n") };
    let spec = standing.spec.as_deref().unwrap_or("a layout that was never finished");
    let process = standing.process;
    let lives = std::path::Path::new("/proc").join(process.to_string()).exists();
    let by = match (standing.by_hand, lives) {
        (true, _) => "by hand; `flashwright layout down` takes it down".to_owned(),
        (false, true) => format!("by process {process}, which is at work"),
        (false, false) => {
            format!(
                "by process {process}, which has died; `flashwright layout undo` restores what it changed"
            )
        }
    };
    let mut text = format!("{}\n  made {by}\n", paint::title(spec));
    if let Some(device) = &standing.device_spec {
        text += &format!("  measure it as {device}\n");
    }
    for change in &standing.changes {
        text += &format!("  {change}\n");
    }
    output::print(&text)
}

/// What is asked about each setting: every kind, file system and scheduler, and whether the others are there.
const ASKED: [(&str, &[&str]); 4] = [
    ("layout", &LayoutKind::WORDS),
    ("filesystem", &Filesystem::SETTINGS),
    ("scheduler", &["none", "mq-deadline", "kyber", "bfq"]),
    ("irq_cpus", &["spread"]),
];

fn survey(args: &SurveyArgs) -> Result<(), Failure> {
    for drive in &args.drives {
        let wrong = match std::fs::metadata(drive) {
            Ok(found) if found.file_type().is_block_device() => continue,
            Ok(_) => "it is not a block device".to_owned(),
            Err(error) => error.to_string(),
        };
        return Err(Failure::invalid(format!("{}: cannot be surveyed: {wrong}", drive.display()))
            .hint("name drives, such as /dev/nvme0n1; lsblk lists those of this host"));
    }
    let available = ::layout::survey(&args.drives);
    let answers = ASKED.iter().flat_map(|(name, values)| values.iter().map(move |value| (*name, *value)));
    let answers: Vec<_> =
        answers.map(|(name, value)| (name, value, available.check(name, value).err())).collect();
    if args.json {
        return output::print_document(&documents::Survey::new(&answers));
    }
    output::print(&table(&answers))
}

fn table(answers: &[(&str, &str, Option<String>)]) -> String {
    answers
        .iter()
        .map(|(name, value, reason)| {
            let verdict = match reason {
                None => paint::good("yes"),
                Some(reason) => format!("{}: {reason}", paint::warn("no")),
            };
            format!("{:<24} {verdict}\n", format!("{name}={value}"))
        })
        .collect()
}
