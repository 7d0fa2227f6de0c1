//! From a launch's arguments to words that may be addresses.
//!
//! A pointer is a parameter of 8 bytes, or lies in a larger one, a structure by value, aligned to
//! 8 bytes. Arguments come as one pointer a parameter (`kernelParams`), or as one buffer (`extra`),
//! which has each parameter at its offset.
//!
//! Invariants: only bytes are read that the driver reads in the same call. A list or a buffer that
//! the driver would refuse is read up to its fault.

use std::ffi::c_void;

use wm_abi::{CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END};

/// Bytes of a pointer.
const WORD: usize = size_of::<u64>();

/// Bytes of a number that counts rows, columns or elements.
const NUMBER: usize = size_of::<u32>();

/// Keys that an `extra` list can have before its end, each of them once.
const KEYS: usize = 2;

/// The facts about a launch's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgumentsRead {
    /// All words of all parameters were read.
    Whole,
    /// They are not as the driver wants them, so it refuses the launch. The words before the fault
    /// were read.
    Refused,
    /// The driver does not tell the kernel's parameters (before CUDA 12.4), or a graph is launched.
    Unknown,
}

/// Eight bytes of a launch's arguments that may be an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaunchWord {
    /// Where it lies among the parameters, bytes.
    pub(crate) offset: u32,
    pub(crate) address: u64,
}

/// Where a parameter lies in a buffer, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ParameterPlace {
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

/// The arguments as a launch function takes them: one of the two, both null for a kernel without
/// parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchArguments {
    pub(crate) parameters: *mut *mut c_void,
    pub(crate) extra: *mut *mut c_void,
}

impl LaunchArguments {
    /// Hands every word of 8 bytes to `each`, with its offset among the parameters in bytes.
    ///
    /// # Safety
    /// They are a launch's arguments: arrays as the driver's functions take them, for a kernel with
    /// these parameters.
    #[inline]
    pub(super) unsafe fn read(
        &self,
        layout: &[ParameterPlace],
        mut each: impl FnMut(u32, u64),
    ) -> ArgumentsRead {
        // SAFETY: the caller guarantees it; the words lie in the parameter.
        let is_whole = unsafe {
            self.visit(layout, |place, parameter| {
                for offset in (0..place.size / WORD).map(|index| index * WORD) {
                    let word = parameter.add(offset).cast::<u64>().read_unaligned();
                    each((place.offset + offset) as u32, word);
                }
            })
        };
        if is_whole { ArgumentsRead::Whole } else { ArgumentsRead::Refused }
    }

    /// Hands every number of 4 bytes to `each`: also the two halves of a word.
    ///
    /// # Safety
    /// As of [`LaunchArguments::read`].
    pub(super) unsafe fn read_numbers(&self, layout: &[ParameterPlace], mut each: impl FnMut(u32)) {
        // SAFETY: the caller guarantees it; the numbers lie in the parameter.
        unsafe {
            self.visit(layout, |place, parameter| {
                for offset in (0..place.size / NUMBER).map(|index| index * NUMBER) {
                    each(parameter.add(offset).cast::<u32>().read_unaligned());
                }
            });
        }
    }

    /// Hands each parameter to `each`, with the place of its bytes. Arguments need not be aligned.
    /// `false`: one is missing.
    #[inline]
    unsafe fn visit(&self, layout: &[ParameterPlace], each: impl FnMut(&ParameterPlace, *const u8)) -> bool {
        // SAFETY: the caller guarantees the form that is not null.
        unsafe {
            match (self.parameters.is_null(), self.extra.is_null()) {
                (false, true) => by_pointers(self.parameters, layout, each),
                (true, false) => buffer(self.extra).is_some_and(|buffer| in_buffer(buffer, layout, each)),
                (true, true) => layout.is_empty(),
                (false, false) => false,
            }
        }
    }
}

/// `false`: an argument is missing.
#[inline]
unsafe fn by_pointers(
    parameters: *mut *mut c_void,
    layout: &[ParameterPlace],
    mut each: impl FnMut(&ParameterPlace, *const u8),
) -> bool {
    for (index, place) in layout.iter().enumerate() {
        // SAFETY: one pointer a parameter.
        let argument = unsafe { parameters.add(index).read() };
        if argument.is_null() {
            return false;
        }
        each(place, argument.cast());
    }
    true
}

/// The program's buffer of arguments.
#[derive(Debug, Clone, Copy)]
struct ArgumentBuffer {
    start: *const u8,
    bytes: usize,
}

/// `false`: the buffer is too short.
unsafe fn in_buffer(
    buffer: ArgumentBuffer,
    layout: &[ParameterPlace],
    mut each: impl FnMut(&ParameterPlace, *const u8),
) -> bool {
    for place in layout {
        if place.offset.checked_add(place.size).is_none_or(|end| end > buffer.bytes) {
            return false;
        }
        // SAFETY: it lies in the buffer.
        each(place, unsafe { buffer.start.add(place.offset) });
    }
    true
}

/// Reads a list of keys and values that ends with [`CU_LAUNCH_PARAM_END`]. `None`: it lacks the
/// buffer or its size.
unsafe fn buffer(extra: *mut *mut c_void) -> Option<ArgumentBuffer> {
    let (mut start, mut size) = (std::ptr::null::<u8>(), std::ptr::null::<usize>());
    for pair in 0..=KEYS {
        // SAFETY: the list goes on until its end, which has not been met.
        let key = unsafe { extra.add(2 * pair).read() } as usize;
        if key == CU_LAUNCH_PARAM_END {
            break;
        }
        // SAFETY: a key but the end has a value behind it.
        let value = unsafe { extra.add(2 * pair + 1).read() };
        match key {
            CU_LAUNCH_PARAM_BUFFER_POINTER => start = value.cast(),
            CU_LAUNCH_PARAM_BUFFER_SIZE => size = value.cast(),
            _ => return None,
        }
    }
    if start.is_null() || size.is_null() {
        return None;
    }
    // SAFETY: this key's value points to the size.
    Some(ArgumentBuffer { start, bytes: unsafe { size.read_unaligned() } })
}

#[cfg(test)]
mod tests {
    //! Hazard (out-of-bounds access): a read beyond the program's arguments, or a pointer in them
    //! that is not seen.
    use std::ptr::null_mut;

    use proptest::prelude::*;

    use super::*;

    /// A kernel's parameters as a compiler lays them out, and their bytes one behind the other.
    #[derive(Debug, Clone)]
    struct Drawn {
        layout: Vec<ParameterPlace>,
        bytes: Vec<u8>,
    }

    fn drawn() -> impl Strategy<Value = Drawn> {
        let size = prop_oneof![Just(1_usize), Just(2), Just(4), Just(8), Just(12), Just(40), 1..200_usize];
        proptest::collection::vec(size, 0..12).prop_flat_map(|sizes| {
            let mut end = 0_usize;
            let layout: Vec<_> = sizes
                .into_iter()
                .map(|size| {
                    let offset = end.next_multiple_of(if size < 8 { size.next_power_of_two() } else { 8 });
                    end = offset + size;
                    ParameterPlace { offset, size }
                })
                .collect();
            let bytes = proptest::collection::vec(any::<u8>(), end);
            bytes.prop_map(move |bytes| Drawn { layout: layout.clone(), bytes })
        })
    }

    /// The same words by the plain definition.
    fn reference(drawn: &Drawn) -> Vec<u64> {
        let mut words = Vec::new();
        for place in &drawn.layout {
            let parameter = &drawn.bytes[place.offset..place.offset + place.size];
            words.extend(parameter.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())));
        }
        words
    }

    fn read(arguments: LaunchArguments, layout: &[ParameterPlace]) -> Option<Vec<u64>> {
        let mut words = Vec::new();
        // SAFETY: the tests' own arrays.
        let read = unsafe { arguments.read(layout, |_, word| words.push(word)) };
        (read == ArgumentsRead::Whole).then_some(words)
    }

    fn value<T>(value: &T) -> *mut c_void {
        std::ptr::from_ref(value).cast_mut().cast()
    }

    fn key(key: usize) -> *mut c_void {
        std::ptr::without_provenance_mut(key)
    }

    fn extra(list: &mut [*mut c_void]) -> LaunchArguments {
        LaunchArguments { parameters: null_mut(), extra: list.as_mut_ptr() }
    }

    proptest! {
        /// Every parameter is an allocation of its own, so that Miri and address sanitizers see a
        /// read beyond it.
        #[test]
        fn pointers_to_arguments_give_their_words(drawn in drawn()) {
            let copies: Vec<Box<[u8]>> =
                drawn.layout.iter().map(|p| drawn.bytes[p.offset..p.offset + p.size].into()).collect();
            let mut pointers: Vec<*mut c_void> = copies.iter().map(|c| c.as_ptr().cast_mut().cast()).collect();
            pointers.push(null_mut());
            let arguments = LaunchArguments { parameters: pointers.as_mut_ptr(), extra: null_mut() };
            prop_assert_eq!(read(arguments, &drawn.layout), Some(reference(&drawn)));
        }

        #[test]
        fn a_buffer_gives_the_same_words_in_either_order_of_its_keys(drawn in drawn(), swapped: bool, slack in 0..9_usize) {
            let mut bytes = drawn.bytes.clone();
            bytes.extend(std::iter::repeat_n(0xff, slack + 1));
            let size = drawn.bytes.len() + slack;
            let pointer = [key(CU_LAUNCH_PARAM_BUFFER_POINTER), bytes.as_ptr().cast_mut().cast()];
            let sized = [key(CU_LAUNCH_PARAM_BUFFER_SIZE), value(&size)];
            let mut list = if swapped { [sized, pointer].concat() } else { [pointer, sized].concat() };
            list.push(key(CU_LAUNCH_PARAM_END));
            prop_assert_eq!(read(extra(&mut list), &drawn.layout), Some(reference(&drawn)));
        }

        #[test]
        fn a_buffer_that_is_too_short_is_unknown(drawn in drawn(), cut in 1..300_usize) {
            prop_assume!(!drawn.bytes.is_empty());
            let size = drawn.bytes.len().saturating_sub(cut);
            let bytes: Box<[u8]> = drawn.bytes[..size].into();
            let mut list = [
                key(CU_LAUNCH_PARAM_BUFFER_POINTER), bytes.as_ptr().cast_mut().cast(),
                key(CU_LAUNCH_PARAM_BUFFER_SIZE), value(&size), key(CU_LAUNCH_PARAM_END),
            ];
            prop_assert_eq!(read(extra(&mut list), &drawn.layout), None);
        }
    }

    const ONE: [ParameterPlace; 1] = [ParameterPlace { offset: 0, size: 8 }];

    /// Hazard (silent degradation): a size is not seen that is a parameter of 4 bytes.
    #[test]
    fn numbers_of_four_bytes_are_read_wherever_they_lie() {
        let (count, pair) = (7_u32, [8_u32, 9]);
        let mut pointers = [value(&count), value(&pair)];
        let arguments = LaunchArguments { parameters: pointers.as_mut_ptr(), extra: null_mut() };
        let layout = [ParameterPlace { offset: 0, size: 4 }, ParameterPlace { offset: 8, size: 8 }];
        let mut numbers = Vec::new();
        // SAFETY: the test's own arrays.
        unsafe { arguments.read_numbers(&layout, |number| numbers.push(number)) };
        assert_eq!(numbers, [7, 8, 9]);
    }

    #[test]
    fn lists_that_lack_something_are_unknown() {
        let (word, size) = (7_u64, 8_usize);
        let (pointer, sized) = (key(CU_LAUNCH_PARAM_BUFFER_POINTER), key(CU_LAUNCH_PARAM_BUFFER_SIZE));
        let end = key(CU_LAUNCH_PARAM_END);
        let mut bad: Vec<Vec<*mut c_void>> = vec![
            vec![end],
            vec![pointer, value(&word), end],
            vec![sized, value(&size), end],
            vec![pointer, value(&word), sized, null_mut(), end],
            vec![pointer, null_mut(), sized, value(&size), end],
            vec![key(99), value(&word), end],
        ];
        for list in &mut bad {
            assert_eq!(read(extra(list), &ONE), None, "{list:?}");
        }
        // A list that repeats its keys is read no further than a list can be.
        let mut long = [pointer, value(&word)].repeat(3);
        long.extend([sized, value(&size), end]);
        assert_eq!(read(extra(&mut long), &ONE), None);
    }

    #[test]
    fn no_arguments_are_known_where_no_parameters_are() {
        let none = LaunchArguments { parameters: null_mut(), extra: null_mut() };
        assert_eq!((read(none, &[]), read(none, &ONE)), (Some(vec![]), None));
        let word = 7_u64;
        let mut pointers = [value(&word)];
        let mut list = [key(CU_LAUNCH_PARAM_END)];
        let both = LaunchArguments { parameters: pointers.as_mut_ptr(), extra: list.as_mut_ptr() };
        assert_eq!(read(both, &ONE), None, "the driver refuses both forms at once");
        pointers[0] = null_mut();
        let null = LaunchArguments { parameters: pointers.as_mut_ptr(), extra: null_mut() };
        assert_eq!(read(null, &ONE), None);
    }
}
