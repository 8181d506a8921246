//! NVMe namespaces by their character devices (`/dev/ng0n1`), which take commands and nothing else.
//!
//! To read, the device is simply opened. To write, its **block device** is claimed as that itself would be
//! ([`super::block`]), and held for as long as this device is open or a command of its is under way: what is mounted, held,
//! open or signed is refused for the same reasons, and a mount that comes later is refused by the kernel. What the page cache
//! had of the block device is forgotten at the end. A namespace whose block device cannot be found, or
//! that turns out to be another one, is not written. The block device is found by [`crate::sysfs`] and then asked for
//! its namespace's number and size, so that no name decides. Linux gives a namespace whose metadata the block layer cannot
//! have a block device of no size, which shows nothing of what is stored: its signatures are looked for by commands.
//!
//! The synchronous path sends one command at a time. Discards are left to the block device, which knows the ranges that the
//! drive takes.
//!
//! A namespace whose blocks have **metadata** is opened only if the caller says who makes the protection information in it
//! ([`OpenOptions::protection`]). Where the controller makes all of the metadata, requests are of data alone. Where it lies
//! behind the data of each block, a block is that much longer, and so is the device: offsets and sizes are of data *and*
//! metadata. Where metadata is transferred, the synchronous path reads and does not write: what belongs into it the engine knows.

use std::fs::{File, OpenOptions as FsOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::block::{self, BlockDevice};
use super::sys::{self, Status};
use super::{
    AlignedBuffer, Device, DeviceKind, Geometry, OpenError, OpenOptions, WriteSync, ZeroOptions, Zoned,
    failed, leaves, open_error,
};
use crate::nvme::{
    self, BlockMetadata, Command, Identity, MetadataTransfer, ProtectionAction, TagChecks, Tags,
    WITH_METADATA,
};
use crate::safety;
use crate::sysfs::{self, DeviceNumber, NoTwin, Sysfs};

/// The most bytes of one command of the synchronous path, whole blocks of any size.
const MOST_AT_ONCE: u32 = 64 << 10;
/// The most blocks of one command: their number has 16 bits.
const MOST_BLOCKS: u64 = 1 << 16;

/// Nothing is checked on the synchronous path. The application tag is what fio gives a block where nothing else is said.
const UNCHECKED: Tags = Tags {
    application: 0x1234,
    mask: 0xffff,
    checks: TagChecks { guard: false, application: false, reference: false },
};

/// What commands to a namespace have to say and keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    /// Its number.
    pub nsid: u32,
    /// Bytes of a logical block as it is transferred: its data, and metadata that lies behind them.
    pub block_bytes: u32,
    /// The metadata of its blocks, where there is some.
    pub metadata: Option<BlockMetadata>,
    /// The most bytes that one command moves.
    pub most_bytes: u64,
    /// Its block device, as far as it was found.
    pub twin: Option<DeviceNumber>,
}

/// An open namespace.
#[derive(Debug)]
pub(crate) struct NamespaceDevice {
    spec: String,
    path: PathBuf,
    file: File,
    /// Its block device, claimed; some where it may be written.
    claimed: Option<BlockDevice>,
    /// The same opened for reading, where it is to say what its zones are.
    viewer: Option<BlockDevice>,
    /// Whether each write is to be on the medium when it completes.
    forced: bool,
    namespace: Namespace,
    geometry: Geometry,
    size: u64,
}

/// Whether a character device is that of a namespace.
pub(crate) fn is_namespace(status: &Status) -> bool {
    sysfs::is_namespace(&Sysfs::host(), DeviceNumber::from(status.special))
}

/// Bytes of the namespace whose character device a path leads to, for who has its protection information made so; None where
/// it leads to anything else, or says nothing.
#[must_use]
pub fn namespace_bytes(path: &Path, protection: Option<ProtectionAction>) -> Option<u64> {
    let status = sys::status_of_path(path).ok()?;
    if status.file_type() != libc::S_IFCHR || !is_namespace(&status) {
        return None;
    }
    let options = OpenOptions { protection, ..OpenOptions::default() };
    open(path.display().to_string(), path, &status, None, &options).ok().map(|device| device.size)
}

/// How large the zones of the namespace are whose character device a path leads to; None if it has none.
pub(super) fn zone_bytes(path: &Path, status: &Status) -> Option<u64> {
    let device = open(path.display().to_string(), path, status, None, &OpenOptions::default()).ok()?;
    Some(device.zones()?.facts().zone_bytes)
}

/// The most bytes of one request to `device`, `most` at most: no more than a command moves where what lies below takes
/// commands, which nothing splits.
#[must_use]
pub fn longest_request(device: &Arc<dyn Device>, most: u64) -> u64 {
    let namespaces = leaves(device).iter().filter_map(|leaf| leaf.namespace());
    namespaces.map(|namespace| namespace.most_bytes).fold(most, u64::min)
}

/// Opens the character device at `path`, of which `status` was seen; only its first `limit` bytes, where there is a limit.
pub(crate) fn open(
    spec: String,
    path: &Path,
    status: &Status,
    limit: Option<u64>,
    options: &OpenOptions,
) -> Result<NamespaceDevice, OpenError> {
    let system = Sysfs::host();
    let character = DeviceNumber::from(status.special);
    let file = FsOptions::new()
        .read(true)
        .write(options.access.writes())
        .custom_flags(libc::O_NOCTTY)
        .open(path)
        .map_err(|error| open_error(path, options.access, error))?;
    let opened = sys::status(file.as_fd()).map_err(|e| failed(path, "statx", e))?;
    if opened.special != status.special || opened.file_type() != libc::S_IFCHR {
        return Err(OpenError::Replaced { path: path.to_owned() });
    }
    let nsid = nvme::namespace_id(file.as_fd()).map_err(|e| failed(path, "NVME_IOCTL_ID", e))?;
    let answer = nvme::identify(file.as_fd(), nsid).map_err(|e| failed(path, "Identify Namespace", e))?;
    let not_driven = |what| OpenError::NotATarget { path: path.to_owned(), what };
    let identity = Identity::parse(&answer).map_err(|wrong| not_driven(wrong.what()))?;
    let metadata = match (identity.metadata, options.protection) {
        (None, _) => None,
        (Some(_), None) => return Err(not_driven(WITH_METADATA)),
        (Some(_), Some(action)) => {
            let extended = nvme::extended_format(file.as_fd(), nsid, identity.format)
                .map_err(|e| failed(path, "Identify", e))?;
            let metadata = identity.block_metadata(extended, action);
            metadata.map_err(|wrong| not_driven(wrong.what()))?
        }
    };
    let block_bytes = metadata.map_or(identity.block_bytes, |metadata| metadata.block_bytes());
    let block = u64::from(block_bytes);
    let actual = identity.blocks.saturating_mul(block);
    if let Some(asked) = limit.filter(|asked| *asked > actual) {
        return Err(OpenError::SizeMismatch { path: path.to_owned(), asked, actual });
    }
    let usable = limit.unwrap_or(actual) / block * block;
    if usable == 0 {
        return Err(OpenError::TooSmall {
            path: path.to_owned(),
            size: limit.unwrap_or(actual),
            needed: block,
        });
    }
    let twin = sysfs::block_device_of(&system, character, nsid);
    let number = twin.as_ref().ok().and_then(|name| system.number(name));
    let name = twin.as_ref().ok().cloned();
    let claimed = match options.access.writes() {
        true => Some(claim(&system, path, (character, nsid, identity), twin, options)?),
        false => None,
    };
    let viewer = match (&claimed, &name) {
        (None, Some(name)) if number.and_then(|number| system.zones(number)).is_some() => {
            view(name, nsid, identity)?
        }
        _ => None,
    };
    let queue = number.and_then(|number| system.queue(number));
    let device = NamespaceDevice {
        spec,
        path: path.to_owned(),
        file,
        claimed,
        viewer,
        forced: options.sync != WriteSync::None,
        namespace: Namespace {
            nsid,
            block_bytes,
            metadata,
            most_bytes: most_bytes(queue.as_ref().and_then(|queue| queue.max_hw_sectors_kb), block),
            twin: number,
        },
        geometry: Geometry {
            logical_block: block_bytes,
            physical_block: match block_bytes == identity.block_bytes {
                true => queue.map_or(0, |queue| queue.physical_block_bytes).max(block_bytes),
                // What the drive writes at once is so many bytes of data.
                false => block_bytes,
            },
            memory_alignment: identity.block_bytes,
        },
        size: usable,
    };
    device.check_signatures(character, identity.bytes(), &options.destroy)?;
    Ok(device)
}

/// Refuses a namespace whose data bear signatures that its block device, of `claimed` bytes, has not shown. `read` reads whole
/// blocks, `at_once` bytes of them at most.
fn check_hidden(
    path: &Path,
    (claimed, metadata, data): (u64, &BlockMetadata, u64),
    at_once: usize,
    read: &dyn Fn(&mut [u8], u64) -> io::Result<()>,
) -> Result<(), OpenError> {
    if claimed > 0 {
        return Ok(());
    }
    let read = |buffer: &mut [u8], at: u64| {
        metadata.read_data(buffer, at, &mut AlignedBuffer::zeroed(at_once, 4096), read)
    };
    let found = safety::signatures_in(&read, data).map_err(|e| failed(path, "reading signatures", e))?;
    block::refuse_signed(path, found)
}

/// The most bytes of one command to blocks of `block` bytes, where the driver takes `limit_kib`. Where it does not say, what
/// a command can ask for is the limit, and the driver refuses what is too long.
fn most_bytes(limit_kib: Option<u64>, block: u64) -> u64 {
    let limit = limit_kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024));
    limit.min(MOST_BLOCKS * block) / block * block
}

/// Claims the block device of a namespace: (its character device, its number, what it is).
fn claim(
    system: &Sysfs,
    path: &Path,
    (character, nsid, identity): (DeviceNumber, u32, Identity),
    twin: Result<String, NoTwin>,
    options: &OpenOptions,
) -> Result<BlockDevice, OpenError> {
    let unguarded = |why: String| OpenError::Unguarded { path: path.to_owned(), why };
    let name = twin.map_err(|why| unguarded(why.to_string()))?;
    let node = Path::new("/dev").join(&name);
    let status =
        sys::status_of_path(&node).map_err(|error| unguarded(format!("{}: {error}", node.display())))?;
    let is_it = status.file_type() == libc::S_IFBLK
        && system.number(&name) == Some(DeviceNumber::from(status.special));
    if !is_it {
        return Err(unguarded(format!("{} is not its block device", node.display())));
    }
    let given_up = |name: &PathBuf| match sys::status_of_path(name) {
        Ok(named) if is_character(&named, character) => node.clone(),
        _ => name.clone(),
    };
    let options = OpenOptions {
        direct: true,
        destroy: options.destroy.iter().map(given_up).collect(),
        sync: WriteSync::None,
        ..options.clone()
    };
    let block = block::open_any(
        node.display().to_string(),
        &node,
        &status,
        (None, identity.metadata.is_some()),
        &options,
    );
    let block = block.map_err(|error| match error {
        OpenError::InUse(mut refusal) => {
            // By the name that the user gave it; what stands in the way is named itself.
            path.clone_into(&mut refusal.target);
            OpenError::InUse(refusal)
        }
        other => other,
    })?;
    // It had this number in the device tree, and may have been detached and its number given to another since.
    if !is_namespace_of((nsid, identity), nvme::namespace_id(block.fd()), block.size()) {
        return Err(unguarded(format!("{} is another namespace", node.display())));
    }
    // What a writer that has closed it left in the page cache would be stored later, over what the commands write.
    sys::forget_pages(block.fd()).map_err(|source| OpenError::Io {
        target: node.display().to_string(),
        operation: "storing what its page cache holds",
        source,
    })?;
    Ok(block)
}

/// The block device of a zoned namespace, opened for reading; None where it is another namespace by now.
fn view(name: &str, nsid: u32, identity: Identity) -> Result<Option<BlockDevice>, OpenError> {
    let node = Path::new("/dev").join(name);
    let status = sys::status_of_path(&node).map_err(|error| failed(&node, "statx", error))?;
    let block = block::open(node.display().to_string(), &node, &status, None, &OpenOptions::default())?;
    let is_it = is_namespace_of((nsid, identity), nvme::namespace_id(block.fd()), block.size());
    Ok(Some(block).filter(|_| is_it))
}

/// Whether a claimed block device is the namespace with this number and identity. Where the block layer cannot have the
/// metadata, Linux gives it a block device of no size.
fn is_namespace_of((nsid, identity): (u32, Identity), claimed: io::Result<u32>, size: u64) -> bool {
    let is_size = size == identity.bytes() || (size == 0 && identity.metadata.is_some());
    claimed.is_ok_and(|claimed| claimed == nsid) && is_size
}

fn is_character(status: &Status, number: DeviceNumber) -> bool {
    status.file_type() == libc::S_IFCHR && DeviceNumber::from(status.special) == number
}

impl NamespaceDevice {
    /// Looks for signatures on the `data` bytes of the namespace where it is claimed, its block device could not be looked at, and
    /// `destroy` does not give it up by either of its names.
    fn check_signatures(
        &self,
        character: DeviceNumber,
        data: u64,
        destroy: &[PathBuf],
    ) -> Result<(), OpenError> {
        let (Some(claimed), Some(metadata)) = (&self.claimed, &self.namespace.metadata) else {
            return Ok(());
        };
        let is_named =
            |name: &PathBuf| sys::status_of_path(name).is_ok_and(|named| is_character(&named, character));
        let is_given_up = self.namespace.twin.is_some_and(|twin| block::is_given_up(twin, destroy))
            || destroy.iter().any(is_named);
        if is_given_up {
            return Ok(());
        }
        let sizes = (claimed.size(), metadata, data);
        check_hidden(&self.path, sizes, self.bounce().len(), &|blocks, start| self.read_blocks(blocks, start))
    }

    /// `error` where the request reaches beyond the end.
    fn bounded(&self, length: usize, offset: u64, error: io::ErrorKind) -> io::Result<()> {
        let end = offset.checked_add(length as u64);
        if end.is_some_and(|end| end <= self.size) {
            return Ok(());
        }
        let message = format!("{length} bytes at {offset} reach beyond the end at {}", self.size);
        Err(io::Error::new(error, message))
    }

    /// A buffer for one command: whole blocks.
    fn bounce(&self) -> AlignedBuffer {
        let block = u64::from(self.namespace.block_bytes);
        let most = self.namespace.most_bytes.min(u64::from(MOST_AT_ONCE)).max(block);
        AlignedBuffer::zeroed((most / block * block) as usize, 4096)
    }

    /// Visits the blocks that `length` bytes at `offset` lie in, as many at a time as `bounce` holds: where they begin, how
    /// many bytes they are, where in them the range begins, and which of its bytes these are.
    fn in_blocks(
        &self,
        (offset, length, at_once): (u64, usize, usize),
        mut visit: impl FnMut(u64, usize, usize, std::ops::Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let block = u64::from(self.namespace.block_bytes);
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let skip = (at % block) as usize;
            let take = (at_once - skip).min(length - done);
            visit(at - skip as u64, (skip + take).next_multiple_of(block as usize), skip, done..done + take)?;
            done += take;
        }
        Ok(())
    }

    fn read_blocks(&self, blocks: &mut [u8], start: u64) -> io::Result<()> {
        let Namespace { nsid, block_bytes, metadata, .. } = self.namespace;
        let first = start / u64::from(block_bytes);
        let command = Command::read(nsid, first, blocks.len() as u32, block_bytes);
        let command = command.with_data(blocks.as_mut_ptr() as u64);
        let Some(metadata) = metadata else {
            // SAFETY: the command reads blocks.len() bytes into `blocks`, borrowed until it is over.
            return unsafe { nvme::submit(self.file.as_fd(), command) };
        };
        let length = metadata.separate_bytes(blocks.len() / block_bytes as usize);
        let mut separate = AlignedBuffer::zeroed(length, 4096);
        let command = metadata.on(command, first, separate.as_mut_ptr() as u64, &UNCHECKED);
        // SAFETY: as above; its metadata is `length` bytes, or none, and goes into `separate`, which has as many.
        unsafe { nvme::submit(self.file.as_fd(), command) }
    }

    fn write_blocks(&self, blocks: &[u8], start: u64) -> io::Result<()> {
        let Namespace { nsid, block_bytes, metadata, .. } = self.namespace;
        let first = start / u64::from(block_bytes);
        let command = Command::write(nsid, first, blocks.len() as u32, block_bytes).with_fua(self.forced);
        let command = command.with_data(blocks.as_ptr() as u64);
        let command = match metadata {
            Some(metadata) if metadata.transfer == MetadataTransfer::None => {
                metadata.on(command, first, 0, &UNCHECKED)
            }
            Some(_) => {
                let words = "metadata that belongs to the blocks is written by an engine only";
                return Err(io::Error::new(io::ErrorKind::Unsupported, words));
            }
            None => command,
        };
        // SAFETY: the command writes blocks.len() bytes from `blocks`, borrowed until it is over, and no metadata.
        unsafe { nvme::submit(self.file.as_fd(), command) }
    }

    /// The block device, where the namespace may be written.
    fn writable(&self) -> io::Result<&BlockDevice> {
        let read_only = || io::Error::new(io::ErrorKind::PermissionDenied, "opened for reading only");
        self.claimed.as_ref().ok_or_else(read_only)
    }
}

impl Device for NamespaceDevice {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Block
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn is_writable(&self) -> bool {
        self.claimed.is_some()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn namespace(&self) -> Option<&Namespace> {
        Some(&self.namespace)
    }

    /// As its block device has them, which resets and finishes them as well.
    fn zones(&self) -> Option<&dyn Zoned> {
        self.claimed.as_ref().or(self.viewer.as_ref())?.zones()
    }

    fn claim(&self) -> Option<BorrowedFd<'_>> {
        Some(self.claimed.as_ref()?.fd())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.bounded(buffer.len(), offset, io::ErrorKind::UnexpectedEof)?;
        let mut bounce = self.bounce();
        let range = (offset, buffer.len(), bounce.len());
        self.in_blocks(range, |start, whole, skip, part| {
            self.read_blocks(&mut bounce[..whole], start)?;
            let length = part.len();
            buffer[part].copy_from_slice(&bounce[skip..skip + length]);
            Ok(())
        })
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.writable()?;
        self.bounded(buffer.len(), offset, io::ErrorKind::WriteZero)?;
        let mut bounce = self.bounce();
        let range = (offset, buffer.len(), bounce.len());
        self.in_blocks(range, |start, whole, skip, part| {
            let length = part.len();
            if whole != length {
                // The neighbours' bytes in the first and last block go back as they were.
                self.read_blocks(&mut bounce[..whole], start)?;
            }
            bounce[skip..skip + length].copy_from_slice(&buffer[part]);
            self.write_blocks(&bounce[..whole], start)
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        // SAFETY: a flush has no data.
        unsafe { nvme::submit(self.file.as_fd(), Command::flush(self.namespace.nsid)) }
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let block = self.writable()?;
        self.bounded(usize::try_from(length).unwrap_or(usize::MAX), offset, io::ErrorKind::InvalidInput)?;
        if block.size() == 0 {
            // It takes no range. A ring's commands do (`num_range`).
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let of_data = |bytes| self.namespace.metadata.map_or(bytes, |metadata| metadata.data_before(bytes));
        block.discard(of_data(offset), of_data(length))
    }

    fn write_zeroes(&self, offset: u64, length: u64, how: ZeroOptions) -> io::Result<()> {
        let block = self.writable()?;
        self.bounded(usize::try_from(length).unwrap_or(usize::MAX), offset, io::ErrorKind::WriteZero)?;
        if self.namespace.metadata.is_some() {
            // What the block layer makes of the metadata of such blocks is not this device's.
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        block.write_zeroes(offset, length, how)
    }
}

impl Drop for NamespaceDevice {
    /// Readers of the block device do not find what was there before the commands. The kernel does so by itself when the
    /// last of its openers closes it, and not before.
    fn drop(&mut self) {
        if let Some(claimed) = &self.claimed {
            let _ = sys::forget_pages(claimed.fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_has_become_another_is_not_opened() {
        let zero = sys::status_of_path(Path::new("/dev/zero")).expect("is there");
        let opened =
            open("ng".to_owned(), Path::new("/dev/null"), &zero, None, &OpenOptions::default()).err();
        assert!(matches!(opened, Some(OpenError::Replaced { .. })), "{opened:?}");
    }

    #[test]
    fn a_block_device_of_another_number_or_size_is_another_namespace() {
        let plain = Identity { blocks: 8, block_bytes: 512, format: 0, metadata: None };
        assert!(is_namespace_of((3, plain), Ok(3), 4096));
        let gone = || Err(io::ErrorKind::InvalidInput.into());
        for (claimed, size) in [(Ok(2), 4096), (Ok(3), 8192), (gone(), 4096), (Ok(3), 0)] {
            assert!(!is_namespace_of((3, plain), claimed, size), "{size}");
        }
        let metadata =
            nvme::MetadataFormat { bytes: 64, is_interleaved: true, protection: 1, is_first: false };
        let other = Identity { metadata: Some(metadata), ..plain };
        assert!(is_namespace_of((3, other), Ok(3), 0) && is_namespace_of((3, other), Ok(3), 4096));
        for (claimed, size) in [(Ok(2), 0), (Ok(3), 8 * 576), (gone(), 0)] {
            assert!(!is_namespace_of((3, other), claimed, size), "{size}");
        }
    }

    /// Metadata of 64 bytes for each block of 4096.
    fn metadata(transfer: MetadataTransfer) -> BlockMetadata {
        let action = ProtectionAction::Host;
        BlockMetadata { data_bytes: 4096, bytes: 64, transfer, action, protection: None }
    }

    #[test]
    fn a_namespace_that_its_block_device_does_not_show_is_looked_at_for_signatures_by_commands() {
        const BLOCKS: usize = 1000;
        for transfer in [MetadataTransfer::Interleaved, MetadataTransfer::Separate] {
            let of = metadata(transfer);
            let block = of.block_bytes() as usize;
            let look = |stored: &[u8], claimed: u64| {
                let read = |blocks: &mut [u8], start: u64| {
                    assert!(start.is_multiple_of(block as u64) && blocks.len().is_multiple_of(block));
                    blocks.copy_from_slice(&stored[start as usize..][..blocks.len()]);
                    Ok(())
                };
                check_hidden(Path::new("ng"), (claimed, &of, BLOCKS as u64 * 4096), 7 * block, &read)
            };
            // What was never written has metadata of ones.
            let blank: Vec<u8> = [vec![0; 4096], vec![0xff; block - 4096]].concat().repeat(BLOCKS);
            look(&blank, 0).expect("bears nothing");
            // btrfs begins at 64 KiB, and a backup GPT is the last 512 bytes.
            for (number, at, magic) in [(16, 64, &b"_BHRfS_M"[..]), (BLOCKS - 1, 4096 - 512, b"EFI PART")] {
                let mut signed = blank.clone();
                signed[number * block + at..][..magic.len()].copy_from_slice(magic);
                let error = look(&signed, 0).expect_err("bears something");
                assert!(matches!(error, OpenError::InUse(_)), "{transfer:?}: {error:?}");
                look(&signed, BLOCKS as u64 * 4096).expect("was looked at by the block device");
            }
        }
    }

    #[test]
    fn a_namespace_that_cannot_be_read_is_not_taken_for_unsigned() {
        let of = metadata(MetadataTransfer::Interleaved);
        let fails = |_: &mut [u8], _: u64| Err(io::Error::from_raw_os_error(libc::EIO));
        let error =
            check_hidden(Path::new("ng"), (0, &of, 1 << 20), 4160, &fails).expect_err("cannot be read");
        assert!(matches!(error, OpenError::Io { operation: "reading signatures", .. }), "{error:?}");
    }

    #[test]
    fn a_command_moves_what_the_driver_takes_in_whole_blocks_and_no_more_than_it_can_ask_for() {
        assert_eq!(most_bytes(Some(512), 512), 512 << 10);
        assert_eq!(most_bytes(Some(10), 4096), 8192);
        assert_eq!(most_bytes(None, 512), 32 << 20);
        assert_eq!(most_bytes(None, 4096), 256 << 20);
        assert_eq!(most_bytes(Some(u64::MAX), 512), 32 << 20);
    }
}
