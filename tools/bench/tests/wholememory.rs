//! Hazard (vacuous test): `bench wholememory` accepts wrong rows. It runs on the simulated driver,
//! with this build's library and with faulty ones.
//!
//!
//! Hazard (error handling): a rank that aborts or prints text that is no answer ends the whole run.
//! Hazard (error handling): an error without its remedy.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hazards::{Scratch, places};
use serde_json::Value;
use support::{answer, stderr};

fn bench(scratch: &Scratch, arguments: &[&str]) -> Output {
    let mut command = support::bench(scratch);
    command.env("SIMCUDA_DEVICES", "2").args([
        "wholememory",
        "--rows",
        "64",
        "--gather-mib",
        "0.03",
        "--json",
    ]);
    command.args(["--table-gib", "0.0001", "--host-gib", "0.0001", "--seconds", "0.0001", "--repeat", "1"]);
    command.args(arguments).output().expect("ran")
}

/// Rows of a run that succeeds.
fn rows(output: &Output) -> Vec<Value> {
    answer(output)["rows"].as_array().expect("rows").clone()
}

fn library() -> PathBuf {
    places::built("libwholegraph.so")
}

/// A library that has all functions and in which only these do anything. It talks.
fn stub(scratch: &Scratch, name: &str, bodies: &[(&str, &str)]) -> PathBuf {
    let declared = include_str!("../src/wholememory/api.rs");
    let declared =
        declared.split_once("\nfunctions! {").and_then(|(_, rest)| rest.split_once("\n}")).expect("a list");
    let names = declared.0.lines().filter_map(|line| Some(line.trim().split_once('(')?.0));
    let body =
        |name: &str| bodies.iter().find(|(other, _)| *other == name).map_or("return 0;", |(_, body)| body);
    let functions: String = names.map(|name| format!("long {name}(void) {{ {} }}\n", body(name))).collect();
    let (source, library) = (scratch.path().join("stub.c"), scratch.path().join(name));
    let headers = "#include <stdio.h>\n#include <stdlib.h>\n";
    fs::write(&source, format!("{headers}{functions}")).expect("written");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(compiled.expect("a C compiler").success());
    library
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

#[test]
fn all_parts_have_rates() {
    let scratch = Scratch::new();
    let rows = rows(&bench(&scratch, &["--library", text(&library())]));
    // Three and two types of tensors, gather and scatter; one cached gather; two optimizers on two
    // types.
    assert_eq!(rows.len(), 15);
    for row in &rows {
        assert!(row["ours"].as_f64().is_some_and(|rate| rate > 0.0), "{row}");
        assert_eq!(row["kernel"].is_f64(), row["form"] == "tensor", "{row}");
        assert!(row.get("beside").is_none(), "{row}");
    }
}

#[test]
fn odd_rows_repeated_numbers_and_conversions_have_rates() {
    let scratch = Scratch::new();
    let shapes =
        ["--rows", "100", "--numbers", "uniform,zipf,sorted,one", "--types", "float,half:float,int8:int"];
    let library = library();
    let output = bench(&scratch, &[&["--library", text(&library), "--only", "device"], &shapes[..]].concat());
    let mut rows = rows(&output);
    // On three types of tensors, gather and scatter; of such rows the plain kernels move none.
    rows.retain(|row| row["row_bytes"] == 100);
    assert_eq!(rows.len(), 3 * 2 * 4 * 3);
    for row in &rows {
        assert!(row["ours"].as_f64().is_some_and(|rate| rate > 0.0), "{row}");
        assert!(row["kernel"].is_null(), "{row}");
    }
}

#[test]
fn calls_of_few_rows_have_rates() {
    let scratch = Scratch::new();
    let rows = rows(&bench(&scratch, &["--library", text(&library()), "--only", "calls"]));
    // 1, 10 and 100 rows of 64 bytes are no more than a rank gathers.
    assert_eq!(rows.len(), 3 * 2 * 3);
    assert!(rows.iter().all(|row| row["ours"].as_f64().is_some_and(|rate| rate > 0.0)), "{rows:?}");
}

/// The scratch folder has the simulated NCCL, under the name that libraries ask for.
fn bench_over_islands(scratch: &Scratch, arguments: &[&str]) -> Output {
    let linked =
        std::os::unix::fs::symlink(places::built("libsimnccl.so"), scratch.path().join("libnccl.so.2"));
    linked.expect("a link");
    let mut command = support::bench(scratch);
    command.env("SIMCUDA_DEVICES", "4").env("LD_LIBRARY_PATH", scratch.path());
    command.args(["wholememory", "--rows", "128", "--gather-mib", "0.2", "--table-gib", "0.001", "--json"]);
    command.args(["--seconds", "0.0001", "--repeat", "1", "--library", text(&library())]);
    command.args(arguments).output().expect("ran")
}

#[test]
fn rows_over_islands_are_beside_nccl() {
    for shape in [
        &["--ranks", "2", "--islands", "2", "--numbers", "zipf"][..],
        &["--ranks", "4", "--islands", "2", "--wire", "links"],
    ] {
        let output = bench_over_islands(&Scratch::new(), shape);
        let rows = rows(&output);
        let shapes: Vec<_> = rows.iter().map(|row| (&row["memory_type"], &row["count"])).collect();
        // Gather and scatter of each.
        let expected =
            ["distributed", "hierarchy"].map(|kind| [1, 1, 1000, 1000].map(|count| (kind, count))).concat();
        assert_eq!(shapes.len(), expected.len(), "{shapes:?}");
        for (found, expected) in shapes.into_iter().zip(expected) {
            assert!(found.0 == expected.0 && found.1 == expected.1, "{found:?}");
        }
        // Wrong rows, and words of NCCL that do not arrive, leave a word or nothing there.
        for row in &rows {
            assert!(row["ours"].as_f64().is_some_and(|rate| rate > 0.0), "{row} {}", stderr(&output));
            assert!(row["kernel"].as_f64().is_some_and(|rate| rate > 0.0), "{row} {}", stderr(&output));
        }
    }
}

#[test]
fn what_another_library_does_wrong_is_its_own() {
    let scratch = Scratch::new();
    let talks = ("wholememory_init", "puts(\"hello\"); fflush(stdout); return 0;");
    for (name, bodies, outcome) in [
        ("idle.so", vec![talks], "wrong"),
        ("gather.so", vec![("wholememory_gather", "abort();")], "failed"),
        ("refuses.so", vec![("wholememory_create_tensor", "return 9;")], "failed"),
        ("meeting.so", vec![("wholememory_create_communicator", "abort();")], "failed"),
    ] {
        let other = stub(&scratch, name, &bodies);
        let own = library();
        let output = bench(
            &scratch,
            &["--library", text(&own), "--only", "device", "--ranks", "1", "--beside", text(&other)],
        );
        let rows = rows(&output);
        assert_eq!(rows.len(), 6, "{name}");
        for row in &rows {
            assert!(row["ours"].is_f64() && row["beside"] == outcome, "{name}: {row}\n{}", stderr(&output));
        }
        assert!(name != "refuses.so" || stderr(&output).contains("not supported"), "{}", stderr(&output));
    }
}

#[test]
fn a_library_that_is_not_there_is_named_with_the_remedy() {
    let scratch = Scratch::new();
    let own = library();
    let output = bench(&scratch, &["--library", text(&own), "--beside", "/nowhere/libwholegraph.so"]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("/nowhere/libwholegraph.so is not there") && said.contains("--beside"), "{said}");

    let broken = scratch.path().join("broken.so");
    fs::write(&broken, "no library").expect("written");
    let output = bench(&scratch, &["--library", text(&own), "--beside", text(&broken)]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("broken.so does not open") && said.contains("LD_LIBRARY_PATH"), "{said}");

    let output = bench(&scratch, &["--library", text(&own), "--rows", "6"]);
    assert!(stderr(&output).contains("multiples of 4"), "{}", stderr(&output));
}
