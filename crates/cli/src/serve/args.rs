//! Flags that everything has that serves something.

use std::path::PathBuf;

use clap::Args;

/// Where to listen, and for whom.
#[derive(Debug, Args)]
#[command(next_help_heading = "Serving")]
pub struct ServeArgs {
    /// Listen at this address, port 10809 unless it names one, port 0 for any; may be given many times; without it
    /// and --socket at 127.0.0.1:10809
    #[arg(long, value_name = "ADDR:PORT", value_parser = super::listen::address)]
    pub listen: Vec<std::net::SocketAddr>,
    /// Listen at this Unix socket
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The export's name; the default export has none
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub export: String,
    /// Take no writes
    #[arg(long)]
    pub read_only: bool,
    /// Demand TLS with one of the keys in this file (USER:HEX lines, as psktool writes them)
    #[arg(long, value_name = "FILE", conflicts_with = "tls_certificates")]
    pub tls_psk: Option<PathBuf>,
    /// Demand TLS; the directory has ca-cert.pem, server-cert.pem and server-key.pem
    #[arg(long, value_name = "DIR")]
    pub tls_certificates: Option<PathBuf>,
    /// With --tls-certificates: demand of clients a certificate by the same authority
    #[arg(long, requires = "tls_certificates")]
    pub tls_verify_peer: bool,
    /// Listen beyond this host without TLS: whoever reaches the port reads and writes
    #[arg(long)]
    pub insecure: bool,
    /// Tell where this server is found: a file HOST:PORT in this directory, removed at the end, or a line in
    /// this file
    #[arg(long, value_name = "DIR|FILE")]
    pub announce: Option<PathBuf>,
    /// Connections at a time
    #[arg(long, value_name = "N", default_value = "64", value_parser = crate::values::whole::<u32>)]
    pub max_connections: u32,
    /// Print one JSON document when ready (flashwright.serve/1)
    #[arg(long)]
    pub json: bool,
}
