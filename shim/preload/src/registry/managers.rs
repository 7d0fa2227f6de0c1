//! The manager of each device, made at the first allocation there.
//!
//! Managers are leaked on purpose, also when their context ends: another thread may be inside one,
//! and blocks' addresses outlive contexts. A manager whose device has no context any more rests,
//! and serves the device again once it has a context: however often a program resets a device, its
//! managers hold resources of one.
//!
//! Invariant: a manager that is withdrawn is used through no context. A context is given to a
//! manager, and a manager is withdrawn, under one lock.

use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use wm_abi::CUdevice;
use wm_driver::lock;

/// Devices by ordinal; more than any machine has.
pub(super) const DEVICES: usize = 64;

/// A manager a device; in tests `M` is a model. All that are stored here live for ever.
#[derive(Debug)]
pub(super) struct Managers<M: 'static> {
    serving: [AtomicPtr<M>; DEVICES],
    /// No device from here on has a manager. A program has few devices, and the search for an
    /// address's owner asks each.
    end: AtomicUsize,
    /// Managers of devices without a context. They hold nothing.
    resting: [AtomicPtr<M>; DEVICES],
    /// No driver call is made under it.
    users: Mutex<()>,
}

impl<M> Managers<M> {
    pub(super) const fn new() -> Self {
        Self {
            serving: [const { AtomicPtr::new(std::ptr::null_mut()) }; DEVICES],
            end: AtomicUsize::new(0),
            resting: [const { AtomicPtr::new(std::ptr::null_mut()) }; DEVICES],
            users: Mutex::new(()),
        }
    }

    pub(super) fn existing(&self, device: CUdevice) -> Option<&'static M> {
        let slot = self.serving.get(usize::try_from(device).ok()?)?;
        // SAFETY: each stored pointer was a `&'static M`, so the pointer is null or valid.
        unsafe { slot.load(Ordering::Acquire).as_ref() }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &'static M> {
        (0..self.end.load(Ordering::Acquire) as CUdevice).filter_map(|device| self.existing(device))
    }

    /// Of two threads that made a manager at once, one wins; the other's has done nothing yet, and
    /// rests.
    pub(super) fn publish(&self, index: usize, manager: &'static M) -> &'static M {
        self.end.fetch_max(index + 1, Ordering::AcqRel);
        let null = std::ptr::null_mut();
        let fresh = std::ptr::from_ref(manager).cast_mut();
        match self.serving[index].compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => manager,
            Err(winner) => {
                self.resting[index].store(fresh, Ordering::Release);
                // SAFETY: not null, and a reference for ever, as in `existing`.
                unsafe { &*winner }
            }
        }
    }

    /// Ends the rest of the manager that the device had, whose contexts are all gone.
    pub(super) fn wake(&self, index: usize) -> Option<&'static M> {
        // SAFETY: null or a reference for ever, as in `existing`.
        unsafe { self.resting[index].swap(std::ptr::null_mut(), Ordering::AcqRel).as_ref() }
    }

    pub(super) fn rest(&self, device: CUdevice, manager: &'static M) {
        if let Some(slot) = usize::try_from(device).ok().and_then(|index| self.resting.get(index)) {
            slot.store(std::ptr::from_ref(manager).cast_mut(), Ordering::Release);
        }
    }

    /// The manager that `find` names, told by `adopt` of a context while it serves the device.
    /// `find` is asked again if the manager was withdrawn since it was found.
    pub(super) fn adopt(
        &self,
        device: CUdevice,
        find: impl Fn() -> Option<&'static M>,
        adopt: impl Fn(&M),
    ) -> Option<&'static M> {
        loop {
            let manager = find()?;
            let _users = lock(&self.users);
            if self.existing(device).is_some_and(|serving| std::ptr::eq(serving, manager)) {
                adopt(manager);
                return Some(manager);
            }
        }
    }

    /// Withdraws the device's manager if it `is_unused`.
    pub(super) fn withdraw(
        &self,
        device: CUdevice,
        is_unused: impl FnOnce(&M) -> bool,
    ) -> Option<&'static M> {
        let _users = lock(&self.users);
        let manager = self.existing(device).filter(|manager| is_unused(manager))?;
        self.serving.get(usize::try_from(device).ok()?)?.store(std::ptr::null_mut(), Ordering::Release);
        Some(manager)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (resource leak): a program resets a device again and again, and each reset leaves a
    //! manager behind.
    use std::cell::Cell;
    use std::sync::Barrier;

    use super::*;

    static MODELS: [u32; 2] = [0, 1];

    fn is(manager: Option<&'static u32>, model: usize) -> bool {
        manager.is_some_and(|manager| std::ptr::eq(manager, &MODELS[model]))
    }

    #[test]
    fn of_two_that_are_made_at_once_one_serves_and_the_other_is_used_later() {
        let managers = Managers::new();
        managers.publish(3, &MODELS[0]);
        assert!(is(Some(managers.publish(3, &MODELS[1])), 0), "the first one serves");
        assert!(is(managers.existing(3), 0) && managers.all().count() == 1);
        assert!(is(managers.wake(3), 1) && managers.wake(3).is_none());
    }

    #[test]
    fn a_withdrawn_manager_serves_again_after_its_rest() {
        let managers = Managers::new();
        managers.publish(0, &MODELS[0]);
        assert!(managers.withdraw(0, |_| false).is_none(), "it is used");
        assert!(is(managers.withdraw(0, |_| true), 0) && managers.withdraw(0, |_| true).is_none());
        assert!(managers.existing(0).is_none() && managers.wake(0).is_none(), "it does not rest yet");
        managers.rest(0, &MODELS[0]);
        assert!(is(managers.wake(0), 0));
    }

    /// Hazard (out-of-bounds access): a device number that no machine has.
    #[test]
    fn other_numbers_have_no_manager() {
        let managers = Managers::new();
        for device in [-1, DEVICES as CUdevice, CUdevice::MAX] {
            managers.rest(device, &MODELS[0]);
            assert!(managers.existing(device).is_none() && managers.withdraw(device, |_| true).is_none());
        }
    }

    /// Hazard (use after free): a thread has found the manager when another one ends it, and goes
    /// on in a manager that has freed all its blocks.
    #[test]
    fn a_context_goes_to_the_manager_that_serves_after_the_others_end() {
        let (managers, users) = (Managers::new(), [const { Cell::new(0) }; 2]);
        managers.publish(0, &MODELS[0]);
        let meanwhile = Cell::new(true);
        let find = || {
            let found = managers.existing(0);
            if meanwhile.take() {
                assert!(is(managers.withdraw(0, |model| users[*model as usize].get() == 0), 0));
                managers.publish(0, &MODELS[1]);
            }
            found
        };
        let adopt = |model: &u32| users[*model as usize].update(|count| count + 1);
        assert!(is(managers.adopt(0, find, adopt), 1), "the first one serves no more");
        assert_eq!(users.each_ref().map(Cell::get), [0, 1]);
        assert!(managers.withdraw(0, |model| users[*model as usize].get() == 0).is_none(), "it is used");
    }

    /// Both orders of an end and a first use, from threads.
    #[test]
    fn no_manager_ends_that_a_context_was_given_to() {
        static MANAGERS: Managers<AtomicUsize> = Managers::new();
        static MODEL: AtomicUsize = AtomicUsize::new(0);
        let find = || MANAGERS.existing(0).or_else(|| Some(MANAGERS.publish(0, &MODEL)));
        for _ in 0..2000 {
            MODEL.store(0, Ordering::Relaxed);
            MANAGERS.publish(0, &MODEL);
            let both = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    both.wait();
                    MANAGERS.withdraw(0, |model| model.load(Ordering::Relaxed) == 0)
                });
                both.wait();
                MANAGERS.adopt(0, find, |model| model.store(1, Ordering::Relaxed)).expect("it is found");
            });
            assert!(MANAGERS.existing(0).is_some(), "it was withdrawn although it is used");
        }
    }
}
