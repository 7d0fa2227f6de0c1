//! Row numbers: uniform ones, and ones of which few are asked for often. They are the same for
//! every library.

use fastrand::Rng;

use super::orders::RowNumbers;

/// `count` rows of `rows` (fewer than 2^32), of a kind.
pub(super) fn draw(kind: RowNumbers, count: u64, rows: u64, seed: [u64; 3]) -> Vec<i64> {
    match kind {
        RowNumbers::Uniform => uniform(count, rows, seed),
        RowNumbers::Zipf => zipf(count, rows, seed),
        RowNumbers::Sorted => {
            let mut numbers = uniform(count, rows, seed);
            numbers.sort_unstable();
            numbers
        }
        // With several ranks it is another one's row for most of them.
        RowNumbers::One => vec![(rows - 1) as i64; count as usize],
    }
}

/// A generator for one purpose. Hashing makes the sequences of neighbouring seeds independent.
fn generator(seed: [u64; 3]) -> Rng {
    let mut mixed = Rng::with_seed(0x1234_5678);
    for part in seed {
        mixed = Rng::with_seed(mixed.u64(..) ^ part);
    }
    mixed
}

/// All as likely.
fn uniform(count: u64, rows: u64, seed: [u64; 3]) -> Vec<i64> {
    let mut random = generator(seed);
    (0..count).map(|_| random.u64(..rows) as i64).collect()
}

/// As Zipf's law has them with exponent 1: the k-th row of the order of frequency about 1/k times
/// as often as the first. Frequent rows lie all over the table.
fn zipf(count: u64, rows: u64, seed: [u64; 3]) -> Vec<i64> {
    // A prime: each row has one place in the order, if there are not exactly so many rows. It is
    // near the golden ratio's part of 2^32, so that neighbours in the order lie far apart where the
    // number of rows is a power of two.
    const STEP: u64 = 2_654_435_761;
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

    const KINDS: [RowNumbers; 4] =
        [RowNumbers::Uniform, RowNumbers::Zipf, RowNumbers::Sorted, RowNumbers::One];

    #[test]
    fn numbers_are_rows() {
        for rows in [1, 7, 1000, 1 << 20] {
            for kind in KINDS {
                let numbers = draw(kind, 5000, rows, [1, 2, 3]);
                assert_eq!(numbers.len(), 5000, "{kind:?}");
                assert!(numbers.iter().all(|number| (0..rows as i64).contains(number)), "{kind:?} {rows}");
            }
        }
    }

    #[test]
    fn some_are_asked_for_often_where_they_are_to_be() {
        let most = |kind| {
            let mut counts = vec![0; 1000];
            draw(kind, 100_000, 1000, [1; 3]).iter().for_each(|number| counts[*number as usize] += 1);
            counts.into_iter().max().unwrap_or(0)
        };
        // The first of a thousand has ln(2) / ln(1001), a tenth.
        assert!(most(RowNumbers::Uniform) < 200 && most(RowNumbers::Sorted) < 200);
        assert!((9_000..11_500).contains(&most(RowNumbers::Zipf)), "{}", most(RowNumbers::Zipf));
        assert_eq!(most(RowNumbers::One), 100_000);
    }

    #[test]
    fn only_sorted_ones_are_in_order() {
        let found = KINDS.map(|kind| draw(kind, 5000, 1 << 20, [1, 2, 3]).is_sorted());
        assert_eq!(found, [false, false, true, true]);
        let mut uniform = draw(RowNumbers::Uniform, 5000, 1 << 20, [1, 2, 3]);
        uniform.sort_unstable();
        assert_eq!(uniform, draw(RowNumbers::Sorted, 5000, 1 << 20, [1, 2, 3]));
    }

    #[test]
    fn frequent_rows_lie_all_over_the_table() {
        let rows = 1 << 20;
        let mut eighths = [0; 8];
        draw(RowNumbers::Zipf, 100_000, rows, [1; 3])
            .iter()
            .for_each(|number| eighths[*number as usize * 8 / rows as usize] += 1);
        assert!(eighths.iter().all(|share| *share > 5_000), "{eighths:?}");
    }
}
