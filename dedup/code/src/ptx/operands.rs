//! The operands of an instruction.

use super::lex::Token;
use super::syntax::PtxOperand;

/// All of them. `None`: a form that is not known.
pub(super) fn operands<'a>(tokens: &[Token<'a>]) -> Option<Vec<PtxOperand<'a>>> {
    let mut rest = UnreadTokens(tokens, DEPTH);
    let operands = rest.list("")?;
    rest.0.is_empty().then_some(operands)
}

/// No instruction nests its operands deeper: a list of vectors of signed numbers.
const DEPTH: u32 = 8;

/// The tokens that are not read yet, and how much deeper an operand may nest.
struct UnreadTokens<'t, 'a>(&'t [Token<'a>], u32);

impl<'a> UnreadTokens<'_, 'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first.text)
    }

    fn takes(&mut self, text: &str) -> bool {
        let is_there = self.0.first().is_some_and(|token| token.is(text));
        if is_there {
            self.next();
        }
        is_there
    }

    /// Operands with commas between them, up to a closing mark.
    fn list(&mut self, close: &str) -> Option<Vec<PtxOperand<'a>>> {
        let mut operands = Vec::new();
        loop {
            if self.0.is_empty() && close.is_empty() || self.takes(close) {
                return Some(operands);
            }
            let operand = self.operand()?;
            // A second destination, `%r1|%p1`.
            operands.push(match self.takes("|") {
                true => PtxOperand::List(vec![operand, self.operand()?]),
                false => operand,
            });
            let _ = self.takes(",");
        }
    }

    fn operand(&mut self) -> Option<PtxOperand<'a>> {
        self.1 = self.1.checked_sub(1)?;
        let operand = self.operand_inside();
        self.1 += 1;
        operand
    }

    fn operand_inside(&mut self) -> Option<PtxOperand<'a>> {
        match self.next()? {
            "{" => self.list("}").map(PtxOperand::List),
            "(" => self.list(")").map(PtxOperand::List),
            "[" => self.address(),
            "-" => match self.operand()? {
                PtxOperand::Number(number) => Some(PtxOperand::Number(number.wrapping_neg())),
                name => Some(name),
            },
            "!" | "~" => self.operand(),
            text => word(text),
        }
    }

    /// `[a]`, `[a+8]`, `[a+-8]`, `[map, {x, y}]`.
    fn address(&mut self) -> Option<PtxOperand<'a>> {
        let mut parts = vec![self.operand()?];
        let mut added = 0_i64;
        loop {
            match self.next()? {
                "]" => return Some(PtxOperand::Address(parts, added)),
                "," => parts.push(self.operand()?),
                "+" => match self.operand()? {
                    PtxOperand::Number(number) => added = added.wrapping_add(number as i64),
                    name => parts.push(name),
                },
                _ => return None,
            }
        }
    }
}

/// A name or a number. A part of a vector (`%v.x`) is the vector.
fn word(text: &str) -> Option<PtxOperand<'_>> {
    let first = text.chars().next()?;
    if first.is_ascii_digit() {
        return number(text).map(PtxOperand::Number);
    }
    let is_name = first.is_ascii_alphabetic() || matches!(first, '_' | '$' | '%');
    is_name.then_some(PtxOperand::Name(text))
}

/// The bits of a number. `None`: a form that is not known.
fn number(text: &str) -> Option<u64> {
    let text = text.strip_suffix('U').unwrap_or(text);
    let radix = |digits: &str, radix| u64::from_str_radix(digits, radix).ok();
    match text.get(..2) {
        Some("0x" | "0X") => radix(&text[2..], 16),
        Some("0b" | "0B") => radix(&text[2..], 2),
        // The bits of a float, which is no address.
        Some("0f" | "0F" | "0d" | "0D") => radix(&text[2..], 16).map(|_| 0),
        _ if text.contains('.') => text.parse::<f64>().ok().map(|_| 0),
        _ if text.len() > 1 && text.starts_with('0') => radix(&text[1..], 8),
        _ => text.parse().ok(),
    }
}
