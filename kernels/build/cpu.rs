//! Compiles the kernels as C++ and the engine that runs them, and links both in.
//!
//! Each `.cu` file is one translation unit: the file itself, then one thunk a kernel.

use std::fmt::Write;
use std::path::Path;

use crate::declarations::KernelDeclaration;
use crate::sources::{self, ImageSources, Unit};
use crate::structures::StructureDeclaration;

/// Parts of the engine, in `cuda/cpu/`.
const ENGINE: [&str; 3] = ["engine.cpp", "fault.cpp", "fiber.cpp"];

/// No C++ library: the result must load where only glibc is. Always optimised: the tests fill
/// gigabytes, also in debug builds. Contraction off: the same bits on every processor. The
/// fortified `longjmp` refuses to change stacks.
const FLAGS: [&str; 8] = [
    "-std=c++17",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-U_FORTIFY_SOURCE",
    "-Wno-unknown-pragmas",
];

pub(crate) fn build(root: &Path, out: &Path, images: &[ImageSources]) -> Result<(), String> {
    let mut compiler = cc::Build::new();
    compiler.cpp(true).cpp_link_stdlib(None).opt_level(2).warnings(true).extra_warnings(true);
    compiler.include(root.join("cuda")).include(root.join("cuda/cpu"));
    for flag in FLAGS {
        compiler.flag(flag);
    }
    compiler.files(ENGINE.map(|file| root.join("cuda/cpu").join(file)));
    for (image, unit) in images.iter().flat_map(|image| image.units.iter().map(move |unit| (image, unit))) {
        let path = out.join(unit.path.replace('/', "_").replace(".cu", ".cpp"));
        sources::write(&path, &translation_unit(image, unit))?;
        compiler.file(path);
    }
    compiler
        .try_compile("wm_kernels_cpu")
        .map_err(|error| format!("cannot compile the kernels for the CPU: {error}"))?;
    println!("cargo:rustc-link-lib=m");
    Ok(())
}

fn translation_unit(image: &ImageSources, unit: &Unit) -> String {
    let mut text = format!("#include \"{}\"\n#include \"call.hpp\"\n\n", unit.path);
    image.structures.0[unit.structures.clone()].iter().for_each(|structure| text += &layout_check(structure));
    unit.kernels.iter().for_each(|kernel| text += &thunk(kernel));
    text
}

fn layout_check(structure: &StructureDeclaration) -> String {
    let name = &structure.name;
    let mut conditions = vec![format!("sizeof(wm::{name}) == {}", structure.layout.size)];
    for field in &structure.fields {
        conditions.push(format!("offsetof(wm::{name}, {}) == {}", field.value.name, field.offset));
    }
    format!("static_assert({}, \"parsed layout of {name}\");\n", conditions.join(" && "))
}

fn thunk(kernel: &KernelDeclaration) -> String {
    let name = &kernel.name;
    let sizes = kernel.parameters.iter().map(|p| p.layout.size.to_string()).collect::<Vec<_>>().join(", ");
    let mut text = String::new();
    let _ =
        writeln!(text, "static_assert(wm_cpu::has_sizes({name}, {{{sizes}}}), \"parsed sizes of {name}\");");
    let _ = writeln!(
        text,
        "extern \"C\" void wm_cpu_thunk_{name}(const void* const* arguments) {{ wm_cpu::call({name}, arguments); }}\n"
    );
    text
}
