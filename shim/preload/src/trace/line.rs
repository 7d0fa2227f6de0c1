//! A line of a recording, put together in place: a launch cannot pay for `write!`, nor for a copy
//! of each word.

/// A word of a line.
#[derive(Debug, Clone, Copy)]
pub(super) enum TraceWord {
    Number(u64),
    Sign(u8),
    /// What was written before under that number.
    Earlier(u64),
}

/// Digits of the largest number.
const DIGITS: usize = u64::MAX.ilog10() as usize + 1;

/// Digits that are made, and stored, at once.
const GROUP: usize = 8;
const GROUP_END: u64 = 10_u64.pow(GROUP as u32);

/// A line that grows at its end.
pub(super) struct TraceLine {
    bytes: [u8; Self::ROOM],
    length: usize,
}

impl TraceLine {
    /// A kind with its blank, four words with a sign and a blank each, and the line's end.
    const MOST: usize = 2 + 4 * (DIGITS + 2) + 1;

    /// The room that a text needs to append a line to it. The last group of digits is stored whole,
    /// whatever its length.
    pub(super) const ROOM: usize = Self::MOST + GROUP;

    #[inline]
    pub(super) fn new() -> Self {
        Self { bytes: [0; Self::ROOM], length: 0 }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Appends the line. A copy of known length is a few instructions, and one of another length a
    /// call.
    #[inline]
    pub(super) fn append_to(&self, text: &mut Vec<u8>) {
        let before = text.len();
        text.extend_from_slice(&self.bytes);
        text.truncate(before + self.length);
    }

    #[inline]
    pub(super) fn push(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    #[inline]
    pub(super) fn push_word(&mut self, word: TraceWord) {
        match word {
            TraceWord::Number(number) => self.push_number(number),
            TraceWord::Sign(sign) => self.push(sign),
            TraceWord::Earlier(number) => {
                self.push(b'=');
                self.push_number(number);
            }
        }
    }

    /// Decimal digits, without leading zeros.
    #[inline]
    pub(super) fn push_number(&mut self, number: u64) {
        if number < GROUP_END {
            let digits = group(number);
            let zeros = (digits.trailing_zeros() as usize / GROUP).min(GROUP - 1);
            self.push_group(digits >> (GROUP * zeros), GROUP - zeros);
        } else {
            self.push_number(number / GROUP_END);
            self.push_group(group(number % GROUP_END), GROUP);
        }
    }

    #[inline]
    fn push_group(&mut self, digits: u64, length: usize) {
        let text = (digits | u64::from_le_bytes([b'0'; GROUP])).to_le_bytes();
        self.bytes[self.length..self.length + GROUP].copy_from_slice(&text);
        self.length += length;
    }
}

/// The eight digits of a number below 10^8, a byte each, the first digit in the lowest byte. The
/// number is cut in two, and the parts again, side by side in one word: a division of each part is
/// a multiplication by its reciprocal, exact for parts of that size.
#[inline]
fn group(number: u64) -> u64 {
    let fours = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | ((fours - 100 * hundreds) << 16);
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((pairs - 10 * tens) << 8)
}

/// A part of a launch's line that many lines have.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ShortText {
    bytes: [u8; Self::MOST],
    length: u8,
}

impl ShortText {
    /// A kind with its blank, a number, and a blank, or less.
    const MOST: usize = 2 + DIGITS + 1;

    /// The words without blanks between them.
    pub(super) fn of<const WORDS: usize>(words: [TraceWord; WORDS]) -> Self {
        let mut line = TraceLine::new();
        words.into_iter().for_each(|word| line.push_word(word));
        let mut text = Self { length: line.bytes().len() as u8, ..Self::default() };
        text.bytes[..line.bytes().len()].copy_from_slice(line.bytes());
        text
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a number of the recording is another one.
    use proptest::prelude::*;

    use super::*;

    fn digits(number: u64) -> String {
        let mut line = TraceLine::new();
        line.push_number(number);
        String::from_utf8(line.bytes().to_vec()).expect("digits")
    }

    #[test]
    fn each_group_of_four_digits_is_right_at_both_places() {
        for part in 0..10_000_u64 {
            for number in [part, 10_000 * part, GROUP_END + part, GROUP_END * part] {
                assert_eq!(digits(number), number.to_string());
            }
        }
    }

    #[test]
    fn the_longest_line_and_the_longest_part_of_a_launch_fit() {
        let mut line = TraceLine::new();
        [b'a', b' '].into_iter().for_each(|byte| line.push(byte));
        for _ in 0..4 {
            line.push_word(TraceWord::Earlier(u64::MAX));
            line.push(b' ');
        }
        let mut text = b"before ".to_vec();
        line.append_to(&mut text);
        let most = u64::MAX;
        assert_eq!(text, format!("before a ={most} ={most} ={most} ={most} ").into_bytes());
        let signs = [b'l', b' '].map(TraceWord::Sign);
        let longest = ShortText::of([signs[0], signs[1], TraceWord::Number(most), signs[1]]);
        assert_eq!(longest.bytes(), format!("l {most} ").as_bytes());
    }

    proptest! {
        #[test]
        fn numbers_are_written_as_the_standard_library_does(number in any::<u64>(), shift in 0..64_u32) {
            prop_assert_eq!(digits(number >> shift), (number >> shift).to_string());
        }
    }
}
