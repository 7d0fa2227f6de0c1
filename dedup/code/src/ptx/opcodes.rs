//! The instructions that are known, one line for each kind. An instruction that is not here makes
//! its kernel undecided.

use super::parse::space_of;
use super::syntax::StateSpace;

/// How a value is made of its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// One of them, or bits of several: each may be the address in it.
    Either,
    /// Their sum.
    Sum,
    /// The last one is taken away from the others.
    Difference,
    /// Their product, or one of them shifted.
    Product,
    /// The last one is added to the product of the others.
    ProductAndSum,
}

/// What an instruction does with its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpcodeClass {
    /// The result is computed from the sources.
    Compute(How),
    /// The result is no address, whatever the sources are.
    Number,
    /// The result is an address of memory of the block or the thread.
    Own,
    /// The result is such an address, made of the sources.
    Address,
    /// The result is what the program wrote into memory: of a texture or a surface.
    Loaded,
    /// `to, [address]`.
    Load(Option<StateSpace>),
    /// `[address], from`.
    Store(Option<StateSpace>),
    /// `to, [address], from`.
    Atomic(Option<StateSpace>),
    /// `[shared], [global]`: what is loaded goes into shared memory.
    Fetch,
    /// `[global], [shared]`: shared memory is stored.
    Flush,
    /// Call of a function.
    Call,
    /// Neither a register nor memory that others have is changed.
    Nothing,
}

/// The class of an instruction, by the words of its name.
pub(super) fn class(opcode: &[&str]) -> Option<OpcodeClass> {
    let (first, rest) = opcode.split_first()?;
    let has = |word: &str| rest.contains(&word);
    let space = rest.iter().find_map(|word| space_of(word));
    let numbers = if rest.iter().any(|word| is_float(word)) { Some(OpcodeClass::Number) } else { None };
    Some(match *first {
        "mapa" => OpcodeClass::Address,
        "cvta" if !has("to") && matches!(space, Some(StateSpace::Shared | StateSpace::Local)) => {
            OpcodeClass::Address
        }
        "mov" | "selp" | "slct" | "cvta" | "prmt" | "shf" | "bfe" | "bfi" | "brev" | "shfl" | "movmatrix"
        | "redux" | "szext" => OpcodeClass::Compute(How::Either),
        "and" | "or" | "xor" | "lop3" | "cnot" => OpcodeClass::Compute(How::Either),
        "cvt" | "min" | "max" | "abs" | "copysign" => numbers.unwrap_or(OpcodeClass::Compute(How::Either)),
        "vadd" | "vsub" | "vabsdiff" | "vmin" | "vmax" | "vshl" | "vshr" | "vmad" => {
            OpcodeClass::Compute(How::Either)
        }
        "add" | "addc" | "sad" => numbers.unwrap_or(OpcodeClass::Compute(How::Sum)),
        "sub" | "subc" | "neg" | "not" => numbers.unwrap_or(OpcodeClass::Compute(How::Difference)),
        "mul" | "mul24" | "div" | "rem" | "shl" | "shr" => {
            numbers.unwrap_or(OpcodeClass::Compute(How::Product))
        }
        "mad" | "mad24" | "madc" | "dp2a" | "dp4a" => {
            numbers.unwrap_or(OpcodeClass::Compute(How::ProductAndSum))
        }
        "fma" | "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" | "testp" => {
            OpcodeClass::Number
        }
        "set" | "setp" | "popc" | "clz" | "bfind" | "fns" | "bmsk" | "isspacep" | "istypep" => {
            OpcodeClass::Number
        }
        "vote" | "match" | "activemask" | "elect" | "getctarank" | "createpolicy" | "txq" | "suq" => {
            OpcodeClass::Number
        }
        "mma" | "mbarrier" => OpcodeClass::Number,
        "wmma" if has("mma") => OpcodeClass::Number,
        "wmma" if has("load") => OpcodeClass::Load(space),
        "wmma" if has("store") => OpcodeClass::Store(space),
        "wgmma" if has("mma_async") => OpcodeClass::Number,
        "wgmma" => OpcodeClass::Nothing,
        "clusterlaunchcontrol" if has("query_cancel") => OpcodeClass::Number,
        "clusterlaunchcontrol" => OpcodeClass::Nothing,
        "tcgen05" if has("ld") => OpcodeClass::Load(Some(StateSpace::Shared)),
        "tcgen05" if has("st") => OpcodeClass::Store(Some(StateSpace::Shared)),
        "tcgen05" => OpcodeClass::Nothing,
        "alloca" | "stacksave" => OpcodeClass::Own,
        "tex" | "tld4" | "suld" => OpcodeClass::Loaded,
        "ld" | "ldu" => OpcodeClass::Load(space),
        "ldmatrix" => OpcodeClass::Load(Some(StateSpace::Shared)),
        "st" if has("async") => OpcodeClass::Store(Some(StateSpace::Shared)),
        "st" if has("bulk") => OpcodeClass::Nothing,
        "st" | "discard" => OpcodeClass::Store(space),
        "stmatrix" => OpcodeClass::Store(Some(StateSpace::Shared)),
        "red" if has("async") => OpcodeClass::Store(Some(StateSpace::Shared)),
        "red" => OpcodeClass::Store(space),
        "atom" => OpcodeClass::Atomic(space),
        "cp" => return copy(rest),
        "call" => OpcodeClass::Call,
        "bar" | "barrier" if has("red") => OpcodeClass::Number,
        "bar" | "barrier" | "membar" | "fence" | "bra" | "brx" | "ret" | "exit" | "trap" | "brkpt"
        | "nanosleep" | "griddepcontrol" | "pmevent" | "setmaxnreg" | "stackrestore" | "prefetch"
        | "prefetchu" | "applypriority" => OpcodeClass::Nothing,
        _ => return None,
    })
}

/// Copies that go on while the kernel does. A tensor's address is in a descriptor, so that a store
/// by one is not known.
fn copy(words: &[&str]) -> Option<OpcodeClass> {
    let has = |word: &str| words.contains(&word);
    let to = words.iter().find_map(|word| space_of(word));
    match to {
        _ if has("commit_group")
            || has("wait_group")
            || has("wait_all")
            || has("prefetch")
            || has("mbarrier") =>
        {
            Some(OpcodeClass::Nothing)
        }
        Some(StateSpace::Shared) => Some(OpcodeClass::Fetch),
        Some(StateSpace::Global) if has("bulk") && !has("tensor") => Some(OpcodeClass::Flush),
        _ => None,
    }
}

fn is_float(word: &str) -> bool {
    let kinds = ["f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64", "tf32"];
    kinds.contains(&word)
        || ["e4m3", "e5m2", "e2m1", "e2m3", "e3m2", "ue8m0"].iter().any(|kind| word.starts_with(kind))
}
