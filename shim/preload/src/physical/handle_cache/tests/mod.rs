//! Hazard (use after free): two of the program's pieces are one memory, a piece is not what was
//! written to it, or memory is lost.
mod adopted;
mod ends;
mod exchanged;
mod shared;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use proptest::prelude::*;
use wm_driver::Tier;

use super::*;

const MIB: u64 = 1 << 20;
const KIND: PieceKind =
    PieceKind { device: 0, tier: Tier::Device, bytes: 2 * MIB, handle_types: 1, rdma: false };
const ALL: [(CUdevice, u32); 1] = [(0, 3)];

/// A driver that knows where handles are mapped, and refuses the calls that the real one refuses.
#[derive(Default)]
struct Model(RefCell<State>, RefCell<HandlePool>, Intruder);

/// Another thread, which reserves idle memory after so many changes of the pool.
#[derive(Default)]
struct Intruder {
    changes_left: Cell<Option<usize>>,
    has_reserved: Cell<bool>,
    /// It has ended the device's contexts.
    has_no_pool: Cell<bool>,
}

impl Intruder {
    fn changed(&self, pool: &mut HandlePool) {
        let left = self.changes_left.take();
        self.changes_left.set(left.and_then(|left| left.checked_sub(1)));
        if left == Some(0) {
            self.has_reserved.set(pool.reserve(KIND));
        }
    }
}

#[derive(Default)]
struct State {
    /// Each handle, and where its memory is.
    handles: BTreeMap<u64, Tier>,
    mapped: BTreeMap<u64, (u64, bool)>,
    calls: usize,
    made: u64,
    /// Handles that cannot be mapped any more.
    spoiled: BTreeSet<u64>,
    /// The next calls that unmap fail.
    fails_to_unmap: usize,
}

impl Model {
    fn new_handle(&self, kind: PieceKind) -> u64 {
        let mut state = self.0.borrow_mut();
        state.made += 1;
        let handle = 0x7000_0000 + state.made;
        state.handles.insert(handle, kind.tier);
        handle
    }

    fn idle(&self, tier: Tier) -> u64 {
        self.1.borrow().idle(tier)
    }

    fn calls(&self) -> usize {
        self.0.borrow().calls
    }

    /// The memory at an address, if it can be used.
    fn at(&self, address: u64) -> Option<u64> {
        self.0.borrow().mapped.get(&address).filter(|(_, allowed)| *allowed).map(|(handle, _)| *handle)
    }
}

fn check(holds: bool) -> Result<(), CUresult> {
    if holds { Ok(()) } else { Err(CUresult::INVALID_VALUE) }
}

impl Vmm for Model {
    fn pool<T>(&self, _: CUdevice, change: impl FnOnce(&mut HandlePool) -> T) -> Option<T> {
        if self.2.has_no_pool.get() {
            return None;
        }
        let mut pool = self.1.borrow_mut();
        let changed = change(&mut pool);
        self.2.changed(&mut pool);
        Some(changed)
    }

    fn make(&self, kind: &PieceKind) -> Result<u64, CUresult> {
        Ok(self.new_handle(*kind))
    }

    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), CUresult> {
        let mut state = self.0.borrow_mut();
        state.calls += 1;
        check(
            bytes == KIND.bytes && state.handles.contains_key(&handle) && !state.spoiled.contains(&handle),
        )?;
        check(state.mapped.insert(address, (handle, false)).is_none())
    }

    /// As an H200 does: memory that is unmapped while it has no access somewhere else cannot be
    /// mapped again.
    fn unmap(&self, address: u64, bytes: u64) -> Result<(), CUresult> {
        let mut state = self.0.borrow_mut();
        state.calls += 1;
        if let Some(left) = state.fails_to_unmap.checked_sub(1) {
            state.fails_to_unmap = left;
            return Err(CUresult::UNKNOWN);
        }
        let unmapped = state.mapped.remove(&address).filter(|_| bytes == KIND.bytes);
        let (handle, _) = unmapped.ok_or(CUresult::INVALID_VALUE)?;
        if state.mapped.values().any(|(other, allowed)| *other == handle && !allowed) {
            state.spoiled.insert(handle);
        }
        Ok(())
    }

    fn release(&self, handle: u64) -> Result<(), CUresult> {
        let mut state = self.0.borrow_mut();
        state.calls += 1;
        check(state.handles.remove(&handle).is_some())
    }

    fn allow(&self, address: u64, bytes: u64, _: &Access) -> Result<(), CUresult> {
        let mut state = self.0.borrow_mut();
        state.calls += 1;
        let range: Vec<u64> = state.mapped.range(address..address + bytes).map(|(at, _)| *at).collect();
        check(range.len() as u64 * KIND.bytes == bytes)?;
        range.iter().for_each(|at| state.mapped.get_mut(at).expect("just listed").1 = true);
        Ok(())
    }
}

/// PyTorch's calls for pages, by their numbers.
struct Program {
    cache: HandleCache<Model>,
    /// Alias, memory and kind of each.
    pages: BTreeMap<u64, (u64, u64, PieceKind)>,
}

impl Program {
    fn new() -> Self {
        Self { cache: HandleCache::new(Model::default()), pages: BTreeMap::new() }
    }

    fn reserve(&mut self, kind: PieceKind) -> Option<u64> {
        let is_reserved = self.cache.vmm.1.borrow_mut().reserve(kind);
        is_reserved.then(|| self.cache.reserve(kind))
    }

    fn address(page: u64) -> u64 {
        0x10_0000_0000 + page * KIND.bytes
    }

    fn map(&mut self, pages: std::ops::Range<u64>) {
        self.map_on(Tier::Device, pages);
    }

    fn map_on(&mut self, tier: Tier, pages: std::ops::Range<u64>) {
        let kind = KIND.on(tier);
        let aliases: Vec<u64> = pages
            .clone()
            .map(|_| match self.reserve(kind) {
                Some(alias) => alias,
                None => {
                    let handle = self.cache.vmm.new_handle(kind);
                    self.cache.made(kind, handle)
                }
            })
            .collect();
        for (page, alias) in pages.clone().zip(aliases) {
            let address = Self::address(page);
            assert_eq!(self.cache.map(address, KIND.bytes, alias), Some(Ok(())));
            let memory = self.cache.handle(alias).expect("bound when it is mapped");
            self.pages.insert(page, (alias, memory, kind));
        }
        let (start, bytes) = (Self::address(pages.start), (pages.end - pages.start) * KIND.bytes);
        assert_eq!(self.cache.allow(start, bytes, &Access::from(ALL)), Some(Ok(())));
    }

    fn unmap(&mut self, page: u64) {
        let (alias, ..) = self.pages.remove(&page).expect("mapped");
        assert_eq!(self.cache.unmap(Self::address(page), KIND.bytes), Some(Ok(())));
        assert_eq!(self.cache.release(alias), Some(Ok(())));
        assert_eq!(self.cache.release(alias), None);
    }

    /// Unmaps a page and maps it again at another address: it keeps its bytes.
    fn move_to(&mut self, page: u64, other: u64) {
        let found = self.pages.remove(&page).expect("mapped");
        assert_eq!(self.cache.unmap(Self::address(page), KIND.bytes), Some(Ok(())));
        let address = Self::address(other);
        assert_eq!(self.cache.map(address, KIND.bytes, found.0), Some(Ok(())));
        assert_eq!(self.cache.allow(address, KIND.bytes, &Access::from(ALL)), Some(Ok(())));
        self.pages.insert(other, found);
    }

    /// Each page is still the memory that it was when it was mapped, and has no other owner.
    fn check(&self) {
        let mut seen = BTreeSet::new();
        for (page, (alias, memory, kind)) in &self.pages {
            assert_eq!(
                self.cache.vmm.0.borrow().handles.get(memory),
                Some(&kind.tier),
                "it is on another tier"
            );
            assert_eq!(self.cache.vmm.at(Self::address(*page)), Some(*memory));
            assert_eq!(self.cache.handle(*alias), Some(*memory));
            assert!(seen.insert(*memory), "two pages are one memory");
        }
        for tier in [Tier::Device, Tier::Host] {
            let used = self.pages.values().filter(|(.., kind)| kind.tier == tier).count() as u64;
            let made = self.cache.vmm.0.borrow().handles.values().filter(|of| **of == tier).count() as u64;
            assert_eq!(made, used + self.cache.vmm.idle(tier) / KIND.bytes, "memory is lost");
        }
    }
}

#[test]
fn what_repeats_itself_makes_no_call() {
    let mut program = Program::new();
    let mut calls = Vec::new();
    for _ in 0..4 {
        let before = program.cache.vmm.calls();
        program.map(0..6);
        (0..6).for_each(|page| program.unmap(page));
        program.map(10..16);
        (10..16).for_each(|page| program.unmap(page));
        calls.push(program.cache.vmm.calls() - before);
        program.check();
    }
    assert_eq!(calls[1..], [0, 0, 0]);
    assert_eq!(program.cache.vmm.0.borrow().made, 6);
}

/// Hazard (latency): a device's manager makes host memory for moves, though as much lies idle here.
/// Hazard (use after free): it gets memory that is mapped, or that a piece was promised.
#[test]
fn idle_memory_of_the_host_leaves_for_the_manager_and_is_mapped_nowhere() {
    let mut program = Program::new();
    program.map_on(Tier::Host, 0..4);
    program.pages.values().for_each(|(alias, ..)| program.cache.let_move(*alias));
    program.map(4..5);
    let take = |program: &mut Program, bytes| program.cache.take_idle(0, bytes);
    assert_eq!(take(&mut program, KIND.bytes), None, "the program holds all of it");
    [0, 1, 2, 4].into_iter().for_each(|page| program.unmap(page));
    assert_eq!(take(&mut program, 2 * KIND.bytes), None, "of another size");
    let promised = program.reserve(KIND.on(Tier::Host)).expect("idle memory");
    program.cache.vmm.0.borrow_mut().fails_to_unmap = 1;
    assert_eq!(take(&mut program, KIND.bytes), None, "the driver refuses");
    assert_eq!(program.cache.vmm.idle(Tier::Host), 2 * KIND.bytes);
    let taken = [(); 3].map(|()| take(&mut program, KIND.bytes));
    let [Some(first), Some(second), None] = taken else { panic!("{taken:?}: the last one is promised") };
    let state = program.cache.vmm.0.borrow();
    let is_apart =
        |handle| state.handles.contains_key(&handle) && state.mapped.values().all(|it| it.0 != handle);
    assert!(first != second && is_apart(first) && is_apart(second));
    drop(state);
    assert_eq!(program.cache.map(Program::address(9), KIND.bytes, promised), Some(Ok(())));
    let held = program.cache.vmm.1.borrow().account().held;
    assert_eq!((held.host, program.cache.vmm.idle(Tier::Host)), (KIND.bytes, 0));
}

#[test]
fn idle_memory_that_no_manager_could_have_made_stays() {
    let mut program = Program::new();
    program.map_on(Tier::Host, 0..1);
    program.unmap(0);
    assert_eq!(program.cache.take_idle(0, KIND.bytes), None);
    program.check();
}

/// Hazard: where the device is full, a program that repeats itself pins host memory anew in every
/// step.
#[test]
fn what_repeats_itself_on_two_tiers_makes_no_call() {
    let mut program = Program::new();
    let mut calls = Vec::new();
    for _ in 0..4 {
        let before = program.cache.vmm.calls();
        program.map(0..4);
        program.map_on(Tier::Host, 4..6);
        program.check();
        (0..6).for_each(|page| program.unmap(page));
        program.check();
        calls.push(program.cache.vmm.calls() - before);
    }
    assert_eq!(calls[1..], [0, 0, 0]);
    assert_eq!(program.cache.vmm.0.borrow().made, 6);
}

/// Hazard: the driver's refusal of one piece of memory reaches the program.
#[test]
fn memory_that_cannot_be_mapped_any_more_is_replaced() {
    let mut program = Program::new();
    program.map(0..3);
    (0..3).for_each(|page| program.unmap(page));
    let spoiled = program.cache.vmm.0.borrow().handles.keys().copied().collect();
    program.cache.vmm.0.borrow_mut().spoiled = spoiled;
    program.map(5..8);
    program.check();
    assert_eq!(program.cache.vmm.0.borrow().made, 6);
}

#[test]
fn what_was_shared_is_given_back_and_not_kept() {
    let mut program = Program::new();
    program.map(0..2);
    let (alias, memory, _) = program.pages[&0];
    assert_eq!(program.cache.share(alias), Some(memory));
    program.cache.share_range(Program::address(1) + 5, 1);
    (0..2).for_each(|page| program.unmap(page));
    assert_eq!((program.cache.vmm.idle(Tier::Device), program.cache.vmm.0.borrow().handles.len()), (0, 0));
    assert!(program.cache.vmm.0.borrow().mapped.is_empty());
}

/// Hazard: a piece that is mapped again has the bytes of another one, which lies idle there.
#[test]
fn what_is_mapped_again_keeps_its_memory() {
    let mut program = Program::new();
    program.map(0..2);
    program.unmap(1);
    program.move_to(0, 1);
    program.check();
    // To where it was before, which costs no call but those that put it there.
    program.move_to(1, 0);
    program.check();
    let before = program.cache.vmm.calls();
    program.move_to(0, 0);
    assert_eq!(program.cache.vmm.calls(), before);
    program.check();
}

/// Hazard: another process has memory that is no longer the one that the program uses.
#[test]
fn what_was_shared_before_it_is_mapped_keeps_its_memory() {
    let mut program = Program::new();
    program.map(0..2);
    (0..2).for_each(|page| program.unmap(page));
    let alias = program.reserve(KIND).expect("idle memory");
    let shared = program.cache.share(alias).expect("a handle");
    for page in 0..2 {
        let address = Program::address(page);
        assert_eq!(program.cache.map(address, KIND.bytes, alias), Some(Ok(())));
        assert_eq!(program.cache.vmm.at(address), Some(shared));
    }
}

/// Hazard: a piece is taken for unmapped that the program has mapped.
#[test]
fn what_is_no_whole_number_of_pieces_is_the_drivers_to_answer() {
    let mut program = Program::new();
    program.map(0..2);
    let middle = Program::address(0) + MIB;
    for (address, bytes) in [(middle, KIND.bytes), (middle, 3 * MIB), (Program::address(0), 3 * MIB)] {
        assert_eq!(program.cache.unmap(address, bytes), None);
        assert_eq!(program.cache.allow(address, bytes, &Access::from(ALL)), None);
    }
    program.check();
}

#[test]
fn what_is_released_is_not_mapped_again() {
    let mut program = Program::new();
    program.map(0..1);
    let (alias, ..) = program.pages.remove(&0).expect("mapped");
    assert_eq!(program.cache.release(alias), Some(Ok(())));
    let again = program.cache.map(Program::address(1), KIND.bytes, alias);
    assert_eq!(again, Some(Err(CUresult::INVALID_VALUE)));
    assert_eq!((program.cache.bound(alias), program.cache.share(alias)), (None, None));
}

#[test]
fn an_alias_is_released_before_it_is_unmapped_or_never_mapped() {
    let mut program = Program::new();
    program.map(0..1);
    let (alias, ..) = program.pages.remove(&0).expect("mapped");
    assert_eq!(program.cache.release(alias), Some(Ok(())));
    assert_eq!(program.cache.vmm.idle(Tier::Device), 0, "it is mapped");
    assert_eq!(program.cache.unmap(Program::address(0), KIND.bytes), Some(Ok(())));
    assert_eq!(program.cache.vmm.idle(Tier::Device), KIND.bytes);
    let alias = program.reserve(KIND).expect("idle memory");
    assert_eq!((program.cache.vmm.idle(Tier::Device), program.reserve(KIND)), (0, None));
    assert_eq!(program.cache.give_back(0, Tier::Device, u64::MAX), 0, "it is reserved");
    assert_eq!(program.cache.release(alias), Some(Ok(())));
    assert_eq!(program.cache.give_back(0, Tier::Device, 1), KIND.bytes);
    assert!(program.cache.vmm.0.borrow().mapped.is_empty());
}

/// A program of which all idle memory is reserved maps an alias where other idle memory is mapped,
/// maps another one anywhere, and releases a piece, which is given back. Another thread reserves
/// idle memory after `changes` changes of the pool. `None`: it was too late.
fn with_an_intruder(changes: usize) -> Option<Program> {
    let mut program = Program::new();
    program.map(0..2);
    (0..2).for_each(|page| program.unmap(page));
    let [first, second] = [(); 2].map(|()| program.reserve(KIND).expect("idle memory"));
    let made = program.cache.vmm.new_handle(KIND);
    let third = program.cache.made(KIND, made);
    program.cache.vmm.2.changes_left.set(Some(changes));
    for (page, alias) in [(0, third), (9, first)] {
        assert_eq!(program.cache.map(Program::address(page), KIND.bytes, alias), Some(Ok(())), "{changes}");
    }
    assert!(!program.cache.vmm.2.has_reserved.get(), "all was reserved: {changes}");
    assert_eq!(program.cache.unmap(Program::address(0), KIND.bytes), Some(Ok(())));
    assert_eq!(program.cache.release(third), Some(Ok(())));
    let given = program.cache.give_back(0, Tier::Device, u64::MAX);
    let is_late = program.cache.vmm.2.changes_left.take().is_some();
    let others = program.cache.vmm.2.has_reserved.get().then(|| program.cache.reserve(KIND));
    assert_eq!(given, if others.is_some() { 0 } else { KIND.bytes }, "after {changes} changes");
    let unbound = [second].into_iter().chain(others);
    unbound.zip(10..).for_each(|(alias, page)| {
        let mapped = program.cache.map(Program::address(page), KIND.bytes, alias);
        assert_eq!(mapped, Some(Ok(())), "after {changes} changes");
    });
    (!is_late).then_some(program)
}

/// Hazard: a piece that was promised idle memory cannot be mapped, because that memory went
/// elsewhere when it was promised.
#[test]
fn what_is_reserved_in_the_middle_of_another_change_is_there() {
    let runs: Vec<Program> = (0..).map_while(with_an_intruder).collect();
    let count = |reserved| runs.iter().filter(|run| run.cache.vmm.2.has_reserved.get() == reserved).count();
    assert!(count(true) > 0 && count(false) > 0, "{} runs", runs.len());
}

#[derive(Debug, Clone)]
enum Step {
    Map(Tier, u64, u64),
    Unmap(u64),
    Move(u64, u64),
    GiveBack(Tier, u64),
    Clear(u64, u64),
    Share(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let tier = prop_oneof![Just(Tier::Device), Just(Tier::Host)];
    let step = prop_oneof![
        4 => (tier.clone(), 0..24u64, 1..6u64).prop_map(|(tier, page, count)| Step::Map(tier, page, count)),
        6 => (0..30u64).prop_map(Step::Unmap),
        2 => (0..30u64, 0..30u64).prop_map(|(page, other)| Step::Move(page, other)),
        1 => (tier, 0..6u64).prop_map(|(tier, count)| Step::GiveBack(tier, count)),
        1 => (0..24u64, 1..6u64).prop_map(|(page, count)| Step::Clear(page, count)),
        1 => (0..30u64).prop_map(Step::Share),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #[test]
    fn every_piece_is_its_own_memory_from_map_to_unmap(steps in steps()) {
        let mut program = Program::new();
        for step in steps {
            match step {
                Step::Map(tier, page, count) => {
                    let free: Vec<u64> = (page..page + count).take_while(|page| !program.pages.contains_key(page)).collect();
                    if let (Some(first), Some(last)) = (free.first(), free.last()) {
                        program.map_on(tier, *first..last + 1);
                    }
                }
                Step::Unmap(page) if program.pages.contains_key(&page) => program.unmap(page),
                Step::Move(page, other) => {
                    if program.pages.contains_key(&page) && (page == other || !program.pages.contains_key(&other)) {
                        program.move_to(page, other);
                    }
                }
                Step::GiveBack(tier, count) => {
                    let given = program.cache.give_back(0, tier, count * KIND.bytes);
                    prop_assert!(given <= count * KIND.bytes);
                }
                Step::Clear(page, count) => {
                    prop_assert_eq!(program.cache.clear(Program::address(page), count * KIND.bytes), Ok(()));
                }
                Step::Share(page) => {
                    if let Some((alias, memory, _)) = program.pages.get(&page) {
                        prop_assert_eq!(program.cache.share(*alias), Some(*memory));
                    }
                }
                Step::Unmap(_) => {}
            }
            program.check();
            prop_assert!(program.cache.vmm.0.borrow().spoiled.is_empty());
        }
    }
}
