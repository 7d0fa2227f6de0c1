//! One kernel as its image has it: machine code, and the tables beside it. All of it is borrowed
//! from the image, and nothing of it is believed beyond its bounds: each range lies inside of the
//! bytes that it is a range of.

use std::ops::Range;

/// The machine code of a kernel, and the facts about it that the image states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelCode<'a> {
    /// The name of its symbol, mangled, by which the driver finds it.
    pub name: &'a str,
    /// The architecture that the code was made for: 80, 86, 89, 90, 100, 103, 120.
    pub sm: u32,
    /// The whole section with its code. From sm_70 on an instruction has 16 bytes.
    pub text: &'a [u8],
    /// The kernel's own bytes in `text`.
    pub entry: Range<usize>,
    /// The other functions in the section, ordered by `at`.
    pub functions: Vec<FunctionRange<'a>>,
    /// Where its parameters lie. `None`: the image states nothing, as of a kernel without any.
    pub parameters: Option<ParameterBank>,
    /// The places in `text` that the driver fills in when it loads the code.
    pub relocations: Vec<Relocation<'a>>,
    /// The addresses that the driver fills in in bank 4: of variables, and of functions that the
    /// module calls through registers.
    pub addresses: Vec<Relocation<'a>>,
    /// The targets of the jumps through registers that the image states.
    pub indirect_branches: Vec<IndirectBranch>,
    /// The constants of its own and of its module, but those of bank 0.
    pub constants: Vec<Constants<'a>>,
}

/// A function in the section of a kernel, which the kernel may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionRange<'a> {
    /// The name of its symbol.
    pub name: &'a str,
    /// Its first byte in the section.
    pub at: usize,
    /// Its length in bytes.
    pub bytes: usize,
}

/// The parameters of a kernel in constant bank 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterBank {
    /// The first byte of the parameters in the bank.
    pub begin: u32,
    /// The bytes of all parameters.
    pub bytes: u32,
    /// The parameters in their order; empty, if the image does not name each.
    pub parameters: Vec<ParameterSpan>,
}

/// One parameter, which may be a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterSpan {
    /// Bytes from the start of all parameters.
    pub offset: u32,
    /// Its length in bytes.
    pub bytes: u32,
}

/// A place in the code that holds an address which only the loader knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation<'a> {
    /// The byte in the section.
    pub at: usize,
    /// The name of the symbol; empty, if it has none.
    pub symbol: &'a str,
    /// Its kind.
    pub of: Target,
    /// The number of the relocation's kind (`R_CUDA_*`).
    pub kind: u32,
}

/// The symbol of a relocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Code.
    Function,
    /// A variable of the module.
    Variable,
    /// Anything else.
    Other,
}

/// A jump through a register with all of its targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndirectBranch {
    /// The jump's first byte in the section.
    pub at: usize,
    /// The first bytes of the instructions that it may lead to.
    pub targets: Vec<usize>,
}

/// The content of a constant bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Constants<'a> {
    /// The bank's number: 2 has the compiler's constants, 3 the program's `__constant__` variables,
    /// 4 addresses of variables and functions.
    pub bank: u32,
    /// Its bytes before the loader's changes.
    pub bytes: &'a [u8],
}
