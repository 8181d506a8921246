//! Which areas of which tiers are pools: a TOML file, read strictly.
//!
//! ```toml
//! ledger = "/fast/.ledger"     # of pools that users share: a directory, mode 1777 or 1770; none: the state directory's
//!
//! [pool.scratch]
//! path = "/fast/scratch"       # absolute, there already
//! quota = "500g"               # fio's spelling
//! high = 0.85                  # of the quota: above it, sets are to be evicted
//! low = 0.70                   # down to this
//! reserve_per_user = "100g"    # what one user may hold there, used and reserved; none: the quota
//! users = ["alice", 1001]      # who may reserve; none: everybody
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use stage::error::{StageError, shown};

/// A pool as it is configured.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// The directory.
    pub path: PathBuf,
    /// Bytes that it may hold.
    pub quota: u64,
    /// Share of the quota above which sets are to be evicted.
    pub high: f64,
    /// Share of the quota down to which they are.
    pub low: f64,
    /// Bytes that one user may hold there.
    pub reserve_per_user: Option<u64>,
    /// Who may reserve, by number; none: everybody.
    pub users: Option<Vec<u32>>,
}

impl PoolConfig {
    /// Bytes that one user may hold there, used and reserved.
    pub(super) fn share(&self) -> u64 {
        self.reserve_per_user.unwrap_or(self.quota)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    ledger: Option<PathBuf>,
    pool: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    path: PathBuf,
    #[serde(deserialize_with = "size")]
    quota: u64,
    #[serde(default = "usual_high")]
    high: f64,
    #[serde(default = "usual_low")]
    low: f64,
    #[serde(default, deserialize_with = "optional_size")]
    reserve_per_user: Option<u64>,
    users: Option<Vec<User>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a user is a name or a number")]
enum User {
    Number(u32),
    Name(String),
}

fn usual_high() -> f64 {
    0.85
}

fn usual_low() -> f64 {
    0.70
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a size is 500g or a number of bytes")]
enum Typed {
    Bytes(u64),
    Text(String),
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let bytes = match Typed::deserialize(deserializer)? {
        Typed::Bytes(bytes) => bytes,
        Typed::Text(text) => units::size(&text).map_err(serde::de::Error::custom)?,
    };
    match i64::try_from(bytes) {
        Ok(1..) => Ok(bytes),
        _ => Err(serde::de::Error::custom(format!("{bytes} bytes is no room"))),
    }
}

fn optional_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    size(deserializer).map(Some)
}

/// The ledger that a configuration names, of pools that users share.
///
/// # Errors
/// The configuration cannot be read, or makes no sense.
pub fn ledger_of(file: &Path) -> Result<Option<PathBuf>, StageError> {
    let text = std::fs::read_to_string(file).map_err(|error| StageError::io("read it", file, error))?;
    let ledger = read(file, &text)?.ledger;
    match ledger.filter(|ledger| !ledger.is_absolute()) {
        Some(relative) => Err(StageError::invalid(
            format!("{}: ledger = {}: it is not absolute", shown(file), shown(&relative)),
            "begin it with /",
        )),
        None => Ok(read(file, &text)?.ledger),
    }
}

/// The text of a configuration, and the user whose file it is.
pub(super) fn read_file(path: &Path) -> std::io::Result<(String, u32)> {
    let mut file = std::fs::File::open(path)?;
    let owner = std::os::unix::fs::MetadataExt::uid(&file.metadata()?);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut file, &mut text)?;
    Ok((text, owner))
}

/// Reads a configuration; `passwd` is the text of /etc/passwd.
pub(super) fn parse(
    file: &Path,
    text: &str,
    passwd: &str,
) -> Result<BTreeMap<String, PoolConfig>, StageError> {
    read(file, text)?
        .pool
        .into_iter()
        .map(|(name, entry)| {
            let config = check(&name, entry, passwd).map_err(|(what, hint)| {
                let line = line_of(text, &name);
                StageError::invalid(format!("{}:{line}: pool.{name}: {what}", shown(file)), hint)
            })?;
            Ok((name, config))
        })
        .collect()
}

fn read(file: &Path, text: &str) -> Result<File, StageError> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        let what = format!("{}:{line}: {}", shown(file), error.message());
        StageError::invalid(
            what,
            "a pool is [pool.NAME] with path, quota, high, low, reserve_per_user, users",
        )
    })
}

/// The line of a pool's header.
fn line_of(text: &str, name: &str) -> usize {
    let headers = [format!("[pool.{name}]"), format!("[pool.\"{name}\"]")];
    text.lines().position(|line| headers.iter().any(|header| line.trim().starts_with(header))).unwrap_or(0)
        + 1
}

fn check(name: &str, entry: Entry, passwd: &str) -> Result<PoolConfig, (String, String)> {
    let wrong = |what: String, hint: &str| Err((what, hint.to_owned()));
    let Entry { path, quota, high, low, reserve_per_user, users } = entry;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
        return wrong(
            "the name has other characters than letters, digits, - and _".into(),
            "choose another name",
        );
    }
    if !path.is_absolute() {
        return wrong(format!("path = {}: it is not absolute", shown(&path)), "begin it with /");
    }
    if !(low > 0.0 && low < high && high <= 1.0) {
        let what = format!("high = {high}, low = {low}: 0 < low < high <= 1 is needed");
        return wrong(what, "shares of the quota, such as high = 0.85 and low = 0.70");
    }
    if reserve_per_user.is_some_and(|share| share > quota) {
        return wrong("reserve_per_user is more than the quota".into(), "leave it out, or make it smaller");
    }
    let number = |user: User| match user {
        User::Number(number) => Ok(number),
        User::Name(user) => uid_of(&user, passwd).ok_or_else(|| {
            (
                format!("users: {user:?} is not in /etc/passwd"),
                "write the user's number, as `id -u` prints it".to_owned(),
            )
        }),
    };
    let users = users.map(|users| users.into_iter().map(number).collect()).transpose()?;
    Ok(PoolConfig { path, quota, high, low, reserve_per_user, users })
}

/// A user's number by passwd(5).
fn uid_of(user: &str, passwd: &str) -> Option<u32> {
    let mut lines = passwd.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| (fields.next()? == user).then(|| fields.nth(1)?.parse().ok())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nalice:x:1000:1000::/home/alice:/bin/sh\n";

    fn parsed(text: &str) -> Result<BTreeMap<String, PoolConfig>, StageError> {
        parse(Path::new("pools.toml"), text, PASSWD)
    }

    #[test]
    fn a_pool_is_read_as_it_is_written() {
        let pools = parsed(
            "[pool.scratch]\npath = \"/fast/scratch\"\nquota = \"500g\"\nhigh = 0.9\nlow = 0.5\n\
             reserve_per_user = \"100g\"\nusers = [\"alice\", 1001]\n[pool.b]\npath = \"/b\"\nquota = 4096\n",
        )
        .unwrap();
        let scratch = &pools["scratch"];
        assert_eq!((scratch.quota, scratch.reserve_per_user), (500 << 30, Some(100 << 30)));
        assert_eq!(scratch.users, Some(vec![1000, 1001]));
        assert_eq!((pools["b"].high, pools["b"].low, pools["b"].users.clone()), (0.85, 0.70, None));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_line() {
        for (text, line, word) in [
            ("[pool.a]\npath = \"/a\"\nquota = \"1x\"", 3, "not a unit"),
            ("[pool.a]\npath = \"/a\"\nquota = \"0\"", 3, "no room"),
            ("[pool.a]\npath = \"/a\"\nquota = \"1g\"\nqouta = 1", 4, "qouta"),
            ("\n[pool.a]\npath = \"a\"\nquota = \"1g\"", 2, "not absolute"),
            ("[pool.a]\npath = \"/a\"\nquota = \"1g\"\nlow = 0.9", 1, "low < high"),
            ("[pool.a]\npath = \"/a\"\nquota = \"1g\"\nusers = [\"bob\"]", 1, "bob"),
            ("[pool.a]\npath = \"/a\"\nquota = \"1g\"\nreserve_per_user = \"2g\"", 1, "more than the quota"),
            ("[pool.\"a b\"]\npath = \"/a\"\nquota = \"1g\"", 1, "other characters"),
            ("[pool.a]\nquota = \"1g\"", 1, "path"),
        ] {
            let error = parsed(text).unwrap_err();
            let message = error.to_string();
            assert!(message.starts_with(&format!("pools.toml:{line}: ")), "{text}: {message}");
            assert!(message.contains(word), "{text}: {message}");
            assert!(error.hint().is_some(), "{text}");
        }
    }
}
