//! What `layout` prints with `--json`.

use ::layout::{Built, LayoutSpec, Standing, Undone};
use schemars::JsonSchema;
use serde::Serialize;

/// `layout up --json` and `tune apply --json` (`flashwright.layout/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct Up {
    /// `flashwright.layout/1`.
    schema: &'static str,
    /// The layout, as a spec.
    spec: String,
    /// What was made.
    built: Built,
}

impl Up {
    pub fn new(spec: &LayoutSpec, built: Built) -> Self {
        Self { schema: "flashwright.layout/1", spec: spec.to_string(), built }
    }
}

/// `layout down --json`, `layout undo --json` and `tune undo --json` (`flashwright.layout-undone/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct Down {
    /// `flashwright.layout-undone/1`.
    schema: &'static str,
    #[serde(flatten)]
    undone: Undone,
}

impl Down {
    pub fn new(undone: Undone) -> Self {
        Self { schema: "flashwright.layout-undone/1", undone }
    }
}

/// `layout show --json` (`flashwright.layout-standing/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct Show {
    /// `flashwright.layout-standing/1`.
    schema: &'static str,
    /// What stands; null for nothing.
    standing: Option<Standing>,
}

impl Show {
    pub fn new(standing: Option<Standing>) -> Self {
        Self { schema: "flashwright.layout-standing/1", standing }
    }
}

/// `layout survey --json` (`flashwright.layout-survey/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct Survey {
    /// `flashwright.layout-survey/1`.
    schema: &'static str,
    /// Every setting that was asked about.
    settings: Vec<Answer>,
}

/// Whether a layout may have a setting here.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Answer {
    /// Its name.
    setting: String,
    /// The value that was asked about; `spread` for whether it can be set at all.
    value: String,
    /// What is lacking for it; null where nothing is.
    lacking: Option<String>,
}

impl Survey {
    pub fn new(answers: &[(&str, &str, Option<String>)]) -> Self {
        let answer = |(setting, value, lacking): &(&str, &str, Option<String>)| Answer {
            setting: (*setting).to_owned(),
            value: (*value).to_owned(),
            lacking: lacking.clone(),
        };
        Self { schema: "flashwright.layout-survey/1", settings: answers.iter().map(answer).collect() }
    }
}
