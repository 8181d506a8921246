//! Healthy systems draw no false verdict, whatever their size, speed and chance.

use measure::limit::{Context, Limit, judge};
use proptest::prelude::*;

use crate::system::{Drive, Service, System};

/// Verdicts that name a defect.
const DEFECTS: [Limit; 6] = [
    Limit::UnbalancedDrives,
    Limit::OneCpu,
    Limit::RaidLayer,
    Limit::FileSystem,
    Limit::Throttle,
    Limit::LoadGenerator,
];

fn systems() -> impl Strategy<Value = System> {
    let drives = (1usize..=16, prop_oneof![Just(1u32), Just(2), Just(8), Just(32)], 0.0f64..0.05);
    let speeds = prop_oneof![Just(5_000_000.0), Just(1_000_000.0), Just(200_000.0)];
    let service = prop_oneof![Just(Service::Fixed), Just(Service::Random)];
    let loads = (1u32..=256, 500.0f64..50_000.0, 0.3f64..2.0);
    (drives, speeds, service, loads, any::<u64>()).prop_map(
        |((count, parallel, spread), service_ns, service, (depth, host_ns, seconds), seed)| {
            // Drives of one model differ by a few percent.
            let drive = |n: usize| Drive {
                parallel,
                service_ns: service_ns * (1.0 + spread * (n as f64 * 2.4).sin()),
            };
            // As many requests as tell something, and no more than a test has time for.
            let rate = f64::from(depth).min(count as f64 * f64::from(parallel)) / service_ns * 1e9;
            let seconds = seconds.min(20_000.0 / rate);
            System { drives: (0..count).map(drive).collect(), service, depth, host_ns, seconds, seed }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn healthy_systems_draw_no_verdict_of_a_defect(system in systems()) {
        let verdict = judge(&system.record(), &Context::default());
        prop_assert!(!DEFECTS.contains(&verdict.limit), "{verdict:?}");
        prop_assert!(verdict.others.iter().all(|f| !DEFECTS.contains(&f.limit)), "{verdict:?}");
        prop_assert!(!verdict.evidence.is_empty());
    }
}
