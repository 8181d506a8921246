//! Price files: products with what they cost, hold, do and draw, each with the day and the source of its figures.
//!
//! A file is TOML: `name`, `currency`, optionally `[energy]`, and one `[[product]]` for each product. Sizes are powers of
//! ten (`capacity_gb` counts 10⁹ bytes), as they are sold. Which keys a product needs depends on what is asked of it; a
//! key that is not known, a number that is not above zero and a product without a date or a source fail the file.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::PlanError;

/// Bytes of a GB.
pub const GB: f64 = 1e9;
/// Bytes of a TB.
pub const TB: f64 = 1e12;
/// Bytes of an MB.
pub const MB: f64 = 1e6;

/// Derived figures that a file can compare with what its source prints; fields of an efficiency.
pub const PRINTED_FIGURES: [&str; 6] =
    ["mb_per_s_per_price", "price_per_gb", "iops_per_price", "iops_per_gb", "mb_per_s_per_w", "iops_per_w"];

/// A price file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// What the file is about.
    pub name: String,
    /// The sign or code of the currency; `$` where the file has none.
    #[serde(default = "dollar")]
    pub currency: String,
    /// What electricity costs.
    pub energy: Option<Energy>,
    /// The products.
    #[serde(rename = "product", default)]
    pub products: Vec<Product>,
}

fn dollar() -> String {
    "$".to_owned()
}

/// What electricity costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Energy {
    /// Price of a kilowatt-hour.
    pub price_per_kwh: f64,
    /// Power usage effectiveness: watts that the site draws for each watt of equipment. 1 unless said.
    #[serde(default = "one")]
    pub pue: f64,
    /// When it cost that: `2010`, `2010-02` or `2010-02-01`.
    pub date: String,
    /// Who says so.
    pub source: String,
}

fn one() -> f64 {
    1.0
}

/// A product, or a kind of product.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Product {
    /// Its name, unique in the file.
    pub name: String,
    /// When its price was asked for: `2010`, `2010-02` or `2010-02-01`.
    pub date: String,
    /// Where the figures are from.
    pub source: String,
    /// Price of one.
    pub price: Option<f64>,
    /// What one holds, 10⁹ bytes.
    pub capacity_gb: Option<f64>,
    /// Price of each GB/s of bandwidth, where bandwidth is what is bought; else `price` by sequential writes.
    pub price_per_gb_per_s: Option<f64>,
    /// Price of each TB of capacity, where capacity is what is bought; else `price` by `capacity_gb`.
    pub price_per_tb: Option<f64>,
    /// Capacity that comes with each GB/s, 10¹² bytes; else `capacity_gb` by sequential writes.
    pub tb_per_gb_per_s: Option<f64>,
    /// Sequential reads, 10⁶ bytes per second.
    pub sequential_read_mb_per_s: Option<f64>,
    /// Sequential writes, 10⁶ bytes per second.
    pub sequential_write_mb_per_s: Option<f64>,
    /// Random reads per second, of 4 KiB unless the source says otherwise.
    pub random_read_iops: Option<f64>,
    /// Random writes per second.
    pub random_write_iops: Option<f64>,
    /// Time of one access, nanoseconds.
    pub access_ns: Option<f64>,
    /// Power while it works, watts.
    pub active_w: Option<f64>,
    /// Power while it waits, watts.
    pub idle_w: Option<f64>,
    /// Program/erase cycles that a cell lasts.
    pub pe_cycles: Option<f64>,
    /// Uncorrectable bit errors for each bit read.
    pub uber: Option<f64>,
    /// What the source prints for a derived figure, by the figure's name: it is compared with what comes out here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub printed: BTreeMap<String, String>,
}

impl Prices {
    /// Reads a price file.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] with the line or the product, the key and its value.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let prices: Self = toml::from_str(text).map_err(|error| toml_error(text, &error))?;
        let energy = prices.energy.iter().flat_map(|e| {
            [("price_per_kwh", e.price_per_kwh), ("pue", e.pue)].map(|(key, value)| ("energy", key, value))
        });
        let of_products = prices.products.iter().flat_map(|p| {
            p.numbers().into_iter().filter_map(|(key, value)| Some((p.name.as_str(), key, value?)))
        });
        for (owner, key, value) in energy.chain(of_products) {
            let key = format!("{owner}: {key}");
            if crate::positive(&key, value)? > crate::LARGEST || value < 1.0 / crate::LARGEST {
                let hint = "from 1e-30 to 1e30";
                return Err(PlanError::invalid(format!("{key}={value}"), "is out of range", hint));
            }
        }
        if prices.products.is_empty() {
            return Err(PlanError::invalid("product", "there is none", "a product is a table: [[product]]"));
        }
        prices.check_names()?;
        let dated = prices.energy.iter().map(|e| ("energy", &e.date, &e.source));
        for (owner, date, source) in
            dated.chain(prices.products.iter().map(|p| (p.name.as_str(), &p.date, &p.source)))
        {
            if !is_date(date) {
                let hint = "a date is 2026, 2026-11 or 2026-11-23";
                return Err(PlanError::invalid(format!("{owner}: date={date}"), "is not a date", hint));
            }
            if source.trim().is_empty() {
                let hint = "say where the figures are from";
                return Err(PlanError::invalid(format!("{owner}: source"), "is empty", hint));
            }
        }
        Ok(prices)
    }

    fn check_names(&self) -> Result<(), PlanError> {
        for (at, product) in self.products.iter().enumerate() {
            let name = &product.name;
            if name.contains(char::is_control) {
                let hint = "a name is one line of text";
                return Err(PlanError::invalid(format!("name={name:?}"), "has a control character", hint));
            }
            if name.trim().is_empty() || self.products[..at].iter().any(|other| other.name == *name) {
                let hint = "each product has a name of its own";
                return Err(PlanError::invalid(format!("name='{name}'"), "is empty or taken", hint));
            }
            for figure in product.printed.keys() {
                if !PRINTED_FIGURES.contains(&figure.as_str()) {
                    let hint = format!("there are {}", PRINTED_FIGURES.join(", "));
                    return Err(PlanError::invalid(
                        format!("{name}: printed.{figure}"),
                        "is not a figure",
                        hint,
                    ));
                }
            }
        }
        Ok(())
    }

    /// The product of a name.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] that names `parameter` and the products that there are.
    pub fn product(&self, parameter: &str, name: &str) -> Result<&Product, PlanError> {
        self.products.iter().find(|product| product.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.products.iter().map(|p| p.name.as_str()).collect();
            let there = format!("there are {}", names.join(", "));
            let hint = match base::nearest(name, names.iter().copied()) {
                Some(near) => format!("did you mean {near}? {there}"),
                None => there,
            };
            PlanError::invalid(format!("{parameter}={name}"), "is no product of the price file", hint)
        })
    }
}

impl Product {
    fn numbers(&self) -> [(&'static str, Option<f64>); 14] {
        [
            ("price", self.price),
            ("capacity_gb", self.capacity_gb),
            ("price_per_gb_per_s", self.price_per_gb_per_s),
            ("price_per_tb", self.price_per_tb),
            ("tb_per_gb_per_s", self.tb_per_gb_per_s),
            ("sequential_read_mb_per_s", self.sequential_read_mb_per_s),
            ("sequential_write_mb_per_s", self.sequential_write_mb_per_s),
            ("random_read_iops", self.random_read_iops),
            ("random_write_iops", self.random_write_iops),
            ("access_ns", self.access_ns),
            ("active_w", self.active_w),
            ("idle_w", self.idle_w),
            ("pe_cycles", self.pe_cycles),
            ("uber", self.uber),
        ]
    }

    /// Price of a byte of capacity; stated, or the price of one by what it holds.
    #[must_use]
    pub fn price_per_byte(&self) -> Option<f64> {
        let by_unit = || Some(self.price? / (self.capacity_gb? * GB));
        self.price_per_tb.map(|price| price / TB).or_else(by_unit)
    }

    /// Price of a byte per second of bandwidth; stated, or the price of one by its sequential writes.
    #[must_use]
    pub fn price_per_byte_per_s(&self) -> Option<f64> {
        let by_unit = || Some(self.price? / (self.sequential_write_mb_per_s? * MB));
        self.price_per_gb_per_s.map(|price| price / GB).or_else(by_unit)
    }

    /// Bytes of capacity that come with a byte per second of bandwidth; stated, or what one holds by its sequential
    /// writes; 0 where neither is known.
    #[must_use]
    pub fn bytes_per_byte_per_s(&self) -> f64 {
        let by_unit = || Some(self.capacity_gb? * GB / (self.sequential_write_mb_per_s? * MB));
        self.tb_per_gb_per_s.map(|tb| tb * TB / GB).or_else(by_unit).unwrap_or(0.0)
    }

    /// The value of a key that the request needs.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] with the product and the key.
    pub fn needs(&self, key: &str, value: Option<f64>) -> Result<f64, PlanError> {
        value.ok_or_else(|| {
            PlanError::invalid(
                format!("{}: {key}", self.name),
                "is not in the price file",
                format!("add {key} to this product"),
            )
        })
    }
}

/// An error of the parser in one line: where, and what.
pub(crate) fn toml_error(text: &str, error: &toml::de::Error) -> PlanError {
    let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let place = line.map_or("file".to_owned(), |line| format!("line {line}"));
    let problem = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    PlanError::invalid(place, problem, "the keys are described in docs/verbs/plan.md")
}

/// `2010`, `2010-02` or `2010-02-01`.
fn is_date(text: &str) -> bool {
    let parts: Vec<Option<u32>> = text
        .split('-')
        .zip([4, 2, 2])
        .map(|(part, digits)| {
            let plain = part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| part.parse().ok()).flatten()
        })
        .collect();
    text.split('-').count() <= 3
        && parts.first().is_some_and(Option::is_some)
        && parts.get(1).is_none_or(|month| month.is_some_and(|m| (1..=12).contains(&m)))
        && parts.get(2).is_none_or(|day| day.is_some_and(|d| (1..=31).contains(&d)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "name = \"x\"\n[[product]]\nname = \"a\"\ndate = \"2026-11\"\nsource = \"s\"\n";

    #[test]
    fn a_price_file_without_date_or_source_or_with_nonsense_fails_with_its_key() {
        assert!(Prices::parse(ONE).is_ok());
        for (text, words) in [
            ("name = \"x\"".to_owned(), "product: there is none"),
            (ONE.to_owned() + "prise = 3", "line 6: unknown field `prise`"),
            (ONE.to_owned() + "price = -3", "a: price=-3: must be a number above zero"),
            (ONE.to_owned() + "price = nan", "a: price=NaN: must be"),
            (ONE.to_owned() + "price = \"3\"", "line 6: invalid type"),
            (ONE.replace("2026-11", "2026-13"), "a: date=2026-13: is not a date"),
            (ONE.replace("\"s\"", "\" \""), "a: source: is empty"),
            (ONE.replace("date", "# date"), "line 2: missing field `date`"),
            (ONE.to_owned() + &ONE[11..], "name='a': is empty or taken"),
            (ONE.to_owned() + "printed = { iops = \"3\" }", "a: printed.iops: is not a figure"),
            (
                ONE.to_owned() + "[energy]\nprice_per_kwh = 0\ndate = \"2026\"\nsource = \"s\"",
                "energy: price_per_kwh=0: must",
            ),
        ] {
            let error = Prices::parse(&text).expect_err(words).to_string();
            assert!(error.starts_with(words), "{error}");
        }
    }

    #[test]
    fn names_are_one_line_and_numbers_leave_room_for_products() {
        let named = ONE.replace("\"a\"", "\"a\\nb\"");
        let error = Prices::parse(&named).unwrap_err().to_string();
        assert_eq!(error, "name=\"a\\nb\": has a control character");
        let error = Prices::parse(&(ONE.to_owned() + "capacity_gb = 1e300")).unwrap_err().to_string();
        assert!(error.starts_with("a: capacity_gb=1") && error.ends_with(": is out of range"), "{error}");
    }

    #[test]
    fn dates_are_years_months_or_days() {
        for good in ["2010", "2010-02", "2010-02-01"] {
            assert!(is_date(good), "{good}");
        }
        for bad in ["", "10", "2010-2", "2010-00", "2010-02-32", "2010-02-01-01", "February 2010", "2010-"] {
            assert!(!is_date(bad), "{bad}");
        }
    }

    #[test]
    fn prices_of_bytes_and_of_bandwidth_follow_from_one_product() {
        let text = ONE.to_owned() + "price = 300\ncapacity_gb = 3000\nsequential_write_mb_per_s = 1500";
        let product = &Prices::parse(&text).unwrap().products[0];
        assert_eq!(product.price_per_byte(), Some(1e-10));
        assert_eq!(product.price_per_byte_per_s(), Some(2e-7));
        assert_eq!(product.bytes_per_byte_per_s(), 2000.0);
    }
}
