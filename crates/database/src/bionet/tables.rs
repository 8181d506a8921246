//! Tables of the warehouse.

use crate::schema::{Column, ColumnType, Index, IndexKey, Table};

const fn big(name: &'static str) -> Column {
    Column { name, of: ColumnType::BigInt }
}

const fn int(name: &'static str) -> Column {
    Column { name, of: ColumnType::Integer }
}

const fn text(name: &'static str) -> Column {
    Column { name, of: ColumnType::Text }
}

const fn on(name: &'static str, columns: &'static str) -> Index {
    Index { name, key: IndexKey::Columns(columns) }
}

const fn table(
    name: &'static str,
    columns: &'static [Column],
    primary: Option<&'static str>,
    indexes: &'static [Index],
) -> Table {
    Table { name, columns, primary, indexes }
}

/// All tables in the order of loading.
pub const TABLES: [Table; 13] = [
    table("node_type", &[int("id"), text("name")], Some("id"), &[]),
    table(
        "node",
        &[big("id"), int("type_id"), text("kind"), text("name"), int("source_id"), int("taxon")],
        Some("id"),
        &[],
    ),
    table(
        "alias",
        &[text("alias"), big("node_id"), int("source_id")],
        None,
        &[on("alias_alias", "alias"), on("alias_node", "node_id")],
    ),
    table(
        "attribute",
        &[big("entity"), int("name_id"), text("value")],
        None,
        &[on("attribute_entity", "entity")],
    ),
    table(
        "edge",
        &[big("id"), big("from_id"), big("to_id"), int("relation"), int("direction"), int("source_id")],
        Some("id"),
        &[on("edge_from", "from_id"), on("edge_to", "to_id")],
    ),
    table(
        "evidence",
        &[big("edge_id"), big("publication_id")],
        None,
        &[on("evidence_edge", "edge_id"), on("evidence_publication", "publication_id")],
    ),
    table("go_term", &[int("id"), text("name"), int("depth")], Some("id"), &[]),
    table("go_edge", &[int("child"), int("parent")], None, &[on("go_edge_child", "child")]),
    table(
        "annotation",
        &[big("node_id"), int("go_id"), int("code"), int("source_id")],
        None,
        &[on("annotation_node", "node_id"), on("annotation_go", "go_id")],
    ),
    table("pathway", &[int("id"), text("name")], Some("id"), &[]),
    table(
        "pathway_node",
        &[int("pathway_id"), big("node_id")],
        None,
        &[on("pathway_node_pathway", "pathway_id"), on("pathway_node_node", "node_id")],
    ),
    table("publication", &[big("id"), int("year"), text("title")], Some("id"), &[]),
    table(
        "publication_node",
        &[big("publication_id"), big("node_id")],
        None,
        &[on("publication_node_publication", "publication_id"), on("publication_node_node", "node_id")],
    ),
];
