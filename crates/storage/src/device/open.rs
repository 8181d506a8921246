//! From a spec to an open device.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use nbd::uri::Uri;

use super::{
    Access, Device, DeviceKind, DeviceSpec, OpenError, OpenOptions, block, file, memory_device, namespace,
    sys,
};
use crate::extents::{Evidence, WrittenState, written_state};
use crate::remote::NbdDevice;
use crate::safety::{self, Obstacle, Refusal};

/// Opens what `spec` names: one device. Specs over specs are opened by the volume crate, out of devices that
/// were opened here.
///
/// Nothing is changed by opening, except that `file:PATH?size=N` makes the file where there is none and
/// writing was asked for. What is opened for writing is safe to write from then on: see
/// [`crate::safety`]. A block device can be open for writing only once, in this process too, so share
/// the [`Arc`].
///
/// # Errors
/// [`OpenError`]; its class tells a wrong request, a refusal and a failure apart.
pub fn open(spec: &DeviceSpec, options: &OpenOptions) -> Result<Arc<dyn Device>, OpenError> {
    let (path, size) = match spec {
        DeviceSpec::Memory { size } => {
            return Ok(Arc::new(memory_device::create(spec.to_string(), *size, options)?));
        }
        DeviceSpec::Nbd(uri) => return Ok(Arc::new(open_export(uri, options)?)),
        DeviceSpec::Stripe { .. } | DeviceSpec::Separate { .. } | DeviceSpec::Volume { .. } => {
            return Err(OpenError::MadeOfOthers { spec: spec.to_string() });
        }
        DeviceSpec::Path(path) => (path.as_path(), None),
        DeviceSpec::File { path, size } => (path.as_path(), *size),
    };
    let device = open_path(spec, path, size, options)?;
    if !options.access.writes() && device.kind() == DeviceKind::File {
        let region = options.region.clone().unwrap_or(0..device.size());
        check_written(device.as_ref(), region, options.allow_unwritten)?;
    }
    Ok(device)
}

fn open_path(
    spec: &DeviceSpec,
    path: &Path,
    size: Option<u64>,
    options: &OpenOptions,
) -> Result<Arc<dyn Device>, OpenError> {
    let text = spec.to_string();
    let status = match sys::status_of_path(path) {
        Ok(status) => status,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match size {
                Some(size) if options.access.writes() && !is_dangling(path) => {
                    Ok(Arc::new(file::create(text, path, size, options)?))
                }
                _ if !file::parent(path).exists() => {
                    Err(OpenError::NoDirectory { path: file::parent(path).to_owned() })
                }
                _ => Err(OpenError::Missing { path: path.to_owned() }),
            };
        }
        Err(error) => return Err(open_error(path, options.access, error)),
    };
    let what = match status.file_type() {
        libc::S_IFREG => {
            return Ok(Arc::new(file::open_existing(text, path, &status, size, options)?));
        }
        libc::S_IFBLK => return Ok(Arc::new(block::open(text, path, &status, size, options)?)),
        libc::S_IFCHR if namespace::is_namespace(&status) => {
            return Ok(Arc::new(namespace::open(text, path, &status, size, options)?));
        }
        libc::S_IFDIR => "a directory",
        libc::S_IFIFO => "a FIFO",
        libc::S_IFSOCK => "a socket",
        libc::S_IFCHR => "a character device",
        _ => "something unknown",
    };
    Err(OpenError::NotATarget { path: path.to_owned(), what })
}

/// Opens an export. To be written, it must not bear data that nobody gave up; who else uses it the server knows.
fn open_export(uri: &Uri, options: &OpenOptions) -> Result<NbdDevice, OpenError> {
    let device = NbdDevice::open(uri, options.access.writes())?;
    let given_up = options
        .destroy
        .iter()
        .any(|name| name.to_str().and_then(|name| name.parse().ok()).as_ref() == Some(uri));
    if !options.access.writes() || given_up {
        return Ok(device);
    }
    let look = |source| OpenError::Io { target: uri.to_string(), operation: "reading signatures", source };
    let read = |buffer: &mut [u8], at: u64| device.read_at(buffer, at);
    let found = safety::signatures_in(&read, device.size()).map_err(look)?;
    if found.is_empty() {
        return Ok(device);
    }
    let found = found.into_iter().map(Obstacle::Signature).collect();
    Err(Refusal::new(Path::new(&uri.to_string()), found).into())
}

/// Whether the path is a symbolic link to nowhere, which must not be followed to make a file there.
fn is_dangling(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// Refuses a region of a file that was not written throughout, unless `allow` is set; returns what is
/// known. Block devices and memory do not know, and are never refused.
///
/// # Errors
/// [`OpenError::Unwritten`], or the kernel's failure to tell.
pub fn check_written(
    device: &dyn Device,
    region: Range<u64>,
    allow: bool,
) -> Result<WrittenState, OpenError> {
    let length = region.end.saturating_sub(region.start);
    if let Some(spread) = device.spread() {
        let parts = spread.extents(region.start.min(device.size())..region.end.min(device.size()));
        let states = parts
            .into_iter()
            .map(|(member, part)| check_written(&*spread.members()[member as usize], part, allow))
            .collect::<Result<Vec<_>, _>>()?;
        return Ok(states.into_iter().reduce(WrittenState::plus).unwrap_or_default());
    }
    if device.kind() != DeviceKind::File {
        return Ok(WrittenState { total: length, ..WrittenState::default() });
    }
    let path = device.path().unwrap_or(Path::new("")).to_owned();
    let state = written_state(device.fd(), region.start, length).map_err(|e| failed(&path, "FIEMAP", e))?;
    if allow || state.never_written() == 0 || state.evidence == Evidence::Unknown {
        return Ok(state);
    }
    Err(OpenError::Unwritten { path, offset: region.start, length, state })
}

/// What a failed open(2) or stat means.
pub(crate) fn open_error(path: &Path, access: Access, source: io::Error) -> OpenError {
    let path = path.to_owned();
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM | libc::EROFS | libc::ETXTBSY) => {
            OpenError::Denied { path, access: access.word(), source }
        }
        Some(libc::ENOENT | libc::ENOTDIR | libc::ENXIO | libc::ENODEV | libc::ENOMEDIUM) => {
            OpenError::Missing { path }
        }
        _ => failed(&path, "open", source),
    }
}

/// A step that failed.
pub(crate) fn failed(path: &Path, operation: &'static str, source: io::Error) -> OpenError {
    OpenError::Io { target: path.display().to_string(), operation, source }
}
