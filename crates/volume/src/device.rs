//! Devices put together, as a [`Device`].

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use storage::device::{Device, DeviceKind, Geometry, Piece, Spread, ZeroOptions, piece_of};

use crate::session::Session;
use crate::sums::Sums;

/// Open members as one device.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub spec: String,
    pub kind: DeviceKind,
    pub members: Vec<Arc<dyn Device>>,
    pub spread: Arc<dyn Spread>,
    pub size: u64,
    pub geometry: Geometry,
    /// Of a labelled volume: who it is open for.
    pub session: Option<Session>,
    /// The checksums of a labelled volume that keeps any.
    pub sums: Option<Sums>,
}

/// What failed on which member. The volume's own offset is the caller's to tell.
#[derive(Debug, thiserror::Error)]
#[error("{operation} of {length} bytes at offset {offset} of {member}")]
struct MemberError {
    operation: &'static str,
    member: String,
    offset: u64,
    length: u64,
    #[source]
    source: io::Error,
}

/// An error of a member, with its kind kept, and its place named.
pub(crate) fn with_member_context(
    operation: &'static str,
    member: &dyn Device,
    offset: u64,
    length: u64,
    source: io::Error,
) -> io::Error {
    let kind = source.kind();
    let member = member.spec().to_owned();
    io::Error::new(kind, MemberError { operation, member, offset, length, source })
}

impl Assembled {
    /// `kind` where the range reaches beyond the end.
    fn bounded(&self, offset: u64, length: u64, kind: io::ErrorKind) -> io::Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(io::Error::new(
                kind,
                format!("{length} bytes at {offset} reach beyond the end of {} at {}", self.spec, self.size),
            )),
        }
    }

    /// The pieces of a range inside the volume, with where each begins in it.
    fn pieces(&self, offset: u64, length: u64) -> impl Iterator<Item = io::Result<(usize, Piece)>> {
        let (mut done, members) = (0, self.spread.members().len() as u32);
        std::iter::from_fn(move || {
            if done == length {
                return None;
            }
            let start = done as usize;
            let piece = piece_of(&*self.spread, members, offset + done, length - done);
            // None after one that cannot be.
            done = piece.map_or(length, |piece| done + piece.length);
            Some(
                piece
                    .map(|piece| (start, piece))
                    .map_err(|wrong| io::Error::new(io::ErrorKind::InvalidData, wrong)),
            )
        })
    }

    /// After a request that failed: the volume is not closed if the request may have been made in part.
    fn spoil_with(&self, sums: &Sums) {
        if sums.is_spoilt() {
            self.writing_failed();
        }
    }

    fn leaf(&self, member: u32) -> &dyn Device {
        &*self.spread.members()[member as usize]
    }
}

impl Device for Assembled {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn kind(&self) -> DeviceKind {
        self.kind
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Whether any member is: then requests have to fit its blocks.
    fn is_direct(&self) -> bool {
        self.members.iter().any(|member| member.is_direct())
    }

    fn is_writable(&self) -> bool {
        self.members.iter().all(|member| member.is_writable())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.members[0].fd()
    }

    fn spread(&self) -> Option<&Arc<dyn Spread>> {
        Some(&self.spread)
    }

    fn members(&self) -> &[Arc<dyn Device>] {
        &self.members
    }

    fn verifies(&self) -> bool {
        self.sums.is_some()
    }

    /// Blocks that were given new checksums after a crash.
    fn notices(&self) -> Vec<String> {
        let of_members = self.members.iter().flat_map(|member| member.notices());
        let resealed = self.sums.iter().flat_map(|sums| sums.resealed().lines(&self.spec));
        of_members.chain(resealed).collect()
    }

    fn begin_writing(&self) -> io::Result<()> {
        self.members.iter().try_for_each(|member| member.begin_writing())?;
        match &self.session {
            Some(session) if self.is_writable() => {
                session.begin(&self.members)?;
                // Where that failed the volume is not closed: its marks must be believed by whoever opens it next.
                self.sums.as_ref().map_or(Ok(()), Sums::begin).inspect_err(|_| session.spoil())
            }
            _ => Ok(()),
        }
    }

    fn writing_failed(&self) {
        self.members.iter().for_each(|member| member.writing_failed());
        if let Some(session) = &self.session {
            session.spoil();
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.bounded(offset, buffer.len() as u64, io::ErrorKind::UnexpectedEof)?;
        if let Some(sums) = &self.sums {
            return sums.read_at(buffer, offset);
        }
        for piece in self.pieces(offset, buffer.len() as u64) {
            let (start, piece) = piece?;
            let part = &mut buffer[start..start + piece.length as usize];
            let leaf = self.leaf(piece.member);
            leaf.read_at(part, piece.offset)
                .map_err(|e| with_member_context("read", leaf, piece.offset, piece.length, e))?;
        }
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.bounded(offset, buffer.len() as u64, io::ErrorKind::WriteZero)?;
        self.begin_writing()?;
        if let Some(sums) = &self.sums {
            return sums.write_at(buffer, offset).inspect_err(|_| self.spoil_with(sums));
        }
        for piece in self.pieces(offset, buffer.len() as u64) {
            let (start, piece) = piece?;
            let part = &buffer[start..start + piece.length as usize];
            let leaf = self.leaf(piece.member);
            leaf.write_at(part, piece.offset).map_err(|e| {
                self.writing_failed();
                with_member_context("write", leaf, piece.offset, piece.length, e)
            })?;
        }
        Ok(())
    }

    /// Syncs every member, the others too where one fails; the first failure is told.
    fn sync_data(&self) -> io::Result<()> {
        if let Some(sums) = &self.sums {
            return sums.sync().inspect_err(|_| self.spoil_with(sums));
        }
        let sync = |leaf: &Arc<dyn Device>| {
            leaf.sync_data().map_err(|e| with_member_context("fdatasync", &**leaf, 0, 0, e))
        };
        let results: Vec<_> = self.spread.members().iter().map(sync).collect();
        if results.iter().any(Result::is_err) {
            self.writing_failed();
        }
        results.into_iter().collect()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.bounded(offset, length, io::ErrorKind::InvalidInput)?;
        self.begin_writing()?;
        if let Some(sums) = &self.sums {
            // What a member cannot do has not been done.
            let is_failure = |error: &io::Error| error.kind() != io::ErrorKind::Unsupported;
            return sums.discard(offset, length).inspect_err(|error| {
                if is_failure(error) {
                    self.writing_failed();
                }
            });
        }
        for (member, part) in self.spread.extents(offset..offset + length) {
            let (leaf, length) = (self.leaf(member), part.end - part.start);
            leaf.discard(part.start, length)
                .map_err(|e| with_member_context("discard", leaf, part.start, length, e))?;
        }
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, length: u64, how: ZeroOptions) -> io::Result<()> {
        self.bounded(offset, length, io::ErrorKind::InvalidInput)?;
        if let Some(sums) = &self.sums {
            if how.fast_only {
                return Err(io::ErrorKind::Unsupported.into());
            }
            self.begin_writing()?;
            return sums.write_zeroes(offset, length).inspect_err(|_| self.spoil_with(sums));
        }
        self.begin_writing()?;
        let mut how = how;
        for (member, part) in self.spread.extents(offset..offset + length) {
            let (leaf, length) = (self.leaf(member), part.end - part.start);
            let zeroed = leaf.write_zeroes(part.start, length, how);
            // Only the first may refuse as too slow: what it has zeroed cannot be taken back.
            how.fast_only = false;
            zeroed.map_err(|e| with_member_context("write_zeroes", leaf, part.start, length, e))?;
        }
        Ok(())
    }
}

impl Drop for Assembled {
    fn drop(&mut self) {
        let Some(session) = &self.session else { return };
        // A volume whose checksums are not complete is not closed: its marks stay.
        if let Some(sums) = &self.sums
            && session.may_close()
            && sums.end().is_err()
        {
            session.spoil();
        }
        session.end(&self.members);
    }
}
