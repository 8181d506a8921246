//! Sets in object stores: read back, and looked for.

use std::path::Path;

use stage::address::Address;
use stage::names::PathText;
use stage::pace::{Pace, Progress, Stop, Unlimited};
use stage::{JobSpec, Options, StageError};
use stage_object::{Environment, Manifest, ObjectSet, ObjectTier};
use stage_service::qos::{JobPace, Qos, QosConfig};

use super::verify::{self, Found};
use crate::failure::Failure;

/// Sets that a hint names.
const TOLD: usize = 5;

/// Reads a set and compares it with its manifest; what to call it, and what was found.
pub fn verify(url: &str, bwlimit: Option<u64>, stop: &Stop) -> Result<(String, Found), Failure> {
    let set = ObjectSet::open(url, &Environment::of_process())?;
    let name = set.name_shown();
    let manifest = match set.manifest(stop) {
        Err(error @ StageError::Invalid { .. }) => {
            return Err(Failure::failed(error.to_string()).hint_if(beneath(url)));
        }
        manifest => manifest?,
    };
    let found = read(&set, &name, &manifest, bwlimit, stop)?;
    Ok((name, found))
}

/// The newest sets beneath a URL that names none itself.
fn beneath(url: &str) -> Option<String> {
    let names = ObjectTier::open(url).and_then(|tier| tier.names(&|_| true)).ok()?;
    let mut last: Vec<&str> = names.iter().rev().take(TOLD).map(String::as_str).collect();
    last.reverse();
    match (names.len(), last.as_slice()) {
        (0, _) => None,
        (1, [only]) => Some(format!("beneath it is one: {only}")),
        (many, last) => Some(format!("beneath it are {many}, the last by name: {}", last.join(", "))),
    }
}

fn read(
    set: &ObjectSet,
    name: &str,
    manifest: &Manifest,
    bwlimit: Option<u64>,
    stop: &Stop,
) -> Result<Found, Failure> {
    let progress = std::sync::Arc::new(Progress::default());
    let pace: Box<dyn Pace> = match bwlimit {
        None => Box::new(Unlimited),
        limit => {
            let options = Options { bwlimit: limit, ..Options::default() };
            Box::new(JobPace::new(&options, &Qos::new(QosConfig::default()), &progress, None))
        }
    };
    let verified = verify::watched(&progress, || set.verify_manifest(manifest, &*pace, stop, &progress))?;
    let faults = verified.faults.iter().map(|fault| verify::fault_of(Path::new(name), fault)).collect();
    let unknown = set.strangers(manifest, stop)?;
    let unknown = unknown.into_iter().map(|key| PathText(key.into())).collect();
    Ok(Found { files: verified.files, bytes: verified.bytes, faults, unknown })
}

/// Is a source in a store already, whole and right? A source that is still there, and that no job is known to have stored as
/// it is, is left to the job, which compares its bytes.
pub fn is_there(
    job: &JobSpec,
    source: &Path,
    url: &Address,
    is_source_copied: &dyn Fn() -> Result<bool, Failure>,
    stop: &Stop,
) -> Result<bool, Failure> {
    let Some((above, name)) = url.split() else { return Ok(false) };
    let Some(manifest) = ObjectTier::open(above.as_str())?.manifest(name)? else { return Ok(false) };
    if !verify::is_as_listed(job, &manifest)? {
        return Ok(false);
    }
    if let Some(how) = verify::changed_since(job, source, &manifest)? {
        return Err(verify::another(&url.to_string(), &how));
    }
    if verify::has_source(job, source) && !is_source_copied()? {
        return Ok(false);
    }
    let (name, found) = verify(url.as_str(), None, stop)?;
    verify::verdict(Path::new(&name), &found)
}
