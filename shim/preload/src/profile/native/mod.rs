//! The native callers of the calling thread, innermost first.
//!
//! The walk follows the tables of each object's file ([`modules`]). Of the program's memory it
//! reads the part of the thread's own stack that is in use, and nothing else, so no table and no
//! stack can lead it elsewhere. On a stack that is not the thread's (a coroutine's, a signal's),
//! and on one with little room left for the walk itself, there is no walk.

mod modules;

use std::cell::Cell;
use std::ops::Range;
use std::sync::Mutex;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Unwinder};
use modules::{LoadedObject, Loads, MappedSection};
use wm_driver::lock;

/// A place in the code of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CodePlace {
    /// Index of the object in the list of this walk; `None` for code that is in none.
    pub(super) object: Option<usize>,
    pub(super) offset: u64,
}

/// The callers that a walk has found.
#[derive(Debug, Default)]
pub(super) struct NativeStack {
    pub(super) places: Vec<CodePlace>,
    pub(super) objects: Vec<CodeObject>,
    /// There are more.
    pub(super) is_cut: bool,
}

/// A loaded object that callers are in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CodeObject {
    pub(super) path: String,
    pub(super) build_id: String,
    pub(super) base: u64,
}

/// Walks stacks.
pub(super) struct NativeWalker {
    state: Mutex<Option<Box<WalkState>>>,
}

struct WalkState {
    unwinder: UnwinderX86_64<MappedSection>,
    cache: CacheX86_64,
    loads: Loads,
    objects: Vec<KnownObject>,
}

struct KnownObject {
    object: LoadedObject,
    has_tables: bool,
}

/// Where a walk ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalkBounds {
    pub(super) most: usize,
    /// The walk ends at the object that has this address.
    pub(super) until: Option<u64>,
}

impl NativeWalker {
    pub(super) const fn new() -> Self {
        Self { state: Mutex::new(None) }
    }

    /// The callers of this library's code.
    #[inline(never)]
    pub(super) fn walk(&self, bounds: WalkBounds) -> NativeStack {
        let registers = registers();
        let stack = own_stack();
        if !has_room(&stack, registers.sp()) {
            return NativeStack::default();
        }
        let now = modules::loads();
        // Asked before the lock is taken: the loader has a lock of its own.
        let is_known = lock(&self.state).as_ref().is_some_and(|state| state.loads == now);
        let objects = (!is_known).then(modules::all);
        let mut state = lock(&self.state);
        let state = state.get_or_insert_with(|| Box::new(WalkState::new()));
        if let Some(objects) = objects {
            state.learn(now, objects);
        }
        state.walk(registers, registers.sp()..stack.end, bounds)
    }
}

impl WalkState {
    fn new() -> Self {
        Self {
            unwinder: UnwinderX86_64::new(),
            cache: CacheX86_64::new(),
            loads: Loads::default(),
            objects: Vec::new(),
        }
    }

    fn learn(&mut self, loads: Loads, objects: Vec<LoadedObject>) {
        let mut before = std::mem::take(&mut self.objects);
        let mut known = |object: LoadedObject| {
            let same = before.iter().position(|known| known.object == object);
            let has_tables = same.is_some_and(|index| before.swap_remove(index).has_tables);
            KnownObject { object, has_tables }
        };
        self.objects = objects.into_iter().map(&mut known).collect();
        for gone in before.iter().filter(|gone| gone.has_tables) {
            self.unwinder.remove_module(gone.object.range.start);
        }
        self.loads = loads;
    }

    /// The object that an address is in. Its tables are added when they are needed first.
    fn object_of(&mut self, address: u64) -> Option<usize> {
        let index =
            self.objects.partition_point(|known| known.object.range.start <= address).checked_sub(1)?;
        let known = self.objects.get_mut(index).filter(|known| known.object.range.contains(&address))?;
        if !known.has_tables {
            known.has_tables = true;
            known.object.tables().into_iter().for_each(|tables| self.unwinder.add_module(tables));
        }
        Some(index)
    }

    fn walk(&mut self, start: UnwindRegsX86_64, stack: Range<u64>, bounds: WalkBounds) -> NativeStack {
        let own = self.object_of(NativeWalker::walk as *const () as u64);
        let until = bounds.until.and_then(|address| self.object_of(address));
        let mut read = |address: u64| read_stack(&stack, address).ok_or(());
        let (mut found, mut registers, mut indices) = (NativeStack::default(), start, Vec::new());
        let mut frame = FrameAddress::from_instruction_pointer(start.ip());
        // Frames of this library come first, and are not kept.
        for _ in 0..bounds.most + OWN_FRAMES {
            let address = frame.address_for_lookup();
            let object = self.object_of(address);
            if until.is_some() && object == until {
                return found;
            }
            if object != own || object.is_none() {
                if found.places.len() == bounds.most {
                    break;
                }
                found.places.push(self.place(&mut found.objects, &mut indices, object, address));
            }
            let caller = self.unwinder.unwind_frame(frame, &mut registers, &mut self.cache, &mut read);
            let Some(caller) = caller.ok().flatten().and_then(FrameAddress::from_return_address) else {
                return found;
            };
            if caller.address_for_lookup() < FIRST_PAGE {
                return found;
            }
            frame = caller;
        }
        found.is_cut = true;
        found
    }

    fn place(
        &self,
        objects: &mut Vec<CodeObject>,
        indices: &mut Vec<usize>,
        object: Option<usize>,
        address: u64,
    ) -> CodePlace {
        let Some(index) = object else { return CodePlace { object: None, offset: address } };
        let LoadedObject { path, build_id, base, .. } = &self.objects[index].object;
        let listed = indices.iter().position(|listed| *listed == index).unwrap_or_else(|| {
            let path = path.to_string_lossy().into_owned();
            objects.push(CodeObject { path, build_id: build_id.clone(), base: *base });
            indices.push(index);
            indices.len() - 1
        });
        CodePlace { object: Some(listed), offset: address.wrapping_sub(*base) }
    }
}

/// No code is at lower addresses: a walk that leads there has lost its way.
const FIRST_PAGE: u64 = 4096;

/// Frames of this library between a call of the program and here, at most.
const OWN_FRAMES: usize = 64;

/// A word of the stack. `stack` begins at the stack pointer.
fn read_stack(stack: &Range<u64>, address: u64) -> Option<u64> {
    let is_inside = address >= stack.start && address.checked_add(8).is_some_and(|end| end <= stack.end);
    // SAFETY: in the calling thread's own stack, above its stack pointer: mapped, and initialised
    // or not, of no interest to another thread.
    is_inside.then(|| unsafe { (address as *const u64).read_unaligned() })
}

/// The registers at this place. The callers are those of the function that this is inlined into.
#[inline(always)]
fn registers() -> UnwindRegsX86_64 {
    let (ip, sp, bp): (u64, u64, u64);
    // SAFETY: three registers are copied, and nothing is changed.
    unsafe {
        std::arch::asm!(
            "lea {ip}, [rip]",
            "mov {sp}, rsp",
            "mov {bp}, rbp",
            ip = out(reg) ip,
            sp = out(reg) sp,
            bp = out(reg) bp,
            options(nomem, nostack, preserves_flags),
        );
    }
    UnwindRegsX86_64::new(ip, sp, bp)
}

thread_local! {
    static STACK: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Stack that the work of a profile may need.
const NEEDED: u64 = 256 << 10;

/// Does the stack that the calling thread runs on have room for the work of a profile?
#[inline(never)]
pub(super) fn has_stack() -> bool {
    has_room(&own_stack(), registers().sp())
}

/// `at`: the stack pointer.
fn has_room(stack: &Range<u64>, at: u64) -> bool {
    stack.contains(&at) && at - stack.start >= NEEDED
}

/// Where the calling thread's stack is; empty if the system does not tell.
fn own_stack() -> Range<u64> {
    let (mut start, mut end) = STACK.get();
    if end == 0 {
        (start, end) = ask_for_stack().unwrap_or((0, 0));
        STACK.set((start, end));
    }
    start..end
}

fn ask_for_stack() -> Option<(u64, u64)> {
    // SAFETY: the attributes are filled by the call that succeeds, and destroyed once.
    unsafe {
        let mut attributes = std::mem::zeroed::<libc::pthread_attr_t>();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return None;
        }
        let (mut start, mut bytes) = (std::ptr::null_mut(), 0);
        let told = libc::pthread_attr_getstack(&attributes, &mut start, &mut bytes);
        libc::pthread_attr_destroy(&mut attributes);
        (told == 0).then(|| (start as u64, start as u64 + bytes as u64))
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (process crash): a walk that leaves the stack. Hazard (wrong report): one that ends
    //! early.
    use super::*;

    const ALL: WalkBounds = WalkBounds { most: 100, until: None };

    #[test]
    fn only_the_part_in_use_of_the_own_stack_is_read() {
        let here = 7_u64;
        let at = (&raw const here) as u64;
        assert!(has_stack() && own_stack().contains(&at));
        let stack = NEEDED..3 * NEEDED;
        let room = [NEEDED, 2 * NEEDED - 1, 2 * NEEDED, 3 * NEEDED].map(|at| has_room(&stack, at));
        assert_eq!(room, [false, false, true, false]);
        let stack = at..own_stack().end;
        assert_eq!(read_stack(&stack, at), Some(7));
        for outside in [0, at - 8, stack.end - 7, stack.end, u64::MAX - 3] {
            assert_eq!(read_stack(&stack, outside), None, "{outside:x}");
        }
    }

    #[test]
    fn the_walk_passes_this_object_and_reaches_the_start_of_the_thread() {
        let walker = NativeWalker::new();
        for _ in 0..2 {
            let found = walker.walk(ALL);
            assert!(!found.is_cut && !found.places.is_empty(), "{found:?}");
            let outermost = found.objects.last().expect("an object");
            assert!(outermost.path.contains("libc.so"), "{found:?}");
        }
    }

    #[test]
    fn a_walk_ends_where_it_is_told_to() {
        let libc = libc::getpid as *const () as u64;
        let found = NativeWalker::new().walk(WalkBounds { most: 100, until: Some(libc) });
        assert!(found.places.is_empty(), "{found:?}");
    }

    /// Hazard (process crash): a program jumps between stacks.
    #[test]
    fn there_is_no_walk_on_another_stack() {
        STACK.set((0x1000, 0x2000));
        assert!(NativeWalker::new().walk(ALL).places.is_empty());
    }
}
