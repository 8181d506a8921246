//! The file of `stage serve --config`: the flags of the server, by their names. A flag goes before the file.
//!
//! A key that is not known is refused with its line, because a limit that is passed over is no limit.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use crate::qos::QosConfig;
use crate::scrape::Endpoint;
use stage::error::{StageError, shown};

/// What the file says; nothing where it says nothing.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FileConfig {
    /// The state directory.
    pub state: Option<PathBuf>,
    /// The socket.
    pub socket: Option<PathBuf>,
    /// Jobs at once.
    pub jobs: Option<usize>,
    /// Threads for each.
    pub threads: Option<usize>,
    /// What holds jobs back: a table `[qos]`.
    pub qos: QosConfig,
    /// Where figures can be had.
    #[serde(deserialize_with = "endpoint")]
    pub metrics: Option<Endpoint>,
    /// The file that describes the pools to be kept.
    pub pools: Option<PathBuf>,
    /// Jobs that have not ended.
    pub max_jobs: Option<usize>,
    /// Connections at a time.
    pub max_connections: Option<usize>,
}

impl FileConfig {
    /// Reads the file.
    ///
    /// # Errors
    /// What is no TOML or not known, with its line.
    pub fn read(path: &Path) -> Result<Self, StageError> {
        let text = std::fs::read_to_string(path).map_err(|error| StageError::io("read", path, error))?;
        Self::parse(&text)
            .map_err(|what| StageError::invalid(format!("--config={}: {what}", shown(path)), hint(&text)))
    }

    fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
            format!("line {line}: {}", error.message())
        })
    }
}

/// What to write instead: limits are the only flags that stand in a table.
fn hint(text: &str) -> &'static str {
    let limits = ["bwlimit", "iops-limit", "iops_limit", "governor"];
    match text.parse::<toml::Table>() {
        Ok(table) if limits.iter().any(|limit| table.contains_key(*limit)) => {
            "limits are in a table of their own: a line [qos], and below it for instance: bwlimit = \"2GB/s\""
        }
        _ => "the keys are the names of the flags, for instance: jobs = 4",
    }
}

fn endpoint<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Endpoint>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_names_of_flags() {
        let config = FileConfig::parse(
            "jobs = 3\nmax-connections = 7\nmetrics = 'unix:/run/m'\nstate = '/s'\npools = '/p.toml'\n[qos]\nbwlimit = '2GB/s'\n",
        )
        .unwrap();
        assert_eq!(
            (config.jobs, config.max_connections, config.qos.bwlimit),
            (Some(3), Some(7), Some(2_000_000_000))
        );
        assert_eq!(config.metrics, Some(Endpoint::Unix("/run/m".into())));
        assert_eq!(config.pools, Some("/p.toml".into()));
        assert_eq!(FileConfig::parse("").unwrap(), FileConfig::default());
    }

    #[test]
    fn what_is_not_known_or_wrong_is_refused_with_its_line() {
        for (text, line) in [
            ("jobs = 3\nthreds = 4\n", "line 2: "),
            ("metrics = '0.0.0.0:9'", "line 1: "),
            ("\n\njobs = -1", "line 3: "),
            ("[qos]\nbwlimit = 'fast'", "line 2: "),
            ("jobs", "line 1: "),
        ] {
            let error = FileConfig::parse(text).unwrap_err();
            assert!(error.starts_with(line), "{text}: {error}");
        }
        assert!(hint("jobs = 2\nbwlimit = '2GB/s'\n").contains("[qos]"));
        assert!(!hint("jbos = 2\n").contains("[qos]"));
    }
}
