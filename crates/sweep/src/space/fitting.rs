//! Layouts of a space: what each combination builds, and what a user is told where that makes no sense.

use std::collections::{BTreeMap, BTreeSet};

use super::document::Source;
use super::error::Fault;
use super::layouts::{self, Fitted};
use super::settings::Setting;
use super::{Space, SpaceError};

impl Space {
    /// The drives that everything is built of; empty where nothing is built.
    #[must_use]
    pub fn drives(&self) -> Vec<&str> {
        self.base.get("drives").map(|setting| setting.text.split(',').collect()).unwrap_or_default()
    }

    /// The space without the values of a layout's dimensions that `reason_against` has something against; what is
    /// left out is counted and named in [`Space::left_out`].
    ///
    /// # Errors
    /// [`SpaceError`] where a value of `[base]` is not to be had, or nothing of a dimension is.
    pub fn without(
        mut self,
        reason_against: impl Fn(&str, &str) -> Option<String>,
    ) -> Result<Self, SpaceError> {
        for (name, setting) in self.base.all_of_layout().filter(|(name, _)| *name != "drives") {
            if let Some(reason) = reason_against(name, &setting.text) {
                let hint = "take it out, or write what the machine has";
                return Err(self.fault_of(name, setting, &reason, hint));
            }
        }
        let mut missing = Vec::new();
        for at in 0..self.dimensions.len() {
            let dimension = &self.dimensions[at];
            if !layouts::is_option(&dimension.name) {
                continue;
            }
            let name = dimension.name.clone();
            let mut kept = Vec::new();
            for setting in &dimension.settings {
                match reason_against(&name, &setting.text) {
                    Some(reason) => missing.push(format!("{name}={}: {reason}", setting.text)),
                    None => kept.push(setting.clone()),
                }
            }
            if kept.is_empty() {
                let last = &dimension.settings[dimension.settings.len() - 1];
                let reason = reason_against(&name, &last.text).unwrap_or_default();
                return Err(self.fault_of(
                    &name,
                    last,
                    &reason,
                    "nothing of this dimension is to be had here",
                ));
            }
            self.dimensions[at].settings = kept;
        }
        self.unavailable = missing;
        self.expand()?;
        Ok(self)
    }

    /// Refuses drives that contradict other options, and options that want drives where there are none.
    pub(super) fn check_drives(&self) -> Result<(), SpaceError> {
        let of_space = self.dimensions.iter().find(|d| layouts::is_option(&d.name));
        let of_space = of_space.and_then(|d| Some((d.name.as_str(), d.settings.first()?)));
        let Some((name, setting)) = of_space.or_else(|| self.base.of_layout()) else { return Ok(()) };
        let Some(drives) = self.base.get("drives") else {
            let reason = "says what is to be built, and no drives are named to build it of";
            return Err(self.fault_of(
                name,
                setting,
                reason,
                "write drives = [\"/dev/nvme0n1\", …] under [base]",
            ));
        };
        let target = self.dimensions.iter().find(|d| d.name == "target");
        let target = target.and_then(|d| d.settings.first()).or_else(|| self.base.get("target"));
        if let Some(target) = target {
            let reason = "stands beside drives, of which the target is built";
            return Err(self.fault_of("target", target, reason, "keep one of the two"));
        }
        let count = drives.text.split(',').count();
        if count > 1 && !self.has("layout") {
            let hint = "write layout = \"md-raid0\" under [base], or a list of layouts under [space]";
            return Err(self.fault_of(
                "drives",
                drives,
                "are several, and no layout says how they are used",
                hint,
            ));
        }
        let widths = self.dimensions.iter().filter(|d| d.name == "width").flat_map(|d| &d.settings);
        let above = |setting: &&Setting| setting.text.parse::<usize>().is_ok_and(|width| width > count);
        match widths.chain(self.base.get("width")).find(above) {
            None => Ok(()),
            Some(width) => {
                let reason = format!("is more than the {count} drives that are named");
                Err(self.fault_of(
                    "width",
                    width,
                    &reason,
                    "name more drives (--drives, or under [base]), or lower it",
                ))
            }
        }
    }

    fn has(&self, option: &str) -> bool {
        self.dimensions.iter().any(|d| d.name == option) || self.base.get(option).is_some()
    }

    /// What a combination builds; what means nothing to it is replaced in `chosen`. The inner error is why the
    /// combination cannot be built and is left out; the outer one, that no combination could.
    pub(super) fn fit(&self, chosen: &mut [Setting]) -> Result<Result<Fitted, String>, SpaceError> {
        let mut typed: BTreeMap<String, String> = self
            .base
            .all_of_layout()
            .map(|(name, setting)| (name.to_owned(), setting.text.clone()))
            .collect();
        for (dimension, setting) in self.dimensions.iter().zip(chosen.iter()) {
            if setting.is_of_layout() {
                typed.insert(dimension.name.clone(), setting.text.clone());
            }
        }
        if typed.is_empty() {
            return Ok(Ok(Fitted::default()));
        }
        match layouts::fit(&typed) {
            Ok(fitted) => {
                for (dimension, setting) in self.dimensions.iter().zip(chosen) {
                    if let Some(text) = fitted.replaced.get(dimension.name.as_str()) {
                        setting.text = (*text).to_owned();
                    }
                }
                Ok(Ok(fitted))
            }
            Err((option, reason)) => {
                let varies = |name: &str| self.dimensions.iter().any(|d| d.name == name);
                match self.base.get(option) {
                    Some(setting) if !varies("layout") => {
                        Err(self.fault_of(option, setting, &reason, "change one of the two"))
                    }
                    _ => Ok(Err(reason)),
                }
            }
        }
    }

    /// Refuses options of a layout that no point uses.
    pub(super) fn refuse_idle_options(&self) -> Result<(), SpaceError> {
        let used: BTreeSet<&str> =
            self.points.iter().flat_map(|point| point.layout.keys()).map(String::as_str).collect();
        let of_space = self.dimensions.iter().filter(|d| layouts::is_option(&d.name));
        let of_space = of_space.filter_map(|d| Some((d.name.as_str(), d.settings.first()?)));
        let mut idle = of_space.chain(self.base.all_of_layout()).filter(|(name, _)| !used.contains(name));
        match idle.next() {
            None => Ok(()),
            Some((name, setting)) => {
                let reason = "means nothing to any layout of this space";
                Err(self.fault_of(name, setting, reason, "take it out"))
            }
        }
    }

    /// An error about a setting, at its line.
    fn fault_of(&self, name: &str, setting: &Setting, reason: &str, hint: &str) -> SpaceError {
        Fault {
            origin: self.origin.clone(),
            line: setting.line,
            key: name.to_owned(),
            value: Some(shortened(&setting.text)),
            reason: reason.to_owned(),
            hint: Some(hint.to_owned()),
        }
        .into()
    }

    /// Why there is not one point.
    pub(super) fn no_point(&self) -> SpaceError {
        match self.left_out.as_slice() {
            [only] if only.reason != "filters" => self.fault(
                None,
                "[space]",
                &format!("has no point: {}", only.reason),
                "change one of the two",
            ),
            _ => self.fault(None, "[[exclude]] and [[only]]", "leave no point", "loosen them"),
        }
    }

    /// Puts drives that a flag names in the place of the space's.
    pub(super) fn override_drives(&mut self, drives: &[String]) -> Result<(), SpaceError> {
        let mut before: Vec<&str> = Vec::new();
        for drive in drives {
            if let Err(reason) = layouts::check_drive(drive, &before) {
                return Err(super::flag_error(
                    "--drives",
                    drive,
                    reason,
                    "block devices, separated by commas",
                ));
            }
            before.push(drive);
        }
        if !drives.is_empty() {
            self.base.set("drives", Setting::drives(drives));
        }
        Ok(())
    }

    /// A source for messages.
    pub(super) fn source(&self) -> Source<'_> {
        Source { origin: &self.origin, text: &self.text }
    }
}

/// A value for a message: drives may be many.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
