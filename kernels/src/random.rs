//! The random numbers of `cuda/wholememory/random.cuh`, for the host: PCG-XSH-RR, 64 bits of state
//! and 32 of output.
//!
//! A generator is named by a seed and a subsequence: the subsequence chooses the stream (the
//! increment), and the generator starts as many draws into it as the subsequence says.

const MULTIPLIER: u64 = 6_364_136_223_846_793_005;

/// One generator.
///
/// ```
/// let mut one_by_one = wm_kernels::random::Pcg::new(42, 7);
/// let mut ahead = one_by_one.clone();
/// (0..1000).for_each(|_| drop(one_by_one.next_u32()));
/// ahead.skip(1000);
/// assert_eq!(one_by_one, ahead);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pcg {
    state: u64,
    increment: u64,
}

impl Pcg {
    /// The generator of `seed` and `subsequence`.
    pub fn new(seed: u64, subsequence: u64) -> Self {
        let mut generator = Self { state: 0, increment: (subsequence << 1) | 1 };
        generator.next_u32();
        generator.state = generator.state.wrapping_add(seed);
        generator.next_u32();
        generator.skip(subsequence);
        generator
    }

    /// Any number of 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        let before = self.state;
        self.state = before.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
        let folded = (((before >> 18) ^ before) >> 27) as u32;
        folded.rotate_right((before >> 59) as u32)
    }

    /// As `draws` calls of [`next_u32`](Self::next_u32), in as many steps as the number has bits.
    pub fn skip(&mut self, mut draws: u64) {
        let (mut factor, mut sum) = (1u64, 0u64);
        let (mut step_factor, mut step_sum) = (MULTIPLIER, self.increment);
        while draws != 0 {
            if draws & 1 == 1 {
                factor = factor.wrapping_mul(step_factor);
                sum = sum.wrapping_mul(step_factor).wrapping_add(step_sum);
            }
            step_sum = step_sum.wrapping_mul(step_factor.wrapping_add(1));
            step_factor = step_factor.wrapping_mul(step_factor);
            draws >>= 1;
        }
        self.state = self.state.wrapping_mul(factor).wrapping_add(sum);
    }

    /// From 0 to `i32::MAX`.
    pub fn positive_i32(&mut self) -> i32 {
        (self.next_u32() & 0x7fff_ffff) as i32
    }

    /// Any number of 64 bits; the low half is drawn first.
    pub fn next_u64(&mut self) -> u64 {
        let low = u64::from(self.next_u32());
        low | (u64::from(self.next_u32()) << 32)
    }

    /// From 0 to `i64::MAX`.
    pub fn positive_i64(&mut self) -> i64 {
        (self.next_u64() & i64::MAX.cast_unsigned()) as i64
    }

    /// From 0 to less than 1, a multiple of 2^-24.
    pub fn next_f32(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 * (1.0 / (1 << 24) as f32)
    }

    /// The logarithm to base 2 of a number from 0 to 1, which is finer near 0 than
    /// [`next_f32`](Self::next_f32): its exponent is the position of the first set bit of as many
    /// words as it takes. Divided by a weight it is the key of weighted sampling (A-Res, largest
    /// keys first).
    pub fn log2_of_uniform(&mut self) -> f32 {
        let fraction = 0.5f32.mul_add(self.next_f32(), 0.5);
        let (mut zeros, mut word) = (0, self.next_u64());
        while word == 0 {
            zeros += 64;
            word = self.next_u64();
        }
        zeros += word.leading_zeros();
        let scale = if zeros < 127 { f32::from_bits((127 - zeros) << 23) } else { 0.0 };
        (-fraction * scale).ln_1p() / std::f32::consts::LN_2
    }
}
