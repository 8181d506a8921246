//! UUIDs (RFC 9562), random ones of the kernel's making.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

/// Where the kernel gives out random UUIDs: random(4).
const KERNEL: &str = "/proc/sys/kernel/random/uuid";

/// Sixteen bytes that nobody else has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// A new one (version 4).
    ///
    /// # Errors
    /// The kernel's, where `/proc` is not there.
    pub fn random() -> io::Result<Self> {
        let text = std::fs::read_to_string(Path::new(KERNEL))?;
        text.trim()
            .parse()
            .map_err(|()| io::Error::new(io::ErrorKind::InvalidData, format!("{KERNEL}: {text}")))
    }
}

impl FromStr for Uuid {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
        let mut bytes = [0; 16];
        if digits.len() != 32 {
            return Err(());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let digit = |at: usize| (pair[at] as char).to_digit(16).ok_or(());
            *byte = (digit(0)? * 16 + digit(1)?) as u8;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_back_and_no_two_are_alike() {
        let (one, other) = (Uuid::random().unwrap(), Uuid::random().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.to_string().parse(), Ok(one));
        assert_eq!(one.0[6] >> 4, 4, "version 4");
        for text in ["", "0", "g0000000-0000-0000-0000-000000000000"] {
            assert!(text.parse::<Uuid>().is_err());
        }
    }
}
