//! Opening a thread's engine, with a spare slot where the next block is made while the queue is full.

use std::sync::Arc;

use measure::workload::{IoEngine, Pages, Workload, WriteSync};
use storage::device::{Device, leaves, targets};
use storage::engine::{self, AnyEngine, Engine, EngineConfig, EngineError, Fallback};
use storage::pages::PageChoice;

use super::conduct::Conduct;
use crate::payload::MADE_ANEW;

/// The most slots of an engine.
const MOST_SLOTS: u32 = 32_768;

/// Bytes of a slot whose requests have no data: what commands are described in.
const NO_DATA_BYTES: usize = 4096;

/// How a thread's engine is set up.
pub(super) fn config(workload: &Workload, conduct: &Conduct) -> EngineConfig {
    let ring = &conduct.ring;
    EngineConfig {
        depth: workload.iodepth,
        // A reset of a zone has no data, and no buffer as large as the zone.
        slot_bytes: if workload.resets_zones() { NO_DATA_BYTES } else { workload.max_bs() as usize },
        hipri: workload.hipri,
        sqthread_poll: workload.sqthread_poll,
        sqthread_poll_cpu: ring.sqthread_poll_cpu.filter(|_| workload.sqthread_poll),
        atomic: conduct.atomic,
        random: workload.rw.is_random(),
        read_fua: ring.read_fua,
        // The flags of a character device's descriptor make no command durable.
        write_fua: workload.sync != WriteSync::None,
        write_commands: ring.write_commands,
        appends: ring.appends,
        ranges_per_trim: ring.ranges_per_trim.unwrap_or(1),
        placement: ring.placement.clone(),
        protection: ring.protection.map(|(_, protection)| protection),
        pages: match workload.pages {
            Pages::Auto => PageChoice::Auto,
            Pages::Base => PageChoice::Base,
            Pages::Thp => PageChoice::Transparent,
            Pages::Huge => PageChoice::Reserved,
        },
    }
}

/// Opens the engine: with a slot more than the depth where the next block is to be made while others are in flight.
pub(super) fn open(
    workload: &Workload,
    device: &Arc<dyn Device>,
    config: &EngineConfig,
) -> Result<(AnyEngine, Fallback), EngineError> {
    open_with(config, makes_ahead(workload, device), |config| {
        let (engine, fallback) = engine::open(workload.ioengine, device, config)?;
        let features = storage::on_engine!(&engine, engine => engine.features());
        Ok(Opened { name: engine.name(), features, engine: (engine, fallback) })
    })
}

/// An engine and what is in use of it.
#[derive(Debug)]
struct Opened<T> {
    pub engine: T,
    pub name: &'static str,
    pub features: Vec<String>,
}

/// Opens the engine with a spare slot where that costs nothing that `iodepth` slots alone would have: memory that may be
/// locked, or huge pages that were asked for.
fn open_with<T>(
    config: &EngineConfig,
    spare: bool,
    open: impl Fn(&EngineConfig) -> Result<Opened<T>, EngineError>,
) -> Result<T, EngineError> {
    if spare && let Ok(opened) = open(&EngineConfig { depth: config.depth + 1, ..config.clone() }) {
        // A synchronous engine makes the call on this thread, or has a thread for each slot.
        let is_asynchronous = !IoEngine::from_word(opened.name).is_some_and(IoEngine::is_synchronous);
        let is_plain = opened.features.iter().any(|feature| feature.starts_with("plain buffers"));
        if is_asynchronous && !is_plain {
            return Ok(opened.engine);
        }
    }
    open(config).map(|opened| opened.engine)
}

/// Whether blocks take long to make, and the kernel moves them while this thread does something else.
fn makes_ahead(workload: &Workload, device: &Arc<dyn Device>) -> bool {
    let large = workload.rw.writes() && workload.max_bs() > MADE_ANEW as u64;
    let by_kernel = |leaf: &Arc<dyn Device>| leaf.memory().is_none() && leaf.remote().is_none();
    let asynchronous = !workload.ioengine.is_synchronous()
        && leaves(device).iter().all(by_kernel)
        && !targets(device).iter().any(|target| target.verifies() || target.performs().is_some());
    // Where a block goes on a zoned drive is known when there is room for it.
    let asynchronous = asynchronous && !workload.is_zbd();
    large && asynchronous && !workload.is_open_loop() && workload.iodepth < MOST_SLOTS
}

#[cfg(test)]
mod tests {
    use measure::workload::Rw;
    use storage::device;

    use super::super::conduct::RingConduct;
    use super::*;

    #[test]
    fn blocks_are_made_ahead_only_where_the_kernel_moves_them_meanwhile() {
        let memory = device::open(&"mem:64m".parse().expect("a spec"), &device::OpenOptions::writing())
            .expect("memory");
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        std::fs::write(&path, vec![0; 4 << 20]).expect("a file");
        let file = device::open(
            &path.display().to_string().parse().expect("a spec"),
            &device::OpenOptions::default(),
        )
        .expect("opens");
        let large = Workload { rw: Rw::Write, bs: 1 << 20, iodepth: 1, ..Workload::default() };
        assert!(makes_ahead(&large, &file));
        assert!(!makes_ahead(&large, &memory), "a copy is made by this thread");
        for other in [
            Workload { bs: 64 << 10, ..large.clone() },
            Workload { rw: Rw::Read, ..large.clone() },
            Workload { ioengine: IoEngine::Psync, ..large.clone() },
            Workload { ioengine: IoEngine::Mmap, ..large.clone() },
            Workload { rate_iops: Some(10), ..large.clone() },
            Workload { iodepth: 32_768, ..large },
        ] {
            assert!(!makes_ahead(&other, &file), "{}", other.summary());
        }
    }

    #[test]
    fn writes_that_are_to_be_durable_are_forced_by_a_flag_of_their_commands() {
        let of = |sync, sqthread_poll| {
            let workload = Workload { sync, sqthread_poll, ..Workload::default() };
            let ring = RingConduct { sqthread_poll_cpu: Some(3), read_fua: true, ..RingConduct::default() };
            let conduct = Conduct { ring, ..Conduct::default() };
            let config = config(&workload, &conduct);
            (config.write_fua, config.sqthread_poll_cpu)
        };
        assert_eq!(of(WriteSync::None, false), (false, None));
        assert_eq!(of(WriteSync::None, true), (false, Some(3)));
        assert_eq!(of(WriteSync::Dsync, false), (true, None));
        assert_eq!(of(WriteSync::Sync, false), (true, None));
    }

    #[test]
    fn resets_of_zones_have_no_buffers_as_large_as_zones() {
        let resets = Workload {
            rw: Rw::RandTrim,
            zonemode: measure::workload::ZoneMode::Zbd,
            bs: 2 << 30,
            iodepth: 64,
            ..Workload::default()
        };
        resets.validate().expect("zones of 2g are those of drives");
        assert_eq!(config(&resets, &Conduct::default()).slot_bytes, 4096);
        assert!(Workload { bs: 4 << 30, ..resets.clone() }.validate().is_err());
        assert!(Workload { rw: Rw::RandWrite, ..resets }.validate().is_err());
    }

    #[test]
    fn the_spare_slot_is_given_up_where_its_buffer_costs_the_others_something() {
        let slots = |spare, name: &'static str, most_fixed: u32, most: u32| {
            let config = EngineConfig { depth: 4, ..EngineConfig::default() };
            let opened = open_with(&config, spare, |config| {
                if config.depth > most {
                    let source = std::io::ErrorKind::OutOfMemory.into();
                    return Err(EngineError { engine: name, operation: "map buffers", source });
                }
                let is_fixed = config.depth <= most_fixed;
                let buffers =
                    if is_fixed { "fixed buffers" } else { "plain buffers (registration: no memory)" };
                Ok(Opened { engine: config.depth, name, features: vec![buffers.to_owned()] })
            });
            opened.ok()
        };
        assert_eq!(slots(true, "io_uring", 5, 5), Some(5));
        assert_eq!(slots(false, "io_uring", 5, 5), Some(4));
        assert_eq!(slots(true, "psync", 5, 5), Some(4), "each slot is a thread");
        assert_eq!(slots(true, "io_uring", 4, 5), Some(4), "four buffers may be locked, and not five");
        assert_eq!(slots(true, "io_uring", 4, 4), Some(4), "there is memory for four");
        assert_eq!(slots(true, "io_uring", 3, 3), None);
    }
}
