//! The program's account of itself: one aligned line a step.

/// A size for people: `1.5 GiB`, `96.0 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 { format!("{mib:.1} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

/// The heading above the steps.
pub(crate) fn heading() {
    println!("\n  {:<28}{:>6}{:>24}{:>12}", "step", "blocks", "block size", "then held");
}

/// One step: the number of blocks that it touched, their size, and the memory after it.
pub(crate) fn step(name: &str, blocks: usize, each: &str, held: u64) {
    println!("  {name:<28}{blocks:>6}{each:>24}{:>12}", size(held));
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_take_the_larger_unit_from_one_gib_on() {
        assert_eq!(size(96 << 20), "96.0 MiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
    }
}
