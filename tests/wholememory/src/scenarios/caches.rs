//! Embeddings whose rows have copies on GPUs, which ranks bring and drop while others read.
//!
//! Hazards: bytes of another row, of half a row, or from before a change; a cache that is none; one
//! that stays when it was dropped.
//!
//! A scenario tells a copy from a row by a change of rows past the cache: copies keep the old
//! bytes.

use std::ptr::{null, null_mut};

use fastrand::Rng;
use wm_abi::{
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_NON_BLOCKING, CUgraph, CUgraphExec, CUresult, symbol,
};
use wm_driver::Api;

use super::cache_policies::{READ_ONLY, READ_WRITE, create, policy};
use super::deaths::until_a_rank_ends;
use super::folder::Folder;
use crate::api::{Description, Handle};
use crate::rank::{
    CHUNKED, CONTINUOUS, CUDA_ERROR, DEVICE, DISTRIBUTED, HIERARCHY, HOST, Local, Rank, SUCCESS, Verdict,
    byte_at, bytes_at, local, must, want,
};

/// `WHOLEMEMORY_DT_*`
const FLOAT: u32 = 1;
const HALF: u32 = 2;
const INT: u32 = 5;
const INT64: u32 = 6;

/// Salts of the rows' bytes before and after the change.
const BEFORE: usize = 4;
const AFTER: usize = 9;

/// The owner of a cache: the rows' ranks, the same for reading alone, of each rank alone, of
/// two ranks of an island at a time, of all ranks in another communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Owners,
    Readers,
    Alone,
    Pairs,
    All,
}

/// A type of memory with a policy for it.
type Kind = (Of, (u32, u32), u32);

const KINDS: [Kind; 10] = [
    (Of::Owners, (CONTINUOUS, HOST), CONTINUOUS),
    (Of::Owners, (CONTINUOUS, HOST), DISTRIBUTED),
    (Of::Owners, (CHUNKED, HOST), CHUNKED),
    (Of::Owners, (DISTRIBUTED, HOST), DISTRIBUTED),
    (Of::Owners, (CHUNKED, DEVICE), CHUNKED),
    (Of::Alone, (DISTRIBUTED, DEVICE), CHUNKED),
    (Of::Alone, (CHUNKED, HOST), CONTINUOUS),
    (Of::Pairs, (CHUNKED, DEVICE), CONTINUOUS),
    (Of::All, (DISTRIBUTED, HOST), CHUNKED),
    (Of::Readers, (CHUNKED, HOST), DISTRIBUTED),
];

/// Kinds of rows that span islands: each island has copies of its own; or some of its ranks have
/// copies of any.
const SPANNING: [Kind; 7] = [
    (Of::Owners, (DISTRIBUTED, HOST), DISTRIBUTED),
    (Of::Alone, (DISTRIBUTED, DEVICE), CHUNKED),
    (Of::Pairs, (HIERARCHY, HOST), CONTINUOUS),
    (Of::Readers, (DISTRIBUTED, HOST), DISTRIBUTED),
    (Of::Owners, (DISTRIBUTED, DEVICE), DISTRIBUTED),
    (Of::Owners, (HIERARCHY, HOST), HIERARCHY),
    (Of::Readers, (HIERARCHY, DEVICE), HIERARCHY),
];

/// Some kinds, by number; where the ranks are on several islands, as many of those that span them.
fn kinds(rank: &Rank, numbers: impl IntoIterator<Item = usize>) -> Vec<Kind> {
    match rank.islands.min(rank.size) {
        1 => numbers.into_iter().map(|number| KINDS[number]).collect(),
        _ => numbers.into_iter().zip(SPANNING).map(|(_, kind)| kind).collect(),
    }
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
            Of::Owners | Of::Readers => None,
            Of::Alone => Some(rank.number),
            Of::Pairs => Some(rank.number % rank.islands + rank.number / rank.islands / 2 * rank.islands),
            Of::All => Some(0),
        };
        let mut part = null_mut();
        if let Some(color) = color {
            want!(SUCCESS, rank.wholememory_split_communicator(&mut part, rank.comm, color as i32, 0))?;
        }
        let access = if of == Of::Owners { READ_WRITE } else { READ_ONLY };
        let comm = if part.is_null() { rank.comm } else { part };
        let policy = policy(rank, comm, (cache, DEVICE), access, ratio)?;
        let embedding = create(rank, SUCCESS, &shape, kind, policy, each)?;
        // The embedding has a copy of the policy.
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
        let (code, found) = self.gather_or_code(rows, adjusts)?;
        must(code == SUCCESS, || format!("a gather gave {code}"))?;
        Ok(found)
    }

    fn gather_or_code(&self, rows: &[i64], adjusts: bool) -> Verdict<(u32, Vec<u8>)> {
        let (rank, count) = (self.rank, rows.len());
        let indices = local(rank, rows, if count.is_multiple_of(2) { INT64 } else { INT })?;
        let shape =
            Description { sizes: [count as i64, self.shape.sizes[1], 1, 1, 1, 1, 1, 1], ..self.shape };
        let output = Local::new(rank, &vec![0xee; count * self.row], &shape)?;
        let gather = rank.library.wholememory_embedding_gather;
        // SAFETY: handles.
        let code = unsafe { gather(self.embedding, indices.tensor, output.tensor, adjusts, null(), 0) };
        Ok((code, output.read()?))
    }

    fn is_row(&self, bytes: &[u8], row: i64, salt: usize) -> bool {
        let start = row as usize * self.stride;
        bytes.iter().enumerate().all(|(at, byte)| *byte == byte_at(start + at, salt))
    }

    /// Gathers rows, which must be unchanged; some numbers name no row.
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

    /// One rank's call, while others read.
    fn drop_all_alone(&self) -> Verdict {
        let rank = self.rank;
        want!(SUCCESS, rank.wholememory_embedding_drop_all_cache(self.embedding, 0))
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

/// Rows of which row 0 is asked for most, and row n an n-th as often.
fn zipf(random: &mut Rng, rows: usize, count: usize) -> Vec<i64> {
    let draw = |_| ((rows as f64 + 1.0).powf(random.f64()) - 1.0) as i64;
    (0..count).map(draw).collect()
}

/// All ranks read the same rows while each brings others: every byte is right all the time.
pub(super) fn gathered(rank: &Rank) -> Verdict {
    // Rows of 26 bytes in 32; of 16 and 64 bytes; and longer than a warp's words.
    let shapes = [(13, HALF), (4, FLOAT), (16, FLOAT), (130, FLOAT)];
    for (number, kind) in kinds(rank, 0..KINDS.len()).into_iter().enumerate() {
        let (columns, dtype) = shapes[number % shapes.len()];
        // Other numbers of ranks have the other ratios.
        let ratio = [1.0 / 512.0, 0.1, 1.0][(number / 3 + number + rank.size) % 3];
        let rows = 700 + rank.size;
        let each: Vec<_> = (0..rank.size).map(|rank| 1 + rank).collect();
        let each: Vec<_> = each.iter().map(|share| share * rows / each.iter().sum::<usize>()).collect();
        let rest = rows - each.iter().sum::<usize>();
        let each: Vec<_> =
            each.iter().enumerate().map(|(at, rows)| rows + if at == 0 { rest } else { 0 }).collect();
        let each = (number % 2 == 0).then_some(each.as_slice());
        let shape = Description::matrix(rows as i64, columns, columns, dtype);
        let cached = Cached::new(rank, shape, kind, ratio, each)?;
        let mut random = Rng::with_seed(rank.number as u64);
        for round in 0..8 {
            let mut chosen = zipf(&mut random, rows, 150 + round);
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
    Ok(())
}

/// A small cache of which every line is taken again and again, by rows that all ranks read
/// meanwhile.
pub(super) fn taken_while_read(rank: &Rank) -> Verdict {
    for kind in kinds(rank, [2, 8, 9]) {
        let cached = Cached::new(rank, Description::matrix(64, 128, 128, FLOAT), kind, 0.1, None)?;
        let mut random = Rng::with_seed(17 + rank.number as u64);
        // Two ranks that share two cores meet in a line most often; one meets none.
        for round in 0..if rank.size == 1 { 5 } else { 80 / rank.size } {
            // The hot rows change: lines are taken from rows that others still gather.
            let rows: Vec<_> =
                (0..512 / rank.size.max(2)).map(|_| (random.usize(..16) + round % 5 * 12) as i64).collect();
            cached.right(&rows, true).map_err(|reason| format!("{kind:?}, round {round}: {reason}"))?;
        }
        cached.end()?;
    }
    Ok(())
}

/// So many rows that they are moved in the order of their addresses, while lines are taken: each
/// arrives where it was asked for.
pub(super) fn ordered(rank: &Rank) -> Verdict {
    // Rows of 26 bytes in 32, and of 64 bytes.
    for (number, kind) in kinds(rank, [2, 8, 9]).into_iter().enumerate() {
        let (columns, dtype) = if number == 0 { (13, HALF) } else { (16, FLOAT) };
        let rows = 5000;
        let cached = Cached::new(rank, Description::matrix(rows, columns, columns, dtype), kind, 0.1, None)?;
        let mut random = Rng::with_seed(91 + rank.number as u64);
        for round in 0..2 {
            // Many rows come again; some numbers name no row.
            let mut chosen = zipf(&mut random, rows as usize, (1 << 14) + round);
            chosen.iter_mut().step_by(50).for_each(|row| *row -= 40);
            chosen.iter_mut().skip(1).step_by(70).for_each(|row| *row += rows - 9);
            cached.right(&chosen, true).map_err(|reason| format!("{kind:?}, round {round}: {reason}"))?;
        }
        cached.end()?;
    }
    Ok(())
}

/// With a line for each row all rows come from lines, until these are dropped.
pub(super) fn holds_all_rows(rank: &Rank) -> Verdict {
    for kind in kinds(rank, 0..KINDS.len()) {
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

/// A tenth of the rows, of which few are asked for most of the time. Hot rows are neighbours,
/// unless each rank has lines for its own rows alone: then every rank has some of them.
pub(super) fn holds_hot_rows(rank: &Rank) -> Verdict {
    for kind in kinds(rank, [2, 7, 9]) {
        let rows = 4000;
        let cached = Cached::new(rank, Description::matrix(rows as i64, 4, 4, FLOAT), kind, 0.1, None)?;
        let mut random = Rng::with_seed(3 + rank.number as u64);
        let step = if kind.0 == Of::Owners { 997 } else { 1 };
        let mut draw = |count| -> Vec<_> {
            zipf(&mut random, rows, count).into_iter().map(|row| row * step % rows as i64).collect()
        };
        for _ in 0..25 {
            cached.right(&draw(2000), true)?;
            rank.barrier()?;
        }
        cached.write(AFTER)?;
        let chosen = draw(4000);
        let copies = cached.copies_of(&chosen)?;
        // The hottest tenth has 0.72 of all.
        must(copies * 100 > chosen.len() * 60, || {
            format!("{kind:?}: {copies} of {} lookups come from lines", chosen.len())
        })?;
        cached.end()?;
    }
    Ok(())
}

/// A load writes rows at every rank: no copy of the old rows remains when it returns.
pub(super) fn loaded(rank: &Rank) -> Verdict {
    let folder = Folder::new(rank)?;
    for kind in kinds(rank, [2, 4, 5, 8, 9]) {
        let (rows, row) = (333, 32);
        let cached = Cached::new(rank, Description::matrix(rows, 8, 8, FLOAT), kind, 1.0, None)?;
        folder.write("rows", &bytes_at(0, rows as usize * row, AFTER))?;
        let all: Vec<_> = (0..rows).collect();
        cached.right(&all, true)?;
        cached.right(&all, true)?;
        rank.barrier()?;
        // SAFETY: a handle.
        let memory = unsafe { (rank.library.wholememory_tensor_get_memory_handle)(cached.tensor) };
        let name = folder.name("rows");
        want!(SUCCESS, rank.wholememory_load_from_file(memory, 0, row, row, &name.as_ptr(), 1, 0))?;
        let copies = cached.copies_of(&all)?;
        must(copies == 0, || format!("{kind:?}: {copies} rows are as before the load"))?;
        cached.end()?;
    }
    folder.end(rank)
}

/// Rows that span islands, of which each rank alone has copies.
fn of_all_islands(rank: &Rank, (rows, columns): (i64, i64)) -> Verdict<Cached<'_>> {
    let kind = (Of::Alone, (DISTRIBUTED, DEVICE), CHUNKED);
    Cached::new(rank, Description::matrix(rows, columns, columns, FLOAT), kind, 1.0, None)
}

/// Each rank gathers all rows as often as the test says, when it has copies of them: so nothing but
/// records crosses.
pub(super) fn counted(rank: &Rank) -> Verdict {
    let gathers = std::env::var("WHOLEMEMORY_SUITE_GATHERS").ok().and_then(|count| count.parse().ok());
    let (cached, all) = (of_all_islands(rank, (960, 32))?, (0..960).collect::<Vec<_>>());
    for _ in 0..4 + gathers.unwrap_or(1) {
        cached.right(&all, true)?;
    }
    cached.end()
}

/// A rank ends at a random moment of gathers through copies.
pub(super) fn a_rank_ends(rank: &Rank) -> Verdict {
    if rank.islands.min(rank.size) == 1 {
        return Ok(());
    }
    let cached = of_all_islands(rank, (400, 40))?;
    let mut round = 0;
    until_a_rank_ends(rank, || {
        round += 1;
        let rows: Vec<_> = (0..200).map(|at| (at * 7 + round * 13) % 400).collect();
        cached.gather_or_code(&rows, true).map(|(code, _)| code)
    })
}

/// The test lets a launch of the first gather fail at rank 1, and says of how many ranks it is an
/// error then: of all, or behind the rows of that rank alone. The next gathers are sound.
pub(super) fn a_launch_fails(rank: &Rank) -> Verdict {
    let cached = of_all_islands(rank, (300, 8))?;
    let rows: Vec<_> = (0..300).collect();
    let (code, _) = cached.gather_or_code(&rows, true)?;
    must([SUCCESS, CUDA_ERROR].contains(&code), || format!("the gather gave {code}"))?;
    let (mut alike, mut size) = (null_mut(), 0);
    want!(
        SUCCESS,
        rank.wholememory_split_communicator(&mut alike, rank.comm, i32::from(code == SUCCESS), 0)
    )?;
    want!(SUCCESS, rank.wholememory_communicator_get_size(&mut size, alike))?;
    want!(SUCCESS, rank.wholememory_destroy_communicator(alike))?;
    let failed = if code == SUCCESS { rank.size as i32 - size } else { size };
    let wanted = std::env::var("WHOLEMEMORY_SUITE_FAILED").ok().and_then(|count| count.parse().ok());
    must(wanted.is_none_or(|wanted: i32| wanted == failed), || format!("{failed} ranks have an error"))?;
    for _ in 0..3 {
        cached.right(&rows, true)?;
    }
    cached.end()
}

/// A captured gather goes through the cache and adjusts it, each time that the graph is launched.
pub(super) fn captured(rank: &Rank) -> Verdict {
    let (driver, rows) = (&rank.driver, 200);
    let cached = Cached::new(rank, Description::matrix(rows, 8, 8, FLOAT), KINDS[2], 1.0, None)?;
    let all: Vec<_> = (0..rows).collect();
    let indices = local(rank, &all, INT64)?;
    let output = Local::new(rank, &[0; 200 * 32], &Description::matrix(rows, 8, 8, FLOAT))?;
    let stream = driver.stream_create(CU_STREAM_NON_BLOCKING).map_err(|error| error.to_string())?;
    // SAFETY: a function without pointers.
    let begun = driver.call::<symbol::cuStreamBeginCapture_v2>(|function| unsafe {
        function(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    });
    must(begun == CUresult::SUCCESS, || format!("no capture begins: {begun}"))?;
    let (embedding, number) = (cached.embedding, stream.0 as i64);
    want!(
        SUCCESS,
        rank.wholememory_embedding_gather(embedding, indices.tensor, output.tensor, true, null(), number)
    )?;
    let mut graph = CUgraph::NULL;
    // SAFETY: the place is a live local.
    let ended = driver.call::<symbol::cuStreamEndCapture>(|function| unsafe { function(stream, &mut graph) });
    must(ended == CUresult::SUCCESS, || format!("the capture has ended: {ended}"))?;
    let mut launch = CUgraphExec::NULL;
    // SAFETY: the place is a live local.
    let made = driver
        .call::<symbol::cuGraphInstantiateWithFlags>(|function| unsafe { function(&mut launch, graph, 0) });
    must(made == CUresult::SUCCESS, || format!("the graph cannot be launched: {made}"))?;
    for _ in 0..3 {
        // SAFETY: both are live.
        let launched = driver.call::<symbol::cuGraphLaunch>(|function| unsafe { function(launch, stream) });
        must(launched == CUresult::SUCCESS, || format!("the graph is not launched: {launched}"))?;
        driver.stream_synchronize(stream).map_err(|error| error.to_string())?;
    }
    must(output.read()? == bytes_at(0, 200 * 32, BEFORE), || "a row is wrong".to_owned())?;
    cached.write(AFTER)?;
    let copies = cached.copies_of(&all)?;
    must(copies == all.len(), || format!("{copies} of {rows} rows come from lines"))?;
    // SAFETY: nothing launches it any more.
    let ended = driver.call::<symbol::cuGraphExecDestroy>(|function| unsafe { function(launch) });
    must(ended == CUresult::SUCCESS, || format!("the graph's launches stay: {ended}"))?;
    driver.graph_destroy(graph).map_err(|error| error.to_string())?;
    driver.stream_destroy(stream).map_err(|error| error.to_string())?;
    cached.end()
}
