//! Reads function declarations out of NVIDIA's public headers and turns them into the table's Rust
//! notation.
//!
//! Only names and types are read, on which a foreign caller must agree. The C compiler's
//! preprocessor does the hard part: with `__CUDA_API_VERSION_INTERNAL` the headers declare every
//! version of every function. A per-thread-stream twin (`_ptds`, `_ptsz`) has its base's
//! parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use regex::Regex;

use crate::table::{AS_TWIN, DriverTable, twin_of};

/// Structures that wm-abi defines field by field; pointers to any other structure become `*mut
/// c_void`.
const KNOWN: &[&str] = &[
    "CUDA_ARRAY_DESCRIPTOR",
    "CUDA_ARRAY3D_DESCRIPTOR",
    "CUDA_KERNEL_NODE_PARAMS",
    "CUDA_MEMCPY2D",
    "CUDA_MEMCPY3D",
    "CUDA_MEMCPY3D_PEER",
    "CUDA_MEMSET_NODE_PARAMS",
    "CUDA_POINTER_ATTRIBUTE_P2P_TOKENS",
    "CUipcEventHandle",
    "CUipcMemHandle",
    "CUlaunchConfig",
    "CUmemAccessDesc",
    "CUmemAllocationProp",
    "CUmemcpyAttributes",
    "CUmemLocation",
    "CUmemPoolProps",
    "CUmemPoolPtrExportData",
    "CUuuid",
];

/// Opaque handles, each a newtype over the pointer's bits in wm-abi.
const HANDLES: &[&str] = &[
    "CUarray",
    "CUcontext",
    "CUevent",
    "CUfunction",
    "CUgraph",
    "CUgraphExec",
    "CUgraphNode",
    "CUkernel",
    "CUlibrary",
    "CUmemoryPool",
    "CUmipmappedArray",
    "CUmodule",
    "CUstream",
    "CUsurfref",
    "CUtexref",
];

/// Renews the table's names and parameters from `include` and from files that list exported
/// symbols.
pub(crate) fn import(include: &Path, lists: &[PathBuf]) -> Result<()> {
    let declared = declarations(&preprocess(include)?)?;
    let cells: BTreeMap<String, String> =
        symbols(lists)?.into_iter().map(|name| (name.clone(), cell(&name, &declared))).collect();
    let unknown: Vec<_> =
        cells.iter().filter(|(_, cell)| *cell == "?").map(|(name, _)| name.as_str()).collect();
    println!("{} symbols, no declaration for: {}", cells.len(), unknown.join(" "));
    let mut table = DriverTable::read()?;
    let [fresh, gone] = table.renew(&cells);
    println!("new, with cells to be written: {}\ngone: {}", fresh.join(" "), gone.join(" "));
    table.write()
}

/// A function's cell of parameters.
fn cell(name: &str, declared: &BTreeMap<String, String>) -> String {
    match twin_of(name) {
        Some(_) => AS_TWIN.to_owned(),
        None => declared.get(name).cloned().unwrap_or_else(|| "?".to_owned()),
    }
}

/// The debugger's entry points are never exported: cuda-gdb plants breakpoints on the driver's own
/// by name.
fn symbols(lists: &[PathBuf]) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for list in lists {
        let text = fs::read_to_string(list).with_context(|| list.display().to_string())?;
        names.extend(
            text.lines().filter(|l| l.starts_with("cu") && !l.starts_with("cudbg")).map(str::to_owned),
        );
    }
    Ok(names)
}

fn preprocess(include: &Path) -> Result<String> {
    let source = std::env::temp_dir().join(format!("wm-headers-{}.c", std::process::id()));
    // The graphics headers want types of window systems; their shape does not matter, only that
    // they parse.
    let text = "typedef unsigned int GLenum, GLuint, VdpDevice, VdpStatus, VdpFuncId, VdpVideoSurface, VdpOutputSurface;\n\
        typedef VdpStatus VdpGetProcAddress(VdpDevice, VdpFuncId, void **);\n\
        typedef void *EGLImageKHR, *EGLStreamKHR, *EGLSyncKHR; typedef int EGLint;\n\
        #define __gl_h_\n#define VDPAU_H\n\
        #include <cuda.h>\n#include <cudaGL.h>\n#include <cudaEGL.h>\n#include <cudaVDPAU.h>\n\
        CUresult CUDAAPI cuProfilerInitialize(const char *configFile, const char *outputFile, CUoutput_mode outputMode);\n\
        CUresult CUDAAPI cuProfilerStart(void);\nCUresult CUDAAPI cuProfilerStop(void);\n";
    fs::write(&source, text)?;
    let stubs = std::env::temp_dir().join(format!("wm-stubs-{}", std::process::id()));
    for header in ["GL/gl.h", "EGL/egl.h", "EGL/eglext.h", "vdpau/vdpau.h"] {
        fs::create_dir_all(stubs.join(header).parent().context("stub folder")?)?;
        fs::write(stubs.join(header), "")?;
    }
    let output = Command::new("gcc")
        .args(["-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", "-DCUDA_ENABLE_DEPRECATED", "-I"])
        .arg(include)
        .arg("-I")
        .arg(&stubs)
        .arg(&source)
        .output()?;
    ensure!(output.status.success(), "gcc: {}", String::from_utf8_lossy(&output.stderr));
    fs::remove_file(source)?;
    fs::remove_dir_all(stubs)?;
    Ok(String::from_utf8(output.stdout)?.replace('\n', " "))
}

fn declarations(text: &str) -> Result<BTreeMap<String, String>> {
    let declaration = Regex::new(r"\bCUresult\s+(cu\w+)\s*\(([^;{]*)\)\s*;")?;
    let enums = enums(text)?;
    Ok(declaration.captures_iter(text).map(|c| (c[1].to_owned(), parameters(&c[2], &enums))).collect())
}

/// Names of C enums: passed and returned as 32 bits, never as a Rust enum (a newer driver may add
/// values).
fn enums(text: &str) -> Result<BTreeSet<String>> {
    let definition = Regex::new(r"typedef enum\s*\w*\s*\{[^}]*\}\s*(\w+)\s*;")?;
    Ok(definition.captures_iter(text).map(|c| c[1].to_owned()).collect())
}

fn parameters(c: &str, enums: &BTreeSet<String>) -> String {
    if matches!(c.trim(), "void" | "") {
        return "()".to_owned();
    }
    c.split(',').enumerate().map(|(i, p)| parameter(i, p.trim(), enums)).collect::<Vec<_>>().join(", ")
}

/// `const CUmemLocation *loc` → `loc: *const CUmemLocation`.
fn parameter(position: usize, c: &str, enums: &BTreeSet<String>) -> String {
    let spaced = c.replace('*', " * ").replace("[]", " ").replace("struct ", "");
    let pointers = spaced.matches('*').count() + usize::from(c.contains("[]"));
    let constant = spaced.trim_start().starts_with("const ");
    let words: Vec<_> = spaced.split_whitespace().filter(|w| !matches!(*w, "*" | "const")).collect();
    let named = words.len() > 1 && !PRIMITIVE.contains(words.last().expect("not empty"));
    let (name, words) = if named { words.split_last().expect("not empty") } else { (&"", &words[..]) };
    let name = if named { escape(name) } else { format!("argument{position}") };
    format!("{name}: {}", rust_type(&words.join(" "), pointers, constant, enums))
}

const PRIMITIVE: &[&str] = &["int", "unsigned", "char", "long", "float", "void", "size_t"];

fn escape(name: &str) -> String {
    if matches!(name, "type" | "mod" | "ref" | "fn" | "in") { format!("{name}_") } else { name.to_owned() }
}

fn rust_type(c: &str, pointers: usize, constant: bool, enums: &BTreeSet<String>) -> String {
    let mut result = scalar(c, enums);
    for level in 0..pointers {
        let mutability = if level == 0 && constant { "const" } else { "mut" };
        result = format!("*{mutability} {result}");
    }
    // A type without a Rust name stands by value only if it is itself a pointer: rare handles and
    // callbacks.
    if result == "c_void" { "*mut c_void".into() } else { result }
}

fn scalar(c: &str, enums: &BTreeSet<String>) -> String {
    let current = if LEGACY.contains(&c) { c } else { c.trim_end_matches("_v1").trim_end_matches("_v2") };
    match current {
        "int" | "EGLint" => "c_int",
        "unsigned int" | "unsigned" | "GLenum" | "GLuint" | "cuuint32_t" => "c_uint",
        "VdpDevice" | "VdpVideoSurface" | "VdpOutputSurface" => "c_uint",
        "unsigned short" => "u16",
        "unsigned char" => "u8",
        "char" => "c_char",
        "float" => "f32",
        "size_t" => "usize",
        "unsigned long long" | "cuuint64_t" | "long long" | "CUmemGenericAllocationHandle" => "u64",
        "CUtexObject" | "CUsurfObject" | "CUgraphConditionalHandle" | "CUgraphDeviceNode" => "u64",
        "CUdeviceptr_v1" => "c_uint",
        name @ ("CUdevice" | "CUdeviceptr" | "CUresult") => name,
        known if HANDLES.contains(&known) || KNOWN.contains(&known) => known,
        name if enums.contains(name) || enums.contains(c) => "c_uint",
        _ => "c_void",
    }
    .to_owned()
}

/// Types of the 32-bit era, laid out unlike their successors.
const LEGACY: &[&str] = &[
    "CUdeviceptr_v1",
    "CUDA_ARRAY_DESCRIPTOR_v1",
    "CUDA_ARRAY3D_DESCRIPTOR_v1",
    "CUDA_KERNEL_NODE_PARAMS_v1",
    "CUDA_MEMCPY2D_v1",
    "CUDA_MEMCPY3D_v1",
];
