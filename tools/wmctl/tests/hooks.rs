//! Hazard (wrong report): `wmctl hooks` lists other hooks than the library has, or misreads a
//! library of another version.

mod support;

use hazards::places;
use serde_json::Value;
use support::{Scratch, marked_library, stderr, stdout, wmctl};

#[test]
fn the_list_is_the_librarys_own() {
    let scratch = Scratch::new("own");
    let library = scratch.path().join("libwmshim.so");
    let rows = r#"[{\"symbol\":\"cuMemAlloc_v2\",\"handler\":\"allocate::mem_alloc\",\"switch\":\"WMSHIM_STITCH\",\"purpose\":\"a|b\"}]"#;
    marked_library(
        &scratch,
        &library,
        &format!("const char *wmshim_hooks_json(void) {{ return \"{rows}\"; }}\n"),
    );
    let ask = |option: Option<&str>| {
        let output =
            wmctl(&scratch).arg("hooks").args(option).env("WMSHIM_LIB", &library).output().expect("ran");
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    assert!(ask(None).contains("cuMemAlloc_v2  allocate::mem_alloc  WMSHIM_STITCH  a|b"), "{}", ask(None));
    assert!(
        ask(Some("--markdown"))
            .ends_with("| `cuMemAlloc_v2` | `allocate::mem_alloc` | `WMSHIM_STITCH` | a\\|b |\n")
    );
    let list: Value = serde_json::from_str(&ask(Some("--json"))).expect("JSON");
    assert_eq!(
        (&list["schema"], &list["hooks"][0]["handler"]),
        (&"wmctl-hooks/1".into(), &"allocate::mem_alloc".into())
    );
}

#[test]
fn the_real_library_has_hooks_for_memory() {
    let scratch = Scratch::new("real");
    places::shim();
    let output = wmctl(&scratch).args(["hooks", "--json"]).output().expect("ran");
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = list["hooks"].as_array().expect("a list");
    for name in ["cuInit", "cuMemAlloc_v2", "cuMemAllocAsync_ptsz", "cuGetProcAddress_v2"] {
        assert!(rows.iter().any(|row| row["symbol"] == name), "{name} has no hook");
    }
}
