//! The fingerprint of bytes, on the CPU: the same as `kernels/cuda/dedup/fingerprint.cu`
//! computes of a chunk on a GPU.
//!
//! Bytes are rows of 1024 words of 16 bytes, and each column of words has a state that absorbs its
//! words in turn; the sum of all states is the fingerprint, so columns can be computed in any order
//! and by any thread. The head of the kernel's file says why that is enough. Stored fingerprints
//! compare only among processes that run the same function: a change of it must change
//! [`FUNCTION`].

use crate::chunk::Fingerprint;

/// The version of the function, for stored and sent fingerprints.
pub const FUNCTION: u32 = 1;

/// Words of a row.
const COLUMNS: usize = 1024;
const ROW_BYTES: usize = COLUMNS * 16;

/// Odd multipliers: 2^64 over the golden ratio, and one of the known good mixers (rrmxmx).
const MULTIPLIERS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];

/// The first and the last words of a state: digits of pi, which no author chose for a purpose.
const SEED: ColumnState = ColumnState { a: 0x243f_6a88_85a3_08d3, b: 0x1319_8a2e_0370_7344 };
const END: ColumnState = ColumnState { a: 0xa409_3822_299f_31d0, b: 0x082e_fa98_ec4e_6c89 };

impl Fingerprint {
    /// Of a memory of these chunks. That of one chunk is the chunk's.
    pub fn of_chunks(chunks: &[Self]) -> Self {
        match chunks {
            [one] => *one,
            all => Self::of(&all.iter().flat_map(|chunk| chunk.0.to_le_bytes()).collect::<Vec<u8>>()),
        }
    }

    /// Of any bytes. Those of a last, incomplete row count as followed by zeros; the length is part
    /// of the fingerprint.
    ///
    /// ```
    /// use wm_dedup::chunk::Fingerprint;
    ///
    /// let weights = vec![0x3c; 4096];
    /// assert_eq!(Fingerprint::of(&weights), Fingerprint::of(&weights.clone()));
    /// assert_ne!(Fingerprint::of(&weights), Fingerprint::of(&weights[..4095]));
    /// ```
    pub fn of(bytes: &[u8]) -> Self {
        let mut states: Vec<ColumnState> = (0..COLUMNS as u64).map(ColumnState::beginning).collect();
        for row in bytes.chunks(ROW_BYTES) {
            for (column, state) in states.iter_mut().enumerate() {
                let rest = row.get(column * 16..).unwrap_or_default();
                state.absorb(word(rest), word(rest.get(8..).unwrap_or_default()));
            }
        }
        let mut sum = ColumnState { a: 0, b: 0 };
        for (column, mut state) in states.into_iter().enumerate() {
            state.finish(bytes.len() as u64, column as u64);
            sum = ColumnState { a: sum.a.wrapping_add(state.a), b: sum.b.wrapping_add(state.b) };
        }
        Self::from_halves(sum.a, sum.b)
    }

    /// As the kernel writes it: the low half, then the high one.
    pub fn from_halves(low: u64, high: u64) -> Self {
        Self(u128::from(high) << 64 | u128::from(low))
    }
}

/// The first eight bytes, as if zeros followed.
fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// Of a column.
#[derive(Debug, Clone, Copy)]
struct ColumnState {
    a: u64,
    b: u64,
}

impl ColumnState {
    fn beginning(column: u64) -> Self {
        let [first, second] = MULTIPLIERS.map(|multiplier| (column + 1).wrapping_mul(multiplier));
        Self { a: SEED.a.wrapping_add(second), b: SEED.b ^ first }
    }

    fn absorb(&mut self, x: u64, y: u64) {
        self.a = fold((self.a ^ x ^ self.b.rotate_left(23)).wrapping_mul(MULTIPLIERS[0]));
        self.b = fold((self.b ^ y ^ self.a).wrapping_mul(MULTIPLIERS[1]));
    }

    fn finish(&mut self, length: u64, column: u64) {
        self.absorb(length, column);
        self.absorb(END.a, END.b);
    }
}

fn fold(value: u64) -> u64 {
    value ^ (value >> 32)
}

#[cfg(test)]
mod tests;
