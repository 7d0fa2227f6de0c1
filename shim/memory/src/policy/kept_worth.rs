//! Whether host memory is made so that kept copies can stay.
//!
//! To make memory of the host takes some ten times as long as to carry its bytes over the link: 2
//! to 6 GB/s beside 55. So a kept copy pays only if it is found clean again and again. Where
//! handles that leave lack memory, and other handles' kept copies have it, those are taken, unless
//! copies that were found clean have paid for more memory.
//!
//! A plain value: bytes are told.

/// Bytes that are made before any copy was found clean, so that some can be.
const FIRST: u64 = 512 << 20;

/// Bytes that are found clean for each byte that is made.
const PRICE: u64 = 8;

/// The host memory that was made although kept copies had it.
#[derive(Debug, Default)]
pub(crate) struct KeptWorth {
    made: u64,
}

impl KeptWorth {
    /// May more be made, where so many bytes were found clean so far?
    pub(crate) fn may_make(&self, clean: u64) -> bool {
        self.made < FIRST + clean / PRICE
    }

    /// So many bytes were made.
    pub(crate) fn record(&mut self, bytes: u64) {
        self.made += bytes;
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (latency): a program that writes all its memory pins as much of the host again.
    //! Hazard (silent degradation): one that writes none copies its memory out for ever.
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Memory that was made after so many bytes have left, a part of which is clean as often as it
    /// has a kept copy.
    fn made(left: u64, is_clean: bool) -> u64 {
        let (mut worth, mut clean) = (KeptWorth::default(), 0);
        for _ in 0..left / (20 * MIB) {
            // One byte in so many of a program of 8 GiB has a kept copy.
            let part = worth.made.min(8192 * MIB) / MIB;
            clean += if is_clean { 20 * MIB * part / 8192 } else { 0 };
            if worth.may_make(clean) {
                worth.record(20 * MIB);
            }
        }
        worth.made
    }

    #[test]
    fn where_nothing_is_clean_little_is_made_and_where_all_is_clean_enough_for_all() {
        assert!(made(1 << 40, false) < FIRST + 20 * MIB);
        assert!(made(1 << 40, true) >= 8192 * MIB);
    }
}
