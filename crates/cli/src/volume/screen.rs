//! Volumes as a person reads them.

use ::volume::DataCheck;
use ::volume::survey::{Check, MemberFound, VolumeFound, Volumes};

use crate::paint;

/// All volumes that were found.
pub fn volumes(found: &Volumes) -> String {
    let mut text = String::new();
    if found.volumes.is_empty() && found.unreadable.is_empty() {
        return "no volumes\n".to_owned();
    }
    for volume in &found.volumes {
        text += &of_volume(volume);
    }
    for device in &found.unreadable {
        text += &format!("{}: {}\n", paint::warn("unreadable"), device.problem);
    }
    text
}

fn of_volume(volume: &VolumeFound) -> String {
    let title = if volume.name.is_empty() { &volume.uuid } else { &volume.name };
    let mut text = format!("{}\n", paint::title(&title.escape_debug().to_string()));
    let mut row = |name: &str, value: &str| text += &format!("  {name:<10} {value}\n");
    match (&volume.problem, &volume.spec) {
        (Some(problem), _) => row("state", &format!("{}: {problem}", paint::warn("not usable"))),
        (None, Some(spec)) => row("use it as", spec),
        (None, None) => {}
    }
    if let Some(hint) = &volume.hint {
        row("hint", hint);
    }
    if volume.whole && !volume.clean {
        row("closed", "no: it is being written, or whoever wrote it was stopped");
    }
    row("uuid", &volume.uuid);
    row("size", &units::bytes(volume.size_bytes));
    let members = if volume.width == 1 { "member" } else { "members" };
    row("stripe", &format!("{} {members} in chunks of {}", volume.width, units::bytes(volume.chunk_bytes)));
    if volume.checksums {
        row("checksums", "CRC-32C of each block of 4 KiB");
    }
    row("created", &sweep::report::utc(volume.created_unix_s.saturating_mul(1_000_000_000)));
    for member in &volume.members {
        let faults = faults(member);
        row(&format!("member {}", member.position), &format!("{}{faults}", member.spec));
    }
    text
}

fn faults(member: &MemberFound) -> String {
    let faults = [("head", &member.head_fault), ("tail", &member.tail_fault)];
    faults
        .into_iter()
        .filter_map(|(place, fault)| Some((place, fault.as_ref()?)))
        .map(|(place, fault)| format!("; {}: the copy of the label {fault}", paint::warn(place)))
        .collect()
}

/// What a check found.
pub fn check(check: &Check) -> String {
    let mut text = of_volume(&check.volume);
    for repaired in &check.repaired {
        text += &format!("  {} {repaired}\n", paint::good(&format!("{:<10}", "repaired")));
    }
    text + &labels(&check.problems)
}

/// What is wrong with the labels, or that they are sound.
fn labels(problems: &[String]) -> String {
    let row = |problem: &String| format!("  {} {problem}\n", paint::bad(&format!("{:<10}", "problem")));
    if problems.is_empty() {
        return format!(
            "  {} all labels are whole, and nothing else was made on the members\n",
            paint::good(&format!("{:<10}", "sound"))
        );
    }
    problems.iter().map(row).collect()
}

/// What reading all data found: the volume, a row for each finding, and how much was read.
pub fn data(check: &DataCheck) -> String {
    let mut text = of_volume(&check.volume) + &labels(&check.problems);
    let offset = |offset: Option<u64>| offset.map_or_else(|| "-".to_owned(), |at| at.to_string());
    if !check.findings.is_empty() {
        text += &format!("\n{:<12} {:>16} {:>16}  member\n", "finding", "volume offset", "member offset");
    }
    for finding in &check.findings {
        let word = paint::bad(&format!("{:<12}", finding.kind.word()));
        let (at, on_member) = (offset(finding.volume_offset), finding.member_offset);
        let detail = if finding.detail.is_empty() { String::new() } else { format!("; {}", finding.detail) };
        text += &format!("{word} {at:>16} {on_member:>16}  {}{detail}\n", finding.member);
    }
    let unlisted = check.finding_count - check.findings.len() as u64;
    if unlisted > 0 {
        text += &format!("and {unlisted} more\n");
    }
    let mut row = |name: &str, value: &str| text += &format!("  {name:<10} {value}\n");
    let (read, verified) = (units::bytes(check.read_bytes), units::bytes(check.verified_bytes));
    row("read", &format!("{read}, of which {verified} have checksums"));
    if check.resealed_blocks > 0 {
        let blocks = check.resealed_blocks;
        row("resealed", &format!("{blocks} blocks were given new checksums after a crash, in all"));
    }
    if check.finding_count == 0 && !check.interrupted {
        text += &format!("  {} all that has a checksum fits it\n", paint::good(&format!("{:<10}", "sound")));
    }
    text
}
