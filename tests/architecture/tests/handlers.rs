//! Hazard (source drift): a search for a driver call does not find its hook. Handlers are named
//! after the driver function that they serve.

use std::path::Path;

/// Handlers that serve several functions, under the name of the first.
const SHARED: [(&str, &str); 3] = [
    ("memcpy_2d_unaligned", "memcpy_2d"),
    ("memcpy_3d_peer", "memcpy_3d"),
    ("memcpy_3d_peer_async", "memcpy_3d_async"),
];

const TABLE: &str = "shim/preload/src/hooks/table.rs";

#[test]
fn every_handler_is_named_after_its_call() {
    let table = architecture::text(Path::new(TABLE)).expect(TABLE);
    let rows: Vec<_> = rows(&table).collect();
    assert!(rows.len() > 100, "{} rows are seen", rows.len());
    let wrong: Vec<_> = rows.iter().filter(|(call, handler)| !is_named_after(call, handler)).collect();
    assert!(wrong.is_empty(), "{TABLE}: {wrong:?}");
}

/// Hazard (wrong result): a call begins a capture that the library does not know of, and driver
/// calls of its own go into the graph.
#[test]
fn every_call_that_begins_or_ends_a_capture_has_a_handler() {
    let table = architecture::text(Path::new(TABLE)).expect(TABLE);
    let handled: Vec<_> = rows(&table).map(|(call, _)| call).collect();
    let driver = architecture::text(Path::new("shim/abi/data/driver.tsv")).expect("the driver's functions");
    let names = driver.lines().filter_map(|line| line.split('\t').next());
    let captures =
        names.filter(|name| ["cuStreamBegin", "cuStreamEndCapture"].iter().any(|it| name.starts_with(it)));
    let captures: Vec<_> = captures.collect();
    assert!(captures.len() >= 14, "{captures:?}");
    let missing: Vec<_> = captures.iter().filter(|name| !handled.contains(name)).collect();
    assert!(missing.is_empty(), "{TABLE} has no row for {missing:?}");
}

/// Function and handler of each function that a row with a handler names, the handler without its
/// module and type arguments.
fn rows(table: &str) -> impl Iterator<Item = (&str, &str)> {
    table.split(';').filter_map(row).flatten()
}

/// `// Heading.`, then `name, name => module::handler::<..>, Switch, "purpose"`.
fn row(text: &str) -> Option<impl Iterator<Item = (&str, &str)>> {
    let (names, rest) = text.split_once("=>")?;
    let handler = rest.trim().split(',').next()?;
    let handler = handler.split("::<").next()?.rsplit_once("::")?.1;
    let names = names.lines().flat_map(|line| line.split(',')).map(str::trim);
    Some(names.filter(|name| name.starts_with("cu")).map(move |name| (name, handler)))
}

fn is_named_after(call: &str, handler: &str) -> bool {
    let (name, version) = snake(call);
    let name = SHARED.iter().find(|(call, _)| *call == name).map_or(name, |(_, shared)| (*shared).to_owned());
    handler == name || version.is_some_and(|version| handler == format!("{name}_{version}"))
}

/// `cuMemcpyHtoDAsync_v2_ptsz` as `memcpy_htod_async` and `v2`.
fn snake(call: &str) -> (String, Option<&str>) {
    let call = call.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    let (call, version) = call.split_once('_').map_or((call, None), |(call, version)| (call, Some(version)));
    let call = call.replace("HtoD", "Htod").replace("DtoH", "Dtoh").replace("DtoD", "Dtod");
    let call = call.replace("2D", "_2d").replace("3D", "_3d");
    let mut name = String::new();
    for letter in call.trim_start_matches("cu").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    (name, version)
}

/// The rule must be able to fail.
#[test]
fn a_handler_of_another_name_is_seen() {
    assert!(is_named_after("cuMemcpyHtoDAsync_v2_ptsz", "memcpy_htod_async"));
    assert!(is_named_after("cuMemcpy3DPeerAsync", "memcpy_3d_async"));
    assert!(is_named_after("cuCtxSynchronize_v2", "ctx_synchronize_v2"));
    assert!(!is_named_after("cuMemcpyHtoD_v2", "memcpy_htod_async"));
    assert!(!is_named_after("cuMemFree_v2", "free"));
}
