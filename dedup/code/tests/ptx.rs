//! Hazard (wrong result): a store of a PTX text goes through a parameter that its verdict does not
//! name.

use std::collections::BTreeSet;

use wm_code::ptx::judge;
use wm_code::verdict::{AddressSource, CodeVerdict, Effects, Why, WordSet};

/// The verdict on a kernel with four 64-bit parameters, p0 to p3, and this body.
fn verdict(body: &str) -> CodeVerdict {
    verdict_with("", body)
}

fn verdict_with(module: &str, body: &str) -> CodeVerdict {
    let parameters = (0..4).map(|number| format!(".param .u64 p{number}")).collect::<Vec<_>>().join(", ");
    let loads = (0..4).map(|number| format!("ld.param.u64 %rd{number}, [p{number}];\n")).collect::<String>();
    let text = format!(
        ".version 8.2\n.target sm_80\n.address_size 64\n{module}\n.visible .entry k({parameters})\n{{\n.reg .b64 %rd<99>;\n{loads}mov.u32 %r1, %tid.x;\n{body}\nret;\n}}\n"
    );
    let mut verdicts = judge(&text).expect("PTX");
    assert_eq!(verdicts.len(), 1, "{text}");
    verdicts.remove(0).1
}

/// The sources of the stores: words, offsets behind a minus, `m` for memory, `g` for variables.
fn stores(verdict: &CodeVerdict) -> BTreeSet<String> {
    let CodeVerdict::Decided(effects) = verdict else { panic!("{verdict:?}") };
    effects.stores.iter().map(shown).collect()
}

fn shown(source: &AddressSource) -> String {
    let of = |words: &WordSet| words.iter().map(|word| word.to_string()).collect::<String>();
    let offsets = if source.offsets.is_empty() { String::new() } else { format!("-{}", of(&source.offsets)) };
    of(&source.words)
        + &offsets
        + if source.memory { "m" } else { "" }
        + if source.globals { "g" } else { "" }
}

fn check(body: &str, expected: &[&str]) {
    let expected: BTreeSet<_> = expected.iter().map(|source| (*source).to_owned()).collect();
    assert_eq!(stores(&verdict(body)), expected, "{body}");
}

#[test]
fn a_pointer_is_followed_through_all_that_carries_one() {
    check("cvta.to.global.u64 %rd5, %rd1; st.global.u32 [%rd5+8], 1;", &["1"]);
    check("mov.b64 {%r1, %r2}, %rd1; mov.b64 %rd5, {%r1, %r2}; st.u32 [%rd5], 1;", &["1"]);
    check(
        "mov.b64 {%r1, %r2}, %rd1; shfl.sync.idx.b32 %r3|%p1, %r1, 0, 31, -1; mov.b64 %rd5, {%r3, %r2}; st.u32 [%rd5], 1;",
        &["1"],
    );
    check("selp.b64 %rd5, %rd1, %rd2, %p1; st.u32 [%rd5], 1;", &["1", "2"]);
    check("mov.b64 %rd5, %rd1; @%p1 mov.b64 %rd5, %rd2; st.u32 [%rd5], 1;", &["1", "2"]);
    check("$L: add.s64 %rd1, %rd1, 4; st.global.u32 [%rd1], 1; @%p1 bra $L;", &["1"]);
    check("mad.wide.u32 %rd5, %r1, 4, %rd1; st.global.v2.b32 [%rd5], {%r1, %r2};", &["1"]);
    check(
        ".local .align 8 .b8 a[8]; st.local.u64 [a], %rd1; ld.local.u64 %rd5, [a]; st.u32 [%rd5], 1;",
        &["1"],
    );
    check(
        ".shared .align 8 .b8 a[8]; st.shared.u64 [a], %rd1; ld.shared.u64 %rd5, [a]; st.u32 [%rd5], 1;",
        &["1"],
    );
    let spill = ".local .align 8 .b8 a[8]; mov.u64 %rd6, a; cvta.local.u64 %rd7, %rd6; st.u64 [%rd7], %rd1;";
    check(&format!("{spill} ld.u64 %rd5, [%rd7]; st.u32 [%rd5], 1;"), &["1"]);
}

#[test]
fn atomics_and_reductions_are_stores() {
    check(
        "atom.global.add.u32 %r1, [%rd1], 1; red.global.add.u32 [%rd2], 1; st.volatile.u32 [%rd3], 1;",
        &["1", "2", "3"],
    );
    check("cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 16;", &["1"]);
    check("cp.async.ca.shared.global [%r1], [%rd1], 16; atom.shared.add.u32 %r2, [%r1], 1;", &[]);
}

#[test]
fn a_loaded_pointer_is_not_a_loaded_index() {
    check("ld.global.u64 %rd5, [%rd1]; st.u32 [%rd5], 1;", &["m"]);
    check("ld.global.u32 %r2, [%rd1]; mad.wide.u32 %rd5, %r2, 4, %rd2; st.u32 [%rd5], 1;", &["2m"]);
    check("ld.global.u64 %rd5, [%rd1]; selp.b64 %rd6, %rd5, %rd2, %p1; st.u32 [%rd6], 1;", &["2", "m"]);
    // Of two passed pointers, one of which is taken away, and a loaded one each may be the address.
    check(
        "ld.global.u64 %rd5, [%rd1]; sub.s64 %rd6, %rd2, %rd3; add.s64 %rd7, %rd5, %rd6; st.u32 [%rd7], 1;",
        &["2-3m"],
    );
    check("atom.global.exch.b64 %rd5, [%rd1], %rd2; st.u32 [%rd5], 1;", &["1", "m"]);
    check(
        "ld.shared.u64 %rd5, [%r9]; cp.async.cg.shared.global [%r9], [%rd1], 16; st.u32 [%rd5], 1;",
        &["m"],
    );
    // An address in the code of a program that is made for one launch.
    check("mov.u64 %rd5, 139637976727552; st.global.u32 [%rd5], 1;", &["m"]);
}

/// The bytes of memory that is discarded are lost.
#[test]
fn memory_that_is_discarded_is_stored_to() {
    check("discard.global.L2 [%rd1], 128;", &["1"]);
    check("applypriority.global.L2::evict_normal [%rd1], 128; prefetch.global.L2 [%rd2];", &[]);
}

/// A number that was loaded becomes an address of shared memory, in which a pointer lies.
#[test]
fn an_address_of_shared_memory_is_one_wherever_its_number_comes_from() {
    let keep = "st.shared.u64 [%r1], %rd2; ld.global.u64 %rd5, [%rd1]; cvta.shared.u64 %rd6, %rd5;";
    check(&format!("{keep} ld.u64 %rd7, [%rd6]; st.u32 [%rd7], 1;"), &["2", "m"]);
}

/// Values that leave the kernel are told, also by a detour.
#[test]
fn what_is_stored_escapes() {
    let escapes = |body: &str| match verdict(body) {
        CodeVerdict::Decided(Effects { escapes, .. }) => escapes.iter().collect::<Vec<_>>(),
        undecided => panic!("{undecided:?}"),
    };
    assert_eq!(escapes("st.global.u64 [%rd1], %rd2;"), [2]);
    assert_eq!(escapes("atom.global.exch.b64 %rd9, [%rd1], %rd2;"), [2]);
    assert_eq!(
        escapes("st.shared.u64 [%r1], %rd2; cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 8;"),
        [2]
    );
    assert_eq!(escapes("ld.global.f32 %f1, [%rd2]; st.global.f32 [%rd1], %f1;"), [] as [u32; 0]);
    assert_eq!(escapes("st.local.u64 [%rd8], %rd2;"), [] as [u32; 0]);
}

#[test]
fn functions_of_the_text_are_followed() {
    let callee = ".func (.param .b64 r) f(.param .b64 a, .param .b64 b) { .reg .b64 %rd<9>;
        ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; st.u32 [%rd1], 1; st.param.b64 [r], %rd2; ret; }";
    let call =
        "{ .param .b64 x; st.param.b64 [x], %rd1; .param .b64 y; st.param.b64 [y], %rd2; .param .b64 z;
        call.uni (z), f, (x, y); ld.param.b64 %rd5, [z]; } st.u32 [%rd5], 1;";
    let found = stores(&verdict_with(callee, call));
    assert_eq!(found, ["1", "2"].map(str::to_owned).into());
    let declared = ".extern .func (.param .b64 r) f(.param .b64 a, .param .b64 b);";
    assert!(matches!(verdict_with(declared, call), CodeVerdict::Undecided(Why::Text { .. })));
    let printing = ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);";
    let print =
        "{ .param .b64 x; st.param.b64 [x], %rd1; .param .b64 y; st.param.b64 [y], %rd2; .param .b32 z;
        call.uni (z), vprintf, (x, y); }";
    assert!(stores(&verdict_with(printing, print)).is_empty());
}

#[test]
fn structures_are_read_by_their_bytes() {
    let text = ".visible .entry k(.param .u32 n, .param .align 8 .b8 s[40]) {
        ld.param.u64 %rd1, [s+8]; st.global.u32 [%rd1], 1;
        ld.param.v2.u64 {%rd2, %rd3}, [s+16]; st.global.u32 [%rd3], 1; }
        .visible .entry all(.param .u32 n, .param .align 8 .b8 s[24]) {
        mov.b64 %rd1, s; add.s64 %rd2, %rd1, %rd9; mov.u64 %rd9, 8; ld.param.u64 %rd3, [%rd2]; st.global.u32 [%rd3], 1; }";
    let found: Vec<_> =
        judge(text).expect("PTX").iter().map(|(name, verdict)| (name.clone(), stores(verdict))).collect();
    assert_eq!(found[0], ("k".to_owned(), ["2", "34"].map(str::to_owned).into()));
    assert_eq!(found[1], ("all".to_owned(), ["123"].map(str::to_owned).into()));
}

/// What is not understood is undecided, with its line.
#[test]
fn the_unknown_is_undecided() {
    for unknown in [
        "frobnicate.u32 %r1, %r2;",
        "call (%rd5), %rd6, (%rd1), proto;",
        "sust.b.2d.b32 [%rd1, {%r1, %r2}], {%r3};",
        "multimem.red.global.add.f32 [%rd1], %f1;",
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2}], [%r3];",
        "st.global.u32 [%rd50], 1;",
        "st.u32 [unknown], 1;",
        "mov.u64 %rd5, p1; st.u64 [%rd5], 1;",
        "st.const.u32 [%rd1], 1;",
        "cvta.shared.u64 %rd5, %rd6; mov.u64 %rd6, 8; st.global.u64 [%rd1], %rd5;",
        ".local .align 8 .b8 a[8]; cvta.local.u64 %rd5, %rd6; mov.u64 %rd6, a; atom.exch.b64 %rd7, [%rd1], %rd5;",
        "mov.b64 %rd5, p1; st.global.u64 [%rd1], %rd5;",
    ] {
        let found = verdict(unknown);
        assert!(matches!(found, CodeVerdict::Undecided(Why::Text { line: 13 })), "{unknown}: {found:?}");
    }
}

#[test]
fn other_kernels_of_the_text_are_judged_without_the_unknown_one() {
    let text = ".entry a(.param .u64 p) { frobnicate; }\n.entry b(.param .u64 p) { ld.param.u64 %rd1, [p]; st.u8 [%rd1], 1; }";
    let found = judge(text).expect("PTX");
    assert!(matches!(found[0].1, CodeVerdict::Undecided(Why::Text { line: 1 })));
    assert_eq!(stores(&found[1].1), ["0".to_owned()].into());
}

/// Our own kernels: the declarations say `const` of what is only read.
#[test]
fn our_kernels_store_through_what_is_not_const() {
    let mut decided = 0;
    for image in wm_kernels::IMAGES {
        for (name, verdict) in judge(image.ptx.trim_end_matches('\0')).expect("PTX") {
            let CodeVerdict::Decided(effects) = verdict else { continue };
            decided += 1;
            let declared = image.kernel(&name).expect("its declaration").parameters;
            let mut offset = 0_usize;
            for parameter in declared {
                offset = offset.next_multiple_of(parameter.size.min(8));
                let word = offset as u32 / 8;
                let is_pointer = parameter.c_type.ends_with('*');
                let is_const = parameter.c_type.starts_with("const ");
                let is_stored = effects.stores.iter().any(|source| source.words.iter().eq([word]));
                assert!(!(is_pointer && is_const && is_stored), "{name}: {} is const", parameter.name);
                offset += parameter.size;
            }
        }
    }
    assert_eq!(decided, wm_kernels::IMAGES.iter().map(|image| image.kernels.len()).sum::<usize>());
}
