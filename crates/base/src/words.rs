//! Enums whose values are words.

/// A value with a word. [`words!`](crate::words!) implements it, with inherent items of the same names.
pub trait Word: Copy + 'static {
    /// The words of all values, in the order of help.
    const WORDS: &'static [&'static str];

    /// The value's word.
    fn word(self) -> &'static str;

    /// The value of a word or of another spelling of it; None if there is none.
    fn from_word(word: &str) -> Option<Self>;
}

/// The words of a type, and the one that stands for each of their spellings.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    /// The words, in the order of help.
    pub list: &'static [&'static str],
    /// The word of a spelling; None if there is none.
    pub canonical: fn(&str) -> Option<&'static str>,
}

impl Words {
    /// The words of `W`.
    #[must_use]
    pub const fn of<W: Word>() -> Self {
        Self { list: W::WORDS, canonical: |text| W::from_word(text).map(W::word) }
    }
}

impl PartialEq for Words {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl Eq for Words {}

/// Declares an enum and its words: `Variant = "word"`, or `Variant = "word" | "other spelling"`.
///
/// The enum gets `ALL`, `WORDS`, `word` and `from_word`; serde and JSON Schema use the same words.
#[macro_export]
macro_rules! words {
    (
        $(#[$attribute:meta])*
        $visible:vis enum $name:ident {
            $( $(#[$of_variant:meta])* $variant:ident = $word:literal $(| $other:literal)* ),+ $(,)?
        }
    ) => {
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Hash,
            $crate::serde::Serialize, $crate::serde::Deserialize, $crate::schemars::JsonSchema,
        )]
        #[serde(crate = "base::serde")]
        #[schemars(crate = "base::schemars")]
        $(#[$attribute])*
        $visible enum $name {
            $(
                $(#[$of_variant])*
                #[serde(rename = $word $(, alias = $other)*)]
                $variant,
            )+
        }

        impl $name {
            /// All values, in the order of help.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// Their words, in the same order.
            pub const WORDS: [&'static str; [$($word),+].len()] = [$($word),+];

            /// The word that users type and records hold.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The value of a word or of another spelling of it; None if there is none.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word $(| $other)* => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        impl $crate::Word for $name {
            const WORDS: &'static [&'static str] = &Self::WORDS;

            fn word(self) -> &'static str {
                self.word()
            }

            fn from_word(word: &str) -> Option<Self> {
                Self::from_word(word)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::IoEngine;

    #[test]
    fn serde_schema_and_parser_have_the_same_words() {
        for engine in IoEngine::ALL {
            let json = serde_json::to_value(engine).unwrap();
            assert_eq!(json, engine.word());
            assert_eq!(serde_json::from_value::<IoEngine>(json).unwrap(), engine);
            assert_eq!(IoEngine::from_word(engine.word()), Some(engine));
        }
        assert_eq!(serde_json::from_str::<IoEngine>("\"iouring\"").unwrap(), IoEngine::IoUring);
        let schema = schemars::schema_for!(IoEngine).to_value().to_string();
        assert!(IoEngine::WORDS.iter().all(|word| schema.contains(&format!("\"{word}\""))), "{schema}");
    }
}
