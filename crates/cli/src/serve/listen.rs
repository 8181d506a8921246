//! Where to listen, and whether that is safe.

use std::fs::DirBuilder;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};

use nbd::wire::limits::STRING as LONGEST_EXPORT;

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

/// A user by name or number.
pub fn user(text: &str) -> Result<u32, BadValue> {
    let by_name = || nix::unistd::User::from_name(text).ok().flatten().map(|user| user.uid.as_raw());
    let hint = "a user's name, or the number that `id -u` prints";
    text.parse().ok().or_else(by_name).ok_or_else(|| BadValue::new("there is no such user", hint))
}

/// A group by name or number.
pub fn group(text: &str) -> Result<u32, BadValue> {
    let by_name = || nix::unistd::Group::from_name(text).ok().flatten().map(|group| group.gid.as_raw());
    let hint = "a group's name, or its number";
    text.parse().ok().or_else(by_name).ok_or_else(|| BadValue::new("there is no such group", hint))
}

/// The name of `CN=NAME`.
pub fn common_name(text: &str) -> Result<String, BadValue> {
    match text.strip_prefix("CN=") {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err(BadValue::new("is not CN=NAME", "for instance CN=node17.example.org")),
    }
}

/// The Unix socket to listen at, if any: the user's usual one, where nothing was said.
pub fn socket(args: &ServeArgs) -> Result<Option<PathBuf>, Failure> {
    if args.socket.is_some() || !args.listen.is_empty() {
        return Ok(args.socket.clone());
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let (base, mode) = match runtime {
        Some(path) => {
            let base = storage::trust::runtime_directory(&path).map_err(|error| {
                Failure::refused(format!("XDG_RUNTIME_DIR={error}"))
                    .hint("name a socket: --socket PATH, in a directory that only you can write to")
            })?;
            (base, 0o700)
        }
        None if rustix::process::geteuid().is_root() => (PathBuf::from("/run"), 0o755),
        None => {
            return Err(Failure::invalid("XDG_RUNTIME_DIR does not say where to put a Unix socket")
                .hint("name one: --socket PATH, in a directory that only you can write to"));
        }
    };
    let directory = base.join("flashwright");
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(&directory)
        .map_err(|error| Failure::io(&directory, "make the directory of the socket", &error))?;
    Ok(Some(directory.join("nbd.sock")))
}

/// Checks addresses, users and paths: what would let strangers in by oversight, and what cannot work.
///
/// # Errors
/// A [`Failure`] that names flag and value.
pub fn check(args: &ServeArgs) -> Result<(), Failure> {
    let guarded = args.insecure || args.tls_psk.is_some() || args.tls_certificates.is_some();
    if let Some(address) = args.listen.first().filter(|_| !guarded) {
        let who = if address.ip().to_canonical().is_loopback() {
            "every user of this host"
        } else {
            "whoever reaches it"
        };
        return Err(Failure::invalid(format!("--listen={address}: {who} could read and write"))
            .hint("add --tls-psk FILE or --tls-certificates DIR, or use --socket; --insecure where all of them are trusted"));
    }
    let allowed = !args.allow_user.is_empty() || !args.allow_group.is_empty();
    if allowed && args.socket.is_none() && !args.listen.is_empty() {
        let flag = if args.allow_user.is_empty() { "--allow-group" } else { "--allow-user" };
        return Err(Failure::invalid(format!("{flag}: there is no Unix socket for it to be about")).hint(
            "add --socket PATH; who may connect over TCP is a matter of --tls-psk or --tls-certificates",
        ));
    }
    if let Some(path) = args.announce.as_deref().filter(|_| args.listen.is_empty()) {
        let wrong = format!("--announce={}: a Unix socket is found on this host only", path.display());
        return Err(Failure::invalid(wrong).hint("add --listen ADDR:PORT"));
    }
    for (flag, path) in [("--socket", &args.socket), ("--announce", &args.announce)] {
        if let Some(path) = path {
            check_directory(flag, path)?;
        }
    }
    let is_other =
        |path: &&PathBuf| path.symlink_metadata().is_ok_and(|found| !found.file_type().is_socket());
    if let Some(path) = args.socket.as_ref().filter(is_other) {
        let wrong = format!("--socket={}: there is a file of that name that is not a socket", path.display());
        return Err(Failure::invalid(wrong).hint("name another path"));
    }
    let length = args.export.len();
    if length > LONGEST_EXPORT {
        let begin: String = args.export.chars().take(32).collect();
        let wrong =
            format!("--export={begin}…: has {length} bytes, more than the {LONGEST_EXPORT} of a name in NBD");
        return Err(Failure::invalid(wrong).hint("name it in fewer bytes"));
    }
    if args.max_connections == 0 {
        return Err(Failure::invalid("--max-connections=0: nobody could connect").hint("64 is the default"));
    }
    Ok(())
}

/// Checks that the directory of a path is there. A name alone is in the current directory.
fn check_directory(flag: &str, path: &Path) -> Result<(), Failure> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(directory) if !directory.is_dir() => {
            let wrong = format!("{flag}={}: there is no directory {}", path.display(), directory.display());
            Err(Failure::invalid(wrong).hint("make the directory, or name another path"))
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
