//! Keyed fingerprints of chunks, from the summands that `wm_fingerprint_keyed` writes.

/// Summands of a chunk's fingerprint: the kernel has a block for each.
pub const SECTIONS: usize = 16;

/// 2^61 - 1.
const PRIME: u64 = (1 << 61) - 1;

/// The fingerprint of a chunk: the sums of the first and of the second words of its [`SECTIONS`]
/// summands, modulo 2^61 - 1. Each word is below that.
pub fn of_summands(words: &[u64]) -> [u64; 2] {
    words
        .as_chunks::<2>()
        .0
        .iter()
        .fold([0; 2], |[low, high], [first, second]| [(low + first) % PRIME, (high + second) % PRIME])
}
