//! From space and flags to what is to be measured.

use std::path::{Path, PathBuf};

use ::sim::Machine;
use bench::problem::Problem;
use storage::device::DeviceSpec;
use sweep::space::{DASH14, Overrides, Space, SpaceError};

use super::args::OverrideArgs;
use super::{built, simulated};
use crate::failure::Failure;

/// The space with the flags put in, as it is going to be measured here: what the machine cannot do is left out.
pub fn space_here(path: Option<&Path>, overrides: &OverrideArgs) -> Result<Space, Failure> {
    let space = space(path, overrides)?;
    if let Some(drive) = built::absent(&space).first() {
        return Err(Failure::invalid(format!("drives={drive}: there is no such device"))
            .hint("name the drives of this machine by --drives DEV,DEV…"));
    }
    shared(built::to_be_had(space)?, overrides)
}

/// Two spaces that alternate, with the flags put into both.
pub fn sides_here([a, b]: [&Path; 2], overrides: &OverrideArgs) -> Result<Space, Failure> {
    let flags = flags(overrides)?;
    let [a, b] = [Space::load_side(a)?.with(&flags)?, Space::load_side(b)?.with(&flags)?];
    shared(a.against(&b, &flags)?, overrides)
}

/// The space with the flags put in, as it is going to run on a simulated machine: what the machine does not have is left out.
pub fn space_simulated(
    path: Option<&Path>,
    overrides: &OverrideArgs,
    machine: &Machine,
) -> Result<Space, Failure> {
    shared(simulated::space(space(path, overrides)?, machine)?, overrides)
}

/// The space as it is going to be measured here, as far as that can be told; else as it is written, with why.
pub fn space_planned(
    path: Option<&Path>,
    overrides: &OverrideArgs,
) -> Result<(Space, Option<String>), Failure> {
    let space = space(path, overrides)?;
    let absent = built::absent(&space);
    let (space, why) = if absent.is_empty() {
        match built::to_be_had(space.clone()) {
            Ok(here) => (here, None),
            Err(failure) => (space, Some(failure.message().to_owned())),
        }
    } else {
        let (all, first) = (space.drives().len(), &absent[0]);
        let why = format!("{} of {all} drives are not on this machine ({first}, …)", absent.len());
        (space, Some(why))
    };
    built::check_layouts(&space)?;
    Ok((shared(space, overrides)?, why))
}

fn shared(space: Space, overrides: &OverrideArgs) -> Result<Space, Failure> {
    Ok(match overrides.shard {
        Some((shard, shards)) => space.share(shard, shards)?,
        None => space,
    })
}

/// The space with the flags put in, but for what only the machine can tell.
fn space(path: Option<&Path>, overrides: &OverrideArgs) -> Result<Space, Failure> {
    let space = match path {
        Some(path) => Space::load(path).map_err(|error| misspelt_verb(path, error))?,
        None => Space::parse("the fourteen test types", DASH14)?,
    };
    Ok(space.with(&flags(overrides)?)?)
}

/// The flags, with paths that mean the same in every directory.
fn flags(overrides: &OverrideArgs) -> Result<Overrides, Failure> {
    let drive = |path: &PathBuf| Ok::<_, Failure>(absolute(path)?.display().to_string());
    let drives = overrides.drives.iter().map(drive).collect::<Result<_, _>>()?;
    let targets = overrides.target.iter().map(|spec| anchored(spec)).collect::<Result<_, _>>()?;
    Ok(Overrides {
        targets,
        protocol: overrides.search.or(overrides.protocol),
        budget: overrides.budget,
        equivalence: overrides.equivalence,
        passes: overrides.passes,
        runtime: overrides.runtime,
        ramp_time: overrides.ramp_time,
        size: overrides.size,
        seed: overrides.seed,
        drives,
    })
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::io(path, "tell its absolute path", &error))
}

/// `sweep paln` is read as a space called `paln`; whoever typed it meant something else.
fn misspelt_verb(path: &Path, error: SpaceError) -> Failure {
    let verbs = ["run", "plan", "resume", "status", "diff", "merge", "ab"];
    let near = path.to_str().filter(|_| !path.exists()).and_then(|text| base::nearest(text, verbs));
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
}
