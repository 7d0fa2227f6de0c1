//! Hazard (wrong report): the tool says of a kernel what its code does not say, or a hostile file
//! brings it down.

mod support;

use serde_json::Value;
use support::{Scratch, stderr, stdout, wmctl};

const TEXT: &str = ".version 8.2\n.target sm_80\n.address_size 64\n
.visible .entry _Z4copyPKfPf(.param .u64 from, .param .u64 to) {
    ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [to];
    ld.global.f32 %f1, [%rd1]; st.global.f32 [%rd2], %f1; ret; }
.visible .entry list(.param .u64 list, .param .u64 value) {
    ld.param.u64 %rd1, [list]; ld.param.u64 %rd2, [value];
    ld.global.u64 %rd3, [%rd1]; st.u64 [%rd3], %rd2; ret; }
.visible .entry other(.param .u64 to) { frobnicate; ret; }\n";

#[test]
fn a_text_is_shown_by_its_kernels() {
    let scratch = Scratch::new("code");
    let file = scratch.path().join("kernels.ptx");
    std::fs::write(&file, TEXT).expect("written");
    let ask = |options: &[&str]| {
        let output = wmctl(&scratch).arg("code").arg(&file).args(options).output().expect("ran");
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let text = ask(&["--kernels"]);
    assert!(text.contains("PTX   copy(float const*, float*)  8\n"), "{text}");
    assert!(text.contains("PTX   list                        loaded"), "{text}");
    assert!(text.contains("unknown: PTX that is not understood at 11"), "{text}");
    assert!(!ask(&[]).contains("copy"), "no kernels without the option");
    let json: Value = serde_json::from_str(&ask(&["--json", "--kernels"])).expect("JSON");
    let file = &json["files"][0];
    let counts = &file["architectures"][0];
    assert_eq!(json["schema"], "wmctl-code/1");
    assert_eq!(
        ["kernels", "by_code", "by_values", "by_loaded_pointers", "unknown"].map(|key| counts[key].as_u64()),
        [3, 1, 0, 1, 1].map(Some)
    );
    assert_eq!(
        file["kernels"][0]["stores"],
        serde_json::json!([{ "bases": [8], "offsets": [], "loaded": false, "variable": false }])
    );
    assert_eq!(file["kernels"][1]["escapes"], serde_json::json!([8]));
}

#[test]
fn a_file_without_kernels_is_said() {
    let scratch = Scratch::new("none");
    for (name, content) in [
        ("empty", &b""[..]),
        ("noise", &[0xff, 0, 1, 2]),
        ("elf", b"\x7fELF"),
        ("cut", &[0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 255]),
    ] {
        let file = scratch.path().join(name);
        std::fs::write(&file, content).expect("written");
        let output = wmctl(&scratch).arg("code").arg(&file).output().expect("ran");
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stdout(&output).contains("no kernels"), "{name}: {}", stdout(&output));
    }
    let output = wmctl(&scratch).args(["code", "absent.so"]).output().expect("ran");
    assert!(!output.status.success() && stderr(&output).contains("absent.so"), "{}", stderr(&output));
}
