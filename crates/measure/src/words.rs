//! How sizes and durations stand in files: a person may write `"4k"` or `"0.5s"`, a program reads
//! plain bytes and plain seconds.

/// A size in bytes; read from a number or from fio's spelling, written as a number.
pub mod size {
    use serde::{Deserialize, Deserializer, Serializer, de};

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a size such as 4096 or \"4k\"")]
    enum Spelling {
        Bytes(u64),
        Text(String),
    }

    impl Spelling {
        fn bytes<E: de::Error>(self) -> Result<u64, E> {
            match self {
                Self::Bytes(n) => Ok(n),
                Self::Text(text) => units::size(&text).map_err(E::custom),
            }
        }
    }

    pub fn serialize<S: Serializer>(bytes: &u64, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(*bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
        Spelling::deserialize(d)?.bytes()
    }

    /// The same for a size that may be left out.
    pub mod option {
        use super::{Deserialize, Deserializer, Serializer, Spelling};

        pub fn serialize<S: Serializer>(bytes: &Option<u64>, s: S) -> Result<S::Ok, S::Error> {
            match bytes {
                Some(n) => s.serialize_some(n),
                None => s.serialize_none(),
            }
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
            Option::<Spelling>::deserialize(d)?.map(Spelling::bytes).transpose()
        }
    }
}

/// A number of bytes that may be negative; read from a number or from fio's spelling, written as a number.
pub mod signed_size {
    use serde::{Deserialize, Deserializer, Serializer, de};

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a size such as 8192, \"8k\" or \"-8k\"")]
    enum Spelling {
        Bytes(i64),
        Text(String),
    }

    pub fn serialize<S: Serializer>(bytes: &i64, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_i64(*bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<i64, D::Error> {
        match Spelling::deserialize(d)? {
            Spelling::Bytes(n) => Ok(n),
            Spelling::Text(text) => crate::signed_size::signed_size(&text).map_err(de::Error::custom),
        }
    }
}

/// A duration; read from seconds or from fio's spelling, written as seconds.
pub mod seconds {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use std::time::Duration;

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a duration such as 0.5 or \"500ms\"")]
    enum Spelling {
        Seconds(f64),
        Text(String),
    }

    impl Spelling {
        fn duration<E: de::Error>(self) -> Result<Duration, E> {
            match self {
                Self::Seconds(s) => Duration::try_from_secs_f64(s).map_err(E::custom),
                Self::Text(text) => units::duration(&text).map_err(E::custom),
            }
        }
    }

    pub fn serialize<S: Serializer>(value: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(value.as_secs_f64())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        Spelling::deserialize(d)?.duration()
    }

    /// The same for a duration that may be left out.
    pub mod option {
        use super::{Deserialize, Deserializer, Duration, Serializer, Spelling};

        pub fn serialize<S: Serializer>(value: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
            match value {
                Some(d) => s.serialize_some(&d.as_secs_f64()),
                None => s.serialize_none(),
            }
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
            Option::<Spelling>::deserialize(d)?.map(Spelling::duration).transpose()
        }
    }
}

/// A number other than infinities and NaN, which JSON cannot write.
pub fn finite<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let number: f64 = serde::Deserialize::deserialize(deserializer)?;
    let error = || serde::de::Error::custom(format!("{number} is not a finite number"));
    number.is_finite().then_some(number).ok_or_else(error)
}
