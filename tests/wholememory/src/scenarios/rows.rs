//! Gather and scatter: every type of memory, rows of any length, numbers without a row, types that
//! are converted.
//!
//! Hazards: another row's bytes, bytes beside a row, a row that another rank does not see, a number
//! beyond the table that is followed.

use std::ffi::c_uint;
use std::ptr::{null, null_mut};

use crate::api::{Description, Handle};
use crate::rank::{INVALID_INPUT, Local, Rank, SUCCESS, Verdict, byte_at, bytes_at, must, want};

/// `WHOLEMEMORY_DT_*`
const FLOAT: c_uint = 1;
const DOUBLE: c_uint = 3;
const INT: c_uint = 5;
const INT64: c_uint = 6;
const INT8: c_uint = 8;

/// Bytes that no rank writes.
const UNTOUCHED: u8 = 0xa5;

fn table(
    rank: &Rank,
    shape: &Description,
    kind: (c_uint, c_uint),
    each: Option<&[usize]>,
) -> Verdict<Handle> {
    let mut table = null_mut();
    let each = each.map_or(null(), <[usize]>::as_ptr);
    want!(SUCCESS, rank.wholememory_create_tensor(&mut table, shape, rank.comm, kind.0, kind.1, each))?;
    Ok(table)
}

fn memory_of(rank: &Rank, table: Handle) -> Handle {
    // SAFETY: a handle.
    unsafe { (rank.library.wholememory_tensor_get_memory_handle)(table) }
}

/// Each rank fills its part.
fn fill(rank: &Rank, table: Handle, salt: usize) -> Verdict {
    let own = rank.own_part(memory_of(rank, table))?;
    rank.write(own.address, &bytes_at(own.offset, own.bytes, salt))?;
    rank.barrier()
}

/// Numbers of rows in some order, some of them without a row.
fn numbers(rows: i64, count: usize, seed: usize) -> Vec<i64> {
    let draw = |at: usize| i64::from(byte_at(at, seed)) * 256 + i64::from(byte_at(at, seed + 1));
    (0..count)
        .map(|at| {
            if at % 7 == 3 {
                -1 - draw(at)
            } else if at % 31 == 5 {
                rows + draw(at)
            } else {
                draw(at) % rows.max(1)
            }
        })
        .collect()
}

fn local_numbers<'a>(rank: &'a Rank, numbers: &[i64], dtype: c_uint) -> Verdict<Local<'a>> {
    let bytes: Vec<u8> = match dtype {
        INT => numbers.iter().flat_map(|number| (*number as i32).to_le_bytes()).collect(),
        _ => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
    };
    Local::new(rank, &bytes, &Description::array(numbers.len() as i64, dtype))
}

pub(super) fn gathered(rank: &Rank) -> Verdict {
    let rows = 997;
    for (at, kind) in rank.kinds().iter().copied().enumerate() {
        for (columns, stride, extra) in [(1, 1, 0), (5, 7, 1), (12, 16, 0), (33, 33, 3), (256, 256, 0)] {
            // Bytes, so that rows of every length and alignment occur.
            let each: Vec<usize> = (0..rank.size).map(|other| 40 + other).collect();
            let uneven = (rank.size > 1 && at % 2 == 1).then(|| {
                let mut each = each;
                each[0] += rows - each.iter().sum::<usize>();
                each
            });
            let table = table(
                rank,
                &Description::matrix(rows as i64, columns, stride, INT8),
                kind,
                uneven.as_deref(),
            )?;
            fill(rank, table, at)?;
            let dtype = if at % 2 == 0 { INT } else { INT64 };
            let chosen = numbers(rows as i64, 300, rank.number * 2);
            let indices = local_numbers(rank, &chosen, dtype)?;
            let width = (columns + extra) as usize;
            let output = Local::new(
                rank,
                &vec![UNTOUCHED; 300 * width],
                &Description::matrix(300, columns, width as i64, INT8),
            )?;
            want!(
                SUCCESS,
                rank.wholememory_gather(table, indices.tensor, output.tensor, null(), null_mut(), -1)
            )?;
            let found = output.read()?;
            for (number, row) in chosen.iter().zip(found.chunks(width)) {
                let inside = (0..rows as i64).contains(number);
                let wanted = |column: usize| byte_at(*number as usize * stride as usize + column, at);
                let right = |(column, byte): (usize, &u8)| {
                    *byte == if inside && column < columns as usize { wanted(column) } else { UNTOUCHED }
                };
                must(row.iter().enumerate().all(right), || {
                    format!("kind {kind:?}, {columns} columns: row {number} is {row:x?}")
                })?;
            }
            rank.barrier()?;
            want!(SUCCESS, rank.wholememory_destroy_tensor(table))?;
        }
    }
    Ok(())
}

pub(super) fn of_part_of_a_table(rank: &Rank) -> Verdict {
    for kind in rank.kinds().iter().copied() {
        let whole = table(rank, &Description::matrix(500, 24, 24, INT8), kind, None)?;
        fill(rank, whole, 9)?;
        let mut part = null_mut();
        want!(
            SUCCESS,
            rank.wholememory_tensor_get_subtensor(whole, [130, 3].as_ptr(), [430, 20].as_ptr(), &mut part)
        )?;
        let chosen = numbers(300, 200, rank.number);
        let indices = local_numbers(rank, &chosen, INT64)?;
        let output = Local::new(rank, &[UNTOUCHED; 200 * 17], &Description::matrix(200, 17, 17, INT8))?;
        want!(SUCCESS, rank.wholememory_gather(part, indices.tensor, output.tensor, null(), null_mut(), 1))?;
        for (number, row) in chosen.iter().zip(output.read()?.chunks(17)) {
            let inside = (0..300).contains(number);
            let wanted = |column| {
                if inside { byte_at((*number as usize + 130) * 24 + 3 + column, 9) } else { UNTOUCHED }
            };
            let right = row.iter().enumerate().all(|(column, byte)| *byte == wanted(column));
            must(right, || format!("kind {kind:?}: row {number} is {row:x?}"))?;
        }
        rank.barrier()?;
        want!(SUCCESS, rank.wholememory_destroy_tensor(part))?;
        want!(SUCCESS, rank.wholememory_destroy_tensor(whole))?;
    }
    Ok(())
}

pub(super) fn scattered(rank: &Rank) -> Verdict {
    let rows = 500;
    for kind in rank.kinds().iter().copied() {
        let table = table(rank, &Description::matrix(rows as i64, 10, 12, INT8), kind, None)?;
        fill(rank, table, 1)?;
        // Each rank writes other rows, all over the table; every tenth stays unchanged.
        let mine: Vec<i64> = (0..rows)
            .filter(|row| row % rank.size == rank.number && row % 10 != 4)
            .map(|row| row as i64)
            .collect();
        let chosen: Vec<i64> = mine.iter().flat_map(|row| [*row, -1]).collect();
        let source: Vec<u8> =
            chosen.iter().flat_map(|row| bytes_at((row + 1).unsigned_abs() as usize * 16, 11, 2)).collect();
        let count = chosen.len() as i64;
        let indices = local_numbers(rank, &chosen, INT64)?;
        let input = Local::new(rank, &source, &Description::matrix(count, 10, 11, INT8))?;
        want!(
            SUCCESS,
            rank.wholememory_scatter(input.tensor, indices.tensor, table, null(), null_mut(), -1)
        )?;
        rank.barrier()?;
        let own = rank.own_part(memory_of(rank, table))?;
        let found = rank.read(own.address, own.bytes)?;
        for (row, bytes) in (own.offset / 12..).zip(found.chunks(12)) {
            let written = row % 10 != 4;
            let wanted = |column: usize| match written && column < 10 {
                true => byte_at((row + 1) * 16 + column, 2),
                false => byte_at(row * 12 + column, 1),
            };
            let right = bytes.iter().enumerate().all(|(column, byte)| *byte == wanted(column));
            must(right, || format!("kind {kind:?}: row {row} is {bytes:x?}"))?;
        }
        rank.barrier()?;
        want!(SUCCESS, rank.wholememory_destroy_tensor(table))?;
    }
    Ok(())
}

pub(super) fn converted(rank: &Rank) -> Verdict {
    rank.kinds().iter().try_for_each(|kind| converted_in(rank, *kind))
}

fn converted_in(rank: &Rank, kind: (c_uint, c_uint)) -> Verdict {
    let table = table(rank, &Description::matrix(100, 6, 6, FLOAT), kind, None)?;
    let own = rank.own_part(memory_of(rank, table))?;
    let value = |at: usize| at as f32 * 0.37 - 40.0;
    let values: Vec<u8> =
        (own.offset / 4..(own.offset + own.bytes) / 4).flat_map(|at| value(at).to_le_bytes()).collect();
    rank.write(own.address, &values)?;
    rank.barrier()?;
    let chosen: Vec<i64> = (0..100).map(|at| (at * 37) % 100).collect();
    let indices = local_numbers(rank, &chosen, INT)?;
    let output = Local::new(rank, &[0; 100 * 6 * 8], &Description::matrix(100, 6, 6, DOUBLE))?;
    want!(SUCCESS, rank.wholememory_gather(table, indices.tensor, output.tensor, null(), null_mut(), -1))?;
    let found = output.read()?;
    for (at, bytes) in found.as_chunks().0.iter().enumerate() {
        let wanted = f64::from(value(chosen[at / 6] as usize * 6 + at % 6));
        must(f64::from_le_bytes(*bytes) == wanted, || {
            format!("element {at} is {}, not {wanted}", f64::from_le_bytes(*bytes))
        })?;
    }
    rank.barrier()?;
    // Back, as doubles: each rank its own rows, with the sign turned.
    let mine: Vec<i64> = (0..100).filter(|row| *row as usize % rank.size == rank.number).collect();
    let source: Vec<u8> = mine
        .iter()
        .flat_map(|row| {
            (0..6).flat_map(move |column| (-f64::from(value(*row as usize * 6 + column))).to_le_bytes())
        })
        .collect();
    let indices = local_numbers(rank, &mine, INT64)?;
    let input = Local::new(rank, &source, &Description::matrix(mine.len() as i64, 6, 6, DOUBLE))?;
    want!(SUCCESS, rank.wholememory_scatter(input.tensor, indices.tensor, table, null(), null_mut(), -1))?;
    rank.barrier()?;
    let found = rank.read(own.address, own.bytes)?;
    for (at, bytes) in (own.offset / 4..).zip(found.as_chunks().0) {
        must(f32::from_le_bytes(*bytes) == -value(at), || {
            format!("element {at} is {}", f32::from_le_bytes(*bytes))
        })?;
    }
    rank.barrier()?;
    want!(SUCCESS, rank.wholememory_destroy_tensor(table))
}

pub(super) fn misused(rank: &Rank) -> Verdict {
    let kind = rank.kinds()[0];
    let table = table(rank, &Description::matrix(100, 8, 8, FLOAT), kind, None)?;
    let indices = local_numbers(rank, &[1, 2, 3], INT64)?;
    let local = |rows, columns, dtype| {
        Local::new(rank, &[0; 512], &Description::matrix(rows, columns, columns, dtype))
    };
    let good = local(3, 8, FLOAT)?;
    let gather = |table, indices, output| {
        want!(INVALID_INPUT, rank.wholememory_gather(table, indices, output, null(), null_mut(), -1))
    };
    gather(table, indices.tensor, local(3, 7, FLOAT)?.tensor)?;
    gather(table, indices.tensor, local(4, 8, FLOAT)?.tensor)?;
    gather(table, indices.tensor, local(3, 8, INT)?.tensor)?;
    gather(table, good.tensor, good.tensor)?;
    gather(good.tensor, indices.tensor, good.tensor)?;
    gather(null_mut(), indices.tensor, good.tensor)?;
    gather(table, null_mut(), good.tensor)?;
    gather(table, indices.tensor, null_mut())?;
    want!(
        INVALID_INPUT,
        rank.wholememory_scatter(good.tensor, indices.tensor, good.tensor, null(), null_mut(), -1)
    )?;
    let none = local_numbers(rank, &[], INT64)?;
    want!(
        SUCCESS,
        rank.wholememory_gather(table, none.tensor, local(0, 8, FLOAT)?.tensor, null(), null_mut(), -1)
    )?;
    rank.barrier()?;
    want!(SUCCESS, rank.wholememory_destroy_tensor(table))
}
