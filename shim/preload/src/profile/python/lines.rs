//! The line that a Python function executes, from the tables of its code object. Pure.
//!
//! Three forms: `co_lnotab` (3.9), PEP 626 (3.10) and the table of locations (3.11 and later). A
//! table may hold any bytes: what cannot be read gives no line.

/// The form of a line table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineTable {
    Lnotab,
    Pep626,
    Locations,
}

impl LineTable {
    /// The line of the instruction `offset` bytes into the code, which begins at line `first`.
    /// `None` for an instruction without a line.
    pub(super) fn line(self, table: &[u8], first: i64, offset: u64) -> Option<u32> {
        let line = match self {
            Self::Lnotab => lnotab(table, first, offset),
            Self::Pep626 => pep626(table, first, offset),
            Self::Locations => locations(table, first, offset),
        };
        line.and_then(|line| u32::try_from(line).ok()).filter(|line| *line > 0)
    }
}

/// Pairs: bytes of code to the next one, and lines.
fn lnotab(table: &[u8], first: i64, offset: u64) -> Option<i64> {
    let (mut line, mut address) = (first, 0);
    for pair in table.chunks_exact(2) {
        address += u64::from(pair[0]);
        if address > offset {
            break;
        }
        line += i64::from(pair[1] as i8);
    }
    Some(line)
}

/// Pairs: bytes of code, and the lines by which they lie behind the ones before.
fn pep626(table: &[u8], first: i64, offset: u64) -> Option<i64> {
    const NO_LINE: i8 = -128;
    let (mut line, mut end) = (first, 0);
    for pair in table.chunks_exact(2) {
        let lines = pair[1] as i8;
        end += u64::from(pair[0]);
        if lines != NO_LINE {
            line += i64::from(lines);
        }
        if offset < end {
            return (lines != NO_LINE).then_some(line);
        }
    }
    None
}

/// Entries: a head with a kind and a number of code units, then as many bytes as the kind says.
fn locations(table: &[u8], first: i64, offset: u64) -> Option<i64> {
    const HEAD: u8 = 0x80;
    let mut bytes = table.iter().copied();
    let (mut line, mut end) = (first, 0);
    while let Some(head) = bytes.next() {
        let (kind, units) = ((head >> 3) & 15, u64::from(head & 7) + 1);
        let has_line = kind != 15;
        let fields = match kind {
            0..=9 => 1,
            10..=12 => {
                line += i64::from(kind) - 10;
                2
            }
            13 => {
                line += signed(&mut bytes)?;
                0
            }
            14 => {
                line += signed(&mut bytes)?;
                for _ in 0..3 {
                    variable(&mut bytes)?;
                }
                0
            }
            _ => 0,
        };
        bytes.by_ref().take(fields).for_each(drop);
        end += 2 * units;
        if head & HEAD == 0 {
            return None;
        }
        if offset < end {
            return has_line.then_some(line);
        }
    }
    None
}

/// A number of 6 bits a byte, lowest first. `None` for one that has no end or more than 32 bits.
fn variable(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    const MORE: u8 = 0x40;
    let mut number = 0;
    for shift in (0..=30).step_by(6) {
        let byte = bytes.next()?;
        number |= u64::from(byte & 0x3f) << shift;
        if byte & MORE == 0 {
            return Some(number);
        }
    }
    None
}

/// The same, with the sign in the lowest bit.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let number = variable(bytes)?;
    let magnitude = i64::try_from(number >> 1).ok()?;
    Some(if number & 1 == 0 { magnitude } else { -magnitude })
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): memory is said to be held by another line.
    use proptest::prelude::*;

    use super::*;

    fn encoded(mut number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number >= 0x40 {
            bytes.push(0x40 | (number & 0x3f) as u8);
            number >>= 6;
        }
        bytes.push(number as u8);
        bytes
    }

    fn encoded_signed(number: i64) -> Vec<u8> {
        encoded((number.unsigned_abs() << 1) | u64::from(number < 0))
    }

    /// Entries of all kinds with the lines that they stand for.
    fn entry() -> impl Strategy<Value = (u8, u8, i64)> {
        (0u8..16, 0u8..8, -500i64..500)
    }

    proptest! {
        #[test]
        fn a_table_of_locations_gives_the_lines_that_were_written(
            entries in proptest::collection::vec(entry(), 1..40),
        ) {
            let (mut table, mut expected, mut line) = (Vec::new(), Vec::new(), 1000);
            for (kind, length, delta) in entries {
                table.push(0x80 | (kind << 3) | length);
                match kind {
                    0..=9 => table.push(0x7f),
                    10..=12 => {
                        line += i64::from(kind) - 10;
                        table.extend([0xff, 0x80]);
                    }
                    13 => {
                        line += delta;
                        table.extend(encoded_signed(delta));
                    }
                    14 => {
                        line += delta;
                        table.extend(encoded_signed(delta));
                        for field in [1, 70, 5000] {
                            table.extend(encoded(field));
                        }
                    }
                    _ => {}
                }
                let units = usize::from(length) + 1;
                expected.extend(vec![(kind != 15).then_some(line); units]);
            }
            for (unit, line) in expected.iter().enumerate() {
                let found = LineTable::Locations.line(&table, 1000, 2 * unit as u64);
                prop_assert_eq!(found, line.and_then(|line| u32::try_from(line).ok()).filter(|line| *line > 0));
            }
            prop_assert_eq!(LineTable::Locations.line(&table, 1000, 2 * expected.len() as u64), None);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(
            table in proptest::collection::vec(any::<u8>(), 0..200), first in any::<i32>(), offset in any::<u64>(),
        ) {
            for form in [LineTable::Lnotab, LineTable::Pep626, LineTable::Locations] {
                form.line(&table, first.into(), offset);
            }
        }
    }

    #[test]
    fn the_older_tables_are_read_as_their_documents_say() {
        // Steps of more than a byte are written in several pairs.
        let lnotab = [6, 1, 44, 5, 255, 127, 45, 127, 0, 46, 6, 1];
        let at = |offset| LineTable::Lnotab.line(&lnotab, 1, offset);
        assert_eq!(
            [0, 5, 6, 49, 50, 349, 350, 355, 356].map(at),
            [1, 1, 2, 2, 7, 134, 307, 307, 308].map(Some)
        );
        // A range without a line has the step -128.
        let pep626 = [4, 1, 2, 0x80, 6, 2, 2, 0xff];
        let at = |offset| LineTable::Pep626.line(&pep626, 10, offset);
        assert_eq!([0, 2, 4, 6, 10, 12].map(at), [Some(11), Some(11), None, Some(13), Some(13), Some(12)]);
        assert_eq!(at(14), None);
    }
}
