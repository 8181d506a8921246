//! Errors in one line.

use std::error::Error;

/// An error with all its causes in one line, outermost first: `cannot read the label of /dev/vdb: read at 4096: …`.
///
/// A cause that the line already ends with, because an outer error passed it on or spelled it out, is not repeated.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !line.ends_with(&words) {
            line = format!("{line}: {words}");
        }
        next = cause.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as &(dyn Error + 'static))
        }
    }

    fn layers(words: &[&'static str]) -> Layer {
        let (first, rest) = words.split_first().expect("an error has words");
        Layer(first, (!rest.is_empty()).then(|| Box::new(layers(rest))))
    }

    #[test]
    fn every_cause_is_in_the_line() {
        assert_eq!(with_causes(&layers(&["outer", "inner", "innermost"])), "outer: inner: innermost");
        assert_eq!(with_causes(&layers(&["alone"])), "alone");
    }

    #[test]
    fn a_cause_that_is_spelled_out_is_not_repeated() {
        assert_eq!(with_causes(&layers(&["outer", "inner", "inner"])), "outer: inner");
        assert_eq!(with_causes(&layers(&["outer: inner", "inner", "innermost"])), "outer: inner: innermost");
    }
}
