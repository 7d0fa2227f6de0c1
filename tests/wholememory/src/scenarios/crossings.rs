//! Rows that cross between islands: many steps, calls that differ, a network that fails, ranks that
//! end, and what is refused.
//!
//! Hazards: a rank that waits in the network for ever; an error that one rank alone gets; a row of
//! another island that is read at an address.

use std::ffi::c_uint;
use std::ptr::{null, null_mut};
use std::thread;
use std::time::Duration;

use wm_abi::CUstream;
use wm_driver::Api;

use super::deaths::{seed, until_a_rank_ends, until_an_end, until_the_end};
use super::islands::{link_down_for, take_down};
use crate::api::{Description, Handle};
use crate::rank::{
    CHUNKED, CUDA_ERROR, DEVICE, DISTRIBUTED, HOST, INVALID_INPUT, LOGIC_ERROR, Local, NOT_SUPPORTED, Rank,
    SUCCESS, Verdict, bytes_at, local, must, want,
};

/// `WHOLEMEMORY_DT_*`
const FLOAT: c_uint = 1;
const INT: c_uint = 5;
const INT64: c_uint = 6;
const INT8: c_uint = 8;

/// A table of bytes, of which each rank has filled its part.
struct Table<'a> {
    rank: &'a Rank,
    handle: Handle,
    rows: usize,
    columns: usize,
    bytes: Vec<u8>,
}

/// A gather that has returned, and its memory.
struct BegunGather<'a> {
    code: c_uint,
    _indices: Local<'a>,
    output: Local<'a>,
}

impl<'a> Table<'a> {
    fn new(rank: &'a Rank, (rows, columns): (usize, usize), location: c_uint) -> Verdict<Self> {
        let shape = Description::matrix(rows as i64, columns as i64, columns as i64, INT8);
        let mut handle = null_mut();
        want!(
            SUCCESS,
            rank.wholememory_create_tensor(&mut handle, &shape, rank.comm, DISTRIBUTED, location, null())
        )?;
        let table = Self { rank, handle, rows, columns, bytes: bytes_at(0, rows * columns, 0) };
        let own = rank.own_part(table.memory())?;
        rank.write(own.address, &table.bytes[own.offset..own.offset + own.bytes])?;
        rank.barrier()?;
        Ok(table)
    }

    fn memory(&self) -> Handle {
        // SAFETY: a handle.
        unsafe { (self.rank.library.wholememory_tensor_get_memory_handle)(self.handle) }
    }

    fn row(&self, number: i64) -> Option<&[u8]> {
        let is_row = (0..self.rows as i64).contains(&number);
        is_row.then(|| &self.bytes[number as usize * self.columns..][..self.columns])
    }

    /// Numbers of rows, some of which are none.
    fn numbers(&self, count: usize, round: usize) -> Vec<i64> {
        let random = &mut fastrand::Rng::with_seed((round * 31 + self.rank.number) as u64);
        (0..count).map(|_| random.i64(-3..self.rows as i64 + 3)).collect()
    }

    /// The code of a gather, whose rows are right if it is a success.
    fn gather(&self, count: usize, round: usize) -> Verdict<c_uint> {
        self.gather_of(&self.numbers(count, round), round)
    }

    /// The same, of these rows.
    fn gather_of(&self, numbers: &[i64], round: usize) -> Verdict<c_uint> {
        let begun = self.begin_gather(numbers, round)?;
        if begun.code == SUCCESS {
            for (number, row) in numbers.iter().zip(begun.output.read()?.chunks(self.columns)) {
                let is_right = match self.row(*number) {
                    Some(wanted) => row == wanted,
                    None => row.iter().all(|byte| *byte == 0xa5),
                };
                must(is_right, || format!("round {round}: row {number} is another one"))?;
            }
        }
        Ok(begun.code)
    }

    /// A gather of these rows, in the default stream. Rows may be under way.
    fn begin_gather(&self, numbers: &[i64], round: usize) -> Verdict<BegunGather<'a>> {
        let (rank, count) = (self.rank, numbers.len());
        let indices = local(rank, numbers, if round.is_multiple_of(2) { INT } else { INT64 })?;
        let shape = Description::matrix(count as i64, self.columns as i64, self.columns as i64, INT8);
        let output = Local::new(rank, &vec![0xa5; count * self.columns], &shape)?;
        let (table, numbered, to) = (self.handle, indices.tensor, output.tensor);
        // SAFETY: handles.
        let code = unsafe { (rank.library.wholememory_gather)(table, numbered, to, null(), null_mut(), -1) };
        Ok(BegunGather { code, _indices: indices, output })
    }

    /// The code of a scatter, of the bytes that the rows have.
    fn scatter(&self, count: usize, round: usize) -> Verdict<c_uint> {
        let (rank, numbers) = (self.rank, self.numbers(count, round));
        let indices = local(rank, &numbers, INT64)?;
        let none = vec![0; self.columns];
        let row = |number: &i64| self.row(*number).unwrap_or(&none);
        let shape = Description::matrix(count as i64, self.columns as i64, self.columns as i64, INT8);
        let input = Local::new(rank, &numbers.iter().map(row).collect::<Vec<_>>().concat(), &shape)?;
        let (from, numbered, table) = (input.tensor, indices.tensor, self.handle);
        // SAFETY: handles.
        Ok(unsafe { (rank.library.wholememory_scatter)(from, numbered, table, null(), null_mut(), -1) })
    }

    fn end(self) -> Verdict {
        self.rank.barrier()?;
        let rank = self.rank;
        want!(SUCCESS, rank.wholememory_destroy_tensor(self.handle))
    }
}

/// More rows than a step has, another number of them at each rank.
pub(super) fn many_steps(rank: &Rank) -> Verdict {
    for location in [DEVICE, HOST] {
        // At most 8 MiB pass in a step; a row that repeats is gathered once. On one island there
        // are no steps, and fewer rows show as much.
        let rows = if rank.islands.min(rank.size) == 1 { 200 } else { 1000 };
        let table = Table::new(rank, (rows, 20_000), location)?;
        let count = (3 + 7 * (rank.number % 3)) * rows / 10;
        let twice: Vec<_> = (0..count).map(|at| (at * 7 % rows) as i64).collect();
        must(table.gather_of(&twice, 1)? == SUCCESS, || "the gather failed".to_owned())?;
        must(table.scatter(count, 2)? == SUCCESS, || "the scatter failed".to_owned())?;
        rank.barrier()?;
        // The rows are as before.
        must(table.gather(100, 3)? == SUCCESS, || "the second gather failed".to_owned())?;
        table.end()?;
    }
    Ok(())
}

/// Each rank gathers all rows, as often as the test says: so rows that cross are known.
pub(super) fn counted(rank: &Rank) -> Verdict {
    let gathers = std::env::var("WHOLEMEMORY_SUITE_GATHERS").ok().and_then(|count| count.parse().ok());
    let table = Table::new(rank, (960, 128), DEVICE)?;
    let all: Vec<_> = (0..960).collect();
    for round in 0..gathers.unwrap_or(1) {
        must(table.gather_of(&all, round)? == SUCCESS, || format!("gather {round} failed"))?;
    }
    table.end()
}

/// The same, but each rank gathers all rows several times over, in an order of its own.
pub(super) fn repeated(rank: &Rank) -> Verdict {
    let gathers = std::env::var("WHOLEMEMORY_SUITE_GATHERS").ok().and_then(|count| count.parse().ok());
    let table = Table::new(rank, (960, 128), DEVICE)?;
    let mut all: Vec<_> = (0..4 * 960).map(|at| at % 960).collect();
    fastrand::Rng::with_seed(rank.number as u64).shuffle(&mut all);
    for round in 0..gathers.unwrap_or(1) {
        must(table.gather_of(&all, round)? == SUCCESS, || format!("gather {round} failed"))?;
    }
    table.end()
}

/// Rows of 20,000 bytes that pass in several steps, in many where the test lets messages come late.
fn rows_of_a_long_call() -> usize {
    if std::env::var("SIMNCCL_DELAY_US").is_ok() { 3000 } else { 1000 }
}

/// One rank wants many rows. The others want one, have it soon, and leave.
pub(super) fn others_leave(rank: &Rank) -> Verdict {
    let rows = rows_of_a_long_call();
    let table = Table::new(rank, (rows, 20_000), DEVICE)?;
    let wanted: Vec<_> = (0..if rank.number == 0 { rows as i64 } else { 1 }).collect();
    must(table.gather_of(&wanted, 1)? == SUCCESS, || "the gather failed".to_owned())?;
    // Within an island a gather is the rank's alone, and the table is given back as everywhere.
    if rank.islands.min(rank.size) == 1 { table.end() } else { Ok(()) }
}

/// The same, but the others' processes end at once, without a look at their rows.
pub(super) fn others_end(rank: &Rank) -> Verdict {
    if rank.islands.min(rank.size) == 1 {
        return Ok(());
    }
    let rows = rows_of_a_long_call();
    let table = Table::new(rank, (rows, 20_000), DEVICE)?;
    if rank.number == 0 {
        let wanted: Vec<_> = (0..rows as i64).collect();
        return must(table.gather_of(&wanted, 1)? == SUCCESS, || "the gather failed".to_owned());
    }
    let begun = table.begin_gather(&[1], 1)?;
    must(begun.code == SUCCESS, || "the gather of one row failed".to_owned())?;
    std::process::exit(0)
}

/// A call returns before its rows have come, if the test lets messages come late.
pub(super) fn a_call_returns_early(rank: &Rank) -> Verdict {
    let table = Table::new(rank, (300, 8), DEVICE)?;
    let (numbers, mut early) = (table.numbers(200, 1), 0);
    for round in 0..8 {
        let begun = table.begin_gather(&numbers, round)?;
        must(begun.code == SUCCESS, || format!("gather {round} failed"))?;
        early += usize::from(!rank.driver.stream_query(CUstream::NULL).map_err(|error| error.to_string())?);
        // Its memory is freed before the rows have come: the driver waits for them.
    }
    table.end()?;
    let are_late = std::env::var("SIMNCCL_DELAY_US").is_ok();
    must(early > 0 || !are_late, || "no call returned before its rows had come".to_owned())
}

/// Rows that are shorter than their numbers, and one row that all want.
pub(super) fn narrow_rows(rank: &Rank) -> Verdict {
    let table = Table::new(rank, (70_000, 1), DEVICE)?;
    for round in 0..3 {
        must(table.gather(30_000, round)? == SUCCESS, || format!("gather {round} failed"))?;
    }
    table.end()?;
    let one = Table::new(rank, (1, 3), DEVICE)?;
    for round in 0..3 {
        must(one.gather(2000, round)? == SUCCESS, || "the gather of one row failed".to_owned())?;
        must(one.scatter(2000, round)? == SUCCESS, || "the scatter to one row failed".to_owned())?;
        rank.barrier()?;
    }
    one.end()
}

/// A rank that makes another call, or a wrong one: all ranks get an error, and go on.
pub(super) fn different_calls(rank: &Rank) -> Verdict {
    let spans = rank.islands.min(rank.size) > 1;
    let (table, other) = (Table::new(rank, (300, 8), DEVICE)?, Table::new(rank, (300, 12), DEVICE)?);
    for round in 0..rank.size {
        let is_odd = rank.number == round;
        let wanted = if spans { LOGIC_ERROR } else { SUCCESS };
        let code = if is_odd { table.scatter(20, round)? } else { table.gather(20, round)? };
        must(code == wanted, || format!("gather beside a scatter gave {code}"))?;
        rank.barrier()?;
        let code = if is_odd { other.gather(20, round)? } else { table.gather(20, round)? };
        must(code == wanted, || format!("gathers of two tables gave {code}"))?;
        rank.barrier()?;
        // SAFETY: handles that there are not, on purpose.
        let none = || unsafe {
            let none = null_mut();
            (rank.library.wholememory_gather)(table.handle, none, none, null(), null_mut(), -1)
        };
        let code = if is_odd { none() } else { table.gather(20, round)? };
        let wanted = if spans || is_odd { INVALID_INPUT } else { SUCCESS };
        must(code == wanted, || format!("a gather beside a wrong one gave {code}"))?;
        rank.barrier()?;
        must(table.gather(20, round)? == SUCCESS, || "the ranks do not go on".to_owned())?;
    }
    other.end()?;
    table.end()
}

/// The test lets a launch of the first gather fail at one rank, before the rank has told its
/// counts: the call fails at all ranks, and the next one is sound.
pub(super) fn a_launch_fails(rank: &Rank) -> Verdict {
    // So many bytes that numbers are searched for repeats, and numbers of more than one tile.
    let table = Table::new(rank, (300, 1000), DEVICE)?;
    let code = table.gather(1100, 0)?;
    must(code == CUDA_ERROR, || format!("the first gather gave {code}"))?;
    rank.barrier()?;
    must(table.gather(20, 1)? == SUCCESS, || "the ranks do not go on".to_owned())?;
    table.end()
}

/// All that needs the addresses of all rows is refused at every rank.
pub(super) fn refused(rank: &Rank) -> Verdict {
    if rank.islands.min(rank.size) == 1 {
        return Ok(());
    }
    let table = Table::new(rank, (300, 8), DEVICE)?;
    let (mut address, mut bytes, mut offset) = (null_mut(), 0, 0);
    let other = (rank.number + 1) as i32 % rank.size as i32;
    want!(
        INVALID_INPUT,
        rank.wholememory_get_rank_memory(&mut address, &mut bytes, &mut offset, other, table.memory())
    )?;
    want!(INVALID_INPUT, rank.wholememory_get_global_pointer(&mut address, table.memory()))?;
    table.end()?;

    let (shape, mut embedding) = (Description::matrix(300, 8, 8, FLOAT), null_mut());
    // Of other ranks than the rows', which do not reach each other's GPUs.
    let (mut policy, mut apart) = (null_mut(), null_mut());
    want!(SUCCESS, rank.wholememory_split_communicator(&mut apart, rank.comm, 0, 0))?;
    want!(
        SUCCESS,
        rank.wholememory_create_embedding_cache_policy(&mut policy, apart, CHUNKED, DEVICE, 1, 0.5)
    )?;
    let place = &mut embedding;
    want!(
        NOT_SUPPORTED,
        rank.wholememory_create_embedding(place, &shape, rank.comm, DISTRIBUTED, HOST, policy, null(), -1, 0)
    )?;
    want!(SUCCESS, rank.wholememory_destroy_embedding_cache_policy(policy))?;
    want!(SUCCESS, rank.wholememory_destroy_communicator(apart))?;
    rank.barrier()
}

/// The test has set a version of NCCL that is too old.
pub(super) fn without_nccl(rank: &Rank) -> Verdict {
    let is_old = std::env::var("SIMNCCL_VERSION").is_ok();
    let wanted = if is_old && rank.islands.min(rank.size) > 1 { NOT_SUPPORTED } else { SUCCESS };
    let mut memory = null_mut();
    want!(wanted, rank.wholememory_communicator_support_type_location(rank.comm, DISTRIBUTED, DEVICE))?;
    want!(wanted, rank.wholememory_malloc(&mut memory, 4096, rank.comm, DISTRIBUTED, DEVICE, 64, null()))?;
    rank.barrier()?;
    if wanted == SUCCESS { rank.free(memory) } else { Ok(()) }
}

/// The last island's machine loses its network while ranks meet or rows pass. The test names the
/// interface.
pub(super) fn a_machine_is_lost(rank: &Rank) -> Verdict {
    let Ok(interface) = std::env::var("WHOLEMEMORY_SUITE_LINK") else { return Ok(()) };
    let random = &mut fastrand::Rng::with_seed(seed());
    let moment = Duration::from_millis(300 + random.u64(..300));
    if rank.number + 1 == rank.islands {
        thread::spawn(move || {
            thread::sleep(moment);
            // Without an end the other ranks would not get an error, and the scenario fails.
            take_down(&interface)
        });
    }
    // A call may have begun before the link is down: the first one meets the ranks.
    until_an_end(rank, calls_of(rank), |begin| Ok(begin.elapsed().min(link_down_for()?)))
}

/// Gathers and scatters, one a call, which return their code.
fn calls_of(rank: &Rank) -> impl FnMut() -> Verdict<u32> {
    let (mut table, mut round) = (None, 0);
    move || {
        round += 1;
        let made = match &table {
            Some(table) => Ok(table),
            None => Table::new(rank, (400, 40), DEVICE).map(|made| &*table.insert(made)),
        };
        made.and_then(|table| match round % 3 {
            0 => table.scatter(50, round),
            _ => table.gather(200, round),
        })
    }
}

/// The test lets NCCL fail.
pub(super) fn network_fails(rank: &Rank) -> Verdict {
    if ["SIMNCCL_FAIL", "SIMNCCL_DROP"].iter().all(|name| std::env::var(name).is_err()) {
        return Ok(());
    }
    until_the_end(rank, calls_of(rank))
}

/// A rank ends at a random moment.
pub(super) fn a_rank_ends(rank: &Rank) -> Verdict {
    if rank.islands.min(rank.size) == 1 {
        return Ok(());
    }
    until_a_rank_ends(rank, calls_of(rank))
}

/// Chunked memory inside an island, beside memory over all of them.
pub(super) fn beside_an_island(rank: &Rank) -> Verdict {
    let mut part = null_mut();
    let color = (rank.number % rank.islands) as i32;
    want!(SUCCESS, rank.wholememory_split_communicator(&mut part, rank.comm, color, 0))?;
    let (table, mut memory) = (Table::new(rank, (300, 8), DEVICE)?, null_mut());
    want!(SUCCESS, rank.wholememory_malloc(&mut memory, 4096, part, CHUNKED, DEVICE, 64, null()))?;
    must(table.gather(100, 1)? == SUCCESS, || "the gather failed".to_owned())?;
    want!(SUCCESS, rank.wholememory_communicator_barrier(part))?;
    rank.free(memory)?;
    want!(SUCCESS, rank.wholememory_destroy_communicator(part))?;
    table.end()
}
