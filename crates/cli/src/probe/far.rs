//! Exports of other hosts, and several devices as one, as a person reads them.

use storage::survey::{SurveyedExport, SurveyedVolume};

use super::screen::row;
use crate::paint;

/// An export, as its server tells it.
pub fn export(export: &SurveyedExport) -> String {
    let mut text = format!("{}\n", paint::title(&export.spec));
    let name = match export.name.as_str() {
        "" => "the default export".to_owned(),
        name => format!("export '{}'", name.escape_debug()),
    };
    let read_only = if export.read_only { ", read-only" } else { "" };
    let is = format!("{name} of {}, {}{read_only}", export.host, units::bytes(export.size_bytes));
    text += &row("  is", &is);
    if let Some(description) = &export.description {
        text += &row("  says", &description.escape_debug().to_string());
    }
    text += &row("  TLS", export.tls.as_deref().unwrap_or("none"));
    let bytes = |bytes: u32| match bytes {
        u32::MAX => "no limit".to_owned(),
        bytes => units::bytes(u64::from(bytes)),
    };
    let [smallest, best, largest] =
        [export.minimum_block_bytes, export.preferred_block_bytes, export.maximum_block_bytes].map(bytes);
    text += &row("  blocks", &format!("{smallest} at least, {best} preferred, {largest} at most"));
    let mut takes: Vec<&str> = export.flags.iter().map(String::as_str).collect();
    takes.extend(export.structured_replies.then_some("structured replies"));
    text += &row("  takes", &if takes.is_empty() { "reads".to_owned() } else { takes.join(", ") });
    let connections = match export.connections {
        1 => "one connection".to_owned(),
        several => format!("{several} connections"),
    };
    text += &row("  by", &format!("{connections} for each job"));
    for signature in export.signatures.iter().flatten() {
        text += &row("  bears", &paint::warn(signature));
    }
    text
}

/// A stripe, separate devices, or a labelled volume.
pub fn volume(volume: &SurveyedVolume) -> String {
    let mut text = format!("{}\n", paint::title(&volume.spec));
    let members = match volume.members.len() {
        1 => "one member".to_owned(),
        count => format!("{count} members"),
    };
    let mut is = match volume.kind.as_str() {
        "separate" => format!("{members} side by side"),
        "stripe" => format!("a stripe of {members}"),
        _ => match volume.name.as_deref() {
            None | Some("") => format!("a labelled volume of {members}"),
            Some(name) => format!("the volume '{}' of {members}", name.escape_debug()),
        },
    };
    is +=
        &volume.chunk_bytes.map(|chunk| format!(" in chunks of {}", units::bytes(chunk))).unwrap_or_default();
    is += &volume.size_bytes.map(|size| format!(", {}", units::bytes(size))).unwrap_or_default();
    text += &row("  is", &is);
    text += &volume.uuid.as_ref().map(|uuid| row("  uuid", uuid)).unwrap_or_default();
    for (number, member) in (1..).zip(&volume.members) {
        text += &row(&format!("  {number}"), member);
    }
    if let Some(problem) = &volume.problem {
        text += &row("  problem", &paint::warn(problem));
        text += &volume.hint.as_ref().map(|hint| row("  hint", hint)).unwrap_or_default();
    }
    text
}
