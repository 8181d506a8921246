//! Where an export is: `doc/uri.md` of the NBD project, and what libnbd adds to it (nbd_connect_uri(3)).
//!
//! ```text
//! nbd://host[:port][/export]              TCP, in the clear
//! nbds://[user@]host[:port][/export]      TCP, TLS or nothing
//! nbd+unix:///[export]?socket=PATH        Unix socket, in the clear
//! nbds+unix:///[export]?socket=PATH       Unix socket, TLS or nothing
//! ```
//!
//! A scheme without an `s` never negotiates TLS and one with it never goes on without: TLS only where a server happens to
//! offer it protects against nobody who can answer in its place ("Protocol downgrade attacks"). Parameters that
//! are not known are refused by name.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// The port that IANA assigned.
pub const DEFAULT_PORT: u16 = 10809;
/// The most connections that `connections=` may ask for.
pub const MAX_CONNECTIONS: u32 = 16;
/// The longest time-out that `timeout=` may ask for: a day.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// The schemes, for messages.
pub const SCHEMES: [&str; 4] = ["nbd", "nbds", "nbd+unix", "nbds+unix"];

/// What a server listens on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// A name or address, and a port. An IPv6 address stands here without its brackets.
    Tcp(String, u16),
    /// The path of a Unix socket; one that begins with NUL is of the abstract name space.
    Unix(PathBuf),
}

/// An export's URI. Printed, it is what was typed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Uri {
    text: String,
    place: ServerAddress,
    is_secure: bool,
    export: String,
    tls: TlsParameters,
    connections: Option<u32>,
    timeout: Option<Duration>,
}

/// What the query says of TLS.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct TlsParameters {
    /// `tls-certificates`: the directory with certificates.
    pub certificates: Option<PathBuf>,
    /// `tls-psk-file`: the file with names and keys.
    pub psk_file: Option<PathBuf>,
    /// `tls-username`, or the part before `@`: the name to send along with a key.
    pub username: Option<String>,
    /// `tls-hostname`: the name that the server's certificate must have, if it is not the host's.
    pub hostname: Option<String>,
    /// `tls-verify-peer=0`: take any certificate.
    pub no_verify: bool,
}

/// Why a text is no URI of an export.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}: {problem}")]
pub struct UriError {
    /// What was typed.
    pub text: String,
    /// What is wrong with it.
    pub problem: UriProblem,
}

/// What is wrong with a URI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriProblem {
    /// Another scheme, or none.
    #[error("its scheme is none of nbd, nbds, nbd+unix and nbds+unix")]
    Scheme,
    /// A scheme without the two slashes.
    #[error("there is no `//` after `{0}:`")]
    Slashes(String),
    /// TCP without a host.
    #[error("it names no host")]
    NoHost,
    /// A Unix socket with a host.
    #[error("a Unix socket has no host")]
    HostOfSocket,
    /// Brackets without an IPv6 address between them, or an address without brackets.
    #[error("`{0}` is no host name and no address")]
    Host(String),
    /// No port.
    #[error("`{0}` is no port")]
    Port(String),
    /// `%` without two hexadecimal digits, or what it stands for is no text.
    #[error("`{0}` has a `%` that stands for no text")]
    Percent(String),
    /// A parameter that is not known.
    #[error("the parameter `{0}` is not known")]
    Unknown(String),
    /// A parameter twice.
    #[error("the parameter `{0}` is there twice")]
    Twice(String),
    /// A value that a parameter does not have.
    #[error("`{parameter}={value}` is not {expected}")]
    Value {
        /// The parameter.
        parameter: String,
        /// Its value.
        value: String,
        /// What there could be.
        expected: &'static str,
    },
    /// A Unix socket without a path.
    #[error("it names no socket")]
    NoSocket,
    /// A path for what has none.
    #[error("`socket=` goes with nbd+unix and nbds+unix only")]
    SocketOfHost,
    /// TLS parameters in the clear.
    #[error("`{0}=` is about TLS, which this scheme does not use")]
    TlsInTheClear(String),
    /// A key and certificates.
    #[error("both a key and certificates")]
    TwoKinds,
    /// A name too long for the protocol, or with a NUL.
    #[error("its export's name is longer than 4096 bytes or has a NUL in it")]
    Export,
    /// `#` and what follows.
    #[error("a `#` and what follows it mean nothing here")]
    Fragment,
}

impl UriError {
    /// What to type instead.
    #[must_use]
    pub fn hint(&self) -> String {
        match &self.problem {
            UriProblem::Scheme
            | UriProblem::Slashes(_)
            | UriProblem::Host(_)
            | UriProblem::Port(_)
            | UriProblem::HostOfSocket => {
                "write it as nbd://host:10809/export, nbd://[::1]/export or nbd+unix:///export?socket=PATH"
                    .into()
            }
            UriProblem::NoHost => {
                "name the host (nbd://localhost/export), or the socket (nbd+unix:///export?socket=PATH)"
                    .into()
            }
            UriProblem::Percent(_) => "write a % itself as %25".into(),
            UriProblem::Unknown(_) | UriProblem::Twice(_) => {
                format!("there are {}, each of them once", PARAMETERS.join(", "))
            }
            UriProblem::Value { expected, .. } => format!("give {expected}"),
            UriProblem::NoSocket => "add ?socket=PATH".into(),
            UriProblem::SocketOfHost => "write nbd+unix:///export?socket=PATH".into(),
            UriProblem::TlsInTheClear(_) => "write nbds:// or nbds+unix://, which use TLS or fail".into(),
            UriProblem::TwoKinds => "give either tls-psk-file= or tls-certificates=".into(),
            UriProblem::Export => "take a shorter name".into(),
            UriProblem::Fragment => "write a # itself as %23".into(),
        }
    }
}

const PARAMETERS: [&str; 9] = [
    "socket",
    "tls-type",
    "tls-certificates",
    "tls-psk-file",
    "tls-username",
    "tls-hostname",
    "tls-verify-peer",
    "connections",
    "timeout",
];

impl Uri {
    /// Whether `text` begins like one of these URIs, well-formed or not.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| SCHEMES.contains(&scheme))
    }

    /// What the server listens on.
    #[must_use]
    pub fn server(&self) -> &ServerAddress {
        &self.place
    }

    /// Whether TLS is used; where it is, nothing is done without.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// The export's name; empty for the server's default.
    #[must_use]
    pub fn export(&self) -> &str {
        &self.export
    }

    /// What is said of TLS.
    #[must_use]
    pub fn tls(&self) -> &TlsParameters {
        &self.tls
    }

    /// `connections=`: how many connections to make.
    #[must_use]
    pub fn connections(&self) -> Option<u32> {
        self.connections
    }

    /// `timeout=`: how long the server may be silent or gone.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Address and port, or socket, as messages name them.
    #[must_use]
    pub fn host(&self) -> String {
        self.place.to_string()
    }

    /// The same server's export of another name.
    #[must_use]
    pub fn with_export(&self, export: &str) -> Self {
        let mut other = self.clone();
        other.export = export.to_owned();
        let (scheme, rest) = self.text.split_once("://").expect("it was parsed");
        let (before, query) = match rest.split_once('?') {
            Some((before, query)) => (before, format!("?{query}")),
            None => (rest, String::new()),
        };
        let authority = before.split_once('/').map_or(before, |(authority, _)| authority);
        other.text = format!("{scheme}://{authority}/{}{query}", encode(export));
        other
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => f.write_str(&path.to_string_lossy().replace('\0', "@")),
        }
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        parse(text).map_err(|problem| UriError { text: text.to_owned(), problem })
    }
}

fn parse(text: &str) -> Result<Uri, UriProblem> {
    let (scheme, rest) = text.split_once(':').ok_or(UriProblem::Scheme)?;
    let (is_secure, is_unix) = match scheme {
        "nbd" => (false, false),
        "nbds" => (true, false),
        "nbd+unix" => (false, true),
        "nbds+unix" => (true, true),
        _ => return Err(UriProblem::Scheme),
    };
    let rest = rest.strip_prefix("//").ok_or_else(|| UriProblem::Slashes(scheme.to_owned()))?;
    if rest.contains('#') {
        return Err(UriProblem::Fragment);
    }
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
    let export = decode(export)?;
    if export.len() > crate::wire::limits::STRING || export.contains('\0') {
        return Err(UriProblem::Export);
    }
    let mut query = Query::parse(query)?;
    let socket = query.take("socket");
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(decode(user)?), host),
        None => (None, authority),
    };
    let place = match (is_unix, socket) {
        (true, _) if !host.is_empty() => return Err(UriProblem::HostOfSocket),
        (true, Some(path)) if !path.is_empty() => ServerAddress::Unix(path.into()),
        (true, _) => return Err(UriProblem::NoSocket),
        (false, Some(_)) => return Err(UriProblem::SocketOfHost),
        (false, None) => address(host)?,
    };
    let tls = tls_parameters(&mut query, is_secure, user)?;
    let connections = query.number("connections", 1..=MAX_CONNECTIONS.into(), "a number from 1 to 16")?;
    let timeout =
        query.number("timeout", 1..=MAX_TIMEOUT.as_secs(), "a number of seconds from 1 to 86400")?;
    Ok(Uri {
        text: text.to_owned(),
        place,
        is_secure,
        export,
        tls,
        connections: connections.map(|count| count as u32),
        timeout: timeout.map(Duration::from_secs),
    })
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
fn address(host: &str) -> Result<ServerAddress, UriProblem> {
    let wrong = || UriProblem::Host(host.to_owned());
    let (name, port) = if let Some(rest) = host.strip_prefix('[') {
        let (name, rest) = rest.split_once(']').ok_or_else(wrong)?;
        let port = match rest.strip_prefix(':') {
            Some(port) => Some(port),
            None if rest.is_empty() => None,
            None => return Err(wrong()),
        };
        // A zone (%eth0) is no part of what the standard library parses as an address.
        let address = decode(name)?;
        let bare = address.split('%').next().unwrap_or_default();
        if bare.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(wrong());
        }
        (address, port)
    } else {
        match host.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err(wrong()),
            Some((name, port)) => (decode(name)?, Some(port)),
            None => (decode(host)?, None),
        }
    };
    if name.is_empty() {
        return Err(UriProblem::NoHost);
    }
    if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(wrong());
    }
    let port = match port {
        None | Some("") => DEFAULT_PORT,
        Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => {
            port.parse().ok().filter(|p| *p != 0).ok_or_else(|| UriProblem::Port(port.to_owned()))?
        }
        Some(port) => return Err(UriProblem::Port(port.to_owned())),
    };
    Ok(ServerAddress::Tcp(name, port))
}

fn tls_parameters(
    query: &mut Query,
    is_secure: bool,
    user: Option<String>,
) -> Result<TlsParameters, UriProblem> {
    if !is_secure && let Some(name) = query.first_with("tls-") {
        return Err(UriProblem::TlsInTheClear(name));
    }
    let value = |parameter: &str, value: String, expected| {
        Err(UriProblem::Value { parameter: parameter.to_owned(), value, expected })
    };
    let certificates: Option<PathBuf> = query.take("tls-certificates").map(PathBuf::from);
    let psk_file: Option<PathBuf> = query.take("tls-psk-file").map(PathBuf::from);
    for (name, path) in [("tls-certificates", &certificates), ("tls-psk-file", &psk_file)] {
        if path.as_deref().is_some_and(|path| path == Path::new("")) {
            return value(name, String::new(), "a path");
        }
    }
    if certificates.is_some() && psk_file.is_some() {
        return Err(UriProblem::TwoKinds);
    }
    match query.take("tls-type") {
        Some(kind) if !matches!(kind.as_str(), "x509" | "psk") => {
            return value("tls-type", kind, "x509 or psk");
        }
        Some(kind) if kind == "psk" && certificates.is_some() => return Err(UriProblem::TwoKinds),
        Some(kind) if kind == "x509" && psk_file.is_some() => return Err(UriProblem::TwoKinds),
        _ => {}
    }
    let no_verify = match query.take("tls-verify-peer") {
        None => false,
        Some(word) => match word.as_str() {
            "1" => false,
            "0" => true,
            _ => return value("tls-verify-peer", word, "0 or 1"),
        },
    };
    let username = query.take("tls-username").or(user);
    Ok(TlsParameters { certificates, psk_file, username, hostname: query.take("tls-hostname"), no_verify })
}

/// The parameters, each taken out as it is understood.
struct Query(Vec<(String, String)>);

impl Query {
    fn parse(query: Option<&str>) -> Result<Self, UriProblem> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in query.unwrap_or_default().split(['&', ';']).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if !PARAMETERS.contains(&name.as_str()) {
                return Err(UriProblem::Unknown(name));
            }
            if pairs.iter().any(|(other, _)| *other == name) {
                return Err(UriProblem::Twice(name));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.swap_remove(at).1)
    }

    fn first_with(&self, prefix: &str) -> Option<String> {
        self.0.iter().map(|(name, _)| name).find(|name| name.starts_with(prefix)).cloned()
    }

    fn number(
        &mut self,
        parameter: &str,
        range: std::ops::RangeInclusive<u64>,
        expected: &'static str,
    ) -> Result<Option<u64>, UriProblem> {
        let Some(value) = self.take(parameter) else { return Ok(None) };
        match value.parse().ok().filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(UriProblem::Value { parameter: parameter.to_owned(), value, expected }),
        }
    }
}

/// What a part of a URI stands for (RFC 3986, section 2.1).
fn decode(part: &str) -> Result<String, UriProblem> {
    let wrong = || UriProblem::Percent(part.to_owned());
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let (digits, after) = after.split_at_checked(2).ok_or_else(wrong)?;
        let digit = |b: u8| char::from(b).to_digit(16).ok_or_else(wrong);
        bytes.push((digit(digits[0])? << 4 | digit(digits[1])?) as u8);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// A text as part of a URI's path: what is not unreserved, and no slash, by its bytes.
#[must_use]
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(byte.into());
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn tcp(host: &str, port: u16) -> ServerAddress {
        ServerAddress::Tcp(host.into(), port)
    }

    #[test]
    fn the_examples_of_the_document_are_read_as_it_says() {
        for (text, export) in [
            ("nbd://example.com/disk", "disk"),
            ("nbd+unix:///disk?socket=sock", "disk"),
            ("nbd://example.com/", ""),
            ("nbd://example.com", ""),
            ("nbd://example.com//disk", "/disk"),
            ("nbd://example.com/hello%20world", "hello world"),
        ] {
            assert_eq!(uri(text).export(), export, "{text}");
            assert_eq!(uri(text).to_string(), text);
        }
        assert_eq!(
            uri("nbd+unix:///?socket=%00/abstract").server(),
            &ServerAddress::Unix("\0/abstract".into())
        );
    }

    #[test]
    fn hosts_and_ports_are_told_apart() {
        for (text, place) in [
            ("nbd://h1", tcp("h1", 10809)),
            ("nbd://h1:", tcp("h1", 10809)),
            ("nbd://h1:7", tcp("h1", 7)),
            ("nbd://10.0.0.1:65535/x", tcp("10.0.0.1", 65535)),
            ("nbd://[::1]", tcp("::1", 10809)),
            ("nbd://[fe80::1%25eth0]:99/x", tcp("fe80::1%eth0", 99)),
        ] {
            assert_eq!(uri(text).server(), &place, "{text}");
        }
        assert_eq!(uri("nbd://[::1]/x").host(), "[::1]:10809");
        assert_eq!(uri("nbds://alice@h1/x").tls().username.as_deref(), Some("alice"));
    }

    #[test]
    fn parameters_are_read() {
        let text = "nbds+unix:///x?socket=/run/a%3Fb&tls-certificates=/etc/pki&tls-hostname=h&connections=16;timeout=5";
        let uri = uri(text);
        assert_eq!(uri.server(), &ServerAddress::Unix("/run/a?b".into()));
        assert_eq!(uri.tls().certificates.as_deref(), Some(Path::new("/etc/pki")));
        assert_eq!(uri.tls().hostname.as_deref(), Some("h"));
        assert!(uri.is_secure() && !uri.tls().no_verify);
        assert_eq!((uri.connections(), uri.timeout()), (Some(16), Some(Duration::from_secs(5))));
        assert_eq!(uri.to_string(), text);
    }

    #[test]
    fn what_is_wrong_is_named_and_has_a_hint() {
        for (text, says) in [
            ("http://h1/", "scheme"),
            ("h1:10809", "scheme"),
            ("nbd:/h1/x", "there is no `//` after `nbd:`"),
            ("nbd:///x", "names no host"),
            ("nbd://:10809/x", "names no host"),
            ("nbd://::1/x", "`::1`"),
            ("nbd://[h1]/x", "`[h1]`"),
            ("nbd://[::1]x/", "`[::1]x`"),
            ("nbd://h1:0", "`0` is no port"),
            ("nbd://h1:65536", "`65536` is no port"),
            ("nbd://h1:+80", "`+80` is no port"),
            ("nbd://h1/%", "`%`"),
            ("nbd://h1/%f0", "`%f0`"),
            ("nbd://h1/%zz", "`%zz`"),
            ("nbd://h1/a%00b", "export's name"),
            ("nbd://h1/x#y", "`#`"),
            ("nbd://h1/x?sokcet=1", "`sokcet`"),
            ("nbd://h1/x?timeout=1&timeout=2", "`timeout` is there twice"),
            ("nbd://h1/x?timeout=0", "`timeout=0`"),
            ("nbd://h1/x?connections=17", "`connections=17`"),
            ("nbd://h1/x?connections=", "`connections=`"),
            ("nbd://h1/x?socket=/run/x", "`socket=`"),
            ("nbd+unix:///x", "names no socket"),
            ("nbd+unix:///x?socket=", "names no socket"),
            ("nbd+unix://h1/x?socket=/run/x", "has no host"),
            ("nbd://h1/x?tls-psk-file=/k", "`tls-psk-file=` is about TLS"),
            ("nbds://h1/x?tls-psk-file=/k&tls-certificates=/c", "both"),
            ("nbds://h1/x?tls-psk-file=/k&tls-type=x509", "both"),
            ("nbds://h1/x?tls-type=anon", "`tls-type=anon`"),
            ("nbds://h1/x?tls-verify-peer=no", "`tls-verify-peer=no`"),
            ("nbds://h1/x?tls-psk-file=", "`tls-psk-file=`"),
        ] {
            let error = text.parse::<Uri>().expect_err(text);
            assert!(error.to_string().contains(says), "{text}: {error}");
            assert!(error.to_string().starts_with(text), "{error}");
            assert!(!error.hint().is_empty());
        }
        assert!(Uri::is_one("nbd+unix://") && !Uri::is_one("/dev/nbd0") && !Uri::is_one("nbd:h1"));
    }

    #[test]
    fn another_export_of_the_same_server_keeps_the_rest() {
        assert_eq!(uri("nbd://h1?timeout=3").with_export("a b/c").to_string(), "nbd://h1/a%20b/c?timeout=3");
        assert_eq!(uri("nbd://h1/x").with_export("").to_string(), "nbd://h1/");
        let other = uri("nbd+unix:///x?socket=/run/s").with_export("ü");
        assert_eq!(uri(&other.to_string()), other);
    }
}
