//! Flags that take the place of what a space says of its runs and targets.

use std::time::Duration;

use super::settings::{Kind, Setting};
use super::{Dimension, Space, SpaceError, flag_error};

impl Space {
    pub(super) fn override_time(
        &mut self,
        option: &str,
        flag: &str,
        time: Option<Duration>,
    ) -> Result<(), SpaceError> {
        let Some(time) = time else { return Ok(()) };
        self.refuse_varied(option, flag, &units::seconds(time))?;
        self.base.set(option, Setting::duration(time));
        Ok(())
    }

    pub(super) fn refuse_varied(&self, option: &str, flag: &str, value: &str) -> Result<(), SpaceError> {
        if !self.dimensions.iter().any(|d| d.name == option) {
            return Ok(());
        }
        Err(flag_error(
            flag,
            value,
            "the space varies it",
            "leave the flag out, or take the dimension out of the space",
        ))
    }

    pub(super) fn override_targets(&mut self, targets: &[String]) -> Result<(), SpaceError> {
        if let Some(empty) = targets.iter().find(|spec| spec.trim().is_empty()) {
            return Err(flag_error("--target", empty, "is empty", "a path, file:PATH?size=4G or mem:4G"));
        }
        if let Some(twice) = targets.iter().enumerate().find(|(i, spec)| targets[..*i].contains(spec)) {
            return Err(flag_error("--target", twice.1, "is given twice", "name each target once"));
        }
        if let (Some(first), Some(_)) = (targets.first(), self.base.get("drives")) {
            let hint = "leave the flag out, or name drives by --drives";
            return Err(flag_error("--target", first, "the space builds its target of drives", hint));
        }
        if let (Some(first), true) = (targets.first(), self.dimensions.iter().any(|d| d.name == "target")) {
            return Err(flag_error(
                "--target",
                first,
                "the space names its own targets",
                "leave the flag out, or take target out of [space]",
            ));
        }
        match targets {
            [] => {}
            [one] => self.base.set("target", Setting::target(one)),
            several => {
                self.base.unset("target");
                let settings = several.iter().map(|spec| Setting::target(spec)).collect();
                let dimension = Dimension { name: "target".into(), kind: Kind::Target, settings };
                self.dimensions.insert(0, dimension);
            }
        }
        Ok(())
    }
}
