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

/// What blocks hold.
pub fn pattern(value: Option<&str>) -> Result<DataPattern, Problem> {
    let read = values::required(value)?.parse::<DataPattern>();
    read.map_err(|why| Problem::new(why.to_string(), "write for instance 0xdeadface, \"abc\" or -12"))
}
