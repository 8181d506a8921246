//! Settings of servers and sessions: what a managed server is given, what a session is given, and what is stated of any server.
//!
//! A managed server is set for measurements: nothing changes the data or fills the cache by itself, plans do not depend on how many
//! processes are free, and statements are durable as they are on a server at work. Everything else is PostgreSQL's default. What
//! the user gives comes last and so wins.

/// A setting and its value.
pub type Setting = (String, String);

/// What a managed server starts with.
pub(super) const MANAGED: &[(&str, &str)] = &[
    // Found by its socket, by its own user and root alone.
    ("listen_addresses", ""),
    ("unix_socket_permissions", "0700"),
    ("max_connections", "40"),
    // Nothing fills the cache after a start, or rewrites tables in a measurement.
    ("shared_preload_libraries", ""),
    ("autovacuum", "off"),
    ("checkpoint_timeout", "1h"),
    // No replica and no archive reads the log.
    ("wal_level", "minimal"),
    ("max_wal_senders", "0"),
    ("shared_buffers", "128MB"),
    ("work_mem", "64MB"),
    ("maintenance_work_mem", "256MB"),
    // The same plans on each tier: those that a server on flash is advised to have.
    ("random_page_cost", "1.1"),
    ("max_parallel_workers_per_gather", "0"),
    ("jit", "off"),
    ("track_io_timing", "on"),
    ("huge_pages", "off"),
    ("restart_after_crash", "off"),
    ("log_line_prefix", "%m [%p] "),
    ("log_checkpoints", "off"),
];

/// What every session is given: joins in the order in which statements write them, and a plan for the parameters at hand.
pub(super) const SESSION: &[(&str, &str)] =
    &[("join_collapse_limit", "1"), ("plan_cache_mode", "force_custom_plan"), ("extra_float_digits", "1")];

/// What a session of a superuser is given as well: counts of blocks of each statement, sent to the client.
pub(super) const COUNTS: &[(&str, &str)] = &[
    ("track_io_timing", "on"),
    ("auto_explain.log_min_duration", "0"),
    ("auto_explain.log_analyze", "on"),
    ("auto_explain.log_buffers", "on"),
    ("auto_explain.log_timing", "off"),
    ("auto_explain.log_format", "json"),
    ("auto_explain.log_level", "notice"),
];

/// Settings that bear on I/O, of any version; those that a server does not have are not stated.
pub(super) const STATED: &[&str] = &[
    "autovacuum",
    "block_size",
    "checkpoint_timeout",
    "data_checksums",
    "debug_io_direct",
    "effective_cache_size",
    "effective_io_concurrency",
    "fsync",
    "full_page_writes",
    "huge_pages",
    "io_combine_limit",
    "io_method",
    "io_workers",
    "jit",
    "join_collapse_limit",
    "maintenance_io_concurrency",
    "maintenance_work_mem",
    "max_parallel_workers_per_gather",
    "max_wal_size",
    "plan_cache_mode",
    "random_page_cost",
    "seq_page_cost",
    "shared_buffers",
    "shared_preload_libraries",
    "synchronous_commit",
    "temp_buffers",
    "track_io_timing",
    "wal_compression",
    "wal_level",
    "work_mem",
];

/// What flashwright itself decides, so that no user's value can stand beside it.
const OWN: [&str; 6] = [
    "data_directory",
    "listen_addresses",
    "port",
    "unix_socket_directories",
    "config_file",
    "external_pid_file",
];

/// `name=value` as the user types it.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse(text: &str) -> Result<Setting, String> {
    let (name, value) = text.split_once('=').ok_or("has no =")?;
    let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    if name.is_empty() || !name.chars().all(is_name) {
        return Err(format!("{name:?} is not the name of a setting"));
    }
    if OWN.contains(&name.as_str()) {
        return Err(format!("{name} is flashwright's own to set"));
    }
    Ok((name, value.to_owned()))
}

/// Those that a session of ours sets as well, and that must win over it there.
pub(super) fn of_sessions(settings: &[Setting]) -> Vec<Setting> {
    let is_ours = |name: &str| SESSION.iter().chain(COUNTS).any(|(own, _)| *own == name);
    settings.iter().filter(|(name, _)| is_ours(name)).cloned().collect()
}

/// A value between quotes of SQL.
pub(super) fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_a_name_and_a_value() {
        assert_eq!(parse("Shared_Buffers = 1GB"), Ok(("shared_buffers".into(), "1GB".into())));
        assert_eq!(
            parse("auto_explain.log_analyze="),
            Ok(("auto_explain.log_analyze".into(), String::new()))
        );
        assert!(parse("shared_buffers").unwrap_err().contains("no ="));
        assert!(parse("a b=1").unwrap_err().contains("not the name"));
        assert!(parse("port=1").unwrap_err().contains("own to set"));
        assert_eq!(quoted("it's"), "'it''s'");
    }
}
