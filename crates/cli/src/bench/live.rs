//! How a run goes, a line a second.

use std::time::Duration;

use bench::{Progress, saturation};

use crate::{output, paint};

/// What is printed of a second: when, and what was done in it.
pub fn line(progress: &Progress, runtime: Option<Duration>) -> String {
    let seconds = progress.step.as_secs_f64().max(1e-9);
    let (iops, bandwidth) = (progress.ios as f64 / seconds, progress.bytes as f64 / seconds);
    let when = match (progress.measuring, runtime) {
        (None, _) => "ramp".to_owned(),
        (Some(at), None) => units::seconds(at),
        (Some(at), Some(all)) => {
            format!("{:.0} of {}, {} left", at.as_secs_f64(), units::seconds(all), left(at, all))
        }
    };
    format!("{when:<24}  {:>12}  {:>10}", units::iops(iops), units::bandwidth(bandwidth))
}

fn left(at: Duration, all: Duration) -> String {
    units::seconds(Duration::from_secs_f64(all.saturating_sub(at).as_secs_f64().round()))
}

/// Prints it.
pub fn say(progress: &Progress, runtime: Option<Duration>) {
    output::tell(&format!("{}\n", paint::dim(&line(progress, runtime))));
}

/// Prints it for a write-saturation curve, with how much is written.
pub fn say_saturation(seen: &saturation::Seen, longest: Duration) {
    let share = seen.written_bytes as f64 / seen.until_bytes.max(1) as f64;
    let written = format!(
        "{} of {}, {}",
        units::bytes(seen.written_bytes),
        units::bytes(seen.until_bytes),
        units::percent(share)
    );
    output::tell(&format!(
        "{}  {}\n",
        paint::dim(&line(&seen.progress, Some(longest))),
        paint::dim(&written)
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_told_with_its_time_left() {
        let progress = Progress {
            measuring: Some(Duration::from_millis(2001)),
            step: Duration::from_secs(1),
            bytes: 381_000_000,
            ios: 93_000,
        };
        assert_eq!(
            line(&progress, Some(Duration::from_secs(60))),
            "2 of 1 min 00 s, 58 s left    93.0k IOPS    381 MB/s"
        );
    }
}
