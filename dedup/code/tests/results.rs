//! Hazard (wrong result): a verdict of another image, device, kernel or analysis is believed, or
//! one of two variants of a kernel counts for both.

mod support;

use proptest::prelude::*;
use proptest::sample::Index;
use support::{Pack, Written, container};
use wm_code::results::{Results, Subject};
use wm_code::verdict::{AddressSource, CodeVerdict, Effects, Why};

const SUBJECT: Subject = Subject { image: 7, sm: 90 };

fn text(store: bool) -> Vec<u8> {
    let store = if store { "st.global.u32 [%rd1], 1;" } else { "" };
    let kernel = |name, body| {
        format!(".visible .entry {name}(.param .u64 p) {{ ld.param.u64 %rd1, [p]; {body} ret; }}\n")
    };
    format!(".version 8.2\n.target sm_80\n.address_size 64\n{}{}", kernel("k", store), kernel("other", ""))
        .into()
}

fn entry(kind: u16, sm: u32, content: Vec<u8>) -> Written {
    let pack = if kind == 2 { Pack::Zstd } else { Pack::Lz4 };
    Written { kind, sm, pack, content }
}

fn results(names: &[String]) -> Results {
    let mut results = Results::default();
    for (at, name) in names.iter().enumerate() {
        let source = AddressSource {
            words: [at as u32].into_iter().collect(),
            memory: at % 2 == 0,
            ..AddressSource::default()
        };
        results.add(name, CodeVerdict::Decided(Effects { stores: vec![source], ..Effects::default() }));
    }
    results
}

/// The words that a kernel stores through; `None` without a verdict that says so.
fn stored(results: &Results, name: &str) -> Option<Vec<u32>> {
    match results.verdict(name)? {
        CodeVerdict::Decided(effects) => {
            Some(effects.stores.iter().flat_map(|source| source.words.iter()).collect())
        }
        CodeVerdict::Undecided(_) => None,
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(names in prop::collection::vec("[a-z]{1,9}", 0..9)) {
        let results = results(&names);
        prop_assert_eq!(Results::decode(&results.encode(SUBJECT), SUBJECT), Some(results));
    }

    #[test]
    fn damage_is_not_believed(
        names in prop::collection::vec("[a-z]{1,9}", 1..9), at in any::<Index>(), flip in 1..=255_u8, cut in any::<Option<Index>>(),
    ) {
        let mut bytes = results(&names).encode(SUBJECT);
        match cut {
            Some(cut) => bytes.truncate(cut.index(bytes.len())),
            None => { let at = at.index(bytes.len()); bytes[at] ^= flip }
        }
        prop_assert_eq!(Results::decode(&bytes, SUBJECT), None);
    }
}

#[test]
fn results_are_about_one_image_and_one_device() {
    let bytes = results(&["k".to_owned()]).encode(SUBJECT);
    for other in [Subject { image: 8, ..SUBJECT }, Subject { sm: 100, ..SUBJECT }] {
        assert_eq!(Results::decode(&bytes, other), None);
    }
}

#[test]
fn a_text_is_judged_for_devices_that_may_compile_it() {
    let image = container(&[entry(1, 90, text(true))]);
    assert_eq!(stored(&Results::of_image(&image, 90), "k"), Some(vec![0]));
    assert_eq!(stored(&Results::of_image(&image, 120), "k"), Some(vec![0]));
    assert_eq!(stored(&Results::of_image(&image, 90), "other"), Some(vec![]));
    assert!(Results::of_image(&image, 80).is_empty());
    assert_eq!(stored(&Results::of_image(&text(true), 80), "k"), Some(vec![0]));
}

/// Two texts may both be compiled, so that either of their kernels may run.
#[test]
fn variants_of_a_kernel_are_one_kernel_that_does_both() {
    let image = container(&[entry(1, 80, text(true)), entry(1, 90, text(false))]);
    assert_eq!(stored(&Results::of_image(&image, 90), "k"), Some(vec![0]));
    let mut results = results(&["k".to_owned()]);
    results.add("k", CodeVerdict::Undecided(Why::Bounds));
    assert_eq!(stored(&results, "k"), None);
}

/// A part that is not read may be the one that runs.
#[test]
fn a_part_that_is_not_read_leaves_no_results() {
    let other = [entry(0x40, 90, vec![7; 99]), entry(2, 90, vec![7; 99]), entry(1, 80, b"no PTX".to_vec())];
    for part in other {
        let image = container(&[entry(1, 80, text(true)), part]);
        assert!(Results::of_image(&image, 90).is_empty());
    }
    let elsewhere = container(&[entry(1, 80, text(true)), entry(2, 100, vec![7; 99])]);
    assert_eq!(Results::of_image(&elsewhere, 90).len(), 2);
}

/// Machine code for the very device is what the driver takes.
#[test]
fn a_text_beside_exact_machine_code_is_not_judged() {
    let ours = &wm_kernels::IMAGES[0];
    let image = container(&[entry(2, 90, ours.sm_90.to_vec()), entry(1, 80, text(true))]);
    let exact = Results::of_image(&image, 90);
    assert!(exact.verdict("k").is_none() && exact.len() == ours.kernels.len());
    assert!(ours.kernels.iter().all(|kernel| exact.verdict(kernel.name).is_some()));
    assert_eq!(stored(&Results::of_image(&image, 100), "k"), Some(vec![0]));
}
