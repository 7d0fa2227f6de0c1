//! The bytes of one verdict.

use crate::verdict::{AddressSource, CodeVerdict, Effects, Why, WordSet};

/// No kernel has more words of parameters.
const WORDS: u64 = 1 << 13;

const DECIDED: u64 = 0;

pub(super) fn encode(verdict: &CodeVerdict, bytes: &mut Vec<u8>) {
    match verdict {
        CodeVerdict::Decided(effects) => {
            number(DECIDED, bytes);
            sources(&effects.stores, bytes);
            sources(&effects.reads, bytes);
            words(&effects.escapes, bytes);
        }
        CodeVerdict::Undecided(why) => numbers_of(*why).into_iter().for_each(|part| number(part, bytes)),
    }
}

/// The verdict at the start, and the bytes behind it.
pub(super) fn decode(bytes: &[u8]) -> Option<(CodeVerdict, &[u8])> {
    let mut rest = UnreadBytes(bytes);
    let verdict = match rest.number()? {
        DECIDED => CodeVerdict::Decided(Effects {
            stores: rest.sources()?,
            reads: rest.sources()?,
            escapes: rest.words()?,
        }),
        kind => CodeVerdict::Undecided(why(kind, rest.number()?, rest.number()?)?),
    };
    Some((verdict, rest.0))
}

fn number(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn sources(sources: &[AddressSource], bytes: &mut Vec<u8>) {
    number(sources.len() as u64, bytes);
    for source in sources {
        number(u64::from(source.memory) | u64::from(source.globals) << 1, bytes);
        words(&source.words, bytes);
        words(&source.offsets, bytes);
    }
}

/// Their count, and the distance of each from the one before.
fn words(words: &WordSet, bytes: &mut Vec<u8>) {
    number(words.len() as u64, bytes);
    let mut last = 0;
    for word in words.iter() {
        number(u64::from(word - last), bytes);
        last = word;
    }
}

/// A number of the reason, from one on, and the two numbers in it.
fn numbers_of(why: Why) -> [u64; 3] {
    match why {
        Why::Architecture(sm) => [1, sm.into(), 0],
        Why::Image => [2, 0, 0],
        Why::Bounds => [3, 0, 0],
        Why::Opcode { offset, code } => [4, offset as u64, code.into()],
        Why::Form { offset, code } => [5, offset as u64, code.into()],
        Why::Call { offset } => [6, offset as u64, 0],
        Why::Jump { offset } => [7, offset as u64, 0],
        Why::Address { offset } => [8, offset as u64, 0],
        Why::Text { line } => [9, line as u64, 0],
    }
}

fn why(kind: u64, first: u64, second: u64) -> Option<Why> {
    let (offset, code) = (usize::try_from(first).ok()?, u16::try_from(second).ok()?);
    let found = match kind {
        1 => Why::Architecture(first.try_into().ok()?),
        2 => Why::Image,
        3 => Why::Bounds,
        4 => Why::Opcode { offset, code },
        5 => Why::Form { offset, code },
        6 => Why::Call { offset },
        7 => Why::Jump { offset },
        8 => Why::Address { offset },
        9 => Why::Text { line: offset },
        _ => return None,
    };
    Some(found)
}

struct UnreadBytes<'a>(&'a [u8]);

impl UnreadBytes<'_> {
    fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..63).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// A count of items of one byte at least, so that it is no more than the bytes that are left.
    fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count <= self.0.len()).then_some(count)
    }

    fn sources(&mut self) -> Option<Vec<AddressSource>> {
        (0..self.count()?).map(|_| self.source()).collect()
    }

    fn source(&mut self) -> Option<AddressSource> {
        let flags = self.number().filter(|flags| *flags < 4)?;
        Some(AddressSource {
            words: self.words()?,
            offsets: self.words()?,
            memory: flags & 1 != 0,
            globals: flags & 2 != 0,
        })
    }

    fn words(&mut self) -> Option<WordSet> {
        let mut words = WordSet::new();
        let mut last = 0;
        for _ in 0..self.count()? {
            last = self.number()?.checked_add(last).filter(|word| *word < WORDS)?;
            words.insert(last as u32);
        }
        Some(words)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a verdict of a file is not the one that was written, or damage brings the reader
    //! down.
    use proptest::prelude::*;

    use super::*;

    fn set() -> impl Strategy<Value = WordSet> {
        prop::collection::btree_set(0..WORDS as u32, 0..6).prop_map(|words| words.into_iter().collect())
    }

    fn list() -> impl Strategy<Value = Vec<AddressSource>> {
        let source = (set(), set(), any::<bool>(), any::<bool>());
        let source = source.prop_map(|(words, offsets, memory, globals)| AddressSource {
            words,
            offsets,
            memory,
            globals,
        });
        prop::collection::vec(source, 0..4)
    }

    fn verdict() -> impl Strategy<Value = CodeVerdict> {
        let decided = (list(), list(), set())
            .prop_map(|(stores, reads, escapes)| CodeVerdict::Decided(Effects { stores, reads, escapes }));
        let reason = (1..10_u64, any::<u32>(), any::<u16>());
        let undecided = reason.prop_map(|(kind, first, second)| {
            CodeVerdict::Undecided(why(kind, first.into(), second.into()).expect("a reason"))
        });
        prop_oneof![decided, undecided]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(verdict in verdict(), more in prop::collection::vec(any::<u8>(), 0..9)) {
            let mut bytes = Vec::new();
            encode(&verdict, &mut bytes);
            bytes.extend(&more);
            prop_assert_eq!(decode(&bytes), Some((verdict, &more[..])));
        }

        #[test]
        fn any_bytes_are_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode(&bytes);
        }
    }
}
