//! Sets that are there: their manifests, whether their bytes are right, and how they go.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use futures_util::TryStreamExt;
use object_store::Error;
use object_store::path::Path as Key;

use super::lanes::{Halt, for_each};
use super::read::Wanted;
use super::{LANES, ObjectSet, keys, short};
use stage::digest::Digest;
use stage::error::StageError;
use stage::manifest::{Entry, Header, Kind, Reader};
use stage::pace::{Pace, Progress, Stop};
use stage::parts::PartId;

/// The largest manifest that is read: some millions of files.
const MANIFEST_BYTES_MAX: u64 = 4 << 30;
/// The largest chunk of a foreign manifest: chunks are held in memory.
const CHUNK_BYTES_MAX: u64 = 64 << 20;
/// Faults that are told one by one.
const FAULTS_MAX: usize = 1000;

/// A set's manifest, as it is in the store.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// Its first line.
    pub header: Header,
    /// What the set consists of, in order.
    pub entries: Vec<Entry>,
    /// What tells it from another.
    pub digest: Digest,
    /// As it is spelt.
    pub text: Vec<u8>,
}

impl Manifest {
    /// Is it a single file, and no directory?
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.entries
            .first()
            .is_some_and(|entry| entry.path.0.as_os_str().is_empty() && entry.kind == Kind::File)
    }

    /// The files whose bytes are stored.
    pub(super) fn files(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.kind == Kind::File && entry.link_to.is_none())
    }
}

/// What reading a set through has shown.
#[derive(Debug)]
pub struct Verified {
    /// Files that were read.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// What is missing, of another size, or of other bytes; a thousand of them at most.
    pub faults: Vec<StageError>,
}

impl ObjectSet {
    /// The set's manifest.
    ///
    /// # Errors
    /// [`StageError::Invalid`] where there is no such set; a manifest that cannot be used.
    pub fn manifest(&self, stop: &Stop) -> Result<Manifest, StageError> {
        self.name()?;
        self.manifest_if_any(&Halt::new(stop))?.ok_or_else(|| StageError::Invalid {
            what: format!("{}: no set is there (it has no manifest)", self.shown(&self.prefix)),
            hint: None,
        })
    }

    /// What tells the set that is there from another; none where there is none that can be used.
    pub fn digest(&self, stop: &Stop) -> Result<Option<Digest>, StageError> {
        let text = self.manifest_text(&Halt::new(stop))?;
        Ok(text.and_then(|text| self.parsed(&self.manifest_key(), text).ok()).map(|found| found.digest))
    }

    pub(super) fn manifest_if_any(&self, halt: &Halt<'_>) -> Result<Option<Manifest>, StageError> {
        let text = self.manifest_text(halt)?;
        text.map(|text| self.parsed(&self.manifest_key(), text)).transpose()
    }

    pub(super) fn manifest_text(&self, halt: &Halt<'_>) -> Result<Option<Vec<u8>>, StageError> {
        let key = self.manifest_key();
        let read = self.wait(halt, async {
            let answer = self.store.get(key.clone(), None).await?;
            if answer.meta.size > MANIFEST_BYTES_MAX {
                return Ok(None);
            }
            answer.bytes().await.map(Some)
        })?;
        match read {
            Ok(Some(text)) => Ok(Some(text.to_vec())),
            Ok(None) => Err(StageError::Manifest {
                path: self.shown(&key),
                what: format!("the manifest has more than {MANIFEST_BYTES_MAX} bytes"),
            }),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(&key, "read the manifest", &error)),
        }
    }

    /// Takes nothing in it on trust: see [`Reader`], and what a set in a store must be besides.
    pub(super) fn parsed(&self, key: &Key, text: Vec<u8>) -> Result<Manifest, StageError> {
        let wrong = |what: String| StageError::Manifest { path: self.shown(key), what };
        let mut reader = Reader::new(text.as_slice(), self.shown(key))?;
        let header = reader.header().clone();
        if header.chunk_bytes > CHUNK_BYTES_MAX {
            return Err(wrong(format!(
                "chunks of {} bytes are larger than {CHUNK_BYTES_MAX}",
                header.chunk_bytes
            )));
        }
        let mut entries: Vec<Entry> = Vec::new();
        let mut bytes = 0_u64;
        while let Some(entry) = reader.next_entry()? {
            let shown = stage::error::shown(&entry.path.0);
            bytes = bytes
                .checked_add(entry.size)
                .filter(|bytes| i64::try_from(*bytes).is_ok())
                .ok_or_else(|| wrong("its files have more bytes than any file system holds".to_owned()))?;
            let root = entry.path.0.as_os_str().is_empty();
            let alone = entries.first().is_some_and(|first| first.kind != Kind::Directory);
            if entries.is_empty() != root
                || alone
                || root && (entry.kind == Kind::Symlink || entry.link_to.is_some())
            {
                return Err(wrong(format!(
                    "{shown:?} does not fit what is before it: a set is a file or a directory"
                )));
            }
            let key = keys::of_path(&entry.path.0);
            if key == keys::MANIFEST || key == keys::CLAIM {
                return Err(wrong(format!("{shown:?} is the name of what makes a set a set")));
            }
            if let Some(first) = &entry.link_to {
                let at = entries.binary_search_by(|other| other.path.0.as_os_str().cmp(first.0.as_os_str()));
                if !at.is_ok_and(|at| entries[at].kind == Kind::File && entries[at].link_to.is_none()) {
                    return Err(wrong(format!("{shown:?} is another name of what is no file")));
                }
            }
            entries.push(entry);
        }
        if entries.is_empty() {
            return Err(wrong("the manifest is of nothing".to_owned()));
        }
        let digest = reader.digest().ok_or_else(|| wrong("the manifest has no end".to_owned()))?;
        Ok(Manifest { header, entries, digest, text })
    }

    /// Reads the whole set and compares it with its manifest.
    ///
    /// # Errors
    /// There is no such set. What is wrong with the set's bytes is no error, and in the answer.
    pub fn verify(&self, pace: &dyn Pace, stop: &Stop, progress: &Progress) -> Result<Verified, StageError> {
        let manifest = self.manifest(stop)?;
        self.verify_manifest(&manifest, pace, stop, progress)
    }

    /// [`Self::verify`], where the manifest has been read already.
    pub fn verify_manifest(
        &self,
        manifest: &Manifest,
        pace: &dyn Pace,
        stop: &Stop,
        progress: &Progress,
    ) -> Result<Verified, StageError> {
        let files: Vec<&Entry> = manifest.files().collect();
        let bytes = files.iter().map(|file| file.size).sum();
        progress.files_total.store(files.len() as u64, Relaxed);
        progress.bytes_total.store(bytes, Relaxed);
        progress.walked.store(true, Relaxed);
        let faults = Mutex::new(Vec::new());
        for_each(&files, LANES, stop, &|entry, halt| {
            let key = self.key(&entry.path.0)?;
            let seen = |bytes| {
                progress.bytes_verified.fetch_add(bytes, Relaxed);
            };
            match self.read_back(
                &self.wanted(&key, entry, &manifest.header),
                Some(&chunks_of(entry)),
                pace,
                halt,
                &seen,
            ) {
                Ok(_) => {
                    progress.files_done.fetch_add(1, Relaxed);
                    Ok(())
                }
                Err(fault @ StageError::Corrupt { .. }) => {
                    let mut faults = faults.lock().unwrap_or_else(PoisonError::into_inner);
                    if faults.len() < FAULTS_MAX {
                        faults.push(fault);
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            }
        })?;
        let faults = faults.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Verified { files: files.len() as u64, bytes, faults })
    }

    pub(super) fn wanted<'a>(&self, key: &'a Key, entry: &Entry, header: &Header) -> Wanted<'a> {
        Wanted {
            key,
            size: entry.size,
            chunk_bytes: header.chunk_bytes,
            algorithm: header.algorithm,
            have: None,
        }
    }

    /// Objects beneath the set's prefix that its manifest does not know, a thousand of them at most.
    pub fn strangers(&self, manifest: &Manifest, stop: &Stop) -> Result<Vec<String>, StageError> {
        let known: Result<HashSet<u128>, StageError> =
            manifest.files().map(|file| Ok(short(&self.key(&file.path.0)?))).collect();
        let (known, own) = (known?, [self.manifest_key(), self.claim_key()]);
        let beneath = if self.prefix.is_root() { 0 } else { self.prefix.as_ref().len() + 1 };
        let mut strangers = Vec::new();
        let mut listing = self.store.list(self.prefix.clone());
        self.ask(&self.prefix, "list", &Halt::new(stop), async {
            while let Some(object) = listing.try_next().await? {
                let key = object.location;
                if !own.contains(&key) && !known.contains(&short(&key)) && strangers.len() < FAULTS_MAX {
                    strangers.push(key.as_ref().get(beneath..).unwrap_or_default().to_owned());
                }
            }
            Ok(())
        })?;
        Ok(strangers)
    }

    /// Deletes the set: its manifest first, so that what is left when it is cut short is no set, then its objects. A
    /// mark that is put before that tells the next drain that a deletion was begun.
    /// Objects beneath its prefix that are none of its stay. Where there is no manifest (any more), everything beneath
    /// the prefix goes but what belongs to sets further down. Returns how many objects went.
    pub fn delete(&self, stop: &Stop) -> Result<u64, StageError> {
        self.name()?;
        let halt = Halt::new(stop);
        self.delete_found(self.manifest_if_any(&halt)?, &halt)
    }

    /// [`Self::delete`] of a set that was fetched, and of no other that may have its name by now: `digest` is its
    /// manifest's. A set that is half deleted already is deleted to its end.
    ///
    /// # Errors
    /// [`StageError::Refused`] where another set has the name.
    pub fn delete_only(&self, digest: Digest, stop: &Stop) -> Result<u64, StageError> {
        self.name()?;
        let halt = Halt::new(stop);
        let there = self.manifest_if_any(&halt)?;
        if there.as_ref().is_some_and(|there| there.digest != digest) {
            let what = format!("{}: it is not the set that was fetched, and stays", self.shown(&self.prefix));
            return Err(StageError::Refused { what, hint: None });
        }
        // Without a manifest, what is there may be half of a set that is being stored now.
        if there.is_none() && self.is_claimed(&halt)? && !self.is_half_gone(&halt)? {
            return Ok(0);
        }
        self.delete_found(there, &halt)
    }

    fn delete_found(&self, there: Option<Manifest>, halt: &Halt<'_>) -> Result<u64, StageError> {
        let keys = match there {
            Some(manifest) => {
                let keys: Result<Vec<Key>, StageError> =
                    manifest.files().map(|file| self.key(&file.path.0)).collect();
                let key = self.manifest_key();
                self.mark_deletion(halt)?;
                self.ask(&key, "delete the manifest", halt, self.store.delete(vec![key.clone()]))?;
                keys?
            }
            None => self.leftovers(halt)?,
        };
        let count = keys.iter().filter(|key| **key != self.claim_key()).count() as u64;
        self.ask(&self.prefix, "delete", halt, self.store.delete(keys))?;
        self.unclaim();
        Ok(count)
    }

    /// What lies beneath a prefix without being part of a set further down; the parts of a set that many nodes wrote are the
    /// set's own.
    fn leftovers(&self, halt: &Halt<'_>) -> Result<Vec<Key>, StageError> {
        let listing = self.store.list(self.prefix.clone()).map_ok(|object| object.location).try_collect();
        let all: Vec<Key> = self.ask(&self.prefix, "list", halt, listing)?;
        let manifest = format!("/{}", keys::MANIFEST);
        let own = if self.prefix.is_root() { String::new() } else { format!("{}/", self.prefix) };
        let is_part =
            |set: &str| set.strip_prefix(&own).is_some_and(|name| PartId::of_name(name.as_ref()).is_some());
        let sets: Vec<String> = all
            .iter()
            .filter_map(|key| key.as_ref().strip_suffix(&manifest))
            .filter(|set| !is_part(set))
            .map(|set| format!("{set}/"))
            .collect();
        Ok(all
            .into_iter()
            .filter(|key| !sets.iter().any(|set| key.as_ref().starts_with(set.as_str())))
            .collect())
    }
}

/// The digests of a file's chunks, of which a manifest has one or several.
pub(super) fn chunks_of(entry: &Entry) -> Vec<Digest> {
    if entry.chunks.is_empty() { entry.digest.into_iter().collect() } else { entry.chunks.clone() }
}

/// Where a path's last name is: its directory, and the name.
pub(super) fn split(path: &Path) -> (&Path, &std::ffi::OsStr) {
    (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default())
}
