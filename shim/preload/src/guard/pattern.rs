//! The bytes of a tail, and the damage to them. Pure.
//!
//! No two neighbouring bytes of the pattern are alike, and it repeats only after 251: a kernel's
//! write there shows, be it a constant, zeros, or a copy of other bytes.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use smallvec::SmallVec;
use wm_memory::guard::LONGEST_TAIL;

/// The pattern, as long as the longest tail.
const BYTES: &[u8; LONGEST_TAIL + 1] = &{
    let mut bytes = [0; LONGEST_TAIL + 1];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = ((at % 251) as u8).wrapping_mul(167) ^ 0xa5;
        at += 1;
    }
    bytes
};

/// The pattern's byte at a distance from the end of a block.
pub(super) fn byte(at: usize) -> u8 {
    BYTES[at]
}

/// Bytes of a report.
const SHOWN: usize = 8;

/// How a tail differs from the pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Damage {
    /// First and last byte that differ, counted from the end of the block.
    first: usize,
    last: usize,
    /// How many of those that were checked differ.
    changed: usize,
    compared: usize,
    /// The bytes that stand there now, from the first on.
    found: SmallVec<[u8; SHOWN]>,
}

/// The damage to a tail of `bytes`, if there is any. Allocates nothing.
pub(super) fn damage(tail: &[AtomicU8], bytes: usize) -> Option<Damage> {
    let mut copied = [0; BYTES.len()];
    let count = bytes.min(tail.len()).min(copied.len());
    copied.iter_mut().zip(&tail[..count]).for_each(|(to, from)| *to = from.load(Relaxed));
    let now = &copied[..count];
    let differs = |at: &usize| now[*at] != byte(*at);
    if *now == BYTES[..count] {
        return None;
    }
    let first = (0..now.len()).find(differs)?;
    let last = (first..now.len()).rfind(differs)?;
    let changed = (first..now.len()).filter(differs).count();
    let found = now[first..].iter().take(SHOWN).copied().collect();
    Some(Damage { first, last, changed, compared: now.len(), found })
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last, changed, compared, found } = self;
        write!(
            f,
            "{changed} of {compared} bytes behind its end changed, {first} to {last} bytes past it, now"
        )?;
        found.iter().try_for_each(|byte| write!(f, " {byte:02x}"))?;
        f.write_str(if last + 1 - first > SHOWN { " ..." } else { "" })
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (out-of-bounds access): an overrun that happens to look like the pattern.
    use super::*;

    fn tail(bytes: usize) -> Vec<AtomicU8> {
        (0..bytes).map(|at| AtomicU8::new(byte(at))).collect()
    }

    #[test]
    fn what_was_not_touched_is_whole() {
        assert_eq!(damage(&tail(1023), 1023), None);
    }

    #[test]
    fn one_bit_anywhere_is_seen() {
        for at in 0..1023 {
            let tail = tail(1023);
            tail[at].store(byte(at) ^ 1, Relaxed);
            let damage = damage(&tail, 1023).expect("one bit differs");
            assert_eq!((damage.first, damage.last, damage.changed), (at, at, 1));
        }
    }

    #[test]
    fn two_bytes_of_any_constant_differ_from_it() {
        assert!((0..LONGEST_TAIL).all(|at| byte(at) != byte(at + 1)));
    }

    #[test]
    fn what_lies_behind_the_tail_does_not_count() {
        let tail = tail(600);
        tail[520].store(0, Relaxed);
        assert_eq!(damage(&tail, 520), None);
    }

    #[test]
    fn the_words_say_how_far() {
        let tail = tail(512);
        tail[4..24].iter().for_each(|byte| byte.store(0, Relaxed));
        let words = damage(&tail, 512).expect("differs").to_string();
        assert!(words.contains("20 of 512") && words.contains("4 to 23 bytes past"), "{words}");
    }
}
