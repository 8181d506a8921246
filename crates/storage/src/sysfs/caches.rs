//! The caches of a CPU (`Documentation/ABI/testing/sysfs-devices-system-cpu`, cache/indexN).

use super::Sysfs;

/// A cache that holds data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cache {
    /// 1 is nearest to the CPU.
    pub level: u32,
    /// Its size, bytes.
    pub bytes: u64,
    /// Its line, bytes; 64 where the kernel does not say.
    pub line_bytes: u32,
    /// CPUs that share it.
    pub shared_by: u32,
}

impl Sysfs {
    /// The caches of CPU `cpu` that hold data, nearest first; none where the kernel tells of none, as in many
    /// virtual machines.
    #[must_use]
    pub fn caches(&self, cpu: u32) -> Vec<Cache> {
        let text = |index: u32, file: &str| {
            self.text(format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{index}/{file}"))
        };
        let one = |index: u32| {
            if text(index, "type")? == "Instruction" {
                return None;
            }
            let shared = text(index, "shared_cpu_list").map_or(1, |list| count_list(&list));
            Some(Cache {
                level: text(index, "level")?.parse().ok()?,
                bytes: size(&text(index, "size")?)?,
                line_bytes: text(index, "coherency_line_size").and_then(|t| t.parse().ok()).unwrap_or(64),
                shared_by: shared.max(1),
            })
        };
        // No CPU has more than a handful; indices without a file are passed over.
        let mut all: Vec<Cache> = (0..16).filter_map(one).filter(|cache| cache.bytes > 0).collect();
        all.sort_by_key(|cache| (cache.level, cache.bytes));
        all.dedup_by_key(|cache| cache.level);
        all
    }
}

/// `32K`, `36608K`, `8M`.
fn size(text: &str) -> Option<u64> {
    let (number, shift) = match text.strip_suffix('K') {
        Some(number) => (number, 10),
        None => text.strip_suffix('M').map_or((text, 0), |number| (number, 20)),
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// How many numbers a list such as `0-3,8,10-11` names.
pub(crate) fn count_list(list: &str) -> u32 {
    list.split(',')
        .filter_map(|part| {
            let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            last.checked_sub(first)?.checked_add(1)
        })
        .fold(0, u32::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Tree;
    use super::*;

    #[test]
    fn caches_are_read_without_those_of_instructions_and_in_order() {
        let tree = Tree::new();
        for (index, level, kind, size, shared) in [
            (0, "1", "Data", "48K", "0,64"),
            (1, "1", "Instruction", "32K", "0,64"),
            (3, "3", "Unified", "36608K", "0-31,64-95"),
            (2, "2", "Unified", "2M", "0,64"),
            (4, "4", "Unified", "0K", "0"),
        ] {
            let at = format!("/sys/devices/system/cpu/cpu3/cache/index{index}");
            for (file, text) in
                [("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)]
            {
                tree.file(&format!("{at}/{file}"), &format!("{text}\n"));
            }
        }
        tree.file("/sys/devices/system/cpu/cpu3/cache/index2/coherency_line_size", "128\n");
        let cache = |level, bytes, line_bytes, shared_by| Cache { level, bytes, line_bytes, shared_by };
        assert_eq!(
            tree.sysfs().caches(3),
            [cache(1, 48 << 10, 64, 2), cache(2, 2 << 20, 128, 2), cache(3, 36608 << 10, 64, 64)]
        );
        assert_eq!(tree.sysfs().caches(0), [], "a CPU of which the kernel says nothing");
    }
}
