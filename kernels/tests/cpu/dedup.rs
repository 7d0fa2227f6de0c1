//! Hazard (wrong result): the GPU and the CPU compute different fingerprints for the same bytes, a
//! fingerprint depends on the launch shape, or chunks that differ compare as equal.

use wm_abi::CUdeviceptr;
use wm_dedup::chunk::{CHUNK_BYTES, Fingerprint};
use wm_kernels::dedup::{CompareChunks, FingerprintChunks};

use crate::support::{SHAPES, launch, read, run, written};

/// A word of 16 bytes: chunks begin at multiples of its size.
#[repr(align(16))]
#[derive(Clone, Copy)]
struct Pair([u64; 2]);

const WORDS: usize = CHUNK_BYTES as usize / size_of::<Pair>();

/// A chunk whose words `value` gives.
fn chunk(value: impl Fn(u64) -> u64) -> Vec<Pair> {
    (0..WORDS as u64).map(|word| Pair([value(2 * word), value(2 * word + 1)])).collect()
}

fn fingerprint(chunk: &[Pair]) -> Fingerprint {
    let bytes: Vec<u8> = chunk.iter().flat_map(|pair| pair.0.map(u64::to_le_bytes)).flatten().collect();
    Fingerprint::of(&bytes)
}

/// Zeros, numbers in order, and words that look random.
fn chunks() -> [Vec<Pair>; 4] {
    [chunk(|_| 0), chunk(|word| word), chunk(|word| wm_kernels::pattern(1, word)), chunk(|_| u64::MAX)]
}

fn on_gpu(addresses: &[CUdeviceptr], shape: (u32, u32)) -> Vec<Fingerprint> {
    let mut fingerprints = vec![u64::MAX; 2 * addresses.len() + 1];
    let (chunks, count) = (read(addresses), addresses.len() as u64);
    run(shape, &FingerprintChunks { chunks, count, fingerprints: written(&mut fingerprints) });
    assert_eq!(fingerprints.pop(), Some(u64::MAX), "beyond {count} fingerprints");
    fingerprints.chunks(2).map(|halves| Fingerprint::from_halves(halves[0], halves[1])).collect()
}

#[test]
fn fingerprints_are_those_of_the_cpu_whatever_the_launch() {
    let chunks = chunks();
    let expected: Vec<_> = chunks.iter().map(|chunk| fingerprint(chunk)).collect();
    let addresses: Vec<_> = chunks.iter().map(|chunk| read(chunk)).collect();
    for shape in SHAPES.into_iter().chain([(4, 256), (2, 255), (2, 257)]) {
        assert_eq!(on_gpu(&addresses, shape), expected, "shape {shape:?}");
        assert_eq!(on_gpu(&[], shape), []);
    }
}

#[test]
fn a_launch_of_three_dimensions_is_one_of_as_many_threads() {
    let chunks = chunks();
    let addresses: Vec<_> = chunks.iter().map(|chunk| read(chunk)).collect();
    let mut fingerprints = vec![0; 8];
    let (chunks, count) = (read(&addresses), 4);
    let arguments = FingerprintChunks { chunks, count, fingerprints: written(&mut fingerprints) };
    launch([2, 1, 3], [4, 8, 2], &arguments).expect("the kernel runs");
    let found: Vec<_> = fingerprints.chunks(2).map(|two| Fingerprint::from_halves(two[0], two[1])).collect();
    assert_eq!(found, on_gpu(&addresses, (1, 256)));
}

#[test]
fn one_bit_anywhere_is_another_fingerprint_and_not_equal() {
    let old = chunk(|word| wm_kernels::pattern(2, word));
    let mut new = old.clone();
    let before = on_gpu(&[read(&old)], (1, 256));
    for (word, bit) in [(0, 0), (1, 127), (1023, 64), (1024, 63), (WORDS / 2 + 77, 31), (WORDS - 1, 127)] {
        new[word].0[bit / 64] ^= 1 << (bit % 64);
        assert_ne!(on_gpu(&[read(&new)], (1, 256)), before, "bit {bit} of word {word}");
        for shape in [(1, 1), (3, 7), (2, 256), (1, 1024)] {
            assert_eq!(
                equal(&[&old, &new, &old, &old, &new, &old], shape),
                [0, 1, 0],
                "bit {bit} of word {word}"
            );
        }
        new[word] = old[word];
    }
    assert_eq!(on_gpu(&[read(&new)], (1, 256)), before);
}

fn equal(chunks: &[&Vec<Pair>], shape: (u32, u32)) -> Vec<u32> {
    let pairs: Vec<_> = chunks.iter().map(|chunk| read(chunk)).collect();
    let mut equal = vec![7; pairs.len() / 2 + 1];
    let count = pairs.len() as u64 / 2;
    run(shape, &CompareChunks { pairs: read(&pairs), count, equal: written(&mut equal) });
    assert_eq!(equal.pop(), Some(7), "beyond {count} pairs");
    equal
}

#[test]
fn all_bytes_are_compared() {
    let [zeros, _, random, ones] = chunks();
    let copy = random.clone();
    let mut last = zeros.clone();
    last[WORDS - 1].0[1] = 1 << 63;
    let pairs = [&zeros, &ones, &random, &copy, &zeros, &last, &ones, &ones];
    for shape in SHAPES {
        assert_eq!(equal(&pairs, shape), [0, 1, 0, 1], "shape {shape:?}");
        assert_eq!(equal(&[], shape), []);
    }
}
