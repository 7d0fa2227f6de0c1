//! Kept copies: idle handles of the host that still have the bytes that a handle of the device came
//! with, and the fingerprints of these bytes.
//!
//! Invariant: a record stands only while its idle handle is idle, so nothing has written the handle
//! since. Whether the device's bytes are still the same is not known here: their fingerprints tell.
//! A record is pending until it has fingerprints, and nothing may rely on it before. No plan has
//! taken the handle of a pending record since the bytes came: its fingerprints may be taken beside
//! the copies of moves.

use std::collections::BTreeMap;
use std::ops::Range;

use wm_driver::KeyedFingerprint;
use wm_driver::gpu::FINGERPRINTED_BYTES;

use super::keys::{HandleKey, KeySet};

/// Names a record. It is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeptNumber(u64);

/// The bytes that an idle handle has of another one.
#[derive(Debug)]
pub(crate) struct KeptCopy {
    pub(crate) number: KeptNumber,
    /// The handle that the bytes came to.
    of: HandleKey,
    /// The ranges that were copied, from the handle's begin, in order and apart.
    parts: Vec<Range<u64>>,
    /// Of the first chunks of the handle, or of all; empty while they are not known.
    prints: Vec<KeyedFingerprint>,
}

/// All records of a ledger.
#[derive(Debug, Default)]
pub(crate) struct KeptCopies {
    /// By the idle handle.
    copies: BTreeMap<HandleKey, KeptCopy>,
    /// The idle handle of each handle that has one.
    kept_for: BTreeMap<HandleKey, HandleKey>,
    /// The idle handles of all records.
    idle: KeySet,
    /// The same, by the age of the records.
    by_age: BTreeMap<KeptNumber, HandleKey>,
    /// Those of records without fingerprints.
    pending: BTreeMap<KeptNumber, HandleKey>,
    last: u64,
}

impl KeptCopy {
    /// The ranges of `parts` whose bytes the copy does not have, where the handle's chunks have the
    /// fingerprints `now`. All in bytes from the handle's begin; `parts` are in order and apart.
    pub(crate) fn stale(&self, parts: &[Range<u64>], now: &[KeyedFingerprint]) -> Vec<Range<u64>> {
        let mut stale: Vec<Range<u64>> = Vec::new();
        for part in parts {
            let mut at = part.start;
            while at < part.end {
                let (is_had, end) = self.state_at(at, now);
                let end = end.min(part.end);
                match stale.last_mut().filter(|last| last.end == at) {
                    _ if is_had => {}
                    Some(last) => last.end = end,
                    None => stale.push(at..end),
                }
                at = end;
            }
        }
        stale
    }

    /// Has the copy the byte there, and up to where is the answer the same?
    fn state_at(&self, at: u64, now: &[KeyedFingerprint]) -> (bool, u64) {
        let chunk = at / FINGERPRINTED_BYTES;
        let chunk_end = (chunk + 1) * FINGERPRINTED_BYTES;
        let (before, after) = (self.prints.get(chunk as usize), now.get(chunk as usize));
        if before.is_none() || before != after {
            return (false, chunk_end);
        }
        match self.parts.iter().find(|part| at < part.end) {
            Some(part) if part.start <= at => (true, chunk_end.min(part.end)),
            Some(part) => (false, chunk_end.min(part.start)),
            None => (false, chunk_end),
        }
    }
}

impl KeptCopies {
    /// An idle handle has the bytes of another one. The fingerprints are to be noted before
    /// anything can write the bytes of either.
    pub(super) fn keep(&mut self, idle: HandleKey, of: HandleKey, parts: Vec<Range<u64>>) {
        self.forget(idle);
        self.forget(of);
        self.last += 1;
        let number = KeptNumber(self.last);
        self.copies.insert(idle, KeptCopy { number, of, parts, prints: Vec::new() });
        self.kept_for.insert(of, idle);
        self.idle.insert(idle);
        self.by_age.insert(number, idle);
        self.pending.insert(number, idle);
    }

    /// Forgets the record of a handle, idle or not.
    pub(super) fn forget(&mut self, key: HandleKey) {
        let idle = self.kept_for.remove(&key).unwrap_or(key);
        if let Some(copy) = self.copies.remove(&idle) {
            self.kept_for.remove(&copy.of);
            self.idle.remove(idle);
            self.by_age.remove(&copy.number);
            self.pending.remove(&copy.number);
        }
    }

    /// Notes the fingerprints of the first chunks of a handle, once: what has none by then is
    /// copied.
    pub(super) fn note(&mut self, number: KeptNumber, prints: Vec<KeyedFingerprint>) {
        let idle = self.pending.remove(&number);
        if let Some(copy) = idle.and_then(|idle| self.copies.get_mut(&idle)) {
            copy.prints = prints;
        }
    }

    /// Records without fingerprints, and the handles that have the bytes.
    pub(super) fn pending(&self) -> impl Iterator<Item = (KeptNumber, HandleKey)> {
        self.pending.iter().filter_map(|(number, idle)| Some((*number, self.copies.get(idle)?.of)))
    }

    /// A plan takes a handle: copies may use it until after the plan has let it go.
    pub(super) fn take(&mut self, of: HandleKey) {
        let is_pending = |idle: &HandleKey| {
            self.copies.get(idle).is_some_and(|copy| self.pending.contains_key(&copy.number))
        };
        if self.kept_for.get(&of).is_some_and(is_pending) {
            self.forget(of);
        }
    }

    pub(super) fn forget_pending(&mut self) {
        let pending: Vec<HandleKey> = self.pending().map(|(_, of)| of).collect();
        pending.into_iter().for_each(|of| self.forget(of));
    }

    /// The idle handle with the bytes that a handle came with, and its record.
    pub(crate) fn of(&self, key: HandleKey) -> Option<(HandleKey, &KeptCopy)> {
        let idle = self.kept_for.get(&key)?;
        self.copies.get(idle).filter(|copy| !copy.prints.is_empty()).map(|copy| (*idle, copy))
    }

    /// The idle handles with the bytes of others.
    pub(crate) fn idle(&self) -> &KeySet {
        &self.idle
    }

    /// The same, in the order in which they became so.
    pub(crate) fn by_age(&self) -> impl DoubleEndedIterator<Item = HandleKey> {
        self.by_age.values().copied()
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a stale copy is used after its handle was used again, or for bytes
    //! that it does not have.
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const CHUNK: u64 = FINGERPRINTED_BYTES;
    const KEYS: u32 = 6;

    #[derive(Debug, Clone)]
    enum Change {
        Keep {
            idle: u32,
            of: u32,
        },
        Forget(u32),
        Take(u32),
        /// Of the record that was made so many records ago.
        Note {
            ago: u64,
            print: u64,
        },
        ForgetPending,
    }

    fn change() -> impl Strategy<Value = Change> {
        let key = || 0..KEYS;
        prop_oneof![
            4 => (key(), key()).prop_map(|(idle, of)| Change::Keep { idle, of }),
            3 => key().prop_map(Change::Forget),
            2 => key().prop_map(Change::Take),
            4 => (0..4_u64, any::<u64>()).prop_map(|(ago, print)| Change::Note { ago, print }),
            1 => Just(Change::ForgetPending),
        ]
    }

    /// The records as a list: number, idle handle, the other one, its fingerprint.
    type Listed = Vec<(u64, u32, u32, Option<u64>)>;

    fn apply(list: &mut Listed, last: &mut u64, change: &Change) {
        let forget = |list: &mut Listed, key| list.retain(|(_, idle, of, _)| *idle != key && *of != key);
        match *change {
            Change::Keep { idle, of } => {
                forget(list, idle);
                forget(list, of);
                *last += 1;
                list.push((*last, idle, of, None));
            }
            Change::Forget(key) => forget(list, key),
            Change::Take(key) => list.retain(|(_, _, of, print)| *of != key || print.is_some()),
            Change::Note { ago, print } => list
                .iter_mut()
                .filter(|(number, .., noted)| number + ago == *last && noted.is_none())
                .for_each(|(.., noted)| *noted = Some(print)),
            Change::ForgetPending => list.retain(|(.., print)| print.is_some()),
        }
    }

    proptest! {
        #[test]
        fn a_record_stands_until_either_handle_changes(changes in prop::collection::vec(change(), 1..200)) {
            let (mut copies, mut list, mut last) = (KeptCopies::default(), Listed::new(), 0);
            for change in changes {
                // A handle is not its own copy.
                if matches!(change, Change::Keep { idle, of } if idle == of) {
                    continue;
                }
                match change {
                    Change::Keep { idle, of } => copies.keep(HandleKey(idle), HandleKey(of), Vec::new()),
                    Change::Forget(key) => copies.forget(HandleKey(key)),
                    Change::Take(key) => copies.take(HandleKey(key)),
                    Change::Note { ago, print } => {
                        let number = KeptNumber(copies.last.wrapping_sub(ago));
                        copies.note(number, vec![KeyedFingerprint([print; 2])]);
                    }
                    Change::ForgetPending => copies.forget_pending(),
                }
                apply(&mut list, &mut last, &change);
                let pending: Vec<_> = list.iter().filter(|(.., print)| print.is_none()).collect();
                prop_assert_eq!(copies.pending().count(), pending.len());
                for key in 0..KEYS {
                    let of = list.iter().find(|(_, _, of, print)| *of == key && print.is_some());
                    let found = copies.of(HandleKey(key)).map(|(idle, copy)| (copy.number.0, idle, copy.prints[0].0[0]));
                    let expected = of.map(|(number, idle, _, print)| (*number, HandleKey(*idle), print.unwrap_or(0)));
                    prop_assert_eq!(found, expected);
                    let is_idle = list.iter().any(|(_, idle, ..)| *idle == key);
                    prop_assert_eq!(copies.idle().iter().any(|idle| idle == HandleKey(key)), is_idle);
                }
                let mut by_age: Vec<_> = list.iter().map(|(number, idle, ..)| (*number, HandleKey(*idle))).collect();
                by_age.sort_unstable();
                prop_assert!(copies.by_age().eq(by_age.into_iter().map(|(_, idle)| idle)));
            }
        }

        /// Byte for byte, in units of a quarter of a chunk: what is not stale was copied, and its
        /// chunk has its fingerprint still; what is stale is of the parts asked for.
        #[test]
        fn what_is_not_stale_is_what_the_copy_has(
            had in prop::collection::vec(any::<bool>(), 16),
            wanted in prop::collection::vec(any::<bool>(), 16),
            before in prop::collection::vec(0..2_u64, 4),
            now in prop::collection::vec(0..2_u64, 0..5),
        ) {
            const UNIT: u64 = CHUNK / 4;
            let ranges = |units: &[bool]| {
                let mut ranges: Vec<Range<u64>> = Vec::new();
                for (at, _) in units.iter().enumerate().filter(|(_, is)| **is) {
                    let start = at as u64 * UNIT;
                    match ranges.last_mut().filter(|last| last.end == start && at % 3 != 0) {
                        Some(last) => last.end += UNIT,
                        None => ranges.push(start..start + UNIT),
                    }
                }
                ranges
            };
            let prints = |of: &[u64]| of.iter().map(|one| KeyedFingerprint([*one; 2])).collect::<Vec<_>>();
            let copy = KeptCopy { number: KeptNumber(1), of: HandleKey(0), parts: ranges(&had), prints: prints(&before) };
            let stale = copy.stale(&ranges(&wanted), &prints(&now));
            let mut found: BTreeMap<u64, usize> = BTreeMap::new();
            for range in &stale {
                prop_assert!(range.start < range.end && range.start % UNIT == 0 && range.end % UNIT == 0);
                (range.start / UNIT..range.end / UNIT).for_each(|unit| *found.entry(unit).or_default() += 1);
            }
            for unit in 0..16_usize {
                let is_same = now.get(unit / 4) == Some(&before[unit / 4]);
                let due = usize::from(wanted[unit] && !(had[unit] && is_same));
                prop_assert_eq!(found.get(&(unit as u64)).copied().unwrap_or(0), due, "unit {}", unit);
            }
            prop_assert!(stale.windows(2).all(|two| two[0].end <= two[1].start));
        }
    }
}
