//! Fixtures of the formats that flashwright writes, for the tests that read them.

/// The fixture of a name. With `FLASHWRIGHT_FORMATS=write` one that is missing is made by `make` first; one that is
/// there is never written over.
pub fn fixture(name: &str, make: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats").join(name);
    let writes = std::env::var("FLASHWRIGHT_FORMATS").is_ok_and(|value| value == "write");
    if writes && !path.exists() {
        std::fs::write(&path, make()).unwrap();
    }
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(bytes.len() <= 20_000, "{name} has {} bytes", bytes.len());
    bytes
}
