//! TLS ("TLS support"), by OpenSSL: keys known to both sides (PSK), or certificates (X.509).
//!
//! What is guaranteed, on both sides:
//!
//! 1. **1.3 is preferred, 1.2 is the least.** Only suites with forward secrecy and authenticated encryption are
//!    spoken; no compression, no renegotiation, no resumption.
//! 2. **Somebody is at the other end.** With a key, both sides prove that they have it, and a peer that shows a
//!    certificate in place of the proof is refused. With certificates, the client verifies the server's chain and
//!    name unless it was told not to, and the server asks for a certificate of the same authority unless it was told
//!    not to. Where there is a `ca-crl.pem`, a certificate that it lists is refused, and so is every one once the list
//!    itself is out of date.
//! 3. **No key appears in a message.**
//!
//! Files are those that GnuTLS-based peers (nbdkit, libnbd, qemu) read: psktool's for keys, and directories with
//! `ca-cert.pem`, `ca-crl.pem`, `server-cert.pem`, `server-key.pem`, `client-cert.pem` and `client-key.pem`.

mod error;
mod psk;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use openssl::error::ErrorStack;
use openssl::nid::Nid;
use openssl::ssl::{
    HandshakeError, Ssl, SslContext, SslContextBuilder, SslFiletype, SslMethod, SslMode, SslOptions,
    SslSessionCacheMode, SslStream, SslVerifyMode, SslVersion,
};
use openssl::x509::X509VerifyResult;
use openssl::x509::store::X509Lookup;
use openssl::x509::verify::{X509CheckFlags, X509VerifyFlags};

use crate::socket::Socket;
use crate::uri::{ServerAddress, Uri};

pub use error::TlsError;

/// Suites of TLS 1.2 for certificates.
const SUITES: &str = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20:!aNULL:!eNULL:!PSK";
/// Suites of TLS 1.2 for keys. OpenSSL has no AES-GCM with ECDHE-PSK; a client takes DHE as well.
const PSK_SUITES: &str = "ECDHE-PSK-CHACHA20-POLY1305:DHE-PSK-AES256-GCM-SHA384:DHE-PSK-AES128-GCM-SHA256:DHE-PSK-CHACHA20-POLY1305";
/// Suites of TLS 1.3 for keys: those with SHA-256, which is the hash of a key whose file says nothing of one
/// (RFC 8446, section 4.2.11).
const PSK_SUITES_13: &str = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";

/// Where distributions keep the authorities that they believe: Debian, Red Hat, SUSE, Alpine.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// What a client does when it puts TLS on.
#[derive(Clone)]
pub struct ClientTls {
    context: SslContext,
    /// The name that the certificate must have, and that is sent along (SNI).
    name: Option<String>,
    kind: Kind,
}

/// What a server does when it puts TLS on.
#[derive(Clone)]
pub struct ServerTls {
    context: SslContext,
    kind: Kind,
    /// Common names of which a client's certificate has to bear one; none where any will do.
    names: Vec<String>,
}

/// Whom a server with a certificate lets in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clients {
    /// Anybody: TLS only keeps what is said between the two.
    Anonymous,
    /// Who shows a certificate that `ca-cert.pem` vouches for.
    Certified,
    /// Of those, who bears one of these common names (the CN of the certificate's subject).
    Named(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Psk,
    X509 { verify: bool },
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientTls")
            .field("kind", &self.kind)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl ClientTls {
    /// What a URI asks for.
    ///
    /// Without files it verifies the server against the authorities that the system trusts.
    ///
    /// # Errors
    ///
    /// A file cannot be read or is not what it should be.
    pub fn of(uri: &Uri) -> Result<Self, TlsError> {
        let tls = uri.tls();
        if let Some(file) = &tls.psk_file {
            return Self::psk(file, tls.username.as_deref());
        }
        let host = match uri.server() {
            ServerAddress::Tcp(host, _) => Some(host.as_str()),
            ServerAddress::Unix(_) => None,
        };
        let name = tls.hostname.as_deref().or(host);
        Self::certificates(tls.certificates.as_deref(), name, !tls.no_verify)
    }

    /// With a key of `file`: that of `user`, or the only one.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is no list of names and keys, has no such user, or has several and none was named.
    pub fn psk(file: &Path, user: Option<&str>) -> Result<Self, TlsError> {
        let entries = psk::read(file)?;
        let entry = match user {
            Some(user) => {
                let found = entries.into_iter().find(|entry| entry.name == user.as_bytes());
                found.ok_or_else(|| TlsError::NoUser { path: file.into(), user: user.into() })?
            }
            None if entries.len() == 1 => entries.into_iter().next().expect("there is one"),
            None => return Err(TlsError::WhichUser { path: file.into() }),
        };
        let mut builder = builder(SslMethod::tls_client()).map_err(TlsError::Setup)?;
        psk_suites(&mut builder).map_err(TlsError::Setup)?;
        // No authority is trusted, so that a server with a certificate in place of the key is refused.
        builder.set_verify(SslVerifyMode::PEER);
        builder.set_psk_client_callback(move |_, _, identity, key| {
            let name = identity.get_mut(..=entry.name.len());
            let place = key.get_mut(..entry.key.len());
            let (Some(name), Some(place)) = (name, place) else { return Ok(0) };
            name[..entry.name.len()].copy_from_slice(&entry.name);
            name[entry.name.len()] = 0;
            place.copy_from_slice(&entry.key);
            Ok(entry.key.len())
        });
        Ok(Self { context: builder.build(), name: None, kind: Kind::Psk })
    }

    /// With certificates: `ca-cert.pem` of `directory` says who is believed (without a directory, the system's
    /// authorities), `client-cert.pem` and `client-key.pem` are shown where they are there. The server's certificate must
    /// have `name`, which has to be given unless it is not verified.
    ///
    /// # Errors
    ///
    /// A file cannot be read or is not what it should be, or there is no name to verify.
    pub fn certificates(
        directory: Option<&Path>,
        name: Option<&str>,
        verify: bool,
    ) -> Result<Self, TlsError> {
        if verify && name.is_none() {
            return Err(TlsError::NoName);
        }
        let mut builder = builder(SslMethod::tls_client()).map_err(TlsError::Setup)?;
        builder.set_cipher_list(SUITES).map_err(TlsError::Setup)?;
        builder.set_verify(if verify { SslVerifyMode::PEER } else { SslVerifyMode::NONE });
        match directory {
            Some(directory) => {
                if verify {
                    authority(&mut builder, directory)?;
                }
                if directory.join("client-cert.pem").exists() || directory.join("client-key.pem").exists() {
                    own(&mut builder, directory, "client-cert.pem", "client-key.pem")?;
                }
            }
            None => system_authorities(&mut builder).map_err(TlsError::Setup)?,
        }
        let kind = Kind::X509 { verify };
        Ok(Self { context: builder.build(), name: name.map(ToOwned::to_owned), kind })
    }

    /// Who must be at the other end.
    fn session(&self) -> Result<Ssl, ErrorStack> {
        let mut ssl = Ssl::new(&self.context)?;
        let Some(name) = &self.name else { return Ok(ssl) };
        let address: Option<IpAddr> = name.parse().ok();
        if address.is_none() {
            ssl.set_hostname(name)?;
        }
        if self.kind == (Kind::X509 { verify: true }) {
            let parameters = ssl.param_mut();
            parameters.set_hostflags(X509CheckFlags::NO_PARTIAL_WILDCARDS);
            match address {
                Some(address) => parameters.set_ip(address)?,
                None => parameters.set_host(name)?,
            }
        }
        Ok(ssl)
    }

    pub(crate) fn handshake(&self, socket: Socket) -> Result<SslStream<Socket>, TlsError> {
        let ssl = self.session().map_err(TlsError::Setup)?;
        let stream = ssl.connect(socket).map_err(failed)?;
        if self.kind == Kind::Psk && !used_a_key(&stream) {
            return Err(TlsError::NoProof);
        }
        Ok(stream)
    }
}

impl ServerTls {
    /// With the keys of `file`: a client has to have one of them.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is no list of names and keys.
    pub fn psk(file: &Path) -> Result<Self, TlsError> {
        let entries = psk::read(file)?;
        let mut builder = builder(SslMethod::tls_server()).map_err(TlsError::Setup)?;
        psk_suites(&mut builder).map_err(TlsError::Setup)?;
        builder.set_psk_server_callback(move |_, identity, key| {
            let entry = entries.iter().find(|entry| Some(entry.name.as_slice()) == identity);
            let Some(entry) = entry else { return Ok(0) };
            let Some(place) = key.get_mut(..entry.key.len()) else { return Ok(0) };
            place.copy_from_slice(&entry.key);
            Ok(entry.key.len())
        });
        Ok(Self { context: builder.build(), kind: Kind::Psk, names: Vec::new() })
    }

    /// With `server-cert.pem` and `server-key.pem` of `directory`, for those that `clients` says; what vouches for them
    /// is `ca-cert.pem`, and `ca-crl.pem` where it is there.
    ///
    /// # Errors
    ///
    /// A file cannot be read or is not what it should be.
    pub fn certificates(directory: &Path, clients: &Clients) -> Result<Self, TlsError> {
        let verify = *clients != Clients::Anonymous;
        let mut builder = builder(SslMethod::tls_server()).map_err(TlsError::Setup)?;
        builder.set_cipher_list(SUITES).map_err(TlsError::Setup)?;
        own(&mut builder, directory, "server-cert.pem", "server-key.pem")?;
        if verify {
            authority(&mut builder, directory)?;
            builder.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
        }
        let names = if let Clients::Named(names) = clients { names.clone() } else { Vec::new() };
        Ok(Self { context: builder.build(), kind: Kind::X509 { verify }, names })
    }

    pub(crate) fn handshake(&self, socket: Socket) -> Result<SslStream<Socket>, TlsError> {
        let ssl = Ssl::new(&self.context).map_err(TlsError::Setup)?;
        let stream = ssl.accept(socket).map_err(failed)?;
        if self.kind == Kind::Psk && !used_a_key(&stream) {
            return Err(TlsError::NoProof);
        }
        if !self.names.is_empty() {
            let shown = common_names(&stream);
            if !shown.iter().any(|name| self.names.contains(name)) {
                return Err(TlsError::NotAuthorized { names: shown });
            }
        }
        Ok(stream)
    }
}

/// The common names of the certificate that the peer has shown.
fn common_names(stream: &SslStream<Socket>) -> Vec<String> {
    let Some(certificate) = stream.ssl().peer_certificate() else { return Vec::new() };
    let entries = certificate.subject_name().entries_by_nid(Nid::COMMONNAME);
    entries.filter_map(|entry| entry.data().to_string().ok()).collect()
}

/// Whether a key vouches for the peer: in TLS 1.3 the session counts as resumed from it, in 1.2 the suite says so.
fn used_a_key(stream: &SslStream<Socket>) -> bool {
    let ssl = stream.ssl();
    match ssl.version2() {
        Some(SslVersion::TLS1_3) => ssl.session_reused(),
        _ => ssl.current_cipher().is_some_and(|suite| suite.name().contains("PSK")),
    }
}

/// What all of them have in common.
fn builder(method: SslMethod) -> Result<SslContextBuilder, ErrorStack> {
    let mut builder = SslContextBuilder::new(method)?;
    builder.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    builder.set_options(
        SslOptions::NO_COMPRESSION
            | SslOptions::NO_RENEGOTIATION
            | SslOptions::NO_TICKET
            | SslOptions::CIPHER_SERVER_PREFERENCE,
    );
    builder.set_num_tickets(0)?;
    builder.set_session_cache_mode(SslSessionCacheMode::OFF);
    builder
        .set_mode(SslMode::AUTO_RETRY | SslMode::ENABLE_PARTIAL_WRITE | SslMode::ACCEPT_MOVING_WRITE_BUFFER);
    Ok(builder)
}

fn psk_suites(builder: &mut SslContextBuilder) -> Result<(), ErrorStack> {
    builder.set_cipher_list(PSK_SUITES)?;
    builder.set_ciphersuites(PSK_SUITES_13)
}

/// `ca-cert.pem`: who vouches for the peer.
fn authority(builder: &mut SslContextBuilder, directory: &Path) -> Result<(), TlsError> {
    let path = directory.join("ca-cert.pem");
    readable(&path)?;
    builder.set_ca_file(&path).map_err(|source| TlsError::Certificate { path, source })?;
    revoked(builder, directory.join("ca-crl.pem"))
}

/// `ca-crl.pem`, where it is there: whom the authority does not vouch for any more.
fn revoked(builder: &mut SslContextBuilder, path: PathBuf) -> Result<(), TlsError> {
    match readable(&path) {
        Ok(()) => {}
        Err(TlsError::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    let store = builder.cert_store_mut();
    let read = store
        .add_lookup(X509Lookup::file())
        .and_then(|lookup| lookup.load_crl_file(&path, SslFiletype::PEM))
        .and_then(|_| store.set_flags(X509VerifyFlags::CRL_CHECK));
    read.map_err(|source| TlsError::Certificate { path, source })
}

/// Who the system believes. An OpenSSL of our own does not know where that is written, other than by `SSL_CERT_FILE` and
/// `SSL_CERT_DIR`.
fn system_authorities(builder: &mut SslContextBuilder) -> Result<(), ErrorStack> {
    builder.set_default_verify_paths()?;
    match BUNDLES.iter().find(|path| Path::new(path).exists()) {
        Some(path) if std::env::var_os("SSL_CERT_FILE").is_none() => builder.set_ca_file(path),
        _ => Ok(()),
    }
}

/// What we show, and the key to it.
fn own(
    builder: &mut SslContextBuilder,
    directory: &Path,
    certificate: &str,
    key: &str,
) -> Result<(), TlsError> {
    let (certificate, key) = (directory.join(certificate), directory.join(key));
    readable(&certificate)?;
    readable(&key)?;
    let wrong = |path: &Path, source| TlsError::Certificate { path: path.into(), source };
    builder.set_certificate_chain_file(&certificate).map_err(|e| wrong(&certificate, e))?;
    builder.set_private_key_file(&key, SslFiletype::PEM).map_err(|e| wrong(&key, e))?;
    builder.check_private_key().map_err(|e| wrong(&key, e))
}

/// That a file can be read, with the kernel's word where it cannot.
fn readable(path: &Path) -> Result<(), TlsError> {
    match std::fs::File::open(path) {
        Ok(_) => Ok(()),
        Err(source) => Err(TlsError::File { path: path.into(), source }),
    }
}

/// A file as text, if it is no longer than `limit` bytes.
fn read_text(path: &Path, limit: u64) -> Result<String, TlsError> {
    use std::io::Read as _;
    let wrong = |source| TlsError::File { path: path.into(), source };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(wrong)?;
    file.take(limit).read_to_string(&mut text).map_err(wrong)?;
    Ok(text)
}

/// Why a handshake failed.
fn failed(error: HandshakeError<Socket>) -> TlsError {
    let stream = match error {
        HandshakeError::SetupFailure(source) => return TlsError::Setup(source),
        HandshakeError::WouldBlock(_) => return TlsError::Io(std::io::ErrorKind::TimedOut.into()),
        HandshakeError::Failure(stream) => stream,
    };
    let verified = stream.ssl().verify_result();
    let error = stream.into_error();
    if verified != X509VerifyResult::OK {
        return TlsError::Unverified { reason: verified.error_string() };
    }
    match error.into_io_error() {
        Ok(source) => TlsError::Io(source),
        Err(source) => TlsError::Handshake(source),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    /// Both ends of a connection.
    fn ends() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn keys(dir: &Path, name: &str, key: &str) -> std::path::PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, format!("alice:{key}\n")).unwrap();
        path
    }

    /// A handshake in which the client knows no more than `version`: version and suite, if there was one.
    fn shaken(
        client: &ClientTls,
        server: ServerTls,
        version: SslVersion,
    ) -> Option<(&'static str, &'static str)> {
        let (ours, theirs) = ends();
        let thread = std::thread::spawn(move || server.context_session().accept(theirs).is_ok());
        let mut ssl = client.session().unwrap();
        ssl.set_max_proto_version(Some(version)).unwrap();
        // The server's end falls with the connection where the client does not get through.
        let stream = ssl.connect(ours).ok();
        let found = stream.as_ref().map(|stream| {
            (stream.ssl().version_str(), stream.ssl().current_cipher().map_or("none", |suite| suite.name()))
        });
        drop(stream);
        assert_eq!(thread.join().unwrap(), found.is_some());
        found
    }

    impl ServerTls {
        fn context_session(&self) -> Ssl {
            Ssl::new(&self.context).unwrap()
        }
    }

    #[test]
    fn a_key_does_in_tls_1_2_as_well_and_below_there_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let right = keys(dir.path(), "right", &"5a".repeat(32));
        let wrong = keys(dir.path(), "wrong", &"5b".repeat(32));
        let server = ServerTls::psk(&right).unwrap();
        let client = ClientTls::psk(&right, Some("alice")).unwrap();
        let (version, suite) = shaken(&client, server.clone(), SslVersion::TLS1_2).unwrap();
        assert_eq!((version, suite), ("TLSv1.2", "ECDHE-PSK-CHACHA20-POLY1305"));
        let (version, suite) = shaken(&client, server.clone(), SslVersion::TLS1_3).unwrap();
        assert_eq!((version, suite), ("TLSv1.3", "TLS_AES_128_GCM_SHA256"));
        let stranger = ClientTls::psk(&wrong, None).unwrap();
        assert_eq!(shaken(&stranger, server.clone(), SslVersion::TLS1_2), None);
        assert_eq!(shaken(&client, server, SslVersion::TLS1_1), None);
    }
}
