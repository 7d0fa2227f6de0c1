//! Hazard (symbol interposition): `cuGetProcAddress` returns the wrong function, or a function
//! that bypasses the shim.
//!
//! The CUDA runtime finds everything through it, by name, version and flags. An interposer that
//! guesses versions returns functions with another signature; one that misses a name loses that
//! function's calls. `tools/conformance/data/` holds the questions that the runtimes of CUDA 12 and
//! 13 ask when a program starts; `symbol::LOOKUPS` of wm-abi tells which export each question
//! stands for.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::PathBuf;

use hazards::{Host, Scratch, c, driver, places, shim};
use wm_abi::symbol;

/// The bit of the flags for the variant with per-thread default streams.
const PER_THREAD: u64 = 2;

/// One answer of `lookup`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    question: String,
    result: String,
    export: String,
    owner: String,
}

/// Makes the look-ups of a file, bare and under the shim.
fn ask(data: &str, arguments: &[&str]) -> [Vec<Answer>; 2] {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "lookup");
    let bare = Host::bare(&program).env("LD_LIBRARY_PATH", &driver);
    let shimmed = Host::shimmed(&program, &scratch, &driver);
    [bare, shimmed].map(|host| {
        let questions =
            File::open(places::workspace("tools/conformance/data").join(data)).expect("the questions");
        let host = host.args(arguments).stdin(questions).env("HAZARD_SHIM", shim::alone(&scratch));
        host.run().expect_success().lines().map(answer).collect()
    })
}

/// `question…,result,status,export,owner`; result and status are compared as one.
fn answer(line: &str) -> Answer {
    let mut fields = line.rsplitn(5, ',');
    let mut next = || fields.next().unwrap_or_else(|| panic!("five fields: {line}")).to_owned();
    let (owner, export, status, result, question) = (next(), next(), next(), next(), next());
    Answer { question, result: format!("result {result}, status {status}"), export, owner }
}

/// Base name and variant, with versions and exports in ascending order.
type Map<'n> = HashMap<(&'n str, bool), Vec<(i32, &'static str)>>;

fn map() -> Map<'static> {
    let mut map = Map::new();
    for (export, lookup) in symbol::NAMES.iter().zip(&symbol::LOOKUPS) {
        let Some(lookup) = lookup else { continue };
        let versions = map.entry((lookup.name, lookup.is_per_thread)).or_default();
        versions.push((lookup.version, export.to_str().expect("C identifiers are ASCII")));
    }
    map.values_mut().for_each(|versions| versions.sort());
    map
}

/// The export for a look-up, by the table: the newest of its variant that is not too new.
fn expected<'n>(map: &Map<'n>, question: &'n str) -> Option<&'static str> {
    let [name, version, flags] = question.split(',').collect::<Vec<_>>()[..] else { panic!("{question}") };
    let (version, flags): (i32, u64) = (version.parse().expect("number"), flags.parse().expect("number"));
    let newest = |per_thread| {
        let versions = map.get(&(name, per_thread))?;
        versions.iter().rev().find(|(least, _)| *least <= version).map(|(_, export)| *export)
    };
    (flags & PER_THREAD != 0).then(|| newest(true)).flatten().or_else(|| newest(false))
}

/// Every result of a runtime's look-ups is the driver's function, by the shim's own export of it,
/// and the table's.
fn every_answer_is_our_export(data: &str) {
    let [bare, shimmed] = ask(data, &[]);
    let map = map();
    let mut found = 0;
    for (bare, shimmed) in bare.iter().zip(&shimmed) {
        assert_eq!(
            (&shimmed.question, &shimmed.result, &shimmed.export),
            (&bare.question, &bare.result, &bare.export)
        );
        if bare.export == "-" {
            continue;
        }
        found += 1;
        assert_eq!(shimmed.owner, "shim", "{shimmed:?} is past the shim");
        let export = Some(shimmed.export.as_str());
        assert_eq!(export, expected(&map, &shimmed.question), "{}", shimmed.question);
    }
    assert_eq!(shimmed.len(), bare.len());
    assert!(found > bare.len() * 9 / 10, "{found} of {} questions have an answer", bare.len());
}

#[test]
fn what_the_runtime_of_cuda_12_asks() {
    every_answer_is_our_export("cudart12_lookups.csv");
}

#[test]
fn what_the_runtime_of_cuda_13_asks() {
    every_answer_is_our_export("cudart13_lookups.csv");
}

#[test]
fn the_first_version_of_the_function_answers_alike() {
    let [bare, shimmed] = ask("cudart12_lookups.csv", &["v1"]);
    for (bare, shimmed) in bare.iter().zip(&shimmed) {
        assert_eq!((&shimmed.result, &shimmed.export), (&bare.result, &bare.export), "{}", bare.question);
        assert!(shimmed.export == "-" || shimmed.owner == "shim", "{shimmed:?} is past the shim");
    }
}

#[test]
fn odd_arguments_get_the_drivers_own_answers() {
    let [bare, shimmed] = ask("cudart12_lookups.csv", &["odd"]);
    let view = |answers: &[Answer]| -> Vec<_> {
        answers.iter().map(|a| (a.question.clone(), a.result.clone(), a.export.clone())).collect()
    };
    assert_eq!(view(&shimmed), view(&bare));
    assert_eq!(bare.len(), 6, "{bare:?}");
}

#[test]
fn a_look_up_and_the_loader_agree() {
    // A program may compare the two, and two libraries may use one each.
    let [_, shimmed] = ask("cudart13_lookups.csv", &[]);
    let exports: PathBuf = places::shim();
    let data = fs::read(exports).expect("the library");
    let names = hazards::elf::exports(&data);
    for answer in shimmed.iter().filter(|answer| answer.export != "-") {
        assert!(names.contains_key(&answer.export), "{answer:?} is no exported name");
    }
}
