//! What a drive counts about itself: the JSON of `smartctl --json -a` (ATA and NVMe) and of `nvme smart-log -o json`.
//!
//! The units of ATA's attributes are the maker's; they are taken by the names that smartctl gives them, and one of an
//! unknown name is left out. NVMe counts data units of 1000 × 512 bytes.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::PlanError;

/// Bytes of one of NVMe's data units.
const DATA_UNIT: f64 = 512_000.0;

/// Counters of a drive. What it does not tell is not there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Smart {
    /// Its model.
    pub model: Option<String>,
    /// Its size, bytes.
    pub capacity_bytes: Option<f64>,
    /// What hosts have written, bytes.
    pub written_bytes: Option<f64>,
    /// What hosts have read, bytes.
    pub read_bytes: Option<f64>,
    /// How long it has had power, seconds.
    pub power_on_s: Option<f64>,
    /// How much of its life is used by the maker's own count, percent; may be above 100.
    pub percentage_used: Option<f64>,
    /// Spare blocks that are left, percent.
    pub available_spare: Option<f64>,
}

impl Smart {
    /// Reads a document of either program.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] if it is no JSON, or tells neither writes nor wear.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let wrong = |problem: String| {
            PlanError::invalid(
                "smart",
                problem,
                "the output of smartctl --json -a, or of nvme smart-log -o json",
            )
        };
        let document: Value =
            serde_json::from_str(text).map_err(|error| wrong(format!("is no JSON: {error}")))?;
        let smart = match document.get("nvme_smart_health_information_log") {
            Some(log) => Self { ..Self::of_drive(&document) }.with_nvme(log),
            None if document.get("data_units_written").is_some() => Self::default().with_nvme(&document),
            None => Self::of_drive(&document).with_ata(&document),
        };
        if smart.written_bytes.is_none() && smart.percentage_used.is_none() {
            return Err(wrong(
                "tells neither what was written nor which part of its life is used".to_owned(),
            ));
        }
        Ok(smart)
    }

    fn of_drive(document: &Value) -> Self {
        Self {
            model: document["model_name"].as_str().map(str::to_owned),
            capacity_bytes: number(&document["user_capacity"]["bytes"])
                .or(number(&document["nvme_total_capacity"])),
            percentage_used: number(&document["endurance_used"]["current_percent"]),
            power_on_s: number(&document["power_on_time"]["hours"]).map(|hours| hours * 3600.0),
            ..Self::default()
        }
    }

    fn with_nvme(self, log: &Value) -> Self {
        // smartctl and nvme-cli differ in some names.
        let either = |a: &str, b: &str| number(&log[a]).or(number(&log[b]));
        Self {
            written_bytes: number(&log["data_units_written"]).map(|units| units * DATA_UNIT),
            read_bytes: number(&log["data_units_read"]).map(|units| units * DATA_UNIT),
            power_on_s: number(&log["power_on_hours"]).map(|hours| hours * 3600.0).or(self.power_on_s),
            percentage_used: either("percentage_used", "percent_used").or(self.percentage_used),
            available_spare: either("available_spare", "avail_spare"),
            ..self
        }
    }

    fn with_ata(self, document: &Value) -> Self {
        let sector = number(&document["logical_block_size"]).unwrap_or(512.0);
        let statistics = document["ata_device_statistics"]["pages"].as_array().into_iter().flatten();
        let statistics = statistics.flat_map(|page| page["table"].as_array().into_iter().flatten());
        let statistic = |name: &str| {
            let mut found = statistics.clone().filter(|entry| entry["name"] == name);
            found.find_map(|entry| number(&entry["value"]))
        };
        let attributes = document["ata_smart_attributes"]["table"].as_array().into_iter().flatten();
        let attribute = |direction: &str| {
            attributes.clone().find_map(|entry| {
                let unit = unit_of(entry["name"].as_str()?.strip_prefix(direction)?, sector)?;
                Some(number(&entry["raw"]["value"])? * unit)
            })
        };
        let written = ["Host_Writes_", "Total_Writes_", "Lifetime_Writes_"].into_iter().find_map(attribute);
        let lbas = |name: &str| {
            let mut found = attributes.clone().filter(|entry| entry["name"] == name);
            found.find_map(|entry| Some(number(&entry["raw"]["value"])? * sector))
        };
        let sectors = |name: &str| statistic(name).map(|count| count * sector);
        Self {
            written_bytes: sectors("Logical Sectors Written").or(lbas("Total_LBAs_Written")).or(written),
            read_bytes: sectors("Logical Sectors Read").or(lbas("Total_LBAs_Read")),
            percentage_used: self.percentage_used.or(statistic("Percentage Used Endurance Indicator")),
            ..self
        }
    }
}

/// Bytes of the unit in an attribute's name: `32MiB`, `GiB`.
fn unit_of(name: &str, sector: f64) -> Option<f64> {
    match name {
        "32MiB" => Some(32.0 * 1_048_576.0),
        "MiB" => Some(1_048_576.0),
        "GiB" => Some(1_073_741_824.0),
        "Sectors" => Some(sector),
        _ => None,
    }
}

/// A number that is not negative or absurd, also as text, as which some versions print 128-bit counters.
fn number(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    number.filter(|number| (0.0..=crate::LARGEST).contains(number))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_programs_and_both_kinds_of_drive_are_read() {
        let smartctl = r#"{"json_format_version":[1,0],"model_name":"M","user_capacity":{"blocks":2,"bytes":1000},
            "nvme_smart_health_information_log":{"percentage_used":7,"available_spare":98,"data_units_written":10,
            "data_units_read":20,"power_on_hours":3}}"#;
        let nvme = r#"{"critical_warning":0,"avail_spare":98,"percent_used":7,"data_units_read":"20",
            "data_units_written":"10","power_on_hours":"3"}"#;
        for (text, model, capacity) in [(smartctl, Some("M"), Some(1000.0)), (nvme, None, None)] {
            let smart = Smart::parse(text).unwrap();
            assert_eq!((smart.model.as_deref(), smart.capacity_bytes), (model, capacity));
            assert_eq!((smart.written_bytes, smart.read_bytes), (Some(5.12e6), Some(1.024e7)));
            assert_eq!((smart.power_on_s, smart.percentage_used), (Some(10_800.0), Some(7.0)));
        }
        let attribute = |name: &str| {
            let table = format!(r#"[{{"id":241,"name":"{name}","raw":{{"value":8}}}}]"#);
            let text = format!(
                r#"{{"ata_smart_attributes":{{"table":{table}}},"logical_block_size":512,"power_on_time":{{"hours":1}}}}"#
            );
            Smart::parse(&text).ok().and_then(|smart| smart.written_bytes)
        };
        assert_eq!(attribute("Total_LBAs_Written"), Some(4096.0));
        assert_eq!(attribute("Host_Writes_32MiB"), Some(268_435_456.0));
        assert_eq!(attribute("Lifetime_Writes_GiB"), Some(8_589_934_592.0));
        assert_eq!(attribute("Host_Writes_Furlongs"), None);
        let statistics = r#"{"ata_device_statistics":{"pages":[{"table":[{"name":"Logical Sectors Written","value":4}]},
            {"table":[{"name":"Percentage Used Endurance Indicator","value":12}]}]}}"#;
        let smart = Smart::parse(statistics).unwrap();
        assert_eq!((smart.written_bytes, smart.percentage_used), (Some(2048.0), Some(12.0)));
        for bad in
            ["", "{}", "[]", "3", r#"{"data_units_written":"many"}"#, r#"{"data_units_written":1e300}"#]
        {
            assert!(Smart::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,64}") {
            let _ = Smart::parse(&text);
        }
    }
}
