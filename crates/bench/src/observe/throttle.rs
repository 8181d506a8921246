//! Rates that control groups allow this process on the devices below a target.
//!
//! A limit binds in the process' own group and in those above it (cgroups(7)): in version 2 in each of them
//! (`io.max`), in version 1 (`blkio.throttle.*_device`) in the own one, and in the root one for what the kernel
//! writes back. All are read and none is believed: whether a limit is what bounds a run is decided by comparing
//! rates ([`measure::limit`]). Read before the jobs start, some small files for each level.

use std::path::{Path, PathBuf};

use measure::record::Throttle;
use storage::sysfs::{DeviceNumber, Mount, Sysfs};

use super::Layer;

/// Version 1's files and what they bound.
const FILES_V1: [(&str, &str); 4] = [
    ("blkio.throttle.read_bps_device", "read_bps"),
    ("blkio.throttle.write_bps_device", "write_bps"),
    ("blkio.throttle.read_iops_device", "read_iops"),
    ("blkio.throttle.write_iops_device", "write_iops"),
];
/// Version 2's keys in `io.max` and what they bound.
const KEYS_V2: [(&str, &str); 4] =
    [("rbps", "read_bps"), ("wbps", "write_bps"), ("riops", "read_iops"), ("wiops", "write_iops")];

/// The limits in force on `layers`, in the order of the groups, own first.
#[must_use]
pub fn read(sysfs: &Sysfs, layers: &[Layer]) -> Vec<Throttle> {
    if layers.is_empty() {
        return Vec::new();
    }
    let groups = sysfs.text("/proc/self/cgroup").unwrap_or_default();
    let mounts = sysfs.mounts();
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let is_v2 = controllers.is_empty();
        if !is_v2 && !controllers.split(',').any(|c| c == "blkio") {
            continue;
        }
        for folder in mounts
            .iter()
            .filter(|mount| holds(mount, is_v2))
            .flat_map(|mount| levels(mount, Path::new(group)))
        {
            found.extend(of_group(sysfs, &folder, is_v2, layers));
        }
    }
    found
}

/// Whether a mount is of the hierarchy in which I/O is bounded.
fn holds(mount: &Mount, v2: bool) -> bool {
    match mount.filesystem.as_str() {
        "cgroup2" => v2,
        "cgroup" => !v2 && mount.super_options.split(',').any(|option| option == "blkio"),
        _ => false,
    }
}

/// The folders of a group and of those above it, as far as the mount shows them.
fn levels(mount: &Mount, group: &Path) -> Vec<PathBuf> {
    // In a container the mount shows a part of the tree, and the group may be named from elsewhere.
    let inside = group.strip_prefix(&mount.root).unwrap_or(Path::new(""));
    let relative = inside.strip_prefix("/").unwrap_or(inside);
    relative.ancestors().map(|level| mount.mount_point.join(level)).collect()
}

fn of_group(sysfs: &Sysfs, folder: &Path, v2: bool, layers: &[Layer]) -> Vec<Throttle> {
    let lines = |file: &str| -> (String, String) {
        let path = folder.join(file);
        (path.display().to_string(), sysfs.text(&path).unwrap_or_default())
    };
    let mut found = Vec::new();
    let mut push = |number: &str, what: &str, value: &str, source: &str| {
        let layer = number.parse::<DeviceNumber>().ok();
        let layer = layer.and_then(|number| layers.iter().find(|layer| layer.device.number == number));
        if let (Some(layer), Ok(per_second)) = (layer, value.parse()) {
            found.push(Throttle {
                device: layer.name().to_owned(),
                what: what.to_owned(),
                per_second,
                source: source.to_owned(),
            });
        }
    };
    if v2 {
        let (source, text) = lines("io.max");
        for line in text.lines() {
            let Some((number, limits)) = line.split_once(' ') else { continue };
            for (key, value) in limits.split_ascii_whitespace().filter_map(|limit| limit.split_once('=')) {
                // `max` is no number and no limit.
                if let Some((_, what)) = KEYS_V2.iter().find(|(known, _)| *known == key) {
                    push(number, what, value, &source);
                }
            }
        }
    } else {
        for (file, what) in FILES_V1 {
            let (source, text) = lines(file);
            for (number, value) in text.lines().filter_map(|line| line.split_once(' ')) {
                push(number, what, value.trim(), &source);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("a file");
    }

    fn layer(name: &str, number: (u32, u32)) -> Layer {
        let device =
            storage::sysfs::BlockDevice { name: name.into(), number: number.into(), ..Default::default() };
        Layer { device, ..Layer::default() }
    }

    fn found(root: &Path) -> Vec<(String, String, u64, String)> {
        let layers = [layer("md0", (9, 0)), layer("loop0", (7, 0))];
        let throttles = read(&Sysfs::at(root), &layers);
        throttles.into_iter().map(|t| (t.device, t.what, t.per_second, t.source)).collect()
    }

    #[test]
    fn limits_of_version_2_are_found_in_the_group_and_above_it() {
        let dir = tempfile::tempdir().expect("a directory");
        put(dir.path(), "proc/self/cgroup", "0::/a/b\n");
        put(dir.path(), "proc/self/mountinfo", "30 1 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
        put(dir.path(), "cg/a/b/io.max", "9:0 rbps=max wbps=max riops=1000 wiops=max\n8:0 rbps=1\n");
        put(dir.path(), "cg/a/io.max", "7:0 wbps=2000000\n");
        let expected = [
            ("md0".to_owned(), "read_iops".to_owned(), 1000, "/cg/a/b/io.max".to_owned()),
            ("loop0".to_owned(), "write_bps".to_owned(), 2_000_000, "/cg/a/io.max".to_owned()),
        ];
        assert_eq!(found(dir.path()), expected);
    }

    #[test]
    fn limits_of_version_1_are_found_in_the_hierarchy_of_blkio_only() {
        let dir = tempfile::tempdir().expect("a directory");
        put(dir.path(), "proc/self/cgroup", "8:blkio:/x\n4:memory:/y\n0::/\n");
        put(
            dir.path(),
            "proc/self/mountinfo",
            "30 1 0:26 / /cg/blkio rw - cgroup cgroup rw,blkio\n31 1 0:27 / /cg/memory rw - cgroup cgroup rw,memory\n",
        );
        put(dir.path(), "cg/blkio/x/blkio.throttle.read_iops_device", "7:0 250\n");
        put(dir.path(), "cg/blkio/blkio.throttle.write_bps_device", "7:0 5\nrubbish\n");
        put(dir.path(), "cg/memory/y/blkio.throttle.read_iops_device", "7:0 9\n");
        let expected = [
            (
                "loop0".to_owned(),
                "read_iops".to_owned(),
                250,
                "/cg/blkio/x/blkio.throttle.read_iops_device".to_owned(),
            ),
            (
                "loop0".to_owned(),
                "write_bps".to_owned(),
                5,
                "/cg/blkio/blkio.throttle.write_bps_device".to_owned(),
            ),
        ];
        assert_eq!(found(dir.path()), expected);
    }

    #[test]
    fn a_container_that_shows_a_part_of_the_tree_is_read_as_far_as_it_goes() {
        let dir = tempfile::tempdir().expect("a directory");
        put(dir.path(), "proc/self/cgroup", "0::/pod/box\n");
        put(dir.path(), "proc/self/mountinfo", "30 1 0:26 /pod /cg rw - cgroup2 cgroup2 rw\n");
        put(dir.path(), "cg/box/io.max", "9:0 riops=7\n");
        assert_eq!(found(dir.path()).len(), 1);
        put(dir.path(), "proc/self/cgroup", "0::/elsewhere\n");
        put(dir.path(), "cg/io.max", "9:0 riops=8\n");
        assert_eq!(found(dir.path()).len(), 1, "a group that the mount does not show");
    }

    #[test]
    fn a_machine_without_control_groups_has_no_limits() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(found(dir.path()), []);
    }
}
