//! Fields of a program's answer. Tolerant: an older shim lacks some, and its answer is worth showing all the same.

use serde_json::Value;

/// A list; empty if there is none.
pub(crate) fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A whole number.
pub(crate) fn number(value: &Value, field: &str) -> Option<u64> {
    value.get(field)?.as_u64()
}

/// A text, or a dash.
pub(crate) fn word(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or("-").to_owned()
}
