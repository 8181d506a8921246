//! The queries: what each asks, its statement, and its keys.
//!
//! A *key* is a number from 0; equal keys give equal parameters on every tier and engine, and different keys below
//! [`Query::keys`] give different ones. Joins are written as `CROSS JOIN`, which SQLite takes in the order of the text, so plans are
//! pinned there; PostgreSQL plans them itself.

use crate::bionet::Bionet;
use crate::dataset::{Dataset, Workload};
use crate::engine::{Dialect, SkyIndex, Statement};
use crate::ptf::{self, Ptf};
use crate::schema::Value;
use crate::sky;

base::words! {
    /// A query.
    #[derive(PartialOrd, Ord)]
    pub enum Query {
        /// PTF: all that was seen where a new candidate is.
        Forward = "forward",
        /// PTF: the transients of a night, joined back through all history.
        Backward = "backward",
        /// PTF: a candidate by its number, with its score and its subtraction.
        Object = "object",
        /// PTF: all candidates within 5 arcseconds.
        ConeArcseconds = "cone-5arcsec",
        /// PTF: all candidates within an arcminute.
        ConeArcminute = "cone-arcminute",
        /// PTF: how many candidates lie within a degree, and their magnitudes.
        ConeDegree = "cone-degree",
        /// PTF: a figure of every candidate.
        ColumnScan = "column-scan",
        /// PTF: the candidates at 200 other positions, of a list.
        CrossMatch = "cross-match",
        /// PTF: the magnitudes of a named transient by time.
        LightCurve = "light-curve",
        /// BiologicalNetworks: which terms of the ontology a pathway has more often than others.
        Enrichment = "q2c",
        /// BiologicalNetworks: what can be reached from a node in three steps.
        Paths = "q3d",
        /// BiologicalNetworks: a node and its attributes, by one of its names.
        Lookup = "q5f",
        /// BiologicalNetworks: pairs of nodes that publications name together.
        Cocitation = "q6g",
        /// BiologicalNetworks: the neighbours of a node, and the publications that speak for each edge.
        Neighbours = "q7h",
    }
}

/// Names that a cross-match is made of.
const CROSS_MATCH_NAMES: u64 = 200;
/// Pairs are listed from so many publications on.
pub const COCITED_MIN: i64 = 5;

impl Query {
    /// The queries of PTF, the paper's two first.
    pub const PTF: [Self; 9] = [
        Self::Forward,
        Self::Backward,
        Self::Object,
        Self::ConeArcseconds,
        Self::ConeArcminute,
        Self::ConeDegree,
        Self::ColumnScan,
        Self::CrossMatch,
        Self::LightCurve,
    ];
    /// The queries of BiologicalNetworks, in the order of the paper's table.
    pub const BIONET: [Self; 5] =
        [Self::Enrichment, Self::Paths, Self::Lookup, Self::Cocitation, Self::Neighbours];

    /// The queries of a workload.
    #[must_use]
    pub fn of(workload: Workload) -> &'static [Self] {
        match workload {
            Workload::Ptf => &Self::PTF,
            Workload::Bionet => &Self::BIONET,
        }
    }

    /// Times in the DASH paper (Tables 10 and 11), milliseconds: on disk, on flash and in memory.
    #[must_use]
    pub fn paper_ms(self) -> Option<[Option<f64>; 3]> {
        let of = |disk, flash, memory| Some([Some(disk), Some(flash), memory]);
        match self {
            Self::Forward => of(1361.0, 11.0, None),
            Self::Backward => of(7_785_000.0, 100_000.0, None),
            Self::Enrichment => of(16090.0, 11120.0, Some(11338.0)),
            Self::Paths => of(226_023.0, 176_873.0, Some(62850.0)),
            Self::Lookup => of(558.0, 11.0, Some(3.0)),
            Self::Cocitation => of(27661.0, 24879.0, Some(17957.0)),
            Self::Neighbours => of(1191.0, 495.0, Some(211.0)),
            _ => None,
        }
    }

    /// What it asks, in a sentence.
    #[must_use]
    pub fn asks(self) -> &'static str {
        match self {
            Self::Forward => {
                "one new candidate: what was seen within 3″ with a score above 0.07, and its subtractions"
            }
            Self::Backward => "the transients of a night: the history of each, summed up",
            Self::Object => "a candidate by its number, with score and subtraction",
            Self::ConeArcseconds => "all candidates within 5″",
            Self::ConeArcminute => "all candidates within 1′",
            Self::ConeDegree => "how many candidates lie within a degree, and their magnitudes",
            Self::ColumnScan => "a figure over all candidates",
            Self::CrossMatch => "the candidates within 3″ of 200 positions of a list",
            Self::LightCurve => "the magnitudes of a named transient by time",
            Self::Enrichment => {
                "which terms of the ontology a pathway has at least twice, and how often all genes have them"
            }
            Self::Paths => "how many nodes can be reached from a hub in one, two and three steps",
            Self::Lookup => "a node and its attributes, by an alias",
            Self::Cocitation => "the pairs of nodes that at least five publications name together",
            Self::Neighbours => {
                "the neighbours of a node of some tens of edges, with the publications that speak for each edge"
            }
        }
    }

    /// What is known of it in the original database, and what is inferred.
    #[must_use]
    pub fn origin(self) -> &'static str {
        match self {
            Self::Forward | Self::Backward => {
                "name, times and names of tables are published; the statement is inferred from them, and so are sizes and distributions"
            }
            Self::Enrichment | Self::Cocitation => {
                "only its times are published; inferred from a gain of at most 1.5: a scan, bound by CPU"
            }
            Self::Paths => {
                "only its times are published; inferred from its gain in memory alone: long, on more than a cache holds"
            }
            Self::Lookup => "only its times are published; inferred from a gain of 50 on flash: a look-up",
            Self::Neighbours => {
                "only its times are published; inferred from a gain of 2.4: a small random join"
            }
            _ => "not in the paper: what users of such catalogues ask today",
        }
    }

    /// How many different keys there are.
    #[must_use]
    pub fn keys(self, dataset: &Dataset) -> u64 {
        match (self, dataset) {
            (Self::Forward | Self::ConeArcseconds | Self::ConeArcminute, Dataset::Ptf(ptf)) => ptf.objects(),
            (Self::ConeDegree, Dataset::Ptf(ptf)) => ptf.fields(),
            (Self::Backward, Dataset::Ptf(ptf)) => ptf.nights(),
            (Self::Object, Dataset::Ptf(ptf)) => ptf.candidates,
            (Self::CrossMatch, Dataset::Ptf(ptf)) => ptf.names().div_ceil(CROSS_MATCH_NAMES),
            (Self::LightCurve, Dataset::Ptf(ptf)) => ptf.names(),
            (Self::Enrichment, Dataset::Bionet(bionet)) => bionet.pathways(),
            (Self::Paths | Self::Neighbours | Self::Lookup, Dataset::Bionet(bionet)) => bionet.nodes,
            _ => 1,
        }
    }

    /// The statement of a key in the words of an engine.
    ///
    /// # Panics
    /// If the query is one of another workload.
    #[must_use]
    pub fn statement(self, dataset: &Dataset, key: u64, dialect: Dialect, sky: SkyIndex) -> Statement {
        let key = key % self.keys(dataset);
        match dataset {
            Dataset::Ptf(ptf) => of_ptf(self, ptf, key, &ConeSql { dialect, sky }),
            Dataset::Bionet(bionet) => of_bionet(self, bionet, key),
        }
    }
}

/// Number `key` of `n`, far from the ones before: keys in a row must not lie on one block.
fn spread(key: u64, n: u64) -> u64 {
    const PRIME: u64 = 2_654_435_761;
    (u128::from(key) * u128::from(PRIME) % u128::from(n)) as u64
}

/// How cones are written.
struct ConeSql {
    dialect: Dialect,
    sky: SkyIndex,
}

impl ConeSql {
    /// The candidates within a radius of `$1`, `$2`: tables, condition and parameters. `$3` is the radius, as a haversine or as degrees for
    /// Q3C; ranges follow.
    fn cone(&self, ra: f64, dec: f64, radius: f64, most: usize) -> (String, String, Vec<Value>) {
        let table = "candidate c".to_owned();
        if self.sky == SkyIndex::Q3c {
            let condition = "q3c_radial_query(c.ra, c.dec, $1, $2, $3)".to_owned();
            return (table, condition, [ra, dec, radius].map(Value::from).to_vec());
        }
        let ranges = sky::cover(ra, dec, radius, most);
        let pairs = (0..ranges.len()).map(|n| (2 * n + 4, 2 * n + 5));
        let (tables, cells) = match self.dialect {
            // SQLite takes a list of ranges as the outer table of a loop; it would rather scan than follow as many `OR`s.
            Dialect::Sqlite => {
                let rows: Vec<_> = pairs.map(|(low, high)| format!("(${low}, ${high})")).collect();
                let tables = format!("(VALUES {}) r CROSS JOIN {table}", rows.join(", "));
                (tables, "c.cell BETWEEN r.column1 AND r.column2".to_owned())
            }
            // PostgreSQL knows from its statistics how many rows each range has, and joins their bitmaps.
            Dialect::Postgres => {
                let parts: Vec<_> =
                    pairs.map(|(low, high)| format!("c.cell BETWEEN ${low} AND ${high}")).collect();
                (table, format!("({})", parts.join(" OR ")))
            }
        };
        let mut parameters = [ra, dec, sky::haversine_of(radius)].map(Value::from).to_vec();
        parameters.extend(ranges.iter().flat_map(|range| [*range.start(), *range.end()].map(Value::from)));
        (tables, format!("{cells} AND {} <= $3", self.haversine("$1", "$2")), parameters)
    }

    /// The haversine of the angle between a candidate and another position.
    fn haversine(&self, ra: &str, dec: &str) -> String {
        match self.dialect {
            Dialect::Sqlite => format!("haversine(c.ra, c.dec, {ra}, {dec})"),
            Dialect::Postgres => format!(
                "(power(sind((c.dec - {dec}) / 2), 2) + cosd(c.dec) * cosd({dec}) * power(sind((c.ra - {ra}) / 2), 2))"
            ),
        }
    }

    /// Names `n` joined with the candidates `c` at their place: tables and condition.
    fn at_names(&self) -> (&'static str, String) {
        let radius = ptf::MATCH_DEGREES;
        if self.sky == SkyIndex::Q3c {
            let condition = format!("q3c_join(n.ra, n.dec, c.ra, c.dec, {radius})");
            return ("ptfname n CROSS JOIN candidate c", condition);
        }
        let tables = "ptfname n CROSS JOIN ptfname_range r CROSS JOIN candidate c";
        let within = format!("{} <= {:e}", self.haversine("n.ra", "n.dec"), sky::haversine_of(radius));
        (tables, format!("r.ptfname_id = n.id AND c.cell BETWEEN r.lo AND r.hi AND {within}"))
    }
}

fn of_ptf(query: Query, ptf: &Ptf, key: u64, cones: &ConeSql) -> Statement {
    let object = ptf.object(spread(key, ptf.objects()));
    let (at_names, of_names) = cones.at_names();
    let cut = ptf::REALBOGUS_MIN;
    let (sql, parameters) = match query {
        Query::Forward => {
            let (tables, cone, parameters) = cones.cone(object.ra, object.dec, ptf::MATCH_DEGREES, 8);
            let sql = format!(
                "SELECT c.id, c.ra, c.dec, c.mag, c.mag_err, b.realbogus, s.ujd, s.filter, s.lmt_mg_new \
                 FROM {tables} CROSS JOIN rb_classifier b CROSS JOIN subtraction s \
                 WHERE {cone} AND b.candidate_id = c.id AND b.realbogus > {cut} AND s.id = c.sub_id \
                 ORDER BY s.ujd, c.id"
            );
            (sql, parameters)
        }
        Query::Backward => {
            let sql = format!(
                "SELECT n.id, n.ptfname, count(*), min(s.ujd), max(s.ujd), min(c.mag), max(b.realbogus) \
                 FROM {at_names} CROSS JOIN rb_classifier b CROSS JOIN subtraction s \
                 WHERE n.night = $1 AND {of_names} \
                 AND b.candidate_id = c.id AND b.realbogus > {cut} AND s.id = c.sub_id \
                 GROUP BY n.id, n.ptfname ORDER BY n.id"
            );
            // The last night first: its transients have the longest history.
            (sql, vec![Value::from((ptf.nights() - 1 - key) as i64)])
        }
        Query::Object => {
            let sql = "SELECT c.id, c.ra, c.dec, c.mag, c.mag_err, c.flux, b.realbogus, s.ujd, s.filter, s.ptffield, s.ccdid \
                       FROM candidate c CROSS JOIN rb_classifier b CROSS JOIN subtraction s \
                       WHERE c.id = $1 AND b.candidate_id = c.id AND s.id = c.sub_id";
            (sql.to_owned(), vec![Value::from(spread(key, ptf.candidates) as i64 + 1)])
        }
        Query::ConeArcseconds | Query::ConeArcminute => {
            let radius = if query == Query::ConeArcminute { 1.0 / 60.0 } else { 5.0 / 3600.0 };
            let (tables, cone, parameters) = cones.cone(object.ra, object.dec, radius, 8);
            (
                format!("SELECT c.id, c.sub_id, c.ra, c.dec, c.mag FROM {tables} WHERE {cone} ORDER BY c.id"),
                parameters,
            )
        }
        Query::ConeDegree => {
            let centre = ptf.object(spread(key, ptf.fields()) * ptf::CCDS * ptf::POSITIONS);
            let (tables, cone, parameters) = cones.cone(centre.ra, centre.dec, 1.0, 16);
            (format!("SELECT count(*), min(c.mag), max(c.mag) FROM {tables} WHERE {cone}"), parameters)
        }
        Query::ColumnScan => {
            let sql =
                "SELECT count(*), min(c.mag), max(c.flux), sum(c.flag) FROM candidate c WHERE c.mag_err < $1";
            (sql.to_owned(), vec![Value::from(0.1)])
        }
        Query::CrossMatch => {
            let sql = format!(
                "SELECT n.id, c.id, c.mag FROM {at_names} WHERE n.id BETWEEN $1 AND $2 AND {of_names} ORDER BY n.id, c.id"
            );
            let first = (key * CROSS_MATCH_NAMES) as i64;
            (sql, [first + 1, first + CROSS_MATCH_NAMES as i64].map(Value::from).to_vec())
        }
        Query::LightCurve => {
            let sql = format!(
                "SELECT s.ujd, s.filter, c.mag, c.mag_err FROM {at_names} CROSS JOIN subtraction s \
                 WHERE n.id = $1 AND {of_names} AND s.id = c.sub_id ORDER BY s.ujd, c.id"
            );
            (sql, vec![Value::from(spread(key, ptf.names()) as i64 + 1)])
        }
        other => panic!("{} is not a query of PTF", other.word()),
    };
    Statement { sql, parameters }
}

fn of_bionet(query: Query, bionet: &Bionet, key: u64) -> Statement {
    let (sql, parameter): (&str, Value) = match query {
        Query::Enrichment => (
            "SELECT a.go_id, count(*), count(p.node_id) FROM annotation a \
             LEFT JOIN pathway_node p ON p.node_id = a.node_id AND p.pathway_id = $1 \
             GROUP BY a.go_id HAVING count(p.node_id) >= 2 ORDER BY a.go_id",
            Value::from(spread(key, bionet.pathways()) as i64 + 1),
        ),
        Query::Paths => (
            "WITH RECURSIVE reach(id, hops) AS (SELECT CAST($1 AS BIGINT), 0 \
             UNION SELECT e.to_id, r.hops + 1 FROM reach r JOIN edge e ON e.from_id = r.id WHERE r.hops < 3) \
             SELECT nearest.hops, count(*), min(nearest.id), max(nearest.id) \
             FROM (SELECT id, min(hops) AS hops FROM reach GROUP BY id) nearest GROUP BY nearest.hops ORDER BY nearest.hops",
            Value::from(bionet.node_of_rank(key)),
        ),
        Query::Lookup => {
            let alias = bionet.alias(spread(key, bionet.nodes), key % crate::bionet::ALIASES);
            (
                "SELECT n.id, n.name, n.kind, t.name, x.name_id, x.value \
                 FROM alias l CROSS JOIN node n CROSS JOIN node_type t CROSS JOIN attribute x \
                 WHERE l.alias = $1 AND n.id = l.node_id AND t.id = n.type_id AND x.entity = n.id ORDER BY n.id, x.name_id",
                Value::Text(alias),
            )
        }
        Query::Cocitation => (
            "SELECT a.node_id, b.node_id, count(*) FROM publication_node a CROSS JOIN publication_node b \
             WHERE b.publication_id = a.publication_id AND b.node_id > a.node_id \
             GROUP BY a.node_id, b.node_id HAVING count(*) >= $1 ORDER BY a.node_id, b.node_id",
            Value::from(COCITED_MIN),
        ),
        Query::Neighbours => (
            "SELECT e.id, e.relation, m.id, m.name, p.id, p.year \
             FROM edge e CROSS JOIN node m CROSS JOIN evidence v CROSS JOIN publication p \
             WHERE e.from_id = $1 AND m.id = e.to_id AND v.edge_id = e.id AND p.id = v.publication_id \
             ORDER BY e.id, p.id",
            // Nodes of some tens of edges.
            Value::from(bionet.node_of_rank(bionet.nodes / 100 + key)),
        ),
        other => panic!("{} is not a query of BiologicalNetworks", other.word()),
    };
    Statement { sql: sql.to_owned(), parameters: vec![parameter] }
}
