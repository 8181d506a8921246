//! Tables of the survey: what published statements name of the real ones, and the HEALPix cells beside coordinates.

use crate::schema::{Column, ColumnType, Index, IndexKey, Table};

const fn big(name: &'static str) -> Column {
    Column { name, of: ColumnType::BigInt }
}

const fn int(name: &'static str) -> Column {
    Column { name, of: ColumnType::Integer }
}

const fn double(name: &'static str) -> Column {
    Column { name, of: ColumnType::Double }
}

const fn text(name: &'static str) -> Column {
    Column { name, of: ColumnType::Text }
}

const fn on(name: &'static str, columns: &'static str) -> Index {
    Index { name, key: IndexKey::Columns(columns) }
}

const fn sky(name: &'static str) -> Index {
    Index { name, key: IndexKey::Sky { ra: "ra", dec: "dec", cell: "cell" } }
}

/// Where the camera points.
pub const FIELD: Table = Table {
    name: "ptffield",
    columns: &[int("id"), double("ra"), double("dec")],
    primary: Some("id"),
    indexes: &[],
};

/// The reference image of a CCD of a field.
pub const DEEP_REF: Table = Table {
    name: "deep_ref",
    columns: &[int("id"), int("ptffield"), int("ccdid"), int("images"), double("lmt_mg"), double("seeing")],
    primary: Some("id"),
    indexes: &[],
};

/// A new image of a CCD less its reference.
pub const SUBTRACTION: Table = Table {
    name: "subtraction",
    columns: &[
        big("id"),
        int("ptffield"),
        int("ccdid"),
        double("ujd"),
        text("filter"),
        int("deep_ref_id"),
        double("sub_zp"),
        double("lmt_mg_new"),
        double("seeing_new"),
        double("ra"),
        double("dec"),
        double("ra_ll"),
        double("dec_ll"),
        double("ra_ul"),
        double("dec_ul"),
        double("ra_ur"),
        double("dec_ur"),
        double("ra_lr"),
        double("dec_lr"),
        big("cell"),
    ],
    primary: Some("id"),
    indexes: &[sky("subtraction_sky"), on("subtraction_field", "ptffield, ccdid")],
};

/// Something in a subtraction.
pub const CANDIDATE: Table = Table {
    name: "candidate",
    columns: &[
        big("id"),
        big("sub_id"),
        double("ra"),
        double("dec"),
        double("mag"),
        double("mag_err"),
        double("flux"),
        double("flux_err"),
        double("a_image"),
        double("b_image"),
        double("fwhm"),
        double("x_image"),
        double("y_image"),
        int("flag"),
        int("pos_sub"),
        big("cell"),
    ],
    primary: Some("id"),
    indexes: &[sky("candidate_sky"), on("candidate_sub", "sub_id")],
};

/// The score of a candidate: 0 is an artefact of the image, 1 is real.
pub const RB_CLASSIFIER: Table = Table {
    name: "rb_classifier",
    columns: &[big("candidate_id"), double("realbogus")],
    primary: Some("candidate_id"),
    indexes: &[],
};

/// A transient with a name.
pub const NAME: Table = Table {
    name: "ptfname",
    columns: &[
        int("id"),
        text("ptfname"),
        big("candidate_id"),
        big("sub_id"),
        int("night"),
        text("type"),
        double("ra"),
        double("dec"),
    ],
    primary: Some("id"),
    indexes: &[on("ptfname_night", "night"), on("ptfname_name", "ptfname")],
};

/// The HEALPix ranges of a name's cone, ends included.
pub const NAME_RANGE: Table = Table {
    name: "ptfname_range",
    columns: &[int("ptfname_id"), big("lo"), big("hi")],
    primary: None,
    indexes: &[on("ptfname_range_name", "ptfname_id")],
};

/// All tables in the order of loading.
pub const TABLES: [Table; 7] = [FIELD, DEEP_REF, SUBTRACTION, CANDIDATE, RB_CLASSIFIER, NAME, NAME_RANGE];
