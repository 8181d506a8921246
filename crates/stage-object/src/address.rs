//! Settings, and the store that a URL ([`stage::address`]) leads to.
//!
//! What a store needs to be reached comes from the variables that its
//! own tools read (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT_URL`, …), and from the URL's query, which wins.
//! Secrets are taken from variables only: a URL ends up in journals, logs and listings of processes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::local::LocalFileSystem;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, RetryConfig};

use super::crypto::OpenSsl;
use super::store::{Local, Remote, Store};
use stage::address::{Address, SERVER, Scheme, invalid, is_server};
use stage::error::StageError;

/// The whole of one request, connection and body, unless `timeout_s` says otherwise.
const TIMEOUT_S: u64 = 120;
/// Until a server accepts a connection, or `timeout_s` if that is less.
const CONNECT_S: u64 = 10;
/// How often a request is tried again, unless `retries` says otherwise.
const RETRIES: u64 = 8;
/// After this long no request is tried again; a request that is under way still has its time-out.
const RETRY_S: u64 = 180;

/// The variables from which a store's credentials and endpoint are taken.
///
/// They are a value so that a process that works for another user can hand on that user's, and never its own.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl std::fmt::Debug for Environment {
    /// Names alone: values are secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// What to do where the environment has no key.
pub(super) const NO_KEY: &str = "no key was found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to a \
     profile in ~/.aws/credentials; AWS_SKIP_SIGNATURE=true for a bucket that is open to all";

impl Environment {
    /// This process's own `AWS_*`, and what they leave open from the files that Amazon's own tools keep in the home
    /// directory (`~/.aws/credentials` and `~/.aws/config`, the profile `AWS_PROFILE` or `default`).
    #[must_use]
    pub fn of_process() -> Self {
        let variables = std::env::vars_os();
        let own: Self = variables
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        own.with_files_of(std::env::home_dir().as_deref())
    }

    fn with_files_of(mut self, home: Option<&std::path::Path>) -> Self {
        let path = |variable: &str, name: &str| match self.0.get(variable) {
            Some(path) => Some(std::path::PathBuf::from(path)),
            None => home.map(|home| home.join(".aws").join(name)),
        };
        let read = |path: Option<std::path::PathBuf>| {
            path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
        };
        let credentials = read(path("AWS_SHARED_CREDENTIALS_FILE", "credentials"));
        let config = read(path("AWS_CONFIG_FILE", "config"));
        let profile = self.0.get("AWS_PROFILE").map_or("default", String::as_str).to_owned();
        let known = |name: &str| self.0.contains_key(name);
        let mut more = BTreeMap::new();
        if !self.identifies() {
            let names = ["aws_access_key_id", "aws_secret_access_key", "aws_session_token"];
            more.extend(settings(&credentials, &profile).filter(|(name, _)| names.contains(&name.as_str())));
        }
        let region = known("AWS_REGION") || known("AWS_DEFAULT_REGION");
        for (name, value) in settings(&config, &profile) {
            if name == "region" && !region
                || name == "endpoint_url" && !known("AWS_ENDPOINT_URL") && !known("AWS_ENDPOINT")
            {
                more.insert(format!("aws_{name}"), value);
            }
        }
        self.0.extend(more.into_iter().map(|(name, value)| (name.to_ascii_uppercase(), value)));
        self
    }
}

impl Environment {
    /// Does it say who this is? If not, the machine's own identity is asked for, which only some have.
    pub(super) fn identifies(&self) -> bool {
        let identity = ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE"];
        identity.into_iter().any(|name| self.0.contains_key(name))
            || self.0.keys().any(|name| name.starts_with("AWS_CONTAINER_"))
    }
}

/// The settings of a profile in one of the files of Amazon's tools: `[name]` or `[profile name]`, then `key = value`.
fn settings(text: &str, profile: &str) -> impl Iterator<Item = (String, String)> {
    let mut within = false;
    let mut found = Vec::new();
    for line in text.lines() {
        let bare = line.trim();
        if let Some(section) = bare.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let section = section.trim();
            within = section == profile
                || section.strip_prefix("profile ").is_some_and(|name| name.trim() == profile);
        } else if let Some((name, value)) = bare.split_once('=')
            // What is indented belongs to the setting above it; what begins so is a comment.
            && within && line.starts_with(|first: char| !first.is_whitespace() && first != '#' && first != ';')
        {
            found.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    found.into_iter()
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Self(variables.into_iter().filter(|(name, _)| name.starts_with("AWS_")).collect())
    }
}

/// Gets ready to reach the store that a URL is about; no request is made.
pub(super) fn open(address: &Address, environment: &Environment) -> Result<Arc<dyn Store>, StageError> {
    match address.scheme() {
        Scheme::S3 { bucket } => open_s3(address, bucket, environment),
        Scheme::File => {
            Ok(Arc::new(Local::new(LocalFileSystem::new().with_fsync(true).with_automatic_cleanup(true))))
        }
    }
}

fn open_s3(address: &Address, bucket: &str, environment: &Environment) -> Result<Arc<dyn Store>, StageError> {
    // The URL wins over the variables, and these over what is usual here.
    let mut builder = AmazonS3Builder::new().with_crypto_provider(Arc::new(OpenSsl)).with_client_options(
        ClientOptions::new()
            .with_timeout(Duration::from_secs(TIMEOUT_S))
            .with_connect_timeout(Duration::from_secs(CONNECT_S)),
    );
    for (name, value) in &environment.0 {
        if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(timeout) = address.number("timeout_s").map(|timeout| timeout.max(1)) {
        builder = builder
            .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), format!("{timeout} s"))
            .with_config(
                AmazonS3ConfigKey::Client(ClientConfigKey::ConnectTimeout),
                format!("{} s", timeout.min(CONNECT_S)),
            );
    }
    if let Some(allowed) = address.flag("allow_http") {
        builder = builder.with_allow_http(allowed);
    }
    let retries = address.number("retries").unwrap_or(RETRIES);
    builder = builder.with_bucket_name(bucket).with_retry(RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(10),
            base: 2.0,
        },
        max_retries: retries as usize,
        retry_timeout: Duration::from_secs(RETRY_S),
    });
    // The key of AWS_ENDPOINT_URL_S3, which wins over the other one.
    for (name, key) in [("endpoint", AmazonS3ConfigKey::S3Endpoint), ("region", AmazonS3ConfigKey::Region)] {
        if let Some(value) = address.option(name) {
            builder = builder.with_config(key, value);
        }
    }
    if address.flag("virtual_hosted") == Some(true) {
        builder = builder.with_virtual_hosted_style_request(true);
    }
    if address.flag("bulk_delete") == Some(false) {
        builder = builder.with_disable_bulk_delete(true);
    }
    if address.flag("conditional_put") == Some(false) {
        builder = builder.with_conditional_put(object_store::aws::S3ConditionalPut::Disabled);
    }
    match address.option("checksum") {
        None if environment.0.contains_key("AWS_CHECKSUM_ALGORITHM") => {}
        None | Some("sha256") => builder = builder.with_checksum_algorithm(Checksum::SHA256),
        Some("crc64nvme") => builder = builder.with_checksum_algorithm(Checksum::CRC64NVME),
        // `none`: Address knows no other word.
        Some(_) => {}
    }
    let set = |key: AmazonS3ConfigKey| builder.get_config_value(&key);
    let endpoint = set(AmazonS3ConfigKey::S3Endpoint).or_else(|| set(AmazonS3ConfigKey::Endpoint));
    if endpoint.as_deref().is_some_and(|endpoint| !is_server(endpoint)) {
        return Err(StageError::invalid(
            format!("s3://{bucket}: AWS_ENDPOINT_URL, or endpoint_url in ~/.aws/config, is not {SERVER}"),
            "its value is not shown, because there may be a secret in it",
        ));
    }
    let in_clear = endpoint.filter(|endpoint| endpoint.starts_with("http://"));
    let allowed = set(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    if let Some(endpoint) = in_clear
        && allowed.as_deref() != Some("true")
    {
        return Err(StageError::invalid(
            format!(
                "s3://{bucket}: the endpoint {} is not encrypted",
                stage::address::without_secrets(&endpoint)
            ),
            "allow it where everybody on the way may read and change the data: AWS_ALLOW_HTTP=true, or \
             ?allow_http=true in the URL",
        ));
    }
    let store = builder.build().map_err(|error| invalid(&format!("s3://{bucket}"), error))?;
    Ok(Arc::new(Remote::new(Arc::new(store))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_with_each_option_opens() {
        for options in [
            "endpoint=http://127.0.0.1:9&allow_http=true&virtual_hosted=true&timeout_s=0&retries=1&checksum=none",
            "region=eu-west-1&bulk_delete=false&conditional_put=false&checksum=crc64nvme",
        ] {
            let address = Address::parse(&format!("s3://ckpts/x?{options}")).unwrap();
            assert!(open(&address, &Environment::default()).is_ok(), "{options}");
        }
    }

    #[test]
    fn an_endpoint_in_clear_is_refused_where_nobody_allowed_it() {
        let clear =
            Environment::from_iter([("AWS_ENDPOINT_URL".to_owned(), "http://127.0.0.1:9".to_owned())]);
        let attempt = |url: &str| open(&Address::parse(url).unwrap(), &clear).map(drop);
        let error = attempt("s3://ckpts/x").unwrap_err();
        assert!(error.hint().is_some_and(|hint| hint.contains("AWS_ALLOW_HTTP=true")), "{error}");
        attempt("s3://ckpts/x?allow_http=true").unwrap();
        attempt("s3://ckpts/x?endpoint=https://127.0.0.1:9").unwrap();
    }

    #[test]
    fn an_endpoint_of_the_environment_is_one_that_a_url_could_have() {
        for name in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"] {
            let attempt = |value: &str, url: &str| {
                let environment = Environment::from_iter([(name.to_owned(), value.to_owned())]);
                open(&Address::parse(url).unwrap(), &environment).map(drop)
            };
            for value in
                ["https://b\u{fc}cher.example", "https:\\\\hunter2", "https://key:hunter2@host", "hunter2"]
            {
                let error = attempt(value, "s3://ckpts/x").unwrap_err();
                assert_eq!(error.class(), stage::ErrorClass::Invalid, "{error}");
                assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
                // The URL's own wins.
                attempt(value, "s3://ckpts/x?endpoint=https://127.0.0.1:9").unwrap();
            }
            attempt("https://xn--bcher-kva.example", "s3://ckpts/x").unwrap();
            attempt("http://127.0.0.1:9", "s3://ckpts/x").unwrap_err();
        }
    }

    #[test]
    fn who_has_no_key_is_told_where_one_is_looked_for() {
        let set = |environment| crate::ObjectSet::open("s3://ckpts/x", &environment).unwrap();
        assert_eq!(set(Environment::default()).hint, Some(NO_KEY));
        let known =
            ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(|name| (name.to_owned(), "mine".to_owned()));
        assert_eq!(set(Environment::from_iter(known)).hint, None);
        let failed = set(Environment::default()).failed(
            &object_store::path::Path::from("a"),
            "read",
            &object_store::Error::NotImplemented { operation: "read".into(), implementer: "none".into() },
        );
        assert_eq!(failed.hint().as_deref(), Some(NO_KEY));
    }

    #[test]
    fn files_of_the_home_directory_fill_in_what_variables_leave_open() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        let credentials = "[other]\naws_access_key_id = wrong\n# c = d\n[default]\naws_access_key_id=mine\naws_secret_access_key = s=/+\n";
        let config = "[default]\nregion = here\ns3 =\n  endpoint_url = http://nested\n[profile other]\nregion = there\n";
        std::fs::write(home.path().join(".aws/credentials"), credentials).unwrap();
        std::fs::write(home.path().join(".aws/config"), config).unwrap();
        let with = |variables: &[(&str, &str)]| {
            let own = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            own.collect::<Environment>().with_files_of(Some(home.path()))
        };
        let get = |environment: &Environment, name: &str| environment.0.get(name).cloned();
        let usual = with(&[]);
        assert_eq!(get(&usual, "AWS_ACCESS_KEY_ID").as_deref(), Some("mine"));
        assert_eq!(get(&usual, "AWS_SECRET_ACCESS_KEY").as_deref(), Some("s=/+"));
        assert_eq!(get(&usual, "AWS_REGION").as_deref(), Some("here"));
        assert_eq!(get(&usual, "AWS_ENDPOINT_URL"), None);
        let other = with(&[("AWS_PROFILE", "other")]);
        assert_eq!(get(&other, "AWS_ACCESS_KEY_ID").as_deref(), Some("wrong"));
        assert_eq!(get(&other, "AWS_REGION").as_deref(), Some("there"));
        let own = with(&[("AWS_ACCESS_KEY_ID", "own"), ("AWS_REGION", "elsewhere")]);
        assert_eq!(get(&own, "AWS_ACCESS_KEY_ID").as_deref(), Some("own"));
        assert_eq!(get(&own, "AWS_SECRET_ACCESS_KEY"), None, "a key and a secret of two people are nobody's");
        assert_eq!(get(&own, "AWS_REGION").as_deref(), Some("elsewhere"));
    }

    #[test]
    fn variables_are_never_shown_with_their_values() {
        let environment: Environment =
            [("AWS_SECRET_ACCESS_KEY".to_owned(), "hunter2".to_owned())].into_iter().collect();
        assert_eq!(format!("{environment:?}"), "{\"AWS_SECRET_ACCESS_KEY\"}");
    }

    #[test]
    fn a_store_takes_the_key_of_any_name_as_it_is() {
        for byte in 1..=255_u8 {
            for name in [vec![byte], vec![b'a', byte, b'.'], vec![0xc2, byte]] {
                let key = stage::keys::encode(&name);
                assert_eq!(object_store::path::Path::parse(&key).unwrap().as_ref(), key);
            }
        }
    }
}
