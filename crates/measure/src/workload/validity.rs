//! Which workloads contradict themselves.
//!
//! One function for each group of options; each names the first option that cannot be honoured. What depends on the
//! device, such as alignment, is the runner's to check.

use std::time::Duration;

use super::{CpusAllowedPolicy, RandomDistribution, Rw, SizeShare, Verify, Workload, WriteSync};

/// A workload that contradicts itself. The message names the option and its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{option}={value}: {reason}")]
pub struct InvalidWorkload {
    /// The option at fault, in fio's spelling.
    pub option: &'static str,
    /// Its value, as it would be typed.
    pub value: String,
    /// What is wrong with it.
    pub reason: &'static str,
    /// What to do instead.
    pub hint: &'static str,
}

impl Workload {
    /// Checks that the options agree with each other.
    ///
    /// # Errors
    /// [`InvalidWorkload`] naming the first option that cannot be honoured.
    pub fn validate(&self) -> Result<(), InvalidWorkload> {
        let bad = |option, value: String, reason, hint| Err(InvalidWorkload { option, value, reason, hint });
        if let Some(name) = self.later_options.keys().next() {
            let reason = "is not an option of this version";
            return bad("option", name.clone(), reason, "run it with the version that wrote it");
        }
        if self.min_bs() == 0 {
            return bad("bs", "0".into(), "a block has at least one byte", "try --bs=4k");
        }
        // What resets a zone moves no data, and zones are larger than blocks.
        let most = if self.resets_zones() { 2 << 30 } else { 1 << 30 };
        if self.max_bs() > most {
            let reason = if self.resets_zones() { "a zone has at most 2g" } else { "a block has at most 1g" };
            return bad("bs", units::bytes_short(self.max_bs()), reason, "try --bs=4m");
        }
        if self.iodepth == 0 || self.iodepth > 32_768 {
            return bad("iodepth", self.iodepth.to_string(), "must be 1 to 32768", "try --iodepth=32");
        }
        if self.numjobs == 0 || self.numjobs > 4096 {
            return bad("numjobs", self.numjobs.to_string(), "must be 1 to 4096", "try --numjobs=1");
        }
        if self.rwmixread > 100 {
            return bad("rwmixread", self.rwmixread.to_string(), "must be 0 to 100", "a percentage of reads");
        }
        if self.buffer_compress_percentage > 100 {
            let value = self.buffer_compress_percentage.to_string();
            return bad("buffer_compress_percentage", value, "must be 0 to 100", "0 is incompressible");
        }
        if !self.bssplit.is_empty() && !is_complete(&self.bssplit) {
            let value = self.bssplit_word();
            return bad("bssplit", value, "the percentages must add up to 100", "for instance 4k/60:64k/40");
        }
        if self.sizes().any(|s| s.bs % self.min_bs() != 0) {
            let value = self.bssplit_word();
            return bad(
                "bssplit",
                value,
                "each size must be a multiple of the smallest",
                "for instance 4k/60:64k/40",
            );
        }
        self.validate_sizes_of_writes()?;
        if self.iodepth_batch > self.iodepth {
            let value = self.iodepth_batch.to_string();
            return bad(
                "iodepth_batch",
                value,
                "must not exceed iodepth",
                "leave it out, or raise --iodepth",
            );
        }
        if self.iodepth_batch_complete_min == 0 || self.iodepth_batch_complete_min > self.iodepth {
            let value = self.iodepth_batch_complete_min.to_string();
            return bad("iodepth_batch_complete_min", value, "must be 1 to iodepth", "leave it out");
        }
        if self.rate_iops == Some(0) || self.rate == Some(0) {
            return bad(
                "rate_iops",
                "0".into(),
                "a rate must be above zero",
                "leave it out for a closed loop",
            );
        }
        if self.rate_iops.is_some() && self.rate.is_some() {
            let value = self.rate_iops.unwrap_or_default().to_string();
            return bad("rate_iops", value, "cannot be combined with rate", "give one of the two");
        }
        if self.is_open_loop() && self.rw.trims_and_writes() {
            let value = self.rw.word().to_owned();
            return bad("rw", value, "cannot be combined with a rate", "leave the rate out");
        }
        if self.runtime == Some(Duration::ZERO) {
            return bad("runtime", "0".into(), "must be above zero", "try --runtime=5s");
        }
        if self.time_based && self.runtime.is_none() {
            return bad("time_based", "1".into(), "needs a runtime", "add --runtime=5s");
        }
        if self.size.is_some_and(|size| size < self.max_bs()) {
            let value = units::bytes_short(self.size.unwrap_or_default());
            return bad("size", value, "is smaller than one block", "raise --size or lower --bs");
        }
        self.validate_engine()?;
        self.validate_amount()?;
        self.validate_order()?;
        self.validate_distribution()?;
        self.validate_zones()?;
        self.validate_copies()?;
        self.validate_place()?;
        self.validate_contents()?;
        self.validate_verify()
    }

    /// The sizes of a mix's writes.
    fn validate_sizes_of_writes(&self) -> Result<(), InvalidWorkload> {
        if self.write_bssplit.is_empty() {
            return Ok(());
        }
        let (reason, hint) = if !matches!(self.rw, Rw::Rw | Rw::RandRw) {
            ("belongs to rw=rw and rw=randrw", "write bssplit")
        } else if !is_complete(&self.write_bssplit) {
            ("the percentages must add up to 100", "for instance 4k/60:64k/40")
        } else {
            return Ok(());
        };
        Err(InvalidWorkload { option: "write_bssplit", value: word_of(&self.write_bssplit), reason, hint })
    }

    /// What engines that go through the page cache, or past it, whatever is asked, cannot honour.
    fn validate_engine(&self) -> Result<(), InvalidWorkload> {
        let bad = |option, value: &str, reason, hint| {
            Err(InvalidWorkload { option, value: value.to_owned(), reason, hint })
        };
        let is_mapping = self.ioengine.is_mapping();
        match () {
            () if is_mapping && self.direct => bad(
                "ioengine",
                self.ioengine.word(),
                "a mapping is the page cache, and direct=1 is set",
                "add --direct=0",
            ),
            () if is_mapping && self.iodepth > 1 => {
                let reason = "loads and stores are made one after the other, and ioengine=mmap is set";
                bad("iodepth", &self.iodepth.to_string(), reason, "say --iodepth=1")
            }
            () if is_mapping && self.sync != WriteSync::None && self.rw.writes() => {
                let reason = "a store is durable after an msync(2) only, and not when it is made";
                bad("sync", self.sync.word(), reason, "say --fdatasync=1 or --fsync=1")
            }
            () if self.ioengine.sends_commands() && !self.direct => {
                bad("direct", "0", "NVMe commands pass by the page cache", "leave it out with io_uring_cmd")
            }
            () => Ok(()),
        }
    }

    /// What can be said of CPUs without looking at the machine.
    fn validate_place(&self) -> Result<(), InvalidWorkload> {
        let bad = |option, value: String, reason, hint| Err(InvalidWorkload { option, value, reason, hint });
        if let (Some(nodes), true) = (&self.numa_cpu_nodes, self.cpus_allowed.is_some()) {
            let hint = "give one of the two; --cpus_allowed can name the node's CPUs";
            return bad("numa_cpu_nodes", nodes.to_string(), "cannot be combined with cpus_allowed", hint);
        }
        let placed = self.cpus_allowed.is_some() || self.numa_cpu_nodes.is_some();
        if self.cpus_allowed_policy == CpusAllowedPolicy::Split && !placed {
            let reason = "needs CPUs to divide among the jobs";
            return bad("cpus_allowed_policy", "split".into(), reason, "add --cpus_allowed=0-3");
        }
        Ok(())
    }

    fn validate_distribution(&self) -> Result<(), InvalidWorkload> {
        let (value, reason, hint) = match &self.random_distribution {
            RandomDistribution::Zipf(theta) if !(*theta > 0.0 && *theta < 10.0 && *theta != 1.0) => {
                (format!("zipf:{theta}"), "theta must lie in (0, 10) and not be 1", "try zipf:1.2")
            }
            RandomDistribution::Pareto(h) if !(*h > 0.0 && *h < 1.0) => {
                (format!("pareto:{h}"), "h must lie in (0, 1)", "try pareto:0.2")
            }
            zoned @ RandomDistribution::Zoned(zones) if !crate::distribution::is_complete(zones) => {
                let reason = "the shares of requests, and those of the region, must each add up to 100";
                (zoned.to_string(), reason, "for instance zoned:50/5:30/15:20/80")
            }
            RandomDistribution::Sequence(sequence) if sequence.blocks.is_empty() => {
                ("sequence:".to_owned(), "a sequence has at least one block", "try sequence:2,0,1")
            }
            _ => return Ok(()),
        };
        Err(InvalidWorkload { option: "random_distribution", value, reason, hint })
    }

    /// Requests that go zone by zone.
    fn validate_zones(&self) -> Result<(), InvalidWorkload> {
        let bad = |option, value: u64, reason, hint| {
            Err(InvalidWorkload { option, value: units::bytes_short(value), reason, hint })
        };
        if self.is_zbd() {
            return self.validate_zoned_drive();
        }
        if let Some((option, value)) = self.option_of_zoned_drives() {
            let (reason, hint) = ("needs zonemode=zbd", "add --zonemode=zbd, or leave it out");
            return Err(InvalidWorkload { option, value, reason, hint });
        }
        let Some(size) = self.zonesize else {
            let hint = "add --zonesize=256m";
            return match (self.zonerange, self.zoneskip) {
                (None, 0) => Ok(()),
                (Some(range), _) => bad("zonerange", range, "needs a zonesize", hint),
                (None, skip) => bad("zoneskip", skip, "needs a zonesize", hint),
            };
        };
        let range = self.zonerange.unwrap_or(size);
        let whole = "must be a multiple of bs, and at least one block";
        for (option, value) in [("zonesize", size), ("zonerange", range)] {
            if value == 0 || value % self.bs.max(1) != 0 {
                return bad(option, value, whole, "write whole blocks");
            }
        }
        if !self.zoneskip.is_multiple_of(self.bs.max(1)) {
            return bad("zoneskip", self.zoneskip, "must be a multiple of bs", "write whole blocks");
        }
        if self.size.is_some_and(|bytes| bytes < range) {
            return bad("zonesize", range, "is larger than size", "lower it, or raise --size");
        }
        let alone = self.has_one_size() && self.rw_step == 0 && self.percentage_random == 100;
        let plain = self.random_distribution == RandomDistribution::Random && self.blockalign.is_none();
        if !(alone && plain) {
            let reason = "cannot be combined with bssplit, a step, blockalign, percentage_random or random_distribution";
            return bad("zonesize", size, reason, "leave one of them out");
        }
        Ok(())
    }

    /// An option that is set, and means something with `zonemode=zbd` only.
    fn option_of_zoned_drives(&self) -> Option<(&'static str, String)> {
        let number = |number: u32| (number > 0).then(|| number.to_string());
        let switch = |is_on: bool| is_on.then(|| "1".to_owned());
        let part = |part: f64| (part != 0.0).then(|| part.to_string());
        let options = [
            ("zonecapacity", self.zonecapacity.map(units::bytes_short)),
            ("read_beyond_wp", switch(self.read_beyond_wp)),
            ("max_open_zones", number(self.max_open_zones)),
            ("job_max_open_zones", number(self.job_max_open_zones)),
            ("ignore_zone_limits", switch(self.ignore_zone_limits)),
            ("zone_reset_threshold", part(self.zone_reset_threshold)),
            ("zone_reset_frequency", part(self.zone_reset_frequency)),
        ];
        options.into_iter().find_map(|(option, value)| Some((option, value?)))
    }

    /// Requests that keep to the zones of a zoned drive. What depends on the drive is the runner's to check.
    fn validate_zoned_drive(&self) -> Result<(), InvalidWorkload> {
        let bad = |option, value: String, reason, hint| Err(InvalidWorkload { option, value, reason, hint });
        let size = |bytes: u64| units::bytes_short(bytes);
        let whole = |bytes: u64| bytes >= 512 && bytes.is_multiple_of(self.bs.max(1));
        match (self.zonesize, self.zonecapacity) {
            (Some(zone), _) if !whole(zone) => {
                let reason = "must be a multiple of bs, and at least 512";
                return bad("zonesize", size(zone), reason, "write whole blocks");
            }
            (None, Some(bytes)) => {
                let reason = "needs a zonesize: the zones of a drive have capacities of their own";
                return bad("zonecapacity", size(bytes), reason, "add --zonesize, or leave it out");
            }
            (Some(zone), Some(bytes)) if bytes > zone || bytes < self.bs => {
                let reason = "must be from bs to zonesize";
                return bad("zonecapacity", size(bytes), reason, "leave it out for all of the zone");
            }
            _ => {}
        }
        if let Some(range) = self.zonerange.filter(|range| Some(*range) != self.zonesize) {
            let reason = "is the zonesize with zonemode=zbd";
            return bad("zonerange", size(range), reason, "leave it out");
        }
        if self.zoneskip > 0 {
            let reason = "cannot be combined with zonemode=zbd";
            return bad("zoneskip", size(self.zoneskip), reason, "leave it out: no zone is skipped");
        }
        let mode = |reason, hint| bad("zonemode", self.zonemode.word().to_owned(), reason, hint);
        if !self.has_one_size() || self.rw_step != 0 || self.blockalign.is_some() {
            let reason = "cannot be combined with bssplit, a step or blockalign";
            return mode(reason, "zones are written in blocks of one size, one after the other");
        }
        if self.rw.trims_and_writes() {
            return mode("cannot be combined with trimwrite and randtrimwrite", "a zone is reset as a whole");
        }
        if matches!(self.rw, Rw::Trim | Rw::RandTrim) && self.zonesize.is_some_and(|zone| zone != self.bs) {
            let reason = "a trim resets a zone with zonemode=zbd, and must be as large";
            return bad("bs", size(self.bs), reason, "write the zonesize");
        }
        for (option, part) in [
            ("zone_reset_threshold", self.zone_reset_threshold),
            ("zone_reset_frequency", self.zone_reset_frequency),
        ] {
            if !(0.0..=1.0).contains(&part) {
                return bad(option, part.to_string(), "must be from 0 to 1", "for instance 0.5");
            }
            if part > 0.0 && self.verify.is_some() {
                let reason = "cannot be combined with verify, which resets no zone that it wrote";
                return bad(option, part.to_string(), reason, "leave one of them out");
            }
        }
        if self.zone_reset_threshold > 0.0 && self.zone_reset_frequency == 0.0 {
            let value = self.zone_reset_threshold.to_string();
            let hint = "add --zone_reset_frequency=0.1, or leave it out";
            return bad("zone_reset_threshold", value, "does nothing without zone_reset_frequency", hint);
        }
        Ok(())
    }

    /// Blocks that are copies of others.
    fn validate_copies(&self) -> Result<(), InvalidWorkload> {
        let bad = |option, value: u8, reason| {
            let hint = "a percentage, such as 50";
            Err(InvalidWorkload { option, value: value.to_string(), reason, hint })
        };
        if self.dedupe_percentage > 100 {
            return bad("dedupe_percentage", self.dedupe_percentage, "must be 0 to 100");
        }
        let set = self.dedupe_working_set_percentage;
        if set > 100 || set == 0 {
            return bad("dedupe_working_set_percentage", set, "must be 1 to 100");
        }
        Ok(())
    }

    /// Without a log of its writes, verification knows which generation each block must hold only where each block is
    /// visited once a pass, so anything that repeats blocks within a pass is refused.
    fn validate_verify(&self) -> Result<(), InvalidWorkload> {
        let Some(verify) = self.verify else { return Ok(()) };
        let problem = if self.min_bs() < 512 && verify != Verify::Pattern {
            Some(("needs blocks of at least 512 bytes", "raise --bs"))
        } else if verify == Verify::Pattern && self.verify_pattern.is_none() {
            Some(("needs the pattern", "add --verify_pattern=0xdeadface"))
        } else if verify == Verify::Pattern && self.verify_interval.is_some() {
            Some(("has no headers that could lie between two others", "drop verify_interval"))
        } else if !self.has_one_size() {
            Some(("needs one block size", "give --bs instead of --bssplit"))
        } else if matches!(self.rw, Rw::Trim | Rw::RandTrim) || self.rw.trims_and_writes() {
            Some(("needs writes or reads alone", "write in one job, and read with verify in the next"))
        } else if self.rw.is_random()
            && self.rw.writes()
            && !self.verifies_by_log()
            && (self.norandommap
                || self.percentage_random < 100
                || self.random_distribution != RandomDistribution::Random)
        {
            Some((
                "cannot tell stale from fresh where blocks repeat",
                "drop norandommap and random_distribution, or add verify_backlog",
            ))
        } else if self.blockalign.is_some_and(|align| align != self.bs) {
            Some(("needs blocks side by side", "drop blockalign"))
        } else if self.rw_step < 0 {
            Some(("cannot tell stale from fresh where blocks are visited backwards", "drop the step"))
        } else if self.strided_bytes().is_some() {
            Some(("cannot tell stale from fresh where blocks are skipped", "drop the zones"))
        } else if self.dedupe_percentage > 0 {
            Some(("makes every block unlike all others", "drop dedupe_percentage"))
        } else if self.buffer_compress_percentage > 0 {
            Some(("cannot be combined with buffer_compress_percentage", "give one of the two"))
        } else {
            None
        };
        match problem {
            Some((reason, hint)) => {
                Err(InvalidWorkload { option: "verify", value: verify.word().into(), reason, hint })
            }
            None => Ok(()),
        }
    }

    /// What written blocks hold, and the options of `verify`.
    fn validate_contents(&self) -> Result<(), InvalidWorkload> {
        let bad = |option, value: String, reason, hint| Err(InvalidWorkload { option, value, reason, hint });
        if let Some(pattern) = &self.buffer_pattern {
            let value = pattern.to_string();
            if pattern.has_offsets() {
                return bad(
                    "buffer_pattern",
                    value,
                    "has no offsets",
                    "give --verify_pattern, with --verify",
                );
            }
            let other = self.verify.is_some() || self.dedupe_percentage > 0;
            if other || self.buffer_compress_percentage > 0 {
                let reason =
                    "cannot be combined with verify, dedupe_percentage or buffer_compress_percentage";
                return bad("buffer_pattern", value, reason, "leave one of them out");
            }
        }
        let needs = |option, value: String| bad(option, value, "needs verify", "add --verify=crc32c");
        if self.verify.is_none() {
            return match (self.verify_interval, &self.verify_pattern, self.verify_backlog) {
                (Some(bytes), ..) => needs("verify_interval", units::bytes_short(bytes)),
                (_, Some(pattern), _) => needs("verify_pattern", pattern.to_string()),
                (.., 1..) => needs("verify_backlog", self.verify_backlog.to_string()),
                (None, None, 0) => Ok(()),
            };
        }
        if let Some(bytes) = self.verify_interval
            && (bytes < 512 || !self.bs.is_multiple_of(bytes))
        {
            let reason = "must divide bs, and be at least 512";
            return bad("verify_interval", units::bytes_short(bytes), reason, "try --verify_interval=512");
        }
        if self.verify_backlog > 0 && self.is_open_loop() {
            let value = self.verify_backlog.to_string();
            let reason = "cannot be combined with a rate";
            return bad("verify_backlog", value, reason, "leave it out: all is read back at the end");
        }
        Ok(())
    }

    /// How much is done, and what comes between requests.
    fn validate_amount(&self) -> Result<(), InvalidWorkload> {
        let bad = |option, value: String, reason, hint| Err(InvalidWorkload { option, value, reason, hint });
        if self.loops == 0 {
            return bad("loops", "0".into(), "must be 1 or more", "leave it out");
        }
        if self.number_ios == Some(0) {
            return bad("number_ios", "0".into(), "must be 1 or more", "leave it out for no limit");
        }
        if self.io_size.is_some_and(|bytes| bytes < self.max_bs()) {
            let value = units::bytes_short(self.io_size.unwrap_or_default());
            return bad("io_size", value, "is smaller than one block", "raise it or lower --bs");
        }
        if self.thinktime_blocks == 0 {
            return bad("thinktime_blocks", "0".into(), "must be 1 or more", "leave it out");
        }
        let text = |time: Duration| format!("{}us", time.as_micros());
        if self.rests() && self.is_open_loop() {
            let hint = "the rate says when requests start; leave one of the two out";
            return bad("thinktime", text(self.thinktime), "cannot be combined with a rate", hint);
        }
        if self.thinktime_spin > self.thinktime {
            let value = text(self.thinktime_spin);
            return bad("thinktime_spin", value, "is longer than thinktime", "raise --thinktime");
        }
        Ok(())
    }

    /// The order of requests, as far as it is no distribution.
    fn validate_order(&self) -> Result<(), InvalidWorkload> {
        let bad = |option, value: String, reason, hint| Err(InvalidWorkload { option, value, reason, hint });
        if self.percentage_random > 100 {
            let value = self.percentage_random.to_string();
            return bad("percentage_random", value, "must be 0 to 100", "100 draws every offset");
        }
        if self.percentage_random < 100 && !self.rw.is_random() {
            let value = self.percentage_random.to_string();
            return bad(
                "percentage_random",
                value,
                "needs random requests",
                "write --rw=randread, for instance",
            );
        }
        if let Some(align) = self.blockalign
            && (align == 0 || align % self.min_bs() != 0)
        {
            let value = units::bytes_short(align);
            return bad("blockalign", value, "must be a multiple of the smallest block", "leave it out");
        }
        if self.rw_step != 0 && self.rw.is_random() {
            let value = self.rw_step.to_string();
            return bad("rw_step", value, "needs sequential requests", "write --rw=read, for instance");
        }
        Ok(())
    }

    fn bssplit_word(&self) -> String {
        word_of(&self.bssplit)
    }
}

/// Whether shares come to 100 percent, or there are none and each size is as frequent as any other.
fn is_complete(split: &[SizeShare]) -> bool {
    split.iter().map(|share| u32::from(share.percent)).sum::<u32>() == 100
        || split.iter().all(|share| share.percent == 0)
}

fn word_of(split: &[SizeShare]) -> String {
    split.iter().map(SizeShare::to_string).collect::<Vec<_>>().join(":")
}
