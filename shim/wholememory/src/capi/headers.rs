//! Hazard (source drift): a struct, or a number of an enum, is another one in the shipped headers
//! than in the library. Functions are declared from the Rust that C calls; these are written by
//! hand.

use std::io::Write;
use std::mem::offset_of;
use std::process::{Command, Stdio};

use super::communicators::{CliqueInfo, UniqueId};
use super::descriptions::GlobalReference;
use crate::communicator::UNIQUE_ID_BYTES;
use crate::environment::Functions;
use crate::error::Error;
use crate::vocabulary::codes::{
    AccessType, AllocationType, Backend, ElementType, Location, MemoryType, OptimizerType,
};
use crate::vocabulary::description::{
    ArrayDescription, MOST_DIMENSIONS, MatrixDescription, TensorDescription,
};

/// The color that `wholememory_split_communicator` takes for none.
const NO_COLOR: i32 = -1;

/// A constant expression of C, and its value.
type Fact = (String, i64);

/// Size of a struct, and the place of each of these fields.
macro_rules! layout {
    ($c:literal, $rust:ty $(, $field:ident)*) => {{
        let size = (format!("sizeof({})", $c), size_of::<$rust>() as i64);
        let fields = [$((format!("offsetof({}, {})", $c, stringify!($field)), offset_of!($rust, $field) as i64)),*];
        let fields: Vec<Fact> = fields.into();
        [size].into_iter().chain(fields).collect::<Vec<Fact>>()
    }};
}

fn structs() -> Vec<Fact> {
    [
        layout!("wholememory_unique_id_t", UniqueId),
        layout!(
            "clique_info_t",
            CliqueInfo,
            is_in_clique,
            clique_first_rank,
            clique_rank,
            clique_rank_num,
            clique_id,
            clique_num
        ),
        layout!("wholememory_array_description_t", ArrayDescription, size, storage_offset, dtype),
        layout!("wholememory_matrix_description_t", MatrixDescription, sizes, stride, storage_offset, dtype),
        layout!(
            "wholememory_tensor_description_t",
            TensorDescription,
            sizes,
            strides,
            storage_offset,
            dim,
            dtype
        ),
        layout!(
            "wholememory_gref_t",
            GlobalReference,
            pointer,
            rank_memory_offsets,
            world_size,
            stride,
            same_chunk
        ),
        layout!("wholememory_env_func_t", Functions),
    ]
    .concat()
}

/// The names of an enum in order, from 1 on, and that no name of it follows.
fn numbers(prefix: &str, names: &[&str], of: impl Fn(u32) -> bool) -> Vec<Fact> {
    let known = (1..32).filter(|number| of(*number)).count();
    assert_eq!(known, names.len(), "{prefix}: the library has {known} numbers");
    let each = names.iter().zip(1..).map(|(name, number)| (format!("WHOLEMEMORY_{prefix}{name}"), number));
    each.collect()
}

fn enums() -> Vec<Fact> {
    [
        numbers("MT_", &["CONTINUOUS", "CHUNKED", "DISTRIBUTED", "HIERARCHY"], |it| {
            MemoryType::of(it).is_ok()
        }),
        numbers("ML_", &["DEVICE", "HOST"], |it| Location::of(it).is_ok()),
        numbers("DB_", &["NCCL", "NVSHMEM"], |it| Backend::of(it).is_ok()),
        numbers("AT_", &["READONLY", "READWRITE"], |it| AccessType::of(it).is_ok()),
        numbers("OPT_", &["SGD", "LAZY_ADAM", "RMSPROP", "ADAGRAD"], |it| OptimizerType::of(it).is_ok()),
        numbers("MA_", &["DEVICE", "HOST", "PINNED"], |it| AllocationType::of(it).is_ok()),
        numbers("DT_", &["FLOAT", "HALF", "DOUBLE", "BF16", "INT", "INT64", "INT16", "INT8"], |it| {
            ElementType::of(it).is_ok()
        }),
    ]
    .concat()
}

fn codes() -> Vec<Fact> {
    let text = || String::new();
    let errors = [
        ("NOT_IMPLEMENTED", Error::NotImplemented("")),
        ("LOGIC_ERROR", Error::Logic(text())),
        ("CUDA_ERROR", Error::Cuda(text())),
        ("COMMUNICATION_ERROR", Error::Communication(text())),
        ("INVALID_INPUT", Error::Input(text())),
        ("INVALID_VALUE", Error::Value(text())),
        ("OUT_OF_MEMORY", Error::Memory(text())),
        ("NOT_SUPPORTED", Error::NotSupported(text())),
        ("SYSTEM_ERROR", Error::System(text())),
    ];
    let named = errors.iter().map(|(name, error)| (*name, i64::from(error.code())));
    let all = named.chain([("SUCCESS", i64::from(super::call::SUCCESS))]);
    let mut facts: Vec<Fact> = all.map(|(name, code)| (format!("WHOLEMEMORY_{name}"), code)).collect();
    facts.extend([
        ("WHOLEMEMORY_UNIQUE_ID_BYTES".to_owned(), UNIQUE_ID_BYTES as i64),
        ("WHOLEMEMORY_MAX_TENSOR_DIM".to_owned(), MOST_DIMENSIONS as i64),
        ("WHOLEMEMORY_SPILT_NO_COLOR".to_owned(), i64::from(NO_COLOR)),
    ]);
    facts
}

#[test]
fn structs_and_numbers_are_those_of_the_library() {
    let mut program = String::from("#include <wholememory/embedding.h>\n");
    for (expression, value) in [structs(), enums(), codes()].concat() {
        program += &format!("_Static_assert({expression} == {value}, \"{expression} is {value}\");\n");
    }
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../wholegraph/include");
    let mut compiler = Command::new("gcc");
    compiler.args(["-std=c11", "-fsyntax-only", "-x", "c", "-I", include, "-"]).stdin(Stdio::piped());
    let mut running = compiler.stderr(Stdio::piped()).spawn().expect("gcc is needed");
    running.stdin.take().expect("a pipe").write_all(program.as_bytes()).expect("gcc reads");
    let output = running.wait_with_output().expect("gcc ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
