//! What lies below a target, as far as it decides how a figure is to be judged.
//!
//! The facts are [`storage::sysfs`]'s; a [`Stack`] adds how its devices lie upon each other, because
//! most judgements begin with "the device that all requests pass through" or "the drives at the
//! bottom". It is read once for each target. What can change while a run is under way is read by
//! [`super::settings`], before and after each run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use storage::survey::Host;
use storage::sysfs::{Backing, BlockDevice, QueueFacts, Sysfs};

use super::host;

/// Everything below a target.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stack {
    /// Block devices, nearest first; empty for memory and for file systems without a block device.
    pub layers: Vec<Layer>,
    /// Type of the file system that holds the target, where it is a file: `ext4`, `tmpfs`, ….
    pub filesystem: Option<String>,
    /// Its mount and file system options, joined by commas.
    pub options: String,
    /// NUMA node of each CPU.
    pub node_of_cpu: BTreeMap<u32, u32>,
    /// Whether the target is memory of this process, or made of nothing else.
    pub in_memory: bool,
    /// The other hosts on whose exports it lies, wholly or in part, each once.
    pub hosts: Vec<String>,
    /// Whether requests pass by the block layer, as NVMe commands do, so that what it counts, queues and throttles are others'.
    pub is_bypassed: bool,
    /// Whether some of its bytes, and not all, lie in memory or on other hosts, which no counter here tells of.
    pub is_partly_elsewhere: bool,
    /// Of how many members the target is made; 0 where it is one device.
    pub members: u32,
    /// Bytes that one member holds before the next, where it is made of members in that way.
    pub chunk: Option<u64>,
    /// The drives over which its file system, a btrfs, spreads consecutive data.
    pub btrfs_stripe_drives: Option<u32>,
}

/// One block device below a target.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layer {
    /// What the kernel says about it.
    pub device: BlockDevice,
    /// The devices that this one is made of: a partition's disk, the members of an array, the
    /// device that holds a loop device's file. Empty for a drive.
    pub below: Vec<String>,
    /// How many devices deep it lies below the target; 0 for those that the target lies on directly.
    pub depth: u32,
    /// Numbers of the interrupts of the controller that it hangs on.
    pub interrupts: BTreeSet<u32>,
}

impl Layer {
    /// Kernel name: `nvme0n1p2`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.device.name
    }

    /// Whether completed writes may still be in a volatile cache.
    #[must_use]
    pub fn has_volatile_cache(&self) -> bool {
        self.queue(|queue| queue.write_cache.clone()).is_some_and(|cache| cache == "write back")
    }

    /// Whether its queues can be polled for completions.
    #[must_use]
    pub fn can_poll(&self) -> bool {
        self.queue(|queue| queue.io_poll) == Some(true)
    }

    /// Whether the kernel believes that the medium turns.
    #[must_use]
    pub fn is_rotational(&self) -> bool {
        self.queue(|queue| queue.rotational) == Some(true)
    }

    /// Unit that the medium writes without reading first, bytes; 0 where nobody says.
    #[must_use]
    pub fn physical_block_bytes(&self) -> u64 {
        self.queue(|queue| Some(queue.physical_block_bytes)).map_or(0, u64::from)
    }

    /// Largest request that the block layer sends, bytes.
    #[must_use]
    pub fn max_request_bytes(&self) -> Option<u64> {
        Some(self.queue(|queue| queue.max_sectors_kb)?.saturating_mul(1024))
    }

    /// Bytes by which a partition's first byte misses the start of a physical block.
    #[must_use]
    pub fn misalignment_bytes(&self) -> u64 {
        let start = self.device.partition_start_bytes.unwrap_or(0);
        start.checked_rem(self.physical_block_bytes()).unwrap_or(0)
    }

    /// Chunk and number of drives of a stripe that this device-mapper device makes. The kernel's tables are not in sysfs, but the
    /// mappings that stripe (dm-stripe, dm-raid) publish chunk and width as preferred request sizes. A mapping that does not stripe
    /// passes on what the devices below it say, and a thin pool (LVM's suffix `-tpool`) says the size of its blocks.
    #[must_use]
    pub fn mapped_stripe(&self, below: &[&Layer]) -> Option<(u64, u32)> {
        let is_pool = self.device.mapper.as_ref()?.uuid.as_ref().is_some_and(|uuid| uuid.ends_with("-tpool"));
        let chunk = self.queue(|queue| queue.minimum_io_bytes)?;
        let width = self.queue(|queue| queue.optimal_io_bytes)?;
        let drives = u32::try_from(width.checked_div(chunk)?).ok()?;
        let is_inherited =
            below.iter().any(|lower| lower.queue(|queue| queue.minimum_io_bytes) == Some(chunk));
        let is_stripe = chunk > self.physical_block_bytes() && width.is_multiple_of(chunk);
        let fits = (2..=below.len()).contains(&(drives as usize));
        (is_stripe && fits && !is_pool && !is_inherited).then_some((chunk, drives))
    }

    fn queue<T>(&self, fact: impl FnOnce(&QueueFacts) -> Option<T>) -> Option<T> {
        self.device.queue.as_ref().and_then(fact)
    }
}

impl Stack {
    /// What `backing` says, with the devices put in order.
    #[must_use]
    pub fn new(sysfs: &Sysfs, backing: &Backing) -> Self {
        let mut stack = Self {
            layers: backing.block_devices.iter().map(|device| layer(sysfs, device, backing)).collect(),
            filesystem: backing.filesystem.clone(),
            options: backing.options.clone().unwrap_or_default(),
            node_of_cpu: host::node_of_cpu(&Host::read(sysfs)),
            in_memory: false,
            hosts: Vec::new(),
            is_bypassed: false,
            is_partly_elsewhere: false,
            members: 0,
            chunk: None,
            btrfs_stripe_drives: None,
        };
        stack.sound_depths();
        if stack.filesystem.as_deref() == Some("btrfs") {
            let stripes = stack.top().find_map(|member| sysfs.btrfs_stripe_drives(member.name()));
            stack.btrfs_stripe_drives = stripes;
        }
        stack
    }

    /// The devices that the target lies on directly: one, or several where a volume or a file system such as
    /// btrfs spreads over them. Every request of the target reaches one of them.
    pub fn top(&self) -> impl Iterator<Item = &Layer> {
        self.layers.iter().filter(|layer| layer.depth == 0)
    }

    /// Devices with nothing below them: the drives themselves.
    pub fn drives(&self) -> impl Iterator<Item = &Layer> {
        self.layers.iter().filter(|layer| layer.below.is_empty())
    }

    /// The device that the target lies on and those below it, as long as each is made of one other.
    /// Every request of the target passes through each of them, unless a layer between answers it
    /// itself. Empty where the target lies on several devices.
    pub fn chain(&self) -> impl Iterator<Item = &Layer> {
        self.chain_from(self.top().next().filter(|_| self.top().count() == 1))
    }

    /// A device and those below it, as long as each is made of one other.
    pub fn chain_from<'s>(&'s self, first: Option<&'s Layer>) -> impl Iterator<Item = &'s Layer> {
        let mut next = first;
        std::iter::from_fn(move || {
            let layer = next?;
            next = match layer.below.as_slice() {
                [only] => self.layers.iter().find(|other| other.name() == only),
                _ => None,
            };
            Some(layer)
        })
        // A stack cannot hold itself; should sysfs say so, the walk still ends.
        .take(self.layers.len())
    }

    /// Layers come nearest first, so each one's depth is one more than that of the first above it,
    /// and 0 where none is.
    fn sound_depths(&mut self) {
        for place in 0..self.layers.len() {
            let (above, rest) = self.layers.split_at_mut(place);
            let holder = above.iter().find(|above| above.below.iter().any(|name| name == rest[0].name()));
            rest[0].depth = holder.map_or(0, |above| above.depth + 1);
        }
    }
}

fn layer(sysfs: &Sysfs, device: &BlockDevice, backing: &Backing) -> Layer {
    let below = match (&device.disk, &device.loop_device) {
        (Some(disk), _) => vec![disk.clone()],
        (None, Some(_)) => {
            // What the walk found next below a loop device is where its file lies.
            let lower = sysfs.stack(&device.name).into_iter().skip(1);
            let lower: Vec<BlockDevice> = lower.collect();
            lower
                .iter()
                .filter(|one| !lower.iter().any(|other| is_on(other, one)))
                .map(|d| d.name.clone())
                .collect()
        }
        (None, None) => device.slaves.clone(),
    };
    // What is not in the stack cannot be watched, and does not count as being below.
    let known = |name: &String| backing.block_devices.iter().any(|other| &other.name == name);
    Layer {
        device: device.clone(),
        below: below.into_iter().filter(known).collect(),
        depth: 0,
        interrupts: interrupts(sysfs, &device.name),
    }
}

/// Whether `upper` is made of `lower`.
fn is_on(upper: &BlockDevice, lower: &BlockDevice) -> bool {
    upper.disk.as_ref() == Some(&lower.name) || upper.slaves.contains(&lower.name)
}

/// The folders of the controllers that a device hangs on, nearest folder first: those above its own,
/// and for an NVMe device with several paths, which hangs on none, those above each path.
pub(super) fn controllers(sysfs: &Sysfs, name: &str) -> Vec<PathBuf> {
    let Ok(directory) = fs::canonicalize(sysfs.at_root("/sys/class/block").join(name)) else {
        return Vec::new();
    };
    let parent = directory.parent().unwrap_or(&directory);
    let is_subsystem =
        parent.file_name().is_some_and(|name| name.to_string_lossy().starts_with("nvme-subsys"));
    let paths = if is_subsystem { super::entries(parent, "nvme") } else { Vec::new() };
    let is_controller = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()?.strip_prefix("nvme"));
        name.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let starts = paths.into_iter().filter(is_controller).filter_map(|path| fs::canonicalize(path).ok());
    let starts: Vec<PathBuf> = std::iter::once(directory).chain(starts).collect();
    starts.iter().flat_map(|start| start.ancestors()).map(Path::to_path_buf).collect()
}

/// The interrupts of the nearest controllers of a device: the message-signalled ones that sysfs
/// lists (`msi_irqs`), or its one line (`irq`).
fn interrupts(sysfs: &Sysfs, name: &str) -> BTreeSet<u32> {
    let of = |above: PathBuf| -> BTreeSet<u32> {
        let listed = super::entries(&above.join("msi_irqs"), "");
        let numbers = listed.iter().filter_map(|path| path.file_name()?.to_str()?.parse().ok());
        let found: BTreeSet<u32> = numbers.collect();
        let single = || super::read(&above.join("irq"))?.parse().ok().filter(|number| *number > 0);
        if found.is_empty() { single().into_iter().collect() } else { found }
    };
    controllers(sysfs, name).into_iter().map(of).find(|found| !found.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(name: &str, below: &[&str]) -> Layer {
        Layer {
            device: BlockDevice { name: name.into(), ..BlockDevice::default() },
            below: below.iter().map(|b| (*b).to_owned()).collect(),
            ..Layer::default()
        }
    }

    fn stack(layers: Vec<Layer>) -> Stack {
        let mut stack = Stack { layers, ..Stack::default() };
        stack.sound_depths();
        stack
    }

    #[test]
    fn the_chain_ends_where_a_device_has_several_below_it() {
        let layers =
            [layer("dm-0", &["md0"]), layer("md0", &["sda", "sdb"]), layer("sda", &[]), layer("sdb", &[])];
        let stack = stack(layers.into());
        assert_eq!(stack.layers.iter().map(|l| l.depth).collect::<Vec<_>>(), [0, 1, 2, 2]);
        assert_eq!(stack.chain().map(Layer::name).collect::<Vec<_>>(), ["dm-0", "md0"]);
        assert_eq!(stack.drives().map(Layer::name).collect::<Vec<_>>(), ["sda", "sdb"]);
    }

    #[test]
    fn a_file_system_over_two_drives_has_two_tops_and_no_chain() {
        let stack = stack(vec![layer("sda", &[]), layer("sdb", &[])]);
        assert_eq!((stack.top().count(), stack.chain().count()), (2, 0));
    }

    #[test]
    fn a_stack_that_holds_itself_still_ends() {
        assert_eq!(stack(vec![layer("a", &["b"]), layer("b", &["a"])]).chain().count(), 2);
    }

    #[test]
    fn a_partition_that_begins_within_a_physical_block_is_off_by_the_rest() {
        let mut part = layer("sda1", &["sda"]);
        part.device.partition_start_bytes = Some(63 * 512);
        assert_eq!(part.misalignment_bytes(), 0, "an unknown block is no finding");
        part.device.queue = Some(QueueFacts { physical_block_bytes: 4096, ..QueueFacts::default() });
        assert_eq!(part.misalignment_bytes(), 3584);
        part.device.partition_start_bytes = Some(1 << 20);
        assert_eq!(part.misalignment_bytes(), 0);
    }

    #[test]
    fn a_file_on_a_btrfs_that_stripes_has_its_drives() {
        let dir = tempfile::tempdir().expect("a directory");
        for path in ["devices/sda", "devices/sdb", "allocation/data/raid0/total_bytes"] {
            let path = dir.path().join("sys/fs/btrfs/uuid").join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(path, "4096").expect("a file");
        }
        let member = |name: &str| BlockDevice { name: name.into(), ..BlockDevice::default() };
        let on = |filesystem: &str| Backing {
            filesystem: Some(filesystem.into()),
            block_devices: vec![member("sda"), member("sdb")],
            ..Backing::default()
        };
        let drives = |filesystem| Stack::new(&Sysfs::at(dir.path()), &on(filesystem)).btrfs_stripe_drives;
        assert_eq!((drives("btrfs"), drives("ext4")), (Some(2), None));
    }

    #[test]
    fn the_controllers_interrupts_are_found_in_a_fake_tree() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(path, text).expect("a file");
        };
        put("sys/devices/pci0/0000:01:00.0/msi_irqs/35", "msix");
        put("sys/devices/pci0/0000:01:00.0/msi_irqs/36", "msix");
        put("sys/devices/pci0/0000:01:00.0/nvme/nvme0/nvme0n1/dev", "259:0");
        fs::create_dir_all(root.join("sys/class/block")).expect("directories");
        let real = root.join("sys/devices/pci0/0000:01:00.0/nvme/nvme0/nvme0n1");
        std::os::unix::fs::symlink(real, root.join("sys/class/block/nvme0n1")).expect("a link");
        let sysfs = Sysfs::at(root);
        assert_eq!(interrupts(&sysfs, "nvme0n1"), BTreeSet::from([35, 36]));
        assert_eq!(interrupts(&sysfs, "gone"), BTreeSet::new());

        put("sys/devices/virtual/nvme-subsystem/nvme-subsys1/nvme1n1/dev", "259:1");
        let subsystem = root.join("sys/devices/virtual/nvme-subsystem/nvme-subsys1");
        std::os::unix::fs::symlink(subsystem.join("nvme1n1"), root.join("sys/class/block/nvme1n1"))
            .expect("a link");
        assert_eq!(interrupts(&sysfs, "nvme1n1"), BTreeSet::new());
        let controller = root.join("sys/devices/pci0/0000:01:00.0/nvme/nvme0");
        std::os::unix::fs::symlink(controller, subsystem.join("nvme0")).expect("a link");
        assert_eq!(interrupts(&sysfs, "nvme1n1"), BTreeSet::from([35, 36]), "by one of its paths");
    }
}
