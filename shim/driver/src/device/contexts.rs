//! The contexts in which a device is used: they come and go while its memory stays.

use std::sync::PoisonError;

use wm_abi::CUcontext;

use super::Device;
use crate::streams::UnawareCall;

/// A context that does not end as long as this lives: a call that ends it waits
/// ([`Streams::await_unaware`](crate::Streams::await_unaware)). For calls that do not wait.
#[must_use]
pub(crate) struct HeldContext<'a> {
    pub(crate) context: CUcontext,
    _call: UnawareCall<'a>,
}

impl Device {
    /// The context through which the device is used: the eldest living one of those that are not
    /// about to be destroyed, or null. The driver does not check the handle of a destroyed context
    /// and may crash.
    pub fn context(&self) -> CUcontext {
        let contexts = self.contexts.read().unwrap_or_else(PoisonError::into_inner);
        contexts.first().copied().unwrap_or(CUcontext::NULL)
    }

    /// The same context, for calls in it.
    pub(crate) fn hold_context(&self) -> HeldContext<'_> {
        // In this order: a thread that ends a context announces that, and then looks for such
        // calls.
        let call = self.streams.unaware_call();
        HeldContext { context: self.context(), _call: call }
    }

    /// The device is used again after all its contexts had ended: through `context`, or if that is
    /// null, through the first adopted one.
    pub fn begin_again(&self, context: CUcontext) {
        self.spares.forget_pool();
        let mut contexts = self.contexts.write().unwrap_or_else(PoisonError::into_inner);
        *contexts = Vec::from_iter((!context.is_null()).then_some(context));
    }

    /// Is the device used through the context?
    pub fn is_used_through(&self, context: CUcontext) -> bool {
        self.contexts.read().unwrap_or_else(PoisonError::into_inner).contains(&context)
    }

    /// Another context of this device allocates: from now on frees wait for its work too. A green
    /// context is a part of another one, which is meant.
    pub fn adopt(&self, context: CUcontext) {
        let mut contexts = self.contexts.write().unwrap_or_else(PoisonError::into_inner);
        if !contexts.contains(&context) {
            contexts.push(context);
        }
    }

    /// A context is about to be destroyed: its events are not used until the driver has answered,
    /// and the device is used through another context if there is one.
    pub fn suspend_context(&self, context: CUcontext) {
        let mut contexts = self.contexts.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = contexts.iter().position(|known| *known == context) {
            contexts[at..].rotate_left(1);
        }
        drop(contexts);
        self.lock_events().suspend(context);
    }

    /// The driver refused to destroy the context.
    pub fn resume_context(&self, context: CUcontext) {
        self.lock_events().resume(context);
    }

    /// A context is gone: its events ended with it, and their work is over.
    pub fn forget_context(&self, context: CUcontext) {
        self.contexts.write().unwrap_or_else(PoisonError::into_inner).retain(|known| *known != context);
        self.lock_events().forget(context);
        self.spares.forget(context);
        self.copy_streams.forget(context);
    }

    pub(crate) fn known_contexts(&self) -> Vec<CUcontext> {
        self.contexts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
