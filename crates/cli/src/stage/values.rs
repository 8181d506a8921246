//! The values of `stage`'s flags.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Local, NaiveDate, NaiveDateTime, TimeZone};
use stage::parts::{PartId, RunId};
use stage::{Algorithm, Level, Preserve, StageError};
use stage_service::scrape::Endpoint;

use crate::values::{BadValue, unknown_word};

/// Bytes a second, above zero: `2GB/s`, `500MB/s`, `2g`.
pub fn rate(text: &str) -> Result<u64, BadValue> {
    stage_service::qos::rate(text).map_err(|error| BadValue::new(error.to_string(), error.hint()))
}

/// A whole number above zero.
pub fn positive(text: &str) -> Result<u64, BadValue> {
    match crate::values::whole(text)? {
        0 => Err(BadValue::new("must be above zero", "leave it out for no limit")),
        number => Ok(number),
    }
}

/// A number of jobs, threads or connections, one or more.
pub fn at_least_one(text: &str) -> Result<usize, BadValue> {
    match crate::values::whole(text)? {
        0 => Err(BadValue::new("must be above zero", "for instance 4")),
        number => Ok(number),
    }
}

/// `unix:PATH` or `127.0.0.1:PORT`.
pub fn endpoint(text: &str) -> Result<Endpoint, BadValue> {
    text.parse::<Endpoint>().map_err(|what| BadValue::new(what, "for instance 127.0.0.1:9750"))
}

/// The number of a reservation.
pub fn reservation(text: &str) -> Result<i64, BadValue> {
    text.parse::<i64>().ok().filter(|id| *id > 0).ok_or_else(|| {
        BadValue::new("is not the number of a reservation", "`flashwright stage pools list` shows them")
    })
}

/// How many are kept.
pub fn keep(text: &str) -> Result<u32, BadValue> {
    crate::values::whole(text)
}

/// Which part of a set.
pub fn part(text: &str) -> Result<PartId, BadValue> {
    let hint = "the rank, counted from 0, and the number of ranks: 3/8";
    let numbers =
        text.split_once('/').and_then(|(rank, ranks)| Some((rank.parse().ok()?, ranks.parse().ok()?)));
    let (rank, ranks) =
        numbers.ok_or_else(|| BadValue::new(format!("'{text}' is not a rank of so many"), hint))?;
    PartId::new(rank, ranks).map_err(|error| BadValue::new(error.to_string(), hint))
}

/// The identity of a launch.
pub fn run(text: &str) -> Result<RunId, BadValue> {
    text.parse()
        .map_err(|error: StageError| BadValue::new(error.to_string(), error.hint().unwrap_or_default()))
}

/// Before whom.
pub fn priority(text: &str) -> Result<i32, BadValue> {
    text.parse::<i32>().ok().filter(|priority| (-1000..=1000).contains(priority)).ok_or_else(|| {
        BadValue::new(
            format!("'{text}' is not a whole number from -1000 to 1000"),
            "0 where nothing is said; higher goes first",
        )
    })
}

/// What goes with the bytes.
pub fn preserve(text: &str) -> Result<Preserve, BadValue> {
    text.parse().map_err(|error| BadValue::new(error, "for instance mode,times,links, or all"))
}

/// How bytes are digested.
pub fn digest(text: &str) -> Result<Algorithm, BadValue> {
    word(text, text.parse().ok(), &["xxh3", "blake3"])
}

/// How far.
pub fn level(text: &str) -> Result<Level, BadValue> {
    word(text, text.parse().ok(), &["staged", "local", "durable"])
}

fn word<T>(text: &str, found: Option<T>, words: &[&str]) -> Result<T, BadValue> {
    found.ok_or_else(|| unknown_word(text, words))
}

/// When: in so long, or at a time of day here, or anywhere where a zone stands behind it.
pub fn deadline(text: &str) -> Result<SystemTime, BadValue> {
    deadline_from(text, SystemTime::now(), &Local)
}

fn deadline_from<Zone: TimeZone>(text: &str, now: SystemTime, zone: &Zone) -> Result<SystemTime, BadValue> {
    const HINT: &str = "for instance 30m, 2026-12-01T10:00, or 2026-12-01T10:00:00Z";
    let at = match units::duration(text) {
        Ok(after) => now.checked_add(after),
        Err(_) => moment(text, zone).ok_or_else(|| {
            BadValue::new(format!("'{text}' is neither a time from now nor a date and time"), HINT)
        })?,
    };
    let at = at.ok_or_else(|| BadValue::new(format!("'{text}' is out of range"), HINT))?;
    if at <= now {
        return Err(BadValue::new(format!("'{text}' is over"), HINT));
    }
    Ok(at)
}

/// A date and time; none inside where it is before 1970.
fn moment<Zone: TimeZone>(text: &str, zone: &Zone) -> Option<Option<SystemTime>> {
    let seconds = match DateTime::parse_from_rfc3339(text) {
        Ok(moment) => moment.timestamp(),
        Err(_) => {
            let naive = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M"]
                .iter()
                .find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())
                .or_else(|| NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0))?;
            // Where the clock is set back an hour comes twice: the first is meant by a deadline. Where it is set
            // forward, one never comes.
            zone.from_local_datetime(&naive).earliest()?.timestamp()
        }
    };
    Some(u64::try_from(seconds).ok().and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::FixedOffset;

    #[test]
    fn a_deadline_is_a_time_from_now_or_a_moment() {
        let now = UNIX_EPOCH + Duration::from_secs(1_790_000_000); // 2026-09-21T14:13:20Z
        let zone = FixedOffset::east_opt(2 * 3600).expect("a zone");
        let after = |text: &str| {
            let at = deadline_from(text, now, &zone).expect(text);
            at.duration_since(now).expect("later").as_secs()
        };
        assert_eq!(after("30m"), 1800);
        assert_eq!(after("90"), 90);
        assert_eq!(after("2026-09-21T14:14:20Z"), 60);
        assert_eq!(after("2026-09-21T16:14:20"), 60);
        assert_eq!(after("2026-09-21T16:14"), 40);
        assert_eq!(after("2026-09-21 16:14:20+02:00"), 60);
        let words = |text: &str| deadline_from(text, now, &zone).expect_err(text).to_string();
        assert_eq!(words("2026-09-21T16:13"), "'2026-09-21T16:13' is over");
        assert_eq!(words("0s"), "'0s' is over");
        assert_eq!(words("soon"), "'soon' is neither a time from now nor a date and time");
        assert_eq!(words("1960-01-01T00:00"), "'1960-01-01T00:00' is out of range");
        assert!(words("2026-13-01T10:00").contains("neither"));
    }

    #[test]
    fn words_are_answered_with_the_nearest() {
        assert_eq!(
            level("durabel").unwrap_err().hint,
            "did you mean durable? There are staged, local, durable"
        );
        assert_eq!(digest("md5").unwrap_err().hint, "there are xxh3, blake3");
        assert!(rate("0").is_err() && rate("2GB/s").is_ok());
        assert!(priority("-5").is_ok() && priority("2000").is_err());
    }
}
