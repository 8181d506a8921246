//! What each CPU did: `/proc/stat` and `/proc/interrupts`.
//!
//! `/proc/stat` counts in ticks of `USER_HZ` (proc(5)), which is 100 a second in the ABI of every
//! architecture that runs flash today, so a figure of one run is exact to 10 ms a CPU; thresholds in
//! [`crate::lies`] leave room for that. CPUs that are offline have no line, and one that went away
//! or came during the interval is left out, since its difference would mean nothing.
//!
//! `/proc/interrupts` has one column for each CPU online, named in its first line. Only the numbered
//! rows are device interrupts; the lettered ones (`LOC`, `RES`, `CAL`, …) are the kernel's own.

use std::collections::{BTreeMap, BTreeSet};

use measure::record::CpuCounts;

/// Milliseconds in a tick of `USER_HZ`.
const TICK_MS: u64 = 10;

/// Ticks of one CPU at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ticks {
    user: u64,
    system: u64,
    irq: u64,
    idle: u64,
    steal: u64,
}

/// The ticks of all CPUs online at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuTicks(BTreeMap<u32, Ticks>);

impl CpuTicks {
    /// Reads the `cpuN` lines of `/proc/stat`; lines that are none are passed over.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(parse_cpu_line).collect())
    }
}

fn parse_cpu_line(line: &str) -> Option<(u32, Ticks)> {
    let mut words = line.split_ascii_whitespace();
    let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
    let mut fields = [0u64; 8];
    let mut count = 0;
    for (slot, word) in fields.iter_mut().zip(words) {
        *slot = word.parse().ok()?;
        count += 1;
    }
    // user, nice, system and idle have always been there.
    (count >= 4).then(|| {
        let [user, nice, system, idle, iowait, irq, softirq, steal] = fields;
        let sum = u64::saturating_add;
        let ticks =
            Ticks { user: sum(user, nice), system, irq: sum(irq, softirq), idle: sum(idle, iowait), steal };
        (cpu, ticks)
    })
}

/// Counts of device interrupts by number and CPU at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupts(BTreeMap<u32, BTreeMap<u32, u64>>);

impl Interrupts {
    /// Reads the numbered rows of `/proc/interrupts`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let columns = columns(lines.next());
        Self(lines.filter_map(|line| parse_interrupt_line(line, &columns)).collect())
    }

    /// Interrupts since `before` by CPU, of the numbers in `only` or of all of them.
    #[must_use]
    pub fn since(&self, before: &Self, only: Option<&BTreeSet<u32>>) -> BTreeMap<u32, u64> {
        let mut by_cpu = BTreeMap::new();
        for (number, row) in &self.0 {
            let earlier = before.0.get(number);
            if only.is_some_and(|only| !only.contains(number)) {
                continue;
            }
            for (cpu, count) in row {
                // A CPU that came online in between starts at what it has.
                let old = earlier.and_then(|row| row.get(cpu)).copied().unwrap_or(*count);
                *by_cpu.entry(*cpu).or_insert(0u64) += step(old, *count);
            }
        }
        by_cpu
    }
}

/// From one reading to the next of a count that the kernel prints as 32 bits, so that it wraps.
fn step(before: u64, after: u64) -> u64 {
    if after >= before { after - before } else { (after + (1 << 32)).saturating_sub(before) }
}

/// The CPUs that the head of a table names: `CPU0 CPU2`.
fn columns(head: Option<&str>) -> Vec<u32> {
    let words = head.unwrap_or_default().split_ascii_whitespace();
    words.map_while(|word| word.strip_prefix("CPU")?.parse().ok()).collect()
}

fn parse_interrupt_line(line: &str, columns: &[u32]) -> Option<(u32, BTreeMap<u32, u64>)> {
    let (label, rest) = line.split_once(':')?;
    let number = label.trim().parse().ok()?;
    let counts = rest.split_ascii_whitespace().map_while(|word| word.parse::<u32>().ok().map(u64::from));
    Some((number, columns.iter().copied().zip(counts).collect()))
}

/// The block layer's soft interrupts so far by CPU: the row `BLOCK` of `/proc/softirqs` (proc(5)).
#[must_use]
pub fn block_softirqs(text: &str) -> BTreeMap<u32, u64> {
    let mut lines = text.lines();
    let columns = columns(lines.next());
    let row = lines.find_map(|line| line.trim_start().strip_prefix("BLOCK:")).unwrap_or_default();
    let counts = row.split_ascii_whitespace().map_while(|word| word.parse::<u32>().ok().map(u64::from));
    columns.into_iter().zip(counts).collect()
}

/// Soft interrupts between two readings, which the kernel prints as 32 bits.
#[must_use]
pub fn softirqs_since(before: &BTreeMap<u32, u64>, after: &BTreeMap<u32, u64>) -> BTreeMap<u32, u64> {
    after.iter().map(|(cpu, now)| (*cpu, step(before.get(cpu).copied().unwrap_or(*now), *now))).collect()
}

/// What the CPUs took between two moments, by kind and CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// Interrupts of all devices.
    pub interrupts: BTreeMap<u32, u64>,
    /// The block layer's soft interrupts.
    pub softirqs: BTreeMap<u32, u64>,
    /// Interrupts of the drives below the target.
    pub of_drives: BTreeMap<u32, u64>,
}

/// Each CPU that was online at both moments, with what it took between them.
#[must_use]
pub fn counts(before: &CpuTicks, after: &CpuTicks, taken: &Taken) -> Vec<CpuCounts> {
    let both = after.0.iter().filter_map(|(cpu, now)| Some((*cpu, now, before.0.get(cpu)?)));
    both.map(|(cpu, now, then)| {
        // idle and iowait may go backwards (proc(5)); a wrap of 64 bits is not to be had.
        let of = |counts: &BTreeMap<u32, u64>| counts.get(&cpu).copied().unwrap_or(0);
        let ms = |now: u64, then: u64| now.saturating_sub(then).saturating_mul(TICK_MS);
        CpuCounts {
            cpu,
            user_ms: ms(now.user, then.user),
            system_ms: ms(now.system, then.system),
            irq_ms: ms(now.irq, then.irq),
            idle_ms: ms(now.idle, then.idle),
            steal_ms: ms(now.steal, then.steal),
            interrupts: of(&taken.interrupts),
            drive_interrupts: of(&taken.of_drives),
            block_softirqs: of(&taken.softirqs),
        }
    })
    .collect()
}

/// The CPUs of a kernel list: `0-3,8,10-11`. Text that is none gives none of its CPUs.
#[must_use]
pub fn parse_list(text: &str) -> Vec<u32> {
    /// More CPUs than Linux can be built for; a longer range is garbage.
    const MOST: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>())
            && last < MOST
        {
            cpus.extend(first..=last);
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAT_BEFORE: &str = "cpu  300 0 0 0\n\
        cpu0 100 1 50 1000 10 2 3 7 0 0\n\
        cpu1 100 0 50 1000 10 0 0 0 0 0\n\
        intr 336789 0 0\nctxt 447644\n";
    const STAT_AFTER: &str = "cpu  300 0 0 0\n\
        cpu0 150 2 60 1020 8 3 5 9 0 0\n\
        cpu2 5 5 5 5\n\
        ctxt 447700\n";

    #[test]
    fn ticks_become_milliseconds_by_kind() {
        let taken = Taken { of_drives: BTreeMap::from([(0, 7)]), ..Taken::default() };
        let counts = counts(&CpuTicks::parse(STAT_BEFORE), &CpuTicks::parse(STAT_AFTER), &taken);
        let expected = CpuCounts {
            cpu: 0,
            user_ms: 510,
            system_ms: 100,
            irq_ms: 30,
            idle_ms: 180,
            steal_ms: 20,
            drive_interrupts: 7,
            ..CpuCounts::default()
        };
        assert_eq!(counts, [expected], "CPU 1 went away and CPU 2 came: neither has a difference");
    }

    #[test]
    fn old_kernels_without_steal_have_none() {
        let ticks = CpuTicks::parse("cpu0 1 2 3 4\n");
        assert_eq!(ticks.0[&0], Ticks { user: 3, system: 3, irq: 0, idle: 4, steal: 0 });
    }

    #[test]
    fn idle_that_goes_backwards_counts_as_none() {
        let before = CpuTicks::parse("cpu0 1 0 0 100 50");
        let after = CpuTicks::parse("cpu0 2 0 0 101 40");
        assert_eq!(counts(&before, &after, &Taken::default())[0].idle_ms, 0);
    }

    const INTERRUPTS_BEFORE: &str = "           CPU0       CPU2\n\
         36:          5      65929 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0\n\
         37:          0          0 PCI-MSIX-0000:00:03.0   0-edge      virtio2-config\n\
        LOC:      74086      84768   Local timer interrupts\n\
        ERR:          0\n";
    const INTERRUPTS_AFTER: &str = "           CPU0       CPU2       CPU3\n\
         36:          8      65979          4 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0\n\
         37:          1          0          0 PCI-MSIX-0000:00:03.0   0-edge      virtio2-config\n\
        LOC:      99999      99999      99999   Local timer interrupts\n";

    #[test]
    fn device_interrupts_are_summed_by_cpu_and_the_kernels_own_left_out() {
        let (before, after) = (Interrupts::parse(INTERRUPTS_BEFORE), Interrupts::parse(INTERRUPTS_AFTER));
        let all = after.since(&before, None);
        assert_eq!(all, BTreeMap::from([(0, 4), (2, 50), (3, 0)]));
        let ours = after.since(&before, Some(&BTreeSet::from([36])));
        assert_eq!(ours, BTreeMap::from([(0, 3), (2, 50), (3, 0)]));
    }

    #[test]
    fn an_interrupt_count_wraps_at_32_bits() {
        let before = Interrupts::parse("CPU0\n 1: 4294967290 x\n");
        let after = Interrupts::parse("CPU0\n 1: 4 x\n");
        assert_eq!(after.since(&before, None), BTreeMap::from([(0, 10)]));
    }

    #[test]
    fn soft_interrupts_of_the_block_layer_are_found_by_cpu_and_wrap() {
        let before = block_softirqs("  CPU0 CPU2\n  HI: 1 2\n  BLOCK: 5 4294967290\n IRQ_POLL: 9 9\n");
        let after = block_softirqs("  CPU0 CPU2\n  BLOCK: 9 4\n");
        assert_eq!(softirqs_since(&before, &after), BTreeMap::from([(0, 4), (2, 10)]));
        assert_eq!(block_softirqs(""), BTreeMap::new());
    }

    #[test]
    fn lists_of_cpus_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_list("\n"), Vec::<u32>::new());
        assert_eq!(parse_list("x,5,4294967295"), [5]);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in "(cpu|CPU|[0-9]|:| |,|-|\n){0,60}") {
            let _ = CpuTicks::parse(&text);
            let _ = parse_list(&text);
            let _ = block_softirqs(&text);
            let interrupts = Interrupts::parse(&text);
            let _ = interrupts.since(&Interrupts::default(), None);
        }
    }
}
