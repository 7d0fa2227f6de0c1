//! Actions of a program beside its copies.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use conformance::cu;
use wm_abi::*;

use crate::model::BUFFER;
use crate::program::Aside;
use crate::running::Running;

const PAGE: usize = 4096;
/// One of this many pages faults.
const SPARSE: usize = 64;

impl Running<'_> {
    /// Makes such an action. `None` if there is no call, or no sibling.
    pub(super) fn aside(&self, aside: Aside) -> Option<CUresult> {
        match aside {
            Aside::Cancel => cancel(),
            Aside::Protect { host } => protect(self.host(host) as usize, BUFFER as usize),
            Aside::Pair | Aside::Reset | Aside::Pass => return self.at_sibling(aside),
        }
        None
    }

    /// On the last device, if programs do not use it.
    fn at_sibling(&self, aside: Aside) -> Option<CUresult> {
        let (d, mut count, mut context) = (self.world.driver, 0, CUcontext::NULL);
        let _known = cu!(d, cuDeviceGetCount(&mut count));
        let sibling = (count as usize > self.world.devices).then_some(count - 1)?;
        let codes = match aside {
            Aside::Pair => [
                cu!(d, cuDevicePrimaryCtxRetain(&mut context, sibling)),
                cu!(d, cuDevicePrimaryCtxRelease_v2(sibling)),
            ],
            Aside::Reset => [CUresult::SUCCESS, cu!(d, cuDevicePrimaryCtxReset_v2(sibling))],
            _ => [self.work_at(sibling, &mut context), cu!(d, cuCtxDestroy_v2(context))],
        };
        codes.into_iter().find(|code| *code != CUresult::SUCCESS)
    }

    /// A new context, with work in flight.
    fn work_at(&self, sibling: CUdevice, context: &mut CUcontext) -> CUresult {
        let (d, mut block) = (self.world.driver, 0);
        let codes = [
            cu!(d, cuCtxCreate_v2(context, 0, sibling)),
            cu!(d, cuMemAlloc_v2(&mut block, BUFFER as usize)),
            cu!(d, cuMemsetD32Async(block, 1, BUFFER as usize / 4, CUstream::NULL)),
        ];
        codes.into_iter().find(|code| *code != CUresult::SUCCESS).unwrap_or(CUresult::SUCCESS)
    }
}

thread_local! {
    static IS_CANCELLED: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" {
    /// A function of the C library; a state is 0 (enabled) or 1 (disabled).
    fn pthread_setcancelstate(state: i32, before: *mut i32) -> i32;
    fn pthread_cancel(thread: libc::pthread_t) -> i32;
}

fn let_cancel(may: bool) {
    // SAFETY: acts upon the calling thread alone.
    unsafe { pthread_setcancelstate(i32::from(!may), std::ptr::null_mut()) };
}

/// Requests the cancellation of this thread. It must not happen in frames of this program, which
/// cannot be unwound.
fn cancel() {
    let_cancel(false);
    // SAFETY: the calling thread, which can be cancelled only in copies.
    unsafe { pthread_cancel(libc::pthread_self()) };
    IS_CANCELLED.set(true);
}

/// Makes a driver call in which a pending cancellation may happen.
pub(super) fn cancellable<T>(call: impl FnOnce() -> T) -> T {
    if !IS_CANCELLED.get() {
        return call();
    }
    let_cancel(true);
    let answer = call();
    let_cancel(false);
    answer
}

/// Pages that may fault: the first and the end, as addresses.
static PROTECTED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// The bounds of all pages that ever could fault. A thread may have touched one just before another
/// thread opened it.
static EVER: [AtomicUsize; 2] = [AtomicUsize::new(usize::MAX), AtomicUsize::new(0)];

/// Makes some pages fault at their next use, and installs a handler.
fn protect(start: usize, bytes: usize) {
    let (first, end) = (start.next_multiple_of(PAGE), (start + bytes) / PAGE * PAGE);
    open();
    EVER[0].fetch_min(first, Ordering::SeqCst);
    EVER[1].fetch_max(end, Ordering::SeqCst);
    PROTECTED[0].store(first, Ordering::SeqCst);
    PROTECTED[1].store(end, Ordering::SeqCst);
    // SAFETY: whole pages of the world's pageable memory; the handler stays valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = serve as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
        for page in (first..end).step_by(SPARSE * PAGE) {
            libc::mprotect(page as *mut c_void, PAGE, libc::PROT_NONE);
        }
    }
}

/// Opens the touched page. Faults of the program happen only on its own threads and the driver's.
unsafe extern "C" fn serve(_: i32, information: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel calls it with valid arguments; the calls inside are safe in a handler.
    unsafe {
        let mut name = MaybeUninit::<[u8; 16]>::zeroed().assume_init();
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        let page = (*information).si_addr() as usize / PAGE * PAGE;
        let is_ours = (EVER[0].load(Ordering::SeqCst)..EVER[1].load(Ordering::SeqCst)).contains(&page);
        if !is_ours || name.starts_with(b"wm-") {
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
            return;
        }
        libc::mprotect(page as *mut c_void, PAGE, libc::PROT_READ | libc::PROT_WRITE);
    }
}

/// Opens all pages again. Returns whether some were protected.
fn open() -> bool {
    let [first, end] = [&PROTECTED[0], &PROTECTED[1]].map(|at| at.swap(0, Ordering::SeqCst));
    if end > first {
        // SAFETY: as in `protect`.
        unsafe { libc::mprotect(first as *mut c_void, end - first, libc::PROT_READ | libc::PROT_WRITE) };
    }
    end > first
}

/// Called between programs: no page faults, and no handler is installed.
pub(crate) fn release() {
    if open() {
        // SAFETY: there was no other handler, or this one replaced it.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    }
}
