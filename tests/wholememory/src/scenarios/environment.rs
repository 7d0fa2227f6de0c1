//! Memory of the caller's functions: the operation that tests them, functions that fail or are
//! missing.
//!
//! Hazards: memory of the caller's that is lost, written out of bounds, or used after its release.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

use wm_abi::{
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_NON_BLOCKING, CUgraph, CUresult, CUstream, symbol,
};
use wm_driver::Api;

use crate::api::{Description, Handle};
use crate::environment::{Caller, Functions, Memory};
use crate::rank::{
    INVALID_INPUT, Local, NOT_SUPPORTED, OUT_OF_MEMORY, Rank, SUCCESS, Verdict, byte_at, local, must, packed,
    want,
};

/// `WHOLEMEMORY_DT_*`
const FLOAT: c_uint = 1;
const DOUBLE: c_uint = 3;
const BF16: c_uint = 4;
const INT: c_uint = 5;
const INT64: c_uint = 6;
const INT16: c_uint = 7;
const INT8: c_uint = 8;

/// A number as an element; small enough for all types.
fn element(number: i64, dtype: c_uint) -> Vec<u8> {
    let float = number as f32;
    match dtype {
        FLOAT => float.to_le_bytes().to_vec(),
        DOUBLE => f64::from(float).to_le_bytes().to_vec(),
        BF16 => float.to_le_bytes()[2..].to_vec(),
        INT16 => number.to_le_bytes()[..2].to_vec(),
        INT8 => number.to_le_bytes()[..1].to_vec(),
        _ => packed(&[number], dtype),
    }
}

pub(super) fn tested(rank: &Rank) -> Verdict {
    for dtype in [FLOAT, DOUBLE, BF16, INT, INT64, INT16, INT8] {
        for (rows, columns, stride, wanted) in [
            (5, 3, 3, [true; 3]),
            (23, 3, 4, [true, false, true]),
            (4, 1, 1, [true, false, false]),
            (0, 3, 3, [true; 3]),
            (40, 7, 9, [false; 3]),
        ] {
            adds_numbers(rank, dtype, (rows, columns, stride), wanted)
                .map_err(|reason| format!("type {dtype}, {rows} rows of {columns}: {reason}"))?;
        }
    }
    let caller = Caller::new(rank);
    let [ten, matrix] =
        [local(rank, &[0; 10], INT)?, Local::new(rank, &[0; 120], &Description::matrix(3, 10, 10, INT))?];
    let wide = Local::new(rank, &[0; 240], &Description::matrix(3, 10, 10, INT64))?;
    let refused = |input, output, rows| {
        let (functions, none) = (caller.functions(), null_mut());
        want!(
            INVALID_INPUT,
            rank.wholememory_env_test_op(input, output, none, none, none, rows, &functions, null_mut())
        )
    };
    refused(ten.tensor, matrix.tensor, 4)?;
    refused(ten.tensor, matrix.tensor, -1)?;
    refused(ten.tensor, wide.tensor, 3)?;
    refused(local(rank, &[0; 9], INT)?.tensor, matrix.tensor, 3)?;
    refused(matrix.tensor, matrix.tensor, 3)?;
    refused(null_mut(), matrix.tensor, 3)
}

/// Requests the wanted outputs, and compares all.
fn adds_numbers(
    rank: &Rank,
    dtype: c_uint,
    (rows, columns, stride): (i64, i64, i64),
    wanted: [bool; 3],
) -> Verdict {
    let input = |column: i64| i64::from(byte_at(column as usize, rank.number)) % 64;
    let bytes: Vec<u8> = (0..columns).flat_map(|column| element(input(column), dtype)).collect();
    let from = Local::new(rank, &bytes, &Description::array(columns, dtype))?;
    // A number that must stay in the gaps between rows.
    let bytes: Vec<u8> = (0..rows * stride).flat_map(|_| element(77, dtype)).collect();
    let to = Local::new(rank, &bytes, &Description::matrix(rows, columns, stride, dtype))?;
    let (caller, outputs) = (Caller::new(rank), [(); 3].map(|()| Memory::new(rank)));
    let context = |at: usize| if wanted[at] { outputs[at].context() } else { null_mut() };
    let (device, pinned, host) = (context(0), context(1), context(2));
    let functions = caller.functions();
    want!(
        SUCCESS,
        rank.wholememory_env_test_op(
            from.tensor,
            to.tensor,
            device,
            pinned,
            host,
            rows,
            &functions,
            null_mut()
        )
    )?;
    caller.is_even()?;
    let sums = |stride: i64| -> Vec<u8> {
        let number = |at: i64| if at % stride < columns { input(at % stride) + at / stride } else { 77 };
        (0..rows * stride).flat_map(|at| element(number(at), dtype)).collect()
    };
    must(to.read()? == sums(stride), || "the fixed output".into())?;
    for (output, _) in outputs.iter().zip(wanted).filter(|(_, wanted)| *wanted) {
        let shape = output.shape.get().map(|shape| (shape.dim, shape.sizes[0], shape.sizes[1], shape.dtype));
        must(shape == Some((2, rows, columns, dtype)), || format!("an output of shape {shape:?}"))?;
        must(output.read()? == sums(columns), || "an output of the caller's functions".into())?;
    }
    Ok(())
}

/// The operations that take functions, each on arrays of its own.
struct Operations<'a> {
    rank: &'a Rank,
    arrays: [Local<'a>; 6],
    outputs: [Memory<'a>; 3],
}

impl<'a> Operations<'a> {
    fn new(rank: &'a Rank) -> Verdict<Self> {
        let many: Vec<i64> = (0..1200).collect();
        let bytes = vec![0; many.len() * 4];
        let weights = Local::new(rank, &bytes, &Description::array(many.len() as i64, FLOAT))?;
        let arrays = [
            local(rank, &[0, 1200], INT64)?,
            local(rank, &many, INT)?,
            weights,
            local(rank, &[0, 0], INT)?,
            local(rank, &[0; 3], INT)?,
            Local::new(rank, &[0; 72], &Description::matrix(9, 2, 2, INT))?,
        ];
        Ok(Self { rank, arrays, outputs: [(); 3].map(|()| Memory::new(rank)) })
    }

    fn play(&self, number: usize, functions: *const Functions, stream: CUstream) -> c_uint {
        let Self { rank: Rank { library, .. }, arrays, outputs } = self;
        let [row_ptr, col, weights, centers, offsets, matrix] = arrays.each_ref().map(|array| array.tensor);
        let [first, second, third] = outputs.each_ref().map(Memory::context);
        let stream = stream.0 as *mut c_void;
        let (none, most): (Handle, c_int) = (null_mut(), 1100);
        // SAFETY: handles, contexts and functions are this scenario's, or null on purpose.
        unsafe {
            match number {
                0 => (library.wholegraph_csr_unweighted_sample_without_replacement)(
                    row_ptr, col, centers, 3, offsets, first, second, third, 1, functions, stream,
                ),
                // This needs temporary memory for edges.
                1 => (library.wholegraph_csr_unweighted_sample_without_replacement)(
                    row_ptr, col, centers, most, offsets, first, second, none, 1, functions, stream,
                ),
                2 => (library.wholegraph_csr_weighted_sample_without_replacement)(
                    row_ptr, col, weights, centers, 3, offsets, first, second, third, 1, functions, stream,
                ),
                3 => (library.graph_append_unique)(centers, col, first, none, functions, stream),
                _ => (library.wholememory_env_test_op)(
                    centers, matrix, first, second, third, 9, functions, stream,
                ),
            }
        }
    }
}

/// Requests that each operation makes: a context, temporary memory, and outputs.
const REQUESTS: [usize; 5] = [5, 6, 5, 3, 5];

pub(super) fn fails(rank: &Rank) -> Verdict {
    let operations = Operations::new(rank)?;
    for (number, requests) in REQUESTS.into_iter().enumerate() {
        for failing in 0..requests {
            let caller = Caller::new(rank);
            caller.fail(failing);
            let code = operations.play(number, &caller.functions(), CUstream::NULL);
            must(code == OUT_OF_MEMORY, || format!("operation {number}, request {failing}: {code}"))?;
            caller.is_even().map_err(|reason| format!("operation {number}, request {failing}: {reason}"))?;
            let left = caller.outputs.get();
            must(left == 0, || format!("operation {number}, request {failing}: {left} outputs are left"))?;
        }
        // No further request is made.
        let caller = Caller::new(rank);
        caller.fail(requests);
        let code = operations.play(number, &caller.functions(), CUstream::NULL);
        must(code == SUCCESS, || format!("operation {number} makes more requests than {requests}: {code}"))?;
    }
    Ok(())
}

pub(super) fn lacks_functions(rank: &Rank) -> Verdict {
    let operations = Operations::new(rank)?;
    for number in 0..REQUESTS.len() {
        let code = operations.play(number, null(), CUstream::NULL);
        must(code == INVALID_INPUT, || format!("operation {number} without functions: {code}"))?;
        for lacking in 0..6 {
            let caller = Caller::new(rank);
            let mut functions = caller.functions();
            match lacking {
                0 => functions.create = None,
                1 => functions.destroy = None,
                2 => functions.malloc = None,
                3 => functions.free = None,
                4 => functions.output_malloc = None,
                // It is needed only after a failure.
                _ => functions.output_free = None,
            }
            let (code, wanted) = (
                operations.play(number, &functions, CUstream::NULL),
                if lacking == 5 { SUCCESS } else { INVALID_INPUT },
            );
            must(code == wanted, || format!("operation {number} without function {lacking}: {code}"))?;
            caller.is_even()?;
        }
    }
    Ok(())
}

/// Hazard: a wait ends the capture that the program makes.
pub(super) fn captured(rank: &Rank) -> Verdict {
    let (operations, driver) = (Operations::new(rank)?, &rank.driver);
    let stream = driver.stream_create(CU_STREAM_NON_BLOCKING).map_err(|error| error.to_string())?;
    for number in 0..REQUESTS.len() {
        let caller = Caller::new(rank);
        // SAFETY: a function without pointers.
        let begun = driver.call::<symbol::cuStreamBeginCapture_v2>(|function| unsafe {
            function(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        });
        must(begun == CUresult::SUCCESS, || format!("no capture begins: {begun}"))?;
        // A request would be another error.
        caller.fail(0);
        let code = operations.play(number, &caller.functions(), stream);
        let mut graph = CUgraph::NULL;
        // SAFETY: the place is a live local.
        let ended =
            driver.call::<symbol::cuStreamEndCapture>(|function| unsafe { function(stream, &mut graph) });
        must(code == NOT_SUPPORTED, || format!("operation {number} in a capture: {code}"))?;
        must(ended == CUresult::SUCCESS, || format!("operation {number} has ended the capture: {ended}"))?;
        driver.graph_destroy(graph).map_err(|error| error.to_string())?;
        // The same stream, when it is not captured.
        let caller = Caller::new(rank);
        let code = operations.play(number, &caller.functions(), stream);
        must(code == SUCCESS, || format!("operation {number} in a stream: {code}"))?;
        caller.is_even()?;
    }
    driver.stream_destroy(stream).map_err(|error| error.to_string())
}
