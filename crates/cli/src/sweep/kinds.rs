//! What the targets of a sweep are, as far as their specs and one look tell.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bench::problem::Problem;
use storage::device::DeviceSpec;
use storage::sysfs::Sysfs;
use sweep::model::{LAYOUT, Point, SCRATCH};
use sweep::plan::bytes_used;

use crate::failure::Failure;

/// What a target is, as far as its spec and one look tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A scratch file is laid in this directory.
    Scratch(PathBuf),
    /// Built for each point anew.
    Layout,
    /// A device, a file or memory.
    Device(DeviceSpec),
}

/// What the target of a point is. `here` is where the sweep's own scratch file goes.
pub fn kind(spec: &str, here: &Path) -> Result<Kind, Failure> {
    if spec == SCRATCH {
        return Ok(Kind::Scratch(here.to_owned()));
    }
    if spec == LAYOUT {
        return Ok(Kind::Layout);
    }
    let parsed = DeviceSpec::parse(spec).map_err(Problem::from)?;
    Ok(match &parsed {
        DeviceSpec::Path(path) if path.is_dir() => Kind::Scratch(path.clone()),
        _ => Kind::Device(parsed),
    })
}

/// Where a device is, if it has a name in the file system.
fn place(spec: &DeviceSpec) -> Option<PathBuf> {
    match spec {
        DeviceSpec::Path(path) | DeviceSpec::File { path, .. } => Some(path.clone()),
        _ => None,
    }
}

/// The drives below the targets, each with model and size: `2 × INTEL SSDPE2KX040T8, 3.64 TiB`. Empty where there
/// are none to be seen.
pub fn drives_below(points: &[Point]) -> String {
    let system = Sysfs::host();
    let mut paths: BTreeSet<PathBuf> = BTreeSet::new();
    for point in points {
        paths.extend(point.layout.get("drives").into_iter().flat_map(|d| d.split(',')).map(PathBuf::from));
    }
    for spec in targets(points) {
        match kind(spec, Path::new(".")) {
            Ok(Kind::Scratch(path)) => {
                paths.insert(path);
            }
            Ok(Kind::Device(device)) => paths.extend(device.leaves().into_iter().filter_map(place)),
            Ok(Kind::Layout) | Err(_) => {}
        }
    }
    let mut drives: BTreeMap<String, (String, u64)> = BTreeMap::new();
    for path in paths {
        let Ok(backing) = system.backing(&path) else { continue };
        for drive in backing.drives() {
            let model = drive.model.clone().unwrap_or_else(|| drive.transport.clone());
            drives.insert(drive.name.clone(), (model, drive.size_bytes));
        }
    }
    let mut kinds: BTreeMap<(String, u64), u32> = BTreeMap::new();
    for kind in drives.into_values() {
        *kinds.entry(kind).or_default() += 1;
    }
    let words = kinds.iter().map(|((model, bytes), n)| format!("{n} × {model}, {}", units::bytes(*bytes)));
    words.collect::<Vec<_>>().join("; ")
}

/// The targets of a plan, each once, in the order of its points.
pub fn targets(points: &[Point]) -> Vec<&str> {
    let mut targets: Vec<&str> = Vec::new();
    for point in points {
        if !targets.contains(&point.target.as_str()) {
            targets.push(&point.target);
        }
    }
    targets
}

/// Bytes that a target must have for all of its points, where each of them says how much it uses.
pub fn bytes_needed(points: &[Point], target: &str) -> Option<u64> {
    bytes_used(points.iter().filter(|p| p.target == target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_a_place_for_a_scratch_file() {
        let folder = tempfile::tempdir().expect("a directory");
        let spec = folder.path().display().to_string();
        assert_eq!(kind(&spec, Path::new("/")).expect("is one"), Kind::Scratch(folder.path().to_owned()));
        assert_eq!(kind(SCRATCH, Path::new("/x")).expect("is one"), Kind::Scratch("/x".into()));
    }
}
