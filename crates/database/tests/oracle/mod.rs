//! The answers to all queries, computed from the generators' rows without an engine, an index or a cell: every pair is tried.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use database::ask::Answer;
use database::bionet::Bionet;
use database::dataset::Dataset;
use database::engine::{Dialect, SkyIndex};
use database::ptf::{MATCH_DEGREES, Ptf, REALBOGUS_MIN};
use database::query::{COCITED_MIN, Query};
use database::schema::{Table, Value};
use database::sky;

type Row = Vec<Value>;

/// All rows of all tables, by the table's name.
pub struct Oracle {
    dataset: Dataset,
    tables: HashMap<&'static str, Vec<Row>>,
}

fn int(value: &Value) -> i64 {
    match value {
        Value::Integer(value) => *value,
        other => panic!("{other:?} is not an integer"),
    }
}

fn real(value: &Value) -> f64 {
    match value {
        Value::Double(value) => *value,
        other => panic!("{other:?} is not a float"),
    }
}

fn text(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        other => panic!("{other:?} is not text"),
    }
}

/// The angle between two positions by the cosine rule on unit vectors: another formula than the product's.
fn apart(one: (f64, f64), other: (f64, f64)) -> f64 {
    let vector = |(ra, dec): (f64, f64)| {
        let (ra, dec) = (ra.to_radians(), dec.to_radians());
        [dec.cos() * ra.cos(), dec.cos() * ra.sin(), dec.sin()]
    };
    let (a, b) = (vector(one), vector(other));
    let chord = (0..3).map(|n| (a[n] - b[n]).powi(2)).sum::<f64>().sqrt();
    2.0 * (chord / 2.0).asin().to_degrees()
}

impl Oracle {
    pub fn new(dataset: Dataset) -> Self {
        let rows = |table: &Table| {
            let (mut stream, mut row, mut rows) = (dataset.stream(table, 0), Vec::new(), Vec::new());
            while stream.next(&mut row) {
                rows.push(row.clone());
            }
            rows
        };
        Self { dataset, tables: dataset.tables().iter().map(|table| (table.name, rows(table))).collect() }
    }

    /// The rows that a query must return.
    pub fn rows(&self, query: Query, key: u64) -> Vec<Row> {
        let statement = query.statement(&self.dataset, key, Dialect::Postgres, SkyIndex::Q3c);
        match self.dataset {
            Dataset::Ptf(ptf) => self.ptf(&ptf, query, &statement.parameters),
            Dataset::Bionet(bionet) => self.bionet(&bionet, query, &statement.parameters[0]),
        }
    }

    pub fn answer(&self, query: Query, key: u64) -> Answer {
        let mut answer = Answer::default();
        self.rows(query, key).iter().for_each(|row| answer.add(row));
        answer
    }

    fn within(&self, centre: (f64, f64), degrees: f64) -> Vec<&Row> {
        let place = |row: &Row| (real(&row[2]), real(&row[3]));
        self.tables["candidate"].iter().filter(|row| apart(place(row), centre) <= degrees).collect()
    }

    fn score(&self, candidate: &Row) -> f64 {
        real(&self.tables["rb_classifier"][int(&candidate[0]) as usize - 1][1])
    }

    fn subtraction(&self, candidate: &Row) -> &Row {
        &self.tables["subtraction"][int(&candidate[1]) as usize - 1]
    }

    fn ptf(&self, ptf: &Ptf, query: Query, parameters: &[Value]) -> Vec<Row> {
        let centre = || (real(&parameters[0]), real(&parameters[1]));
        let pick = |row: &Row, columns: &[usize]| columns.iter().map(|n| row[*n].clone()).collect::<Row>();
        match query {
            Query::Forward => {
                let real_ones = self
                    .within(centre(), MATCH_DEGREES)
                    .into_iter()
                    .filter(|c| self.score(c) > REALBOGUS_MIN);
                let row = |c: &Row| {
                    let mut row = pick(c, &[0, 2, 3, 4, 5]);
                    row.push(Value::Double(self.score(c)));
                    row.extend(pick(self.subtraction(c), &[3, 4, 7]));
                    row
                };
                real_ones.map(row).collect()
            }
            Query::Backward => self.backward(int(&parameters[0])),
            Query::Object => {
                let c = &self.tables["candidate"][int(&parameters[0]) as usize - 1];
                let mut row = pick(c, &[0, 2, 3, 4, 5, 6]);
                row.push(Value::Double(self.score(c)));
                row.extend(pick(self.subtraction(c), &[3, 4, 1, 2]));
                vec![row]
            }
            Query::ConeArcseconds => self.cone(centre(), 5.0 / 3600.0),
            Query::ConeArcminute => self.cone(centre(), 1.0 / 60.0),
            Query::ConeDegree => {
                let mags: Vec<f64> = self.within(centre(), 1.0).iter().map(|c| real(&c[4])).collect();
                vec![extremes(&mags)]
            }
            Query::ColumnScan => {
                let precise: Vec<_> =
                    self.tables["candidate"].iter().filter(|c| real(&c[5]) < real(&parameters[0])).collect();
                let least = precise.iter().map(|c| real(&c[4])).fold(f64::INFINITY, f64::min);
                let most = precise.iter().map(|c| real(&c[6])).fold(f64::NEG_INFINITY, f64::max);
                let flags: i64 = precise.iter().map(|c| int(&c[13])).sum();
                vec![vec![(precise.len() as i64).into(), least.into(), most.into(), flags.into()]]
            }
            Query::CrossMatch => {
                let is_listed =
                    |name: &&Row| (int(&parameters[0])..=int(&parameters[1])).contains(&int(&name[0]));
                let names = self.tables["ptfname"].iter().filter(is_listed);
                let row = |name: &Row, c: &Row| vec![name[0].clone(), c[0].clone(), c[4].clone()];
                names.flat_map(|name| self.at(name).into_iter().map(move |c| row(name, c))).collect()
            }
            Query::LightCurve => {
                let name = &self.tables["ptfname"][int(&parameters[0]) as usize - 1];
                let row = |c: &Row| [pick(self.subtraction(c), &[3, 4]), pick(c, &[4, 5])].concat();
                self.at(name).into_iter().map(row).collect()
            }
            other => panic!("{} of {ptf:?}", other.word()),
        }
    }

    fn at(&self, name: &Row) -> Vec<&Row> {
        self.within((real(&name[6]), real(&name[7])), MATCH_DEGREES)
    }

    fn cone(&self, centre: (f64, f64), degrees: f64) -> Vec<Row> {
        let row = |c: &Row| [0, 1, 2, 3, 4].map(|n| c[n].clone()).to_vec();
        self.within(centre, degrees).into_iter().map(row).collect()
    }

    fn backward(&self, night: i64) -> Vec<Row> {
        let names = self.tables["ptfname"].iter().filter(|name| int(&name[4]) == night);
        let row = |name: &Row| {
            let seen: Vec<_> = self.at(name).into_iter().filter(|c| self.score(c) > REALBOGUS_MIN).collect();
            let over = |of: &dyn Fn(&Row) -> f64, join: fn(f64, f64) -> f64| {
                seen.iter().map(|c| of(c)).reduce(join).map(Value::Double)
            };
            let day = |c: &Row| real(&self.subtraction(c)[3]);
            let count = Value::from(seen.len() as i64);
            let figures = [
                over(&day, f64::min)?,
                over(&day, f64::max)?,
                over(&|c| real(&c[4]), f64::min)?,
                over(&|c| self.score(c), f64::max)?,
            ];
            Some([vec![name[0].clone(), name[1].clone(), count], figures.to_vec()].concat())
        };
        names.filter_map(row).collect()
    }

    fn bionet(&self, bionet: &Bionet, query: Query, parameter: &Value) -> Vec<Row> {
        match query {
            Query::Enrichment => self.enrichment(int(parameter)),
            Query::Paths => self.paths(int(parameter)),
            Query::Lookup => self.lookup(text(parameter)),
            Query::Cocitation => self.cocitation(),
            Query::Neighbours => self.neighbours(int(parameter)),
            other => panic!("{} of {bionet:?}", other.word()),
        }
    }

    fn enrichment(&self, pathway: i64) -> Vec<Row> {
        let members = self.tables["pathway_node"].iter().filter(|row| int(&row[0]) == pathway);
        let members: HashSet<i64> = members.map(|row| int(&row[1])).collect();
        let mut terms: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
        for row in &self.tables["annotation"] {
            let term = terms.entry(int(&row[1])).or_default();
            term.0 += 1;
            term.1 += i64::from(members.contains(&int(&row[0])));
        }
        let often = terms.into_iter().filter(|(_, (_, within))| *within >= 2);
        often.map(|(term, (all, within))| [term, all, within].map(Value::from).to_vec()).collect()
    }

    fn paths(&self, from: i64) -> Vec<Row> {
        let mut next: HashMap<i64, Vec<i64>> = HashMap::new();
        for row in &self.tables["edge"] {
            next.entry(int(&row[1])).or_default().push(int(&row[2]));
        }
        let (mut reached, mut level) = (HashSet::from([from]), BTreeSet::from([from]));
        let mut rows = Vec::new();
        for hops in 0..=3 {
            if let (Some(first), Some(last)) = (level.first(), level.last()) {
                rows.push([hops, level.len() as i64, *first, *last].map(Value::from).to_vec());
            }
            let step = level.iter().flat_map(|node| next.get(node).into_iter().flatten().copied());
            level = step.collect::<BTreeSet<_>>().into_iter().filter(|node| reached.insert(*node)).collect();
        }
        rows
    }

    fn lookup(&self, alias: &str) -> Vec<Row> {
        let mut rows = Vec::new();
        for named in self.tables["alias"].iter().filter(|row| text(&row[0]) == alias) {
            let node = &self.tables["node"][int(&named[1]) as usize - 1];
            let of = &self.tables["node_type"][int(&node[1]) as usize - 1][1];
            for attribute in self.tables["attribute"].iter().filter(|row| row[0] == node[0]) {
                let of_node = [&node[0], &node[3], &node[2], of].map(Clone::clone);
                rows.push([of_node.to_vec(), attribute[1..].to_vec()].concat());
            }
        }
        rows
    }

    fn cocitation(&self) -> Vec<Row> {
        let mut cited: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for row in &self.tables["publication_node"] {
            cited.entry(int(&row[0])).or_default().push(int(&row[1]));
        }
        let mut pairs: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        for nodes in cited.values() {
            for (n, one) in nodes.iter().enumerate() {
                for other in &nodes[n + 1..] {
                    if one != other {
                        *pairs.entry((*one.min(other), *one.max(other))).or_default() += 1;
                    }
                }
            }
        }
        let often = pairs.into_iter().filter(|(_, count)| *count >= COCITED_MIN);
        often.map(|((one, other), count)| [one, other, count].map(Value::from).to_vec()).collect()
    }

    fn neighbours(&self, from: i64) -> Vec<Row> {
        let mut rows = Vec::new();
        for edge in self.tables["edge"].iter().filter(|row| int(&row[1]) == from) {
            let node = &self.tables["node"][int(&edge[2]) as usize - 1];
            for evidence in self.tables["evidence"].iter().filter(|row| row[0] == edge[0]) {
                let publication = &self.tables["publication"][int(&evidence[1]) as usize - 1];
                let row = [&edge[0], &edge[3], &node[0], &node[3], &publication[0], &publication[1]];
                rows.push(row.map(Clone::clone).to_vec());
            }
        }
        rows
    }
}

/// How many, the least and the greatest; nulls of none, as in SQL.
fn extremes(figures: &[f64]) -> Row {
    let of =
        |join: fn(f64, f64) -> f64| figures.iter().copied().reduce(join).map_or(Value::Null, Value::Double);
    vec![Value::from(figures.len() as i64), of(f64::min), of(f64::max)]
}

/// The angles of the product and of this module are the same.
#[test]
fn two_formulas_of_the_angle_agree() {
    for (one, other) in
        [((10.0, 20.0), (10.001, 20.001)), ((0.0, 89.0), (180.0, 89.5)), ((1.0, 0.0), (2.0, 0.0))]
    {
        let product = 2.0 * sky::haversine(one.0, one.1, other.0, other.1).sqrt().asin().to_degrees();
        assert!((product - apart(one, other)).abs() < 1e-9, "{one:?} {other:?}");
    }
}
