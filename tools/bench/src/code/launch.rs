//! The parameters of a launch, and what its effects say that it may write. Values.

use drawn_kernels::{ARRAY, ARRAY_WORDS, MOST, NUMBERS, PARAMETERS, POINTERS_IN_TABLE, TABLE};
use wm_code::launch::written;
use wm_code::verdict::Effects;

use super::arena::{Arena, BLOCKS, NAMED};

/// Words of all parameters.
const WORDS: usize = (ARRAY + ARRAY_WORDS) as usize;

/// Bytes of a pointer's distance from the place in its block where pointers begin, at most.
const NEAR: u64 = 1 << 10;

/// The parameters of a launch, and the contents of its table.
#[derive(Debug, Clone)]
pub(super) struct LaunchValues {
    words: [u64; WORDS],
    table: [u64; 1 + POINTERS_IN_TABLE as usize],
}

impl LaunchValues {
    pub(super) fn draw(random: &mut fastrand::Rng, arena: &Arena) -> Self {
        let near =
            |random: &mut fastrand::Rng, block: usize| arena.start_in(block) + 8 * random.u64(..NEAR / 8);
        let mut words = [0; WORDS];
        for word in (0..PARAMETERS).chain(ARRAY as usize..WORDS) {
            let block = random.usize(..NAMED);
            words[word] = near(random, block);
        }
        words[TABLE as usize] = arena.table();
        let numbers = [random.u64(1..=POINTERS_IN_TABLE), random.u64(..MOST)];
        words[NUMBERS as usize] = numbers[0] | numbers[1] << 32;
        let mut table = [random.u64(..MOST); 1 + POINTERS_IN_TABLE as usize];
        for (place, block) in table[1..].iter_mut().zip(NAMED..BLOCKS) {
            *place = near(random, block);
        }
        Self { words, table }
    }

    pub(super) fn table_words(&self) -> &[u64] {
        &self.table
    }

    /// A pointer to each parameter: six pointers, that of the table, two numbers, the array.
    pub(super) fn pointers(&self) -> [*const u8; PARAMETERS + 4] {
        let start = self.words.as_ptr().cast::<u8>();
        let of_word = |word: u32| start.wrapping_add(8 * word as usize);
        std::array::from_fn(|at| match at {
            _ if at < PARAMETERS => of_word(at as u32),
            PARAMETERS => of_word(TABLE),
            7 => of_word(NUMBERS),
            8 => of_word(NUMBERS).wrapping_add(4),
            _ => of_word(ARRAY),
        })
    }

    /// By block, what a launch may write.
    pub(super) fn may_write(&self, effects: &Effects, arena: &Arena) -> [bool; BLOCKS] {
        let value = |offset: u32| {
            let bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let at = offset as usize;
            bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map(u64::from_le_bytes)
        };
        let block = |offset| value(offset).and_then(|address| arena.block_of(address));
        let holds = |offset| {
            let is_table = value(offset) == Some(arena.table());
            is_table || block(offset).is_some()
        };
        let written = written(effects, holds);
        let mut may = [false; BLOCKS];
        written.through.iter().filter_map(|offset| block(*offset)).for_each(|block| may[block] = true);
        if written.loaded {
            may[NAMED..].fill(true);
        }
        may
    }
}
