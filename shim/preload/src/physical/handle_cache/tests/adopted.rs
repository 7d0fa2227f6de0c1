//! Hazard (use after free): a piece moves while its former memory is mapped where the program has
//! given it up. Hazard (latency): memory is mapped anew for pieces that may move, and never do.
use wm_memory::Disowned;

use super::*;

impl Program {
    /// The manager may move these pages.
    fn adopt(&mut self, pages: std::ops::Range<u64>) {
        for page in pages {
            self.cache.let_move(self.pages[&page].0);
            let pieces = self.cache.adoptable(Self::address(page), KIND.bytes);
            assert_eq!(pieces.iter().map(|piece| piece.at).collect::<Vec<_>>(), [Self::address(page)]);
            self.cache.adopted(&pieces[0]);
            assert_eq!(self.cache.adopted_at(pieces[0].alias), Some(pieces[0].at));
        }
    }

    fn disown_and_unmap(&mut self, page: u64) {
        self.cache.disowned(self.pages[&page].0, None);
        self.unmap(page);
    }

    /// Where the memory of a page is mapped.
    fn mappings_of(&self, page: u64) -> Vec<u64> {
        let memory = self.pages[&page].1;
        let state = self.cache.vmm.0.borrow();
        state.mapped.iter().filter(|(_, view)| view.0 == memory).map(|(at, _)| *at).collect()
    }

    fn make_alone(&mut self, first: u64, end: u64) -> Result<(), CUresult> {
        self.cache.make_alone(first, end - first)
    }
}

/// The same pieces at one place and then at the other, four times.
fn at_two_places(program: &mut Program) -> Vec<usize> {
    let mut calls = Vec::new();
    for _ in 0..4 {
        let before = program.cache.vmm.calls();
        for pages in [0..6, 10..16] {
            program.map(pages.clone());
            program.adopt(pages.clone());
            program.check();
            pages.for_each(|page| program.disown_and_unmap(page));
        }
        calls.push(program.cache.vmm.calls() - before);
    }
    calls
}

#[test]
fn pieces_that_may_move_are_mapped_once_at_each_place() {
    let calls = at_two_places(&mut Program::new());
    assert_eq!(calls[1..], [0, 0, 0]);
}

#[test]
fn before_it_moves_a_piece_is_mapped_nowhere_else() {
    let mut program = Program::new();
    at_two_places(&mut program);
    program.map(0..6);
    program.adopt(0..6);
    assert!((0..6).all(|page| program.mappings_of(page).len() == 2));
    // From the middle of one to the beginning of another.
    let range = Program::address(1) + MIB..Program::address(3) + 1;
    program.make_alone(range.start, range.end).expect("the driver does it");
    let counts: Vec<usize> = (0..6).map(|page| program.mappings_of(page).len()).collect();
    assert_eq!(counts, [2, 1, 1, 1, 2, 2]);
    assert!((1..4).all(|page| program.mappings_of(page) == [Program::address(page)]));
    let before = program.cache.vmm.calls();
    program.make_alone(range.start, range.end).expect("there is nothing to do");
    assert_eq!(program.cache.vmm.calls(), before);
    program.check();
    // The manager has given one of them other memory meanwhile.
    let (alias, memory, kind) = program.pages[&2];
    let other = program.cache.vmm.new_handle(kind);
    program.cache.vmm.0.borrow_mut().mapped.insert(Program::address(2), (other, true));
    program.cache.vmm.0.borrow_mut().handles.remove(&memory);
    program.cache.disowned(alias, Some(Disowned { memory: wm_driver::Handle(other), tier: Tier::Device }));
    program.pages.insert(2, (alias, other, kind));
    program.check();
}

#[test]
fn a_piece_that_the_driver_leaves_mapped_elsewhere_is_not_to_move() {
    let mut program = Program::new();
    at_two_places(&mut program);
    program.map(0..2);
    program.adopt(0..2);
    program.cache.vmm.0.borrow_mut().fails_to_unmap = 1;
    let range = Program::address(0)..Program::address(2);
    assert_eq!(program.make_alone(range.start, range.end), Err(CUresult::UNKNOWN));
    assert_eq!(program.make_alone(range.start, range.end), Ok(()));
    assert!((0..2).all(|page| program.mappings_of(page).len() == 1));
    program.check();
}
