//! Options that are a word, a path or a text, with what belongs to one.

use measure::distribution::{sequence, zones};
use measure::workload::{IoEngine, NumberList, Pages, RandomDistribution, Rw, ZoneMode};

use storage::spec::DeviceSpec;

use super::{Draft, MAX_PERCENTILES};
use crate::error::Problem;
use crate::values;
use bench::acts::Act;
use bench::run::cohorts::Ends;

/// `randread`, and with what fio puts behind it: `read:8k` skips, `read:-8k` goes backwards.
pub fn rw(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let word = values::required(value)?;
    let (base, behind) = match word.split_once(':') {
        Some((base, behind)) => (base, Some(behind)),
        None => (word, None),
    };
    draft.workload.rw = Rw::from_word(base).ok_or_else(|| {
        Problem::new("it is not a direction", format!("write one of {}", Rw::WORDS.join(", ")))
    })?;
    draft.workload.rw_step = match behind {
        None | Some("1") if draft.workload.rw.is_random() => 0,
        None => 0,
        Some(_) if draft.workload.rw.is_random() => {
            return Err(Problem::new(
                "several requests at one random offset (rw=rand…:N) are not supported",
                format!("write rw={base}, with percentage_random for requests that follow each other"),
            ));
        }
        Some(step) => signed(step)?,
    };
    Ok(())
}

/// Bytes that may be negative.
fn signed(text: &str) -> Result<i64, Problem> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let bytes = i64::try_from(values::bytes(digits)?);
    Ok(sign
        * bytes.map_err(|_| Problem::new(format!("'{text}' is out of range"), "write for instance 8k"))?)
}

/// Engines that fio knows by names of its own.
const ENGINES_OF_FIO: [(&str, IoEngine); 5] = [
    ("linuxaio", IoEngine::Libaio),
    ("aio", IoEngine::Libaio),
    ("sync", IoEngine::Psync),
    ("pvsync", IoEngine::Psync),
    ("pvsync2", IoEngine::Psync),
];

pub fn ioengine(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let word = values::required(value)?;
    draft.act = Act::of_engine(word);
    draft.workload.ioengine = match word {
        _ if draft.act.is_some() => IoEngine::Auto,
        "exec" => {
            return Err(Problem::new("commands are not run from job files", "run the command yourself"));
        }
        _ => {
            // By the words alone: fio has no `iouring`, which flags take.
            let own = IoEngine::ALL.map(|engine| (engine.word(), engine));
            let engines = [own.as_slice(), &ENGINES_OF_FIO].concat();
            let known = engines.iter().find(|(name, _)| *name == word);
            let hint = || {
                let moving = IoEngine::WORDS.join(", ");
                let others = Act::all().map(Act::word).collect::<Vec<_>>().join(", ");
                let taken = ENGINES_OF_FIO.map(|(name, engine)| format!("{name} runs as {}", engine.word()));
                format!(
                    "write one of {moving} ({}), or of those that move no data to a drive: {others}",
                    taken.join(", ")
                )
            };
            known.ok_or_else(|| Problem::new("flashwright has no such engine", hint()))?.1
        }
    };
    word.clone_into(&mut draft.engine_word);
    Ok(())
}

pub fn random_distribution(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let text = values::required(value)?;
    let (word, parameter) = match text.split_once(':') {
        Some((word, parameter)) => (word, Some(parameter)),
        None => (text, None),
    };
    let exponent = |default: f64| match parameter {
        None => Ok(default),
        Some(text) => text.parse::<f64>().ok().filter(|x| x.is_finite()).ok_or_else(|| {
            if text.contains([':', ',']) {
                Problem::new(
                    "a centre, or one distribution for each direction, is not supported",
                    format!("write {word}:{default}"),
                )
            } else {
                Problem::new(format!("'{text}' is not a number"), format!("write {word}:{default}"))
            }
        }),
    };
    // fio's defaults for the exponents are 1.1 and 0.2.
    draft.workload.random_distribution = match word {
        "sequence" => {
            let read = sequence(parameter.unwrap_or_default());
            let hint =
                "write for instance sequence:2,0,1, with random_sequence_stride=1 to go on group by group";
            let mut read = read.map_err(|why| Problem::new(why, hint))?;
            if read.strided {
                return Err(Problem::new("the stride is an option of its own", hint));
            }
            // Whichever of the two comes last.
            read.strided = draft.sequence_stride;
            RandomDistribution::Sequence(read)
        }
        "random" if parameter.is_none() => RandomDistribution::Random,
        "zipf" => RandomDistribution::Zipf(exponent(1.1)?),
        "pareto" => RandomDistribution::Pareto(exponent(0.2)?),
        "zoned" => {
            let hint = "write for instance zoned:50/5:30/15:20/80";
            let text = parameter.unwrap_or_default();
            if text.contains(',') {
                return Err(Problem::new("one distribution for each direction is not supported", hint));
            }
            RandomDistribution::Zoned(zones(text).map_err(|why| Problem::new(why, hint))?)
        }
        _ => {
            return Err(Problem::new(
                "this distribution is not supported",
                "write random, zipf:1.2, pareto:0.2, zoned:50/5:30/15:20/80 or sequence:2,0,1",
            ));
        }
    };
    Ok(())
}

/// The stride of a sequence, whichever of the two comes last.
pub fn random_sequence_stride(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.sequence_stride = values::boolean(value)?;
    if let RandomDistribution::Sequence(sequence) = &mut draft.workload.random_distribution {
        sequence.strided = draft.sequence_stride;
    }
    Ok(())
}

/// What zones are, if there are any.
pub fn zonemode(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.zonemode = match values::required(value)? {
        "none" => None,
        word => Some(
            ZoneMode::from_word(word)
                .ok_or_else(|| Problem::new("it is not a kind of zones", "write none, strided or zbd"))?,
        ),
    };
    Ok(())
}

pub fn random_generator(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.lfsr = match values::required(value)? {
        "tausworthe" | "tausworthe64" => false,
        "lfsr" => true,
        _ => return Err(Problem::new("it is not a generator", "leave it out")),
    };
    Ok(())
}

/// CPUs or NUMA nodes.
pub fn numbers(value: Option<&str>, hint: &str) -> Result<NumberList, Problem> {
    values::required(value)?.parse::<NumberList>().map_err(|error| Problem::new(error.to_string(), hint))
}

pub fn iomem(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.pages = match values::required(value)? {
        "malloc" | "mmap" | "mmapshared" | "shm" => Pages::Auto,
        "mmaphuge" | "shmhuge" => Pages::Huge,
        _ => {
            return Err(Problem::new(
                "buffers come from one aligned arena of this process",
                "leave it out, or write mmaphuge for reserved huge pages",
            ));
        }
    };
    Ok(())
}

/// The order in which several files are visited.
pub fn file_service_type(_: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    match values::required(value)? {
        "roundrobin" | "roundrobin:1" | "random" | "random:1" => Ok(()),
        _ => Err(Problem::new(
            "a job goes on to the next of its files after each request",
            "write roundrobin, or a section for each file",
        )),
    }
}

pub fn directory(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    match paths(values::required(value)?)?.as_slice() {
        [one] => draft.directory = Some(one.clone()),
        _ => {
            let hint = "write one section for each directory, or '\\:' for a colon in the name";
            return Err(Problem::new("copies are not dealt out to several directories", hint));
        }
    }
    Ok(())
}

/// Splits at each colon that no backslash precedes.
pub fn paths(text: &str) -> Result<Vec<String>, Problem> {
    let mut paths = Vec::new();
    let mut path = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek() == Some(&':') => path.extend(letters.next()),
            ':' => paths.push(std::mem::take(&mut path)),
            other => path.push(other),
        }
    }
    paths.push(path);
    if paths.iter().any(|path| path == "-") {
        return Err(Problem::new("standard input is no drive", "name a file or a block device"));
    }
    if paths.iter().any(String::is_empty) {
        return Err(Problem::new(
            "a name between two colons is empty",
            "write names divided by one colon each",
        ));
    }
    Ok(paths)
}

pub fn filename_format(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let format = values::required(value)?;
    if format.contains("$clientuid") {
        return Err(Problem::new(
            "$clientuid is of fio's client and server mode",
            "write $jobname, $jobnum or $filenum",
        ));
    }
    format.clone_into(&mut draft.filename_format);
    Ok(())
}

/// The export of another host, of fio's engine `nbd`.
pub fn uri(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let text = values::required(value)?;
    match text.parse::<DeviceSpec>() {
        Ok(DeviceSpec::Nbd(_)) => {
            draft.uri = Some(text.to_owned());
            Ok(())
        }
        _ => Err(Problem::new(
            "it is not the address of an export",
            "write for instance nbd://host:10809/name",
        )),
    }
}

pub fn exit_what(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.exit_what = match values::required(value)? {
        "group" => Ends::Group,
        "stonewall" => Ends::Running,
        "all" => Ends::Everything,
        _ => return Err(Problem::new("it is not what a job can end", "write group, stonewall or all")),
    };
    Ok(())
}

pub fn percentile_list(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let mut list = Vec::new();
    for part in values::required(value)?.split(':') {
        let percentile = part.trim().parse::<f64>().ok().filter(|p| *p > 0.0 && *p <= 100.0);
        list.push(percentile.ok_or_else(|| {
            Problem::new(
                format!("'{part}' is not a percentile"),
                "write numbers above 0 and up to 100, such as 50:99:99.9",
            )
        })?);
    }
    if list.len() > MAX_PERCENTILES {
        return Err(Problem::new("more than twenty percentiles", "fio takes twenty at most"));
    }
    list.sort_by(f64::total_cmp);
    list.dedup();
    draft.reporting.percentile_list = list;
    Ok(())
}
