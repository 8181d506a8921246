//! Zones of zoned block devices.
//!
//! A *sequential* zone is written at its write pointer only, in order; it begins again when it is reset, which loses what
//! it holds, and can hold no more than its capacity. A *conventional* zone is written anywhere. Drives limit how many zones
//! are open for writing (*open*) or partly written (*active*) at a time.
//!
//! The kernel's zones are those of linux/blkzoned.h; sizes and
//! places are in bytes here. A reset and a finished zone take a descriptor that is open for writing, so that the checks of
//! [`crate::safety`] stand before them as before any write.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::OnceLock;

use super::sys::{self, RawZone};
use super::{Device, namespace};
use crate::sysfs::{DeviceNumber, Sysfs, ZoneFacts};

/// How a zone is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ZoneKind {
    /// Anywhere.
    Conventional,
    /// At its write pointer, and nowhere else.
    Sequential,
    /// Best at its write pointer.
    SequentialPreferred,
}

/// The state of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ZoneCondition {
    /// It has no write pointer.
    NoPointer,
    /// Nothing was written since it was reset.
    Empty,
    /// Opened by a write; the drive closes it where it needs another one.
    ImplicitlyOpen,
    /// Opened by a command.
    ExplicitlyOpen,
    /// Partly written, and not open.
    Closed,
    /// It takes no more.
    Full,
    /// It can be read only, for good.
    ReadOnly,
    /// It can neither be read nor written, for good.
    Offline,
}

/// A zone, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    /// Where it begins.
    pub start: u64,
    /// To where the next begins.
    pub length: u64,
    /// How much of it can be written, from its beginning.
    pub capacity: u64,
    /// Where the next write goes; meaningless in a zone without a pointer.
    pub pointer: u64,
    /// How it is written.
    pub kind: ZoneKind,
    /// Its state.
    pub condition: ZoneCondition,
}

/// A drive that has zones.
pub trait Zoned: Send + Sync + Debug {
    /// What the whole drive is like.
    fn facts(&self) -> ZoneFacts;
    /// The first zones from that which has the byte at `from` on, at most `most` and at least one.
    ///
    /// # Errors
    /// An [`io::Error`] if the drive cannot report its zones: `InvalidData` if the type or condition of a zone is not known.
    fn report(&self, from: u64, most: usize) -> io::Result<Vec<Zone>>;
    /// Has whole sequential zones begin again. What they hold is lost.
    ///
    /// # Errors
    /// `PermissionDenied` if the device is open for reading only; `InvalidInput` if the range ends beyond the device; the
    /// kernel's error if it or the drive refuses the command.
    fn reset(&self, start: u64, length: u64) -> io::Result<()>;
    /// Makes whole sequential zones full, so that they are no longer open.
    ///
    /// # Errors
    /// As [`reset`](Self::reset).
    fn finish(&self, start: u64, length: u64) -> io::Result<()>;
}

/// All zones up to the byte at `end`.
///
/// # Errors
/// The drive's; `InvalidData` where its zones do not follow each other.
pub fn all_zones(drive: &dyn Zoned, end: u64) -> io::Result<Vec<Zone>> {
    let mut zones: Vec<Zone> = Vec::new();
    let mut at = 0;
    while at < end {
        let more = drive.report(at, usize::MAX)?;
        for zone in &more {
            if zone.start != at || zone.length == 0 {
                let words = format!("a zone at {} was reported where one at {at} was expected", zone.start);
                return Err(io::Error::new(io::ErrorKind::InvalidData, words));
            }
            at = zone.start + zone.length;
        }
        if more.is_empty() {
            let words = format!("no zone was reported at {at}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
        zones.extend(more);
    }
    Ok(zones)
}

/// How large the zones of a device are that takes whole ones only; None of other devices.
fn whole_zone_bytes(device: &dyn Device) -> Option<u64> {
    device.zones().map(Zoned::facts).filter(|facts| facts.is_host_managed).map(|facts| facts.zone_bytes)
}

fn has_zoned_member(device: &dyn Device) -> bool {
    let mut members = device.members().iter();
    members.any(|member| whole_zone_bytes(&**member).is_some() || has_zoned_member(&**member))
}

/// What can be given back of a range: of a host-managed drive the zones that lie inside, of other devices all of it.
#[must_use]
pub fn whole_zones(device: &dyn Device, range: Range<u64>) -> Range<u64> {
    let Some(zone) = whole_zone_bytes(device) else { return range };
    // The last zone may be shorter.
    let end = if range.end >= device.size() { range.end } else { range.end - range.end % zone };
    let start = range.start.next_multiple_of(zone);
    start..end.max(start)
}

/// The pieces of at most `most` bytes in which a range is given back, so that it can be stopped between two. Those of a
/// host-managed drive end where a zone ends, and are a zone at least; a device of which such a drive is a part has one.
pub fn discard_pieces(
    device: &dyn Device,
    range: Range<u64>,
    most: u64,
) -> impl Iterator<Item = Range<u64>> + use<> {
    // Where zones are a part of something else, who knows where they lie cuts the range.
    let zone = if has_zoned_member(device) { u64::MAX } else { whole_zone_bytes(device).unwrap_or(1) };
    let mut at = range.start;
    std::iter::from_fn(move || {
        let next_zone = (at / zone + 1).saturating_mul(zone);
        let last_zone = at.saturating_add(most) / zone * zone;
        let piece = at..last_zone.max(next_zone).min(range.end);
        at = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}

/// How large the zones of a block device are, or of a namespace by its character device; None if it has none, or is neither.
#[must_use]
pub fn zone_bytes_of(path: &Path) -> Option<u64> {
    let status = sys::status_of_path(path).ok()?;
    match status.file_type() {
        libc::S_IFBLK => Some(Sysfs::host().zones(DeviceNumber::from(status.special))?.zone_bytes),
        libc::S_IFCHR if namespace::is_namespace(&status) => namespace::zone_bytes(path, &status),
        _ => None,
    }
}

/// What an open block device knows of its zones.
#[derive(Debug)]
pub(super) struct BlockZones {
    pub facts: ZoneFacts,
    /// Of each zone whether it is conventional, which never changes.
    conventional: OnceLock<Vec<bool>>,
}

impl BlockZones {
    /// None where the device has no zones.
    pub fn of(number: DeviceNumber) -> Option<Self> {
        Sysfs::host().zones(number).map(|facts| Self { facts, conventional: OnceLock::new() })
    }

    fn is_conventional(&self, drive: &dyn Zoned, at: u64, end: u64) -> io::Result<bool> {
        let kinds = match self.conventional.get() {
            Some(kinds) => kinds,
            None => {
                let zones = all_zones(drive, end)?;
                let kinds = zones.iter().map(|zone| zone.kind == ZoneKind::Conventional).collect();
                self.conventional.get_or_init(|| kinds)
            }
        };
        Ok(kinds.get((at / self.facts.zone_bytes) as usize).copied().unwrap_or(false))
    }

    /// Gives a range back: whole sequential zones are reset, for which the drive has no other command; parts of conventional
    /// zones are discarded.
    pub fn discard(
        &self,
        drive: &dyn Zoned,
        fd: BorrowedFd<'_>,
        range: Range<u64>,
        size: u64,
    ) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let (start, bytes) = (at - at % self.facts.zone_bytes, self.facts.zone_bytes);
            let until = range.end.min(start + bytes);
            if self.is_conventional(drive, at, size)? {
                sys::discard_blocks(fd, at, until - at)?;
            } else if at != start || (until != start + bytes && until != size) {
                let words = format!("a sequential zone of {bytes} bytes is given back as a whole only");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
            } else {
                drive.reset(start, until - start)?;
            }
            at = until;
        }
        Ok(())
    }
}

/// A zone as the kernel reports it.
pub(super) fn zone_of(raw: &RawZone) -> io::Result<Zone> {
    let unknown = |what: &str, number: u8| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{what} {number:#x} of a zone is not known"))
    };
    let kind = match raw.kind {
        1 => ZoneKind::Conventional,
        2 => ZoneKind::Sequential,
        3 => ZoneKind::SequentialPreferred,
        other => return Err(unknown("type", other)),
    };
    let condition = match raw.condition {
        0 => ZoneCondition::NoPointer,
        1 => ZoneCondition::Empty,
        2 => ZoneCondition::ImplicitlyOpen,
        3 => ZoneCondition::ExplicitlyOpen,
        4 => ZoneCondition::Closed,
        0xd => ZoneCondition::ReadOnly,
        0xe => ZoneCondition::Full,
        0xf => ZoneCondition::Offline,
        other => return Err(unknown("condition", other)),
    };
    let RawZone { start, length, pointer, capacity, .. } = *raw;
    Ok(Zone { start, length, capacity, pointer, kind, condition })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_read_as_the_kernel_writes_it() {
        let raw = RawZone {
            start: 512,
            length: 1024,
            pointer: 600,
            capacity: 768,
            kind: 2,
            condition: 0xe,
            ..RawZone::default()
        };
        let expected = Zone {
            start: 512,
            length: 1024,
            capacity: 768,
            pointer: 600,
            kind: ZoneKind::Sequential,
            condition: ZoneCondition::Full,
        };
        assert_eq!(zone_of(&raw).unwrap(), expected);
        for (kind, condition) in [(0, 1), (4, 1), (2, 5), (2, 0xc)] {
            let error = zone_of(&RawZone { kind, condition, ..raw }).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }

    /// A drive that reports so many zones at once, and leaves a gap where it is told to.
    #[derive(Debug)]
    struct Reports {
        at_once: usize,
        gap_at: u64,
    }

    impl Zoned for Reports {
        fn facts(&self) -> ZoneFacts {
            ZoneFacts { is_host_managed: true, zone_bytes: 4096, max_open: 0, max_active: 0 }
        }

        fn report(&self, from: u64, most: usize) -> io::Result<Vec<Zone>> {
            let start = |number: u64| {
                from + number * 4096 + if from + number * 4096 >= self.gap_at { 512 } else { 0 }
            };
            let zone = |number| Zone {
                start: start(number),
                length: 4096,
                capacity: 4096,
                pointer: start(number),
                kind: ZoneKind::Sequential,
                condition: ZoneCondition::Empty,
            };
            Ok((0..most.min(self.at_once) as u64).map(zone).collect())
        }

        fn reset(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn finish(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn zones_are_reported_piece_by_piece_and_must_follow_each_other() {
        let all = |at_once, gap_at| all_zones(&Reports { at_once, gap_at }, 40_960).map(|zones| zones.len());
        assert_eq!(all(5, u64::MAX).unwrap(), 10);
        assert!(all(3, u64::MAX).unwrap() >= 10);
        assert_eq!(all(5, 8192).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(all(0, u64::MAX).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
