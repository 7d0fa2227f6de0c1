//! Row numbers: uniform ones, and ones of which few are asked for often. They are the same for
//! every library.

use fastrand::Rng;

/// A generator for one purpose. Hashing makes the sequences of neighbouring seeds independent.
fn generator(seed: [u64; 3]) -> Rng {
    let mut mixed = Rng::with_seed(0x1234_5678);
    for part in seed {
        mixed = Rng::with_seed(mixed.u64(..) ^ part);
    }
    mixed
}

/// `count` rows of `rows` (fewer than 2^32), all as likely.
pub(super) fn uniform(count: u64, rows: u64, seed: [u64; 3]) -> Vec<i64> {
    let mut random = generator(seed);
    (0..count).map(|_| random.u64(..rows) as i64).collect()
}

/// The same as Zipf's law has them with exponent 1: the k-th row of the order of frequency about
/// 1/k times as often as the first. Frequent rows lie all over the table.
pub(super) fn zipf(count: u64, rows: u64, seed: [u64; 3]) -> Vec<i64> {
    // A prime that divides no such number of rows: each row has one place in the order.
    const STEP: u64 = 4_294_967_291;
    let mut random = generator(seed);
    let (span, last) = (((rows + 1) as f64).ln(), rows.saturating_sub(1));
    let one = |_| {
        let place = (((random.f64() * span).exp() - 1.0) as u64).min(last);
        (place * STEP % rows) as i64
    };
    (0..count).map(one).collect()
}

#[cfg(test)]
mod tests {
    //! Hazard: a number beyond the table, which no library has to read; and a distribution that is
    //! another one's.
    use super::*;

    #[test]
    fn numbers_are_rows() {
        for rows in [1, 7, 1000, 1 << 20] {
            for numbers in [uniform(5000, rows, [1, 2, 3]), zipf(5000, rows, [1, 2, 3])] {
                assert!(numbers.iter().all(|number| (0..rows as i64).contains(number)), "{rows}");
            }
        }
    }

    #[test]
    fn some_are_asked_for_often_where_they_are_to_be() {
        let most = |numbers: Vec<i64>| {
            let mut counts = vec![0; 1000];
            numbers.iter().for_each(|number| counts[*number as usize] += 1);
            counts.into_iter().max().unwrap_or(0)
        };
        // The first of a thousand has ln(2) / ln(1001), a tenth.
        let (even, uneven) = (most(uniform(100_000, 1000, [1; 3])), most(zipf(100_000, 1000, [1; 3])));
        assert!(even < 200 && (9_000..11_500).contains(&uneven), "{even} {uneven}");
    }
}
