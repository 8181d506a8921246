//! What limited a run, as records hold it: the limits by name, and a verdict. [`crate::limit`] judges.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::later::{self, LaterWord};

/// What a limit means and what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    /// What it means, in a sentence.
    pub meaning: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

macro_rules! limits {
    ($($variant:ident $word:literal $label:literal $meaning:literal $remedy:literal)+) => {
        /// What kept a figure from being higher. `Display` and data give the word.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Limit {
            $(
                #[doc = $meaning]
                $variant,
            )+
            /// A limit of a later version, as it was read. [`crate::limit::judge`] never names one.
            Later(LaterWord),
        }

        impl Limit {
            /// All limits of this version, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The stable spelling.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ Self::Later(word) => word.word() }
            }

            /// The limit of a word; of one that is not known, [`Limit::Later`]. None if it is not of letters, digits and
            /// hyphens.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                let known = Self::ALL.iter().copied().find(|limit| limit.word() == word);
                known.or_else(|| LaterWord::new(word).map(Self::Later))
            }

            /// What people call it.
            #[must_use]
            pub fn label(self) -> &'static str {
                match self { $(Self::$variant => $label,)+ Self::Later(word) => word.word() }
            }

            /// Meaning and remedy.
            #[must_use]
            pub fn explain(self) -> Explanation {
                match self {
                    $(Self::$variant => Explanation { meaning: $meaning, remedy: $remedy },)+
                    Self::Later(_) => Explanation {
                        meaning: "A later version of flashwright named this limit; this version does not know what it means.",
                        remedy: "Make the report with that version.",
                    },
                }
            }
        }
    };
}

limits! {
    Drives "drives" "drives"
        "The drives gave what they have: they were busy, and nothing above them was."
        "More or faster drives; or a kind of request that they serve faster (larger, or in order)."
    OneCpu "one-cpu" "one CPU"
        "One CPU had no time left while others were idle, and the drives' interrupts or the submissions came to it."
        "Spread the interrupts (irqbalance, smp_affinity, more queues) and the jobs (cpus_allowed) over more CPUs."
    LoadGenerator "load-generator" "load generator"
        "The threads that make the requests had no time left; the drives were not asked for more."
        "Raise --numjobs, or use larger requests; read the figure as requests per core."
    RaidLayer "raid-layer" "RAID layer"
        "The same drives are faster without the layer that joins them."
        "Use the drives separately, change the layer's chunk, or use flashwright's own stripe in a kernel's layer's place."
    FileSystem "file-system" "file system"
        "The same devices are faster without the file system."
        "Align its geometry with the stripe, try another one or other mount options, or use the devices raw."
    QueueDepth "queue-depth" "queue depth"
        "Too few requests were in flight to keep the drives busy."
        "Raise --iodepth or --numjobs until the rate stops growing."
    Link "link" "link"
        "The data came at the rate that a link on the way can carry."
        "Use a slot or port with more lanes or a higher generation, or spread the drives over more of them."
    Throttle "throttle" "throttle"
        "A control group allows no more, or a drive slowed down for heat."
        "Raise or remove the limit that the evidence names; cool the drive."
    UnbalancedDrives "unbalanced-drives" "unbalanced drives"
        "One drive of several is slower or has more to do, and the others wait for it."
        "Look at that drive (throttle, link, heat, wear), or leave it out of the stripe."
    Rate "rate" "rate asked for"
        "The run was to keep a rate, and kept it."
        "Leave rate_iops and rate out to find what the system can do."
    Unknown "unknown" "unknown"
        "The evidence names no limit."
        "A sweep tells more: greater depth, the drives one by one, the same without file system."
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Self::from_word(&word).ok_or_else(|| de::Error::custom(format!("'{word}' is not a limit")))
    }
}

impl JsonSchema for Limit {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let known: Vec<_> = Self::ALL.iter().map(|limit| (limit.word(), limit.explain().meaning)).collect();
        later::schema(&known, "^[A-Za-z0-9-]+$")
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.word())
    }
}

/// What limited a run, and what speaks for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The limit.
    pub limit: Limit,
    /// What was seen, with the figures and the thresholds used.
    pub evidence: String,
    /// What the run reached of the sum of the drives measured alone, percent, where that is known.
    #[serde(default)]
    pub at_percent_of_drives: Option<f64>,
    /// Other limits for which there is evidence; they come next once the first is lifted, or follow from it.
    #[serde(default)]
    pub others: Vec<Finding>,
}

/// A limit and what speaks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The limit.
    pub limit: Limit,
    /// What was seen, with the figures and the thresholds used.
    pub evidence: String,
}

impl Finding {
    pub(crate) fn new(limit: Limit, evidence: impl Into<String>) -> Self {
        Self { limit, evidence: evidence.into() }
    }
}

impl Verdict {
    /// One line for people: `drives at 97.2 % of the drives alone: …`.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.short(), self.evidence)
    }

    /// The limit, and where it is the drives, at how many percent of them: `drives 97 %`.
    #[must_use]
    pub fn short(&self) -> String {
        match (self.limit, self.at_percent_of_drives) {
            (Limit::Drives, Some(percent)) => format!("{} at {percent:.0} %", self.limit.label()),
            _ => self.limit.label().to_owned(),
        }
    }
}
