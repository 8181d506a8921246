//! The papers' tables, cell by cell, from the price files that are shipped as examples.

use planner::checkpoint::hybrid::{Demand, alone, hybrid};
use planner::efficiency::{Efficiency, Operation, Performance, discrepancies, rounds_to};
use planner::prices::Prices;

const DASH: &str = include_str!("../../../examples/prices/dash-2010.toml");
const CRAY: &str = include_str!("../../../examples/prices/cray-2013.toml");

fn of(prices: &Prices) -> Vec<Efficiency> {
    let operation = Operation { years: 4.0, duty: 1.0, pue: 1.0, price_per_kwh: None };
    prices.products.iter().map(|p| Efficiency::of(p, Performance::default(), &operation)).collect()
}

#[test]
fn tables_1_and_2_of_dash_follow_from_their_inputs() {
    let prices = Prices::parse(DASH).unwrap();
    let columns = of(&prices);
    let column = |name: &str| columns.iter().find(|c| c.name == name).unwrap();
    // MB/s/$, $/GB, IOPS/$, IOPS/GB as the paper prints them.
    for (name, row) in [
        ("generic-hdd", ["~0.4", "~0.15", "0.4-1.0", "0.05-0.1"]),
        ("dash-io-node", ["0.16", "19.43", "28", "549"]),
        ("dash-supernode", ["0.49", "112.63", "52", "5854"]),
        ("fusion-io", ["0.12", "41.06", "18", "725"]),
        ("sun-f5100", ["0.07", "90.62", "9", "828"]),
    ] {
        let c = column(name);
        let computed = [c.mb_per_s_per_price, c.price_per_gb, c.iops_per_price, c.iops_per_gb];
        for (computed, printed) in computed.into_iter().zip(row) {
            assert!(rounds_to(computed.unwrap(), printed), "{name}: {computed:?} {printed}");
        }
    }
    for (name, active, idle, iops_per_w) in
        [("dram-14gb", 70.0, 35.0, "307"), ("ssd-64gb", 2.4, 0.1, "712"), ("hdd-2tb", 11.0, 7.0, "35")]
    {
        let c = column(name);
        assert_eq!((c.active_w, c.idle_w), (Some(active), Some(idle)));
        assert!(rounds_to(c.iops_per_w.unwrap(), iops_per_w), "{name}");
    }
}

/// What the paper prints and its own inputs do not give: 5853 IOPS/GB is cut off, not rounded (4,495,592 / 768 = 5853.6);
/// Table 2's IOPS/W follow neither from the measured IOPS of Table 4 nor from Table 1's IOPS/GB.
#[test]
fn discrepancies_of_dash_are_these_and_no_others() {
    let prices = Prices::parse(DASH).unwrap();
    let found = discrepancies(&prices, &of(&prices));
    let found: Vec<String> =
        found.iter().map(|d| format!("{} {} {} {:.0}", d.product, d.figure, d.printed, d.computed)).collect();
    assert_eq!(
        found,
        [
            "dash-supernode iops_per_gb 5853 5854",
            "x25-e-of-table-4 iops_per_w 712 16565",
            "dram-14gb-of-table-1 iops_per_w 307 1171",
            "hdd-2tb-of-table-1 iops_per_w 35 19",
        ]
    );
}

/// Table IV. Its drain has the 3067 s of computing, not the whole hour that the text says; 39.1 % of 53.3 PB are 60.8 %
/// less, where the text says 62 %; and 2.25 PB of flash hold one checkpoint and not two.
#[test]
fn table_iv_of_the_cray_paper_follows_from_table_iii() {
    let prices = Prices::parse(CRAY).unwrap();
    let (flash, disk) = (&prices.products[0], &prices.products[1]);
    let demand = Demand::new(1200e12, 3600.0);
    let both = hybrid(&demand, 2.25e12, None, Some(2.25e15)).unwrap().priced(flash, disk).unwrap();
    let single = alone(&demand, 1e12).unwrap().priced(flash, disk).unwrap();
    for (computed, printed) in [
        (both.slow_bandwidth / 1e12, "0.39"),
        (both.slow_capacity / 1e15, "20.9"),
        (single.slow_capacity / 1e15, "53.3"),
        (both.write_s, "533"),
        (single.write_s, "1200"),
        (both.compute_s, "3067"),
        (single.compute_s, "2400"),
        (both.io_share() * 100.0, "15"),
        (single.io_share() * 100.0, "33"),
        ((both.compute_s / single.compute_s - 1.0) * 100.0, "28"),
        (both.fast_price.unwrap() / 1e3, "13500"),
        (both.slow_price.unwrap() / 1e3, "8609"),
        (single.slow_price.unwrap() / 1e3, "22000"),
        (both.price().unwrap() / 1e3, "22109"),
        (single.price().unwrap() / 1e3, "22000"),
    ] {
        assert!(rounds_to(computed, printed), "{computed} {printed}");
    }
    let less = 1.0 - both.slow_capacity / single.slow_capacity;
    assert!(rounds_to(less * 100.0, "61") && !rounds_to(less * 100.0, "62"));
    let by_the_formula = hybrid(&demand, 2.25e12, None, None).unwrap();
    assert_eq!(by_the_formula.fast_capacity, 2400e12);
    let whole_hour = hybrid(&demand, 2.25e12, Some(1200e12 / 3600.0), Some(2.4e15)).unwrap();
    assert!(rounds_to(whole_hour.slow_bandwidth / 1e12, "0.33"));
}
