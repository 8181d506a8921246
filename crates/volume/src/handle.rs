//! A volume as programs use it.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use storage::device::{Device, DeviceSpec, OpenOptions, leaves};

use crate::device::Assembled;
use crate::error::VolumeError;
use crate::label::Label;
use crate::open::{self, fit_labelled};
use crate::sums::SumsLimits;

/// Bytes that a vectored request moves at a time.
const GATHERED: usize = 1 << 20;

/// An open volume; or any other device, which has one member then. Clones share it.
///
/// Whoever opens a labelled volume by this is its owner: it is written without a word more, while `flashwright
/// bench` must be told `--destroy` for each member. Everything else is opened by the rules of
/// [`storage::safety`].
///
/// With [`OpenOptions::direct`] requests that are not aligned to the volume's blocks are possible here, and slow: they
/// go through a buffer, and a write of a part of a block reads the block first.
///
/// ```
/// use std::io::{IoSlice, IoSliceMut};
/// use volume::{DeviceSpec, OpenOptions, Volume};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let volume = Volume::open(&DeviceSpec::parse("stripe(chunk=4k):mem:1m,mem:1m")?, &OpenOptions::writing())?;
/// volume.write_vectored_at(&[IoSlice::new(b"header"), IoSlice::new(&[7; 10_000])], 100)?;
/// let (mut header, mut body) = ([0; 6], vec![0; 10_000]);
/// volume.read_vectored_at(&mut [IoSliceMut::new(&mut header), IoSliceMut::new(&mut body)], 100)?;
/// assert_eq!((&header, &body[..]), (b"header", &[7; 10_000][..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Volume {
    device: Arc<dyn Device>,
}

impl Volume {
    /// Opens what `spec` names. Parts that were never written read as zeros.
    ///
    /// # Errors
    /// [`VolumeError`], with the member at fault.
    pub fn open(spec: &DeviceSpec, options: &OpenOptions) -> Result<Self, VolumeError> {
        let options = OpenOptions { as_owner: true, allow_unwritten: true, ..options.clone() };
        Ok(Self { device: open::open(spec, &options)? })
    }

    /// A labelled volume of devices that are open already, in any order; and the label of its first member.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of_members(members: Vec<Arc<dyn Device>>) -> Result<(Self, Label), VolumeError> {
        Self::of_members_within(members, SumsLimits::default())
    }

    /// The same with limits on what the checksums of the volume take, if it keeps any.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of_members_within(
        members: Vec<Arc<dyn Device>>,
        limits: SumsLimits,
    ) -> Result<(Self, Label), VolumeError> {
        let specs: Vec<&str> = members.iter().map(|member| member.spec()).collect();
        let spec = format!("volume:{}", specs.join(","));
        let (assembled, label): (Assembled, Label) = fit_labelled(spec, members, limits)?;
        Ok((Self { device: Arc::new(assembled) }, label))
    }

    /// The device that engines drive.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.device.size()
    }

    /// Bytes that one member holds before the next; none where it is one device, or others one after the other.
    #[must_use]
    pub fn chunk(&self) -> Option<u64> {
        self.device.spread()?.chunk()
    }

    /// The devices that requests go to.
    #[must_use]
    pub fn members(&self) -> &[Arc<dyn Device>] {
        leaves(&self.device)
    }

    /// Bytes of which offsets and lengths of a [`Queue`](crate::Queue)'s requests are multiples; 1 through the page cache.
    #[must_use]
    pub fn block(&self) -> u32 {
        self.device.geometry().logical_block
    }

    /// Reads exactly `buffer.len()` bytes at `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` beyond the end; else the member's, named with the place on it.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.device.read_at(buffer, offset)
    }

    /// Writes all of `buffer` at `offset`. Durable after the next [`sync`](Self::sync).
    ///
    /// # Errors
    /// `WriteZero` beyond the end; else the member's. Parts before the one at fault, and on other members, may be
    /// written.
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.device.write_at(buffer, offset)
    }

    /// Reads into one buffer after the other, as preadv(2) does; all of them or an error.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<()> {
        if let [one] = buffers {
            return self.read_at(one, offset);
        }
        let total: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        self.bounded(total, offset, io::ErrorKind::UnexpectedEof)?;
        let mut gathered = vec![0; total.min(GATHERED)];
        let (mut at, mut ready) = (offset, &[][..]);
        let mut left = total;
        for buffer in buffers {
            let mut rest = &mut buffer[..];
            while !rest.is_empty() {
                if ready.is_empty() {
                    let length = left.min(GATHERED);
                    self.read_at(&mut gathered[..length], at)?;
                    (at, left) = (at + length as u64, left - length);
                    ready = &gathered[..length];
                }
                let length = rest.len().min(ready.len());
                rest[..length].copy_from_slice(&ready[..length]);
                (rest, ready) = (&mut rest[length..], &ready[length..]);
            }
        }
        Ok(())
    }

    /// Writes one buffer after the other, as pwritev(2) does; all of them or an error.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn write_vectored_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        if let [one] = buffers {
            return self.write_at(one, offset);
        }
        let total: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        self.bounded(total, offset, io::ErrorKind::WriteZero)?;
        let mut gathered = Vec::with_capacity(total.min(GATHERED));
        let mut at = offset;
        for buffer in buffers {
            let mut rest = &buffer[..];
            while !rest.is_empty() {
                let length = rest.len().min(GATHERED - gathered.len());
                gathered.extend_from_slice(&rest[..length]);
                rest = &rest[length..];
                if gathered.len() == GATHERED {
                    self.write_at(&gathered, at)?;
                    at += gathered.len() as u64;
                    gathered.clear();
                }
            }
        }
        if gathered.is_empty() { Ok(()) } else { self.write_at(&gathered, at) }
    }

    /// `kind` where the range reaches beyond the end, before any of it is touched.
    fn bounded(&self, length: usize, offset: u64, kind: io::ErrorKind) -> io::Result<()> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.size() => Ok(()),
            _ => Err(io::Error::new(
                kind,
                format!("{length} bytes at {offset} reach beyond the end of {}", self.device.spec()),
            )),
        }
    }

    /// Makes completed writes durable on every member.
    ///
    /// # Errors
    /// The first member's. Nothing may be assumed about earlier writes then, and calling again proves nothing.
    pub fn sync(&self) -> io::Result<()> {
        self.device.sync_data()
    }

    /// Gives a range back to the members' media.
    ///
    /// # Errors
    /// The member's; `EOPNOTSUPP` where it cannot.
    pub fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.device.discard(offset, length)
    }

    /// What was found since it was opened that is no error, a line each: blocks of a volume with checksums that were
    /// torn by a crash, and given new ones before the first write.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        self.device.notices()
    }
}
