//! What is known of an export of another host, and of several devices as one.
//!
//! An export is connected to as a run that reads it would, and asked nothing but what lies at its beginning and end. What
//! its bytes stand on the other host knows.

use std::net::IpAddr;

use nbd::uri::{ServerAddress, Uri};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::notes::{Note, note};
use crate::device::Device;
use crate::remote::{NbdDevice, RemoteError};
use crate::safety;

/// An export of another host, as its server tells it (doc/proto.md of the NBD project).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SurveyedExport {
    /// As it was given.
    pub spec: String,
    /// Address and port, or socket.
    pub host: String,
    /// Its name; empty for the default one.
    pub name: String,
    /// What the server says of it to people; null where it says nothing.
    pub description: Option<String>,
    /// Bytes.
    pub size_bytes: u64,
    /// What offsets and lengths are multiples of, bytes ("Size constraints").
    pub minimum_block_bytes: u32,
    /// What does well, bytes.
    pub preferred_block_bytes: u32,
    /// The most data of one request, bytes.
    pub maximum_block_bytes: u32,
    /// Version of TLS on the connection, as `TLSv1.3`; null where there is none.
    pub tls: Option<String>,
    /// Whether replies to reads come in chunks ("Structured replies").
    pub structured_replies: bool,
    /// Whether it cannot be written.
    pub read_only: bool,
    /// What may be asked of it ("Transmission flags"): `flush`, `fua`, `trim`, `write_zeroes`, `fast_zero`, `df`,
    /// `multi_conn`, `cache`; `rotational` where it seeks.
    pub flags: Vec<String>,
    /// Connections that each job of a run makes, where its depth allows it.
    pub connections: u32,
    /// What is known to lie on it; null where that could not be read.
    pub signatures: Option<Vec<String>>,
}

/// Several devices as one: a stripe, separate devices, or a labelled volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SurveyedVolume {
    /// As it was given.
    pub spec: String,
    /// `stripe`, `separate`, `volume`.
    pub kind: String,
    /// Bytes; null where it cannot be put together.
    pub size_bytes: Option<u64>,
    /// Bytes that one member holds before the next; null where they lie one after the other.
    pub chunk_bytes: Option<u64>,
    /// The name on the labels of a volume.
    pub name: Option<String>,
    /// The UUID on the labels of a volume.
    pub uuid: Option<String>,
    /// The members' specs, of a volume in the order of its labels.
    pub members: Vec<String>,
    /// Why it cannot be put together; null where it can.
    pub problem: Option<String>,
    /// What to do about that.
    pub hint: Option<String>,
}

/// Connects to an export and looks at it.
///
/// # Errors
/// [`RemoteError`] where it cannot be connected to.
pub fn survey_export(uri: &Uri) -> Result<SurveyedExport, RemoteError> {
    let device = NbdDevice::open(uri, false)?;
    let Some(remote) = device.remote() else { unreachable!("an export is remote") };
    let (info, connection) = (remote.export(), remote.idle_connection());
    let read = |buffer: &mut [u8], at: u64| device.read_at(buffer, at);
    let signatures = safety::signatures_in(&read, device.size());
    // What only says that something cannot be done has a field of its own.
    let words = info.flags.without(nbd::wire::TransmissionFlags::READ_ONLY).to_string();
    Ok(SurveyedExport {
        spec: uri.to_string(),
        host: remote.host().to_owned(),
        name: info.name.clone(),
        description: info.description.clone().filter(|text| !text.is_empty()),
        size_bytes: info.size,
        minimum_block_bytes: info.minimum_block,
        preferred_block_bytes: info.preferred_block,
        maximum_block_bytes: info.maximum_block,
        tls: connection.tls.map(str::to_owned),
        structured_replies: connection.structured,
        read_only: info.flags.read_only(),
        flags: words.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect(),
        connections: remote.connections(),
        signatures: signatures.ok().map(|found| found.iter().map(ToString::to_string).collect()),
    })
}

impl SurveyedExport {
    fn can(&self, flag: &str) -> bool {
        self.flags.iter().any(|word| word == flag)
    }
}

/// What an engineer would want to know of exports before believing a figure.
pub(super) fn notes(export: &SurveyedExport) -> Vec<Note> {
    let mut all = Vec::new();
    let mut say = |text: &str, remedy: &str| all.push(note(&export.spec, text, remedy));
    if export.tls.is_none() && is_beyond_this_host(&export.spec) {
        say(
            "not encrypted: who is on the way can read and change everything",
            "nbds:// where its server has TLS",
        );
    }
    if !export.read_only && !export.can("flush") {
        say("its server has no flush: nothing that is written is known to be durable", "");
    }
    if export.connections == 1 && !export.can("multi_conn") {
        say("one connection: its server does not say that a flush on one covers the writes of others", "");
    }
    if export.signatures.is_none() {
        say("its beginning or end cannot be read", "");
    }
    all
}

/// Whether bytes leave this machine on their way. A name is taken for another machine's, unless it says otherwise.
fn is_beyond_this_host(spec: &str) -> bool {
    match spec.parse::<Uri>().as_ref().map(Uri::server) {
        Ok(ServerAddress::Tcp(host, _)) => {
            host != "localhost" && !host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        Ok(ServerAddress::Unix(_)) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(spec: &str) -> SurveyedExport {
        SurveyedExport {
            spec: spec.into(),
            host: "h:10809".into(),
            name: String::new(),
            description: None,
            size_bytes: 1 << 30,
            minimum_block_bytes: 1,
            preferred_block_bytes: 4096,
            maximum_block_bytes: 32 << 20,
            tls: None,
            structured_replies: true,
            read_only: false,
            flags: ["flush", "multi_conn"].map(str::to_owned).to_vec(),
            connections: 4,
            signatures: Some(Vec::new()),
        }
    }

    fn said(export: &SurveyedExport) -> String {
        notes(export).into_iter().map(|note| note.text + "\n").collect()
    }

    #[test]
    fn only_what_leaves_this_host_in_the_clear_is_said_to() {
        for here in ["nbd://127.0.0.1:7/", "nbd://[::1]/x", "nbd://localhost", "nbd+unix:///?socket=/run/s"] {
            assert_eq!(said(&export(here)), "", "{here}");
        }
        for there in ["nbd://10.0.0.7/", "nbd://h2/x", "nbd://[fe80::1]/"] {
            assert!(said(&export(there)).contains("not encrypted"), "{there}");
        }
        let encrypted = SurveyedExport { tls: Some("TLSv1.3".into()), ..export("nbds://h2/x") };
        assert_eq!(said(&encrypted), "");
    }

    #[test]
    fn what_a_server_cannot_is_said() {
        let poor = SurveyedExport {
            flags: Vec::new(),
            connections: 1,
            signatures: None,
            ..export("nbd://localhost")
        };
        let said = said(&poor);
        for part in ["no flush", "one connection", "cannot be read"] {
            assert!(said.contains(part), "{said}");
        }
    }
}
