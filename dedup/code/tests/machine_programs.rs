//! Hazard (wrong result): the compiler carries a pointer to a store in a way that the analysis of
//! machine code does not follow, and the verdict does not name where it came from.
//!
//! Kernels are drawn ([`drawn_kernels`]) with what each register may hold. The assembler compiles
//! them for each architecture; each pointer that a store may go through must be in the verdict.
//!
//! Needs `TEST_PTXAS`, the path of the assembler. `TEST_PROGRAMS` says how many
//! kernels are drawn. Without the assembler the test skips itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use drawn_kernels::{ARRAY, DrawnFor, DrawnKernel, HEADER, Origin, TABLE, draw};
use wm_code::flow::judge;
use wm_code::image::Cubin;
use wm_code::verdict::{CodeVerdict, Effects};

#[test]
fn each_pointer_of_a_store_is_in_the_verdict() {
    let Some(assembler) = std::env::var_os("TEST_PTXAS").map(PathBuf::from) else {
        return hazards::skip("needs ptxas");
    };
    let programs = std::env::var("TEST_PROGRAMS").ok().and_then(|text| text.parse().ok());
    let folder = std::env::temp_dir().join(format!("wm-code-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (mut decided, mut all) = (0, 0);
    for seed in 0..programs.unwrap_or(40) {
        let drawn = draw(seed, DrawnFor::Reading);
        for sm in [80, 90, 100, 120] {
            let cubin = assemble(&assembler, &folder, &drawn.text, sm);
            let cubin = Cubin::parse(&cubin).unwrap();
            let kernel = cubin.kernels().next().unwrap().unwrap();
            all += 1;
            if let CodeVerdict::Decided(effects) = judge(&kernel) {
                decided += 1;
                check(&drawn, &effects, seed, sm);
            }
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    eprintln!("{decided} of {all} decided");
    assert!(decided * 2 > all, "{decided} of {all} decided");
}

fn assemble(assembler: &Path, folder: &Path, text: &str, sm: u32) -> Vec<u8> {
    let (from, to) = (folder.join("drawn.ptx"), folder.join("drawn.cubin"));
    std::fs::write(&from, format!("{HEADER}{text}")).unwrap();
    let mut command = Command::new(assembler);
    command.arg(format!("-arch=sm_{sm}")).arg("-o").arg(&to).arg(&from);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(to).unwrap()
}

/// What the verdict says must contain what the kernel may do.
fn check(drawn: &DrawnKernel, effects: &Effects, seed: u64, sm: u32) {
    let missed: Vec<_> = drawn
        .stored
        .iter()
        .filter(|origin| match origin {
            Origin::Word(word) => !effects
                .stores
                .iter()
                .any(|source| source.words.contains(*word) || source.offsets.contains(*word)),
            Origin::Loaded => !effects.stores.iter().any(|source| source.memory && is_free(source)),
        })
        .collect();
    let text = &drawn.text;
    assert!(missed.is_empty(), "seed {seed}, sm_{sm}: {missed:?} not in {effects:?}\n{text}");
}

/// At a launch with addresses in all pointers, the source says that a loaded pointer may be used.
fn is_free(source: &wm_code::verdict::AddressSource) -> bool {
    let pointer = |word: &u32| *word <= TABLE || *word >= ARRAY;
    let bases = source.words.iter().filter(pointer).count();
    bases != 1 || source.offsets.iter().any(|word| pointer(&word))
}
