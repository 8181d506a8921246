//! The library and its header, used by programs in C and Fortran.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo has put libflashwright_c.so: beside this test, or a directory above.
fn library() -> PathBuf {
    let own = std::env::current_exe().expect("this test has a path");
    let deps = own.parent().expect("a program is in a directory");
    let places = [deps, deps.parent().expect("deps is in a directory")];
    let found = places.into_iter().find(|place| place.join("libflashwright_c.so").exists());
    found.expect("cargo builds libflashwright_c.so with this test").to_owned()
}

fn there(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Compiles a program beside this file, links it with the library, and runs it over two directories.
fn compiled(compiler: &str, source: &str, flags: &[&str]) -> (tempfile::TempDir, String) {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Beside the build: /tmp may be memory, in which nothing is durable.
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory of our own");
    let program = scratch.path().join("program");
    let library = library();
    let mut rpath = OsStr::new("-Wl,-rpath,").to_owned();
    rpath.push(&library);
    run(Command::new(compiler)
        .args(flags)
        .arg("-I")
        .arg(home.join("../../include"))
        .arg(home.join("tests").join(source))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&library)
        .arg("-lflashwright_c")
        .arg(rpath));
    let said = run(Command::new(&program).arg(scratch.path().join("fast")).arg(scratch.path().join("slow")));
    (scratch, said)
}

#[test]
fn a_program_in_c_writes_drains_and_restores_a_checkpoint() {
    if !there("cc") {
        println!("SKIP the C interface: there is no cc");
        return;
    }
    let flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"];
    let (scratch, said) = compiled("cc", "checkpoint.c", &flags);
    assert_eq!(said, "ok\n");
    let drained = std::fs::read_to_string(scratch.path().join("slow/step-00000100/rank-0")).unwrap();
    assert_eq!(drained, "temperature");
    assert_eq!(std::fs::read_link(scratch.path().join("slow/latest")).unwrap(), Path::new("step-00000100"));
}

#[test]
fn a_program_in_fortran_writes_and_drains_a_checkpoint() {
    if !there("gfortran") {
        println!("SKIP the C interface from Fortran: there is no gfortran");
        return;
    }
    let (scratch, said) = compiled("gfortran", "checkpoint.f90", &["-std=f2008", "-Wall"]);
    assert_eq!(said, "ok\n");
    let field = std::fs::read(scratch.path().join("slow/step-00000007/field.bin")).unwrap();
    assert_eq!(field, 1.5_f64.to_ne_bytes().repeat(1000));
}

#[test]
fn the_header_and_the_library_have_the_same_calls_and_codes() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(home.join("../../include/flashwright.h")).unwrap();
    let source = std::fs::read_to_string(home.join("src/lib.rs")).unwrap();
    let after = |text: &str, mark: &str| -> Vec<String> {
        let names = text.lines().filter_map(|line| line.split_once(mark)).map(|(_, rest)| {
            rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or("").to_owned()
        });
        names.collect()
    };
    let mut declared: Vec<String> = header
        .lines()
        .filter(|line| line.starts_with("int fw_") || line.starts_with("size_t fw_"))
        .map(|line| line.split([' ', '(']).nth(1).unwrap_or("").to_owned())
        .collect();
    let mut defined: Vec<String> = after(&source, "pub unsafe extern \"C\" fn ").into_iter().collect();
    declared.sort();
    defined.sort();
    assert_eq!(declared, defined);
    assert!(declared.len() >= 7, "{declared:?}");

    let codes = |text: &str, mark: &str, between: &str| -> Vec<(String, i32)> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(mark));
        let mut codes: Vec<(String, i32)> = lines
            .filter_map(|line| line.split_once(between))
            .filter_map(|(name, value)| {
                let digits: String = value.trim().chars().take_while(char::is_ascii_digit).collect();
                Some((name.trim().to_owned(), digits.parse().ok()?))
            })
            .collect();
        codes.sort();
        codes
    };
    let declared = codes(&header, "#define ", " ");
    let defined = codes(&source, "pub const ", ": c_int =");
    assert_eq!(declared, defined);
    assert!(declared.len() >= 9, "{declared:?}");
}
