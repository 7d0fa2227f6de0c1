//! Memory of other processes that is open here: its mappings, and how often each was opened.
//!
//! If one handle is opened twice, both calls give the same address, as the driver's do. A close
//! waits for the device before the mappings go: a kernel may still read them. Opened memory is
//! reached by the same devices as the blocks of the device on which it was opened; access that is
//! granted later is granted to open memory too.
//!
//! The lock covers the table only. Code that works on a mapping without the lock counts as one more
//! holder meanwhile.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use wm_abi::{CUdevice, CUdeviceptr, CUresult};
use wm_driver::lock;

use super::handle::Ticket;

/// An allocation of another process, opened on one device.
pub(super) type OpenKey = (Ticket, CUdevice);

/// A mapping of another process's block. It ends when it is dropped.
pub(super) trait ForeignMapping {
    /// Addresses of the block.
    fn range(&self) -> Range<u64>;
    /// Lets every device that may access the mapping's device use the mapping.
    fn allow(&self) -> Result<(), CUresult>;
    /// Waits until the device has no work.
    fn synchronize(&self) -> Result<(), CUresult>;
}

/// The open blocks of a process.
pub(super) struct OpenedBlocks<M> {
    open: Mutex<Option<OpenTable<M>>>,
    /// Mappings that were closed during a capture, when the device could not be waited for.
    left: Mutex<Vec<(CUdevice, Arc<M>)>>,
    /// How often access has been granted: tells a mapping that was made meanwhile.
    grants: AtomicU64,
}

type OpenTable<M> = HashMap<OpenKey, Opened<M>>;

struct Opened<M> {
    mapping: Arc<M>,
    holders: usize,
}

impl<M: ForeignMapping> OpenedBlocks<M> {
    pub(super) const fn new() -> Self {
        Self { open: Mutex::new(None), left: Mutex::new(Vec::new()), grants: AtomicU64::new(0) }
    }

    fn with_open<T>(&self, body: impl FnOnce(&mut OpenTable<M>) -> T) -> T {
        body(lock(&self.open).get_or_insert_default())
    }

    /// The address here of another process's block. `import` maps it, unless it is open already.
    pub(super) fn open<E>(
        &self,
        key: OpenKey,
        import: impl FnOnce() -> Result<M, E>,
    ) -> Result<CUdeviceptr, E> {
        if let Some(address) = self.with_open(|open| add_holder(open, &key)) {
            return Ok(address);
        }
        self.end_left();
        let granted = self.grants.load(Ordering::SeqCst);
        let address = self.insert(key, import()?);
        // The caller does not know the address yet, so the block cannot be closed meanwhile.
        if self.grants.load(Ordering::SeqCst) != granted
            && let Err(code) = self.allow(&key)
        {
            log::warn!("a device cannot reach memory of process {}: {code}", key.0.pid);
        }
        Ok(address)
    }

    /// If another thread has opened the same block meanwhile, its mapping stays, and `fresh` ends
    /// outside the lock.
    fn insert(&self, key: OpenKey, fresh: M) -> CUdeviceptr {
        let (address, _surplus) = self.with_open(|open| match add_holder(open, &key) {
            Some(address) => (address, Some(fresh)),
            None => {
                let address = fresh.range().start;
                open.insert(key, Opened { mapping: Arc::new(fresh), holders: 1 });
                (address, None)
            }
        });
        address
    }

    /// Removes one holder of an open block; `None` if no open block begins at the address.
    pub(super) fn close(&self, address: CUdeviceptr) -> Option<CUresult> {
        let begins = |(_, opened): &(&OpenKey, &Opened<M>)| opened.mapping.range().start == address;
        let key = self.with_open(|open| Some(*open.iter().find(begins)?.0))?;
        self.end_left();
        self.remove_holder(&key)
    }

    /// The last holder ends the mapping. `None`: the block is not open.
    fn remove_holder(&self, key: &OpenKey) -> Option<CUresult> {
        let last = self.with_open(|open| {
            let opened = open.get_mut(key)?;
            opened.holders -= 1;
            Some(if opened.holders == 0 { open.remove(key) } else { None })
        })?;
        Some(last.map_or(CUresult::SUCCESS, |opened| self.end(key.1, opened.mapping)))
    }

    /// Waits for the device, and unmaps.
    fn end(&self, device: CUdevice, mapping: Arc<M>) -> CUresult {
        match mapping.synchronize() {
            // During a capture no thread may wait. The mapping stays until one can.
            Err(CUresult::STREAM_CAPTURE_UNSUPPORTED) => {
                lock(&self.left).push((device, mapping));
                CUresult::SUCCESS
            }
            drained => drained.into(),
        }
    }

    /// Ends mappings that were closed during a capture.
    fn end_left(&self) {
        let left = std::mem::take(&mut *lock(&self.left));
        for (device, mapping) in left {
            // The program's close was answered already.
            let _ = self.end(device, mapping);
        }
    }

    /// Reads the mapping of the open block that contains an address.
    pub(super) fn find<T>(&self, address: u64, read: impl FnOnce(&M) -> T) -> Option<T> {
        self.with_open(|open| {
            let mut mappings = open.values().map(|opened| &*opened.mapping);
            mappings.find(|mapping| mapping.range().contains(&address)).map(read)
        })
    }

    /// The device's contexts are gone, and the mappings on it with them. Their work is over, so
    /// there is no wait.
    pub(super) fn end_device(&self, device: CUdevice) {
        let ended: Vec<Opened<M>> = self.with_open(|open| {
            open.extract_if(|(_, ordinal), _| *ordinal == device).map(|(_, opened)| opened).collect()
        });
        let left: Vec<_> = lock(&self.left).extract_if(.., |(ordinal, _)| *ordinal == device).collect();
        drop((ended, left));
    }

    /// Another device may access this device's memory from now on: grants it access to the blocks
    /// that are open there. The first error; the other blocks are tried all the same.
    pub(super) fn refresh_access(&self, device: CUdevice) -> Result<(), CUresult> {
        self.grants.fetch_add(1, Ordering::SeqCst);
        let held: Vec<OpenKey> = self.with_open(|open| {
            let there = open.iter_mut().filter(|((_, ordinal), _)| *ordinal == device);
            there.map(|(key, opened)| (opened.holders += 1, *key).1).collect()
        });
        let outcomes = held.iter().map(|key| {
            let outcome = self.allow(key);
            self.remove_holder(key);
            outcome
        });
        outcomes.fold(Ok(()), Result::and)
    }

    /// Grants access anew to a block that the caller holds.
    fn allow(&self, key: &OpenKey) -> Result<(), CUresult> {
        let mapping = self.with_open(|open| Some(open.get(key)?.mapping.clone()));
        mapping.map_or(Ok(()), |mapping| mapping.allow())
    }
}

fn add_holder<M: ForeignMapping>(open: &mut OpenTable<M>, key: &OpenKey) -> Option<CUdeviceptr> {
    let opened = open.get_mut(key)?;
    opened.holders += 1;
    Some(opened.mapping.range().start)
}

#[cfg(test)]
mod tests {
    //! Hazard (use after free): a mapping that ends while the program has it open, or while the
    //! device works. Hazard (leak): one that never ends.
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

    use super::super::key::ExporterKey;
    use super::*;

    /// The driver of the mappings of one test.
    #[derive(Default)]
    struct Model {
        mapped: AtomicUsize,
        granted: AtomicUsize,
        captures: AtomicBool,
    }

    struct Mapped(Arc<Model>, u64);

    impl ForeignMapping for Mapped {
        fn range(&self) -> Range<u64> {
            self.1..self.1 + 100
        }

        fn allow(&self) -> Result<(), CUresult> {
            self.0.granted.fetch_add(1, Relaxed);
            Ok(())
        }

        fn synchronize(&self) -> Result<(), CUresult> {
            let captures = self.0.captures.load(Relaxed);
            if captures { Err(CUresult::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            self.0.mapped.fetch_sub(1, Relaxed);
        }
    }

    #[derive(Default)]
    struct Fixture(Arc<Model>);

    impl Fixture {
        fn mapped(&self) -> usize {
            self.0.mapped.load(Relaxed)
        }

        fn map(&self, address: u64) -> Result<Mapped, CUresult> {
            self.0.mapped.fetch_add(1, Relaxed);
            Ok(Mapped(self.0.clone(), address))
        }

        fn open(&self, blocks: &OpenedBlocks<Mapped>, id: u64, device: CUdevice) -> CUdeviceptr {
            blocks.open(key(id, device), || self.map(id << 12)).expect("the model maps")
        }
    }

    fn key(id: u64, device: CUdevice) -> OpenKey {
        (Ticket { pid: 1, user: 1, key: ExporterKey([7; 16]), id, address: 0, bytes: 0 }, device)
    }

    #[test]
    fn the_last_close_ends_the_mapping() {
        let (fixture, blocks) = (Fixture::default(), OpenedBlocks::new());
        let address = fixture.open(&blocks, 1, 0);
        assert_eq!((fixture.open(&blocks, 1, 0), fixture.mapped()), (address, 1));
        assert!(blocks.find(address + 99, |_| ()).is_some() && blocks.find(address + 100, |_| ()).is_none());
        assert_eq!((blocks.close(address), fixture.mapped()), (Some(CUresult::SUCCESS), 1));
        assert_eq!((blocks.close(address), fixture.mapped()), (Some(CUresult::SUCCESS), 0));
        assert_eq!(blocks.close(address), None);
    }

    #[test]
    fn of_two_threads_that_map_at_once_the_first_wins() {
        let (fixture, blocks) = (Fixture::default(), OpenedBlocks::new());
        let address = blocks.open(key(1, 0), || {
            fixture.open(&blocks, 1, 0);
            fixture.map(5 << 12)
        });
        assert_eq!((address, fixture.mapped()), (Ok(1 << 12), 1));
        assert_eq!(blocks.with_open(|open| open[&key(1, 0)].holders), 2);
    }

    #[test]
    fn a_failed_import_leaves_nothing_open() {
        let (fixture, blocks) = (Fixture::default(), OpenedBlocks::<Mapped>::new());
        assert_eq!(blocks.open(key(1, 0), || Err(CUresult::INVALID_HANDLE)), Err(CUresult::INVALID_HANDLE));
        assert_eq!(fixture.open(&blocks, 1, 0), 1 << 12);
    }

    #[test]
    fn a_close_during_a_capture_unmaps_after_it() {
        let (fixture, blocks) = (Fixture::default(), OpenedBlocks::new());
        let address = fixture.open(&blocks, 1, 0);
        fixture.0.captures.store(true, Relaxed);
        assert_eq!((blocks.close(address), fixture.mapped()), (Some(CUresult::SUCCESS), 1));
        fixture.open(&blocks, 2, 0);
        assert_eq!(fixture.mapped(), 2, "the capture goes on");
        fixture.0.captures.store(false, Relaxed);
        fixture.open(&blocks, 3, 0);
        assert_eq!(fixture.mapped(), 2);
    }

    #[test]
    fn a_right_that_is_granted_during_an_import_reaches_its_mapping() {
        let (fixture, blocks) = (Fixture::default(), OpenedBlocks::new());
        fixture.open(&blocks, 1, 0);
        fixture.open(&blocks, 2, 1);
        blocks
            .open(key(3, 0), || {
                assert_eq!(blocks.refresh_access(0), Ok(()));
                fixture.map(3 << 12)
            })
            .expect("the model maps");
        assert_eq!(fixture.0.granted.load(Relaxed), 2, "the open one of device 0, and the new one");
        assert!(blocks.with_open(|open| open.values().all(|opened| opened.holders == 1)));
    }

    #[test]
    fn a_device_takes_its_mappings_along() {
        let (fixture, blocks) = (Fixture::default(), OpenedBlocks::new());
        let address = fixture.open(&blocks, 1, 0);
        fixture.open(&blocks, 2, 0);
        fixture.open(&blocks, 3, 1);
        fixture.0.captures.store(true, Relaxed);
        blocks.close(address);
        blocks.end_device(0);
        assert_eq!(fixture.mapped(), 1);
    }
}
