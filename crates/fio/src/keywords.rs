//! fio's keywords `$pagesize`, `$mb_memory` and `$ncpus`, and the arithmetic with them.
//!
//! fio puts the machine's numbers in their place and hands a value in which one stood to bc(1), if there is arithmetic in
//! it. So here: whole numbers with `+`, `-`, `*`, `/`, `%` and parentheses, where `/` drops the rest. Suffixes and
//! fractions are bc's errors, and are errors here. A value without a keyword stays as it is.

use storage::pages::page_bytes;
use storage::survey::Host;
use storage::sysfs::Sysfs;

use super::error::Problem;
use super::lines::{Section, Setting};

/// What fio replaces, in the order of the fields of [`Machine`].
const KEYWORDS: [&str; 3] = ["$pagesize", "$mb_memory", "$ncpus"];

fn has_keyword(value: &str) -> bool {
    KEYWORDS.iter().any(|word| value.contains(word))
}

/// What the keywords stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Machine {
    /// Bytes of a page.
    pub page: u64,
    /// Memory, in units of 1 MiB.
    pub memory: u64,
    /// CPUs that are online.
    pub cpus: u64,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        let host = Host::read(&Sysfs::host());
        Self { page: page_bytes() as u64, memory: host.memory_bytes >> 20, cpus: host.cpus.into() }
    }

    /// A value with numbers in the place of keywords, and calculated; None if there is no keyword in it.
    ///
    /// # Errors
    /// The problem of a value that is no arithmetic, or whose result is no number of zero or more.
    pub fn replaced(self, value: &str) -> Result<Option<String>, Problem> {
        if !has_keyword(value) {
            return Ok(None);
        }
        let words = KEYWORDS.iter().zip([self.page, self.memory, self.cpus]);
        let numbers = words.fold(value.to_owned(), |text, (word, n)| text.replace(word, &n.to_string()));
        if !numbers.contains(['+', '-', '*', '/', '%']) {
            return Ok(Some(numbers));
        }
        let problem = |why: &str| {
            Problem::new(
                format!("'{numbers}' cannot be calculated: {why}"),
                "write whole numbers with + - * / % and parentheses, such as 8*1024*$pagesize",
            )
        };
        let result = Reader { text: numbers.as_bytes(), at: 0, depth: 0 }.whole().map_err(problem)?;
        u64::try_from(result).map(|n| Some(n.to_string())).map_err(|_| problem("the result is out of range"))
    }
}

/// Puts numbers in the place of the keywords of all settings. Returns the settings that this is not possible in, with why.
pub(super) fn replace(sections: &mut [Section]) -> Vec<(Setting, Problem)> {
    let settings = sections.iter_mut().flat_map(|section| &mut section.settings);
    let with_keyword: Vec<&mut Setting> =
        settings.filter(|setting| setting.value.as_deref().is_some_and(has_keyword)).collect();
    if with_keyword.is_empty() {
        return Vec::new();
    }
    let machine = Machine::this();
    let mut wrong = Vec::new();
    for setting in with_keyword {
        match machine.replaced(setting.value.as_deref().unwrap_or_default()) {
            Ok(value) => setting.value = value,
            Err(problem) => wrong.push((setting.clone(), problem)),
        }
    }
    wrong
}

/// Parentheses within parentheses.
const MAX_DEPTH: u32 = 64;
const OUT_OF_RANGE: &str = "a number is out of range";

/// Reads sums of products of numbers and parentheses.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    depth: u32,
}

impl Reader<'_> {
    fn whole(mut self) -> Result<i128, &'static str> {
        let value = self.sum()?;
        match self.peek() {
            None => Ok(value),
            Some(_) => Err("something other than a number or an operator stands in it"),
        }
    }

    fn sum(&mut self) -> Result<i128, &'static str> {
        let mut value = self.product()?;
        while let Some(operator @ (b'+' | b'-')) = self.peek() {
            self.at += 1;
            let right = self.product()?;
            let result = if operator == b'+' { value.checked_add(right) } else { value.checked_sub(right) };
            value = result.ok_or(OUT_OF_RANGE)?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<i128, &'static str> {
        let mut value = self.factor()?;
        while let Some(operator @ (b'*' | b'/' | b'%')) = self.peek() {
            self.at += 1;
            let right = self.factor()?;
            value = match operator {
                b'*' => value.checked_mul(right).ok_or(OUT_OF_RANGE)?,
                _ if right == 0 => return Err("it divides by zero"),
                b'/' => value / right,
                _ => value % right,
            };
        }
        Ok(value)
    }

    fn factor(&mut self) -> Result<i128, &'static str> {
        match self.peek() {
            Some(b'(') if self.depth < MAX_DEPTH => {
                (self.at, self.depth) = (self.at + 1, self.depth + 1);
                let value = self.sum()?;
                if self.peek() != Some(b')') {
                    return Err("a parenthesis is not closed");
                }
                (self.at, self.depth) = (self.at + 1, self.depth - 1);
                Ok(value)
            }
            Some(b'(') => Err("there are too many parentheses"),
            Some(b'0'..=b'9') => {
                let start = self.at;
                while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
                    self.at += 1;
                }
                let digits = std::str::from_utf8(&self.text[start..self.at]).unwrap_or_default();
                digits.parse().map_err(|_| OUT_OF_RANGE)
            }
            _ => Err("a number is missing, or has a suffix"),
        }
    }

    /// The next byte that is no blank.
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine { page: 4096, memory: 1000, cpus: 6 };

    #[test]
    fn keywords_become_numbers_and_arithmetic_with_them_is_calculated() {
        for (value, expected) in [
            ("$pagesize", "4096"),
            ("5*1024*1024*$mb_memory/8", "655360000"),
            ("8*1024*$pagesize", "33554432"),
            ("$ncpus", "6"),
            ("($ncpus + 1) / 2", "3"),
            ("2*($ncpus-1)%4", "2"),
            ("$ncpus-2-1", "3"),
            ("data.$ncpus", "data.6"),
        ] {
            assert_eq!(MACHINE.replaced(value), Ok(Some(expected.to_owned())), "{value}");
        }
        for plain in ["4k", "7*3", "/dev/$x", "1-2"] {
            assert_eq!(MACHINE.replaced(plain), Ok(None), "{plain}");
        }
    }

    #[test]
    fn what_bc_cannot_calculate_is_told_and_nothing_overflows() {
        let deep = format!("{}$ncpus{}", "(".repeat(10_000), ")".repeat(10_000));
        let long = format!("{}*$ncpus", "9".repeat(60));
        let product = format!("$ncpus{}", "*99999999999999".repeat(9));
        for value in [
            "8k*$ncpus",
            "$ncpus/0",
            "$ncpus%(3-3)",
            "$ncpus-7",
            "$ncpus+",
            "($ncpus*2",
            "$ncpus*2)",
            "1.5*$ncpus",
            "$pagesize*",
            "/data/$ncpus",
            "18446744073709551615+$ncpus",
            &*deep.replace("$ncpus", "1+$ncpus"),
            &*long,
            &*product,
        ] {
            assert!(MACHINE.replaced(value).is_err(), "{value}");
        }
    }
}
