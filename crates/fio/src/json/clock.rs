//! ctime(3) without the C library, in UTC.

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [(&str, u64); 12] = [
    ("Jan", 31),
    ("Feb", 28),
    ("Mar", 31),
    ("Apr", 30),
    ("May", 31),
    ("Jun", 30),
    ("Jul", 31),
    ("Aug", 31),
    ("Sep", 30),
    ("Oct", 31),
    ("Nov", 30),
    ("Dec", 31),
];
const SECONDS_A_DAY: u64 = 86_400;
const DAYS_IN_400_YEARS: u64 = 146_097;

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// `Fri Nov 20 17:53:26 2026` for seconds since 1970-01-01 UTC (a Thursday).
pub(super) fn ctime(unix: u64) -> String {
    let weekday = DAYS[(unix / SECONDS_A_DAY % 7) as usize];
    let clock = unix % SECONDS_A_DAY;
    let mut days = unix / SECONDS_A_DAY;
    let mut year = 1970 + days / DAYS_IN_400_YEARS * 400;
    days %= DAYS_IN_400_YEARS;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let mut month = 0;
    loop {
        let length = MONTHS[month].1 + u64::from(month == 1 && is_leap(year));
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!("{weekday} {} {:2} {hour:02}:{minute:02}:{second:02} {year}", MONTHS[month].0, days + 1)
}

#[cfg(test)]
mod tests {
    use super::ctime;

    /// Against `date -u -d @N "+%a %b %e %H:%M:%S %Y"`.
    #[test]
    fn times_are_those_of_date() {
        for (unix, text) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (951_782_399, "Mon Feb 28 23:59:59 2000"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (1_709_164_800, "Thu Feb 29 00:00:00 2024"),
            (1_795_197_206, "Fri Nov 20 17:53:26 2026"),
            (4_107_542_400, "Mon Mar  1 00:00:00 2100"),
        ] {
            assert_eq!(ctime(unix), text);
        }
    }
}
