//! From a stream that a call names to its context and manager. The meaning of a handle depends on
//! the thread and its current context.
//!
//! Every stream-ordered call goes through [`site_of_stream`]. If a thread names the stream of its
//! last call again, the answer comes from its cache ([`LastSite`]); for any other stream the driver
//! is asked.
//!
//! Invariants: the context of a [`NamedStream`] is the one that the stream's work runs in, whatever
//! context is current; its handle is never null. A cached answer is for the epoch in which it
//! was looked up, and for the thread's current context.

use wm_abi::{CU_STREAM_NON_BLOCKING, CUcontext, CUdevice, CUstream};
use wm_driver::{Api, StreamId};
use wm_memory::Order;

use super::devices::device_of;
use super::sites::{current_context, last_site, last_site_of, remember, site_in, site_of_context};
use super::tables::{any, existing};
use crate::process::{LastSite, Site, StreamKind, driver, streams};

/// A stream that a call names.
#[derive(Clone, Copy)]
pub(crate) struct NamedStream {
    pub(crate) context: CUcontext,
    /// Its handle; never null.
    pub(crate) stream: CUstream,
    pub(crate) id: StreamId,
    pub(crate) kind: StreamKind,
}

impl NamedStream {
    /// Which stream a handle means, whether the device has a manager or not. The null handle stands
    /// for `default`.
    pub(crate) fn of(stream: CUstream, default: CUstream) -> Option<Self> {
        let stream = if stream.is_null() { default } else { stream };
        resolve(current_context()?, stream)
    }

    pub(crate) fn order(&self) -> Order {
        Order::Stream(self.id)
    }

    /// Is a free in it an action that other streams are ordered with?
    #[inline]
    pub(crate) fn is_told_of_frees(&self) -> bool {
        self.kind != StreamKind::NonBlocking && streams().mixes()
    }

    /// The same for an allocation. The driver's own allocation in the legacy default stream is
    /// none.
    #[inline]
    pub(crate) fn is_told_of_allocations(&self) -> bool {
        matches!(self.kind, StreamKind::Blocking | StreamKind::PerThread) && streams().mixes()
    }
}

/// The site of work in `stream`, and which stream that is. The null handle stands for `default`.
#[inline]
pub(crate) fn site_of_stream(stream: CUstream, default: CUstream) -> Option<(Site, NamedStream)> {
    let stream = if stream.is_null() { default } else { stream };
    let context = current_context()?;
    match last_site(context) {
        Some(last) if last.stream == stream => {
            Some((last.site, NamedStream { context, stream, id: last.id, kind: last.kind }))
        }
        _ => look_up(context, stream),
    }
}

/// The device of work in `stream`, and which stream that is, if the device has a manager: none is
/// made for the question.
#[inline]
pub(crate) fn existing_device_of_stream(stream: CUstream) -> Option<(CUdevice, StreamId)> {
    match last_site_of(stream) {
        Some(last) => Some((last.site.device, last.id)),
        None => existing_device_in_context(stream),
    }
}

#[inline(never)]
fn existing_device_in_context(stream: CUstream) -> Option<(CUdevice, StreamId)> {
    let context = any().then(current_context)??;
    match last_site(context) {
        Some(last) if last.stream == stream => Some((last.site.device, last.id)),
        _ => {
            let device = device_of(context_of_stream(stream)?)?;
            existing(device)?;
            look_up(context, stream).map(|(site, named)| (site.device, named.id))
        }
    }
}

/// As [`site_of_stream`], for a stream that is not the one of the thread's last call. Remembers it
/// if it is of this context.
#[cold]
#[inline(never)]
fn look_up(context: CUcontext, stream: CUstream) -> Option<(Site, NamedStream)> {
    let epoch = streams().epoch() as u32;
    let named = resolve(context, stream)?;
    if named.context == context {
        let site = site_in(context)?;
        remember(LastSite { site, stream, id: named.id, epoch, kind: named.kind });
        return Some((site, named));
    }
    Some((site_of_context(named.context)?, named))
}

fn resolve(context: CUcontext, stream: CUstream) -> Option<NamedStream> {
    let (context, kind) = match stream {
        CUstream::LEGACY => (context, StreamKind::Legacy),
        CUstream::PER_THREAD => {
            streams().note_blocking();
            (context, StreamKind::PerThread)
        }
        stream => {
            let id = streams().identify_handle(stream, || context_of(stream))?;
            (streams().context(id)?, kind_of(stream)?)
        }
    };
    Some(NamedStream { context, stream, id: streams().identify(context, stream), kind })
}

/// The name of a stream that was met before; the driver is not asked. The null handle stands for
/// `default`.
pub(crate) fn known_stream(stream: CUstream, default: CUstream) -> Option<StreamId> {
    match if stream.is_null() { default } else { stream } {
        own @ (CUstream::LEGACY | CUstream::PER_THREAD) => streams().known(current_context()?, own),
        created => streams().known_handle(created),
    }
}

/// The context that a stream's work runs in.
pub(crate) fn context_of_stream(stream: CUstream) -> Option<CUcontext> {
    let is_default = matches!(stream, CUstream::LEGACY | CUstream::PER_THREAD);
    if is_default { current_context() } else { context_of(stream) }
}

/// The kind of a created stream.
fn kind_of(stream: CUstream) -> Option<StreamKind> {
    let flags = driver().stream_flags(stream).ok()?;
    Some(if flags & CU_STREAM_NON_BLOCKING == 0 { StreamKind::Blocking } else { StreamKind::NonBlocking })
}

fn context_of(stream: CUstream) -> Option<CUcontext> {
    driver().stream_ctx(stream).ok().filter(|context| !context.is_null())
}
