//! Hazard (wrong result): the host and the GPU draw different numbers for one seed, and so sample
//! different graphs.

use wm_kernels::random::Pcg;
use wm_kernels::wholememory::DrawRandom;

use crate::support::{run, written};

const NAMES: [(u64, u64); 6] =
    [(0, 0), (1, 0), (0, 1), (42, 54), (10_000, 123_456_789), (u64::MAX, u64::MAX >> 1)];

fn drawn<T: Default + Clone>((seed, subsequence): (u64, u64), skipped: u64, kind: u32) -> Vec<T> {
    let mut output = vec![T::default(); 300];
    let pointer = written(&mut output);
    run((2, 64), &DrawRandom { seed, subsequence, skipped, kind, output: pointer, count: 300 });
    output
}

#[test]
fn kernels_and_the_host_draw_the_same() {
    for name in NAMES {
        for skipped in [0, 1, 77, 1 << 40] {
            let mut all = [0; 5].map(|_: i32| Pcg::new(name.0, name.1));
            all.iter_mut().for_each(|generator| generator.skip(skipped));
            let [a, b, c, d, e] = &mut all;
            assert!(drawn::<u32>(name, skipped, 0).iter().all(|x| *x == a.next_u32()), "{name:?}");
            assert!(drawn::<i32>(name, skipped, 1).iter().all(|x| *x == b.positive_i32()), "{name:?}");
            assert!(drawn::<u64>(name, skipped, 2).iter().all(|x| *x == c.next_u64()), "{name:?}");
            assert!(drawn::<f32>(name, skipped, 3).iter().all(|x| *x == d.next_f32()), "{name:?}");
            assert!(drawn::<f32>(name, skipped, 4).iter().all(|x| *x == e.log2_of_uniform()), "{name:?}");
        }
    }
}

/// The published demonstration of PCG32 prints these for initial state 42 and stream 54. There the
/// stream is not skipped into, so the skip is taken back: a stream repeats after 2^64 draws.
#[test]
fn the_generator_is_pcg32() {
    let mut generator = Pcg::new(42, 54);
    generator.skip(54u64.wrapping_neg());
    let expected = [0xa15c_02b7, 0x7b47_f409, 0xba1d_3330, 0x83d2_f293, 0xbfa4_784b, 0xcbed_606e];
    assert!(expected.iter().all(|word| generator.next_u32() == *word));
}

#[test]
fn a_skip_is_as_many_steps() {
    for (seed, subsequence) in NAMES {
        for draws in [0, 1, 2, 3, 31, 32, 1000, 65_537] {
            let mut stepped = Pcg::new(seed, subsequence);
            let mut skipped = stepped.clone();
            (0..draws).for_each(|_| {
                stepped.next_u32();
            });
            skipped.skip(draws);
            assert_eq!(stepped, skipped, "{draws} draws of {seed}, {subsequence}");
        }
    }
}

#[test]
fn numbers_are_in_their_ranges_and_spread() {
    let mut generator = Pcg::new(3, 9);
    let (mut sum, mut keys) = (0.0, 0.0);
    for _ in 0..100_000 {
        let (fraction, key) = (generator.next_f32(), generator.log2_of_uniform());
        assert!((0.0..1.0).contains(&fraction) && key <= 0.0 && key.is_finite());
        assert!(generator.positive_i32() >= 0);
        sum += f64::from(fraction);
        keys += f64::from(key);
    }
    assert!((sum / 1e5 - 0.5).abs() < 0.005, "{sum}");
    // The mean of ln(u) is -1.
    assert!((keys / 1e5 * std::f64::consts::LN_2 + 1.0).abs() < 0.02, "{keys}");
}
