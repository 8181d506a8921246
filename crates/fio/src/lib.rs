//! fio's job files read, and its JSON output written.
//!
//! Two promises. *Reading*: what runs is what fio would have run, with fio's defaults (`direct=0`,
//! `iodepth=1`, `ioengine=psync`, …) and not flashwright's; what cannot be run so is refused with its
//! file and line, never skipped ([`JobFile`]). *Writing*: a program that reads fio's
//! `--output-format=json` or `json+` reads ours ([`json`]), and a figure that was not measured is not
//! made up.
//!
//! `bench --cmdhelp` lists every key and what becomes of it; `docs/fio.md` has the differences that remain.

mod acts;
mod beside;
mod draft;
mod error;
mod file;
mod fill;
mod job;
pub mod json;
mod keys;
mod keywords;
mod lines;
mod paths;
mod print;
mod resolve;
mod values;

pub use draft::Reporting;
pub use error::{JobFileError, Location};
pub use file::JobFile;
pub use job::{Group, Job, LogKind};
pub use keys_table::{KeyInfo, KeySupport, keys};
pub use lines::Environment;
pub use print::options_of;

mod keys_table {
    //! The table of keys, for whoever documents or completes them.

    use super::keys::{Treatment, all};

    /// What becomes of a key.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum KeySupport {
        /// It changes the workload.
        Supported,
        /// It changes nothing here, with these values; with none listed, with any.
        Accepted(&'static [&'static str]),
        /// It is refused, with this hint.
        Refused(&'static str),
    }

    /// One key of fio's job files.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct KeyInfo {
        /// fio's main spelling.
        pub name: &'static str,
        /// Its other spellings.
        pub aliases: &'static [&'static str],
        /// What becomes of it.
        pub support: KeySupport,
        /// What it does, why it does nothing, or why it is refused.
        pub note: &'static str,
    }

    /// Every key of fio's that is known here, in the order of the documentation.
    pub fn keys() -> impl Iterator<Item = KeyInfo> {
        all().map(|key| KeyInfo {
            name: key.name,
            aliases: key.aliases,
            support: match key.treatment {
                Treatment::Supported(_) => KeySupport::Supported,
                Treatment::Accepted(values) => KeySupport::Accepted(values),
                Treatment::Refused(hint) => KeySupport::Refused(hint),
            },
            note: key.note,
        })
    }
}
