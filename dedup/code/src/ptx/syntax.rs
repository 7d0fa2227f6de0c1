//! The parts of a PTX text: functions, their parameters and their statements.

use std::collections::HashMap;

/// A text: its functions and the variables of the module.
#[derive(Debug, Default)]
pub(super) struct Module<'a> {
    pub(super) functions: Vec<PtxFunction<'a>>,
    pub(super) variables: HashMap<&'a str, StateSpace>,
}

/// A kernel, or a function that kernels call.
#[derive(Debug, Default)]
pub(super) struct PtxFunction<'a> {
    pub(super) name: &'a str,
    pub(super) is_kernel: bool,
    /// Without a body it is code of another image.
    pub(super) has_body: bool,
    pub(super) parameters: Vec<PtxParameter<'a>>,
    pub(super) results: Vec<&'a str>,
    /// Registers with names of their own, and variables.
    pub(super) registers: Vec<&'a str>,
    pub(super) variables: HashMap<&'a str, StateSpace>,
    pub(super) statements: Vec<PtxStatement<'a>>,
    /// The first part of the body that is not understood.
    pub(super) obscure: Option<Obscure>,
}

/// A parameter and its place among the parameters of a kernel, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PtxParameter<'a> {
    pub(super) name: &'a str,
    pub(super) offset: u32,
    pub(super) bytes: u32,
}

/// The memory that a variable is in, or that an instruction names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateSpace {
    Global,
    Constant,
    Shared,
    Local,
    Parameter,
}

/// An instruction.
#[derive(Debug)]
pub(super) struct PtxStatement<'a> {
    pub(super) line: u32,
    /// The words between the points: `st`, `global`, `u32`.
    pub(super) opcode: Vec<&'a str>,
    pub(super) operands: Vec<PtxOperand<'a>>,
}

/// An operand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PtxOperand<'a> {
    /// A register, a variable or a function.
    Name(&'a str),
    /// A number, by its low 64 bits.
    Number(u64),
    /// `{a, b}`; also the lists of a call, and two destinations with a bar between them.
    List(Vec<PtxOperand<'a>>),
    /// `[a + 8]`: what is between the brackets, and the number that is added.
    Address(Vec<PtxOperand<'a>>, i64),
}

/// A part of a text that is not understood: its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Obscure(pub(super) u32);
