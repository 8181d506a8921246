//! Parameters and results: a value goes in as the type that the server expects, and comes out as one of [`Value`].

use std::error::Error;

use bytes::BytesMut;
use postgres::Row;
use postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::schema::Value;

type Fault = Box<dyn Error + Sync + Send>;

/// A parameter of a statement.
#[derive(Debug)]
pub(super) struct Parameter<'a>(pub(super) &'a Value);

impl ToSql for Parameter<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
        match (self.0, ty) {
            (Value::Integer(value), &Type::INT8) => value.to_sql(ty, out),
            (Value::Integer(value), &Type::INT4) => i32::try_from(*value)?.to_sql(ty, out),
            (Value::Integer(value), &Type::INT2) => i16::try_from(*value)?.to_sql(ty, out),
            (Value::Double(value), &Type::FLOAT8) => value.to_sql(ty, out),
            (Value::Text(value), &Type::TEXT | &Type::VARCHAR | &Type::NAME) => value.to_sql(ty, out),
            (Value::Null, _) => Ok(IsNull::Yes),
            (value, ty) => Err(format!("{value:?} for a parameter of type {ty}").into()),
        }
    }

    // Values are compared with types where they are written, because a parameter's type is known only there.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// The values of a row.
///
/// # Errors
/// A column of a type that [`Value`] has no word for.
pub(super) fn of_row(row: &Row, values: &mut Vec<Value>) -> Result<(), Fault> {
    values.clear();
    for (at, column) in row.columns().iter().enumerate() {
        let value = match *column.type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(at)?.map(Value::Integer),
            Type::INT4 => row.try_get::<_, Option<i32>>(at)?.map(|value| Value::Integer(value.into())),
            Type::INT2 => row.try_get::<_, Option<i16>>(at)?.map(|value| Value::Integer(value.into())),
            Type::FLOAT8 => row.try_get::<_, Option<f64>>(at)?.map(Value::Double),
            Type::TEXT | Type::VARCHAR | Type::NAME => row.try_get::<_, Option<String>>(at)?.map(Value::Text),
            ref other => return Err(format!("column {} has type {other}; cast it", column.name()).into()),
        };
        values.push(value.unwrap_or(Value::Null));
    }
    Ok(())
}
