//! URLs of object stores, taken apart and put together; no store is needed for that.
//!
//! `s3://BUCKET/PREFIX/NAME` is Amazon S3 or what speaks its protocol; `file:///DIRECTORY/NAME` is a directory that
//! stands in for a store, for tests. An [`Address`] is checked when it is made, so that a job, a journal and a message
//! never hold a URL that no store can be opened with, or one with a secret in it.
//!
//! The path is taken from the text as it was written: no URL parser resolves `..` in it first. Its segments are
//! percent-decoded, and refused if they could name anything but an object right below the one before.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;

use crate::error::StageError;
use crate::keys;
use crate::names::shown;

/// A URL of an object store that makes sense. Two are equal if they name one place with the same options, however they
/// are spelt.
#[derive(Debug, Clone)]
pub struct Address {
    /// As it was written, without slashes at the end of its path.
    text: String,
    scheme: Scheme,
    /// Decoded, without slashes at its ends. The last segment is the set's name.
    prefix: String,
    query: BTreeMap<String, String>,
}

/// Kinds of stores.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Amazon S3, or a server that speaks its protocol.
    S3 {
        /// The bucket's name.
        bucket: String,
    },
    /// A directory.
    File,
}

/// What an option's value has to be.
#[derive(Clone, Copy)]
enum Value {
    /// `http://HOST` or `https://HOST`, without a user name.
    Server,
    /// Letters, digits and `-`.
    Name,
    /// `true` or `false`.
    Flag,
    Number,
    OneOf(&'static [&'static str]),
}

impl Value {
    /// What is wrong with a value. It is not repeated: a secret may have been put there.
    fn fault(self, value: &str) -> Option<String> {
        let (is_right, expected) = match self {
            Self::Server => (is_server(value), SERVER),
            Self::Name => {
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
                (!value.is_empty() && value.bytes().all(is_plain), "letters, digits and -")
            }
            Self::Flag => (matches!(value, "true" | "false"), "true or false"),
            Self::Number => (value.parse::<u64>().is_ok(), "a number"),
            Self::OneOf(words) => {
                return (!words.contains(&value)).then(|| format!("one of {}", words.join(", ")));
            }
        };
        (!is_right).then(|| expected.to_owned())
    }
}

/// What [`is_server`] takes, in words.
pub const SERVER: &str =
    "http://HOST or https://HOST, without a user name, and with other letters than those of ASCII as xn--…";

/// Is it the URL of a server as it is to be written? What a URL parser would mend first (`http:\\host`, `HTTP:host`, a name in
/// Unicode), the parts of a program that read the text itself take for something else.
#[must_use]
pub fn is_server(value: &str) -> bool {
    let host = value.strip_prefix("https://").or_else(|| value.strip_prefix("http://"));
    host.is_some_and(|host| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/[]%".contains(&byte);
        !host.starts_with('/') && host.bytes().all(is_plain) && Url::parse(value).is_ok()
    })
}

/// What a URL's query may say, what its value is, and what for.
const QUERY: [(&str, Value, &str); 9] = [
    ("endpoint", Value::Server, "the server's URL"),
    ("region", Value::Name, "its region"),
    ("allow_http", Value::Flag, "true: without TLS"),
    ("virtual_hosted", Value::Flag, "true: the bucket is part of the host's name"),
    (
        "checksum",
        Value::OneOf(&["sha256", "crc64nvme", "none"]),
        "sha256, crc64nvme or none, which the server checks what it gets against",
    ),
    ("bulk_delete", Value::Flag, "false: one request for each object deleted"),
    ("conditional_put", Value::Flag, "false: the server does not know If-None-Match"),
    ("timeout_s", Value::Number, "seconds that one request may take"),
    ("retries", Value::Number, "how often it is tried again"),
];

/// A URL that makes no sense. What could be a secret in it, before an `@` or in the query, is not shown.
pub fn invalid(url: &str, what: impl std::fmt::Display) -> StageError {
    StageError::invalid(
        format!("{}: {what}", without_secrets(url)),
        "an object store is s3://BUCKET/PREFIX/NAME, with options in the query (docs/s3.md)",
    )
}

/// Text that may be a URL, for messages: without what stands before an `@`, and without its query.
#[must_use]
pub fn without_secrets(text: &str) -> String {
    let scheme = text.find(':').map_or(0, |colon| colon + 1);
    let plain = match text.rfind('@') {
        Some(at) if at >= scheme => format!("{}…", &text[..scheme]),
        _ => match text.find('?') {
            Some(query) => format!("{}?…", &text[..query]),
            None => text.to_owned(),
        },
    };
    shown(plain.as_bytes())
}

/// A bucket where a set is meant.
#[must_use]
pub fn unnamed(bucket: &str) -> StageError {
    StageError::invalid(
        format!("{bucket}: no set is named"),
        "the last segment of the URL is the name that the set has: s3://BUCKET/PREFIX/NAME",
    )
}

impl Address {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// [`StageError::Invalid`], whose message holds no secret of the URL.
    pub fn parse(text: &str) -> Result<Self, StageError> {
        let wrong = |what: &str| Err(invalid(text, what));
        let (rest, is_s3) = match (text.strip_prefix("s3://"), text.strip_prefix("file://")) {
            (Some(rest), _) => (rest, true),
            (_, Some(rest)) => (rest, false),
            _ => return wrong("is neither s3://… nor file:///…"),
        };
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if host.contains('@') {
            // The text is not shown: it holds the secret.
            return Err(StageError::invalid(
                "a URL of an object store holds a user name or password",
                "credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: URLs are logged",
            ));
        }
        if text.contains('#') {
            return wrong("a # in a URL is %23");
        }
        let is_of_a_bucket = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let scheme = match is_s3 {
            true if host.is_empty() => return wrong("names no bucket"),
            true if !host.bytes().all(is_of_a_bucket) => {
                return wrong("a bucket's name has letters, digits, -, . and _");
            }
            true => Scheme::S3 { bucket: host.to_owned() },
            false if host.is_empty() && !path.is_empty() => Scheme::File,
            false => return wrong("three slashes are expected before the path"),
        };
        let path = path.trim_end_matches('/');
        let prefix = keys::unescape(path.strip_prefix('/').unwrap_or(path));
        let is_segment = |segment: &str| {
            !matches!(segment, "" | "." | "..")
                && !segment.chars().any(|character| character.is_ascii_control())
        };
        let prefix = prefix
            .and_then(|prefix| String::from_utf8(prefix).ok())
            .filter(|prefix| prefix.is_empty() || prefix.split('/').all(is_segment))
            .ok_or_else(|| {
                invalid(text, "a segment of its path is empty, `.`, `..`, not printable, or not UTF-8")
            })?;
        let options = options(text, query.unwrap_or_default())?;
        if !is_s3 && !options.is_empty() {
            return wrong("only s3: takes options");
        }
        let query_text = query.map(|query| format!("?{query}")).unwrap_or_default();
        let text = format!("{}{path}{query_text}", bucket_of(&scheme));
        Ok(Self { text, scheme, prefix, query: options })
    }

    /// The URL, as it was written but for slashes at its end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What kind of store.
    #[must_use]
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Decoded, without slashes at its ends. The last segment is the set's name; of a bucket it is empty.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// An option's value. None if the URL does not have it.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    /// The value of an option that is a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.option(name)?.parse().ok()
    }

    /// The value of an option that is `true` or `false`.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.option(name)?.parse().ok()
    }

    /// The bucket as a person names it, without the prefix: `s3://bucket`.
    #[must_use]
    pub fn bucket(&self) -> String {
        bucket_of(&self.scheme)
    }

    /// The set's name: the last segment of the path.
    ///
    /// # Errors
    /// [`StageError::Invalid`] for a bucket, whose URL has no path.
    pub fn set_name(&self) -> Result<&str, StageError> {
        match self.prefix.rsplit('/').next() {
            Some(name) if !name.is_empty() => Ok(name),
            _ => Err(unnamed(&self.bucket())),
        }
    }

    /// Something else in the same store, by its decoded prefix.
    #[must_use]
    pub fn sibling(&self, prefix: &str) -> Self {
        let segments: Vec<String> =
            prefix.split('/').map(|segment| keys::encode(segment.as_bytes())).collect();
        let mut text = format!("{}/{}", self.bucket(), segments.join("/"));
        if !self.query.is_empty() {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            query.extend_pairs(&self.query);
            text.push('?');
            text.push_str(&query.finish());
        }
        Self { text, scheme: self.scheme.clone(), prefix: prefix.to_owned(), query: self.query.clone() }
    }

    /// What lies at a relative path below.
    ///
    /// # Errors
    /// [`StageError::Invalid`] for a name that no URL can have: one with control characters, or that is not UTF-8.
    pub fn join(&self, path: &Path) -> Result<Self, StageError> {
        let (above, query) = self.text.split_at(self.text.find('?').unwrap_or(self.text.len()));
        Self::parse(&format!("{}/{}{query}", above.trim_end_matches('/'), keys::of_path(path)))
    }

    /// What a set lies beneath, and its name there. None if the URL names no more than a bucket.
    #[must_use]
    pub fn split(&self) -> Option<(Self, &str)> {
        let (above, name) = self.prefix.rsplit_once('/').unwrap_or(("", &self.prefix));
        (!name.is_empty()).then(|| (self.sibling(above), name))
    }

    fn identity(&self) -> (&Scheme, &str, &BTreeMap<String, String>) {
        (&self.scheme, &self.prefix, &self.query)
    }
}

fn bucket_of(scheme: &Scheme) -> String {
    match scheme {
        Scheme::S3 { bucket } => format!("s3://{bucket}"),
        Scheme::File => "file://".to_owned(),
    }
}

fn options(text: &str, query: &str) -> Result<BTreeMap<String, String>, StageError> {
    let mut options = BTreeMap::new();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let Some((name, kind, _)) = QUERY.iter().find(|(known, ..)| *known == name) else {
            let known = QUERY.map(|(known, _, what)| format!("{known} ({what})")).join(", ");
            return Err(invalid(text, format!("{:?} is none of {known}", shown(name.as_bytes()))));
        };
        if let Some(expected) = kind.fault(&value) {
            return Err(invalid(text, format!("{name} is not {expected}")));
        }
        if options.insert((*name).to_owned(), value.into_owned()).is_some() {
            return Err(invalid(text, format!("{name} is there twice")));
        }
    }
    Ok(options)
}

impl PartialEq for Address {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Address {}

impl Hash for Address {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&shown(self.text.as_bytes()))
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Address {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Address".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string"})
    }
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
        let text = "s3://ckpts/run%201/step-8?allow_http=true&endpoint=http%3A%2F%2F127.0.0.1%3A9";
        assert_eq!(sibling.as_str(), text);
        assert_eq!(Address::parse(text).unwrap(), sibling);
        assert_eq!(address.split().unwrap().1, "step-7");
        let above = address.split().unwrap().0;
        assert_eq!((above.prefix.as_str(), above.split().unwrap().1), ("run 1", "run 1"));
        assert!(Address::parse("s3://ckpts/").unwrap().split().is_none());
        assert_eq!(Address::parse("s3://b/run/?retries=1").unwrap().as_str(), "s3://b/run?retries=1");
    }

    #[test]
    fn one_place_spelt_in_two_ways_is_one_place() {
        let [plain, escaped] =
            ["s3://b/a%20b/~?retries=1", "s3://b/a b/%7E/?retries=%31"].map(Address::parse);
        assert_eq!(plain.unwrap(), escaped.unwrap());
        assert_ne!(Address::parse("s3://b/a").unwrap(), Address::parse("s3://b/a?retries=1").unwrap());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        for url in [
            "s3:///prefix",
            "s3://",
            "http://host/x",
            "nothing",
            "s3://b/x?secret_access_key=1",
            "s3://b/x?region=a&region=b",
            "s3://b/x?regoin=eu",
            "s3://b/x?region=",
            "s3://b/x?timeout_s=soon",
            "s3://b/x?retries=-1",
            "s3://b/x?allow_http=perhaps",
            "s3://b/x?bulk_delete=2",
            "s3://b/x?checksum=md5",
            "s3://b/x?endpoint=host:9",
            "s3://b/x?endpoint=http://",
            "s3://b:99/x",
            "s3://b/x#1",
            "s3://b /x",
            "file://host/x",
            "file://",
            "file:///x?region=a",
            "memory:///x",
        ] {
            let error = Address::parse(url).map(|_| ()).unwrap_err();
            assert_eq!(error.class(), crate::ErrorClass::Invalid, "{url}: {error}");
        }
    }

    #[test]
    fn a_server_is_named_as_it_will_be_read() {
        for server in [
            "http://127.0.0.1:9000",
            "https://[::1]:9000/",
            "https://Minio.example/base",
            "https://s3.example:443",
            "https://xn--bcher-kva.example",
        ] {
            assert!(is_server(server), "{server}");
        }
        for server in [
            "https://b\u{fc}cher.example",
            "https://\u{ff45}xample.com",
            "http:\\\\host",
            "http:/host",
            "http:///host",
            "HTTP://host",
            " http://host",
            "http://ho\tst",
            "http://host/a b",
            "http://host/?x",
            "http://host#x",
            "http://key@host",
            "http://host:99999",
            "http://a..%",
        ] {
            assert!(!is_server(server), "{server}");
        }
        let error = Address::parse("s3://b/x?endpoint=https://b\u{fc}cher.example").unwrap_err();
        assert!(
            error.to_string().ends_with("and with other letters than those of ASCII as xn--…"),
            "{error}"
        );
    }

    #[test]
    fn no_segment_of_a_url_leads_up() {
        for path in [
            "a/../x",
            "../x",
            "a/..",
            "a/./x",
            "a//b",
            "%2E%2E/x",
            "a/%2e./x",
            "a/.%2e",
            "a%2F..%2Fx",
            "a/%2E%2E%2Fb//c",
            "a/.	./x",
            "a/.%09./x",
            "a%0Ab",
            "a%FF",
        ] {
            for store in ["s3://bucket/", "file:///tmp/"] {
                let url = format!("{store}{path}");
                let parsed = Address::parse(&url);
                assert!(matches!(parsed, Err(StageError::Invalid { .. })), "{url}: {parsed:?}");
            }
        }
        // A backslash is a slash to a URL parser, and a character like another in a key.
        assert_eq!(Address::parse("file:///a\\..\\b").unwrap().prefix, "a\\..\\b");
        assert_eq!(Address::parse("s3://b/..a/b..").unwrap().prefix, "..a/b..");
    }

    #[test]
    fn a_secret_in_a_url_is_refused_and_not_repeated() {
        for url in [
            "s3://key:hunter2@bucket/x",
            "s3://key:hunter2/more@bucket/x",
            "s3://key:hunter2?more@bucket/x",
            "s3:key:hunter2@bucket/x",
            "s3://bucket/x?secret_access_key=hunter2",
            "s3://bucket/x?timeout_s=hunter2",
            "s3://bucket/x?endpoint=http://key:hunter2@host",
        ] {
            let error = Address::parse(url).unwrap_err();
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }

    #[test]
    fn an_address_in_a_document_is_checked_as_one_that_is_typed() {
        let address = Address::parse("s3://bucket/x?region=here").unwrap();
        let text = serde_json::to_string(&address).unwrap();
        assert_eq!(text, "\"s3://bucket/x?region=here\"");
        assert_eq!(serde_json::from_str::<Address>(&text).unwrap(), address);
        let error = serde_json::from_str::<Address>("\"s3://key:hunter2@bucket/x\"").unwrap_err();
        assert!(error.to_string().contains("user name or password"), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn a_path_below_an_address_keeps_its_options() {
        let below = |url: &str, path: &str| Address::parse(url).unwrap().join(Path::new(path));
        assert_eq!(below("s3://bucket/run", "a b/c%").unwrap().as_str(), "s3://bucket/run/a%20b/c%25");
        assert_eq!(below("s3://b/run/?region=x", "a").unwrap().as_str(), "s3://b/run/a?region=x");
        assert_eq!(below("s3://b", "a").unwrap().prefix, "a");
        assert!(below("s3://b", "a\n").is_err(), "no key has a newline");
    }
}
