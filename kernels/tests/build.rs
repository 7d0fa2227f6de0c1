//! Hazard (source drift): a GPU image that was not built from the sources beside it, or a kernel's
//! declaration that the build script parses wrongly. These are the build script's own modules.

#[allow(dead_code, reason = "the build script uses all of it")]
#[path = "../build/declarations.rs"]
mod declarations;
#[path = "../build/manifest.rs"]
mod manifest;
#[allow(dead_code, reason = "the build script uses all of it")]
#[path = "../build/structures.rs"]
mod structures;

use std::fs;
use std::path::{Path, PathBuf};

use declarations::KernelDeclaration;
use structures::{Structures, ValueLayout};

/// A copy of the files that the manifest covers, removed at the end.
struct Copy(PathBuf);

impl Copy {
    fn new(name: &str) -> Self {
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&root);
        for folder in [
            "cuda",
            "cuda/dedup",
            "cuda/diagnostics",
            "cuda/measure",
            "cuda/moves",
            "cuda/ownership",
            "cuda/wholememory",
            "compiled",
            "tools",
        ] {
            copy_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &root.join(folder));
        }
        Self(root)
    }

    fn append(&self, path: &str, text: &str) {
        let old = fs::read(self.0.join(path)).unwrap_or_default();
        fs::write(self.0.join(path), [&old, text.as_bytes()].concat()).expect("a copy can be written");
    }

    fn complaint(&self) -> String {
        manifest::check(&self.0).expect_err("a stale image must not build")
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a temporary folder");
    for entry in fs::read_dir(from).expect("the crate's folder").flatten() {
        if entry.path().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("a temporary copy");
        }
    }
}

#[test]
fn what_is_checked_in_is_current() {
    assert_eq!(manifest::check(Path::new(env!("CARGO_MANIFEST_DIR"))), Ok(()));
}

#[test]
fn a_change_of_any_input_or_output_is_stale() {
    let inputs =
        ["cuda/device.cuh", "cuda/diagnostics/pattern.cu", "tools/compile.py", "tools/requirements.txt"];
    for (number, path) in inputs.iter().chain(&["compiled/diagnostics.sm_90.cubin"]).enumerate() {
        let copy = Copy::new(&format!("stale-{number}"));
        assert_eq!(manifest::check(&copy.0), Ok(()));
        copy.append(path, "\n");
        let complaint = copy.complaint();
        assert!(complaint.contains(path) && complaint.contains("cargo xtask kernels"), "{complaint}");
    }
}

#[test]
fn a_new_source_a_lost_output_and_a_broken_manifest_are_stale() {
    let copy = Copy::new("stale-set");
    copy.append("cuda/diagnostics/new.cu", "// A kernel to come.\n");
    assert!(copy.complaint().contains("new.cu is in no GPU image"), "{}", copy.complaint());
    fs::remove_file(copy.0.join("compiled/diagnostics.ptx")).expect("the copy has it");
    assert!(copy.complaint().contains("compiled/diagnostics.ptx"), "{}", copy.complaint());
    copy.append("compiled/manifest.tsv", "no tabs\n");
    assert!(copy.complaint().contains("no tabs"), "{}", copy.complaint());
}

/// The kernels of a source file that declares its structures itself.
fn parse(source: &str) -> Result<Vec<KernelDeclaration>, String> {
    let mut structures = Structures::default();
    structures.parse(source)?;
    declarations::parse(source, &structures)
}

#[test]
fn launch_bounds_are_no_part_of_a_name() {
    let source = "/// One.\nextern \"C\" __global__ void __launch_bounds__(256, 3)\n    k(u32 n) {";
    let [kernel] = &parse(source).expect("it is well formed")[..] else { panic!("one kernel is declared") };
    assert_eq!((kernel.name.as_str(), kernel.parameters.len()), ("k", 1));
}

#[test]
fn declarations_are_read_over_several_lines() {
    let source = "// Not documentation.\n\n/// One.\n/// Two.\n\
                  extern \"C\" __global__ void k(const u64* a,\n    f32 *b, i64 c) {";
    let [kernel] = &parse(source).expect("it is well formed")[..] else { panic!("one kernel is declared") };
    assert_eq!(kernel.name, "k");
    assert_eq!(kernel.documentation, ["One.", "Two."]);
    let read: Vec<_> = kernel
        .parameters
        .iter()
        .map(|p| (p.name.as_str(), p.c_type.as_str(), p.rust_type.as_str(), p.layout.size))
        .collect();
    let expected =
        [("a", "const u64*", "CUdeviceptr", 8), ("b", "f32 *", "CUdeviceptr", 8), ("c", "i64", "i64", 8)];
    assert_eq!(read, expected);
}

#[test]
fn what_the_parser_does_not_know_is_an_error_that_names_it() {
    let declare = |list: &str| format!("/// Doc.\nextern \"C\" __global__ void k({list}) {{}}");
    for list in ["unsigned n", "u64", "size_t n", ""] {
        let error = parse(&declare(list)).expect_err(list);
        assert!(error.starts_with("k: parameter"), "{error}");
    }
    let undocumented = parse("extern \"C\" __global__ void k(u32 n) {}");
    assert!(undocumented.expect_err("no documentation").contains("k: write a /// line"));
}

/// A structure that a kernel takes, and one that contains it.
const STRUCTURES: &str = "
/// Rows.
struct Rows {
    u32 width;  // in bytes
    const u64* at;
    u32 count;

    static constexpr u32 MOST = 4;
    template <class Word>
    __device__ __forceinline__ u64 row(u64 i,
                                       Word) const {
        if (i == 0) { return 0; }
        return at[i];
    }
};

// None of a kernel.
struct Inner {
    wm::Table& table;
};

/// Two.
/// Lines.
struct Both {
    f32 rate;
    Rows rows;
    i32 more;
};
";

#[test]
fn fields_are_where_the_compiler_has_them() {
    let mut structures = Structures::default();
    structures.parse(STRUCTURES).expect("it is well formed");
    let found = |name: &str| {
        let structure = structures.get(name).expect("it has a /// line");
        let fields = structure.fields.iter();
        let fields: Vec<_> = fields.map(|f| (f.value.name.as_str(), f.offset, f.comment.as_str())).collect();
        (structure.documentation.join(" "), fields, structure.layout)
    };
    let rows = vec![("width", 0, "in bytes"), ("at", 8, ""), ("count", 16, "")];
    assert_eq!(found("Rows"), ("Rows.".to_owned(), rows, ValueLayout { size: 24, alignment: 8 }));
    let both = vec![("rate", 0, ""), ("rows", 8, ""), ("more", 32, "")];
    assert_eq!(found("Both"), ("Two. Lines.".to_owned(), both, ValueLayout { size: 40, alignment: 8 }));
    assert!(structures.get("Inner").is_none(), "a structure without a /// line is no parameter");
}

#[test]
fn a_kernel_takes_a_structure_by_value() {
    let kernel = "/// Doc.\nextern \"C\" __global__ void k(wm::Both both, const wm::Inner* inner) {";
    let kernels = parse(&format!("{STRUCTURES}\n{kernel}")).expect("it is well formed");
    let read: Vec<_> = kernels[0].parameters.iter().map(|p| (p.rust_type.as_str(), p.layout.size)).collect();
    assert_eq!(read, [("Both", 40), ("CUdeviceptr", 8)]);
    let unknown = parse(&format!("{STRUCTURES}\n{}", kernel.replace("Both", "Inner")));
    assert!(
        unknown.expect_err("no /// line").starts_with("k: parameter `wm::Inner both`: `wm::Inner` is no")
    );
}

#[test]
fn a_structure_that_the_parser_does_not_know_is_an_error_that_names_it() {
    let bodies = [
        "u64 a, b;",
        "const u64* a, *b;",
        "u32 a; u32 b;",
        "u32 a[4];",
        "u32 a = 1;",
        "u32 a : 3;",
        "u16 a;",
        "Later a;",
        "const Later& a;",
        "static constexpr u32 A = 1;",
        "u32 a;\n\n    u32 b;",
        "u32 a;\n\n    __device__ void f() {}\n    u32 b;",
        "u32 a;\n    __device__ void f() {}",
        "",
    ];
    for body in bodies {
        let source = format!(
            "\n/// One.\nstruct One {{\n    {body}\n}};\n\n/// Later.\nstruct Later {{\n    u32 a;\n}};\n"
        );
        let error = Structures::default().parse(&source).expect_err(body);
        assert!(error.starts_with("struct One: "), "{body}: {error}");
    }
    for head in ["struct One : Two {", "struct One;"] {
        let source = format!("\n/// One.\n{head}\n    u32 a;\n}};\n");
        Structures::default().parse(&source).expect_err(head);
    }
    let twice = "\n/// One.\nstruct One {\n    u32 a;\n};\n".repeat(2);
    assert!(Structures::default().parse(&twice).expect_err("two").contains("a name of its own"));
}
