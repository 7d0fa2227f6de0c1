//! Hazard (source drift): a C or C++ program does not compile or link with the shipped headers, or
//! they lack a function of the library, or have one that it lacks.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use hazards::places::{built, workspace};
use hazards::{Host, Scratch, elf};

/// Every header, the order of a program's own.
const HEADERS: [&str; 10] = [
    "embedding",
    "env_func_ptrs",
    "global_reference",
    "graph_op",
    "tensor_description",
    "wholegraph_op",
    "wholememory",
    "wholememory_op",
    "wholememory_tensor",
    "wmshim_process",
];

/// Words that a declaration of a header begins with: types of results.
const RESULTS: [&str; 8] =
    ["wholememory_", "void", "bool", "int", "size_t", "const char", "struct cudaDeviceProp", "int64_t"];

fn include() -> std::path::PathBuf {
    workspace("shim/wholegraph/include")
}

/// The functions that the headers declare: the word before the parenthesis of a line that begins
/// with a type.
fn declared() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for header in HEADERS {
        let path = include().join(format!("wholememory/{header}.h"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let lines = text.lines().filter(|line| RESULTS.iter().any(|result| line.starts_with(result)));
        let before = lines.filter_map(|line| Some(line.split_once('(')?.0));
        names.extend(before.filter_map(|text| Some(text.rsplit([' ', '*']).next()?.to_owned())));
    }
    names
}

fn exported() -> BTreeSet<String> {
    let data = fs::read(built("libwholegraph.so")).expect("the library");
    elf::exports(&data).into_keys().collect()
}

/// A program that includes all headers, and counts the functions that it has addresses of.
fn program(names: &BTreeSet<String>) -> String {
    let includes = HEADERS.map(|header| format!("#include <wholememory/{header}.h>\n")).concat();
    let each: Vec<_> = names.iter().map(|name| format!("    (function){name},\n")).collect();
    format!(
        "{includes}#include <stdio.h>\ntypedef void (*function)(void);\nstatic function const all[] = {{\n{}}};\n\
         int main(void) {{\n    unsigned i, count = 0;\n    for (i = 0; i < sizeof all / sizeof *all; i++) count += all[i] != 0;\n    \
         printf(\"%u\\n\", count);\n    return 0;\n}}\n",
        each.concat()
    )
}

fn compile(compiler: &str, flags: &[&str], source: &Path, program: &Path) {
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(include()).args(flags);
    command.arg(source).arg("-o").arg(program).arg(built("libwholegraph.so"));
    let output = command.output().unwrap_or_else(|_| panic!("{compiler} is needed"));
    assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn all_functions_are_declared_and_exported() {
    assert_eq!(declared(), exported(), "left: the headers, right: the library");
}

#[test]
fn programs_in_c_and_cpp_link_with_all_functions() {
    let (scratch, names) = (Scratch::new(), declared());
    for (compiler, standard, name) in
        [("gcc", "-std=c99", "all.c"), ("gcc", "-std=gnu17", "new.c"), ("g++", "-std=c++11", "all.cpp")]
    {
        let (source, linked) =
            (scratch.file(name, program(&names)), scratch.path().join(format!("{name}.out")));
        let flags: &[&str] = if compiler == "gcc" { &[standard, "-pedantic"] } else { &[standard] };
        compile(compiler, flags, &source, &linked);
        let outcome = Host::bare(&linked)
            .env("LD_LIBRARY_PATH", built("libwholegraph.so").parent().expect("a folder"))
            .run();
        assert_eq!(outcome.expect_success(), names.len().to_string(), "{name}");
    }
}

#[test]
fn each_header_stands_alone() {
    let scratch = Scratch::new();
    for header in HEADERS {
        let text = format!(
            "#include <wholememory/{header}.h>\n#include <wholememory/{header}.h>\nint main(void) {{ return 0; }}\n"
        );
        let source = scratch.file(&format!("{header}.c"), text);
        compile("gcc", &["-std=c99", "-pedantic"], &source, &scratch.path().join(header));
    }
}

#[test]
fn cpp_has_defaults_and_c_has_none() {
    let scratch = Scratch::new();
    let body =
        "int main() { return wholememory_gather(0, 0, 0, 0, 0) == WHOLEMEMORY_INVALID_INPUT ? 0 : 1; }\n";
    let source = scratch.file("short.cpp", format!("#include <wholememory/wholememory_op.h>\n{body}"));
    compile("g++", &["-std=c++11"], &source, &scratch.path().join("short"));
}

/// The three ways to an element, as `wholememory_get_global_reference` gives them.
const REFERENCES: &str = r#"
#define __device__
#define __forceinline__ inline
#include <cstdio>
#include <initializer_list>
#include <wholememory/device_reference.cuh>

int main() {
  int all[] = {0, 1, 2, 3, 4, 5, 6, 7};
  void* parts[] = {all, all + 3, all + 3, all + 6};
  size_t alike[] = {0, 12, 24, 32, 32}, uneven[] = {0, 12, 12, 24, 32};
  void* thirds[] = {all, all + 3, all + 6, all + 8};
  wholememory_gref_t one = {all, alike, 4, 0, true}, same = {thirds, alike, 4, 12, true}, other = {parts, uneven, 4, 8, false};
  for (const wholememory_gref_t& gref : {one, same, other}) {
    wholememory::device_reference<int> table(gref);
    for (int i = 0; i < 8; i++) if (table[i] != i) return std::printf("%d is %d\n", i, table[i]), 1;
  }
  std::puts("24 elements");
}
"#;

#[test]
fn kernels_find_each_element() {
    let scratch = Scratch::new();
    let (source, linked) = (scratch.file("references.cpp", REFERENCES), scratch.path().join("references"));
    compile("g++", &["-std=c++11"], &source, &linked);
    let outcome = Host::bare(&linked)
        .env("LD_LIBRARY_PATH", built("libwholegraph.so").parent().expect("a folder"))
        .run();
    assert_eq!(outcome.expect_success(), "24 elements");
}
