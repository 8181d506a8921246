//! URLs of object stores, taken apart and put together; no store is needed for that.
//!
//! `s3://BUCKET/PREFIX/NAME` is Amazon S3 or what speaks its protocol; `file:///DIRECTORY/NAME` is a directory that
//! stands in for a store, and `memory:///NAME` one within this process, both for tests. Segments of the path are
//! percent-decoded and then taken as they are.

use std::collections::BTreeMap;

use url::Url;

use crate::error::StageError;
use crate::keys;
use crate::names::shown;

/// A URL, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// What kind of store.
    pub scheme: Scheme,
    /// Decoded, without slashes at its ends. The last segment is the set's name.
    pub prefix: String,
    /// The options.
    pub query: BTreeMap<String, String>,
}

/// Kinds of stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scheme {
    /// Amazon S3, or a server that speaks its protocol.
    S3 {
        /// The bucket's name.
        bucket: String,
    },
    /// A directory.
    File,
    /// Memory of this process.
    Memory,
}

/// What a URL's query may say, and what for.
const QUERY: [(&str, &str); 9] = [
    ("endpoint", "the server's URL"),
    ("region", "its region"),
    ("allow_http", "true: without TLS"),
    ("virtual_hosted", "true: the bucket is part of the host's name"),
    ("checksum", "sha256, crc64nvme or none, which the server checks what it gets against"),
    ("bulk_delete", "false: one request for each object deleted"),
    ("conditional_put", "false: the server does not know If-None-Match"),
    ("timeout_s", "seconds that one request may take"),
    ("retries", "how often it is tried again"),
];

/// A URL that makes no sense.
pub fn invalid(url: &str, what: impl std::fmt::Display) -> StageError {
    StageError::invalid(
        format!("{}: {what}", shown(url.as_bytes())),
        "an object store is s3://BUCKET/PREFIX/NAME, with options in the query (docs/s3.md)",
    )
}

impl Address {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// [`StageError::Invalid`].
    pub fn parse(text: &str) -> Result<Self, StageError> {
        let url = Url::parse(text).map_err(|error| invalid(text, format!("not a URL: {error}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            // The text is not shown: it holds the secret.
            return Err(StageError::invalid(
                "a URL of an object store holds a user name or password",
                "credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: URLs are logged",
            ));
        }
        let host = url.host_str().unwrap_or_default();
        let scheme = match url.scheme() {
            "s3" if host.is_empty() => return Err(invalid(text, "no bucket is named")),
            "s3" => Scheme::S3 { bucket: host.to_owned() },
            "file" if host.is_empty() => Scheme::File,
            "memory" if host.is_empty() => Scheme::Memory,
            "file" | "memory" => return Err(invalid(text, "three slashes are expected before the path")),
            other => return Err(invalid(text, format!("{other}: is none of s3:, file:, memory:"))),
        };
        let prefix =
            keys::unescape(url.path().trim_matches('/')).and_then(|path| String::from_utf8(path).ok());
        let is_segment = |segment: &str| {
            !matches!(segment, "" | "." | "..")
                && !segment.chars().any(|character| character.is_ascii_control())
        };
        let prefix = prefix
            .filter(|prefix| prefix.is_empty() || prefix.split('/').all(is_segment))
            .ok_or_else(|| invalid(text, "a segment of its path is empty, `.`, `..`, or not printable"))?;
        let mut query = BTreeMap::new();
        for (name, value) in url.query_pairs() {
            if !QUERY.iter().any(|(known, _)| *known == name) {
                let known = QUERY.map(|(known, what)| format!("{known} ({what})")).join(", ");
                return Err(invalid(text, format!("{name:?} is none of {known}")));
            }
            if query.insert(name.to_string(), value.into_owned()).is_some() {
                return Err(invalid(text, format!("{name} is there twice")));
            }
        }
        if scheme != Scheme::File && scheme != Scheme::Memory || query.is_empty() {
            return Ok(Self { scheme, prefix, query });
        }
        Err(invalid(text, "only s3: takes options"))
    }

    /// The bucket as a person names it, without the prefix: `s3://bucket`.
    #[must_use]
    pub fn bucket(&self) -> String {
        match &self.scheme {
            Scheme::S3 { bucket } => format!("s3://{bucket}"),
            Scheme::File => "file://".to_owned(),
            Scheme::Memory => "memory://".to_owned(),
        }
    }

    /// The URL of something else in the same store.
    #[must_use]
    pub fn sibling(&self, prefix: &str) -> String {
        let segments: Vec<String> =
            prefix.split('/').map(|segment| keys::encode(segment.as_bytes())).collect();
        let mut url = format!("{}/{}", self.bucket(), segments.join("/"));
        if !self.query.is_empty() {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            query.extend_pairs(&self.query);
            url.push('?');
            url.push_str(&query.finish());
        }
        url
    }

    /// The URL that a set lies beneath, and its name there. None if the URL names no more than a bucket.
    #[must_use]
    pub fn split(&self) -> Option<(String, &str)> {
        let (above, name) = self.prefix.rsplit_once('/').unwrap_or(("", &self.prefix));
        (!name.is_empty()).then(|| (self.sibling(above), name))
    }
}

/// Do two URLs name one place?
#[must_use]
pub fn is_same(a: &str, b: &str) -> bool {
    a == b || matches!((Address::parse(a), Address::parse(b)), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_bucket_prefix_and_options() {
        let address =
            Address::parse("s3://ckpts/run%201/step-7?endpoint=http://127.0.0.1:9&allow_http=true").unwrap();
        assert_eq!(address.bucket(), "s3://ckpts");
        assert_eq!(Address::parse("file:///a~b/c+d/%7e").unwrap().prefix, "a~b/c+d/~");
        assert_eq!(address.prefix, "run 1/step-7");
        let sibling = address.sibling("run 1/step-8");
        assert_eq!(sibling, "s3://ckpts/run%201/step-8?allow_http=true&endpoint=http%3A%2F%2F127.0.0.1%3A9");
        assert_eq!(Address::parse(&sibling).unwrap().prefix, "run 1/step-8");
        assert_eq!(address.split().unwrap().1, "step-7");
        let above = Address::parse(&address.split().unwrap().0).unwrap();
        assert_eq!((above.prefix.as_str(), above.split().unwrap().1), ("run 1", "run 1"));
        assert!(Address::parse("s3://ckpts/").unwrap().split().is_none());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        for url in [
            "s3:///prefix",
            "http://host/x",
            "nothing",
            "s3://b/x?secret_access_key=1",
            "s3://b/x?region=a&region=b",
            "file://host/x",
            "memory:///x?region=a",
            "s3://b/a/%2E%2E%2Fb//c",
        ] {
            let error = Address::parse(url).map(|_| ()).unwrap_err();
            assert_eq!(error.class(), crate::ErrorClass::Invalid, "{url}: {error}");
        }
    }

    #[test]
    fn a_secret_in_a_url_is_refused_and_not_repeated() {
        let error = Address::parse("s3://key:hunter2@bucket/x").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
