//! Sizes of memory as people write and read them: one parser and two formats for the library and
//! the tools.

/// Units by exact lower-case name, with their bytes. KiB and its kin are powers of 1024, KB and its
/// kin powers of 1000.
const UNITS: [(&str, f64); 13] = [
    ("b", 1.0),
    ("k", 1024.0),
    ("kib", 1024.0),
    ("m", 1_048_576.0),
    ("mib", 1_048_576.0),
    ("g", 1_073_741_824.0),
    ("gib", 1_073_741_824.0),
    ("t", 1_099_511_627_776.0),
    ("tib", 1_099_511_627_776.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("tb", 1e12),
];

/// A number and the unit behind it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity<'a> {
    /// The number, at least 0 and finite.
    pub number: f64,
    /// The text behind the number without blanks; empty where there is none.
    pub unit: &'a str,
}

impl<'a> Quantity<'a> {
    /// Splits `1.5 GiB`. `None` for text that does not begin with digits, such as `-1GiB`, `nan` or
    /// `GiB`.
    #[must_use]
    pub fn split(text: &'a str) -> Option<Self> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let number: f64 = text[..end].parse().ok()?;
        number.is_finite().then(|| Self { number, unit: text[end..].trim() })
    }

    /// The quantity in bytes, in any case of letters. `None` without a unit, and for an unknown
    /// one.
    #[must_use]
    pub fn bytes(self) -> Option<f64> {
        let unit = UNITS.iter().find(|(name, _)| self.unit.eq_ignore_ascii_case(name));
        unit.map(|(_, bytes)| self.number * bytes)
    }
}

/// Bytes of `24GiB`, `512 MiB`, or a plain number of bytes; `None` for less than one byte, for 1e18
/// and more, and for text that is no size.
///
/// ```
/// assert_eq!(wm_schema::size::parse("1.5GiB"), Some(3 << 29));
/// assert_eq!(wm_schema::size::parse("4096"), Some(4096));
/// assert_eq!(wm_schema::size::parse("a lot"), None);
/// ```
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let quantity = Quantity::split(text)?;
    let bytes = if quantity.unit.is_empty() { Some(quantity.number) } else { quantity.bytes() };
    bytes.filter(|bytes| (1.0..1e18).contains(bytes)).map(|bytes| bytes as u64)
}

/// Bytes for people, with one decimal and the largest binary unit: `139.8 GiB`; exact below 1 KiB.
#[must_use]
pub fn rounded(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    // From 1023.95 on one decimal would show 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Bytes as a setting takes them, without loss: the largest unit that divides them, such as
/// `1536MiB`.
#[must_use]
pub fn exact(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = UNITS.iter().find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| format!("{bytes}B"), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a size that is read or shown as another one.
    use super::*;

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        let sizes = ["1.5GiB", "2 MiB", "4096", "7B", "3GB", "2g"].map(parse);
        assert_eq!(sizes, [3 << 29, 2 << 20, 4096, 7, 3_000_000_000, 2 << 30].map(Some));
        for bad in ["", "GiB", "-1", "0", "1e30", "12 bananas", "nan", "."] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(Quantity::split("48").and_then(Quantity::bytes), None, "a unit was forgotten");
    }

    #[test]
    fn rounded_bytes_change_unit_without_showing_1024() {
        assert_eq!(rounded(1023), "1023 B");
        assert_eq!(rounded(1024), "1.0 KiB");
        assert_eq!(rounded((1 << 20) - 1), "1.0 MiB");
        assert_eq!(rounded(150_119_251_968), "139.8 GiB");
        assert_eq!(rounded(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn exact_bytes_are_read_back() {
        for bytes in [1, 1023, 1536, 48 << 30, 3 << 29, (1 << 40) + 1] {
            assert_eq!(parse(&exact(bytes)), Some(bytes), "{}", exact(bytes));
        }
        assert_eq!((exact(0).as_str(), exact(3 << 29).as_str()), ("0B", "1536MiB"));
    }
}
