//! Division of page numbers by what a drive has a fixed number of, which is done several times at each operation.

/// Divides by a number that stays the same: a multiplication in place of a division.
///
/// The factor is ⌈2⁶⁴ / n⌉, with which the upper half of the product is the quotient for every dividend below 2³² (Lemire, Kaser and
/// Kurz, *Faster remainder by direct computation*, 2019).
#[derive(Debug, Clone, Copy)]
pub struct Divisor {
    number: u32,
    /// 0 where the number is 1, whose factor has 65 bits.
    factor: u64,
}

impl Divisor {
    /// Divides by `number`, at least 1.
    pub fn new(number: u32) -> Self {
        Self { number, factor: (u64::MAX / u64::from(number)).wrapping_add(1) }
    }

    /// The quotient of `dividend`, rounded down.
    #[inline]
    pub fn quotient(self, dividend: u32) -> u32 {
        if self.factor == 0 {
            return dividend;
        }
        ((u128::from(self.factor) * u128::from(dividend)) >> 64) as u32
    }

    /// The remainder of `dividend`.
    #[inline]
    pub fn remainder(self, dividend: u32) -> u32 {
        dividend - self.quotient(dividend) * self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_and_remainders_are_those_of_division() {
        let edges = |n: u32| [n.wrapping_sub(1), n, n.wrapping_add(1), n.wrapping_mul(7).wrapping_sub(1)];
        let divisors = [1, 2, 3, 5, 7, 48, 64, 100, 641, 65_535, 65_537, 1 << 31, u32::MAX - 1, u32::MAX];
        for number in divisors {
            let divisor = Divisor::new(number);
            let dividends = [0, 1, 2, 1 << 16, 1 << 31, u32::MAX - 1, u32::MAX];
            for dividend in dividends.into_iter().chain(divisors.into_iter().flat_map(edges)) {
                assert_eq!(divisor.quotient(dividend), dividend / number, "{dividend} / {number}");
                assert_eq!(divisor.remainder(dividend), dividend % number, "{dividend} % {number}");
            }
        }
    }
}
