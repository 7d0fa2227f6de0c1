//! Hazard (corrupt input): an image with sizes, offsets or compressed bytes that lie brings the
//! process down, takes memory without bound, or is read as another one.

mod support;

use proptest::prelude::*;
use proptest::sample::Index;
use support::{Pack, Written, container};
use wm_code::image::{CodeForm, Cubin, ImageError, embedded, entries};

fn written() -> impl Strategy<Value = Written> {
    let pack = prop_oneof![Just(Pack::None), Just(Pack::Lz4), Just(Pack::Zstd)];
    let content = prop::collection::vec(prop_oneof![Just(1_u8), 1..=255_u8], 1..3000);
    (1..=2_u16, 50..130_u32, pack, content).prop_map(|(kind, sm, pack, content)| Written {
        kind,
        sm,
        pack,
        content,
    })
}

fn cubins() -> Vec<&'static [u8]> {
    wm_kernels::IMAGES.iter().flat_map(|image| [image.sm_80, image.sm_90]).collect()
}

/// Reads all that can be read. A panic or a loop is the failure.
fn read(image: &[u8]) {
    for entry in entries(image).flatten() {
        let Ok(content) = entry.open() else { continue };
        if let Ok(cubin) = Cubin::parse(&content) {
            cubin.kernels().flatten().for_each(|kernel| {
                assert!(kernel.entry.end <= kernel.text.len());
                assert!(kernel.functions.iter().all(|other| other.at + other.bytes <= kernel.text.len()));
            });
        }
    }
}

proptest! {
    // The encoder of zstd takes most of the time.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_is_written_is_read(all in prop::collection::vec(prop::collection::vec(written(), 0..4), 1..3)) {
        let image: Vec<u8> = all.iter().flat_map(|entries| container(entries)).collect();
        let found: Vec<_> = entries(&image).map(|entry| entry.expect("an entry")).collect();
        prop_assert_eq!(found.len(), all.concat().len());
        for (entry, written) in found.iter().zip(all.concat()) {
            let is_ptx = entry.kind == CodeForm::Ptx;
            prop_assert_eq!((u16::from(!is_ptx) + 1, entry.sm), (written.kind, written.sm));
            let content = entry.open().expect("its content");
            // Padding stays behind an ELF file that is not packed.
            prop_assert_eq!(&content[..written.content.len()], &written.content[..]);
            prop_assert!(content[written.content.len()..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn damage_is_survived(
        all in prop::collection::vec(written(), 1..4),
        flips in prop::collection::vec((any::<Index>(), 1..=255_u8), 0..8), cut in any::<Index>(),
    ) {
        let mut image = container(&all);
        for (at, flip) in flips { let at = at.index(image.len()); image[at] ^= flip }
        image.truncate(cut.index(image.len() + 1));
        read(&image);
        embedded(&image).for_each(read);
    }

}

proptest! {
    #[test]
    fn damaged_cubins_are_survived(
        which in any::<Index>(), flips in prop::collection::vec((any::<Index>(), any::<u8>(), any::<bool>()), 1..12),
        cut in prop::option::of(any::<Index>()),
    ) {
        let mut cubin = cubins()[which.index(cubins().len())].to_vec();
        let tables = cubin.len().saturating_sub(8192);
        for (at, flip, is_late) in flips {
            // The tables of sections are at the end, the ELF header at the start.
            let at = if is_late { tables + at.index(cubin.len() - tables) } else { at.index(64) };
            cubin[at] ^= flip;
        }
        if let Some(cut) = cut { cubin.truncate(cut.index(cubin.len() + 1)) }
        read(&cubin);
    }

    #[test]
    fn any_bytes_are_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..300), headed in any::<bool>()) {
        let image = if headed { [&container(&[])[..8], &bytes].concat() } else { bytes };
        read(&image);
    }
}

/// A size that lies is refused before memory is taken for it.
#[test]
fn a_size_that_lies_is_refused() {
    for (pack, size) in [Pack::Lz4, Pack::Zstd]
        .into_iter()
        .flat_map(|pack| [7, 9, 1 << 27, u64::MAX].map(|size| (pack, size)))
    {
        let mut image = container(&[Written { kind: 2, sm: 90, pack, content: b"12345678".to_vec() }]);
        image[16 + 56..16 + 64].copy_from_slice(&size.to_le_bytes());
        let entry = entries(&image).next().expect("an entry").expect("a head");
        let expected = if size == u64::MAX { ImageError::Large } else { ImageError::Packed };
        assert_eq!(entry.open(), Err(expected), "{pack:?} {size}");
    }
}

/// The next entry is read after one of a kind that is not known.
#[test]
fn an_unknown_kind_hides_no_other_entry() {
    let entry = |kind| Written { kind, sm: 90, pack: Pack::Zstd, content: vec![7; 99] };
    let image = container(&[entry(0x40), entry(2)]);
    let found: Vec<_> = entries(&image).map(|entry| entry.map(|entry| entry.kind)).collect();
    assert_eq!(found, [Err(ImageError::CodeForm), Ok(CodeForm::Cubin)]);
}

#[test]
fn containers_between_other_bytes_are_found() {
    let one = |sm| container(&[Written { kind: 2, sm, pack: Pack::None, content: vec![1; 40] }]);
    let file = [b"\x7fELF other bytes".to_vec(), one(80), vec![0; 13], one(90), b"more".to_vec()].concat();
    let found: Vec<_> = embedded(&file).flat_map(entries).map(|entry| entry.map(|entry| entry.sm)).collect();
    assert_eq!(found, [Ok(80), Ok(90)]);
}

/// The facts of our own kernels are those of their declarations.
#[test]
fn kernels_have_the_parameters_of_their_declarations() {
    for image in wm_kernels::IMAGES {
        for (cubin, sm) in [(image.sm_80, 80), (image.sm_90, 90)] {
            let cubin = Cubin::parse(cubin).expect("a cubin");
            assert_eq!(cubin.sm(), sm);
            let kernels: Vec<_> = cubin.kernels().map(|kernel| kernel.expect("a kernel")).collect();
            assert_eq!(kernels.len(), image.kernels.len(), "{}", image.name);
            for kernel in kernels {
                let declared = image.kernel(kernel.name).expect("its declaration");
                let sizes: Vec<_> =
                    declared.parameters.iter().map(|parameter| parameter.size as u32).collect();
                let bank = kernel.parameters.expect("parameters");
                assert_eq!(
                    bank.parameters.iter().map(|parameter| parameter.bytes).collect::<Vec<_>>(),
                    sizes
                );
                assert_eq!(bank.begin, if sm == 80 { 0x160 } else { 0x210 });
                assert!(!kernel.entry.is_empty() && kernel.entry.len() % 16 == 0, "{}", kernel.name);
            }
        }
    }
}

/// Compilers end a text with a zero, packed or not.
#[test]
fn a_text_ends_before_its_zero() {
    for pack in [Pack::None, Pack::Lz4, Pack::Zstd] {
        let image = container(&[Written { kind: 1, sm: 90, pack, content: b".version 8.2\n\0".to_vec() }]);
        let entry = entries(&image).next().expect("an entry").expect("a head");
        assert_eq!(&entry.open().expect("its content")[..], b".version 8.2\n", "{pack:?}");
    }
}

/// A cubin, a text and a fat binary of both are the same code.
#[test]
fn each_form_of_an_image_is_told() {
    let image = &wm_kernels::IMAGES[0];
    let kinds = |image: &[u8]| entries(image).map(|entry| entry.map(|entry| entry.kind)).collect::<Vec<_>>();
    assert_eq!(kinds(image.sm_90), [Ok(CodeForm::Cubin)]);
    assert_eq!(kinds(image.ptx.as_bytes()), [Ok(CodeForm::Ptx)]);
    assert_eq!(kinds(b""), [Err(ImageError::Form)]);
    assert_eq!(kinds(b"\x7fELF"), [Err(ImageError::Elf)]);
    let text = entries(image.ptx.as_bytes()).next().expect("an entry").expect("a text");
    assert_eq!(text.open().expect("its content"), image.ptx.trim_end_matches('\0').as_bytes());
}
