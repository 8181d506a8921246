//! Options that are a word, a path or a text.

use measure::workload::{
    CpusAllowedPolicy, IoEngine, NumberList, Pages, RandomDistribution, RateProcess, Rw, Verify,
};

use super::super::error::Problem;
use super::super::values;
use super::{Draft, MAX_PERCENTILES};

pub fn rw(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let word = values::required(value)?;
    draft.workload.rw = Rw::from_word(word).ok_or_else(|| match word.split_once(':') {
        Some((base, _)) if Rw::from_word(base).is_some() => {
            Problem::new("steps between requests (rw=…:N) are not supported", format!("write rw={base}"))
        }
        _ if word.ends_with("trimwrite") => Problem::new(
            "a trim before each write is not supported",
            "trim in one section and write in the next, after stonewall",
        ),
        _ => Problem::new("it is not a direction", format!("write one of {}", Rw::WORDS.join(", "))),
    })?;
    Ok(())
}

pub fn ioengine(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let word = values::required(value)?;
    draft.workload.ioengine = match word {
        "io_uring" => IoEngine::IoUring,
        "libaio" | "linuxaio" | "aio" => IoEngine::Libaio,
        "psync" | "sync" | "pvsync" | "pvsync2" => IoEngine::Psync,
        _ => {
            return Err(Problem::new(
                "flashwright has no such engine",
                "write io_uring, libaio or psync (sync, pvsync and pvsync2 run as psync)",
            ));
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
        "random" if parameter.is_none() => RandomDistribution::Random,
        "zipf" => RandomDistribution::Zipf(exponent(1.1)?),
        "pareto" => RandomDistribution::Pareto(exponent(0.2)?),
        _ => {
            return Err(Problem::new(
                "this distribution is not supported",
                "write random, zipf:1.2 or pareto:0.2",
            ));
        }
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

pub fn verify(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.verify = match values::required(value)? {
        "0" => None,
        "crc32c" | "crc32c-intel" => Some(Verify::Crc32c),
        "xxhash" => Some(Verify::Xxh3),
        _ => {
            return Err(Problem::new(
                "this kind of verification is not supported",
                "write verify=crc32c or verify=xxhash",
            ));
        }
    };
    Ok(())
}

pub fn rate_process(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.rate_process = RateProcess::from_word(values::required(value)?).ok_or_else(|| {
        Problem::new("it is not a process", format!("write {}", RateProcess::WORDS.join(" or ")))
    })?;
    Ok(())
}

pub fn cpus_allowed(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.cpus_allowed = Some(numbers(value, "write for instance 0-3,8")?);
    Ok(())
}

pub fn numa_cpu_nodes(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.numa_cpu_nodes = Some(numbers(value, "write for instance 0 or 0,1")?);
    Ok(())
}

fn numbers(value: Option<&str>, hint: &str) -> Result<NumberList, Problem> {
    values::required(value)?.parse::<NumberList>().map_err(|error| Problem::new(error.to_string(), hint))
}

pub fn cpus_allowed_policy(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.cpus_allowed_policy = CpusAllowedPolicy::from_word(values::required(value)?)
        .ok_or_else(|| Problem::new("it is not a policy", "write shared or split"))?;
    Ok(())
}

pub fn iomem(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.pages = match values::required(value)? {
        "malloc" | "mmap" | "shm" => Pages::Auto,
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

/// fio takes several files divided by colons; `\:` is a colon in a name.
pub fn filename(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.filename = Some(one_path(values::required(value)?, "one section for each file")?);
    Ok(())
}

pub fn directory(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.directory = Some(one_path(values::required(value)?, "one section for each directory")?);
    Ok(())
}

fn one_path(text: &str, instead: &str) -> Result<String, Problem> {
    let mut path = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek() == Some(&':') => path.extend(letters.next()),
            ':' => {
                return Err(Problem::new(
                    "a job works on one file here; fio reads ':' as the start of another",
                    format!("write {instead}, or '\\:' for a colon in the name"),
                ));
            }
            other => path.push(other),
        }
    }
    if path == "-" {
        return Err(Problem::new("standard input is no drive", "name a file or a block device"));
    }
    Ok(path)
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

pub fn name(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.name = Some(values::required(value)?.to_owned());
    Ok(())
}

pub fn description(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.description = Some(values::required(value)?.to_owned());
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
