//! The Python functions that the calling thread is in, innermost first.
//!
//! CPython is asked for one thing, the thread's own state (`PyGILState_GetThisThreadState`, which
//! needs no lock). Everything else is read from its structures: most programs call the driver
//! without the interpreter's lock, so no reference may be taken, and no function called that takes
//! one. The frames of a thread do not change while the thread is in here, and each keeps its code
//! object alive. One case is left: an interpreter that ends frees the states of threads that still
//! run. So every read is one that cannot fault ([`memory`]), every object is checked for its type,
//! and what is no code object ends the stack.

mod layout;
mod lines;
mod memory;

use std::ffi::{CStr, c_char, c_void};

use layout::{FrameLayout, Instruction};
use memory::{KeptMemory, OwnMemory, ReadableMemory};
use wm_schema::profile::PythonPlace;

use crate::process::own_memory;

/// Longest line table that is read.
const LINES: usize = 1 << 16;

/// The interpreter of the process.
#[derive(Debug)]
pub(super) struct Interpreter {
    /// `3.11`.
    pub(super) version: String,
    /// An address in the object that the interpreter is in.
    pub(super) code: u64,
    thread_state: unsafe extern "C" fn() -> *mut c_void,
    types: Types,
    layout: FrameLayout,
}

/// Addresses of types.
#[derive(Debug, Clone, Copy)]
struct Types {
    code: u64,
    text: u64,
    bytes: u64,
}

impl Interpreter {
    /// The one that is loaded, if its structures are known. Takes the loader's lock: to be called
    /// where the driver is opened anyway.
    pub(super) fn find() -> Option<Self> {
        let thread_state = symbol(c"PyGILState_GetThisThreadState")?;
        let version = symbol(c"Py_GetVersion")?;
        let address = |name| symbol(name).map(|found| found as u64);
        let types = Types {
            code: address(c"PyCode_Type")?,
            text: address(c"PyUnicode_Type")?,
            bytes: address(c"PyBytes_Type")?,
        };
        // SAFETY: both are functions of CPython's documented interface with these types; the text
        // is a static of the interpreter's.
        let (thread_state, version) = unsafe {
            type StateFn = unsafe extern "C" fn() -> *mut c_void;
            type VersionFn = unsafe extern "C" fn() -> *const c_char;
            let version = std::mem::transmute::<*mut c_void, VersionFn>(version)();
            (std::mem::transmute::<*mut c_void, StateFn>(thread_state), CStr::from_ptr(version))
        };
        let minor = minor(version.to_str().ok()?)?;
        let mut words = [0; layout::WORDS];
        if let Some(runtime) = address(c"_PyRuntime") {
            words.iter_mut().zip((runtime..).step_by(8)).for_each(|(word, at)| {
                *word = OwnMemory.word(at).unwrap_or(0);
            });
        }
        let layout = FrameLayout::of(minor, &words).filter(|_| own_memory::is_readable())?;
        let code = thread_state as *const () as u64;
        Some(Self { version: format!("3.{minor}"), code, thread_state, types, layout })
    }

    /// The functions that the calling thread is in, at most `most`, and whether there are more.
    pub(super) fn stack(&self, most: usize) -> (Vec<PythonPlace>, bool) {
        // SAFETY: a function of the interpreter's, which is never unloaded; it reads the thread's
        // own value.
        let state = unsafe { (self.thread_state)() } as u64;
        let reader = StackReader { memory: &KeptMemory::default(), types: self.types, layout: &self.layout };
        if state == 0 { (Vec::new(), false) } else { reader.stack(state, most) }
    }
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The second number of `3.11.7 (main, ...)`.
fn minor(version: &str) -> Option<u32> {
    version.strip_prefix("3.")?.split(['.', ' ', '+']).next()?.parse().ok()
}

/// Reads the stack of one thread.
struct StackReader<'a, M> {
    memory: &'a M,
    types: Types,
    layout: &'a FrameLayout,
}

impl<M: ReadableMemory> StackReader<'_, M> {
    fn stack(&self, state: u64, most: usize) -> (Vec<PythonPlace>, bool) {
        let mut places = Vec::new();
        let mut next = self.innermost(state);
        // Frames that are no functions count too: a list that is a circle comes to an end.
        for _ in 0..2 * most {
            let Some(frame) = next.filter(|frame| *frame != 0) else { return (places, false) };
            if places.len() == most {
                return (places, true);
            }
            if !self.is_internal(frame) {
                let Some(place) = self.place(frame) else { return (places, false) };
                places.push(place);
            }
            next = self.memory.word(frame.wrapping_add(self.layout.previous));
        }
        (places, true)
    }

    fn innermost(&self, state: u64) -> Option<u64> {
        let frame = self.memory.word(state.wrapping_add(self.layout.thread_frame))?;
        self.layout.indirect.map_or(Some(frame), |offset| self.memory.word(frame.wrapping_add(offset)))
    }

    /// Is it a frame of the interpreter's own?
    fn is_internal(&self, frame: u64) -> bool {
        const OF_THE_INTERPRETER: u8 = 3;
        let owner = self.layout.owner.and_then(|offset| self.memory.byte(frame.wrapping_add(offset)));
        owner.is_some_and(|owner| owner >= OF_THE_INTERPRETER)
    }

    fn place(&self, frame: u64) -> Option<PythonPlace> {
        // From 3.14 on the low bits are marks.
        let code = self.memory.word(frame.wrapping_add(self.layout.code))? & !7;
        let code = self.memory.object(code, self.types.code)?;
        let text = |offset: u64| {
            let object = self.memory.object(self.memory.word(code.wrapping_add(offset))?, self.types.text)?;
            self.memory.text(object, self.layout.text)
        };
        let (function, file) = (text(self.layout.name)?, text(self.layout.file)?);
        Some(PythonPlace { function, file, line: self.line(frame, code).unwrap_or(0) })
    }

    /// The line that a frame executes; where the table does not tell, the function's first one.
    fn line(&self, frame: u64, code: u64) -> Option<u32> {
        let first = self.memory.half(code.wrapping_add(self.layout.first_line))?;
        let executed = || {
            let offset = match self.layout.instruction {
                Instruction::Number { at, unit } => {
                    u64::try_from(self.memory.half(frame.wrapping_add(at))?).ok()?.checked_mul(unit)?
                }
                Instruction::Address { at, code: start } => {
                    self.memory.word(frame.wrapping_add(at))?.checked_sub(code.wrapping_add(start))?
                }
            };
            let lines = self.memory.word(code.wrapping_add(self.layout.lines))?;
            let table = self.memory.bytes(self.memory.object(lines, self.types.bytes)?, LINES)?;
            self.layout.table.line(&table, first.into(), offset)
        };
        executed().or_else(|| u32::try_from(first).ok())
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (process crash): structures that are not what they were taken for.
    use proptest::prelude::*;

    use super::*;

    /// ReadableMemory of 4 KiB at address 0x1000, in which any word may be anything.
    struct Noise(Vec<u8>);

    impl ReadableMemory for Noise {
        fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
            let start = usize::try_from(address.checked_sub(0x1000)?).ok()?;
            into.copy_from_slice(self.0.get(start..start.checked_add(into.len())?)?);
            Some(())
        }
    }

    fn layouts() -> Vec<FrameLayout> {
        (9..=12).filter_map(|minor| FrameLayout::of(minor, &[0; layout::WORDS])).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Words are mostly addresses in the memory itself, so lists of frames lead anywhere.
        #[test]
        fn a_stack_of_garbage_comes_to_an_end(
            words in proptest::collection::vec(prop_oneof![
                4 => (0u64..512).prop_map(|word| 0x1000 + 8 * word), 1 => any::<u64>(), 1 => Just(0u64),
            ], 512),
            state in (0u64..512).prop_map(|word| 0x1000 + 8 * word),
        ) {
            let memory = Noise(words.iter().flat_map(|word| word.to_ne_bytes()).collect());
            for layout in layouts() {
                let types = Types { code: words[1], text: words[1], bytes: words[1] };
                let reader = StackReader { memory: &memory, types, layout: &layout };
                prop_assert!(reader.stack(state, 32).0.len() <= 32);
            }
        }
    }

    #[test]
    fn versions_are_told_apart() {
        assert_eq!(minor("3.11.7 (main, Dec  4 2023)"), Some(11));
        assert_eq!(
            ["3.14.0rc1", "3.9+ (heads/3.9)", "2.7.18", "3"].map(minor),
            [Some(14), Some(9), None, None]
        );
        assert_eq!(layouts().len(), 4);
    }
}
