//! Steps of training of rows of 16 bits.
//!
//! Hazard: a row that is rounded differently on other islands, or an optimizer that takes its words
//! for wider ones.

use std::ptr::{null, null_mut};

use super::cache_policies;
use super::training::{
    COLUMNS, DECAY, OPTIMIZERS, RATE, ROWS, any_kind, chosen, first, gradient, reference_of, tell_bits,
};
use crate::api::Description;
use crate::rank::{Local, Rank, SUCCESS, Verdict, local, must, want};

/// `WHOLEMEMORY_DT_*`
const HALF: u32 = 2;
const BF16: u32 = 4;
const INT64: u32 = 6;

/// A number below 2 as one of 16 bits, towards 0; one that is too small for it is 0.
fn narrowed(dtype: u32, number: f32) -> u16 {
    let bits = number.to_bits();
    match dtype {
        BF16 => (bits >> 16) as u16,
        _ if number.abs() < 1.0 / 8192.0 => 0,
        // Another bias of the exponent, and fewer bits behind it.
        _ => (bits >> 16 & 0x8000) as u16 | (((bits & 0x7fff_ffff) - (112 << 23)) >> 13) as u16,
    }
}

fn widened(dtype: u32, bits: u16) -> f32 {
    let (sign, rest) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff));
    match dtype {
        BF16 => f32::from_bits(u32::from(bits) << 16),
        _ if rest == 0 => f32::from_bits(sign),
        _ => f32::from_bits(sign | ((rest << 13) + (112 << 23))),
    }
}

/// Rows and gradients of 16 bits.
pub(super) fn steps_of_16_bits(rank: &Rank) -> Verdict {
    for (dtype, (optimizer, _)) in [HALF, BF16].into_iter().flat_map(|dtype| OPTIMIZERS.map(|of| (dtype, of)))
    {
        let (shape, mut handle, decay) = (
            Description::matrix(ROWS as i64, COLUMNS as i64, COLUMNS as i64, dtype),
            null_mut(),
            DECAY as f32,
        );
        let embedding = cache_policies::create(rank, SUCCESS, &shape, any_kind(rank), null_mut(), None)?;
        // SAFETY: a handle.
        let tensor = unsafe { (rank.library.wholememory_embedding_get_embedding_tensor)(embedding) };
        // SAFETY: a handle.
        let own = rank.own_part(unsafe { (rank.library.wholememory_tensor_get_memory_handle)(tensor) })?;
        // Five columns are padded to eight.
        let values = (own.offset / 2..(own.offset + own.bytes) / 2)
            .flat_map(|at| narrowed(dtype, first(at / 8, at % 8)).to_le_bytes());
        rank.write(own.address, &values.collect::<Vec<_>>())?;
        rank.barrier()?;
        want!(SUCCESS, rank.wholememory_create_embedding_optimizer(&mut handle, optimizer))?;
        want!(SUCCESS, rank.wholememory_optimizer_set_parameter(handle, c"weight_decay".as_ptr(), &decay))?;
        want!(SUCCESS, rank.wholememory_embedding_set_optimizer(embedding, handle))?;
        for step in 0..3 {
            let rows = chosen(rank.number, step);
            let count = rows.len() as i64;
            let gradients: Vec<u8> = (0..rows.len() * COLUMNS)
                .map(|at| gradient(rank.number, step, at / COLUMNS, at % COLUMNS))
                .flat_map(|number| narrowed(dtype, number).to_le_bytes())
                .collect();
            let shape = Description::matrix(count, COLUMNS as i64, COLUMNS as i64, dtype);
            let (indices, gradients) = (local(rank, &rows, INT64)?, Local::new(rank, &gradients, &shape)?);
            let (indices, gradients) = (indices.tensor, gradients.tensor);
            want!(
                SUCCESS,
                rank.wholememory_embedding_gather_gradient_apply(
                    embedding,
                    indices,
                    gradients,
                    false,
                    RATE,
                    null(),
                    0
                )
            )?;
        }
        let wanted = reference_of(rank.size, 3, optimizer, |number| widened(dtype, narrowed(dtype, number)));
        let bytes = rank.read(own.address, own.bytes)?;
        let found: Vec<_> =
            bytes.as_chunks().0.iter().map(|word| widened(dtype, u16::from_le_bytes(*word))).collect();
        let found: Vec<_> = found.chunks(8).map(|row| row[..COLUMNS].to_vec()).collect();
        // A row is rounded in each step.
        let tolerance = if dtype == HALF { 3.0 / 1024.0 } else { 3.0 / 128.0 };
        for (row, found) in (own.offset / 16..).zip(&found) {
            let near = |(found, wanted): (&f32, &f64)| {
                (f64::from(*found) - wanted).abs() <= tolerance * wanted.abs().max(1.0)
            };
            must(found.iter().zip(&wanted[row].weights).all(near), || {
                format!(
                    "type {dtype}, optimizer {optimizer}: row {row} is {found:?}, not {:?}",
                    wanted[row].weights
                )
            })?;
        }
        tell_bits(rank, &format!("{optimizer} row of type {dtype}"), &found)?;
        rank.barrier()?;
        // SAFETY: a handle.
        unsafe { (rank.library.wholememory_destroy_embedding_optimizer)(handle) };
        want!(SUCCESS, rank.wholememory_destroy_embedding(embedding))?;
    }
    Ok(())
}
