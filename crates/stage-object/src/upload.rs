//! One file becomes one object: put, read back, and noted as done.
//!
//! A file of up to one chunk is put whole. A larger one is uploaded by parts, several at once; what the store has
//! taken is noted, durably, every few parts, so that a drain that died uploads only what was in flight. Parts belong
//! to one state of the source: if the file has changed since, they are given up.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::path::Path as Key;
use object_store::{Error, PutPayload};

use super::WINDOW;
use super::drain::Drain;
use super::lanes::Halt;
use super::read::{Read, Tasks, Wanted, receive};
use super::resume::{Part, Upload, UploadLog};
use super::source::Found;
use stage::calls;
use stage::digest::{CHUNK_BYTES, Digest};
use stage::error::StageError;
use stage::pace::Unlimited;

/// Parts that an upload may have, and bytes of one (Amazon S3 User Guide, "Amazon S3 multipart upload limits").
const PARTS_MAX: u64 = 10_000;
/// See [`PARTS_MAX`].
const PART_BYTES_MAX: u64 = 5 << 30;
/// Parts are noted when there are this many, or when the first has waited for [`NOTED_EVERY`].
const NOTED_AT_ONCE: usize = 4;
/// See [`NOTED_AT_ONCE`].
const NOTED_EVERY: Duration = Duration::from_secs(5);

/// Bytes of a part: whole chunks, as few as there may be parts for.
pub(super) fn part_bytes(size: u64) -> u64 {
    size.div_ceil(PARTS_MAX).div_ceil(CHUNK_BYTES).max(1) * CHUNK_BYTES
}

/// The store knows nothing of an upload: it was completed or aborted, or it never was. S3 says so in its own words,
/// and a store in memory in others.
pub(super) fn is_gone(error: &Error) -> bool {
    let text = error.to_string();
    matches!(error, Error::NotFound { .. })
        || text.contains("NoSuchUpload")
        || text.contains("MultipartUpload not found")
}

/// Why an upload did not come to its end.
enum Failure {
    /// The store knows nothing of it (any more).
    Gone(StageError),
    /// Anything else.
    Other(StageError),
}

impl From<StageError> for Failure {
    fn from(error: StageError) -> Self {
        Self::Other(error)
    }
}

impl Drain<'_> {
    /// Stores a file, unless that was done before.
    pub fn store_file(&self, found: &Found, halt: &Halt<'_>) -> Result<(), StageError> {
        let size = found.identity.size;
        if self.recorded(found)?.is_some_and(|done| done.object.is_some()) {
            self.run.progress.bytes_written.fetch_add(size, Relaxed);
            self.run.progress.bytes_verified.fetch_add(size, Relaxed);
            self.run.progress.files_done.fetch_add(1, Relaxed);
            return Ok(());
        }
        let key = self.set.key(&found.path)?;
        let read =
            if size <= CHUNK_BYTES { self.small(found, &key, halt)? } else { self.large(found, &key, halt)? };
        self.record(found, read.chunks, Some(read.e_tag.unwrap_or_default()))?;
        self.run.progress.files_done.fetch_add(1, Relaxed);
        Ok(())
    }

    fn small(&self, found: &Found, key: &Key, halt: &Halt<'_>) -> Result<Read, StageError> {
        let size = found.identity.size;
        let share = self.set.budget.take(size, halt)?;
        self.run.pace.admit(size, 1, halt.stop);
        halt.check()?;
        let file = self.source.open(found)?;
        let (body, chunks) = self.bytes(found, file.as_fd(), 0, size)?;
        self.source.check(found, file.as_fd())?;
        self.set.ask(key, "put", halt, self.set.store.put(key.clone(), body, false))?;
        drop(share);
        self.run.progress.bytes_written.fetch_add(size, Relaxed);
        self.read_back(found, key, &chunks, halt)
    }

    /// Compares what is stored with what was read.
    fn read_back(
        &self,
        found: &Found,
        key: &Key,
        chunks: &[Digest],
        halt: &Halt<'_>,
    ) -> Result<Read, StageError> {
        let wanted = Wanted {
            key,
            size: found.identity.size,
            chunk_bytes: CHUNK_BYTES,
            algorithm: self.algorithm(),
            have: None,
        };
        self.set.read_back(&wanted, Some(chunks), &Unlimited, halt, &|bytes| {
            self.run.progress.bytes_verified.fetch_add(bytes, Relaxed);
        })
    }

    /// Bytes of the source, as a request's body and as digests.
    pub(super) fn bytes(
        &self,
        found: &Found,
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: u64,
    ) -> Result<(PutPayload, Vec<Digest>), StageError> {
        let (mut body, mut digests) = (Vec::new(), Vec::new());
        let mut done = 0;
        loop {
            let mut chunk = vec![0; (bytes - done).min(CHUNK_BYTES) as usize];
            let read = calls::read_at(file, &mut chunk, offset + done).map_err(|error| {
                StageError::io_at("read", &self.source.path_of(&found.path), offset + done, error)
            })?;
            if read < chunk.len() {
                return Err(self.source.changed(&found.path, "it became shorter"));
            }
            done += chunk.len() as u64;
            digests.push(self.algorithm().of(&chunk));
            body.push(Bytes::from(chunk));
            if done >= bytes {
                return Ok((body.into_iter().collect(), digests));
            }
        }
    }

    fn large(&self, found: &Found, key: &Key, halt: &Halt<'_>) -> Result<Read, StageError> {
        let mut notes = UploadLog::new(self.ledger, key.as_ref());
        if let Some((upload, parts)) = notes.load()? {
            if upload.identity == found.identity && upload.part_bytes == part_bytes(found.identity.size) {
                match self.go_on(found, key, &upload, parts, &mut notes, halt) {
                    Err(Failure::Gone(_)) => {}
                    Err(Failure::Other(error)) => return Err(error),
                    Ok(read) => return Ok(read),
                }
            } else {
                // Parts of what the file was. Whether the store still has them is its own concern.
                let _ = self.set.wait(halt, self.set.store.abort(key.clone(), upload.id.clone()))?;
            }
        }
        let size = found.identity.size;
        let part_bytes = part_bytes(size);
        if part_bytes > PART_BYTES_MAX {
            let path = stage::error::shown(&self.source.path_of(&found.path));
            let what = format!(
                "{path}: {size} bytes do not fit an object of {PARTS_MAX} parts of {PART_BYTES_MAX} bytes"
            );
            return Err(StageError::Refused { what, hint: None });
        }
        let id = self.set.ask(key, "begin an upload by parts", halt, self.set.store.begin(key.clone()))?;
        let upload = Upload { id, identity: found.identity, part_bytes };
        notes.begin(&upload)?;
        match self.go_on(found, key, &upload, Vec::new(), &mut notes, halt) {
            Err(Failure::Gone(error) | Failure::Other(error)) => Err(error),
            Ok(read) => Ok(read),
        }
    }

    /// Uploads the parts that are not there yet, completes the object, and reads it back.
    fn go_on(
        &self,
        found: &Found,
        key: &Key,
        upload: &Upload,
        parts: Vec<Part>,
        notes: &mut UploadLog<'_>,
        halt: &Halt<'_>,
    ) -> Result<Read, Failure> {
        let count = found.identity.size.div_ceil(upload.part_bytes);
        let slots: Vec<OnceLock<Part>> = (0..count).map(|_| OnceLock::new()).collect();
        for part in parts {
            let bytes = upload
                .part_bytes
                .min(found.identity.size.saturating_sub(part.number.saturating_mul(upload.part_bytes)));
            let fits = bytes > 0 && part.chunks.len() as u64 == bytes.div_ceil(CHUNK_BYTES);
            let slot = slots.get(part.number as usize).filter(|_| fits);
            if slot.is_some_and(|slot| slot.set(part).is_ok()) {
                self.run.progress.bytes_written.fetch_add(bytes, Relaxed);
            }
        }
        let file = self.source.open(found)?;
        self.parts(found, key, upload, file.as_fd(), &slots, notes, halt)?;
        if let Err(changed) = self.source.check(found, file.as_fd()) {
            let _ = self.set.wait(halt, self.set.store.abort(key.clone(), upload.id.clone()))?;
            notes.forget(upload)?;
            return Err(Failure::Other(changed));
        }
        let parts: Vec<Part> = slots.into_iter().filter_map(OnceLock::into_inner).collect();
        let chunks: Vec<Digest> = parts.iter().flat_map(|part| part.chunks.iter().copied()).collect();
        let names = parts.into_iter().map(|part| part.content_id).collect();
        let completed =
            self.set.wait(halt, self.set.store.complete(key.clone(), upload.id.clone(), names))?;
        let read = self.read_back(found, key, &chunks, halt);
        match (completed, read) {
            // An answer that was lost does not matter where the object is there and right.
            (_, Ok(read)) => Ok(read),
            (Err(error), Err(_)) => Err(self.judge(key, "complete the upload", &error)),
            (Ok(()), Err(error)) => {
                if matches!(error, StageError::Corrupt { .. }) {
                    notes.forget(upload)?;
                }
                Err(Failure::Other(error))
            }
        }
    }

    fn judge(&self, key: &Key, operation: &str, error: &Error) -> Failure {
        let failed = self.set.failed(key, operation, error);
        if is_gone(error) { Failure::Gone(failed) } else { Failure::Other(failed) }
    }

    #[allow(clippy::too_many_arguments, reason = "what an upload consists of")]
    fn parts(
        &self,
        found: &Found,
        key: &Key,
        upload: &Upload,
        file: BorrowedFd<'_>,
        slots: &[OnceLock<Part>],
        notes: &mut UploadLog<'_>,
        halt: &Halt<'_>,
    ) -> Result<(), Failure> {
        let window = if self.set.store.ordered() { 1 } else { WINDOW };
        let (send, answers) = channel();
        let mut tasks = Tasks::new();
        let mut waiting = Waiting { parts: Vec::new(), since: Instant::now() };
        let mut missing =
            slots.iter().enumerate().filter(|(_, slot)| slot.get().is_none()).map(|(number, _)| number);
        let mut next = missing.next();
        let (mut under_way, mut failure) = (0, None);
        loop {
            if failure.is_none()
                && under_way < window
                && let Some(number) = next
            {
                match self.begin_part(found, key, upload, file, number, &send, halt) {
                    Ok(task) => {
                        tasks.push(task);
                        under_way += 1;
                        next = missing.next();
                    }
                    Err(error) => failure = Some(Failure::Other(error)),
                }
                continue;
            }
            if under_way == 0 {
                break;
            }
            // What the store has taken is noted even when a part beside it failed.
            let answer: (Part, u64, object_store::Result<String>) = match receive(&answers, halt) {
                Ok(answer) => answer,
                Err(error) => {
                    failure.get_or_insert(Failure::Other(error));
                    break;
                }
            };
            under_way -= 1;
            let (part, bytes, answer) = answer;
            match answer {
                Ok(content_id) => {
                    let part = Part { content_id, ..part };
                    self.run.progress.bytes_written.fetch_add(bytes, Relaxed);
                    let _ = slots[part.number as usize].set(part.clone());
                    waiting.add(part, upload, notes)?;
                }
                Err(error) => {
                    let operation = format!("put part {} of the upload", part.number + 1);
                    failure.get_or_insert(self.judge(key, &operation, &error));
                }
            }
        }
        waiting.flush(upload, notes)?;
        failure.map_or(Ok(()), Err)
    }

    /// Reads a part and sends it off; the answer comes through the channel.
    #[allow(clippy::too_many_arguments, reason = "what an upload consists of")]
    fn begin_part(
        &self,
        found: &Found,
        key: &Key,
        upload: &Upload,
        file: BorrowedFd<'_>,
        number: usize,
        send: &std::sync::mpsc::Sender<(Part, u64, object_store::Result<String>)>,
        halt: &Halt<'_>,
    ) -> Result<tokio::task::AbortHandle, StageError> {
        let offset = number as u64 * upload.part_bytes;
        let bytes = (found.identity.size - offset).min(upload.part_bytes);
        // Others' parts give their shares back without this lane's help, and so do this one's.
        let share = self.set.budget.take(bytes, halt)?;
        self.run.pace.admit(bytes, 1, halt.stop);
        halt.check()?;
        let (body, chunks) = self.bytes(found, file, offset, bytes)?;
        let part = Part { number: number as u64, content_id: String::new(), chunks };
        let (store, key, id, send) =
            (Arc::clone(&self.set.store), key.clone(), upload.id.clone(), send.clone());
        let task = self.set.runtime().spawn(async move {
            let answer = store.part(key, id, number, body).await;
            drop(share);
            // The receiver is gone if the upload has failed elsewhere.
            let _ = send.send((part, bytes, answer));
        });
        Ok(task.abort_handle())
    }
}

/// Parts that are to be noted.
struct Waiting {
    parts: Vec<Part>,
    since: Instant,
}

impl Waiting {
    fn add(&mut self, part: Part, upload: &Upload, notes: &mut UploadLog<'_>) -> Result<(), StageError> {
        if self.parts.is_empty() {
            self.since = Instant::now();
        }
        self.parts.push(part);
        if self.parts.len() >= NOTED_AT_ONCE || self.since.elapsed() >= NOTED_EVERY {
            self.flush(upload, notes)?;
        }
        Ok(())
    }

    fn flush(&mut self, upload: &Upload, notes: &mut UploadLog<'_>) -> Result<(), StageError> {
        notes.add(&upload.id, std::mem::take(&mut self.parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_has_no_more_parts_than_a_store_allows_and_none_that_is_too_small() {
        for size in [CHUNK_BYTES + 1, 79 << 30, 80 << 30, 1 << 40, 5 << 40, 48 << 40] {
            let bytes = part_bytes(size);
            assert!(size.div_ceil(bytes) <= PARTS_MAX, "{size}");
            assert!((5 << 20..=PART_BYTES_MAX).contains(&bytes), "{size}: parts of {bytes}");
            assert_eq!(bytes % CHUNK_BYTES, 0);
        }
        assert_eq!(part_bytes(CHUNK_BYTES + 1), CHUNK_BYTES);
        assert_eq!(part_bytes(5 << 40), 528 << 20);
    }
}
