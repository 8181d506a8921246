//! `docs/limits.md` says of each limit what the code says of it.

use std::collections::BTreeMap;

use measure::Limit;

const PAGE: &str = include_str!("../../../../docs/limits.md");

/// Table lines that begin with a limit's word, by the number of their cells.
fn lines(cell_count: usize) -> Vec<(&'static str, Vec<&'static str>)> {
    let of_limit = |line: &'static str| {
        let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        let cells: Vec<&str> = inner.split(" | ").map(str::trim).collect();
        let word = cells[0].strip_prefix('`')?.strip_suffix('`')?;
        (cells.len() == cell_count && Limit::ALL.iter().any(|l| l.word() == word)).then_some((word, cells))
    };
    PAGE.lines().filter_map(of_limit).collect()
}

#[test]
fn the_first_table_lists_every_limit_in_order_as_it_explains_itself() {
    let lines = lines(4);
    assert_eq!(lines.len(), Limit::ALL.len(), "one line a limit");
    for (limit, (word, cells)) in Limit::ALL.iter().zip(lines) {
        let explained = limit.explain();
        assert_eq!(word, limit.word(), "the order is that of Limit::ALL");
        assert_eq!(cells[1..], [limit.label(), explained.meaning, explained.remedy], "{limit}");
    }
}

#[test]
fn the_second_table_says_how_each_limit_is_found_and_where_its_thresholds_lie() {
    let found: BTreeMap<_, _> = lines(3).into_iter().collect();
    assert_eq!(found.len(), Limit::ALL.len());
    for limit in Limit::ALL {
        assert!(found[limit.word()][1].len() > 20, "{limit}: how it is found");
        assert!(!found[limit.word()][2].is_empty(), "{limit}: its thresholds");
    }
}
