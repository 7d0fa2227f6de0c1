//! Parses kernel declarations out of CUDA C: `extern "C" __global__ void name(type name, ...)`,
//! with `__launch_bounds__(...)` before the name or without, and the `///` lines above.
//!
//! The parser is strict instead of clever: what it does not know is an error that names the kernel
//! and the parameter. The CPU build holds each parsed size against the compiler's (`has_sizes` in
//! `cuda/cpu/call.hpp`), the tests against the PTX.

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
    pub(crate) parameters: Vec<ParameterDeclaration>,
}

/// One parameter of a kernel.
#[derive(Debug)]
pub(crate) struct ParameterDeclaration {
    pub(crate) name: String,
    /// As it is written in the source, e.g. `const u64*`.
    pub(crate) c_type: String,
    /// The Rust type of the argument: `CUdeviceptr` for every pointer.
    pub(crate) rust_type: &'static str,
    /// In bytes.
    pub(crate) size: usize,
}

/// All kernels of one source file, in order.
pub(crate) fn parse(source: &str) -> Result<Vec<KernelDeclaration>, String> {
    source.match_indices(OPENING).map(|(at, _)| kernel(source, at)).collect()
}

fn kernel(source: &str, at: usize) -> Result<KernelDeclaration, String> {
    let declaration = without_bounds(&source[at + OPENING.len()..]);
    let (head, _) = declaration.split_once(')').ok_or("a kernel's parameter list has no end")?;
    let (name, list) = head.split_once('(').ok_or("a kernel's name is not followed by its parameters")?;
    let parameters =
        list.split(',').map(|text| parameter(text.trim()).map_err(|why| format!("{name}: {why}")));
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
fn documentation(before: &str) -> Option<Vec<String>> {
    let mut lines: Vec<String> =
        before.lines().rev().map_while(|line| Some(line.strip_prefix("///")?.trim().to_owned())).collect();
    lines.reverse();
    (!lines.is_empty()).then_some(lines)
}

fn parameter(text: &str) -> Result<ParameterDeclaration, String> {
    let split = text.rfind([' ', '*']).ok_or(format!("parameter `{text}` needs a type and a name"))? + 1;
    let (c_type, name) = (text[..split].trim(), &text[split..]);
    let (rust_type, size) = layout(c_type).ok_or(format!(
        "parameter `{text}`: a kernel takes pointers and the scalar types of cuda/device.cuh ({})",
        SCALARS.map(|(name, _)| name).join(", ")
    ))?;
    Ok(ParameterDeclaration { name: name.to_owned(), c_type: c_type.to_owned(), rust_type, size })
}

fn layout(c_type: &str) -> Option<(&'static str, usize)> {
    if c_type.ends_with('*') {
        return Some(("CUdeviceptr", 8));
    }
    SCALARS.into_iter().find(|(name, _)| *name == c_type)
}
