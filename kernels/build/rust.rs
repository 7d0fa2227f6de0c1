//! Writes `images.rs`: per image a module with its GPU code, its table of kernels and one argument
//! structure a kernel.

use std::fmt::Write;

use crate::declarations::{KernelDeclaration, ValueDeclaration};
use crate::sources::ImageSources;
use crate::structures::{FieldDeclaration, StructureDeclaration, Structures, ValueLayout};

/// The text of `images.rs`, which `src/lib.rs` includes.
pub(crate) fn images(images: &[ImageSources]) -> String {
    let mut text = String::new();
    for image in images {
        text += &module(image);
    }
    let all = images.iter().map(|image| format!("&{}::IMAGE", image.name)).collect::<Vec<_>>().join(", ");
    text += &format!("/// Every image of this crate.\npub static IMAGES: &[&Image] = &[{all}];\n\n");
    text += &cpu_table(images);
    text
}

fn module(image: &ImageSources) -> String {
    let name = &image.name;
    let kernels: String = image.kernels().map(description).collect();
    let structures: String = image.structures.0.iter().map(structure).collect();
    let arguments: String = image.kernels().enumerate().map(|(at, kernel)| arguments(at, kernel)).collect();
    let file =
        |extension: &str| format!("concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/compiled/{name}.{extension}\")");
    format!(
        "/// The kernels of `cuda/{name}/`: the image, one structure of arguments a kernel, and the\n\
         /// structures that these contain.\n\
         pub mod {name} {{\n    use super::*;\n\n\
         /// The GPU code and the table of kernels.\n\
         pub static IMAGE: Image = Image {{ name: \"{name}\", \
         ptx: concat!(include_str!({ptx}), \"\\0\"), \
         sm_80: include_bytes!({sm_80}), sm_90: include_bytes!({sm_90}), kernels: KERNELS }};\n\n\
         /// Every kernel of this image, in source order.\n\
         pub static KERNELS: &[Kernel] = &[{kernels}];\n\n{structures}{arguments}}}\n\n",
        ptx = file("ptx"),
        sm_80 = file("sm_80.cubin"),
        sm_90 = file("sm_90.cubin"),
    )
}

fn description(kernel: &KernelDeclaration) -> String {
    let parameters: String = kernel
        .parameters
        .iter()
        .map(|p| {
            format!("Parameter {{ name: {:?}, c_type: {:?}, size: {} }}, ", p.name, p.c_type, p.layout.size)
        })
        .collect();
    format!("Kernel {{ name: {:?}, parameters: &[{parameters}] }}, ", kernel.name)
}

fn documented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("/// {line}\n")).collect()
}

/// A structure that kernels take by value. The compiler compares its layout with the parsed one.
fn structure(structure: &StructureDeclaration) -> String {
    let name = &structure.name;
    let fields: String = structure.fields.iter().map(|field| member(&field.value, &field.comment)).collect();
    let offset = |field: &FieldDeclaration| {
        format!(" && std::mem::offset_of!({name}, {}) == {}", field.value.name, field.offset)
    };
    let offsets: String = structure.fields.iter().map(offset).collect();
    documented(&structure.documentation)
        + &format!(
            "#[derive(Clone, Copy, Debug, Default, PartialEq)]\n#[repr(C)]\n\
             pub struct {name} {{\n{fields}}}\n\
             const _: () = assert!(size_of::<{name}>() == {}{offsets});\n\n",
            structure.layout.size
        )
}

/// The arguments of a kernel.
fn arguments(at: usize, kernel: &KernelDeclaration) -> String {
    let (name, text) = (camel_case(&kernel.name), documented(&kernel.documentation));
    let fields: String = kernel.parameters.iter().map(|value| member(value, "")).collect();
    let pointers: String =
        kernel.parameters.iter().map(|p| format!("(&raw const self.{}).cast(), ", p.name)).collect();
    let count = kernel.parameters.len();
    text + &format!(
        "#[derive(Clone, Copy, Debug, PartialEq)]\npub struct {name} {{\n{fields}}}\n\
         impl Arguments for {name} {{\n    const KERNEL: &'static Kernel = &KERNELS[{at}];\n    \
         type Pointers = [*const c_void; {count}];\n    \
         fn pointers(&self) -> Self::Pointers {{\n        [{pointers}]\n    }}\n}}\n\n"
    )
}

fn member(value: &ValueDeclaration, comment: &str) -> String {
    let colon = if comment.is_empty() { "" } else { ": " };
    format!("/// `{}`{colon}{comment}\npub {}: {},\n", value.c_type, value.name, value.rust_type)
}

/// `wm_fill_u32` becomes `FillU32`.
fn camel_case(name: &str) -> String {
    let capitalised = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.trim_start_matches("wm_").split('_').filter(|word| !word.is_empty()).map(capitalised).collect()
}

/// Where a value has 8 bytes for an address or a number. A structure has gaps beside them, whose
/// bytes may be anything.
fn words_of(value: &ValueDeclaration, structures: &Structures) -> Vec<usize> {
    let within = |field: &FieldDeclaration| {
        let offset = field.offset;
        words_of(&field.value, structures).into_iter().map(move |at| offset + at).collect::<Vec<_>>()
    };
    match structures.get(&value.rust_type) {
        Some(structure) => structure.fields.iter().flat_map(within).collect(),
        None if value.layout.size == 8 => vec![0],
        None => Vec::new(),
    }
}

/// The CPU build's registry: each kernel's name, parameter sizes and thunk.
fn cpu_table(images: &[ImageSources]) -> String {
    let (mut thunks, mut rows) = (String::new(), String::new());
    let kernels = images.iter().flat_map(|image| image.kernels().map(move |kernel| (image, kernel)));
    for (image, kernel) in kernels {
        let name = &kernel.name;
        let mut words = String::new();
        for (index, parameter) in kernel.parameters.iter().enumerate() {
            for offset in words_of(parameter, &image.structures) {
                let _ = write!(words, "({index}, {offset}), ");
            }
        }
        let list = |bytes: fn(ValueLayout) -> usize| -> String {
            kernel.parameters.iter().map(|p| format!("{}, ", bytes(p.layout))).collect()
        };
        let (sizes, alignments) = (list(|layout| layout.size), list(|layout| layout.alignment));
        let _ = writeln!(thunks, "fn wm_cpu_thunk_{name}(arguments: *const *const c_void);");
        let _ = writeln!(
            rows,
            "cpu::CpuKernel {{ name: {name:?}, parameters: &[{sizes}], alignments: &[{alignments}], \
             words: &[{words}], thunk: wm_cpu_thunk_{name} }},"
        );
    }
    format!(
        "#[cfg(feature = \"cpu\")]\nunsafe extern \"C\" {{\n{thunks}}}\n\n\
         #[cfg(feature = \"cpu\")]\npub(crate) static CPU_KERNELS: &[cpu::CpuKernel] = &[\n{rows}];\n"
    )
}
