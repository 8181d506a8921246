//! How large requests are, how much they move and how often they come: what fio lists for each direction, and counts in bytes,
//! zones or percentages.

use measure::Workload;
use measure::workload::{Rw, SizeShare};

use crate::draft::Draft;
use crate::error::{Fault, Problem};
use crate::values::{ByDirection, Size};

/// The most sizes of a `bsrange`.
const MOST_SIZES: u64 = 256;

const READ: usize = 0;
const WRITE: usize = 1;
const TRIM: usize = 2;

/// The directions that a job's requests have.
pub(super) fn directions(rw: Rw) -> &'static [usize] {
    match rw {
        Rw::Read | Rw::RandRead => &[READ],
        Rw::Write | Rw::RandWrite => &[WRITE],
        Rw::Rw | Rw::RandRw => &[READ, WRITE],
        Rw::Trim | Rw::RandTrim => &[TRIM],
        // Both have one size; `block_sizes` looks at that.
        Rw::TrimWrite | Rw::RandTrimWrite => &[WRITE],
    }
}

/// The one value that all directions of `rw` share; `None` where they have none, an error where they
/// differ.
pub(super) fn shared<T: Clone + PartialEq>(
    option: &'static str,
    values: &ByDirection<T>,
    rw: Rw,
) -> Result<Option<T>, Fault> {
    let directions = directions(rw);
    let first = values[directions[0]].clone();
    if directions.iter().any(|direction| values[*direction] != first) {
        return Err((
            option,
            Problem::new(
                "reads and writes of one job are alike in this here",
                "run them as two sections, one reading and one writing",
            ),
        ));
    }
    Ok(first)
}

/// The sizes of the requests; those of a mix's writes by themselves where they are others than those of its reads.
pub(super) fn block_sizes(draft: &Draft, workload: &mut Workload) -> Result<(), Fault> {
    let directions = directions(workload.rw);
    (workload.bs, workload.bssplit) = sizes(draft, directions[0])?;
    if workload.rw.trims_and_writes() && sizes(draft, TRIM)? != sizes(draft, WRITE)? {
        let problem = Problem::new("a block is discarded and written in one size", "write one size for both");
        return Err(("bs", problem));
    }
    if let [_, writes] = directions {
        let (bs, split) = sizes(draft, *writes)?;
        if (bs, &split) != (workload.bs, &workload.bssplit) {
            workload.write_bssplit =
                if split.is_empty() { vec![SizeShare { bs, percent: 100 }] } else { split };
        }
    }
    let aligns = shared("ba", &draft.blockalign, workload.rw)?;
    workload.blockalign = aligns.filter(|align| *align != workload.min_bs());
    Ok(())
}

/// The sizes of one direction. fio's precedence: `bssplit`, then `bsrange`, then `bs`.
fn sizes(draft: &Draft, direction: usize) -> Result<(u64, Vec<SizeShare>), Fault> {
    let bs = draft.bs[direction].unwrap_or(4096);
    if let Some(split) = &draft.bssplit[direction] {
        return Ok(match split.as_slice() {
            [SizeShare { bs, .. }] => (*bs, Vec::new()),
            _ => (bs, split.clone()),
        });
    }
    match draft.bsrange[direction] {
        Some((low, high)) => Ok((low, sizes_between(low, high).map_err(|problem| ("bsrange", problem))?)),
        None => Ok((bs, Vec::new())),
    }
}

/// The sizes that fio draws from a range, each as often as any other: the multiples of its lower end. Empty where there is
/// one.
fn sizes_between(low: u64, high: u64) -> Result<Vec<SizeShare>, Problem> {
    let sizes = high / low;
    let each = |percent| Ok((1..=sizes).map(|times| SizeShare { bs: low * times, percent }).collect());
    match sizes {
        0 => Err(Problem::new("the upper end is below the lower one", "write for instance 4k-16k")),
        1 => Ok(Vec::new()),
        _ if sizes <= 100 && 100 % sizes == 0 => each((100 / sizes) as u8),
        // Without shares each is as frequent as any other.
        2..=MOST_SIZES => each(0),
        _ => {
            let reason = format!("{sizes} multiples of the lower end are more than {MOST_SIZES}");
            Err(Problem::new(reason, "raise the lower end"))
        }
    }
}

/// What a percentage is of, and how large a zone is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub whole: Option<u64>,
    pub block: u64,
    pub zone: Option<u64>,
}

impl Share {
    /// The bytes of a percentage in whole blocks, rounded down.
    fn bytes(self, option: &'static str, percent: u64) -> Result<u64, Fault> {
        let whole = self.whole.ok_or_else(|| {
            let reason = "the file does not exist, so that nothing says what the percentage is of";
            (option, Problem::new(reason, "give it in bytes, such as 1g, or write filesize="))
        })?;
        let bytes = (u128::from(whole) * u128::from(percent) / 100) as u64;
        Ok(bytes / self.block * self.block)
    }

    /// The bytes of so many zones.
    fn zones(self, option: &'static str, zones: u64) -> Result<u64, Fault> {
        let zone = self.zone.ok_or_else(|| {
            let reason = "the target has no zones, and nothing says how large they are to be";
            (option, Problem::new(reason, "add zonesize=256m, or give it in bytes, such as 1g"))
        })?;
        zones
            .checked_mul(zone)
            .ok_or_else(|| (option, Problem::new(format!("{zones} zones are out of range"), "write fewer")))
    }

    /// The place at a percentage: as fio has it, the first block that begins there or after.
    fn place(self, option: &'static str, size: Size) -> Result<u64, Fault> {
        let percent = match size {
            Size::Bytes(bytes) => return Ok(bytes),
            Size::Percent(percent) => percent,
            Size::Zones(zones) => return self.zones(option, zones),
        };
        let down = self.bytes(option, percent)?;
        let is_exact = u128::from(down) * 100 == u128::from(self.whole.unwrap_or(0)) * u128::from(percent);
        Ok(if is_exact { down } else { down + self.block })
    }
}

pub(super) fn size(draft: &Draft, workload: &mut Workload, share: Share) -> Result<(), Fault> {
    workload.offset = share.place("offset", draft.offset)?;
    workload.offset_increment = Some(share.place("offset_increment", draft.offset_increment)?);
    workload.size = match draft.size {
        // fio reads a size of 0 as none given.
        None | Some(Size::Bytes(0) | Size::Percent(100) | Size::Zones(0)) => None,
        Some(Size::Bytes(bytes)) => Some(bytes),
        Some(Size::Zones(zones)) => Some(share.zones("size", zones)?),
        Some(Size::Percent(percent)) => Some(share.bytes("size", percent)?),
    };
    match (workload.size, draft.filesize) {
        (None, Some(filesize)) => workload.size = filesize.checked_sub(workload.offset),
        // As in fio, a job moves no more than its files hold.
        (Some(size), Some(_)) if share.whole.is_some_and(|whole| size > whole) => {
            workload.size = share.whole.and_then(|whole| whole.checked_sub(workload.offset));
        }
        _ => {}
    }
    workload.io_size = match draft.io_size {
        None | Some(Size::Bytes(0) | Size::Zones(0)) => None,
        // It means nothing in a job that runs for a time.
        Some(_) if workload.time_based => None,
        Some(Size::Bytes(bytes)) => Some(bytes),
        Some(Size::Zones(zones)) => Some(share.zones("io_size", zones)?),
        Some(Size::Percent(100)) => None,
        Some(Size::Percent(percent)) => Some(share.bytes("io_size", percent)?),
    };
    Ok(())
}

pub(super) fn rates(draft: &Draft, workload: &mut Workload) -> Result<(), Fault> {
    workload.rate = rate("rate", &draft.rate, workload)?;
    workload.rate_iops = rate("rate_iops", &draft.rate_iops, workload)?;
    Ok(())
}

/// fio holds each direction of a mix to a rate of its own; here a mix has one rate, and its proportion
/// makes the directions'. The two mean the same where the rates stand in that proportion.
fn rate(option: &'static str, rates: &ByDirection<u64>, workload: &Workload) -> Result<Option<u64>, Fault> {
    let rates = rates.map(|rate| rate.filter(|rate| *rate > 0));
    let directions = directions(workload.rw);
    if let [one] = directions {
        return Ok(rates[*one]);
    }
    let (read, write) = (rates[READ], rates[WRITE]);
    let reads = u64::from(workload.rwmixread);
    let problem = |example: String| {
        Problem::new(
            "the rates of reads and writes do not stand in the proportion of the mix",
            format!("write for instance {option}={example}, or run them as two sections"),
        )
    };
    match (reads, read, write) {
        (_, None, None) => Ok(None),
        (100, Some(rate), _) | (0, _, Some(rate)) => Ok(Some(rate)),
        (_, Some(read), Some(write)) if same_proportion(read, write, reads) => read
            .checked_add(write)
            .map(Some)
            .ok_or_else(|| (option, Problem::new("the rates are out of range", "write smaller ones"))),
        (_, Some(read), _) if reads > 0 => {
            let write = u128::from(read) * u128::from(100 - reads) / u128::from(reads);
            Err((option, problem(format!("{read},{write}"))))
        }
        (_, _, Some(write)) => Err((option, problem(format!("0,{write}")))),
        (_, Some(_), None) => Err((option, problem("0,1000".to_owned()))),
    }
}

fn same_proportion(read: u64, write: u64, reads: u64) -> bool {
    u128::from(read) * u128::from(100 - reads) == u128::from(write) * u128::from(reads)
}
