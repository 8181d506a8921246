//! What is to be looked at: paths, exports of other hosts, and several devices as one, of which each member is looked at
//! as well.

use std::path::PathBuf;

use bench::problem::Problem;
use nbd::uri::Uri;
use storage::device::{DeviceKind, DeviceSpec, OpenOptions};
use storage::survey::{SurveyedExport, SurveyedVolume, survey_export};

use crate::failure::Failure;

/// What was named, taken apart.
#[derive(Debug, Default)]
pub struct Given {
    /// Files, directories and block devices, members among them.
    pub paths: Vec<PathBuf>,
    /// Exports, members among them.
    pub exports: Vec<Uri>,
    /// Specs over others.
    pub volumes: Vec<DeviceSpec>,
}

impl Given {
    /// A path as it is, and of a device spec all its members.
    pub fn of(texts: &[PathBuf]) -> Result<Self, Failure> {
        let mut given = Self::default();
        for text in texts {
            let spec = match text.to_str().filter(|_| std::fs::symlink_metadata(text).is_err()) {
                Some(text) => DeviceSpec::parse(text).map_err(Problem::from)?,
                None => DeviceSpec::Path(text.clone()),
            };
            for leaf in spec.leaves() {
                match (leaf, leaf.path()) {
                    (DeviceSpec::Nbd(uri), _) => given.exports.push(uri.clone()),
                    (_, Some(path)) => given.paths.push(path.to_owned()),
                    (_, None) => {
                        return Err(Failure::invalid(format!("{leaf} stands on no device")).hint(
                            "name files, directories, block devices, exports (nbd://HOST), or specs over them",
                        ));
                    }
                }
            }
            if !spec.members().is_empty() {
                given.volumes.push(spec);
            }
        }
        Ok(given)
    }

    /// Connects to the exports.
    pub fn look_at_exports(&self) -> Result<Vec<SurveyedExport>, Failure> {
        let look = |uri| survey_export(uri).map_err(|error| Problem::Open(error.into()).into());
        self.exports.iter().map(look).collect()
    }

    /// Puts together what is made of several devices, to be read.
    pub fn look_at_volumes(&self) -> Vec<SurveyedVolume> {
        self.volumes.iter().map(look_at).collect()
    }
}

fn kind(spec: &DeviceSpec) -> DeviceKind {
    match spec {
        DeviceSpec::Stripe { .. } => DeviceKind::Stripe,
        DeviceSpec::Separate { .. } => DeviceKind::Separate,
        _ => DeviceKind::Volume,
    }
}

fn look_at(spec: &DeviceSpec) -> SurveyedVolume {
    let mut seen = SurveyedVolume {
        spec: spec.to_string(),
        kind: kind(spec).word().to_owned(),
        size_bytes: None,
        chunk_bytes: None,
        name: None,
        uuid: None,
        members: spec.members().iter().map(ToString::to_string).collect(),
        problem: None,
        hint: None,
    };
    if matches!(spec, DeviceSpec::Volume { .. })
        && let Ok(found) = volume::survey::look(spec.members())
        && let [only] = &found.volumes[..]
    {
        seen.name = Some(only.name.clone());
        seen.uuid = Some(only.uuid.clone());
        if only.whole {
            seen.members = only.members.iter().map(|member| member.spec.clone()).collect();
        }
    }
    let options = OpenOptions { allow_unwritten: true, ..OpenOptions::default() };
    match volume::open(spec, &options) {
        Ok(device) => {
            seen.size_bytes = Some(device.size());
            seen.chunk_bytes = device.spread().and_then(|spread| spread.chunk());
        }
        Err(error) => {
            seen.hint = error.hint();
            seen.problem = Some(base::with_causes(&error));
        }
    }
    seen
}
