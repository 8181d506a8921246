//! A database as SQL, so that its fixture is text.

use rusqlite::Connection;

/// The statements that make the database again, its application id and its version included.
pub fn dump(connection: &Connection) -> String {
    let number =
        |pragma: &str| -> i64 { connection.pragma_query_value(None, pragma, |row| row.get(0)).unwrap() };
    let mut text = format!(
        "PRAGMA application_id = {};\nPRAGMA user_version = {};\n",
        number("application_id"),
        number("user_version")
    );
    let list = |sql: &str| -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let own = "sql IS NOT NULL AND name NOT LIKE 'sqlite_%'";
    for sql in list(&format!("SELECT sql FROM sqlite_schema WHERE {own} ORDER BY type DESC, rowid")) {
        text += &format!("{sql};\n");
    }
    for table in
        list(&format!("SELECT name FROM sqlite_schema WHERE type = 'table' AND {own} ORDER BY rowid"))
    {
        let columns = list(&format!("SELECT 'quote(\"' || name || '\")' FROM pragma_table_info('{table}')"));
        for row in list(&format!("SELECT {} FROM {table} ORDER BY 1", columns.join(" || ',' || "))) {
            text += &format!("INSERT INTO {table} VALUES({row});\n");
        }
    }
    text
}
