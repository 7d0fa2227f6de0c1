//! The tokens of a PTX text, each with its line. Comments and the lines of debuggers are left out.

/// A word, a number or a mark, and its line, from one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) line: u32,
}

impl Token<'_> {
    pub(super) fn is(&self, text: &str) -> bool {
        self.text == text
    }
}

/// Directives without a semicolon, which end with their line.
const LINES: [&str; 5] = [".loc", ".file", ".version", ".target", ".address_size"];

/// All tokens. `None`: a comment or a string does not end, or the addresses have not 64 bits.
pub(super) fn tokens(text: &str) -> Option<Vec<Token<'_>>> {
    let mut rest = UnreadText { text, line: 1 };
    let mut tokens = Vec::new();
    while let Some(token) = rest.next()? {
        if LINES.contains(&token.text) {
            let line = rest.rest_of_line();
            if token.is(".address_size") && line.trim() != "64" {
                return None;
            }
        } else {
            tokens.push(token);
        }
    }
    Some(tokens)
}

struct UnreadText<'a> {
    text: &'a str,
    line: u32,
}

impl<'a> UnreadText<'a> {
    /// The next token; within it none at the end, and `None` if the text is damaged.
    fn next(&mut self) -> Option<Option<Token<'a>>> {
        self.skip_blanks()?;
        let Some(first) = self.text.chars().next() else { return Some(None) };
        let line = self.line;
        let bytes = match first {
            '"' => self.text[1..].find('"')? + 2,
            first if is_word(first) => word(self.text),
            first => first.len_utf8(),
        };
        Some(Some(Token { text: self.take(bytes), line }))
    }

    fn skip_blanks(&mut self) -> Option<()> {
        loop {
            let blanks = self.text.len() - self.text.trim_start().len();
            self.take(blanks);
            if self.text.starts_with("//") {
                self.rest_of_line();
            } else if self.text.starts_with("/*") {
                let end = self.text.find("*/")?;
                self.take(end + 2);
            } else {
                return Some(());
            }
        }
    }

    fn rest_of_line(&mut self) -> &'a str {
        self.take(self.text.find('\n').unwrap_or(self.text.len()))
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.text.split_at(bytes);
        self.line += taken.bytes().filter(|byte| *byte == b'\n').count() as u32;
        self.text = rest;
        taken
    }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '$' | '%' | '.' | '@')
}

/// The bytes of the word at the start. Two colons are inside of one (`.shared::cta`); one ends a
/// label.
fn word(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b':' if bytes.get(at + 1) == Some(&b':') => at += 2,
            byte if is_word(char::from(*byte)) && !(at > 0 && *byte == b'@') => at += 1,
            _ => break,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    //! Hazard: a statement is cut at the wrong place, so that a store is not seen.
    use super::*;

    fn texts(text: &str) -> Option<Vec<&str>> {
        tokens(text).map(|tokens| tokens.iter().map(|token| token.text).collect())
    }

    #[test]
    fn a_statement_is_cut_into_its_words() {
        let found =
            texts("@!%p1 st.shared::cta.v2.b32 [%rd1+-8], {%r1, 0f3F800000}; // st\n$L_1: /* ; */ ret;");
        let expected = [
            "@",
            "!",
            "%p1",
            "st.shared::cta.v2.b32",
            "[",
            "%rd1",
            "+",
            "-",
            "8",
            "]",
            ",",
            "{",
            "%r1",
            ",",
            "0f3F800000",
            "}",
            ";",
            "$L_1",
            ":",
            "ret",
            ";",
        ];
        assert_eq!(found.expect("tokens"), expected);
    }

    #[test]
    fn lines_are_counted_and_those_of_debuggers_left_out() {
        let found = tokens(".version 8.2\n.address_size 64\n\n.loc 1 2 3, f $L, inlined_at 1 2 3\nret;")
            .expect("tokens");
        assert_eq!(found, [Token { text: "ret", line: 5 }, Token { text: ";", line: 5 }]);
    }

    #[test]
    fn damage_is_no_text() {
        assert_eq!(
            (texts("/* no end"), texts("\"no end"), texts(".address_size 32\nret;")),
            (None, None, None)
        );
    }
}
