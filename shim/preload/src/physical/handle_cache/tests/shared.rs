//! Hazard (data race): two threads change mappings of one handle at once, which NVIDIA's driver
//! does not bear; or calls of other threads wait for driver calls that do not concern them.
use std::collections::HashSet;
use std::sync::{Mutex, OnceLock};
use std::thread;

use super::super::shared::SharedHandles;
use super::*;

const ON_HOST: PieceKind = PieceKind { tier: Tier::Host, ..KIND };
const PIECES: u64 = 3;

type Hook = Box<dyn FnMut() + Send>;

/// The model for several threads. It fails a test where two calls have the same handle at once.
#[derive(Default)]
struct Threads {
    model: Mutex<Model>,
    in_calls: Mutex<HashSet<u64>>,
    /// Runs in each call.
    hook: Mutex<Option<Hook>>,
    cache: OnceLock<SharedHandles<&'static Self>>,
}

impl Threads {
    fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    fn cache(&'static self) -> &'static SharedHandles<&'static Self> {
        self.cache.get_or_init(|| SharedHandles::new(self))
    }

    fn call<R>(&self, handle: u64, call: impl FnOnce(&Model) -> R) -> R {
        assert!(self.in_calls.lock().expect("no panic").insert(handle), "{handle:#x}");
        let hook = self.hook.lock().expect("no panic").take();
        if let Some(mut hook) = hook {
            hook();
            *self.hook.lock().expect("no panic") = Some(hook);
        }
        thread::yield_now();
        let result = call(&self.model.lock().expect("no panic"));
        self.in_calls.lock().expect("no panic").remove(&handle);
        result
    }

    fn mapped_at(&self, address: u64) -> u64 {
        let model = self.model.lock().expect("no panic");
        let mapped = model.0.borrow();
        mapped.mapped.get(&address).map_or(0, |(handle, _)| *handle)
    }

    fn new_handle(&self, kind: PieceKind) -> u64 {
        self.model.lock().expect("no panic").new_handle(kind)
    }

    /// A lent piece that is mapped at an address with access.
    fn piece(&'static self, address: u64) -> u64 {
        let handle = self.new_handle(ON_HOST);
        let alias = self.cache().lock().lend(ON_HOST, handle);
        assert!(self.map(alias, address));
        alias
    }

    /// With access at once: memory that is unmapped elsewhere meanwhile cannot be mapped again.
    fn map(&'static self, alias: u64, address: u64) -> bool {
        let mut handles = self.cache().lock_for_in(alias, address, KIND.bytes);
        handles.map(address, KIND.bytes, alias) == Some(Ok(()))
            && handles.allow(address, KIND.bytes, &Access::from(ALL)) == Some(Ok(()))
    }

    /// Exchanges a piece for new memory, if no other thread changes it.
    fn exchange(&'static self, alias: u64) -> Option<u64> {
        let held = self.cache().lock_for(alias).held(alias)?;
        let handle = self.new_handle(KIND);
        let access = vec![Access::from(ALL); held.at.len()];
        let is_exchanged = self.cache().exchange(alias, &held, handle, &access);
        if !is_exchanged {
            Vmm::release(&self, handle).expect("it is nowhere mapped");
        }
        is_exchanged.then_some(handle)
    }
}

impl Vmm for &'static Threads {
    fn pool<T>(&self, device: CUdevice, change: impl FnOnce(&mut HandlePool) -> T) -> Option<T> {
        self.model.lock().expect("no panic").pool(device, change)
    }

    fn make(&self, kind: &PieceKind) -> Result<u64, CUresult> {
        Ok(self.new_handle(*kind))
    }

    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), CUresult> {
        self.call(handle, |model| model.map(address, bytes, handle))
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), CUresult> {
        self.call(self.mapped_at(address), |model| model.unmap(address, bytes))
    }

    fn release(&self, handle: u64) -> Result<(), CUresult> {
        self.call(handle, |model| model.release(handle))
    }

    fn allow(&self, address: u64, bytes: u64, access: &Access) -> Result<(), CUresult> {
        self.call(self.mapped_at(address), |model| model.allow(address, bytes, access))
    }
}

fn address(piece: u64, place: u64) -> u64 {
    0x10_0000_0000 + (piece * 8 + place) * KIND.bytes
}

#[test]
fn the_lock_is_free_during_the_driver_calls_of_an_exchange() {
    let threads = Threads::new();
    let alias = threads.piece(address(0, 0));
    assert!(threads.map(alias, address(0, 1)));
    let free: &'static Mutex<Vec<bool>> = Box::leak(Box::default());
    let is_free = || threads.cache().handles.try_lock().is_ok();
    *threads.hook.lock().expect("no panic") =
        Some(Box::new(move || free.lock().expect("no panic").push(is_free())));
    assert!(threads.exchange(alias).is_some());
    assert_eq!(*free.lock().expect("no panic"), [true; 7], "three calls for each place, and the release");
}

#[test]
fn a_piece_in_exchange_is_not_exchanged_a_second_time() {
    let threads = Threads::new();
    let alias = threads.piece(address(0, 0));
    let other = threads.piece(address(1, 0));
    let seen = threads.cache().lock().held(alias).expect("a piece");
    let second = threads.new_handle(KIND);
    let calls: &'static Mutex<usize> = Box::leak(Box::default());
    *threads.hook.lock().expect("no panic") = Some(Box::new(move || {
        *calls.lock().expect("no panic") += 1;
        let cache = threads.cache();
        assert!(cache.lock().is_in_exchange(alias) || *calls.lock().expect("no panic") == 4);
        assert!(!cache.exchange(alias, &seen, second, &[Access::from(ALL)]));
        assert!(!cache.lock_for(other).reaches_exchange(address(1, 0), 1), "others are used meanwhile");
    }));
    let first = threads.exchange(alias);
    assert!(first.is_some() && *calls.lock().expect("no panic") == 4);
    assert_eq!(threads.cache().lock_for(alias).bound(alias), first);
}

/// Each thread exchanges all pieces, and maps them at addresses of its own and unmaps them again.
#[test]
fn threads_that_use_the_same_pieces_never_have_one_handle_in_two_calls() {
    for _ in 0..20 {
        let threads = Threads::new();
        let aliases: Vec<u64> = (0..PIECES).map(|piece| threads.piece(address(piece, 0))).collect();
        thread::scope(|scope| {
            for place in 1..5 {
                let aliases = &aliases;
                scope.spawn(move || {
                    for (piece, alias) in (0..).zip(aliases.iter().cycle().take(30)) {
                        let at = address(piece % PIECES, place);
                        assert!(threads.map(*alias, at));
                        let _others_may_have_changed_it = threads.exchange(*alias);
                        let unmapped = threads.cache().lock_in(at, KIND.bytes).unmap(at, KIND.bytes);
                        assert_eq!(unmapped, Some(Ok(())));
                    }
                });
            }
        });
        for (piece, alias) in (0..).zip(aliases) {
            assert!(threads.exchange(alias).is_some(), "no thread changes it any more");
            let memory = threads.cache().lock_for(alias).bound(alias).expect("a piece");
            assert_eq!(threads.mapped_at(address(piece, 0)), memory);
        }
        let model = threads.model.lock().expect("no panic");
        let state = model.0.borrow();
        assert_eq!((state.handles.len(), state.mapped.len()), (PIECES as usize, PIECES as usize));
    }
}
