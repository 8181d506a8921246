//! The checksums that guard tags are: CRC-16/T10-DIF, and the 64-bit CRC of the NVM Command Set Specification, eight bytes at a
//! time.
//!
//! Table `k` has the checksum of each byte with `k` zero bytes behind it, so that the eight bytes of a word are looked up
//! independently of each other.

/// T10-DIF, most significant bit first.
const POLYNOMIAL_16: u16 = 0x8bb7;
/// That of NVMe, least significant bit first.
const POLYNOMIAL_64: u64 = 0x9a6c_9329_ac4b_c9b5;

static TABLES_16: [[u16; 256]; 8] = tables_16();
static TABLES_64: [[u64; 256]; 8] = tables_64();

const fn tables_16() -> [[u16; 256]; 8] {
    let mut tables = [[0_u16; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut table = 0;
        while table < 8 {
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 0x8000 != 0 { crc << 1 ^ POLYNOMIAL_16 } else { crc << 1 };
                bit += 1;
            }
            tables[table][byte] = crc;
            table += 1;
        }
        byte += 1;
    }
    tables
}

const fn tables_64() -> [[u64; 256]; 8] {
    let mut tables = [[0_u64; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut table = 0;
        while table < 8 {
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 != 0 { crc >> 1 ^ POLYNOMIAL_64 } else { crc >> 1 };
                bit += 1;
            }
            tables[table][byte] = crc;
            table += 1;
        }
        byte += 1;
    }
    tables
}

/// CRC-16/T10-DIF of bytes that come after others whose checksum is `crc`; 0 where there are none.
pub(crate) fn t10_dif(crc: u16, bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut crc = crc;
    for word in words {
        let [high, low] = crc.to_be_bytes();
        let word = [word[0] ^ high, word[1] ^ low, word[2], word[3], word[4], word[5], word[6], word[7]];
        crc = (0..8).fold(0, |crc, at| crc ^ TABLES_16[7 - at][usize::from(word[at])]);
    }
    rest.iter().fold(crc, |crc, byte| crc << 8 ^ TABLES_16[0][usize::from((crc >> 8) as u8 ^ byte)])
}

/// The 64-bit CRC of bytes that come after others whose checksum is `crc`; 0 where there are none.
pub(crate) fn nvme_64(crc: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut crc = !crc;
    for word in words {
        let word = (crc ^ u64::from_le_bytes(*word)).to_le_bytes();
        crc = (0..8).fold(0, |crc, at| crc ^ TABLES_64[7 - at][usize::from(word[at])]);
    }
    !rest.iter().fold(crc, |crc, byte| crc >> 8 ^ TABLES_64[0][usize::from(crc as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bit by bit, as the definitions have it.
    fn plain_16(crc: u16, bytes: &[u8]) -> u16 {
        bytes.iter().fold(crc, |crc, byte| {
            (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
                if crc & 0x8000 != 0 { crc << 1 ^ 0x8bb7 } else { crc << 1 }
            })
        })
    }

    fn plain_64(bytes: &[u8]) -> u64 {
        // The polynomial as the specification writes it, 0xad93d23594c93659, with its bits in the other order.
        let polynomial = 0xad93_d235_94c9_3659_u64.reverse_bits();
        !bytes.iter().fold(u64::MAX, |crc, byte| {
            (0..8).fold(
                crc ^ u64::from(*byte),
                |crc, _| {
                    if crc & 1 != 0 { crc >> 1 ^ polynomial } else { crc >> 1 }
                },
            )
        })
    }

    #[test]
    fn known_checksums_come_out() {
        assert_eq!(t10_dif(0, b"123456789"), 0xd0db);
        assert_eq!(t10_dif(0, &[]), 0);
        assert_eq!(nvme_64(0, b"123456789"), 0xae8b_1486_0a79_9888);
        // The test cases of the NVM Command Set Specification, of 4096 bytes each.
        assert_eq!(nvme_64(0, &[0; 4096]), 0x6482_d367_eb22_b64e);
        assert_eq!(nvme_64(0, &[0xff; 4096]), 0xc0dd_ba73_02ec_a3ac);
        let rising: Vec<u8> = (0..4096).map(|at| at as u8).collect();
        assert_eq!(nvme_64(0, &rising), 0x3e72_9f5f_6750_449c);
    }

    proptest! {
        #[test]
        fn any_bytes_have_the_checksum_that_they_have_bit_by_bit_however_they_are_cut(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0_usize..200,
        ) {
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(t10_dif(t10_dif(0, first), second), plain_16(0, &bytes));
            prop_assert_eq!(nvme_64(nvme_64(0, first), second), plain_64(&bytes));
        }
    }
}
