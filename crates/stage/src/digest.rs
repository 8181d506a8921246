//! Digests: what a file's bytes were when they were read, and must be where they are written.
//!
//! A file is digested by the chunk, so that chunks can be read in any order, checked one by one, and gone on with
//! after a crash. The digest of a file of one chunk is that chunk's (so `xxhsum -H2` or `b3sum` of the file prints
//! the same); of a longer one it is the digest of its chunks' digests, one after another in binary. A manifest
//! names the algorithm and the chunk. XXH3 finds faults of a medium, and no intended change; whoever must
//! defend against intent asks for BLAKE3.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes that one digest is of, unless a document says otherwise.
pub const CHUNK_BYTES: u64 = 8 << 20;

/// How bytes are digested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// XXH3, 128 bits: as fast as memory, against accidents.
    #[default]
    Xxh3,
    /// BLAKE3, 256 bits: against intent as well.
    Blake3,
}

impl Algorithm {
    /// The word for it in documents and flags.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Xxh3 => "xxh3",
            Self::Blake3 => "blake3",
        }
    }

    /// The digest of `bytes`.
    #[must_use]
    pub fn of(self, bytes: &[u8]) -> Digest {
        match self {
            // At once: without a state to set up and to copy bytes into.
            Self::Xxh3 => Digest::of_xxh3(xxhash_rust::xxh3::xxh3_128(bytes)),
            Self::Blake3 => Digest(*blake3::hash(bytes).as_bytes()),
        }
    }

    /// The digest of a file from its chunks' digests, of which there is at least one unless the file is empty.
    #[must_use]
    pub fn of_chunks(self, chunks: &[Digest]) -> Digest {
        match chunks {
            [] => self.of(&[]),
            [one] => *one,
            many => {
                let mut hasher = Hasher::new(self);
                for chunk in many {
                    hasher.update(&chunk.0);
                }
                hasher.finish()
            }
        }
    }
}

impl FromStr for Algorithm {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        [Self::Xxh3, Self::Blake3].into_iter().find(|algorithm| algorithm.word() == word).ok_or(())
    }
}

/// A digest: 128 bits of XXH3, the most significant byte first, filled up with zeros; or 256 bits of BLAKE3.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The bytes that `algorithm` fills.
    #[must_use]
    pub fn text(&self, algorithm: Algorithm) -> String {
        match algorithm {
            Algorithm::Xxh3 => crate::names::hex(&self.0[..16]),
            Algorithm::Blake3 => crate::names::hex(&self.0),
        }
    }

    /// A digest from its hexadecimal digits, 32 or 64 of them.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = crate::names::from_hex(text)?;
        if bytes.len() != 16 && bytes.len() != 32 {
            return None;
        }
        let mut digest = [0; 32];
        digest[..bytes.len()].copy_from_slice(&bytes);
        Some(Self(digest))
    }

    fn of_xxh3(number: u128) -> Self {
        let mut digest = [0; 32];
        digest[..16].copy_from_slice(&number.to_be_bytes());
        Self(digest)
    }

    /// A digest as the journal stores it.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::names::hex(&self.0))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let short = self.0[16..].iter().all(|byte| *byte == 0);
        crate::names::hex(if short { &self.0[..16] } else { &self.0 }).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("a digest is 32 or 64 hexadecimal digits"))
    }
}

/// Digests bytes as they come.
pub struct Hasher(State);

enum State {
    Xxh3(Box<xxhash_rust::xxh3::Xxh3>),
    Blake3(Box<blake3::Hasher>),
}

impl Hasher {
    /// One that has seen nothing.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Xxh3 => State::Xxh3(Box::default()),
            Algorithm::Blake3 => State::Blake3(Box::default()),
        })
    }

    /// More bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Xxh3(state) => state.update(bytes),
            State::Blake3(state) => {
                state.update(bytes);
            }
        }
    }

    /// The digest of all of them.
    #[must_use]
    pub fn finish(self) -> Digest {
        match self.0 {
            State::Xxh3(state) => Digest::of_xxh3(state.digest128()),
            State::Blake3(state) => Digest(*state.finalize().as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_the_published_ones() {
        // XXH3_128bits of nothing with seed 0 (xxHash's specification); BLAKE3 of nothing (its test vectors).
        assert_eq!(Algorithm::Xxh3.of(b"").text(Algorithm::Xxh3), "99aa06d3014798d86001c324468d497f");
        assert_eq!(
            Algorithm::Blake3.of(b"").text(Algorithm::Blake3),
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
        );
    }

    #[test]
    fn a_file_of_one_chunk_has_the_digest_of_its_bytes_and_order_matters() {
        let (a, b) = (Algorithm::Xxh3.of(b"a"), Algorithm::Xxh3.of(b"b"));
        assert_eq!(Algorithm::Xxh3.of_chunks(&[a]), a);
        assert_eq!(Algorithm::Xxh3.of_chunks(&[]), Algorithm::Xxh3.of(b""));
        assert_ne!(Algorithm::Xxh3.of_chunks(&[a, b]), Algorithm::Xxh3.of_chunks(&[b, a]));
        let text = serde_json::to_string(&a).unwrap();
        assert_eq!(serde_json::from_str::<Digest>(&text).unwrap(), a);
    }
}
