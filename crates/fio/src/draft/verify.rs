//! Options of what written blocks hold, and of how they are known again.

use measure::workload::{DataPattern, Verify};

use super::Draft;
use crate::error::Problem;
use crate::values;

pub fn verify(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let word = values::required(value)?;
    let strong = "write verify=sha256 or verify=crc32c";
    let refuse = |reason: &str, hint: &str| Err(Problem::new(reason, hint));
    draft.verify_is_given = true;
    draft.workload.verify = match word {
        "0" => None,
        "crc32c-intel" => Some(Verify::Crc32c),
        "xxhash" => Some(Verify::Xxh3),
        "crc7" | "crc16" => return refuse("so short a checksum lets wrong blocks pass", strong),
        "null" => return refuse("it checks nothing", "leave it out"),
        "pattern_hdr" => {
            return refuse("a header comes with a checksum", "write verify=meta with verify_pattern");
        }
        _ if word.starts_with("sha1") || word.starts_with("sha3-") => {
            return refuse("this digest is not computed here", strong);
        }
        // fio does not know the word `xxh3`.
        _ => match Verify::from_word(word).filter(|verify| *verify != Verify::Xxh3) {
            None => return refuse("it is not a kind of verification", strong),
            known => known,
        },
    };
    Ok(())
}

pub fn do_verify(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.do_verify = values::boolean(value)?;
    Ok(())
}

pub fn verify_only(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.verify_only = values::switch(value)?;
    Ok(())
}

pub fn verify_interval(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    // fio reads 0 as none.
    let bytes = values::number(values::required(value)?, 0, 1 << 30)?;
    draft.workload.verify_interval = Some(bytes).filter(|bytes| *bytes > 0);
    Ok(())
}

pub fn verify_pattern(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.verify_pattern = Some(pattern(value)?);
    Ok(())
}

pub fn buffer_pattern(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.buffer_pattern = Some(pattern(value)?);
    Ok(())
}

fn pattern(value: Option<&str>) -> Result<DataPattern, Problem> {
    let read = values::required(value)?.parse::<DataPattern>();
    read.map_err(|why| Problem::new(why.to_string(), "write for instance 0xdeadface, \"abc\" or -12"))
}

pub fn verify_backlog(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.verify_backlog = values::number32(values::required(value)?, 0, u32::MAX)?;
    Ok(())
}

pub fn verify_backlog_batch(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.verify_backlog_batch = values::number32(values::required(value)?, 0, u32::MAX)?;
    Ok(())
}
