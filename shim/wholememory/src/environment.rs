//! Memory that the caller's functions allocate (`wholememory_env_func_t`).
//!
//! Temporary memory is given back when it is dropped: behind launches that use it, since the
//! caller's functions allocate in the order of the stream, or wait. Outputs are the caller's once
//! they are kept; before that they are given back, too.
//!
//! The caller's functions may be in any language, and may call this library: nothing is held across
//! a call of theirs.

use std::ffi::c_void;

use crate::error::{Error, Result};
use crate::vocabulary::codes::{AllocationType, ElementType};
use crate::vocabulary::description::{ArrayDescription, TensorDescription};

/// The caller's context of one allocation. This library never dereferences the pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct MemoryContext(usize);

impl MemoryContext {
    /// None.
    const NULL: Self = Self(0);

    /// Is there none?
    pub fn is_null(self) -> bool {
        self == Self::NULL
    }
}

type Create = unsafe extern "C" fn(*mut MemoryContext, *mut c_void);
type Malloc = unsafe extern "C" fn(*mut TensorDescription, u32, MemoryContext, *mut c_void) -> *mut c_void;
type Give = unsafe extern "C" fn(MemoryContext, *mut c_void);

/// `wholememory_temp_memory_func_t`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct TemporaryFunctions {
    create: Option<Create>,
    destroy: Option<Give>,
    malloc: Option<Malloc>,
    free: Option<Give>,
    global: *mut c_void,
}

/// `wholememory_output_memory_func_t`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct OutputFunctions {
    malloc: Option<Malloc>,
    free: Option<Give>,
    global: *mut c_void,
}

/// `wholememory_env_func_t`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Functions {
    temporary: TemporaryFunctions,
    output: OutputFunctions,
}

const _: () = assert!(size_of::<Functions>() == 64);

/// The caller's functions, ready to be called.
#[derive(Debug)]
pub struct Environment(Functions);

impl Environment {
    /// # Safety
    /// Each function is null, or behaves as the API specifies, during the lifetime of this
    /// value.
    pub unsafe fn new(functions: Functions) -> Self {
        Self(functions)
    }

    /// Are there functions for temporary memory?
    pub fn has_temporary(&self) -> bool {
        let TemporaryFunctions { create, destroy, malloc, free, .. } = self.0.temporary;
        create.is_some() && destroy.is_some() && malloc.is_some() && free.is_some()
    }

    /// Memory for an operation's own use, on the GPU.
    ///
    /// # Errors
    /// [`Error::Input`] for a function that is null; [`Error::Memory`] for no memory.
    pub fn temporary(&self, parts: ScratchLayout) -> Result<Temporary> {
        let TemporaryFunctions { create, destroy, malloc, free, global } = self.0.temporary;
        let functions = create.zip(destroy).zip(malloc.zip(free));
        let ((create, destroy), (malloc, free)) = functions.ok_or_else(|| null_function("temporary"))?;
        let mut context = MemoryContext::NULL;
        // SAFETY: the caller's function, with arguments as the API specifies.
        unsafe { create(&mut context, global) };
        if context.is_null() {
            return Err(Error::Memory("no context for temporary memory".to_owned()));
        }
        // From here on the context is given back on all ways.
        let mut memory = Temporary { context, destroy, free: None, global, address: 0 };
        // Words, so that all types are aligned.
        let words = parts.bytes.div_ceil(WORD).cast_signed();
        let mut shape =
            ArrayDescription { size: words, storage_offset: 0, dtype: ElementType::Int64.code() }.into();
        // SAFETY: as above; the description is a live local.
        let address = unsafe { malloc(&mut shape, AllocationType::Device.code(), context, global) } as u64;
        if address == 0 {
            return Err(Error::Memory(format!("{} bytes of temporary memory", parts.bytes)));
        }
        (memory.free, memory.address) = (Some(free), address);
        aligned(address, ElementType::Int64)?;
        Ok(memory)
    }

    /// Memory that the caller gets, and finds again by its context.
    ///
    /// # Errors
    /// As of [`Environment::temporary`].
    pub fn output(
        &self,
        context: MemoryContext,
        shape: TensorDescription,
        place: AllocationType,
    ) -> Result<Output> {
        let OutputFunctions { malloc, free, global } = self.0.output;
        let malloc = malloc.ok_or_else(|| null_function("output"))?;
        let (mut asked, kind) = (shape, shape.element_type()?);
        // SAFETY: the caller's function, with arguments as the API specifies; the description is a
        // live local.
        let address = unsafe { malloc(&mut asked, place.code(), context, global) } as u64;
        let dimensions = shape.dimensions().unwrap_or_default();
        let is_empty = shape.sizes[..dimensions].contains(&0);
        // An array without elements may be nowhere, and is the caller's all the same.
        if address == 0 && !is_empty {
            return Err(Error::Memory(format!("an output of {:?} elements", &shape.sizes[..dimensions])));
        }
        let output = Output { context, free, global, address };
        aligned(address, kind)?;
        Ok(output)
    }
}

/// Alignment of temporary memory, bytes.
const WORD: u64 = 8;

fn null_function(which: &str) -> Error {
    Error::Input(format!("a function for {which} memory is null"))
}

fn aligned(address: u64, kind: ElementType) -> Result {
    crate::error::require(
        address.is_multiple_of(kind.bytes() as u64),
        "memory of the caller's is not aligned to its type",
    )
}

/// Arrays that lie in one temporary allocation.
#[derive(Debug, Default, Clone, Copy)]
pub struct ScratchLayout {
    bytes: u64,
}

/// One of them: where it begins.
#[derive(Debug, Clone, Copy)]
pub struct ScratchArray(u64);

impl ScratchLayout {
    /// One more array.
    ///
    /// # Errors
    /// [`Error::Memory`] for more than any GPU has.
    pub fn add(&mut self, count: u64, element: u64) -> Result<ScratchArray> {
        let (start, most) = (self.bytes, 1 << 47);
        let bytes = count.checked_mul(element).filter(|bytes| *bytes < most);
        let bytes = bytes.ok_or_else(|| Error::Memory(format!("{count} elements of temporary memory")))?;
        self.bytes = start.saturating_add(bytes.next_multiple_of(2 * WORD));
        crate::error::require(self.bytes < most, "more temporary memory than any GPU has")
            .map(|()| ScratchArray(start))
    }
}

/// Temporary memory.
#[derive(Debug)]
pub struct Temporary {
    context: MemoryContext,
    destroy: Give,
    /// Once there is something to free.
    free: Option<Give>,
    global: *mut c_void,
    address: u64,
}

impl Temporary {
    /// The address of an array in it.
    pub fn at(&self, part: ScratchArray) -> u64 {
        self.address + part.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let (context, global) = (self.context, self.global);
        if let Some(free) = self.free {
            // SAFETY: the caller's function, for memory that the caller's function has allocated.
            unsafe { free(context, global) };
        }
        // SAFETY: as above, for the context.
        unsafe { (self.destroy)(context, global) };
    }
}

/// Memory that the caller gets if it is kept.
#[derive(Debug)]
pub struct Output {
    context: MemoryContext,
    /// The API does not ask for it: without it the memory stays in the caller's context.
    free: Option<Give>,
    global: *mut c_void,
    address: u64,
}

impl Output {
    /// Its address; 0 is possible where it has no elements.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Leaves the memory to the caller.
    pub fn hand_over(mut self) {
        self.free = None;
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: the caller's function, for memory that the caller's function has allocated.
            unsafe { free(self.context, self.global) };
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (resource leak): the caller's memory is not given back, or a null function is called.
    use std::cell::{Cell, RefCell};
    use std::ptr::null_mut;

    use super::*;

    /// The calls of the functions, and the call that fails.
    #[derive(Default)]
    struct Log {
        calls: RefCell<Vec<&'static str>>,
        fails: Cell<&'static str>,
        memory: [u64; 8],
    }

    fn record(global: *mut c_void, call: &'static str) -> *mut c_void {
        // SAFETY: the tests' own log.
        let log = unsafe { &*global.cast::<Log>() };
        log.calls.borrow_mut().push(call);
        if log.fails.get() == call { null_mut() } else { log.memory.as_ptr().cast_mut().cast() }
    }

    unsafe extern "C" fn create(context: *mut MemoryContext, global: *mut c_void) {
        // SAFETY: a live place.
        unsafe { context.write(MemoryContext(record(global, "create") as usize)) };
    }
    unsafe extern "C" fn destroy(_context: MemoryContext, global: *mut c_void) {
        record(global, "destroy");
    }
    unsafe extern "C" fn malloc(
        _shape: *mut TensorDescription,
        _place: u32,
        _context: MemoryContext,
        global: *mut c_void,
    ) -> *mut c_void {
        record(global, "malloc")
    }
    unsafe extern "C" fn free(_context: MemoryContext, global: *mut c_void) {
        record(global, "free");
    }

    fn functions(log: &Log) -> Functions {
        let global = std::ptr::from_ref(log).cast_mut().cast();
        Functions {
            temporary: TemporaryFunctions {
                create: Some(create),
                destroy: Some(destroy),
                malloc: Some(malloc),
                free: Some(free),
                global,
            },
            output: OutputFunctions { malloc: Some(malloc), free: Some(free), global },
        }
    }

    fn environment(log: &Log) -> Environment {
        // SAFETY: functions of these tests.
        unsafe { Environment::new(functions(log)) }
    }

    fn shape(size: i64) -> TensorDescription {
        ArrayDescription { size, storage_offset: 0, dtype: ElementType::Int.code() }.into()
    }

    #[test]
    fn temporary_memory_is_given_back_on_every_way() {
        for (fails, calls) in [
            ("", ["create", "malloc", "free", "destroy"].as_slice()),
            ("create", &["create"]),
            ("malloc", &["create", "malloc", "destroy"]),
        ] {
            let log = Log { fails: Cell::new(fails), ..Log::default() };
            let mut parts = ScratchLayout::default();
            let (first, second) = (parts.add(3, 4).unwrap(), parts.add(1, 8).unwrap());
            match environment(&log).temporary(parts) {
                Ok(memory) => assert_eq!(memory.at(second) - memory.at(first), 16),
                Err(error) => assert_eq!(error.code(), 8, "{fails}"),
            }
            assert_eq!(*log.calls.borrow(), calls, "{fails}");
        }
    }

    #[test]
    fn an_output_that_is_not_kept_is_given_back() {
        let log = Log::default();
        let output =
            || environment(&log).output(MemoryContext::NULL, shape(3), AllocationType::Device).unwrap();
        output().hand_over();
        assert_eq!(*log.calls.borrow(), ["malloc"]);
        drop(output());
        assert_eq!(*log.calls.borrow(), ["malloc", "malloc", "free"]);
    }

    #[test]
    fn no_memory_is_an_error_where_there_are_elements() {
        let log = Log { fails: Cell::new("malloc"), ..Log::default() };
        let environment = environment(&log);
        let code = |size| {
            environment
                .output(MemoryContext::NULL, shape(size), AllocationType::Host)
                .map(Output::hand_over)
                .map_err(|error| error.code())
        };
        assert_eq!((code(0), code(1)), (Ok(()), Err(8)));
    }

    #[test]
    fn null_functions_are_refused() {
        let log = Log::default();
        let mut parts = ScratchLayout::default();
        parts.add(1, 8).unwrap();
        for number in 0..5 {
            let mut functions = functions(&log);
            match number {
                0 => functions.temporary.create = None,
                1 => functions.temporary.destroy = None,
                2 => functions.temporary.malloc = None,
                3 => functions.temporary.free = None,
                _ => functions.output.malloc = None,
            }
            // SAFETY: functions of these tests.
            let environment = unsafe { Environment::new(functions) };
            let code = match number {
                4 => environment
                    .output(MemoryContext::NULL, shape(1), AllocationType::Device)
                    .err()
                    .map(|error| error.code()),
                _ => environment.temporary(parts).err().map(|error| error.code()),
            };
            assert_eq!(code, Some(6), "{number}");
        }
        assert!(log.calls.borrow().is_empty());
    }
}
