//! Where each function's parameters lie, as the driver tells it.
//!
//! Launch functions take two kinds of handle in one type: functions of a module, and kernels of a
//! library. Each kind has its own question, and asking the wrong one is outside what the driver
//! documents. So the handles of kernels are noted where the program gets them
//! ([`Layouts::note_kernel`]); any other handle is a function.
//!
//! Handles come again: whatever unloads code, or ends a context, calls [`Layouts::forget`] or
//! [`Layouts::forget_library`] before the driver does it, and all that was known is asked anew. A
//! launch that asks meanwhile is of a function that stays, so what it notes is right.
//!
//! A look-up that the driver was asked for before is a few loads. What they read is never given
//! back: an entry a handle, and each layout once, however many functions have it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use dashmap::DashMap;
use wm_abi::symbol::{cuFuncGetParamInfo, cuKernelGetParamInfo};
use wm_abi::{CUfunction, CUkernel, CUlibrary, CUresult};
use wm_driver::lock;
use wm_driver::thread::Uncancelled;

use super::words::ParameterPlace;
use crate::process::driver;

/// Parameters, or `None` where the driver does not tell them. It is asked once.
type Known = Option<&'static [ParameterPlace]>;

/// The driver's answer: `None` where it does not tell.
type Told = Option<Vec<ParameterPlace>>;

/// More parameters than a kernel can have.
const MOST: usize = 1 << 15;

/// The facts about a handle.
struct LayoutEntry {
    handle: usize,
    /// Null until the driver was asked.
    known: AtomicPtr<Known>,
    /// The value of [`Layouts::forgotten`] for which `known` holds; written after it. 0: none.
    since: AtomicU64,
}

/// Entries that were looked up last.
const RECENT: usize = 1024;

/// The layouts of a process's functions.
pub(crate) struct Layouts {
    /// How often everything was forgotten, and 1: a new entry's 0 is no such number.
    forgotten: AtomicU64,
    /// The entries that were looked up last, by a part of the handle: two functions that share a
    /// place take turns.
    recent: [AtomicPtr<LayoutEntry>; RECENT],
    /// All entries, by handle.
    entries: OnceLock<DashMap<usize, &'static LayoutEntry>>,
    /// Launches will be looked at, perhaps only later: the handles of kernels are noted.
    notes_kernels: AtomicBool,
    /// Handles of kernels, and their libraries.
    kernels: OnceLock<DashMap<usize, CUlibrary>>,
    /// The one copy of each answer.
    answers: Mutex<BTreeMap<Told, &'static Known>>,
}

impl Layouts {
    pub(super) const fn new() -> Self {
        Self {
            forgotten: AtomicU64::new(1),
            recent: [const { AtomicPtr::new(std::ptr::null_mut()) }; RECENT],
            entries: OnceLock::new(),
            notes_kernels: AtomicBool::new(false),
            kernels: OnceLock::new(),
            answers: Mutex::new(BTreeMap::new()),
        }
    }

    fn kernels(&self) -> &DashMap<usize, CUlibrary> {
        self.kernels.get_or_init(DashMap::new)
    }

    /// The handles of kernels are noted from now on. To be called before the first hook runs.
    pub(crate) fn expect_kernels(&self) {
        self.notes_kernels.store(true, Ordering::Relaxed);
    }

    /// Are handles of kernels to be noted?
    pub(crate) fn notes_kernels(&self) -> bool {
        self.notes_kernels.load(Ordering::Relaxed)
    }

    /// The program got a kernel of a library.
    pub(crate) fn note_kernel(&self, kernel: CUkernel, library: CUlibrary) {
        self.kernels().insert(kernel.0, library);
    }

    /// Code is about to be unloaded, or a context to end: their handles may come again for other
    /// functions.
    pub(crate) fn forget(&self) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
    }

    /// A library is about to be unloaded, and its kernels with it.
    pub(crate) fn forget_library(&self, library: CUlibrary) {
        self.kernels().retain(|_, of| *of != library);
        self.forget();
    }

    /// The library of a kernel; `None` for a function of a module.
    pub(super) fn library_of(&self, function: CUfunction) -> Option<CUlibrary> {
        self.kernels().get(&function.0).map(|library| *library)
    }

    /// A number that changes whenever everything is forgotten; never 0.
    #[inline]
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Acquire)
    }

    /// The parameters of the function that a launch names.
    #[inline]
    pub(super) fn of(&self, function: CUfunction) -> Known {
        self.recent(function).unwrap_or_else(|| self.look_up(function.0, |handle| self.ask(handle)))
    }

    /// The facts about a handle that was looked up lately.
    #[inline]
    fn recent(&self, function: CUfunction) -> Option<Known> {
        let handle = function.0;
        // SAFETY: null, or an entry that is never given back.
        let entry = unsafe { self.place(handle).load(Ordering::Acquire).as_ref() }?;
        (entry.handle == handle).then(|| entry.at(self.forgotten())).flatten()
    }

    /// Handles are addresses, or small numbers in a simulated driver.
    fn place(&self, handle: usize) -> &AtomicPtr<LayoutEntry> {
        let mixed = (handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.recent[(mixed >> 54) as usize]
    }

    #[cold]
    #[inline(never)]
    fn look_up(&self, handle: usize, ask: impl FnOnce(usize) -> Told) -> Known {
        let _whole = Uncancelled::new();
        let entry = *self.entries.get_or_init(DashMap::new).entry(handle).or_insert_with(|| {
            &*Box::leak(Box::new(LayoutEntry {
                handle,
                known: AtomicPtr::new(std::ptr::null_mut()),
                since: AtomicU64::new(0),
            }))
        });
        let now = self.forgotten();
        let known = entry.at(now).unwrap_or_else(|| {
            let known = self.intern(ask(handle));
            if known.is_none() {
                log::debug!("the driver does not tell the parameters of function {handle:#x}");
            }
            entry.set(known, now);
            *known
        });
        self.place(handle).store(std::ptr::from_ref(entry).cast_mut(), Ordering::Release);
        known
    }

    /// The one copy of an answer, which is never given back.
    fn intern(&self, told: Told) -> &'static Known {
        let mut answers = lock(&self.answers);
        answers.entry(told).or_insert_with_key(|told| {
            let places = told.as_deref().map(|places| &*Box::leak(Box::from(places)));
            Box::leak(Box::new(places))
        })
    }

    /// Asks the driver. The program launches the function of the handle, so the function lives.
    fn ask(&self, handle: usize) -> Told {
        if self.kernels().contains_key(&handle) {
            // SAFETY: a kernel that lives; out-pointers are to live locals.
            return places(|index, place| unsafe {
                driver().get::<cuKernelGetParamInfo>()(
                    CUkernel(handle),
                    index,
                    &mut place.offset,
                    &mut place.size,
                )
            });
        }
        // SAFETY: a function that lives; the same locals.
        places(|index, place| unsafe {
            driver().get::<cuFuncGetParamInfo>()(
                CUfunction(handle),
                index,
                &mut place.offset,
                &mut place.size,
            )
        })
    }

    /// Lets a test set the driver's answer for a handle.
    #[cfg(test)]
    pub(crate) fn tell(&self, function: CUfunction, told: Option<&[ParameterPlace]>) {
        self.look_up(function.0, |_| told.map(<[_]>::to_vec));
    }
}

impl LayoutEntry {
    /// What is known while so much was forgotten.
    #[inline]
    fn at(&self, forgotten: u64) -> Option<Known> {
        if self.since.load(Ordering::Acquire) != forgotten {
            return None;
        }
        // SAFETY: null, or what is never given back.
        unsafe { self.known.load(Ordering::Acquire).as_ref() }.copied()
    }

    /// `forgotten` was read before the driver was asked.
    fn set(&self, known: &'static Known, forgotten: u64) {
        self.known.store(std::ptr::from_ref(known).cast_mut(), Ordering::Release);
        self.since.store(forgotten, Ordering::Release);
    }
}

/// Asks for one parameter after the other, until there is no such parameter. Any other error: they
/// are unknown.
fn places(ask: impl Fn(usize, &mut ParameterPlace) -> CUresult) -> Told {
    let mut places = Vec::new();
    for index in 0..MOST {
        let mut place = ParameterPlace { offset: 0, size: 0 };
        match ask(index, &mut place) {
            CUresult::SUCCESS => places.push(place),
            CUresult::INVALID_VALUE => return Some(places),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    //! Hazard: a driver that does not know the question is taken for one whose kernels have no
    //! parameters, or a handle that comes again for what it was before.
    use super::*;

    fn one(size: usize) -> Told {
        Some(vec![ParameterPlace { offset: 0, size }])
    }

    fn answer(layouts: &Layouts, handle: usize, told: Told) -> Told {
        let known = layouts.recent(CUfunction(handle)).unwrap_or_else(|| layouts.look_up(handle, |_| told));
        known.map(<[_]>::to_vec)
    }

    #[test]
    fn what_is_unloaded_is_asked_again() {
        let layouts = Layouts::new();
        let answer = |handle, told| answer(&layouts, handle, told);
        let (kernel, library, other) = (CUkernel(0x10), CUlibrary(0x20), CUlibrary(0x30));
        layouts.note_kernel(kernel, library);
        assert_eq!(answer(0x40, one(8)), one(8));
        assert_eq!(answer(0x40, one(16)), one(8), "it is not asked again");
        assert_eq!(answer(0x50, None), None);
        assert_eq!(answer(0x50, one(4)), None, "nor what was not told");
        layouts.forget_library(other);
        assert_eq!(layouts.library_of(CUfunction(kernel.0)), Some(library));
        assert_eq!((answer(0x40, one(16)), answer(0x50, one(4))), (one(16), one(4)));
        layouts.forget_library(library);
        assert_eq!(layouts.library_of(CUfunction(kernel.0)), None);
        assert_eq!(answer(0x40, None), None);
    }

    /// Hazard: a new entry is read between the two stores that make it known.
    #[test]
    fn nothing_holds_for_an_entry_that_was_never_completed() {
        let known: Known = None;
        let known = AtomicPtr::new(std::ptr::from_ref(Box::leak(Box::new(known))).cast_mut());
        let entry = LayoutEntry { handle: 1, known, since: AtomicU64::new(0) };
        assert!(entry.at(Layouts::new().forgotten()).is_none());
    }

    /// More handles than places.
    #[test]
    fn handles_do_not_answer_for_each_other() {
        let layouts = Layouts::new();
        for _ in 0..2 {
            for handle in 1..5000 {
                assert_eq!(answer(&layouts, handle * 64, one(handle)), one(handle));
            }
        }
        assert_eq!(layouts.entries.get().map(DashMap::len), Some(4999));
    }

    #[test]
    fn a_driver_without_the_question_leaves_parameters_unknown() {
        for code in [CUresult::NOT_SUPPORTED, CUresult::INVALID_HANDLE, CUresult::CONTEXT_IS_DESTROYED] {
            assert_eq!(places(|_, _| code), None);
            assert_eq!(places(|index, _| if index < 2 { CUresult::SUCCESS } else { code }), None);
        }
        assert_eq!(places(|_, _| CUresult::SUCCESS), None, "it never ends");
        let two = places(|index, place| {
            (place.offset, place.size) = (8 * index, 8);
            if index < 2 { CUresult::SUCCESS } else { CUresult::INVALID_VALUE }
        });
        assert_eq!(two, Some([0, 8].map(|offset| ParameterPlace { offset, size: 8 }).to_vec()));
    }
}
