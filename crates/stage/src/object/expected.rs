//! What a semaphore has promised of a source: which files there are, how large, and what is in them. A drain compares
//! names and sizes before anything is stored, and digests before the set is committed.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use super::lanes::Halt;
use super::source::Found;
use super::upload::Work;
use crate::calls;
use crate::digest::{CHUNK_BYTES, Digest, Hasher};
use crate::error::StageError;
use crate::spec::Expected;

/// The files that are listed, where any are.
pub(super) fn listed(expected: &[Expected]) -> Option<BTreeSet<PathBuf>> {
    let listed: BTreeSet<PathBuf> = expected.iter().map(|expected| expected.path.0.clone()).collect();
    (!listed.is_empty()).then_some(listed)
}

impl Work<'_> {
    /// Is everything there that was promised, in its size?
    pub fn has_what_is_expected(&self, found: &[Found], expected: &[Expected]) -> Result<(), StageError> {
        for expected in expected {
            let size = self.find(found, &expected.path.0)?.identity.size;
            if let Some(promised) = expected.size.filter(|promised| *promised != size) {
                let how = format!("the semaphore says {promised} bytes, and it has {size}");
                return Err(self.source.changed(&expected.path.0, &how));
            }
        }
        Ok(())
    }

    /// Are the bytes that were read those that were promised?
    pub fn is_what_is_expected(
        &self,
        found: &[Found],
        expected: &[Expected],
        halt: &Halt<'_>,
    ) -> Result<(), StageError> {
        for expected in expected {
            let Some(promised) = expected.digest else { continue };
            let digest = self.whole_digest(self.find(found, &expected.path.0)?, halt)?;
            if digest != promised {
                let (promised, digest) = (promised.text(self.algorithm), digest.text(self.algorithm));
                let how = format!("the semaphore says {promised}, and it has {digest}");
                return Err(self.source.changed(&expected.path.0, &how));
            }
        }
        Ok(())
    }

    fn find<'f>(&self, found: &'f [Found], path: &Path) -> Result<&'f Found, StageError> {
        let at = found.binary_search_by(|found| found.path.as_os_str().cmp(path.as_os_str()));
        at.map(|at| &found[at])
            .map_err(|_| self.source.changed(path, "the semaphore names it, and it is not there"))
    }

    /// The digest of a file's bytes in order, as programs that know no chunks compute it. Of more than a chunk it takes
    /// another reading of the source, which is still the file that was stored.
    fn whole_digest(&self, found: &Found, halt: &Halt<'_>) -> Result<Digest, StageError> {
        if let Some(stored) = self.log.get(&found.path)
            && let ([digest], true) = (stored.chunks.as_slice(), stored.identity == found.identity)
        {
            return Ok(*digest);
        }
        let file = self.source.open(found)?;
        let mut hasher = Hasher::new(self.algorithm);
        let mut buffer = vec![0; CHUNK_BYTES.min(found.identity.size) as usize];
        for at in (0..found.identity.size).step_by(CHUNK_BYTES as usize) {
            halt.check()?;
            let length = CHUNK_BYTES.min(found.identity.size - at) as usize;
            let read = calls::read_at(file.as_fd(), &mut buffer[..length], at)
                .map_err(|error| StageError::io_at("read", &self.source.path_of(&found.path), at, error))?;
            hasher.update(&buffer[..read]);
        }
        self.source.check(found, file.as_fd())?;
        Ok(hasher.finish())
    }
}
