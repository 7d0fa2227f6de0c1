//! Values as Python's `pickle` reads them, of protocol 2: a JSON value becomes the dict, list, text
//! or number of the same meaning. Each text is written once.

use std::collections::HashMap;

use serde_json::Value;

/// The pickle of a value.
pub(crate) fn pickled(value: &Value) -> Vec<u8> {
    let mut writer = PickleWriter { bytes: vec![0x80, 2], texts: HashMap::new() };
    writer.value(value);
    writer.bytes.push(b'.');
    writer.bytes
}

struct PickleWriter<'a> {
    bytes: Vec<u8>,
    /// The place of each text in the reader's memory.
    texts: HashMap<&'a str, u32>,
}

impl<'a> PickleWriter<'a> {
    fn value(&mut self, value: &'a Value) {
        match value {
            Value::Null => self.bytes.push(b'N'),
            Value::Bool(is) => self.bytes.push(if *is { 0x88 } else { 0x89 }),
            Value::Number(number) => match number.as_i64() {
                Some(small) if i32::try_from(small).is_ok() => self.with(b'J', &(small as i32).to_le_bytes()),
                _ => self.large(number),
            },
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                self.bytes.extend(b"](");
                items.iter().for_each(|item| self.value(item));
                self.bytes.push(b'e');
            }
            Value::Object(fields) => {
                self.bytes.extend(b"}(");
                for (name, field) in fields {
                    self.text(name);
                    self.value(field);
                }
                self.bytes.push(b'u');
            }
        }
    }

    fn with(&mut self, code: u8, argument: &[u8]) {
        self.bytes.push(code);
        self.bytes.extend(argument);
    }

    /// A number of nine bytes, so that its sign is its own; or a fraction.
    fn large(&mut self, number: &serde_json::Number) {
        let whole = number.as_u64().map(i128::from).or_else(|| number.as_i64().map(i128::from));
        match whole {
            Some(whole) => {
                // Readers in JavaScript take a number of up to eight bytes for one of theirs.
                let length = if whole <= i64::MAX.into() { 8 } else { 9 };
                self.with(0x8a, &[length as u8]);
                self.bytes.extend(&whole.to_le_bytes()[..length]);
            }
            None => self.with(b'G', &number.as_f64().unwrap_or(0.0).to_be_bytes()),
        }
    }

    fn text(&mut self, text: &'a str) {
        if let Some(place) = self.texts.get(text) {
            let place = place.to_le_bytes();
            return self.with(b'j', &place);
        }
        let place = self.texts.len() as u32;
        self.with(b'X', &(text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
        self.with(b'r', &place.to_le_bytes());
        self.texts.insert(text, place);
    }
}
