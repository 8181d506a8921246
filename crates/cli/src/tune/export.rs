//! The files that make the settings stay, each line with the measurement behind it.

use storage::sysfs::Sysfs;

use super::args::ExportArgs;
use super::tuning::Tuning;
use super::{failed_without_layout, files, parts, report, script};
use crate::failure::Failure;
use crate::output;

/// Writes them, or prints them one after the other.
pub fn export(args: &ExportArgs) -> Result<(), Failure> {
    let tuning = Tuning::of(&report(&args.which.sweep)?, &args.which)?;
    let spec = tuning.spec.as_ref().ok_or_else(|| failed_without_layout(&args.which.sweep))?;
    let drives = parts::drives(spec, &Sysfs::host());
    let all = [
        ("60-flashwright.rules", files::udev(&tuning, spec, &drives)),
        ("tuned.conf", files::tuned(&tuning, spec, &drives)),
        ("flashwright-build.sh", script::build(&tuning, spec, &args.mount)),
        ("fstab", script::fstab(&tuning, spec, &args.mount)),
    ];
    let Some(folder) = &args.output else {
        let text: Vec<String> = all.iter().map(|(name, text)| format!("# ==> {name} <==\n{text}")).collect();
        return output::print(&text.join("\n"));
    };
    std::fs::create_dir_all(folder).map_err(|error| Failure::io(folder, "make the directory", &error))?;
    let mut said = String::new();
    for (name, text) in all {
        let path = folder.join(name);
        output::write_file(&path, &text)?;
        said += &format!("{}\n", path.display());
    }
    output::print(&said)
}
