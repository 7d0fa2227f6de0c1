//! Keys of a terminal, from the bytes that it sends. Pure.

/// A key that means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TerminalKey {
    Char(char),
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Backspace,
    Escape,
}

/// What follows the escape byte for keys without a character. Terminals differ in the form of the
/// arrows, of Home and of End.
const SEQUENCES: [(&[u8], TerminalKey); 18] = [
    (b"[A", TerminalKey::Up),
    (b"OA", TerminalKey::Up),
    (b"[B", TerminalKey::Down),
    (b"OB", TerminalKey::Down),
    (b"[C", TerminalKey::Right),
    (b"OC", TerminalKey::Right),
    (b"[D", TerminalKey::Left),
    (b"OD", TerminalKey::Left),
    (b"[5~", TerminalKey::PageUp),
    (b"[6~", TerminalKey::PageDown),
    (b"[H", TerminalKey::Home),
    (b"OH", TerminalKey::Home),
    (b"[1~", TerminalKey::Home),
    (b"[7~", TerminalKey::Home),
    (b"[F", TerminalKey::End),
    (b"OF", TerminalKey::End),
    (b"[4~", TerminalKey::End),
    (b"[8~", TerminalKey::End),
];

const ESCAPE: u8 = 0x1b;

/// The keys of these bytes. A sequence that means nothing here is passed over.
pub(super) fn keys(mut bytes: &[u8]) -> Vec<TerminalKey> {
    let mut keys = Vec::new();
    while let Some((first, rest)) = bytes.split_first() {
        let (key, length) = match first {
            &ESCAPE => after_escape(rest),
            b'\r' | b'\n' => (Some(TerminalKey::Enter), 0),
            0x08 | 0x7f => (Some(TerminalKey::Backspace), 0),
            _ => character(bytes),
        };
        keys.extend(key);
        bytes = &rest[length.min(rest.len())..];
    }
    keys
}

/// Does the last key of these bytes go on in what the terminal sends next?
pub(super) fn is_cut(bytes: &[u8]) -> bool {
    let Some(start) = bytes.iter().rposition(|byte| *byte == ESCAPE) else { return false };
    match &bytes[start + 1..] {
        [] | [b'O' | b'['] => true,
        [b'[', rest @ ..] => rest.iter().all(|byte| !is_final(*byte)),
        _ => false,
    }
}

fn is_final(byte: u8) -> bool {
    (0x40..=0x7e).contains(&byte)
}

fn after_escape(rest: &[u8]) -> (Option<TerminalKey>, usize) {
    if let Some((sequence, key)) = SEQUENCES.iter().find(|(sequence, _)| rest.starts_with(sequence)) {
        return (Some(*key), sequence.len());
    }
    match rest {
        [b'[', parameters @ ..] => {
            let length = parameters.iter().position(|byte| is_final(*byte)).map_or(rest.len(), |at| at + 2);
            (None, length)
        }
        [b'O', ..] => (None, 2),
        _ => (Some(TerminalKey::Escape), 0),
    }
}

/// A character in UTF-8, and how many bytes follow its first.
fn character(bytes: &[u8]) -> (Option<TerminalKey>, usize) {
    let length = match bytes[0] {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    };
    let text = bytes.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok());
    let character = text.and_then(|text| text.chars().next()).filter(|character| !character.is_control());
    (character.map(TerminalKey::Char), if character.is_some() { length - 1 } else { 0 })
}

#[cfg(test)]
mod tests {
    //! Hazard (corrupt input): bytes that are no key end the program, or are taken for another key.
    use super::*;

    #[test]
    fn both_forms_of_a_key_are_known_and_others_passed_over() {
        assert_eq!(
            keys(b"\x1b[A\x1bOBj\x1b[6~"),
            [TerminalKey::Up, TerminalKey::Down, TerminalKey::Char('j'), TerminalKey::PageDown]
        );
        assert_eq!(
            keys(b"\x1b[1;5Ax\x1b[200~q"),
            [TerminalKey::Char('x'), TerminalKey::Char('q')],
            "with Ctrl, and a paste"
        );
        assert_eq!(
            keys("\u{1b}\r\x7fä€".as_bytes()),
            [
                TerminalKey::Escape,
                TerminalKey::Enter,
                TerminalKey::Backspace,
                TerminalKey::Char('ä'),
                TerminalKey::Char('€')
            ]
        );
        assert_eq!(keys(b"\xff\xe2\x82\x01"), []);
    }

    #[test]
    fn a_sequence_may_come_in_two_parts() {
        let cut: [&[u8]; 4] = [b"\x1b", b"x\x1b[", b"\x1bO", b"\x1b[1;5"];
        assert!(cut.iter().all(|bytes| is_cut(bytes)));
        let whole: [&[u8]; 4] = [b"", b"q", b"\x1b[A", b"\x1bq"];
        assert!(!whole.iter().any(|bytes| is_cut(bytes)));
    }

    #[test]
    fn no_bytes_end_it() {
        for first in 0..=255_u8 {
            for second in 0..=255_u8 {
                for bytes in [[first, second, 0x1b], [0x1b, first, second], [0x1b, b'[', first]] {
                    let _ = (keys(&bytes), is_cut(&bytes));
                }
            }
        }
    }
}
