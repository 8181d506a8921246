//! The binary `flashwright`: the command line is a library, [`flashwright_cli`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    flashwright_cli::main()
}
