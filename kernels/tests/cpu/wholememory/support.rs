//! Tables in chunks as the kernels see them, with a model of their bytes, and draws that a seed
//! repeats.

use wm_kernels::wholememory::{Chunks, Numbers, Table};

use crate::support::{read, written};

/// Launch shapes of whole warps, and one whose last warp is not whole.
pub(crate) const WARPS: [(u32, u32); 5] = [(1, 32), (3, 64), (2, 256), (1, 1024), (2, 72)];

/// Draws that look random and repeat with their seed.
pub(crate) struct Draws(u64, u64);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed, 0)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.1 += 1;
        wm_kernels::pattern(self.0, self.1)
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.word() % limit
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.word() as u8).collect()
    }

    pub(crate) fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// How a table is laid out.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Rows of each chunk.
    pub(crate) chunks: Vec<u64>,
    /// The value of `equal` for kernels.
    pub(crate) equal: u64,
    /// Bytes from row to row.
    pub(crate) stride: usize,
    /// Of each chunk's first row, from a multiple of 16.
    pub(crate) misalignment: usize,
}

impl Layout {
    /// One to eight chunks of drawn sizes (some empty), or equal ones with a last one that is
    /// shorter or longer.
    pub(crate) fn draw(draws: &mut Draws, stride: usize, misalignment: usize) -> Self {
        let count = 1 + draws.below(8) as usize;
        let rows = 1 + draws.below(40);
        let (mut chunks, mut equal) = (vec![rows; count], 0);
        if draws.below(2) == 0 {
            equal = rows;
            chunks[count - 1] = draws.below(2 * rows + 1);
        } else {
            chunks.iter_mut().for_each(|chunk| *chunk = draws.below(3).min(1) * draws.below(40));
        }
        chunks[0] = chunks[0].max(1);
        Self { chunks, equal, stride, misalignment }
    }

    /// `rows` rows of `stride` bytes without space between them, over one to eight chunks, some of
    /// them empty.
    pub(crate) fn split(draws: &mut Draws, rows: u64, stride: usize) -> Self {
        let count = 1 + draws.below(8);
        let even = rows.div_ceil(count);
        let is_even = draws.below(2) == 0;
        let mut ends: Vec<u64> = (1..count)
            .map(|chunk| if is_even { (chunk * even).min(rows) } else { draws.below(rows + 1) })
            .chain([rows])
            .collect();
        ends.sort_unstable();
        let mut first = 0;
        let chunk = |end| {
            let size = end - first;
            first = end;
            size
        };
        let chunks = ends.into_iter().map(chunk).collect();
        Self { chunks, equal: if is_even { even } else { 0 }, stride, misalignment: draws.of(&[0, 8]) }
    }

    pub(crate) fn rows(&self) -> u64 {
        self.chunks.iter().sum()
    }
}

/// A table's memory, and its description for kernels.
pub(crate) struct ChunkedTable {
    pub(crate) layout: Layout,
    memory: Vec<Vec<u128>>,
    pub(crate) bases: Vec<u64>,
    pub(crate) starts: Vec<u64>,
}

impl ChunkedTable {
    /// A table with the bytes of `content`, row after row.
    pub(crate) fn new(layout: Layout, content: &[u8]) -> Self {
        let stride = layout.stride;
        let mut starts = vec![0];
        layout.chunks.iter().for_each(|rows| starts.push(starts[starts.len() - 1] + rows));
        let mut table = Self { layout, memory: Vec::new(), bases: Vec::new(), starts };
        for (chunk, rows) in table.layout.chunks.clone().into_iter().enumerate() {
            let bytes = rows as usize * stride;
            let mut memory = vec![0u128; (bytes + table.layout.misalignment).div_ceil(16) + 1];
            table.bases.push(written(&mut memory) + table.layout.misalignment as u64);
            table.memory.push(memory);
            let from = table.starts[chunk] as usize * stride;
            table.chunk_mut(chunk).copy_from_slice(&content[from..from + bytes]);
        }
        table
    }

    fn chunk_mut(&mut self, chunk: usize) -> &mut [u8] {
        let bytes = self.layout.chunks[chunk] as usize * self.layout.stride;
        let start = self.layout.misalignment;
        &mut bytes_of_mut(&mut self.memory[chunk])[start..start + bytes]
    }

    /// The table's current content.
    pub(crate) fn content(&self) -> Vec<u8> {
        let chunk = |(memory, rows): (&Vec<u128>, &u64)| {
            let bytes = *rows as usize * self.layout.stride;
            bytes_of(memory)[self.layout.misalignment..][..bytes].to_vec()
        };
        self.memory.iter().zip(&self.layout.chunks).flat_map(chunk).collect()
    }

    /// The table from byte `offset` on, with addresses that must not be used where a kernel has no
    /// need of them.
    pub(crate) fn table(&self, rows: u64, offset: u64) -> Table {
        let Layout { equal, stride, .. } = self.layout;
        let unused = Chunks { bases: 16, starts: 16, equal, count: 1 };
        match self.bases[..] {
            [base] => Table { chunks: unused, offset, ..Table::at(base, rows, stride as u64) },
            _ => {
                let (bases, starts) = (read(&self.bases), read(&self.starts));
                let chunks = Chunks { bases, starts, equal, count: self.bases.len() as u32 };
                let table = Table::over(chunks, rows, stride as u64, offset);
                Table { base: 0xdead_0000_0000_0000, ..table }
            }
        }
    }

    /// All rows.
    pub(crate) fn whole(&self) -> Table {
        self.table(self.layout.rows(), 0)
    }
}

/// An array of numbers of `bytes` bytes.
pub(crate) fn numbers(array: &[u8], bytes: u32) -> Numbers {
    Numbers { address: read(array), count: array.len() as u64 / u64::from(bytes), bytes }
}

/// Row numbers below `rows`, with some that are negative or too large; as the bytes of an array of
/// 4- or 8-byte ones.
pub(crate) fn indices(draws: &mut Draws, count: usize, rows: u64, index_bytes: u32) -> (Vec<i64>, Vec<u8>) {
    let number = |draws: &mut Draws| match draws.below(12) {
        0 => -1 - draws.below(3) as i64,
        1 => (rows + draws.below(3)) as i64,
        2 if index_bytes == 8 => draws.of(&[i64::MAX, i64::MIN, 1 << 32]),
        _ => draws.below(rows) as i64,
    };
    let numbers: Vec<i64> = (0..count).map(|_| number(draws)).collect();
    let bytes = packed(&numbers, index_bytes);
    (numbers, bytes)
}

/// Numbers as an array of 4- or 8-byte ones.
pub(crate) fn packed(numbers: &[i64], bytes: u32) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()[..bytes as usize].to_vec()).collect()
}

/// The row that `number` names, if there is one.
pub(crate) fn row(number: i64, rows: u64) -> Option<usize> {
    u64::try_from(number).ok().filter(|number| *number < rows).map(|number| number as usize)
}

/// The widest access of up to 16 bytes that all of `values` are multiples of.
pub(crate) fn width(values: &[u64]) -> u32 {
    let all = values.iter().fold(16, |all, value| all | value);
    1 << all.trailing_zeros()
}

/// Memory at `misalignment` bytes from a multiple of 16.
pub(crate) struct Placed {
    memory: Vec<u128>,
    misalignment: usize,
    len: usize,
}

impl Placed {
    pub(crate) fn new(content: &[u8], misalignment: usize) -> Self {
        let mut memory = vec![0u128; (content.len() + misalignment).div_ceil(16) + 1];
        bytes_of_mut(&mut memory)[misalignment..misalignment + content.len()].copy_from_slice(content);
        Self { memory, misalignment, len: content.len() }
    }

    pub(crate) fn address(&mut self) -> u64 {
        written(&mut self.memory) + self.misalignment as u64
    }

    pub(crate) fn content(&self) -> &[u8] {
        &bytes_of(&self.memory)[self.misalignment..self.misalignment + self.len]
    }
}

fn bytes_of(memory: &[u128]) -> &[u8] {
    // SAFETY: any bytes are bytes; length and lifetime are the vector's.
    unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), size_of_val(memory)) }
}

fn bytes_of_mut(memory: &mut [u128]) -> &mut [u8] {
    // SAFETY: any bytes are bytes and words; length and lifetime are the vector's.
    unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), size_of_val(memory)) }
}
