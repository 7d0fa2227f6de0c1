//! Hazard: contents that programs really have, such as small floats, zeros and repeated rows, get
//! the same fingerprint more often than chance says, or a change of one bit is not seen: then a
//! writer counts as a reader.

use std::collections::BTreeSet;

use super::*;
use crate::chunk::CHUNK_BYTES;

/// Bytes of a chunk whose words `value` gives.
fn chunk(value: impl FnMut(u32) -> u32) -> Vec<u8> {
    (0..CHUNK_BYTES as u32 / 4).map(value).flat_map(u32::to_le_bytes).collect()
}

/// Words like those of fine-tuned weights: bf16 of small numbers around 0, two a word.
fn weights() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut weight = || (random.f32() - 0.5).to_bits() >> 16;
    chunk(|_| weight() << 16 | weight())
}

/// Contents that a program may have in its chunks.
fn contents() -> [Vec<u8>; 4] {
    [chunk(|_| 0), chunk(|_| u32::MAX), chunk(|index| index), weights()]
}

#[test]
fn the_function_is_what_it_was() {
    assert_eq!(Fingerprint::of(&[]), Fingerprint(92412837604872262544500664113232037301));
    assert_eq!(Fingerprint::of(b"abc"), Fingerprint(238492613168756062407394672061461159713));
    assert_eq!(Fingerprint::of(&chunk(|index| index)), Fingerprint(72041039810767998116413554201417702612));
}

#[test]
fn each_bit_counts() {
    for mut bytes in contents() {
        let before = Fingerprint::of(&bytes);
        let mut seen = BTreeSet::from([before]);
        let places = (0..CHUNK_BYTES as usize).step_by(CHUNK_BYTES as usize / 61);
        for (byte, bit) in places.chain([CHUNK_BYTES as usize - 1]).zip((0..8).cycle()) {
            bytes[byte] ^= 1 << bit;
            let changed = Fingerprint::of(&bytes);
            assert!(seen.insert(changed), "bit {bit} of byte {byte}");
            let flipped = (changed.0 ^ before.0).count_ones();
            assert!((30..98).contains(&flipped), "bit {bit} of byte {byte} flips {flipped} bits");
            bytes[byte] ^= 1 << bit;
        }
    }
}

/// Signs are the highest bits of words, which a multiplication carries nowhere: two or three of
/// them, in any words of a column or a row.
#[test]
fn signs_do_not_cancel() {
    let (mut contents, mut prints) = (BTreeSet::new(), BTreeSet::new());
    for other in [4, 8, 12, 16, 32, ROW_BYTES, ROW_BYTES + 4, ROW_BYTES + 8, ROW_BYTES + 12, 2 * ROW_BYTES] {
        for signs in [[0x80_u8, 0x80], [0x80, 0x00], [0x00, 0x80]] {
            let mut bytes = vec![0; 8 * ROW_BYTES];
            bytes[ROW_BYTES + 3] = 0x80;
            bytes[ROW_BYTES + other + 3] = signs[0];
            bytes[ROW_BYTES + other + 7] = signs[1];
            prints.insert(Fingerprint::of(&bytes));
            contents.insert(bytes);
        }
    }
    assert_eq!(prints.len(), contents.len());
}

#[test]
fn words_that_change_places_count() {
    let bytes = weights();
    let mut seen = BTreeSet::from([Fingerprint::of(&bytes)]);
    let mut random = fastrand::Rng::with_seed(2);
    for distance in [4, 8, 16, 32, 16 * 256, ROW_BYTES, 2 * ROW_BYTES, 64 * ROW_BYTES] {
        let (mut swapped, size) = (bytes.clone(), distance.min(16));
        let first = random.usize(..(bytes.len() - distance - size) / 16) * 16;
        let [one, other] = [first, first + distance].map(|at| bytes[at..at + size].to_vec());
        swapped[first..first + size].copy_from_slice(&other);
        swapped[first + distance..first + distance + size].copy_from_slice(&one);
        assert!(seen.insert(Fingerprint::of(&swapped)), "{distance} bytes apart");
    }
    for by in [16, ROW_BYTES] {
        let mut rotated = bytes.clone();
        rotated.rotate_left(by);
        assert!(seen.insert(Fingerprint::of(&rotated)), "rotated by {by}");
    }
}

#[test]
fn the_length_counts() {
    let lengths = [0, 1, 7, 8, 9, 15, 16, 17, ROW_BYTES - 1, ROW_BYTES, ROW_BYTES + 1, 2 * ROW_BYTES];
    let prints: BTreeSet<_> = lengths.map(|length| Fingerprint::of(&vec![0; length])).into();
    assert_eq!(prints.len(), lengths.len());
}

/// Contents that differ by little: fingerprints must be spread as if drawn, in each byte of them.
#[test]
fn similar_contents_spread_over_every_byte() {
    const COUNT: usize = 4096;
    let mut bytes = vec![0; 2 * ROW_BYTES];
    for place in [0, 8, ROW_BYTES - 16, ROW_BYTES + 4] {
        let mut buckets = [[0_u32; 256]; 16];
        for value in 0..COUNT as u32 {
            bytes[place..place + 4].copy_from_slice(&(value << 16).to_le_bytes());
            let print = Fingerprint::of(&bytes).0.to_le_bytes();
            print.iter().zip(&mut buckets).for_each(|(byte, bucket)| bucket[usize::from(*byte)] += 1);
        }
        for (byte, bucket) in buckets.iter().enumerate() {
            let expected = COUNT as f64 / 256.0;
            let chi: f64 = bucket.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
            // 255 degrees of freedom: mean 255, deviation 22.6.
            assert!((140.0..370.0).contains(&chi), "place {place}, byte {byte}: chi squared {chi}");
        }
        bytes.fill(0);
    }
}

/// A difference in a word and any of few bits in the next word of the column: none may undo it.
#[test]
fn the_next_word_does_not_undo_a_bit() {
    let absorbed = |words: [(u64, u64); 2]| {
        let mut state = ColumnState::beginning(5);
        words.iter().for_each(|(x, y)| state.absorb(*x, *y));
        (state.a, state.b)
    };
    let halves = |bit: u32| if bit < 64 { (1_u64 << bit, 0) } else { (0, 1_u64 << (bit - 64)) };
    let zero = absorbed([(0, 0); 2]);
    for first in 0..128 {
        for second in 0..128 {
            for third in 0..second {
                let (x, y) = (halves(second), halves(third));
                assert_ne!(
                    absorbed([halves(first), (x.0 | y.0, x.1 | y.1)]),
                    zero,
                    "{first} {second} {third}"
                );
            }
        }
    }
}
