//! `bw_min` … `iops_samples`: statistics over samples of half a second, fio's `bwavgtime`.
//!
//! A record's samples may be finer; they are put together, so that a minimum or a deviation means what
//! it means in fio. What is left at the end is less than half a second and is not a sample, so a run
//! shorter than that has none, as in fio.

use measure::RunRecord;
use measure::workload::Rw;

use super::common::Way;

/// fio's default averaging time.
const WINDOW_NS: u64 = 500_000_000;

/// Statistics of one figure over the samples.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Series {
    pub min: u64,
    pub max: u64,
    pub mean: f64,
    pub stddev: f64,
    pub samples: u64,
}

impl Series {
    fn of(values: &[f64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self {
            min: values.iter().copied().fold(f64::INFINITY, f64::min) as u64,
            max: values.iter().copied().fold(0.0, f64::max) as u64,
            mean,
            stddev: if values.len() < 2 { 0.0 } else { (squares / (n - 1.0)).sqrt() },
            samples: values.len() as u64,
        }
    }
}

/// Bandwidth in KiB/s and IOPS of one direction.
pub(super) fn series(record: &RunRecord, way: Way) -> (Series, Series) {
    let mut bandwidth = Vec::new();
    let mut iops = Vec::new();
    let mut window = (0u64, 0.0f64, Some(0.0f64));
    let mut began_ns = 0;
    for sample in &record.samples {
        let (bytes, ios) = counts(record, way, sample);
        window.0 = sample.end_ns;
        window.1 += bytes;
        window.2 = window.2.zip(ios).map(|(sum, ios)| sum + ios);
        let length_ns = window.0.saturating_sub(began_ns);
        // Steps may miss the half second by rounding.
        if length_ns >= WINDOW_NS - WINDOW_NS / 100 {
            let seconds = length_ns as f64 / 1e9;
            bandwidth.push(window.1 / seconds / 1024.0);
            iops.extend(window.2.map(|ios| ios / seconds));
            began_ns = sample.end_ns;
            window = (0, 0.0, Some(0.0));
        }
    }
    if way.of(record).ios == 0 {
        // fio has no samples of a direction in which nothing was done.
        return (Series::default(), Series::default());
    }
    (Series::of(&bandwidth), Series::of(&iops))
}

/// Bytes and requests of one direction in a step. A sample counts the requests of all directions
/// together; one direction's follow from its bytes where all requests have one size, or where there is
/// no other direction, and are unknown otherwise.
fn counts(record: &RunRecord, way: Way, sample: &measure::record::Sample) -> (f64, Option<f64>) {
    let workload = &record.workload;
    let one_size = workload.has_one_size() && workload.bs > 0;
    let is_mix = matches!(workload.rw, Rw::Rw | Rw::RandRw);
    if workload.rw.trims_and_writes() && way != Way::Read {
        // Each block is one of each, and a sample's writes are both.
        return (sample.write_bytes as f64 / 2.0, Some(sample.ios as f64 / 2.0));
    }
    let bytes = match way {
        Way::Read => sample.read_bytes as f64,
        Way::Write => sample.write_bytes as f64,
        // Only a trimming workload trims, and with one size unless split.
        Way::Trim if one_size => sample.ios as f64 * workload.bs as f64,
        Way::Trim => 0.0,
    };
    let ios = match (is_mix, one_size) {
        (false, _) => Some(sample.ios as f64),
        (true, true) => Some(bytes / workload.bs as f64),
        (true, false) => None,
    };
    (bytes, ios)
}
