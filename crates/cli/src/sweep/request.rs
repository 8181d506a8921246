//! From space and flags to what is to be measured.

use std::path::{Path, PathBuf};

use bench::target::Problem;
use storage::device::DeviceSpec;
use sweep::model::{Point, SCRATCH};
use sweep::space::{DASH14, Overrides, Space, SpaceError};

use super::args::OverrideArgs;
use crate::failure::Failure;
use crate::values::nearest;

/// What a target is, as far as its spec and one look tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A scratch file is laid in this directory.
    Scratch(PathBuf),
    /// A device, a file or memory.
    Device(DeviceSpec),
}

/// The space with the flags put in.
pub fn space(path: Option<&Path>, overrides: &OverrideArgs) -> Result<Space, Failure> {
    let space = match path {
        Some(path) => Space::load(path).map_err(|error| misspelt_verb(path, error))?,
        None => Space::parse("the fourteen test types", DASH14)?,
    };
    let drive = |path: &PathBuf| Ok::<_, Failure>(absolute(path)?.display().to_string());
    let drives = overrides.drives.iter().map(drive).collect::<Result<_, _>>()?;
    let targets = overrides.target.iter().map(|spec| anchored(spec)).collect::<Result<_, _>>()?;
    let space = space.with(&Overrides {
        targets,
        passes: overrides.passes,
        runtime: overrides.runtime,
        ramp_time: overrides.ramp_time,
        size: overrides.size,
        seed: overrides.seed,
        drives,
    })?;
    Ok(match overrides.shard {
        Some((shard, shards)) => space.share(shard, shards)?,
        None => space,
    })
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::io(path, "tell its absolute path", &error))
}

/// `sweep paln` is read as a space called `paln`; whoever typed it meant something else.
fn misspelt_verb(path: &Path, error: SpaceError) -> Failure {
    let verbs = ["run", "plan", "resume", "status", "diff", "merge"];
    let near = path.to_str().filter(|_| !path.exists()).and_then(|text| nearest(text, &verbs));
    let hint = near.map(|verb| format!("did you mean `flashwright sweep {verb}`?"));
    Failure::from(error).hint_if(hint)
}

/// A spec that means the same in every directory, so that a sweep can be resumed from elsewhere.
fn anchored(spec: &str) -> Result<String, Failure> {
    Ok(match DeviceSpec::parse(spec).map_err(Problem::from)? {
        DeviceSpec::Memory { .. } => spec.to_owned(),
        parsed => parsed.with_paths(&mut |path| absolute(path))?.to_string(),
    })
}

/// What the target of a point is. `here` is where the sweep's own scratch file goes.
pub fn kind(spec: &str, here: &Path) -> Result<Kind, Failure> {
    if spec == SCRATCH {
        return Ok(Kind::Scratch(here.to_owned()));
    }
    let parsed = DeviceSpec::parse(spec).map_err(Problem::from)?;
    Ok(match &parsed {
        DeviceSpec::Path(path) if path.is_dir() => Kind::Scratch(path.clone()),
        _ => Kind::Device(parsed),
    })
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
    let needed = |point: &Point| {
        let w = &point.workload;
        let steps = w.offset_increment.unwrap_or(0).saturating_mul(u64::from(w.numjobs.saturating_sub(1)));
        w.size.map(|size| w.offset.saturating_add(size).saturating_add(steps))
    };
    let sizes: Option<Vec<u64>> = points.iter().filter(|p| p.target == target).map(needed).collect();
    sizes?.into_iter().max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_anchored_where_they_are_typed() {
        let here = std::env::current_dir().expect("there is one");
        assert_eq!(anchored("x/y").expect("parses"), here.join("x/y").display().to_string());
        assert_eq!(
            anchored("file:x?size=1g").expect("parses"),
            format!("file:{}?size=1g", here.join("x").display())
        );
        assert_eq!(anchored("mem:1g").expect("parses"), "mem:1g");
        assert_eq!(
            anchored("stripe:a,file:b?size=1g").expect("parses"),
            format!("stripe(chunk=64k):{0}/a,file:{0}/b?size=1g", here.display())
        );
        assert!(anchored("nvme:x").is_err());
    }

    #[test]
    fn a_directory_is_a_place_for_a_scratch_file() {
        let folder = tempfile::tempdir().expect("a directory");
        let spec = folder.path().display().to_string();
        assert_eq!(kind(&spec, Path::new("/")).expect("is one"), Kind::Scratch(folder.path().to_owned()));
        assert_eq!(kind(SCRATCH, Path::new("/x")).expect("is one"), Kind::Scratch("/x".into()));
    }
}
