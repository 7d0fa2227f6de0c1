//! The living contexts that the program made, beside primary ones: the driver alone counts the
//! users of those.
//!
//! Invariant: while a call is under way that may end a context, no context is named here. The
//! thread that makes such a call announces it, and then waits for those that have asked before.

use std::sync::{Mutex, MutexGuard};

use wm_abi::CUcontext;
use wm_driver::lock;

/// What is known of the work in a context that the program made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContextKind {
    /// An event of the context covers it.
    Plain,
    /// It has a part of the GPU, or is used by graphics: whether an event of the context covers
    /// all of its work was not tested.
    Special,
}

#[derive(Debug, Clone, Copy)]
struct MadeContext {
    context: CUcontext,
    kind: ContextKind,
}

#[derive(Debug)]
struct Contexts {
    made: Vec<MadeContext>,
    /// Contexts that a call under way may end.
    ending: Vec<CUcontext>,
}

/// The contexts of a process that are not primary ones.
#[derive(Debug)]
pub(crate) struct LivingContexts {
    contexts: Mutex<Contexts>,
}

impl LivingContexts {
    pub(super) const fn new() -> Self {
        Self { contexts: Mutex::new(Contexts { made: Vec::new(), ending: Vec::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Contexts> {
        lock(&self.contexts)
    }

    /// The program made a context.
    pub(crate) fn add(&self, context: CUcontext, kind: ContextKind) {
        let mut contexts = self.lock();
        contexts.made.retain(|made| made.context != context);
        contexts.made.push(MadeContext { context, kind });
    }

    /// A call that may end a context is about to be made. [`wm_driver::Streams::await_unaware`]
    /// must follow.
    pub(super) fn suspend(&self, context: CUcontext) {
        self.lock().ending.push(context);
    }

    /// The context did not end.
    pub(super) fn resume(&self, context: CUcontext) {
        let ending = &mut self.lock().ending;
        if let Some(at) = ending.iter().position(|one| *one == context) {
            ending.swap_remove(at);
        }
    }

    /// The context has ended.
    pub(super) fn forget(&self, context: CUcontext) {
        self.lock().made.retain(|made| made.context != context);
        self.resume(context);
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.lock().made.len()
    }

    /// Does a context live of which the work is not known?
    pub(crate) fn has_special(&self) -> bool {
        self.lock().made.iter().any(|made| made.kind == ContextKind::Special)
    }

    /// Those that the program made. `None` while a context may be ending.
    pub(super) fn made(&self) -> Option<Vec<CUcontext>> {
        let contexts = self.lock();
        contexts.ending.is_empty().then(|| contexts.made.iter().map(|made| made.context).collect())
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (use after free): a context is asked for its work while another thread destroys it.
    use super::*;

    #[test]
    fn while_a_context_may_be_ending_none_is_named() {
        let living = LivingContexts::new();
        let [one, other] = [CUcontext(1), CUcontext(2)];
        living.add(one, ContextKind::Plain);
        living.add(other, ContextKind::Special);
        assert_eq!(living.made(), Some(vec![one, other]));
        living.suspend(one);
        living.suspend(other);
        assert_eq!(living.made(), None);
        living.resume(other);
        assert_eq!(living.made(), None, "the first may still be ending");
        living.forget(one);
        assert_eq!((living.made(), living.has_special()), (Some(vec![other]), true));
        living.forget(other);
        assert_eq!((living.made(), living.has_special()), (Some(Vec::new()), false));
    }

    #[test]
    fn a_handle_that_comes_again_is_the_new_contexts() {
        let living = LivingContexts::new();
        living.add(CUcontext(1), ContextKind::Special);
        living.add(CUcontext(1), ContextKind::Plain);
        assert_eq!((living.made(), living.has_special()), (Some(vec![CUcontext(1)]), false));
    }
}
