//! Where CPython keeps what a stack is made of, by version.
//!
//! Up to 3.12 the offsets are those of its headers, which do not change within a minor version.
//! From 3.13 on the interpreter states them itself, at the beginning of `_PyRuntime`. A version
//! that is not known here has no layout, and no stack of it is read.

use super::lines::LineTable;

/// Offsets in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameLayout {
    /// In the thread's state: the innermost frame, or what points to it.
    pub(super) thread_frame: u64,
    /// In what is pointed to there: the innermost frame. `None`: it is named directly.
    pub(super) indirect: Option<u64>,
    pub(super) previous: u64,
    pub(super) code: u64,
    /// The instruction: its address, or its number.
    pub(super) instruction: Instruction,
    /// The owner of the frame. One of 3 and more is no function of Python.
    pub(super) owner: Option<u64>,
    pub(super) file: u64,
    pub(super) name: u64,
    pub(super) first_line: u64,
    pub(super) lines: u64,
    pub(super) table: LineTable,
    /// Size of the head of a text of ASCII, and of any other.
    pub(super) text: [u64; 2],
}

/// How a frame names its instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instruction {
    /// A number in the frame, in units of so many bytes.
    Number { at: u64, unit: u64 },
    /// An address in the frame; the code begins so many bytes behind the code object.
    Address { at: u64, code: u64 },
}

/// The first release with offsets in `_PyRuntime`, and the words of it that are read.
const STATED_SINCE: u32 = 13;
pub(super) const WORDS: usize = 50;
pub(super) const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

impl FrameLayout {
    /// Of Python 3.`minor`. `runtime`: the first words of `_PyRuntime`.
    pub(super) fn of(minor: u32, runtime: &[u64; WORDS]) -> Option<Self> {
        match minor {
            9 => Some(FRAME_OBJECTS),
            10 => Some(Self {
                instruction: Instruction::Number { at: 96, unit: 2 },
                table: LineTable::Pep626,
                ..FRAME_OBJECTS
            }),
            11 => Some(Self {
                thread_frame: 56,
                indirect: Some(8),
                previous: 48,
                code: 32,
                instruction: Instruction::Address { at: 56, code: 184 },
                owner: Some(69),
                first_line: 72,
                text: FRAME_OBJECTS.text,
                ..INNER_FRAMES
            }),
            12 => Some(INNER_FRAMES),
            STATED_SINCE => stated(minor, runtime, &GroupWords { thread: 19, frame: 28, code: 34 }),
            14 => stated(minor, runtime, &GroupWords { thread: 22, frame: 31, code: 39 }),
            _ => None,
        }
    }
}

/// 3.9: frames are objects.
const FRAME_OBJECTS: FrameLayout = FrameLayout {
    thread_frame: 24,
    indirect: None,
    previous: 24,
    code: 32,
    instruction: Instruction::Number { at: 104, unit: 1 },
    owner: None,
    file: 104,
    name: 112,
    first_line: 40,
    lines: 120,
    table: LineTable::Lnotab,
    text: [48, 72],
};

/// 3.12: frames are no objects.
const INNER_FRAMES: FrameLayout = FrameLayout {
    thread_frame: 56,
    indirect: Some(0),
    previous: 8,
    code: 0,
    instruction: Instruction::Address { at: 56, code: 192 },
    owner: Some(70),
    file: 112,
    name: 128,
    first_line: 68,
    lines: 136,
    table: LineTable::Locations,
    text: [40, 56],
};

/// The words at which the groups of offsets begin, with the size of the structure.
struct GroupWords {
    thread: usize,
    frame: usize,
    code: usize,
}

/// The offsets that the interpreter states. `None` where they contradict themselves, and for an
/// interpreter without a global lock: its threads may share more than is known here.
fn stated(minor: u32, runtime: &[u64; WORDS], words: &GroupWords) -> Option<FrameLayout> {
    let version = runtime[1] >> 16;
    if runtime[0] != COOKIE || version != u64::from(0x300 | minor) || runtime[2] != 0 {
        return None;
    }
    let inside = |group: usize, field: usize| {
        let (size, offset) = (runtime[group], runtime[group + field]);
        (size <= 1 << 16 && offset < size).then_some(offset)
    };
    Some(FrameLayout {
        thread_frame: inside(words.thread, 4)?,
        indirect: None,
        previous: inside(words.frame, 1)?,
        code: inside(words.frame, 2)?,
        instruction: Instruction::Address { at: inside(words.frame, 3)?, code: inside(words.code, 9)? },
        owner: Some(inside(words.frame, 5)?),
        file: inside(words.code, 1)?,
        name: inside(words.code, 3)?,
        lines: inside(words.code, 4)?,
        first_line: inside(words.code, 5)?,
        ..INNER_FRAMES
    })
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): memory is read at the offsets of another version.
    use super::*;

    /// What 3.13.0 states on a machine of 64 bits.
    fn of_3_13() -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[..3].copy_from_slice(&[COOKIE, 0x030d_00f0, 0]);
        words[19..28].copy_from_slice(&[392, 0, 8, 16, 72, 144, 152, 232, 32]);
        words[28..34].copy_from_slice(&[88, 8, 0, 56, 72, 70]);
        words[34..44].copy_from_slice(&[208, 112, 120, 128, 136, 68, 52, 96, 104, 200]);
        words
    }

    #[test]
    fn offsets_are_those_that_are_stated() {
        let stated = FrameLayout::of(13, &of_3_13()).expect("a layout");
        let instruction = Instruction::Address { at: 56, code: 200 };
        assert_eq!(stated, FrameLayout { thread_frame: 72, indirect: None, instruction, ..INNER_FRAMES });
    }

    #[test]
    fn what_contradicts_itself_is_not_used() {
        for (word, value) in [(0, 1), (1, 0x030e_00f0), (2, 1), (28, 1 << 40), (32 - 1, 88), (43, 1000)] {
            let mut words = of_3_13();
            words[word] = value;
            assert_eq!(FrameLayout::of(13, &words), None, "word {word}");
        }
        assert_eq!([8, 15].map(|minor| FrameLayout::of(minor, &of_3_13())), [None; 2]);
    }
}
