//! Embeddings whose rows have copies on GPUs, which ranks bring and drop while others read.
//!
//! Hazards: bytes of another row, of half a row, or from before a change; a cache that is none; one that stays when it was dropped; a
//! policy that one rank has and another has not.
//!
//! What comes from copies is seen where rows are changed behind the cache's back: copies keep the old bytes.

use std::ptr::{null, null_mut};

use wm_driver::Api;

use crate::api::{Description, Handle};
use crate::rank::{
    CHUNKED, CONTINUOUS, DEVICE, DISTRIBUTED, HOST, INVALID_INPUT, Local, Rank, SUCCESS, Verdict, byte_at,
    bytes_at, local, must, want,
};

/// `WHOLEMEMORY_DT_*`
const FLOAT: u32 = 1;
const HALF: u32 = 2;
const INT: u32 = 5;
const INT64: u32 = 6;
/// `WHOLEMEMORY_AT_*`
const READ_ONLY: u32 = 1;
pub(super) const READ_WRITE: u32 = 2;

/// What the bytes of rows are at first, and after they were changed.
const BEFORE: usize = 4;
const AFTER: usize = 9;

/// Whose a cache is: that of the rows' ranks, of each rank alone, of two ranks at a time, of all ranks in another communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Owners,
    Alone,
    Pairs,
    All,
}

/// A type of memory with a policy for it.
type Kind = (Of, (u32, u32), u32);

const KINDS: [Kind; 9] = [
    (Of::Owners, (CONTINUOUS, HOST), CONTINUOUS),
    (Of::Owners, (CONTINUOUS, HOST), DISTRIBUTED),
    (Of::Owners, (CHUNKED, HOST), CHUNKED),
    (Of::Owners, (DISTRIBUTED, HOST), DISTRIBUTED),
    (Of::Owners, (CHUNKED, DEVICE), CHUNKED),
    (Of::Alone, (DISTRIBUTED, DEVICE), CHUNKED),
    (Of::Alone, (CHUNKED, HOST), CONTINUOUS),
    (Of::Pairs, (CHUNKED, DEVICE), CONTINUOUS),
    (Of::All, (DISTRIBUTED, HOST), CHUNKED),
];

pub(super) fn policy(
    rank: &Rank,
    comm: Handle,
    kind: (u32, u32),
    access: u32,
    ratio: f32,
) -> Verdict<Handle> {
    let mut policy = null_mut();
    let place = &mut policy;
    want!(
        SUCCESS,
        rank.wholememory_create_embedding_cache_policy(place, comm, kind.0, kind.1, access, ratio)
    )?;
    Ok(policy)
}

pub(super) fn create(
    rank: &Rank,
    code: u32,
    shape: &Description,
    kind: (u32, u32),
    policy: Handle,
    each: Option<&[usize]>,
) -> Verdict<Handle> {
    let mut embedding = null_mut();
    let (place, each) = (&mut embedding, each.map_or(null(), <[usize]>::as_ptr));
    want!(
        code,
        rank.wholememory_create_embedding(place, shape, rank.comm, kind.0, kind.1, policy, each, -1, 0)
    )?;
    Ok(embedding)
}

/// An embedding with a cache, and the communicator that is the cache's alone.
struct Cached<'a> {
    rank: &'a Rank,
    embedding: Handle,
    tensor: Handle,
    part: Handle,
    shape: Description,
    /// Bytes from row to row, and of a row.
    stride: usize,
    row: usize,
}

impl<'a> Cached<'a> {
    fn new(
        rank: &'a Rank,
        shape: Description,
        (of, kind, cache): Kind,
        ratio: f32,
        each: Option<&[usize]>,
    ) -> Verdict<Self> {
        let color = match of {
            Of::Owners => None,
            Of::Alone => Some(rank.number),
            Of::Pairs => Some(rank.number / 2),
            Of::All => Some(0),
        };
        let mut part = null_mut();
        if let Some(color) = color {
            want!(SUCCESS, rank.wholememory_split_communicator(&mut part, rank.comm, color as i32, 0))?;
        }
        let (comm, access) = if part.is_null() { (rank.comm, READ_WRITE) } else { (part, READ_ONLY) };
        let policy = policy(rank, comm, (cache, DEVICE), access, ratio)?;
        let embedding = create(rank, SUCCESS, &shape, kind, policy, each)?;
        // The embedding keeps what it needs of it.
        want!(SUCCESS, rank.wholememory_destroy_embedding_cache_policy(policy))?;
        // SAFETY: a handle.
        let tensor = unsafe { (rank.library.wholememory_embedding_get_embedding_tensor)(embedding) };
        let element = if shape.dtype == HALF { 2 } else { 4 };
        // SAFETY: a handle, and the library's description as long as it is open.
        let stride =
            unsafe { (*(rank.library.wholememory_tensor_get_tensor_description)(tensor)).strides[0] };
        let (stride, row) = (stride as usize * element, shape.sizes[1] as usize * element);
        let cached = Self { rank, embedding, tensor, part, shape, stride, row };
        cached.write(BEFORE)?;
        Ok(cached)
    }

    /// Writes this rank's own rows, past the cache.
    fn write(&self, salt: usize) -> Verdict {
        // SAFETY: a handle.
        let memory = unsafe { (self.rank.library.wholememory_tensor_get_memory_handle)(self.tensor) };
        let own = self.rank.own_part(memory)?;
        self.rank.barrier()?;
        if own.bytes > 0 {
            self.rank.write(own.address, &bytes_at(own.offset, own.bytes, salt))?;
        }
        self.rank.barrier()
    }

    fn gather(&self, rows: &[i64], adjusts: bool) -> Verdict<Vec<u8>> {
        let (rank, count) = (self.rank, rows.len());
        let indices = local(rank, rows, if count.is_multiple_of(2) { INT64 } else { INT })?;
        let shape =
            Description { sizes: [count as i64, self.shape.sizes[1], 1, 1, 1, 1, 1, 1], ..self.shape };
        let output = Local::new(rank, &vec![0xee; count * self.row], &shape)?;
        want!(
            SUCCESS,
            rank.wholememory_embedding_gather(
                self.embedding,
                indices.tensor,
                output.tensor,
                adjusts,
                null(),
                0
            )
        )?;
        output.read()
    }

    fn is_row(&self, bytes: &[u8], row: i64, salt: usize) -> bool {
        let start = row as usize * self.stride;
        bytes.iter().enumerate().all(|(at, byte)| *byte == byte_at(start + at, salt))
    }

    /// Gathers rows, which must be what they were before; some numbers name no row.
    fn right(&self, rows: &[i64], adjusts: bool) -> Verdict {
        let found = self.gather(rows, adjusts)?;
        for (row, bytes) in rows.iter().zip(found.chunks(self.row)) {
            let right = match (0..self.shape.sizes[0]).contains(row) {
                true => self.is_row(bytes, *row, BEFORE),
                false => bytes.iter().all(|byte| *byte == 0xee),
            };
            must(right, || format!("row {row} is {bytes:x?}"))?;
        }
        Ok(())
    }

    /// How many of the rows come from copies, when all were changed where they are.
    fn copies_of(&self, rows: &[i64]) -> Verdict<usize> {
        let found = self.gather(rows, false)?;
        let mut copies = 0;
        for (row, bytes) in rows.iter().zip(found.chunks(self.row)) {
            let is_copy = self.is_row(bytes, *row, BEFORE);
            must(is_copy || self.is_row(bytes, *row, AFTER), || format!("row {row} is {bytes:x?}"))?;
            copies += usize::from(is_copy);
        }
        Ok(copies)
    }

    fn drop_all(&self) -> Verdict {
        let rank = self.rank;
        want!(SUCCESS, rank.wholememory_embedding_writeback_cache(self.embedding, 0))?;
        want!(SUCCESS, rank.wholememory_embedding_drop_all_cache(self.embedding, 0))?;
        rank.barrier()
    }

    fn end(self) -> Verdict {
        let rank = self.rank;
        rank.barrier()?;
        want!(SUCCESS, rank.wholememory_destroy_embedding(self.embedding))?;
        if self.part.is_null() {
            return Ok(());
        }
        want!(SUCCESS, rank.wholememory_destroy_communicator(self.part))
    }
}

/// Draws that a seed repeats.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((self.0 >> 33) * limit as u64 >> 31) as usize
    }

    /// Row 0 is asked for most, row n an n-th as often.
    fn zipf(&mut self, rows: usize, count: usize) -> Vec<i64> {
        let draw = |_| {
            let at = self.below(1 << 30) as f64 / f64::from(1 << 30);
            ((rows as f64 + 1.0).powf(at) - 1.0) as i64
        };
        (0..count).map(draw).collect()
    }
}

/// All ranks read the same rows while each brings others: every byte is right all the time.
pub(super) fn gathered(rank: &Rank) -> Verdict {
    // Rows of 26 bytes in 32; of 16 and 64 bytes; and longer than a warp's words.
    let shapes = [(13, HALF), (4, FLOAT), (16, FLOAT), (130, FLOAT)];
    for (number, kind) in KINDS.into_iter().enumerate() {
        let (columns, dtype) = shapes[number % shapes.len()];
        for ratio in [1.0 / 512.0, 0.1, 1.0] {
            let rows = 700 + rank.size;
            let each: Vec<_> = (0..rank.size).map(|rank| 1 + rank).collect();
            let each: Vec<_> = each.iter().map(|share| share * rows / each.iter().sum::<usize>()).collect();
            let rest = rows - each.iter().sum::<usize>();
            let each: Vec<_> =
                each.iter().enumerate().map(|(at, rows)| rows + if at == 0 { rest } else { 0 }).collect();
            let each = (number % 2 == 0).then_some(each.as_slice());
            let shape = Description::matrix(rows as i64, columns, columns, dtype);
            let cached = Cached::new(rank, shape, kind, ratio, each)?;
            let mut draws = Draws(rank.number as u64);
            for round in 0..8 {
                let mut chosen = draws.zipf(rows, 150 + round);
                chosen.extend([-1, rows as i64, i64::from(i32::MAX)]);
                let told = |reason| format!("{kind:?}, ratio {ratio}, round {round}: {reason}");
                cached.right(&chosen, round != 5).map_err(told)?;
                if round == 6 && rank.number == 0 {
                    cached.drop_all_alone()?;
                }
            }
            cached.right(&[], true)?;
            cached.end()?;
        }
    }
    Ok(())
}

impl Cached<'_> {
    /// One rank's call, while others read.
    fn drop_all_alone(&self) -> Verdict {
        let rank = self.rank;
        want!(SUCCESS, rank.wholememory_embedding_drop_all_cache(self.embedding, 0))
    }
}

/// A small cache of which every line is taken again and again, by rows that all ranks read meanwhile.
pub(super) fn taken_while_read(rank: &Rank) -> Verdict {
    for kind in [KINDS[2], KINDS[5], KINDS[8]] {
        let cached = Cached::new(rank, Description::matrix(64, 128, 128, FLOAT), kind, 0.1, None)?;
        let mut draws = Draws(17 + rank.number as u64);
        for round in 0..120 {
            // What is hot changes, and half of all lookups is for rows that come and go.
            let rows: Vec<_> = (0..256).map(|_| (draws.below(16) + round % 5 * 12) as i64).collect();
            cached.right(&rows, true).map_err(|reason| format!("{kind:?}, round {round}: {reason}"))?;
        }
        cached.end()?;
    }
    Ok(())
}

/// With a line for each row all rows come from lines, until these are dropped.
pub(super) fn holds_all_rows(rank: &Rank) -> Verdict {
    for kind in KINDS {
        let rows = 515;
        let cached = Cached::new(rank, Description::matrix(rows, 8, 8, FLOAT), kind, 1.0, None)?;
        let all: Vec<_> = (0..rows).collect();
        for _ in 0..4 {
            cached.right(&all, true)?;
            rank.barrier()?;
        }
        cached.write(AFTER)?;
        let copies = cached.copies_of(&all)?;
        must(copies == all.len(), || format!("{kind:?}: {copies} of {rows} rows come from lines"))?;
        rank.barrier()?;
        cached.drop_all()?;
        let copies = cached.copies_of(&all)?;
        must(copies == 0, || format!("{kind:?}: {copies} rows come from lines that were dropped"))?;
        cached.end()?;
    }
    Ok(())
}

/// A tenth of the rows, of which few are asked for most of the time; hot rows are neighbours.
pub(super) fn holds_hot_rows(rank: &Rank) -> Verdict {
    for kind in [KINDS[2], KINDS[5], KINDS[7]] {
        let rows = 4000;
        let cached = Cached::new(rank, Description::matrix(rows as i64, 4, 4, FLOAT), kind, 0.1, None)?;
        let mut draws = Draws(3 + rank.number as u64);
        for _ in 0..25 {
            cached.right(&draws.zipf(rows, 2000), true)?;
            rank.barrier()?;
        }
        cached.write(AFTER)?;
        let chosen = draws.zipf(rows, 4000);
        let copies = cached.copies_of(&chosen)?;
        // The hottest tenth has 0.72 of all.
        must(copies * 100 > chosen.len() * 60, || {
            format!("{kind:?}: {copies} of {} lookups come from lines", chosen.len())
        })?;
        cached.end()?;
    }
    Ok(())
}

pub(super) fn misused(rank: &Rank) -> Verdict {
    let (shape, mut part) = (Description::matrix(100, 4, 4, FLOAT), null_mut());
    want!(SUCCESS, rank.wholememory_split_communicator(&mut part, rank.comm, 0, 0))?;
    let wrong = [
        // A cache of the rows' ranks: on the host; that shows more than the rows do.
        (rank.comm, (CHUNKED, HOST), READ_WRITE, (CHUNKED, HOST)),
        (rank.comm, (CONTINUOUS, DEVICE), READ_WRITE, (CHUNKED, HOST)),
        // One of other ranks: that is written; that shows nothing.
        (part, (CHUNKED, DEVICE), READ_WRITE, (CHUNKED, DEVICE)),
        (part, (DISTRIBUTED, DEVICE), READ_ONLY, (CHUNKED, DEVICE)),
    ];
    for (comm, cache, access, kind) in wrong {
        let policy = policy(rank, comm, cache, access, 0.5)?;
        create(rank, INVALID_INPUT, &shape, kind, policy, None)?;
        want!(SUCCESS, rank.wholememory_destroy_embedding_cache_policy(policy))?;
    }
    // What is read alone is not trained.
    let mut sgd = null_mut();
    want!(SUCCESS, rank.wholememory_create_embedding_optimizer(&mut sgd, 1))?;
    for comm in [rank.comm, part] {
        let policy = policy(rank, comm, (CHUNKED, DEVICE), READ_ONLY, 0.5)?;
        let embedding = create(rank, SUCCESS, &shape, (CHUNKED, HOST), policy, None)?;
        want!(INVALID_INPUT, rank.wholememory_embedding_set_optimizer(embedding, sgd))?;
        rank.barrier()?;
        want!(SUCCESS, rank.wholememory_destroy_embedding(embedding))?;
        want!(SUCCESS, rank.wholememory_destroy_embedding_cache_policy(policy))?;
    }
    // SAFETY: a handle.
    unsafe { (rank.library.wholememory_destroy_embedding_optimizer)(sgd) };
    // A cache on the host would be no nearer: none is made, and rows are right.
    let policy = policy(rank, part, (CHUNKED, HOST), READ_ONLY, 0.5)?;
    let embedding = create(rank, SUCCESS, &shape, (CHUNKED, DEVICE), policy, None)?;
    want!(SUCCESS, rank.wholememory_embedding_drop_all_cache(embedding, 0))?;
    rank.barrier()?;
    want!(SUCCESS, rank.wholememory_destroy_embedding(embedding))?;
    // One rank's policy alone.
    for who in 0..if rank.size > 1 { rank.size } else { 0 } {
        let own = if rank.number == who { policy } else { null_mut() };
        let other = policy_of_owners(rank)?;
        create(
            rank,
            INVALID_INPUT,
            &shape,
            (CHUNKED, HOST),
            if rank.number == who { other } else { own },
            None,
        )?;
        want!(SUCCESS, rank.wholememory_destroy_embedding_cache_policy(other))?;
    }
    want!(SUCCESS, rank.wholememory_destroy_embedding_cache_policy(policy))?;
    want!(SUCCESS, rank.wholememory_destroy_communicator(part))
}

fn policy_of_owners(rank: &Rank) -> Verdict<Handle> {
    policy(rank, rank.comm, (CHUNKED, DEVICE), READ_WRITE, 0.5)
}

/// A call in the making of a cache fails on one rank.
pub(super) fn a_call_fails(rank: &Rank) -> Verdict {
    let (shape, mut part, mut failures) = (Description::matrix(1000, 4, 4, FLOAT), null_mut(), 0);
    let free = || rank.driver.mem_info().map_err(|error| error.to_string());
    want!(SUCCESS, rank.wholememory_split_communicator(&mut part, rank.comm, rank.number as i32, 0))?;
    for (comm, access) in [(rank.comm, READ_WRITE), (part, READ_ONLY)] {
        for _ in 0..2 {
            let policy = policy(rank, comm, (CHUNKED, DEVICE), access, 0.5)?;
            rank.barrier()?;
            let before = free()?;
            rank.barrier()?;
            let (mut embedding, kind) = (null_mut(), (CHUNKED, HOST));
            let (place, none) = (&mut embedding, null());
            // SAFETY: a live local, and handles.
            let code = unsafe {
                (rank.library.wholememory_create_embedding)(
                    place, &shape, rank.comm, kind.0, kind.1, policy, none, -1, 0,
                )
            };
            failures += usize::from(code != SUCCESS);
            // Who fails, fails with all others.
            let (mut same, mut size) = (null_mut(), 0);
            let color = i32::from(code != SUCCESS);
            want!(SUCCESS, rank.wholememory_split_communicator(&mut same, rank.comm, color, 0))?;
            want!(SUCCESS, rank.wholememory_communicator_get_size(&mut size, same))?;
            must(size as usize == rank.size, || format!("code {code} on {size} of {} ranks", rank.size))?;
            want!(SUCCESS, rank.wholememory_destroy_communicator(same))?;
            if code == SUCCESS {
                want!(SUCCESS, rank.wholememory_destroy_embedding(embedding))?;
            }
            want!(SUCCESS, rank.wholememory_destroy_embedding_cache_policy(policy))?;
            rank.barrier()?;
            let after = free()?;
            must(before == after, || format!("{before:?} before, {after:?} after"))?;
        }
    }
    want!(SUCCESS, rank.wholememory_destroy_communicator(part))?;
    must(failures == 1, || format!("{failures} calls failed, not one"))
}
