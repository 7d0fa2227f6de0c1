//! Random choices that a seed repeats: a thread's next operation depends on its own numbers alone,
//! never on those of other threads.

pub(crate) use random::{Choices, Random};

/// The numbers of one of the threads that share a seed.
pub(crate) fn of_thread(seed: u64, thread: usize) -> Random {
    Random::with_seed(seed ^ (thread as u64 + 1).wrapping_mul(0xd1b5_4a32_d192_ed03))
}

/// A size from 1 byte to `largest`, as likely from 1 to 2 bytes as from 1 to 2 MiB. Most are odd
/// sizes, some whole pages, as programs ask for.
pub(crate) fn size(random: &mut Random, largest: u64) -> u64 {
    const PAGE: u64 = 2 << 20;
    let bytes = ((largest as f64).powf(random.f64()) as u64).clamp(1, largest);
    if bytes > PAGE && random.one_in(3) { bytes / PAGE * PAGE } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers_and_threads_differ() {
        let numbers = |seed, thread| {
            let mut random = of_thread(seed, thread);
            [(); 8].map(|()| random.below(1 << 30))
        };
        assert_eq!(numbers(1, 2), numbers(1, 2));
        assert_ne!(numbers(1, 2), numbers(1, 3));
        assert_ne!(numbers(1, 2), numbers(2, 2));
    }

    #[test]
    fn sizes_reach_from_a_byte_to_the_largest() {
        let mut random = of_thread(7, 0);
        let sizes: Vec<u64> = (0..10_000).map(|_| size(&mut random, 64 << 20)).collect();
        assert!(sizes.iter().all(|bytes| (1..=64 << 20).contains(bytes)));
        assert!(sizes.iter().any(|bytes| *bytes < 8) && sizes.iter().any(|bytes| *bytes > 32 << 20));
    }
}
