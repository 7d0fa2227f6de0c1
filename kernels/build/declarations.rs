//! Parses kernel declarations out of CUDA C: `extern "C" __global__ void name(type name, ...)`,
//! with `__launch_bounds__(...)` before the name or without, and the `///` lines above; and the
//! structures that kernels take by value.
//!
//! The parser is strict: an unknown parameter is an error that names the kernel and the parameter.
//! The CPU build compares each parsed size and offset with the compiler's (`has_sizes` in
//! `cuda/cpu/call.hpp`, `layout_check` in `build/cpu.rs`), the tests compare sizes with the PTX.

use crate::structures::{Structures, ValueLayout};

/// How every kernel's declaration begins.
const OPENING: &str = "extern \"C\" __global__ void ";

/// Scalar types of `cuda/device.cuh`, as Rust spells them, with their sizes in bytes.
const SCALARS: [(&str, usize); 6] = [("u32", 4), ("i32", 4), ("f32", 4), ("u64", 8), ("i64", 8), ("f64", 8)];

/// One kernel.
#[derive(Debug)]
pub(crate) struct KernelDeclaration {
    pub(crate) name: String,
    /// The comment above it, one entry a line.
    pub(crate) documentation: Vec<String>,
    pub(crate) parameters: Vec<ValueDeclaration>,
}

/// One parameter of a kernel, or one field of a structure.
#[derive(Debug, Clone)]
pub(crate) struct ValueDeclaration {
    pub(crate) name: String,
    /// As it is written in the source, e.g. `const u64*`.
    pub(crate) c_type: String,
    /// The Rust type: `CUdeviceptr` for every pointer.
    pub(crate) rust_type: String,
    /// In bytes.
    pub(crate) layout: ValueLayout,
}

/// All kernels of one source file, in order.
pub(crate) fn parse(source: &str, structures: &Structures) -> Result<Vec<KernelDeclaration>, String> {
    source.match_indices(OPENING).map(|(at, _)| kernel(source, at, structures)).collect()
}

fn kernel(source: &str, at: usize, structures: &Structures) -> Result<KernelDeclaration, String> {
    let declaration = without_bounds(&source[at + OPENING.len()..]);
    let (head, _) = declaration.split_once(')').ok_or("a kernel's parameter list has no end")?;
    let (name, list) = head.split_once('(').ok_or("a kernel's name is not followed by its parameters")?;
    let parameters = list.split(',').map(|text| {
        value(text.trim(), structures).map_err(|why| format!("{name}: parameter `{}`: {why}", text.trim()))
    });
    Ok(KernelDeclaration {
        name: name.to_owned(),
        documentation: documentation(&source[..at]).ok_or(format!("{name}: write a /// line above it"))?,
        parameters: parameters.collect::<Result<_, _>>()?,
    })
}

/// The declaration from the kernel's name on.
fn without_bounds(declaration: &str) -> &str {
    let bounds = declaration.strip_prefix("__launch_bounds__(").and_then(|rest| rest.split_once(')'));
    bounds.map_or(declaration, |(_, rest)| rest.trim_start())
}

/// The `///` lines that `before` ends with; `None` when there are none.
pub(crate) fn documentation(before: &str) -> Option<Vec<String>> {
    let mut lines: Vec<String> =
        before.lines().rev().map_while(|line| Some(line.strip_prefix("///")?.trim().to_owned())).collect();
    lines.reverse();
    (!lines.is_empty()).then_some(lines)
}

/// `type name`.
pub(crate) fn value(text: &str, structures: &Structures) -> Result<ValueDeclaration, String> {
    let split = text.rfind([' ', '*']).ok_or("it needs a type and a name")? + 1;
    let (c_type, name) = (text[..split].trim(), &text[split..]);
    let (rust_type, layout) = rust_type(c_type, structures)?;
    Ok(ValueDeclaration { name: name.to_owned(), c_type: c_type.to_owned(), rust_type, layout })
}

fn rust_type(c_type: &str, structures: &Structures) -> Result<(String, ValueLayout), String> {
    if c_type.ends_with('*') {
        return Ok(("CUdeviceptr".to_owned(), ValueLayout::of_scalar(8)));
    }
    if let Some((name, size)) = SCALARS.into_iter().find(|(name, _)| *name == c_type) {
        return Ok((name.to_owned(), ValueLayout::of_scalar(size)));
    }
    let name = c_type.strip_prefix("wm::").unwrap_or(c_type);
    let structure = structures.get(name).ok_or(format!(
        "`{c_type}` is no pointer, no scalar type of cuda/device.cuh ({}) and no structure of this image \
         with a /// line above it and before its use",
        SCALARS.map(|(name, _)| name).join(", ")
    ))?;
    Ok((structure.name.clone(), structure.layout))
}
