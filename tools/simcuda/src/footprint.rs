//! The bytes that the kernels of `wm-kernels` read and write, for [`crate::races`].
//!
//! One row a kernel, by name. Atomic counters that many threads and kernels share are left out:
//! such kernels need no order among each other. Reads through indices and textures are left out
//! too, because the parameters do not show them.

use crate::races::{Access, Use};

/// The number of used bytes, as a product of parameters, which are named by their numbers.
#[derive(Debug, Clone, Copy)]
enum Extent {
    /// A parameter times this many bytes.
    Times(usize, u64),
    /// The product of two parameters, times this many bytes.
    Product(usize, usize, u64),
}

use Extent::{Product, Times};
use Use::{Read, Write};

/// The parameter that is an address, the kind of access, and the extent.
type Row = (usize, Use, Extent);

const KERNELS: [(&str, &[Row]); 12] = [
    ("wm_own_block", &[(0, Write, Times(1, 1))]),
    ("wm_check_block", &[(0, Read, Times(1, 1))]),
    ("wm_stamp_u64", &[(0, Write, Times(1, 8))]),
    ("wm_check_stamp_u64", &[(0, Read, Times(1, 8))]),
    ("wm_fill_u32", &[(0, Write, Times(1, 4))]),
    ("wm_fill_pattern_u64", &[(0, Write, Times(1, 8))]),
    ("wm_verify_pattern_u64", &[(0, Read, Times(1, 8))]),
    ("wm_copy_u32", &[(0, Write, Times(2, 4)), (1, Read, Times(2, 4))]),
    ("wm_saxpy_f32", &[(2, Read, Times(0, 4)), (3, Write, Times(0, 4))]),
    ("wm_reduce_sum_f32", &[(0, Read, Times(1, 4))]),
    ("wm_scan_tiles_u32", &[(0, Write, Times(2, 4)), (1, Read, Times(2, 4))]),
    ("wm_gather_rows_f32", &[(0, Write, Product(3, 4, 4)), (2, Read, Times(3, 8))]),
];

/// The known accesses of a launch. `parameter` reads one as a number.
pub(crate) fn of(kernel: &str, parameter: impl Fn(usize) -> u64) -> Vec<Access> {
    let rows = KERNELS.iter().find(|(name, _)| *name == kernel).map_or(&[][..], |(_, rows)| rows);
    let access = |(address, what, extent): &Row| {
        let (start, what) = (parameter(*address), *what);
        let bytes = match *extent {
            Times(count, unit) => parameter(count).saturating_mul(unit),
            Product(one, other, unit) => parameter(one).saturating_mul(parameter(other)).saturating_mul(unit),
        };
        Access { range: start..start.saturating_add(bytes), what }
    };
    rows.iter().map(access).filter(|access| !access.range.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    //! Hazard: a row that belongs to no kernel, or that reads a parameter that does not exist.
    use super::*;

    #[test]
    fn every_row_is_a_kernels() {
        for (name, rows) in KERNELS {
            let kernel = wm_kernels::cpu::find(name).unwrap_or_else(|| panic!("{name}: no such kernel"));
            for (address, _, extent) in rows {
                let counts = match *extent {
                    Times(count, _) => vec![count],
                    Product(one, other, _) => vec![one, other],
                };
                assert_eq!(kernel.parameters[*address], 8, "{name}");
                assert!(counts.iter().all(|count| *count < kernel.parameters.len()), "{name}");
            }
        }
    }

    #[test]
    fn a_launch_is_as_long_as_its_parameters_say() {
        let parameters = [4096, 8192, 10];
        let accesses = of("wm_copy_u32", |index| parameters[index]);
        assert_eq!(accesses, [Access::write(4096..4136), Access::read(8192..8232)]);
        assert_eq!(of("wm_spin", |index| parameters[index]), []);
    }
}
