//! Hazard (API conformance): the oldest supported driver does not load an image, or its kernels
//! take other parameters than the tables state. The PTX states both, so that no GPU is needed.

use wm_kernels::{Arguments, IMAGES, Image, diagnostics};

/// The declaration of `kernel`'s entry in the PTX: from its name to the end of its parameters.
fn entry<'a>(image: &'a Image, kernel: &str) -> Option<&'a str> {
    let text = image.ptx;
    let (_, after) = text.split_once(&format!(".entry {kernel}("))?;
    Some(after.split_once(')')?.0)
}

/// Sizes in bytes of an entry's parameters: 8 for `.param .u64 wm_fill_u32_param_0`, 16 for the
/// structure `.param .align 4 .b8 NAME[16]`.
fn sizes(entry: &str) -> Vec<usize> {
    let size = |line: &str| {
        let parameter = line.trim().strip_prefix(".param .")?;
        if let Some((_, structure)) = parameter.split_once(" .b8 ") {
            return structure.split_once('[')?.1.split_once(']')?.0.parse().ok();
        }
        Some(parameter[1..].split(' ').next()?.parse::<usize>().ok()? / 8)
    };
    entry.lines().filter_map(size).collect()
}

#[test]
fn ptx_is_of_the_version_that_driver_535_loads() {
    for image in IMAGES {
        let text = image.ptx;
        assert!(text.contains("\n.version 8.2\n"), "{}", image.name);
        assert!(text.contains("\n.target sm_80\n"), "{}", image.name);
        assert_eq!(
            text.find('\0'),
            Some(text.len() - 1),
            "{}: a zero byte ends it, and no other",
            image.name
        );
    }
}

#[test]
fn every_kernel_is_an_entry_with_the_listed_parameters() {
    for image in IMAGES {
        for kernel in image.kernels {
            let entry =
                entry(image, kernel.name).unwrap_or_else(|| panic!("{} is not in the PTX", kernel.name));
            let listed: Vec<usize> = kernel.parameters.iter().map(|parameter| parameter.size).collect();
            assert_eq!(sizes(entry), listed, "{}", kernel.name);
        }
        let text = image.ptx;
        assert_eq!(text.matches(".entry ").count(), image.kernels.len(), "an entry that no table has");
    }
}

#[test]
fn cubins_are_elf_files_that_name_every_kernel() {
    for image in IMAGES {
        for cubin in [image.sm_80, image.sm_90] {
            assert_eq!(cubin[..4], *b"\x7fELF", "{}", image.name);
            for kernel in image.kernels {
                let section = format!("\0.text.{}\0", kernel.name);
                assert!(
                    cubin.windows(section.len()).any(|part| part == section.as_bytes()),
                    "{}",
                    kernel.name
                );
            }
        }
        assert_ne!(image.sm_80, image.sm_90);
    }
}

#[test]
fn each_gpu_gets_code_it_can_run() {
    let image = &diagnostics::IMAGE;
    assert_eq!(image.code_for(8), image.sm_80);
    assert_eq!(image.code_for(9), image.sm_90);
    assert_eq!(image.code_for(10).last(), Some(&0), "the driver reads PTX up to its zero byte");
}

#[test]
fn typed_arguments_point_at_their_fields_in_order() {
    let arguments = diagnostics::FillU32 { dst: 0x1000, n: 77, value: 5 };
    let pointers = arguments.pointers();
    assert_eq!(diagnostics::FillU32::KERNEL.name, "wm_fill_u32");
    let expected = [
        (&raw const arguments.dst).cast(),
        (&raw const arguments.n).cast(),
        (&raw const arguments.value).cast(),
    ];
    assert_eq!(pointers, expected);
    assert_eq!(diagnostics::IMAGE.kernel("wm_fill_u32"), Some(diagnostics::FillU32::KERNEL));
}
