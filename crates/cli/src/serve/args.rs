//! Flags that everything has that serves something.

use std::path::PathBuf;

use clap::Args;

/// Where to listen, and for whom.
#[derive(Debug, Args)]
#[command(next_help_heading = "Serving")]
pub struct ServeArgs {
    /// Listen at this address, port 10809 unless it names one, port 0 for any, with TLS or --insecure; may be given many
    /// times
    #[arg(long, value_name = "ADDR:PORT", value_parser = super::listen::address)]
    pub listen: Vec<std::net::SocketAddr>,
    /// Listen at this Unix socket, which only you can open; without it and --listen at flashwright/nbd.sock in
    /// $XDG_RUNTIME_DIR, root's in /run
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Let this user connect to the Unix socket too, a name or a number; may be given many times
    #[arg(long, value_name = "USER", value_parser = super::listen::user)]
    pub allow_user: Vec<u32>,
    /// Let this group's users connect to the Unix socket too, a name or a number; may be given many times
    #[arg(long, value_name = "GROUP", value_parser = super::listen::group)]
    pub allow_group: Vec<u32>,
    /// The export's name; the default export has none
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub export: String,
    /// Take no writes
    #[arg(long)]
    pub read_only: bool,
    /// Demand TLS with one of the keys in this file (USER:HEX lines, as psktool writes them)
    #[arg(long, value_name = "FILE", conflicts_with = "tls_certificates")]
    pub tls_psk: Option<PathBuf>,
    /// Demand TLS, and of clients a certificate by the same authority; the directory has ca-cert.pem, server-cert.pem,
    /// server-key.pem, and ca-crl.pem if certificates were revoked
    #[arg(long, value_name = "DIR")]
    pub tls_certificates: Option<PathBuf>,
    /// With --tls-certificates: let in only clients whose certificate bears this common name; may be given many times
    #[arg(long, value_name = "CN=NAME", requires = "tls_certificates", value_parser = super::listen::common_name)]
    pub tls_authorize: Vec<String>,
    /// With --tls-certificates: let in clients without a certificate; whoever reaches the port reads and writes
    #[arg(long, requires = "tls_certificates", conflicts_with = "tls_authorize")]
    pub tls_anonymous: bool,
    /// Listen at an address without TLS: whoever reaches the port, every user of this host too, reads and writes
    #[arg(long)]
    pub insecure: bool,
    /// Tell where this server is found: a file HOST:PORT in this directory, removed at the end, or a line in
    /// this file
    #[arg(long, value_name = "DIR|FILE")]
    pub announce: Option<PathBuf>,
    /// Connections at a time; at a full door one that has had no request for a minute gives its place up
    #[arg(long, value_name = "N", default_value = "64", value_parser = crate::values::whole::<u32>)]
    pub max_connections: u32,
    /// Print one JSON document when ready (flashwright.serve/1)
    #[arg(long)]
    pub json: bool,
}
