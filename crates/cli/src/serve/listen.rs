//! Where to listen, and whether that is safe.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use super::args::ServeArgs;
use crate::failure::Failure;
use crate::values::BadValue;

/// The port that IANA gave to NBD.
pub const PORT: u16 = 10809;

/// An address to listen at: `ADDR:PORT`, `ADDR`, `[V6]:PORT`, or a name with or without a port.
pub fn address(text: &str) -> Result<SocketAddr, BadValue> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, PORT));
    }
    let hint = "for instance 0.0.0.0:10809, [::]:10809, or a name of this host";
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => {
            let port = port.parse::<u16>();
            (host, port.map_err(|_| BadValue::new("the port is no number from 0 to 65535", hint))?)
        }
        None => (text, PORT),
    };
    if host.is_empty() {
        return Err(BadValue::new("there is no address before the port", hint));
    }
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|error| BadValue::new(format!("no such host: {error}"), hint))?;
    found.into_iter().next().ok_or_else(|| BadValue::new("that name has no address", hint))
}

/// All addresses to listen at; this host alone, where nothing was said.
pub fn addresses(args: &ServeArgs) -> Vec<SocketAddr> {
    if args.listen.is_empty() && args.socket.is_none() {
        return vec![SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT)];
    }
    args.listen.clone()
}

/// Refuses what would let strangers in by oversight.
pub fn check(args: &ServeArgs) -> Result<(), Failure> {
    let guarded = args.insecure || args.tls_psk.is_some() || args.tls_certificates.is_some();
    let open = args.listen.iter().find(|address| !address.ip().to_canonical().is_loopback());
    match open {
        Some(address) if !guarded => {
            Err(Failure::invalid(format!(
                "--listen={address}: reaches beyond this host, and whoever connects could read and write"
            ))
            .hint("add --tls-psk FILE or --tls-certificates DIR; --insecure where everybody on that network is trusted"))
        }
        _ if args.max_connections == 0 => {
            Err(Failure::invalid("--max-connections=0: nobody could connect").hint("64 is the default"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_ports() {
        for (text, expected) in [
            ("127.0.0.1:5", "127.0.0.1:5"),
            ("0.0.0.0", "0.0.0.0:10809"),
            ("[::1]:7", "[::1]:7"),
            ("::1", "[::1]:10809"),
            ("[::]", "[::]:10809"),
        ] {
            assert_eq!(address(text).expect(text).to_string(), expected);
        }
        for bad in ["", ":10809", "127.0.0.1:65536", "127.0.0.1:x", "no.such.host.invalid"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
