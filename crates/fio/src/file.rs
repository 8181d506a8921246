//! [`JobFile`]: a job file read.
//!
//! Reading goes through the file twice. First every key is looked up, in every section, so that a key
//! that is unknown or refused is reported even where a later one would take its place. Then each job
//! section is made into a job from the settings of the globals before it and its own, of which, as in
//! fio, the last of a kind wins.

use std::path::{Path, PathBuf};

use measure::Workload;
use storage::device::zone_bytes_of;

use super::acts;
use super::beside::{logs, names_of_several, not_together};
use super::draft::Draft;
use super::error::{Faults, JobFileError, Location, Problem};
use super::fill;
use super::job::{Group, Job};
use super::keys::{self, Treatment};
use super::keywords;
use super::lines::{self, Environment, Section, Setting, Source};
use super::paths::{Paths, length, paths, too_many};
use super::resolve;
use bench::acts::Act;
use bench::run::cohorts::{Arrangement, Ends};

/// A job file that can be run.
#[derive(Debug, Clone, PartialEq)]
pub struct JobFile {
    /// Where it is.
    pub path: PathBuf,
    /// The options of all global sections, for `global options` in fio-json.
    pub global_options: Vec<(String, String)>,
    /// To be run one after the other.
    pub groups: Vec<Group>,
    /// The keys that stand in it and change nothing here, in fio's main spelling.
    pub without_effect: Vec<&'static str>,
}

impl JobFile {
    /// Reads a job file with the process's environment for `${NAME}`.
    ///
    /// # Errors
    /// [`JobFileError`] naming file and line; nothing has been touched.
    pub fn read(path: &Path) -> Result<Self, JobFileError> {
        Self::read_with(path, &|name| std::env::var(name).ok(), &[])
    }

    /// Reads a job file with a given environment. `flags` are keys and values that come after those of each section, as
    /// fio's flags beside a job file do.
    ///
    /// # Errors
    /// As [`JobFile::read`].
    pub fn read_with(
        path: &Path,
        environment: Environment<'_>,
        flags: &[(String, String)],
    ) -> Result<Self, JobFileError> {
        Self::build(path, lines::read(path, environment)?, flags)
    }

    /// Reads `text` as if it stood at `path`; includes are looked for beside that.
    ///
    /// # Errors
    /// As [`JobFile::read`].
    pub fn parse(text: &str, path: &Path, environment: Environment<'_>) -> Result<Self, JobFileError> {
        Self::build(path, lines::split(text, path, environment)?, &[])
    }

    /// All jobs, in the order of the file.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.groups.iter().flat_map(|group| &group.jobs)
    }

    fn build(path: &Path, source: Source, flags: &[(String, String)]) -> Result<Self, JobFileError> {
        let Source { mut sections, mut faults } = source;
        append(&mut sections, flags);
        let not_calculated = keywords::replace(&mut sections);
        faults.extend(not_calculated.into_iter().map(|(setting, problem)| refused(&setting, problem)));
        faults.extend(unknown(&sections).into_iter());
        let mut file = Self {
            path: path.to_owned(),
            global_options: Vec::new(),
            groups: Vec::new(),
            without_effect: Vec::new(),
        };
        file.without_effect = without_effect(&sections);
        let mut globals: Vec<Setting> = Vec::new();
        let mut count = Count::default();
        for section in sections {
            if section.is_global() {
                globals.extend(section.settings);
                continue;
            }
            let (draft, settings, wrong) = draft(&globals, &section);
            let is_whole = wrong.is_empty();
            faults.extend(wrong);
            if draft.stonewall || file.groups.is_empty() {
                file.groups.push(Group::default());
            }
            match jobs(&section, &draft, &settings, &mut count) {
                Ok(mut jobs) => {
                    if let Some(name) = &draft.wait_for {
                        match file.awaited(name) {
                            Some(after) => {
                                jobs.iter_mut().for_each(|job| job.arrangement.after.clone_from(&after))
                            }
                            None => {
                                faults.extend(settings.find("wait_for").map(|s| refused(s, no_such_job())))
                            }
                        }
                    }
                    if let Some(group) = file.groups.last_mut() {
                        group.jobs.extend(jobs);
                    }
                }
                // What does not agree may follow from what was left out.
                Err(error) if is_whole => faults.push(error),
                Err(_) => {}
            }
        }
        for group in &file.groups {
            faults.extend(not_together(group));
        }
        faults.extend(names_of_several(&file.jobs().collect::<Vec<_>>()));
        faults.into_result(path)?;
        if file.groups.is_empty() {
            return Err(JobFileError::NoJobs { path: path.to_owned() });
        }
        file.global_options = options(globals.iter());
        for group in &mut file.groups {
            // Groups tell jobs apart only where one ends another's.
            if group.jobs.iter().all(|job| job.arrangement.ends != Ends::Group) {
                group.jobs.iter_mut().for_each(|job| job.arrangement.group = 0);
            }
        }
        Ok(file)
    }

    /// The places in the last group of the jobs of a name; empty if they run in an earlier group, and are over by then.
    /// None if there are none.
    fn awaited(&self, name: &str) -> Option<Vec<usize>> {
        let group = self.groups.last()?;
        let is_named = |job: &Job| job.name == name;
        let places = group.jobs.iter().enumerate().filter(|(_, job)| is_named(job)).map(|(place, _)| place);
        let places: Vec<usize> = places.collect();
        (!places.is_empty() || self.jobs().any(is_named)).then_some(places)
    }
}

/// What is wrong with a `wait_for`.
fn no_such_job() -> Problem {
    Problem::new("no job before this one has this name", "name an earlier section")
}

/// Puts flags behind the settings of each section.
fn append(sections: &mut [Section], flags: &[(String, String)]) {
    let at = Location::of_flags();
    for section in sections.iter_mut().filter(|section| !section.is_global()) {
        section.settings.extend(flags.iter().map(|(key, value)| Setting {
            key: key.clone(),
            value: Some(value.clone()),
            at: at.clone(),
        }));
    }
}

/// The errors of keys that do not exist or are refused whatever their value, in every section, so that one is reported even
/// where a later setting would take its place.
fn unknown(sections: &[Section]) -> Faults {
    let settings = || sections.iter().flat_map(|section| &section.settings);
    let mut faults = Faults::default();
    faults.extend(settings().filter_map(|setting| known(setting).err()));
    let engines: Vec<JobFileError> = settings().filter_map(foreign_engine).collect();
    if !engines.is_empty() {
        // An option of an engine that is not here is explained by the engine.
        faults.retain(|fault| {
            !matches!(fault, JobFileError::UnknownKey { .. }) && !keys::is_of_other_engine(fault.hint())
        });
        faults.extend(engines);
    }
    faults
}

/// The keys that change nothing.
fn without_effect(sections: &[Section]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for key in sections.iter().flat_map(|section| &section.settings).filter_map(|s| keys::find(&s.key)) {
        if matches!(key.treatment, Treatment::Accepted(_)) && !names.contains(&key.name) {
            names.push(key.name);
        }
    }
    names
}

/// What fio counts over a whole job file.
#[derive(Debug, Default)]
struct Count {
    threads: u64,
    group_id: u32,
    jobs_in_group: u64,
}

/// Refuses keys that do not exist or are not supported, whatever their value.
fn known(setting: &Setting) -> Result<(), JobFileError> {
    match keys::find(&setting.key) {
        None => Err(JobFileError::UnknownKey {
            at: setting.at.clone(),
            key: setting.key.clone(),
            hint: keys::nearest(&setting.key),
        }),
        Some(key) => match key.treatment {
            Treatment::Refused(hint) => {
                Err(refused(setting, Problem::new(key.note.replace('`', ""), hint.replace('`', ""))))
            }
            Treatment::Supported(_) | Treatment::Accepted(_) => Ok(()),
        },
    }
}

/// The error of an `ioengine` that flashwright does not have.
fn foreign_engine(setting: &Setting) -> Option<JobFileError> {
    let value = setting.value.as_deref();
    let apply = super::draft::words::ioengine;
    (setting.key == "ioengine")
        .then(|| apply(&mut Draft::default(), value).err())
        .flatten()
        .map(|problem| refused(setting, problem))
}

fn refused(setting: &Setting, problem: Problem) -> JobFileError {
    JobFileError::Refused {
        at: setting.at.clone(),
        key: setting.key.clone(),
        value: setting.value.clone(),
        reason: problem.reason,
        hint: problem.hint,
    }
}

/// The settings that count, by the key's main spelling, in the order in which they stand.
struct Effective<'a>(Vec<(&'static str, &'a Setting)>);

impl<'a> Effective<'a> {
    fn of(settings: impl Iterator<Item = &'a Setting>) -> Self {
        let mut effective: Vec<(&'static str, &Setting)> = Vec::new();
        for setting in settings {
            let Some(key) = keys::find(&setting.key) else {
                continue;
            };
            effective.retain(|(name, _)| *name != key.name);
            effective.push((key.name, setting));
        }
        Self(effective)
    }

    /// The setting that gives `option` its value: its own, or one that shares its meaning.
    fn of_option(&self, option: &str) -> Option<&'a Setting> {
        let same: &[&str] = match option {
            "cpus_allowed" => return self.later(["cpus_allowed", "cpumask"]),
            "direct" => return self.later(["direct", "buffered"]),
            "rwmixread" => return self.later(["rwmixread", "rwmixwrite"]),
            "bs" => &["bs", "bsrange", "bssplit"],
            "bssplit" => &["bssplit", "bsrange", "bs"],
            "size" => &["size", "filesize"],
            "verify" => &["verify", "verify_pattern"],
            "continue_on_error" => &["continue_on_error", "ignore_error"],
            "rate_iops" => &["rate_iops", "rate"],
            "fixedbufs" => &["fixedbufs", "registerfiles"],
            "time_based" => &["time_based", "runtime"],
            _ => return self.find(option),
        };
        same.iter().find_map(|name| self.find(name))
    }

    /// Of two that say the same, the one that counts.
    fn later(&self, names: [&str; 2]) -> Option<&'a Setting> {
        self.0.iter().rev().find(|(known, _)| names.contains(known)).map(|(_, setting)| *setting)
    }

    fn find(&self, name: &str) -> Option<&'a Setting> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, setting)| *setting)
    }
}

/// Applies the globals and the section's own settings to fio's defaults; a setting that is wrong is left out, and told.
fn draft<'a>(globals: &'a [Setting], section: &'a Section) -> (Draft, Effective<'a>, Vec<JobFileError>) {
    let effective = Effective::of(globals.iter().chain(&section.settings));
    let mut draft = Draft::default();
    let mut wrong = Vec::new();
    for (name, setting) in &effective.0 {
        let Some(key) = keys::find(name) else {
            continue;
        };
        let result = match key.treatment {
            Treatment::Supported(apply) => apply(&mut draft, setting.value.as_deref()),
            Treatment::Accepted(values) => accepted(values, key.note, setting.value.as_deref()),
            Treatment::Refused(hint) => Err(Problem::new(key.note, hint)),
        };
        wrong.extend(result.err().map(|problem| refused(setting, problem)));
    }
    (draft, effective, wrong)
}

/// Whether a key that changes nothing has one of the values with which that is so.
fn accepted(values: &[&str], note: &str, value: Option<&str>) -> Result<(), Problem> {
    // A bare key is a switch turned on.
    let value = value.map_or("1", str::trim);
    if values.is_empty() || values.contains(&value) {
        return Ok(());
    }
    let hint = format!("only {} is honoured; leave it out", values.join(" or "));
    Err(Problem::new(note.replace('`', ""), hint))
}

/// The jobs of one section: one, or one for each copy that has a file of its own.
fn jobs(
    section: &Section,
    draft: &Draft,
    settings: &Effective<'_>,
    count: &mut Count,
) -> Result<Vec<Job>, JobFileError> {
    if let Some(problem) = too_many(section, draft) {
        let setting =
            settings.of_option("nrfiles").or(settings.of_option("numjobs")).expect("one of them was given");
        return Err(refused(setting, problem));
    }
    let paths = paths(section, draft, draft.workload.numjobs);
    let of_file = draft.act.is_none_or(Act::is_on_file);
    let whole = draft.filesize.or_else(|| length(&paths.first()[0], draft).filter(|_| of_file));
    let zone = zone_bytes_of(&paths.first()[0]).filter(|_| of_file);
    let width = paths.first().len() as u64;
    let whole = whole.map(|bytes| bytes.saturating_mul(width));
    let files = acts::Files { count: width, are_shared: matches!(paths, Paths::Shared(_)) };
    let resolved = acts::act(draft).and_then(|act| {
        let (workload, mut notes) = resolve::workload(draft, count.threads, whole, zone)?;
        let workload = match draft.fill_device && act != Some(Act::Compute) {
            true => fill::filling(workload, paths.first(), draft.uri.is_some(), &mut notes)?,
            false => workload,
        };
        let workload = match act {
            Some(act) => {
                let written = |key: &str| settings.of_option(key).map(|setting| setting.key.as_str());
                acts::workload(act, draft, workload, files, &written, &mut notes)?
            }
            None => resolve::over_files(workload, width)?,
        };
        Ok((act, resolve::conduct(draft, &workload)?, workload, notes))
    });
    let (act, conduct, workload, mut notes) =
        resolved.map_err(|(option, problem)| match settings.of_option(option) {
            Some(setting) => refused(setting, problem),
            None => JobFileError::Syntax {
                at: section.at.clone(),
                reason: format!("job '{}': {option}: {}", section.name, problem.reason),
                hint: problem.hint,
            },
        })?;
    let checks_overlap = workload.verify_backlog > 0 || conduct.any_generation && workload.verify.is_some();
    let overlaps = matches!(paths, Paths::Shared(_)) && workload.regions_overlap() && workload.rw.writes();
    // An atomic write is there as a whole, or not yet.
    if checks_overlap && overlaps && !conduct.atomic {
        let note =
            "copies of the job write the same blocks: one that another copy is just writing is told as wrong";
        notes.push(note.to_owned());
    }
    if draft.conduct.steady_is_off() {
        notes.push("steadystate without steadystate_duration judges nothing, as in fio".to_owned());
    }
    if (draft.stonewall || draft.new_group) && count.jobs_in_group > 0 {
        count.group_id += 1;
        count.jobs_in_group = 0;
    }
    let first_thread = count.threads + 1;
    count.threads += u64::from(workload.numjobs);
    count.jobs_in_group += u64::from(workload.numjobs);
    let name = draft.name.clone().unwrap_or_else(|| section.name.clone());
    let logs = logs(draft, &name);
    let job = |files: Vec<PathBuf>, mut workload: Workload, first_thread: u64| {
        workload.name.clone_from(&name);
        Job {
            name: name.clone(),
            group_id: count.group_id,
            at: section.at.clone(),
            path: files[0].clone(),
            files,
            is_export: draft.uri.is_some(),
            act,
            workload,
            options: options(section.settings.iter()),
            description: draft.description.clone(),
            arrangement: Arrangement {
                after: Vec::new(),
                delay: draft.start_delay,
                group: count.group_id,
                ends: if draft.exitall { draft.exit_what } else { Ends::Nothing },
            },
            filesize: draft.filesize,
            invalidate: draft.invalidate,
            unlink: draft.unlink,
            is_grouped: draft.group_reporting,
            overwrite: draft.overwrite,
            allow_file_create: draft.allow_file_create,
            create_on_open: draft.create_on_open,
            reporting: draft.reporting.clone(),
            conduct: conduct.clone(),
            logs: logs.clone(),
            first_thread,
            notes: notes.clone(),
        }
    };
    Ok(match paths {
        Paths::Shared(files) => vec![job(files, workload, first_thread)],
        Paths::Own(paths) => paths
            .into_iter()
            .enumerate()
            .map(|(copy, files)| (copy as u64, files))
            .map(|(copy, files)| job(files, copy_of(&workload, copy), first_thread + copy))
            .collect(),
    })
}

/// Copy `copy` of a job whose copies have a file each: one thread, with the seed and offset that the
/// thread would have had.
fn copy_of(workload: &Workload, copy: u64) -> Workload {
    let step = workload.offset_increment.unwrap_or(0).saturating_mul(copy);
    Workload {
        numjobs: 1,
        randseed: workload.randseed.wrapping_add(copy),
        offset: workload.offset.saturating_add(step),
        ..workload.clone()
    }
}

/// The options as they are reported: main spelling, last value; a bare key with an empty one, as fio
/// 3.42 prints it (3.33 leaves bare keys out).
fn options<'a>(settings: impl Iterator<Item = &'a Setting>) -> Vec<(String, String)> {
    Effective::of(settings)
        .0
        .into_iter()
        .map(|(name, setting)| (name.to_owned(), setting.value.clone().unwrap_or_default()))
        .collect()
}
