//! The bytes of writers in a file: a head, then records of one size, each with a checksum. Numbers
//! are little-endian.
//!
//! | bytes of a record | |
//! |---|---|
//! | 0..16 | key of the function |
//! | 16..20 | offset of the parameter |
//! | 20..24 | day |
//! | 24..32 | checksum of the 24 bytes before it, SipHash-1-3 under a key that names this format |
//!
//! A reader believes only records with their checksum, so a damaged file yields no writer that was
//! not written. A change of the format must change [`HEAD`] and the key with it.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::known_writers::KnownWriters;
use crate::readers::{FunctionKey, ParameterKey};

pub(super) const HEAD: [u8; 16] = *b"wmshim writers 1";
pub(super) const RECORD_BYTES: usize = 32;
const CHECKED_BYTES: usize = 24;

/// Of a whole file.
pub(super) fn encode(writers: &KnownWriters) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD.len() + writers.len() * RECORD_BYTES);
    bytes.extend(HEAD);
    for (parameter, day) in writers.iter() {
        let start = bytes.len();
        bytes.extend(parameter.function.0.to_le_bytes());
        [parameter.offset, day].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        let checksum = checksum(&bytes[start..]);
        bytes.extend(checksum.to_le_bytes());
    }
    bytes
}

/// The writers of a file that can be believed. A file with another head has none.
pub(super) fn decode(bytes: &[u8]) -> KnownWriters {
    let mut writers = KnownWriters::default();
    let records = bytes.strip_prefix(&HEAD).unwrap_or_default().chunks_exact(RECORD_BYTES);
    for (parameter, day) in records.filter_map(record) {
        writers.insert(parameter, day);
    }
    writers
}

fn record(bytes: &[u8]) -> Option<(ParameterKey, u32)> {
    let (checked, found) = bytes.split_at_checked(CHECKED_BYTES)?;
    if *found != checksum(checked).to_le_bytes() {
        return None;
    }
    let (function, numbers) = checked.split_first_chunk()?;
    let number = |at: usize| Some(u32::from_le_bytes(*numbers.get(4 * at..)?.first_chunk()?));
    let (function, offset) = (FunctionKey(u128::from_le_bytes(*function)), number(0)?);
    Some((ParameterKey { function, offset }, number(1)?))
}

fn checksum(bytes: &[u8]) -> u64 {
    let [low, high] =
        [0, 8].map(|at| HEAD[at..at + 8].first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
    let mut hasher = SipHasher13::new_with_keys(low, high);
    hasher.write(bytes);
    hasher.finish()
}
