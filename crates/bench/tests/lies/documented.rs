//! `docs/warnings.md` says of each code what the code says of itself.

use std::collections::BTreeMap;

use measure::WarningCode;
use measure::warning::Severity;

const PAGE: &str = include_str!("../../../../docs/warnings.md");

/// The cells of a table line, or none where it is no line of a table.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split(" | ").map(str::trim).collect())
}

/// Table lines that begin with a code, by the number of their cells.
fn lines(cell_count: usize) -> Vec<(&'static str, Vec<&'static str>)> {
    let of_code = |line| {
        let cells = cells(line).filter(|cells| cells.len() == cell_count)?;
        let code = cells[0].strip_prefix('`')?.strip_suffix('`').filter(|code| code.starts_with("W-"))?;
        Some((code, cells))
    };
    PAGE.lines().filter_map(of_code).collect()
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Void => "void",
    }
}

#[test]
fn the_first_table_lists_every_code_in_order_as_it_explains_itself() {
    let lines = lines(4);
    assert_eq!(lines.len(), WarningCode::ALL.len(), "one line a code");
    for (code, (named, cells)) in WarningCode::ALL.iter().zip(lines) {
        let explained = code.explain();
        assert_eq!(named, code.code(), "the order is that of WarningCode::ALL");
        assert_eq!(cells[1..], [word(explained.severity), explained.meaning, explained.remedy], "{code}");
    }
}

#[test]
fn the_second_table_says_how_each_code_is_found_and_where_its_limit_lies() {
    let found: BTreeMap<_, _> = lines(3).into_iter().collect();
    for code in WarningCode::ALL {
        let cells = found.get(code.code()).unwrap_or_else(|| panic!("{code} is missing"));
        assert!(cells[1].len() > 20, "{code}: how it is found");
        assert!(!cells[2].is_empty(), "{code}: its limit");
    }
    assert_eq!(found.len(), WarningCode::ALL.len());
}
