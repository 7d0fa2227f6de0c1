//! Embeddings whose rows are dealt to the ranks in turn.
//!
//! Hazards: a row that is read at another row's place, or trained there (the incumbent adds the
//! caller's first row, not the owner's); rows that cannot be divided evenly.

use std::ptr::{null, null_mut};

use crate::api::{Description, Handle};
use crate::rank::{
    CHUNKED, CONTINUOUS, DEVICE, DISTRIBUTED, HOST, INVALID_INPUT, Local, Rank, SUCCESS, Verdict, must, want,
};

/// `WHOLEMEMORY_DT_*`
const FLOAT: u32 = 1;
const INT: u32 = 5;
const INT64: u32 = 6;
/// `WHOLEMEMORY_OPT_SGD`
const SGD: u32 = 1;

const COLUMNS: usize = 3;
const RATE: f32 = 0.5;

fn create(rank: &Rank, code: u32, rows: usize, turn: i32, kind: (u32, u32)) -> Verdict<Handle> {
    let shape = Description::matrix(rows as i64, COLUMNS as i64, COLUMNS as i64, FLOAT);
    let mut embedding = null_mut();
    let (place, none) = (&mut embedding, null_mut());
    want!(
        code,
        rank.wholememory_create_embedding(place, &shape, rank.comm, kind.0, kind.1, none, null(), -1, turn)
    )?;
    Ok(embedding)
}

fn first(row: usize, column: usize) -> f32 {
    (row * COLUMNS + column) as f32
}

/// Fills this rank's part: the row at each of its places follows from the way that rows are dealt.
fn fill(rank: &Rank, embedding: Handle, rows: usize, turn: usize) -> Verdict {
    // SAFETY: a handle.
    let tensor = unsafe { (rank.library.wholememory_embedding_get_embedding_tensor)(embedding) };
    // SAFETY: a handle.
    let memory = unsafe { (rank.library.wholememory_tensor_get_memory_handle)(tensor) };
    let own = rank.own_part(memory)?;
    let mut bytes = vec![0xff; own.bytes];
    for (place, row) in bytes.chunks_mut(16).enumerate() {
        let number = (place / turn * rank.size + rank.number) * turn + place % turn;
        if number < rows {
            let numbers = (0..COLUMNS).flat_map(|column| first(number, column).to_le_bytes());
            row.iter_mut().zip(numbers).for_each(|(to, byte)| *to = byte);
        }
    }
    rank.write(own.address, &bytes)?;
    rank.barrier()
}

fn gathered(rank: &Rank, embedding: Handle, rows: &[i64]) -> Verdict<Vec<f32>> {
    let numbers: Vec<u8> = rows.iter().flat_map(|row| (*row as i32).to_le_bytes()).collect();
    let indices = Local::new(rank, &numbers, &Description::array(rows.len() as i64, INT))?;
    let shape = Description::matrix(rows.len() as i64, COLUMNS as i64, COLUMNS as i64, FLOAT);
    let output = Local::new(rank, &(-7f32).to_le_bytes().repeat(rows.len() * COLUMNS), &shape)?;
    want!(
        SUCCESS,
        rank.wholememory_embedding_gather(embedding, indices.tensor, output.tensor, false, null(), 0)
    )?;
    let bytes = output.read()?;
    Ok(bytes.chunks(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
}

/// A step in which each rank has a gradient of 1 for some rows.
fn step(rank: &Rank, embedding: Handle, rows: &[i64]) -> Verdict {
    let numbers: Vec<u8> = rows.iter().flat_map(|row| row.to_le_bytes()).collect();
    let indices = Local::new(rank, &numbers, &Description::array(rows.len() as i64, INT64))?;
    let shape = Description::matrix(rows.len() as i64, COLUMNS as i64, COLUMNS as i64, FLOAT);
    let ones = Local::new(rank, &1f32.to_le_bytes().repeat(rows.len() * COLUMNS), &shape)?;
    want!(
        SUCCESS,
        rank.wholememory_embedding_gather_gradient_apply(
            embedding,
            indices.tensor,
            ones.tensor,
            false,
            RATE,
            null(),
            0
        )
    )
}

pub(super) fn rows(rank: &Rank) -> Verdict {
    let of_one_island = [(CONTINUOUS, DEVICE), (CHUNKED, DEVICE), (DISTRIBUTED, DEVICE), (CHUNKED, HOST)];
    let is_one = rank.islands.min(rank.size) == 1;
    for kind in if is_one { &of_one_island } else { rank.kinds() }.iter().copied() {
        for (rows, turn) in [(200, 1), (203, 16), (64, 16), (7, 50), (100, 9)] {
            let embedding = create(rank, SUCCESS, rows, turn, kind)?;
            fill(rank, embedding, rows, turn as usize)?;
            let mut sgd = null_mut();
            want!(SUCCESS, rank.wholememory_create_embedding_optimizer(&mut sgd, SGD))?;
            want!(SUCCESS, rank.wholememory_embedding_set_optimizer(embedding, sgd))?;
            // Each number, one that is negative and one that is beyond.
            let all: Vec<i64> = (0..rows as i64).chain([-1, rows as i64]).collect();
            let own: Vec<i64> = (0..rows as i64).step_by(rank.number + 1).chain([-1]).collect();
            step(rank, embedding, &own)?;
            let found = gathered(rank, embedding, &all)?;
            for (at, number) in found.iter().enumerate() {
                let (row, column) = (at / COLUMNS, at % COLUMNS);
                let hits = (1..=rank.size).filter(|stride| row % stride == 0).count();
                let wanted = if row < rows { first(row, column) - RATE * hits as f32 } else { -7.0 };
                must(*number == wanted, || {
                    format!("{kind:?}, {turn} of {rows} in turn: row {row} is {number}, not {wanted}")
                })?;
            }
            rank.barrier()?;
            // SAFETY: a handle.
            unsafe { (rank.library.wholememory_destroy_embedding_optimizer)(sgd) };
            want!(SUCCESS, rank.wholememory_destroy_embedding(embedding))?;
        }
    }
    create(rank, INVALID_INPUT, 10, -1, (DISTRIBUTED, DEVICE))?;
    if rank.size > 1 {
        create(rank, INVALID_INPUT, 10, i32::from(rank.number == 0) + 1, (DISTRIBUTED, DEVICE))?;
    }
    rank.barrier()
}
