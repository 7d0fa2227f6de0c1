//! Hazard (wrong result): one of the small operations of the interface is wrong, which shows only
//! in the check of a program that uses it.

use wm_kernels::cpu::Fault;
use wm_kernels::wholememory::{AddSelfLoops, EnvTest, ReturnRows};

use super::support::{Draws, WARPS};
use super::types::{FLOATS, INTEGERS, Value, decode, draw, encode, same, size};
use crate::support::{launch, read, run, written};

#[test]
fn each_node_gets_an_edge_to_itself_before_the_others() {
    for (rows, shape) in [0u64, 1, 5, 33, 101].into_iter().zip(WARPS) {
        let draws = &mut Draws::new(rows + 1);
        let mut row_ptr = vec![0i32];
        (0..rows).for_each(|_| row_ptr.push(row_ptr[row_ptr.len() - 1] + draws.below(70) as i32));
        let edges = row_ptr[rows as usize] as usize;
        let col: Vec<i32> = (0..edges).map(|_| draws.below(1000) as i32).collect();
        let (mut output_row_ptr, mut output_col) =
            (vec![-1; rows as usize + 1], vec![-1; edges + rows as usize]);
        let arguments = AddSelfLoops {
            row_ptr: read(&row_ptr),
            col: read(&col),
            rows,
            output_row_ptr: written(&mut output_row_ptr),
            output_col: written(&mut output_col),
        };
        run(shape, &arguments);
        let (mut expected_row_ptr, mut expected_col) = (vec![0], Vec::new());
        for row in 0..rows as usize {
            expected_col.push(row as i32);
            expected_col.extend(&col[row_ptr[row] as usize..row_ptr[row + 1] as usize]);
            expected_row_ptr.push(expected_col.len() as i32);
        }
        assert_eq!((output_row_ptr, output_col), (expected_row_ptr, expected_col), "{rows} rows");
    }
}

/// The sum that a C program would have in the type, where f16 and bf16 are added in f32.
fn sum(value: Value, number: usize, kind: u32) -> Value {
    match value {
        Value::Float(x) if size(kind) == 8 => Value::Float(x + number as f64),
        Value::Float(x) => Value::Float(f64::from(x as f32 + number as f32)),
        Value::Integer(x) => Value::Integer(x.wrapping_add(number as i64)),
    }
}

#[test]
fn the_environment_test_adds_the_row_number() {
    for kind in FLOATS.into_iter().chain(INTEGERS) {
        let (rows, columns, output_stride) = (70usize, 13usize, 14usize);
        let draws = &mut Draws::new(u64::from(kind));
        let input: Vec<u8> = (0..columns).flat_map(|_| draw(kind, draws)).collect();
        let mut output = vec![0xa5u8; rows * output_stride * size(kind)];
        let arguments = EnvTest {
            input: read(&input),
            output: written(&mut output),
            element_type: kind,
            rows: rows as u64,
            columns: columns as u64,
            output_stride: output_stride as u64,
        };
        run((3, 40), &arguments);
        for (at, found) in output.chunks(size(kind)).enumerate() {
            let (row, column) = (at / output_stride, at % output_stride);
            let expected = match input.chunks(size(kind)).nth(column) {
                Some(value) => encode(kind, sum(decode(kind, value), row, kind)),
                None => vec![0xa5; size(kind)],
            };
            assert!(same(kind, found, &expected), "type {kind}, row {row}: {found:?} for {expected:?}");
        }
    }
}

#[test]
fn rows_come_or_the_launch_fails() {
    for (lost, wanted, outcome) in [(0u32, 7u64, Ok(())), (1, 6, Err(Fault::Trap))] {
        let (lost, mut come) = ([lost], [6u64]);
        let arguments = ReturnRows { lost: read(&lost), come: written(&mut come), number: 7 };
        assert_eq!(launch([1; 3], [1; 3], &arguments), outcome);
        assert_eq!(come, [wanted]);
    }
}
