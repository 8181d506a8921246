//! Environment variables. docs/environment.md has this table; a test holds it against both the page and every
//! `FLASHWRIGHT_*` in the tree.

/// From here on numbers of steps mean what Slurm starts itself (slurm.h: SLURM_INTERACTIVE_STEP and those above).
const SLURM_SPECIAL_STEPS: u32 = 0xffff_fff0;

/// The number of the step of `srun` that this process is of; None outside one, and in batch scripts and interactive steps.
#[must_use]
pub fn srun_step(variable: &dyn Fn(&str) -> Option<String>) -> Option<u32> {
    variable("SLURM_STEP_ID")?.parse().ok().filter(|step| *step < SLURM_SPECIAL_STEPS)
}

/// What reads a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// The program, the Python package or the C library.
    Product,
    /// Tests.
    Tests,
}

/// An environment variable.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What reads it.
    pub reader: Reader,
    /// What its value is, and what holds where it is not set.
    pub meaning: &'static str,
}

/// The directory of the journal of layouts and of what `tune` keeps.
pub const STATE: &str = "FLASHWRIGHT_STATE";
/// The socket of the server of moves.
pub const STAGE_SOCKET: &str = "FLASHWRIGHT_STAGE_SOCKET";
/// The identity of one launch of a program whose ranks write sets of checkpoints together.
pub const RUN: &str = "FLASHWRIGHT_RUN";
/// How much the server of moves logs.
pub const LOG: &str = "FLASHWRIGHT_LOG";
/// The number of a rank that flashwright started, and how many there are.
pub const RANK: &str = "FLASHWRIGHT_RANK";

const fn product(name: &'static str, meaning: &'static str) -> Variable {
    Variable { name, reader: Reader::Product, meaning }
}

const fn tests(name: &'static str, meaning: &'static str) -> Variable {
    Variable { name, reader: Reader::Tests, meaning }
}

/// Names that begin so need no declaration: a test program that starts itself again marks the child with one.
pub const CHILD_PREFIX: &str = "FLASHWRIGHT_CHILD_";

/// Every variable of the project's own.
pub const VARIABLES: &[Variable] = &[
    product(
        STATE,
        "directory of the journal of layouts and of what `tune` keeps; else `/var/lib/flashwright` as root, and \
         `$XDG_STATE_HOME/flashwright` or `~/.local/state/flashwright` as any other user. The journal of `stage` is elsewhere: `--state`",
    ),
    product(
        STAGE_SOCKET,
        "socket of the server of moves; `--socket` comes before it, the user's own server after it",
    ),
    product(
        RUN,
        "identity of one launch of a program whose ranks write checkpoints together, the same in all of them; else Slurm's \
         job, step and restart if `srun` starts it",
    ),
    product(
        LOG,
        "what `stage serve` logs: `error`, `warn`, `info` or `debug`, or a filter of tracing's; else `info`",
    ),
    product(
        RANK,
        "`rank/size` of a process that flashwright started as one of several (`--tasks`); set by flashwright alone",
    ),
    tests(
        "FLASHWRIGHT_TEST_SEED",
        "seed of random cases; `.cargo/config.toml` sets it, each failure prints it",
    ),
    tests("FLASHWRIGHT_CRASH_SEED", "seed of the sample of crash points; else a fixed one"),
    tests("FLASHWRIGHT_CRASH", "how many crash points are tried: `more` or `full`; else a sample"),
    tests(
        "FLASHWRIGHT_LEFT_OUT",
        "which syncs and checks are left out, one at a time: `1` for all, or their names; `write` writes the table",
    ),
    tests("FLASHWRIGHT_MODEL", "checks that the model of moves shall miss: their names, or `all`"),
    tests("FLASHWRIGHT_FORMATS", "`write` makes the fixtures of `formats/` that are missing"),
    tests("FLASHWRIGHT_MOTO_PYTHON", "Python with the package moto, for the tests of S3; else `python3`"),
];
