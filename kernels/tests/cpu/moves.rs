//! Hazard (wrong result): chunks with other bytes have the same keyed fingerprint, or it depends on
//! the launch shape: memory that the program has written would not be copied off the device.

use wm_abi::CUdeviceptr;
use wm_kernels::fingerprint::{self, SECTIONS};
use wm_kernels::moves::FingerprintKeyed;

use crate::support::{SHAPES, read, run, written};

const ROWS: usize = 128;
const COLUMNS: usize = 1024;
const KEY_WORDS: usize = ROWS * 4 + COLUMNS * 6;
const PRIME: u128 = (1 << 61) - 1;

/// A word of 16 bytes: chunks begin at multiples of its size.
#[repr(align(16))]
#[derive(Clone, Copy)]
struct Pair([u64; 2]);

fn chunk(value: impl Fn(u64) -> u64) -> Vec<Pair> {
    (0..(ROWS * COLUMNS) as u64).map(|word| Pair([value(2 * word), value(2 * word + 1)])).collect()
}

fn key(seed: u64) -> Vec<u64> {
    (0..KEY_WORDS as u64).map(|word| wm_kernels::pattern(seed, word)).collect()
}

/// The definition, with numbers of 128 bits and a remainder instead of folds.
fn defined(chunk: &[Pair], key: &[u64]) -> [u64; 2] {
    [0, 1].map(|half| {
        let mut sum: u128 = 0;
        for column in 0..COLUMNS {
            let mut n: u128 = 0;
            for row in 0..ROWS {
                let Pair([x, y]) = chunk[row * COLUMNS + column];
                let [k, l] = [0, 1].map(|at| key[row * 4 + half * 2 + at]);
                n = n.wrapping_add(u128::from(x.wrapping_add(k)) * u128::from(y.wrapping_add(l)));
            }
            for (at, limb) in [n % (1 << 43), (n >> 43) % (1 << 43), n >> 86].into_iter().enumerate() {
                let m = u128::from(key[ROWS * 4 + column * 6 + half * 3 + at]) % (1 << 61);
                sum = (sum + m * limb % PRIME) % PRIME;
            }
        }
        sum as u64
    })
}

fn on_gpu(addresses: &[CUdeviceptr], key: &[u64], shape: (u32, u32)) -> Vec<[u64; 2]> {
    let mut summands = vec![u64::MAX; 2 * SECTIONS * addresses.len() + 1];
    let (chunks, count) = (read(addresses), addresses.len() as u64);
    run(shape, &FingerprintKeyed { chunks, count, key: read(key), fingerprints: written(&mut summands) });
    assert_eq!(summands.pop(), Some(u64::MAX), "beyond {count} fingerprints");
    summands.chunks(2 * SECTIONS).map(fingerprint::of_summands).collect()
}

/// Zeros, ones, numbers in order and words that look random.
fn chunks() -> [Vec<Pair>; 4] {
    [chunk(|_| 0), chunk(|_| u64::MAX), chunk(|word| word), chunk(|word| wm_kernels::pattern(1, word))]
}

#[test]
fn fingerprints_are_as_defined_whatever_the_launch() {
    let chunks = chunks();
    let addresses: Vec<_> = chunks.iter().map(|chunk| read(chunk)).collect();
    // The prime itself, which is 0, and the largest words are keys like others.
    let keys = [key(3), vec![u64::MAX; KEY_WORDS], vec![(1 << 61) - 1; KEY_WORDS], vec![0; KEY_WORDS]];
    for (number, key) in keys.iter().enumerate() {
        let expected: Vec<_> = chunks.iter().map(|chunk| defined(chunk, key)).collect();
        let shapes = SHAPES.into_iter().chain([(4, 256), (2, 255), (2, 257)]);
        for shape in shapes.take(if number == 0 { usize::MAX } else { 1 }) {
            assert_eq!(on_gpu(&addresses, key, shape), expected, "key {number}, shape {shape:?}");
            assert_eq!(on_gpu(&[], key, shape), [[0; 2]; 0]);
        }
    }
}

#[test]
fn one_bit_anywhere_and_an_exchange_of_words_give_another_fingerprint() {
    let key = key(5);
    let old = chunk(|word| wm_kernels::pattern(2, word));
    let mut new = old.clone();
    let before = on_gpu(&[read(&old)], &key, (1, 256));
    let words = ROWS * COLUMNS;
    for (word, bit) in [(0, 0), (1, 127), (1023, 64), (1024, 63), (words / 2 + 77, 31), (words - 1, 127)] {
        new[word].0[bit / 64] ^= 1 << (bit % 64);
        let after = on_gpu(&[read(&new)], &key, (1, 256));
        assert!(
            after[0][0] != before[0][0] && after[0][1] != before[0][1],
            "bit {bit} of word {word}, in both halves"
        );
        new[word] = old[word];
    }
    for (one, other) in [(0, 1), (0, COLUMNS), (17, words - 1)] {
        new.swap(one, other);
        assert_ne!(on_gpu(&[read(&new)], &key, (1, 256)), before, "words {one} and {other} exchanged");
        new.swap(one, other);
    }
    assert_eq!(on_gpu(&[read(&new)], &key, (1, 256)), before);
}

/// Each word of the key counts: with another one some chunk has another fingerprint.
#[test]
fn the_key_decides() {
    let chunk = chunk(|word| wm_kernels::pattern(4, word));
    let mut other = key(7);
    let before = on_gpu(&[read(&chunk)], &other, (1, 256))[0];
    for (word, half) in [(0, 0), (1, 0), (2, 1), (3, 1), (511, 1), (512, 0), (515, 1), (KEY_WORDS - 1, 1)] {
        other[word] ^= 1 << 33;
        let after = on_gpu(&[read(&chunk)], &other, (1, 256))[0];
        assert_ne!(after[half], before[half], "word {word}");
        assert_eq!(after[1 - half], before[1 - half], "word {word}: the halves are independent");
        other[word] ^= 1 << 33;
    }
}
