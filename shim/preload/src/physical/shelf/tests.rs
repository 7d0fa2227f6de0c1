//! Hazard: two of the program's pieces are one memory, a piece is not what was written to it, or memory is lost.
use std::cell::RefCell;
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const KIND: MemoryKind = MemoryKind { device: 0, bytes: 2 * MIB, handle_types: 1, rdma: false };
const ALL: [(CUdevice, u32); 1] = [(0, 3)];

/// A driver that knows what is mapped where, and refuses what the real one does.
#[derive(Default)]
struct Model(RefCell<State>);

#[derive(Default)]
struct State {
    handles: BTreeSet<u64>,
    mapped: BTreeMap<u64, (u64, bool)>,
    calls: usize,
    made: u64,
    /// Handles that cannot be mapped any more.
    spoiled: BTreeSet<u64>,
}

impl Model {
    fn new_handle(&self) -> u64 {
        let mut state = self.0.borrow_mut();
        state.made += 1;
        let handle = 0x7000_0000 + state.made;
        state.handles.insert(handle);
        handle
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
    fn make(&self, _: &MemoryKind) -> Result<u64, CUresult> {
        Ok(self.new_handle())
    }

    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), CUresult> {
        let mut state = self.0.borrow_mut();
        state.calls += 1;
        check(bytes == KIND.bytes && state.handles.contains(&handle) && !state.spoiled.contains(&handle))?;
        check(state.mapped.insert(address, (handle, false)).is_none())
    }

    /// As an H200 does: memory that is unmapped while it has no access somewhere else cannot be mapped again.
    fn unmap(&self, address: u64, bytes: u64) -> Result<(), CUresult> {
        let mut state = self.0.borrow_mut();
        state.calls += 1;
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
        check(state.handles.remove(&handle))
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

/// What PyTorch does with pages, by their numbers.
struct Program {
    model: Model,
    shelf: Shelf,
    pages: BTreeMap<u64, (u64, u64)>,
}

impl Program {
    fn new() -> Self {
        Self { model: Model::default(), shelf: Shelf::new(), pages: BTreeMap::new() }
    }

    fn address(page: u64) -> u64 {
        0x10_0000_0000 + page * KIND.bytes
    }

    fn map(&mut self, pages: std::ops::Range<u64>) {
        let tokens: Vec<u64> = pages
            .clone()
            .map(|_| match self.shelf.promise(KIND) {
                Some(token) => token,
                None => {
                    let handle = self.model.new_handle();
                    self.shelf.made(KIND, handle)
                }
            })
            .collect();
        for (page, token) in pages.clone().zip(tokens) {
            let address = Self::address(page);
            assert_eq!(self.shelf.map(&self.model, address, KIND.bytes, token), Some(Ok(())));
            let memory = self.shelf.handle(token).expect("bound when it is mapped");
            self.pages.insert(page, (token, memory));
        }
        let (start, bytes) = (Self::address(pages.start), (pages.end - pages.start) * KIND.bytes);
        assert_eq!(self.shelf.allow(&self.model, start, bytes, &Access::from(ALL)), Some(Ok(())));
    }

    fn unmap(&mut self, page: u64) {
        let (token, _) = self.pages.remove(&page).expect("mapped");
        assert_eq!(self.shelf.unmap(&self.model, Self::address(page), KIND.bytes), Some(Ok(())));
        assert_eq!(self.shelf.release(&self.model, token), Some(Ok(())));
        assert_eq!(self.shelf.release(&self.model, token), None);
    }

    /// Each page is still the memory that it was when it was mapped, and nobody else's.
    fn check(&self) {
        let mut seen = BTreeSet::new();
        for (page, (token, memory)) in &self.pages {
            assert_eq!(self.model.at(Self::address(*page)), Some(*memory));
            assert_eq!(self.shelf.handle(*token), Some(*memory));
            assert!(seen.insert(*memory), "two pages are one memory");
        }
        let idle = self.shelf.idle_bytes(0) / KIND.bytes;
        assert_eq!(self.model.0.borrow().handles.len() as u64, seen.len() as u64 + idle, "memory is lost");
    }
}

#[test]
fn what_repeats_itself_makes_no_call() {
    let mut program = Program::new();
    let mut calls = Vec::new();
    for _ in 0..4 {
        let before = program.model.calls();
        program.map(0..6);
        (0..6).for_each(|page| program.unmap(page));
        program.map(10..16);
        (10..16).for_each(|page| program.unmap(page));
        calls.push(program.model.calls() - before);
        program.check();
    }
    assert_eq!(calls[1..], [0, 0, 0]);
    assert_eq!(program.model.0.borrow().made, 6);
}

/// Hazard: what the driver has against one piece of memory is the program's.
#[test]
fn memory_that_cannot_be_mapped_any_more_is_replaced() {
    let mut program = Program::new();
    program.map(0..3);
    (0..3).for_each(|page| program.unmap(page));
    let spoiled = program.model.0.borrow().handles.clone();
    program.model.0.borrow_mut().spoiled = spoiled;
    program.map(5..8);
    program.check();
    assert_eq!(program.model.0.borrow().made, 6);
}

#[test]
fn what_was_shared_is_given_back_and_not_kept() {
    let mut program = Program::new();
    program.map(0..2);
    let (token, memory) = program.pages[&0];
    assert_eq!(program.shelf.share(token), Some(memory));
    program.shelf.share_at(Program::address(1) + 5);
    (0..2).for_each(|page| program.unmap(page));
    assert_eq!((program.shelf.idle_bytes(0), program.model.0.borrow().handles.len()), (0, 0));
    assert!(program.model.0.borrow().mapped.is_empty());
}

#[test]
fn a_token_is_released_before_it_is_unmapped_or_never_mapped() {
    let mut program = Program::new();
    program.map(0..1);
    let (token, _) = program.pages.remove(&0).expect("mapped");
    assert_eq!(program.shelf.release(&program.model, token), Some(Ok(())));
    assert_eq!(program.shelf.idle_bytes(0), 0, "it is mapped");
    assert_eq!(program.shelf.unmap(&program.model, Program::address(0), KIND.bytes), Some(Ok(())));
    assert_eq!(program.shelf.idle_bytes(0), KIND.bytes);
    let token = program.shelf.promise(KIND).expect("idle memory");
    assert_eq!((program.shelf.idle_bytes(0), program.shelf.promise(KIND)), (0, None));
    assert_eq!(program.shelf.give_back(&program.model, 0, u64::MAX), 0, "it is promised");
    assert_eq!(program.shelf.release(&program.model, token), Some(Ok(())));
    assert_eq!(program.shelf.give_back(&program.model, 0, 1), KIND.bytes);
    assert!(program.model.0.borrow().mapped.is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Map(u64, u64),
    Unmap(u64),
    GiveBack(u64),
    Clear(u64, u64),
    Share(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..24u64, 1..6u64).prop_map(|(page, count)| Step::Map(page, count)),
        6 => (0..30u64).prop_map(Step::Unmap),
        1 => (0..6u64).prop_map(Step::GiveBack),
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
                Step::Map(page, count) => {
                    let free: Vec<u64> = (page..page + count).take_while(|page| !program.pages.contains_key(page)).collect();
                    if let (Some(first), Some(last)) = (free.first(), free.last()) {
                        program.map(*first..last + 1);
                    }
                }
                Step::Unmap(page) if program.pages.contains_key(&page) => program.unmap(page),
                Step::GiveBack(count) => {
                    let given = program.shelf.give_back(&program.model, 0, count * KIND.bytes);
                    prop_assert!(given <= count * KIND.bytes);
                }
                Step::Clear(page, count) => {
                    prop_assert_eq!(program.shelf.clear(&program.model, Program::address(page), count * KIND.bytes), Ok(()));
                }
                Step::Share(page) => {
                    if let Some((token, memory)) = program.pages.get(&page) {
                        prop_assert_eq!(program.shelf.share(*token), Some(*memory));
                    }
                }
                Step::Unmap(_) => {}
            }
            program.check();
            prop_assert!(program.model.0.borrow().spoiled.is_empty());
        }
    }
}
