//! Options of commands that are built for a drive, fio's engine `io_uring_cmd`, and of the thread that submits for a ring.

use storage::engine::WriteCommands;

use super::Draft;
use crate::error::Problem;
use crate::values;

/// The most ranges of one command (NVM Command Set, Dataset Management).
const MOST_RANGES: u32 = 256;
/// The most placement identifiers of a namespace (Base Specification, Flexible Data Placement).
const MOST_PLACES: u16 = 128;

/// To whom commands are sent: NVMe namespaces. fio has SCSI devices as well (`bsg`).
pub fn cmd_type(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.commands.get_or_insert("cmd_type");
    match values::required(value)? {
        "nvme" => Ok(()),
        _ => Err(Problem::new("commands are sent to NVMe namespaces only", "write nvme")),
    }
}

/// Which commands write: one word, or several with their shares (`write/40:zeroes/60`).
pub fn write_mode(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.commands.get_or_insert("write_mode");
    let text = values::required(value)?;
    draft.conduct.ring.appends = text == "zone_append";
    if draft.conduct.ring.appends {
        return Ok(());
    }
    let example = "write for instance write_mode=write/40:zeroes/60";
    let entries: Vec<&str> = text.split(':').collect();
    let is_alone = entries.len() == 1;
    let mut shares = WriteCommands { write: 0, zeroes: 0, uncorrectable: 0, verify: 0 };
    let mut seen = Vec::new();
    for entry in entries {
        let (word, share) = match entry.split_once('/') {
            Some((word, share)) => (word.trim(), Some(share.trim())),
            None => (entry.trim(), None),
        };
        let share = match share {
            Some(share) => share
                .parse::<u8>()
                .ok()
                .filter(|share| *share <= 100)
                .ok_or_else(|| Problem::new(format!("'{share}' is not a percentage"), example))?,
            None if is_alone => 100,
            None => return Err(Problem::new(format!("'{word}' has no share"), example)),
        };
        let place = match word {
            "write" => &mut shares.write,
            "zeroes" => &mut shares.zeroes,
            "uncor" => &mut shares.uncorrectable,
            "verify" => &mut shares.verify,
            "zone_append" => {
                return Err(Problem::new(
                    "zones are appended to by all writes or by none",
                    "write write_mode=zone_append, or leave it out",
                ));
            }
            _ => {
                let reason = format!("'{word}' is not a command that writes");
                return Err(Problem::new(reason, "write write, zeroes, uncor or verify"));
            }
        };
        if seen.contains(&word) {
            return Err(Problem::new(format!("'{word}' stands there twice"), example));
        }
        seen.push(word);
        *place = share;
    }
    let WriteCommands { write, zeroes, uncorrectable, verify } = shares;
    let sum: u32 = [write, zeroes, uncorrectable, verify].into_iter().map(u32::from).sum();
    if sum != 100 {
        return Err(Problem::new(format!("the shares come to {sum} %"), example));
    }
    draft.conduct.ring.write_commands = shares;
    Ok(())
}

/// How many ranges a discard has.
pub fn num_range(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let ranges = values::number32(values::required(value)?, 1, MOST_RANGES)?;
    draft.conduct.ring.ranges_per_trim = (ranges > 1).then_some(ranges);
    if ranges > 1 {
        draft.commands.get_or_insert("num_range");
    }
    Ok(())
}

pub fn readfua(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.conduct.ring.read_fua = values::switch(value)?;
    if draft.conduct.ring.read_fua {
        draft.commands.get_or_insert("readfua");
    }
    Ok(())
}

pub fn writefua(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.write_fua = values::switch(value)?;
    if draft.write_fua {
        draft.commands.get_or_insert("writefua");
    }
    Ok(())
}

pub fn sqthread_poll_cpu(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let cpu = values::required(value)?.parse::<u32>();
    draft.conduct.ring.sqthread_poll_cpu =
        Some(cpu.map_err(|_| Problem::new("it is not the number of a CPU", "write for instance 0"))?);
    Ok(())
}

/// `fixedbufs` and `registerfiles`: flashwright's io_uring engine always has both.
pub fn always_on(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.fixed = true;
    if values::switch(value)? {
        return Ok(());
    }
    Err(Problem::new("flashwright always registers buffers and files", "leave it out"))
}

/// Whether data are placed by the drive's placement identifiers.
pub fn fdp(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.fdp = values::switch(value)?;
    if draft.fdp {
        draft.commands.get_or_insert("fdp");
    }
    Ok(())
}

/// The same, as fio names it beside streams.
pub fn dataplacement(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.fdp = match values::required(value)? {
        "none" => false,
        "fdp" => true,
        "streams" => return Err(Problem::new("streams are not supported", "write fdp, or leave it out")),
        _ => return Err(Problem::new("it is not a kind of placement", "write none or fdp")),
    };
    if draft.fdp {
        draft.commands.get_or_insert("dataplacement");
    }
    Ok(())
}

/// Places in the list of placement identifiers: `0,2-4`.
pub fn plids(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let mut places = Vec::new();
    for entry in values::required(value)?.split(',') {
        let (low, high) = entry.split_once('-').unwrap_or((entry, entry));
        let number = |text: &str| text.trim().parse::<u16>().ok().filter(|place| *place < MOST_PLACES);
        match (number(low), number(high)) {
            (Some(low), Some(high)) if low <= high => places.extend(low..=high),
            _ => {
                let reason = format!("'{entry}' is neither a number below {MOST_PLACES} nor a range of such");
                return Err(Problem::new(reason, "write for instance 0,2-4"));
            }
        }
    }
    draft.places = Some(places);
    Ok(())
}

pub fn plid_select(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.places_are_drawn = match values::required(value)? {
        "roundrobin" => false,
        "random" => true,
        "scheme" => return Err(Problem::new("schemes are not read", "write roundrobin or random")),
        _ => return Err(Problem::new("it is not a way to choose", "write roundrobin or random")),
    };
    Ok(())
}
