//! What the parts of fio's JSON have in common: maps in order, and the three directions.

use measure::RunRecord;
use measure::record::DirectionCounts;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// A map that keeps its order: fio's readers meet percentiles and bins ascending.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OrderedMap<V>(pub Vec<(String, V)>);

impl<V> OrderedMap<V> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<V: Serialize> Serialize for OrderedMap<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// A direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Read,
    Write,
    Trim,
}

impl Way {
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Trim];

    pub fn of(self, record: &RunRecord) -> &DirectionCounts {
        match self {
            Self::Read => &record.read,
            Self::Write => &record.write,
            Self::Trim => &record.trim,
        }
    }
}
