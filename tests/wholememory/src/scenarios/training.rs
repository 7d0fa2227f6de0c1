//! Steps of training, with gradients of all ranks for the same rows, beside a reference in 64 bits.
//!
//! Hazards: a gradient that is lost, counted twice, or applied to another row; a step that one rank
//! makes before another's gradients have arrived; a state of another row.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::path::Path;
use std::ptr::{null, null_mut};

use wm_abi::{CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_NON_BLOCKING, CUgraph, CUresult, symbol};
use wm_driver::Api;

use super::deaths::{until_a_rank_ends, until_the_end};
use crate::api::{Description, Handle};
use crate::rank::{
    CHUNKED, CONTINUOUS, DEVICE, DISTRIBUTED, HIERARCHY, HOST, INVALID_INPUT, LOGIC_ERROR, Local,
    NOT_SUPPORTED, Rank, SUCCESS, Verdict, local, must, want,
};
use crate::scenarios::cache_policies;

/// `WHOLEMEMORY_DT_*`
const FLOAT: u32 = 1;
const INT: u32 = 5;
const INT64: u32 = 6;

pub(super) const ROWS: usize = 57;
pub(super) const COLUMNS: usize = 5;
pub(super) const RATE: f32 = 0.05;
pub(super) const DECAY: f64 = 0.01;
/// The allowed difference of float32 from a reference in 64 bits.
const TOLERANCE: f64 = 1e-5;

/// `WHOLEMEMORY_OPT_*`, and its state for each row.
pub(super) const OPTIMIZERS: [(u32, &[&CStr]); 4] =
    [(1, &[]), (2, &[c"m", c"v", c"beta12t"]), (3, &[c"v"]), (4, &[c"state_sum"])];

/// A number between -1 and 1 that any rank can make.
fn number(of: [usize; 4]) -> f32 {
    let mixed = of.iter().fold(17_u64, |mixed, word| {
        (mixed ^ *word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    });
    (mixed >> 40) as f32 / (1 << 23) as f32 - 1.0
}

pub(super) fn first(row: usize, column: usize) -> f32 {
    number([1, row, column, 0])
}

/// The rows for which a rank has gradients in a step: some of them more than once; one number has
/// no row. In the last step rank 0 has none.
pub(super) fn chosen(rank: usize, step: usize) -> Vec<i64> {
    if (rank, step) == (0, 2) {
        return Vec::new();
    }
    let some = (0..30 + 3 * rank).map(|at| ((at * at + 7 * rank + 5 * step) % ROWS) as i64);
    some.chain([-1]).collect()
}

pub(super) fn gradient(rank: usize, step: usize, at: usize, column: usize) -> f32 {
    number([2 + rank, step, at, column])
}

/// A row and its state.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) weights: Vec<f64>,
    first: Vec<f64>,
    second: Vec<f64>,
    powers: [f64; 2],
}

impl Row {
    fn new(row: usize) -> Self {
        let weights = (0..COLUMNS).map(|column| f64::from(first(row, column))).collect();
        Self { weights, first: vec![0.0; COLUMNS], second: vec![0.0; COLUMNS], powers: [1.0; 2] }
    }

    fn step(&mut self, optimizer: u32, gradient: &[f64]) {
        let (rate, epsilon, alpha, betas) = (f64::from(RATE), 1e-8, 0.99, [0.9, 0.999]);
        self.powers = [self.powers[0] * betas[0], self.powers[1] * betas[1]];
        for (column, gradient) in gradient.iter().enumerate() {
            let (weight, m, v) =
                (&mut self.weights[column], &mut self.first[column], &mut self.second[column]);
            let gradient = gradient + DECAY * *weight;
            *weight -= rate
                * match optimizer {
                    1 => gradient,
                    2 => {
                        *m = betas[0] * *m + (1.0 - betas[0]) * gradient;
                        *v = betas[1] * *v + (1.0 - betas[1]) * gradient * gradient;
                        *m / (1.0 - self.powers[0]) / ((*v / (1.0 - self.powers[1])).sqrt() + epsilon)
                    }
                    3 => {
                        *v = alpha * *v + (1.0 - alpha) * gradient * gradient;
                        gradient / (v.sqrt() + epsilon)
                    }
                    _ => {
                        *v += gradient * gradient;
                        gradient / (v.sqrt() + epsilon)
                    }
                };
        }
    }
}

fn reference(ranks: usize, steps: usize, optimizer: u32) -> Vec<Row> {
    reference_of(ranks, steps, optimizer, |number| number)
}

/// The same, with rows and gradients of another type.
pub(super) fn reference_of(
    ranks: usize,
    steps: usize,
    optimizer: u32,
    as_stored: impl Fn(f32) -> f32,
) -> Vec<Row> {
    let mut rows: Vec<_> = (0..ROWS).map(Row::new).collect();
    let stored = |weight: &mut f64| *weight = f64::from(as_stored(*weight as f32));
    rows.iter_mut().flat_map(|row| &mut row.weights).for_each(stored);
    for step in 0..steps {
        let mut sums: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for rank in 0..ranks {
            for (at, row) in chosen(rank, step).into_iter().enumerate().filter(|(_, row)| *row >= 0) {
                let sum = sums.entry(row as usize).or_insert_with(|| vec![0.0; COLUMNS]);
                (0..COLUMNS)
                    .for_each(|column| sum[column] += f64::from(as_stored(gradient(rank, step, at, column))));
            }
        }
        sums.iter().for_each(|(row, sum)| rows[*row].step(optimizer, sum));
    }
    rows
}

pub(super) fn create(rank: &Rank, kind: (u32, u32), policy: Handle) -> Verdict<Handle> {
    let shape = Description::matrix(ROWS as i64, COLUMNS as i64, COLUMNS as i64, FLOAT);
    cache_policies::create(rank, SUCCESS, &shape, kind, policy, None)
}

/// This rank's rows of a tensor: the first row's number, and each row's numbers without padding.
fn own_rows(rank: &Rank, tensor: Handle, columns: usize) -> Verdict<(usize, Vec<Vec<f32>>)> {
    // SAFETY: a handle.
    let memory = unsafe { (rank.library.wholememory_tensor_get_memory_handle)(tensor) };
    // SAFETY: a handle, and the library's description as long as it is open.
    let stride =
        unsafe { (*(rank.library.wholememory_tensor_get_tensor_description)(tensor)).strides[0] } as usize;
    let own = rank.own_part(memory)?;
    let bytes = rank.read(own.address, own.bytes)?;
    let numbers: Vec<f32> = bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
    Ok((own.offset / (stride * 4), numbers.chunks(stride).map(|row| row[..columns].to_vec()).collect()))
}

pub(super) fn fill(rank: &Rank, tensor: Handle) -> Verdict {
    // SAFETY: a handle.
    let memory = unsafe { (rank.library.wholememory_tensor_get_memory_handle)(tensor) };
    let own = rank.own_part(memory)?;
    // Five columns are padded to eight.
    let values =
        (own.offset / 4..(own.offset + own.bytes) / 4).flat_map(|at| first(at / 8, at % 8).to_le_bytes());
    rank.write(own.address, &values.collect::<Vec<_>>())?;
    rank.barrier()
}

pub(super) fn train(rank: &Rank, embedding: Handle, step: usize) -> Verdict {
    let code = try_train(rank, embedding, step)?;
    must(code == SUCCESS, || format!("a step gave {code}"))
}

fn try_train(rank: &Rank, embedding: Handle, step: usize) -> Verdict<u32> {
    let rows = chosen(rank.number, step);
    let narrow = step % 2 == 1;
    let indices: Vec<u8> = match narrow {
        true => rows.iter().flat_map(|row| (*row as i32).to_le_bytes()).collect(),
        false => rows.iter().flat_map(|row| row.to_le_bytes()).collect(),
    };
    // Rows with gaps in every other step.
    let stride = if narrow { COLUMNS } else { COLUMNS + 2 };
    let gradients: Vec<u8> = (0..rows.len() * stride)
        .flat_map(|at| gradient(rank.number, step, at / stride, at % stride).to_le_bytes())
        .collect();
    let count = rows.len() as i64;
    let indices = Local::new(rank, &indices, &Description::array(count, if narrow { INT } else { INT64 }))?;
    let shape = Description::matrix(count, COLUMNS as i64, stride as i64, FLOAT);
    let gradients = Local::new(rank, &gradients, &shape)?;
    let apply = rank.library.wholememory_embedding_gather_gradient_apply;
    // SAFETY: handles.
    Ok(unsafe { apply(embedding, indices.tensor, gradients.tensor, true, RATE, null(), 0) })
}

pub(super) fn spans(rank: &Rank) -> bool {
    rank.islands.min(rank.size) > 1
}

/// Memory that the ranks can make, however they lie on islands.
pub(super) fn any_kind(rank: &Rank) -> (u32, u32) {
    if spans(rank) { (DISTRIBUTED, DEVICE) } else { (CHUNKED, DEVICE) }
}

/// Writes the bits of this rank's rows into a folder that a test names, to compare runs.
pub(super) fn tell_bits(rank: &Rank, what: &str, rows: &[Vec<f32>]) -> Verdict {
    let Some(folder) = std::env::var_os("WHOLEMEMORY_SUITE_BITS") else { return Ok(()) };
    let bits: Vec<_> = rows.iter().flatten().map(|number| format!("{:08x}", number.to_bits())).collect();
    let path = Path::new(&folder).join(format!("{what} of rank {}", rank.number));
    let bits = bits.join(" ");
    // Memory of another type gave the same.
    let differs = std::fs::read_to_string(&path).is_ok_and(|before| before != bits);
    must(!differs, || format!("{what}: other bits than in memory of another type"))?;
    std::fs::write(path, bits).map_err(|error| error.to_string())
}

pub(super) fn steps(rank: &Rank) -> Verdict {
    let of_one_island = [(CHUNKED, DEVICE), (CONTINUOUS, DEVICE), (DISTRIBUTED, HOST)];
    for kind in if spans(rank) { rank.kinds() } else { &of_one_island }.iter().copied() {
        for (optimizer, states) in OPTIMIZERS {
            let (mut handle, decay) = (null_mut(), DECAY as f32);
            want!(SUCCESS, rank.wholememory_create_embedding_optimizer(&mut handle, optimizer))?;
            want!(
                SUCCESS,
                rank.wholememory_optimizer_set_parameter(handle, c"weight_decay".as_ptr(), &decay)
            )?;
            let embedding = create(rank, kind, null_mut())?;
            // SAFETY: a handle.
            let tensor = unsafe { (rank.library.wholememory_embedding_get_embedding_tensor)(embedding) };
            fill(rank, tensor)?;
            want!(SUCCESS, rank.wholememory_embedding_set_optimizer(embedding, handle))?;
            // SAFETY: a handle.
            unsafe { (rank.library.wholememory_destroy_embedding_optimizer)(handle) };
            (0..3).try_for_each(|step| train(rank, embedding, step))?;
            let wanted = reference(rank.size, 3, optimizer);
            let compare = |tensor, what: &str, of: &dyn Fn(&Row) -> Vec<f64>| {
                let (start, found) = own_rows(rank, tensor, of(&wanted[0]).len())?;
                tell_bits(rank, &format!("{optimizer} {what}"), &found)?;
                for (row, found) in (start..).zip(found) {
                    let near = |(found, wanted): (&f32, f64)| {
                        (f64::from(*found) - wanted).abs() <= TOLERANCE * wanted.abs().max(1.0)
                    };
                    let right = found.iter().zip(of(&wanted[row])).all(near);
                    must(right, || {
                        format!(
                            "{kind:?}, optimizer {optimizer}: {what} of row {row} is {found:?}, not {:?}",
                            of(&wanted[row])
                        )
                    })?;
                }
                Ok::<_, String>(())
            };
            compare(tensor, "row", &|row| row.weights.clone())?;
            // SAFETY: a handle; the array ends with null.
            let mut names =
                unsafe { (rank.library.wholememory_embedding_get_optimizer_state_names)(embedding) };
            for state in states {
                // SAFETY: inside the array, and a name of the library's.
                let name = unsafe { CStr::from_ptr(*names) };
                must(name == *state, || format!("state {name:?}, not {state:?}"))?;
                // SAFETY: null is behind the last.
                names = unsafe { names.add(1) };
                // SAFETY: a handle and a name.
                let kept = unsafe {
                    (rank.library.wholememory_embedding_get_optimizer_state)(embedding, state.as_ptr())
                };
                match state.to_bytes() {
                    b"m" => compare(kept, "m", &|row| row.first.clone())?,
                    b"v" | b"state_sum" => compare(kept, "v", &|row| row.second.clone())?,
                    _ => {
                        let touched: Vec<_> = (0..ROWS).filter(|row| wanted[*row].powers[0] < 1.0).collect();
                        must(!touched.is_empty(), || "no row is touched".to_owned())?;
                        compare(kept, "powers", &|row| row.powers.to_vec())?;
                    }
                }
            }
            // SAFETY: null is behind the last.
            must(unsafe { (*names).is_null() }, || "more states".to_owned())?;
            rank.barrier()?;
            want!(SUCCESS, rank.wholememory_destroy_embedding(embedding))?;
        }
    }
    Ok(())
}

/// All rows, as a gather returns them.
fn gathered(rank: &Rank, embedding: Handle, adjusts: bool) -> Verdict<Vec<f32>> {
    let all: Vec<_> = (0..ROWS as i64).collect();
    let (indices, columns) = (local(rank, &all, INT64)?, COLUMNS as i64);
    let output = Local::new(
        rank,
        &[0xff; ROWS * COLUMNS * 4],
        &Description::matrix(ROWS as i64, columns, columns, FLOAT),
    )?;
    let (indices, place) = (indices.tensor, output.tensor);
    want!(SUCCESS, rank.wholememory_embedding_gather(embedding, indices, place, adjusts, null(), 0))?;
    Ok(output.read()?.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect())
}

/// Kinds of rows with a cache, and the cache's type, that the ranks can make.
fn cached_kinds(rank: &Rank) -> &'static [((u32, u32), u32)] {
    if spans(rank) {
        &[((DISTRIBUTED, HOST), DISTRIBUTED), ((HIERARCHY, DEVICE), HIERARCHY)]
    } else {
        &[((CHUNKED, HOST), CHUNKED)]
    }
}

/// Copies of rows equal the rows after each step: lines filled before a step are filled again. The
/// rows have the bits that they have without a cache.
pub(super) fn through_a_cache(rank: &Rank) -> Verdict {
    for (kind, cache) in cached_kinds(rank).iter().copied() {
        for (ratio, (optimizer, _)) in
            [0.1, 1.0].into_iter().flat_map(|ratio| OPTIMIZERS.map(|of| (ratio, of)))
        {
            trained_through_a_cache(rank, kind, (cache, ratio), optimizer)
                .map_err(|reason| format!("{kind:?}, ratio {ratio}, optimizer {optimizer}: {reason}"))?;
        }
    }
    Ok(())
}

fn trained_through_a_cache(
    rank: &Rank,
    kind: (u32, u32),
    (cache, ratio): (u32, f32),
    optimizer: u32,
) -> Verdict {
    let policy = cache_policies::policy(rank, rank.comm, (cache, DEVICE), cache_policies::READ_WRITE, ratio)?;
    let embedding = create(rank, kind, policy)?;
    want!(SUCCESS, rank.wholememory_destroy_embedding_cache_policy(policy))?;
    let (mut handle, decay) = (null_mut(), DECAY as f32);
    want!(SUCCESS, rank.wholememory_create_embedding_optimizer(&mut handle, optimizer))?;
    want!(SUCCESS, rank.wholememory_optimizer_set_parameter(handle, c"weight_decay".as_ptr(), &decay))?;
    // SAFETY: a handle.
    let tensor = unsafe { (rank.library.wholememory_embedding_get_embedding_tensor)(embedding) };
    fill(rank, tensor)?;
    want!(SUCCESS, rank.wholememory_embedding_set_optimizer(embedding, handle))?;
    for step in 0..3 {
        // Every row has a line, if there is one for each.
        gathered(rank, embedding, true)?;
        gathered(rank, embedding, true)?;
        train(rank, embedding, step)?;
        let wanted = reference(rank.size, step + 1, optimizer);
        let wanted: Vec<_> = wanted.iter().flat_map(|row| row.weights.clone()).collect();
        let found = gathered(rank, embedding, false)?;
        let near = |(found, wanted): (&f32, &f64)| {
            (f64::from(*found) - wanted).abs() <= TOLERANCE * wanted.abs().max(1.0)
        };
        let wrong = found.iter().zip(&wanted).position(|pair| !near(pair));
        must(wrong.is_none(), || format!("step {step}: element {wrong:?} of all rows"))?;
        // What is gathered, at each rank, and what the owner has.
        let (start, own) = own_rows(rank, tensor, COLUMNS)?;
        let is_own = own.concat() == found[start * COLUMNS..][..own.len() * COLUMNS];
        must(is_own, || format!("step {step}: a line differs from its row"))?;
        rank.barrier()?;
    }
    tell_bits(rank, &format!("{optimizer} row"), &own_rows(rank, tensor, COLUMNS)?.1)?;
    rank.barrier()?;
    // SAFETY: a handle.
    unsafe { (rank.library.wholememory_destroy_embedding_optimizer)(handle) };
    want!(SUCCESS, rank.wholememory_destroy_embedding(embedding))
}

/// Steps of training, one a call, which return their code.
fn steps_of(rank: &Rank) -> Verdict<impl FnMut() -> Verdict<u32>> {
    let [(kind, cache), ..] = *cached_kinds(rank) else { return Err("no kind".to_owned()) };
    let policy = cache_policies::policy(rank, rank.comm, (cache, DEVICE), cache_policies::READ_WRITE, 0.5)?;
    let (embedding, mut adam, mut step) = (create(rank, kind, policy)?, null_mut(), 0);
    want!(SUCCESS, rank.wholememory_create_embedding_optimizer(&mut adam, 2))?;
    want!(SUCCESS, rank.wholememory_embedding_set_optimizer(embedding, adam))?;
    Ok(move || {
        step += 1;
        try_train(rank, embedding, step)
    })
}

/// The test lets NCCL fail in a step.
pub(super) fn network_fails(rank: &Rank) -> Verdict {
    let is_set = |name: &&str| std::env::var(name).is_ok();
    if ["SIMNCCL_FAIL", "SIMNCCL_DROP"].iter().any(is_set) {
        until_the_end(rank, steps_of(rank)?)
    } else {
        Ok(())
    }
}

/// A rank ends at a random moment of the steps.
pub(super) fn a_rank_ends(rank: &Rank) -> Verdict {
    until_a_rank_ends(rank, steps_of(rank)?)
}

pub(super) fn misused(rank: &Rank) -> Verdict {
    let embedding = create(rank, any_kind(rank), null_mut())?;
    let indices = Local::new(rank, &[0; 24], &Description::array(3, INT64))?;
    let shape = |rows, columns, dtype| Description::matrix(rows, columns, columns, dtype);
    let gradients = Local::new(rank, &[0; 60], &shape(3, 5, FLOAT))?;
    let apply = |code, indices, gradients| {
        want!(
            code,
            rank.wholememory_embedding_gather_gradient_apply(
                embedding,
                indices,
                gradients,
                true,
                RATE,
                null(),
                0
            )
        )
    };
    apply(LOGIC_ERROR, indices.tensor, gradients.tensor)?;
    want!(INVALID_INPUT, rank.wholememory_embedding_set_optimizer(embedding, null_mut()))?;
    let mut sgd = null_mut();
    want!(SUCCESS, rank.wholememory_create_embedding_optimizer(&mut sgd, 1))?;
    want!(SUCCESS, rank.wholememory_embedding_set_optimizer(embedding, sgd))?;
    want!(LOGIC_ERROR, rank.wholememory_embedding_set_optimizer(embedding, sgd))?;
    want!(null_mut(), rank.wholememory_embedding_get_optimizer_state(embedding, c"m".as_ptr()))?;
    for wrong in [shape(2, 5, FLOAT), shape(3, 4, FLOAT), shape(3, 5, INT)] {
        apply(INVALID_INPUT, indices.tensor, Local::new(rank, &[0; 60], &wrong)?.tensor)?;
    }
    // One rank's alone.
    for who in 0..rank.size {
        let own = if rank.number == who { null_mut() } else { indices.tensor };
        apply(INVALID_INPUT, own, gradients.tensor)?;
    }
    apply(SUCCESS, indices.tensor, gradients.tensor)?;
    rank.barrier()?;
    // SAFETY: a handle.
    unsafe { (rank.library.wholememory_destroy_embedding_optimizer)(sgd) };
    want!(SUCCESS, rank.wholememory_destroy_embedding(embedding))
}

/// A step waits, which would end a capture: it is refused, and the capture goes on.
pub(super) fn captured(rank: &Rank) -> Verdict {
    let embedding = create(rank, any_kind(rank), null_mut())?;
    let mut sgd = null_mut();
    want!(SUCCESS, rank.wholememory_create_embedding_optimizer(&mut sgd, 1))?;
    want!(SUCCESS, rank.wholememory_embedding_set_optimizer(embedding, sgd))?;
    let indices = Local::new(rank, &[0; 24], &Description::array(3, INT64))?;
    let gradients = Local::new(rank, &[0; 60], &Description::matrix(3, 5, 5, FLOAT))?;
    let driver = &rank.driver;
    let stream = driver.stream_create(CU_STREAM_NON_BLOCKING).map_err(|error| error.to_string())?;
    // SAFETY: a function without pointers.
    let begun = driver.call::<symbol::cuStreamBeginCapture_v2>(|function| unsafe {
        function(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    });
    must(begun == CUresult::SUCCESS, || format!("no capture begins: {begun}"))?;
    let apply = |code| {
        want!(
            code,
            rank.wholememory_embedding_gather_gradient_apply(
                embedding,
                indices.tensor,
                gradients.tensor,
                true,
                RATE,
                null(),
                stream.0 as i64
            )
        )
    };
    let refused = apply(NOT_SUPPORTED);
    let mut graph = CUgraph::NULL;
    // SAFETY: the place is a live local.
    let ended = driver.call::<symbol::cuStreamEndCapture>(|function| unsafe { function(stream, &mut graph) });
    refused?;
    must(ended == CUresult::SUCCESS, || format!("the step has ended the capture: {ended}"))?;
    driver.graph_destroy(graph).map_err(|error| error.to_string())?;
    apply(SUCCESS)?;
    driver.stream_destroy(stream).map_err(|error| error.to_string())?;
    rank.barrier()?;
    // SAFETY: a handle.
    unsafe { (rank.library.wholememory_destroy_embedding_optimizer)(sgd) };
    want!(SUCCESS, rank.wholememory_destroy_embedding(embedding))
}
