//! Reductions of numbers, in the order of the ranks: the same bits at every rank.

use std::ffi::c_int;

/// An operation on numbers of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reduction {
    datatype: c_int,
    operator: c_int,
}

const PRODUCT: c_int = 1;
const MAXIMUM: c_int = 2;
const MINIMUM: c_int = 3;
const MEAN: c_int = 4;

/// Folds the same element of each slot. The result's slot is the last one.
macro_rules! fold {
    ($type:ty, $add:expr, $multiply:expr, $operator:expr, $bytes:expr, $size:expr) => {{
        const WIDTH: usize = size_of::<$type>();
        let length = $bytes.len() / ($size + 1);
        let (slots, result) = $bytes.split_at_mut(length * $size);
        for at in (0..length).step_by(WIDTH) {
            let element = |slot: usize| {
                let start = slot * length + at;
                <$type>::from_le_bytes(std::array::from_fn(|i| slots[start + i]))
            };
            let combine = |left: $type, right: $type| match $operator {
                PRODUCT => $multiply(left, right),
                MAXIMUM => left.max(right),
                MINIMUM => left.min(right),
                _ => $add(left, right),
            };
            let folded = (1..$size).map(&element).fold(element(0), combine);
            let folded = if $operator == MEAN { folded / $size as $type } else { folded };
            result[at..at + WIDTH].copy_from_slice(&folded.to_le_bytes());
        }
    }};
}

impl Reduction {
    /// A reduction, if this library has it: integers of 8, 32 and 64 bits, and floats of 32 and 64.
    pub(crate) fn new(datatype: c_int, operator: c_int) -> Option<Self> {
        matches!(datatype, 0..=5 | 7 | 8).then_some(Self { datatype, operator })
    }

    /// A number that differs from those of other reductions.
    pub(crate) fn number(self) -> u32 {
        self.datatype as u32 * 8 + self.operator as u32
    }

    /// Combines the slots of `size` ranks into the slot behind them.
    pub(crate) fn apply(self, bytes: &mut [u8], size: usize) {
        macro_rules! integer {
            ($type:ty) => {
                fold!($type, <$type>::wrapping_add, <$type>::wrapping_mul, self.operator, bytes, size)
            };
        }
        macro_rules! float {
            ($type:ty) => {
                fold!($type, |a: $type, b| a + b, |a: $type, b| a * b, self.operator, bytes, size)
            };
        }
        match self.datatype {
            0 => integer!(i8),
            1 => integer!(u8),
            2 => integer!(i32),
            3 => integer!(u32),
            4 => integer!(i64),
            5 => integer!(u64),
            7 => float!(f32),
            _ => float!(f64),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (API conformance): a reduction combines other numbers than those of its type.
    use super::*;

    fn reduced(operator: c_int, slots: [[i32; 2]; 3]) -> [i32; 2] {
        let mut bytes: Vec<u8> = slots.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
        bytes.extend([0; 8]);
        Reduction::new(2, operator).expect("known").apply(&mut bytes, 3);
        [0, 4].map(|at| i32::from_le_bytes(std::array::from_fn(|i| bytes[24 + at + i])))
    }

    #[test]
    fn each_operator_combines_the_slots_element_by_element() {
        let slots = [[1, -2], [3, 7], [5, -8]];
        let expected = [[9, -3], [15, 112], [5, 7], [1, -8], [3, -1]];
        for (operator, expected) in expected.into_iter().enumerate() {
            assert_eq!(reduced(operator as c_int, slots), expected, "{operator}");
        }
        assert!(Reduction::new(6, 0).is_none(), "16-bit floats are not there");
    }
}
