//! Healthy systems draw no false verdict, whatever their size, speed and chance.

use measure::limit::{Context, Limit, judge};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

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

// What is asserted is a matter of chance: of systems without end, some draw any verdict. The same 300 are
// judged each time, also by `make test-explore`; PROPTEST_CASES draws more of them.
const SEED: u64 = 20120;

fn config() -> ProptestConfig {
    let given = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { given.cases } else { 300 };
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(SEED), ..given }
}

/// Where the slowest of drives that differ by 8 % gathers the queue, and its peers are close to their
/// ceiling themselves: their requests wait as well.
#[test]
fn the_slowest_of_nearly_equal_drives_at_their_ceiling_is_none_that_others_wait_for() {
    let drive = |service_ns| Drive { parallel: 8, service_ns };
    let system = System {
        drives: vec![
            drive(200_000.0),
            drive(205_842.552_424_598),
            drive(191_383.477_113_382_37),
            drive(206_864.987_224_572_34),
            drive(198_492.126_013_276_46),
        ],
        service: Service::Fixed,
        depth: 143,
        host_ns: 48_161.963_852_665,
        seconds: 0.1,
        seed: 13_350_859_066_354_820_416,
    };
    let verdict = judge(&system.record(), &Context::default());
    assert_eq!(verdict.limit, Limit::Drives, "{verdict:?}");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn healthy_systems_draw_no_verdict_of_a_defect(system in systems()) {
        let verdict = judge(&system.record(), &Context::default());
        prop_assert!(!DEFECTS.contains(&verdict.limit), "{verdict:?}");
        prop_assert!(verdict.others.iter().all(|f| !DEFECTS.contains(&f.limit)), "{verdict:?}");
        prop_assert!(!verdict.evidence.is_empty());
    }
}
