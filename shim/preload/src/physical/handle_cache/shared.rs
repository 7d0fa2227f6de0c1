//! The handle cache behind its lock, which other threads have while a piece is exchanged.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use wm_driver::lock;
use wm_memory::Disowned;

use super::{Access, HandleCache, HeldPiece, Vmm};

/// See above.
#[derive(Debug)]
pub(crate) struct SharedHandles<V> {
    pub(super) handles: Mutex<HandleCache<V>>,
    /// An exchange has ended.
    ended: Condvar,
    /// Threads that wait for that. Changes under the lock only.
    waiting: AtomicU32,
}

impl<V: Vmm + Clone> SharedHandles<V> {
    pub(crate) const fn new(vmm: V) -> Self {
        Self { handles: Mutex::new(HandleCache::new(vmm)), ended: Condvar::new(), waiting: AtomicU32::new(0) }
    }

    /// For uses that concern no single piece.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HandleCache<V>> {
        lock(&self.handles)
    }

    /// For a use of a piece: not while it is in exchange.
    pub(crate) fn lock_for(&self, alias: u64) -> MutexGuard<'_, HandleCache<V>> {
        self.lock_unless(|handles| handles.is_in_exchange(alias))
    }

    /// For a use of a range: not while memory that is mapped there is in exchange.
    pub(crate) fn lock_in(&self, address: u64, bytes: u64) -> MutexGuard<'_, HandleCache<V>> {
        self.lock_unless(|handles| handles.reaches_exchange(address, bytes))
    }

    /// For a mapping of a piece in a range.
    pub(crate) fn lock_for_in(&self, alias: u64, address: u64, bytes: u64) -> MutexGuard<'_, HandleCache<V>> {
        self.lock_unless(|handles| handles.is_in_exchange(alias) || handles.reaches_exchange(address, bytes))
    }

    /// Waits for driver calls of another thread, none of which waits for the GPU.
    fn lock_unless(&self, is_busy: impl Fn(&HandleCache<V>) -> bool) -> MutexGuard<'_, HandleCache<V>> {
        let mut handles = self.lock();
        while is_busy(&handles) {
            self.waiting.fetch_add(1, Relaxed);
            handles = self.ended.wait(handles).unwrap_or_else(PoisonError::into_inner);
            self.waiting.fetch_sub(1, Relaxed);
        }
        handles
    }

    /// The piece of an alias is the program's alone again, if it is adopted at an address. `leave`
    /// has the manager give it up, with the lock free: it may wait, and makes driver calls.
    pub(crate) fn disown(&self, alias: u64, leave: impl FnOnce(u64) -> Option<Disowned>) {
        let mut handles = self.lock_for(alias);
        let Some(at) = handles.adopted_at(alias) else { return };
        handles.in_exchange.push(alias);
        drop(handles);
        let _leaves = LeavesExchange { handles: self, alias };
        let left = leave(at);
        self.lock().disowned(alias, left);
    }

    /// The alias stands for the memory of `handle` on the device from now on, which has its bytes.
    /// `access`: the rights at each address where it is mapped. `false`: the program has changed
    /// the piece since it was `seen`, another thread exchanges it, or the driver has refused, and
    /// nothing is different. The lock is free during the driver's calls.
    pub(crate) fn exchange(&self, alias: u64, seen: &HeldPiece, handle: u64, access: &[Access]) -> bool {
        let mut handles = self.lock();
        let Some(mut exchange) = handles.begin_exchange(alias, seen, handle, access) else { return false };
        let vmm = handles.vmm.clone();
        drop(handles);
        let leaves = LeavesExchange { handles: self, alias };
        let is_exchanged = exchange.carry_out(&vmm);
        if is_exchanged {
            self.lock().end_exchange(&exchange);
        }
        drop(leaves);
        if is_exchanged {
            exchange.release(&vmm);
        }
        is_exchanged
    }
}

/// Ends a piece's exchange when it is dropped, also after a panic.
struct LeavesExchange<'a, V: Vmm + Clone> {
    handles: &'a SharedHandles<V>,
    alias: u64,
}

impl<V: Vmm + Clone> Drop for LeavesExchange<'_, V> {
    fn drop(&mut self) {
        let mut handles = self.handles.lock();
        handles.leave_exchange(self.alias);
        // To wake is a call of the system, for each piece that is unmapped.
        if self.handles.waiting.load(Relaxed) > 0 {
            self.handles.ended.notify_all();
        }
    }
}
