//! Volumes as a person reads them.

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
    for problem in &check.problems {
        text += &format!("  {} {problem}\n", paint::bad(&format!("{:<10}", "problem")));
    }
    if check.sound {
        text += &format!(
            "  {:<10} all labels are whole, and nothing else was made on the members\n",
            paint::good("sound")
        );
    }
    text
}
