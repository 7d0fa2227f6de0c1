//! The instructions that are known, one line for each kind. An instruction that is not here makes
//! its kernel undecided.

use super::parse::{size_of, space_of};
use super::syntax::Space;

/// What an instruction does with its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// The result is one of the sources, or bits of several: each may be the address in it.
    Either,
    /// The result is a sum or a product: one of the sources may be the address.
    Sum,
    /// A source is taken away from another one.
    Difference,
    /// The result is no address, whatever the sources are.
    Number,
    /// The result is an address of memory of the block or the thread.
    Own,
    /// The result is what the program wrote into memory: of a texture or a surface.
    Loaded,
    /// `to, [address]`.
    Load(Option<Space>),
    /// `[address], from`.
    Store(Option<Space>),
    /// `to, [address], from`.
    Atomic(Option<Space>),
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
pub(super) fn class(opcode: &[&str]) -> Option<Class> {
    let (first, rest) = opcode.split_first()?;
    let has = |word: &str| rest.contains(&word);
    let space = rest.iter().find_map(|word| space_of(word));
    let numbers = if rest.iter().any(|word| is_float(word)) { Some(Class::Number) } else { None };
    Some(match *first {
        "mov" | "selp" | "slct" | "cvta" | "prmt" | "shf" | "bfe" | "bfi" | "brev" | "shfl" | "movmatrix"
        | "redux" | "mapa" | "szext" => Class::Either,
        "and" | "or" | "xor" | "lop3" | "cnot" => Class::Either,
        "cvt" | "min" | "max" | "abs" | "copysign" => numbers.unwrap_or(Class::Either),
        "vadd" | "vsub" | "vabsdiff" | "vmin" | "vmax" | "vshl" | "vshr" | "vmad" => Class::Either,
        "add" | "addc" | "mul" | "mul24" | "mad" | "mad24" | "madc" | "sad" | "div" | "rem" | "shl"
        | "shr" | "dp2a" | "dp4a" => numbers.unwrap_or(Class::Sum),
        "sub" if is_plain_half(rest) => numbers.unwrap_or(Class::Sum),
        "sub" | "subc" | "neg" | "not" => numbers.unwrap_or(Class::Difference),
        "fma" | "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" | "testp" => Class::Number,
        "set" | "setp" | "popc" | "clz" | "bfind" | "fns" | "bmsk" | "isspacep" | "istypep" => Class::Number,
        "vote" | "match" | "activemask" | "elect" | "getctarank" | "createpolicy" | "txq" | "suq" => {
            Class::Number
        }
        "mma" | "mbarrier" => Class::Number,
        "wmma" if has("mma") => Class::Number,
        "wmma" if has("load") => Class::Load(space),
        "wmma" if has("store") => Class::Store(space),
        "wgmma" if has("mma_async") => Class::Number,
        "wgmma" => Class::Nothing,
        "clusterlaunchcontrol" if has("query_cancel") => Class::Number,
        "clusterlaunchcontrol" => Class::Nothing,
        "tcgen05" if has("ld") => Class::Load(Some(Space::Shared)),
        "tcgen05" if has("st") => Class::Store(Some(Space::Shared)),
        "tcgen05" => Class::Nothing,
        "alloca" | "stacksave" => Class::Own,
        "tex" | "tld4" | "suld" => Class::Loaded,
        "ld" | "ldu" => Class::Load(space),
        "ldmatrix" => Class::Load(Some(Space::Shared)),
        "st" if has("async") => Class::Store(Some(Space::Shared)),
        "st" if has("bulk") => Class::Nothing,
        "st" | "discard" => Class::Store(space),
        "stmatrix" => Class::Store(Some(Space::Shared)),
        "red" if has("async") => Class::Store(Some(Space::Shared)),
        "red" => Class::Store(space),
        "atom" => Class::Atomic(space),
        "cp" => return copy(rest),
        "call" => Class::Call,
        "bar" | "barrier" if has("red") => Class::Number,
        "bar" | "barrier" | "membar" | "fence" | "bra" | "brx" | "ret" | "exit" | "trap" | "brkpt"
        | "nanosleep" | "griddepcontrol" | "pmevent" | "setmaxnreg" | "stackrestore" | "prefetch"
        | "prefetchu" | "applypriority" => Class::Nothing,
        _ => return None,
    })
}

/// Copies that go on while the kernel does. A tensor's address is in a descriptor, so that a store
/// by one is not known.
fn copy(words: &[&str]) -> Option<Class> {
    let has = |word: &str| words.contains(&word);
    let to = words.iter().find_map(|word| space_of(word));
    match to {
        _ if has("commit_group")
            || has("wait_group")
            || has("wait_all")
            || has("prefetch")
            || has("mbarrier") =>
        {
            Some(Class::Nothing)
        }
        Some(Space::Shared) => Some(Class::Fetch),
        Some(Space::Global) if has("bulk") && !has("tensor") => Some(Class::Flush),
        _ => None,
    }
}

/// A difference of 32 bits or less that borrows nothing is no part of one of addresses.
fn is_plain_half(words: &[&str]) -> bool {
    !words.contains(&"cc") && words.iter().any(|word| size_of(word).is_some_and(|bytes| bytes < 8))
}

fn is_float(word: &str) -> bool {
    let kinds = ["f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64", "tf32"];
    kinds.contains(&word)
        || ["e4m3", "e5m2", "e2m1", "e2m3", "e3m2", "ue8m0"].iter().any(|kind| word.starts_with(kind))
}
