//! So many rows of the host that they are moved in another order than the program's.
//!
//! Hazards: a row that goes to another one's place, is left out or moved twice; memory of the
//! caller's that is lost; no memory for the order, which must not be an error.

use std::ffi::{c_uint, c_void};
use std::ptr::{null, null_mut};

use wm_abi::{CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_NON_BLOCKING, CUgraph, CUresult, symbol};
use wm_driver::Api;

use crate::api::{Description, Handle};
use crate::environment::Caller;
use crate::rank::{
    CHUNKED, CONTINUOUS, DISTRIBUTED, HOST, Local, Rank, SUCCESS, Verdict, byte_at, bytes_at, must, want,
};

/// `WHOLEMEMORY_DT_*`
const INT64: c_uint = 6;
const INT8: c_uint = 8;

const UNTOUCHED: u8 = 0xa5;
/// More rows than are moved in the program's order.
const COUNT: usize = (1 << 14) + 77;

fn local_numbers<'a>(rank: &'a Rank, numbers: &[i64]) -> Verdict<Local<'a>> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    Local::new(rank, &bytes, &Description::array(numbers.len() as i64, INT64))
}

fn table(rank: &Rank, rows: usize, columns: i64, memory_type: c_uint) -> Verdict<(Handle, Handle)> {
    let (mut table, shape) = (null_mut(), Description::matrix(rows as i64, columns, columns, INT8));
    want!(SUCCESS, rank.wholememory_create_tensor(&mut table, &shape, rank.comm, memory_type, HOST, null()))?;
    // SAFETY: a handle.
    Ok((table, unsafe { (rank.library.wholememory_tensor_get_memory_handle)(table) }))
}

pub(super) fn gathered(rank: &Rank) -> Verdict {
    for (at, columns) in [64, 20, 7, 512].into_iter().enumerate() {
        let kind = [CONTINUOUS, CHUNKED, DISTRIBUTED][at % 3];
        let (rows, width) = (3001, columns as usize + at % 2);
        let (table, memory) = table(rank, rows, columns, kind)?;
        let own = rank.own_part(memory)?;
        rank.write(own.address, &bytes_at(own.offset, own.bytes, at))?;
        rank.barrier()?;
        let draw = |number: usize| (number * 7919 + rank.number * 31) % (rows + 40);
        let chosen: Vec<i64> = (0..COUNT).map(|number| draw(number) as i64 - 20).collect();
        let indices = local_numbers(rank, &chosen)?;
        // With the caller's functions, without, and with functions that allocate no memory.
        for memory in 0..if columns > 64 { 1 } else { 3 } {
            let shape = Description::matrix(COUNT as i64, columns, width as i64, INT8);
            let output = Local::new(rank, &vec![UNTOUCHED; COUNT * width], &shape)?;
            let caller = Caller::new(rank);
            let functions = caller.functions();
            if memory == 2 {
                caller.fail(0);
            }
            let functions = if memory == 1 { null() } else { &raw const functions };
            want!(
                SUCCESS,
                rank.wholememory_gather(
                    table,
                    indices.tensor,
                    output.tensor,
                    functions.cast(),
                    null_mut(),
                    -1
                )
            )?;
            let found = output.read()?;
            caller.is_even()?;
            for (number, row) in chosen.iter().zip(found.chunks(width)) {
                let inside = (0..rows as i64).contains(number);
                let wanted = |column: usize| byte_at(*number as usize * columns as usize + column, at);
                let right = |(column, byte): (usize, &u8)| {
                    *byte == if inside && column < columns as usize { wanted(column) } else { UNTOUCHED }
                };
                must(row.iter().enumerate().all(right), || {
                    format!("{columns} columns, memory {memory}: row {number} is {row:x?}")
                })?;
            }
        }
        rank.barrier()?;
        want!(SUCCESS, rank.wholememory_destroy_tensor(table))?;
    }
    Ok(())
}

pub(super) fn scattered(rank: &Rank) -> Verdict {
    for (columns, kind) in [(64, CONTINUOUS), (20, DISTRIBUTED)] {
        let rows = COUNT * rank.size;
        let (table, memory) = table(rank, rows, columns, kind)?;
        let own = rank.own_part(memory)?;
        rank.write(own.address, &vec![UNTOUCHED; own.bytes])?;
        rank.barrier()?;
        // Each rank writes every n-th row (n ranks) except the last, from the last one down, and
        // one row that does not exist.
        let row_of = |at: usize| (rows - 1 - (at * rank.size + rank.number)) as i64;
        let chosen: Vec<i64> = (0..COUNT).map(|at| if at == 0 { rows as i64 } else { row_of(at) }).collect();
        let bytes = columns as usize;
        let values: Vec<u8> =
            chosen.iter().flat_map(|row| bytes_at(*row as usize * bytes, bytes, 3)).collect();
        let indices = local_numbers(rank, &chosen)?;
        let input = Local::new(rank, &values, &Description::matrix(COUNT as i64, columns, columns, INT8))?;
        want!(
            SUCCESS,
            rank.wholememory_scatter(input.tensor, indices.tensor, table, null(), null_mut(), -1)
        )?;
        rank.barrier()?;
        let found = rank.read(own.address, own.bytes)?;
        for (at, row) in found.chunks(bytes).enumerate() {
            let number = own.offset / bytes + at;
            let is_written = rows - 1 - number >= rank.size;
            let wanted = |column| if is_written { byte_at(number * bytes + column, 3) } else { UNTOUCHED };
            must(row.iter().enumerate().all(|(column, byte)| *byte == wanted(column)), || {
                format!("{columns} columns: row {number} is {row:x?}")
            })?;
        }
        rank.barrier()?;
        want!(SUCCESS, rank.wholememory_destroy_tensor(table))?;
    }
    Ok(())
}

/// In a capture rows are moved in the program's order: the graph has one node, and no memory.
pub(super) fn captured(rank: &Rank) -> Verdict {
    let (rows, columns) = (3001, 64);
    let (table, memory) = table(rank, rows, columns as i64, CONTINUOUS)?;
    let own = rank.own_part(memory)?;
    rank.write(own.address, &bytes_at(own.offset, own.bytes, 7))?;
    rank.barrier()?;
    let chosen: Vec<i64> = (0..COUNT).map(|number| (number * 7919 % rows) as i64).collect();
    let indices = local_numbers(rank, &chosen)?;
    let shape = Description::matrix(COUNT as i64, columns as i64, columns as i64, INT8);
    let output = Local::new(rank, &vec![UNTOUCHED; COUNT * columns], &shape)?;
    let driver = &rank.driver;
    let failed = |error: wm_driver::api::Failed| error.to_string();
    let stream = driver.stream_create(CU_STREAM_NON_BLOCKING).map_err(failed)?;
    // SAFETY: a function without pointers.
    let begun = driver.call::<symbol::cuStreamBeginCapture_v2>(|function| unsafe {
        function(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    });
    must(begun == CUresult::SUCCESS, || format!("no capture begins: {begun}"))?;
    let place = stream.0 as *mut c_void;
    let gathered =
        want!(SUCCESS, rank.wholememory_gather(table, indices.tensor, output.tensor, null(), place, -1));
    let (mut graph, mut nodes) = (CUgraph::NULL, 0);
    // SAFETY: the places are live locals.
    let ended = driver.call::<symbol::cuStreamEndCapture>(|function| unsafe { function(stream, &mut graph) });
    gathered?;
    must(ended == CUresult::SUCCESS, || format!("the gather has ended the capture: {ended}"))?;
    // SAFETY: as above; null asks for the number alone.
    let code =
        driver.call::<symbol::cuGraphGetNodes>(|function| unsafe { function(graph, null_mut(), &mut nodes) });
    must(code == CUresult::SUCCESS && nodes == 1, || format!("{nodes} nodes: {code}"))?;
    driver.graph_destroy(graph).map_err(failed)?;
    driver.stream_destroy(stream).map_err(failed)?;
    rank.barrier()?;
    want!(SUCCESS, rank.wholememory_destroy_tensor(table))
}
