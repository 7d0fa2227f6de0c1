//! Fields of a program's answer. Tolerant: an older shim lacks some, and its answer is worth
//! showing all the same. Text of the program reaches a table with its control characters written
//! out.

use serde_json::Value;

use crate::human;

/// Longest text in a line: a path may have as much.
const LONGEST: usize = 200;

/// A list; empty if there is none.
pub(crate) fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A whole number.
pub(crate) fn number(value: &Value, field: &str) -> Option<u64> {
    value.get(field)?.as_u64()
}

/// A text fit for a terminal, or a dash.
pub(crate) fn word(value: &Value, field: &str) -> String {
    human::shortened(value.get(field).and_then(Value::as_str).unwrap_or("-"), LONGEST)
}

/// A name fit for a table, or a dash.
pub(crate) fn name(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).map_or_else(|| "-".to_owned(), human::name)
}
