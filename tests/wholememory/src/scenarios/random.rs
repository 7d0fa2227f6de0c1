//! Random numbers on the host, which equal those that sampling draws.
//!
//! Hazard: another sequence of numbers: samples that cannot be reproduced, or a caller's test that
//! fails.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::api::{Description, Handle};
use crate::rank::{CONTINUOUS, DEVICE, HOST, INVALID_INPUT, Rank, SUCCESS, Verdict, must, want};

const FLOAT: u32 = 1;
const DOUBLE: u32 = 3;
const INT: u32 = 5;
const INT64: u32 = 6;

/// PCG-XSH-RR, step by step.
struct Reference {
    state: u64,
    increment: u64,
}

impl Reference {
    fn new(seed: i64, subsequence: i64) -> Self {
        let mut generator = Self { state: 0, increment: (subsequence as u64) << 1 | 1 };
        generator.next();
        generator.state = generator.state.wrapping_add(seed as u64);
        generator.next();
        for _ in 0..subsequence {
            generator.next();
        }
        generator
    }

    fn next(&mut self) -> u32 {
        let state = self.state;
        self.state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(self.increment);
        ((((state >> 18) ^ state) >> 27) as u32).rotate_right((state >> 59) as u32)
    }

    fn next_u64(&mut self) -> u64 {
        u64::from(self.next()) | u64::from(self.next()) << 32
    }

    /// Its exponent from one word: a word of 64 zeros does not come in a test.
    fn key(&mut self) -> f64 {
        let fraction = 0.5 + 0.5 * f64::from(self.next() >> 8) / f64::from(1 << 24);
        let zeros = self.next_u64().leading_zeros();
        (-fraction * 0.5_f64.powi(zeros as i32)).ln_1p() / std::f64::consts::LN_2
    }
}

fn array(size: i64, dtype: u32) -> Description {
    let mut description = Description::matrix(size, 1, 1, dtype);
    description.dim = 1;
    description
}

fn tensor(rank: &Rank, place: *mut c_void, shape: &Description) -> Verdict<Handle> {
    let mut tensor = null_mut();
    want!(SUCCESS, rank.wholememory_make_tensor_from_pointer(&mut tensor, place, shape))?;
    Ok(tensor)
}

pub(super) fn draws(rank: &Rank) -> Verdict {
    for (seed, subsequence) in [(0, 0), (1, 0), (42, 7), (-3, 1000), (i64::MIN, 513)] {
        let (mut ints, mut longs, mut keys) = ([-1_i32; 100], [-1_i64; 100], [1_f32; 100]);
        let mut shape = array(99, INT);
        // The first one is before the array.
        shape.storage_offset = 1;
        let output = tensor(rank, ints.as_mut_ptr().cast(), &shape)?;
        want!(SUCCESS, rank.generate_random_positive_int_cpu(seed, subsequence, output))?;
        want!(SUCCESS, rank.wholememory_destroy_tensor(output))?;
        let mut reference = Reference::new(seed, subsequence);
        let wanted: Vec<_> = (0..99).map(|_| (reference.next() & 0x7fff_ffff) as i32).collect();
        must(ints[0] == -1 && ints[1..] == wanted, || {
            format!("{ints:?} of {seed} and {subsequence}, not {wanted:?}")
        })?;

        let output = tensor(rank, longs.as_mut_ptr().cast(), &array(100, INT64))?;
        want!(SUCCESS, rank.generate_random_positive_int_cpu(seed, subsequence, output))?;
        want!(SUCCESS, rank.wholememory_destroy_tensor(output))?;
        let mut reference = Reference::new(seed, subsequence);
        let wanted: Vec<_> = (0..100).map(|_| (reference.next_u64() & i64::MAX as u64) as i64).collect();
        must(longs[..] == wanted, || format!("{longs:?} of {seed} and {subsequence}, not {wanted:?}"))?;

        let output = tensor(rank, keys.as_mut_ptr().cast(), &array(100, FLOAT))?;
        want!(SUCCESS, rank.generate_exponential_distribution_negative_float_cpu(seed, subsequence, output))?;
        want!(SUCCESS, rank.wholememory_destroy_tensor(output))?;
        let mut reference = Reference::new(seed, subsequence);
        for key in keys {
            let wanted = reference.key();
            must((f64::from(key) - wanted).abs() <= wanted.abs() * 1e-5, || {
                format!("{key} and not {wanted}")
            })?;
        }
    }
    Ok(())
}

pub(super) fn misuse(rank: &Rank) -> Verdict {
    let mut place = [0_u64; 64];
    let place = place.as_mut_ptr().cast();
    for (shape, ints, keys) in [
        (array(8, FLOAT), INVALID_INPUT, SUCCESS),
        (array(8, INT), SUCCESS, INVALID_INPUT),
        (array(8, INT64), SUCCESS, INVALID_INPUT),
        (array(8, DOUBLE), INVALID_INPUT, INVALID_INPUT),
        (array(0, INT), SUCCESS, INVALID_INPUT),
        (Description::matrix(4, 4, 4, INT), INVALID_INPUT, INVALID_INPUT),
        (Description { strides: [2; 8], ..array(8, INT) }, INVALID_INPUT, INVALID_INPUT),
        (Description { storage_offset: -1, ..array(8, INT) }, INVALID_INPUT, INVALID_INPUT),
        (Description { dim: 0, ..array(8, INT) }, INVALID_INPUT, INVALID_INPUT),
    ] {
        let output = tensor(rank, place, &shape)?;
        want!(ints, rank.generate_random_positive_int_cpu(1, 2, output))?;
        want!(keys, rank.generate_exponential_distribution_negative_float_cpu(1, 2, output))?;
        want!(SUCCESS, rank.wholememory_destroy_tensor(output))?;
    }
    want!(INVALID_INPUT, rank.generate_random_positive_int_cpu(1, 2, null_mut()))?;
    for (location, code) in [(DEVICE, INVALID_INPUT), (HOST, SUCCESS)] {
        let memory = rank.malloc(64, 4, (CONTINUOUS, location), None)?;
        let mut output = null_mut();
        want!(SUCCESS, rank.wholememory_make_tensor_from_handle(&mut output, memory, &array(64, INT)))?;
        want!(code, rank.generate_random_positive_int_cpu(1, 2, output))?;
        want!(SUCCESS, rank.wholememory_destroy_tensor(output))?;
        rank.barrier()?;
        rank.free(memory)?;
    }
    Ok(())
}
