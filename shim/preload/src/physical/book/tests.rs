//! Hazard: memory that is counted although it is gone, or forgotten while the program still
//! uses it.
use std::cell::Cell;
use std::rc::Rc;

use super::*;

const MIB: u64 = 1 << 20;
const ASKED: Asked = Asked {
    device: 0,
    handle_types: 1,
    flags: CUmemAllocationFlags { compressionType: 0, gpuDirectRDMACapable: 1, usage: 0, reserved: [0; 4] },
};

/// Bytes of the device and of the host that are charged for pieces.
#[derive(Clone, Default)]
struct Charged(Rc<[Cell<u64>; 2]>);

/// A charge for 2 MiB.
struct ModelCharge(Charged, Tier);

impl Charged {
    fn on(&self, tier: Tier) -> &Cell<u64> {
        &self.0[usize::from(tier == Tier::Host)]
    }

    fn charge(&self, tier: Tier) -> Option<ModelCharge> {
        self.on(tier).set(self.on(tier).get() + 2 * MIB);
        Some(ModelCharge(self.clone(), tier))
    }

    fn held(&self) -> [u64; 2] {
        [Tier::Device, Tier::Host].map(|tier| self.on(tier).get())
    }
}

impl PieceCharge for ModelCharge {
    fn bytes(&self) -> u64 {
        2 * MIB
    }

    fn tier(&self) -> Tier {
        self.1
    }
}

impl Drop for ModelCharge {
    fn drop(&mut self) {
        self.0.on(self.1).set(self.0.on(self.1).get() - 2 * MIB);
    }
}

/// A book with one piece of 2 MiB behind handle 7.
fn one(tier: Tier) -> (Book<ModelCharge>, Charged) {
    let (mut book, charged) = (Book::new(), Charged::default());
    book.made(7, ASKED, tier, charged.charge(tier));
    (book, charged)
}

fn release(book: &mut Book<ModelCharge>, handle: u64) {
    let number = book.let_go(handle).expect("a handle of the book");
    book.settle(number);
}

#[test]
fn a_piece_lives_until_it_is_released_and_unmapped_in_either_order() {
    for unmap_first in [true, false] {
        let (mut book, charged) = one(Tier::Host);
        book.mapped(64 * MIB, 2 * MIB, 7);
        if unmap_first {
            book.unmapped(64 * MIB, 2 * MIB);
            assert_eq!((charged.held(), book.elsewhere(64 * MIB)), ([0, 2 * MIB], None));
            release(&mut book, 7);
        } else {
            release(&mut book, 7);
            assert_eq!(charged.held(), [0, 2 * MIB]);
            let view = MappedPiece { base: 64 * MIB, bytes: 2 * MIB, asked: ASKED };
            assert_eq!(book.elsewhere(66 * MIB - 1), Some(view));
            book.unmapped(0, 128 * MIB);
        }
        assert_eq!(charged.held(), [0, 0], "unmap first: {unmap_first}");
        assert!(book.pieces.is_empty() && book.handles.is_empty() && book.mappings.is_empty());
    }
}

/// Hazard (wrong report): the list lacks what the program holds, or has what another process
/// made.
#[test]
fn the_list_has_what_is_charged_with_every_mapping() {
    let (mut book, charged) = one(Tier::Host);
    book.made(8, ASKED, Tier::Device, charged.charge(Tier::Device));
    book.imported(9, ASKED, Tier::Device, false);
    for (address, handle) in [(70, 8), (64, 8), (80, 9)] {
        book.mapped(address * MIB, 2 * MIB, handle);
    }
    release(&mut book, 8);
    let listed: Vec<_> =
        book.listed().into_iter().map(|piece| (piece.number, piece.charge.1, piece.mappings)).collect();
    let both = vec![(64 * MIB, 2 * MIB), (70 * MIB, 2 * MIB)];
    assert_eq!(listed, [(1, Tier::Host, vec![]), (2, Tier::Device, both)]);
    book.unmapped(0, 128 * MIB);
    assert_eq!(book.listed().len(), 1, "what is neither held nor mapped is gone");
}

#[test]
fn the_longest_range_is_of_one_device_and_of_this_process() {
    let (mut book, charged) = one(Tier::Host);
    assert_eq!(book.longest_range(0), 0, "it is mapped nowhere");
    book.made(8, ASKED, Tier::Device, charged.charge(Tier::Device));
    book.made(9, Asked { device: 1, ..ASKED }, Tier::Device, charged.charge(Tier::Device));
    book.imported(10, ASKED, Tier::Device, false);
    for (address, handle) in [(0, 7), (8, 8), (10, 7), (12, 9), (14, 8), (16, 10)] {
        book.mapped(address * MIB, 2 * MIB, handle);
    }
    assert_eq!([0, 1, 2].map(|device| book.longest_range(device)), [4 * MIB, 2 * MIB, 0]);
}

/// The steps of pieces since the last call.
fn steps(book: &mut Book<ModelCharge>) -> Vec<(u64, PieceStep)> {
    let mut steps = Vec::new();
    book.tell(|events| steps.extend(events.iter().map(|event| (event.number, event.step))));
    steps
}

/// Hazard (wrong report): a recording in which memory is gone that the program still has, or
/// the other way round.
#[test]
fn each_step_of_a_charged_piece_is_told_once() {
    use PieceStep::*;
    let (mut book, _charged) = one(Tier::Host);
    assert_eq!(steps(&mut book), [(1, Made { bytes: 2 * MIB })]);
    book.mapped(64 * MIB, 2 * MIB, 7);
    book.mapped(66 * MIB, 2 * MIB, 7);
    assert!(book.held_again(7));
    release(&mut book, 7);
    assert_eq!(steps(&mut book), [(1, Mapped), (1, Mapped)], "one of two references is left");
    let number = book.let_go(7).expect("a reference");
    book.keep(7, number);
    assert_eq!(steps(&mut book), [(1, Released), (1, Held)]);
    release(&mut book, 7);
    book.retained(64 * MIB, 8);
    assert_eq!(steps(&mut book), [(1, Released), (1, Held)]);
    book.unmapping(64 * MIB, 4 * MIB);
    book.stays_mapped(64 * MIB, 4 * MIB);
    assert_eq!(steps(&mut book), [(1, Unmapped), (1, Unmapped), (1, Mapped), (1, Mapped)]);
    book.unmapping(64 * MIB, 4 * MIB);
    book.unmapped(64 * MIB, 4 * MIB);
    release(&mut book, 8);
    assert_eq!(steps(&mut book), [(1, Unmapped), (1, Unmapped), (1, Released)]);
    book.imported(9, ASKED, Tier::Device, false);
    book.mapped(64 * MIB, 2 * MIB, 9);
    assert_eq!(steps(&mut book), [], "another process made it");
}

#[test]
fn a_number_that_the_driver_gives_out_again_is_another_piece() {
    let (mut book, charged) = one(Tier::Host);
    book.mapped(64 * MIB, 2 * MIB, 7);
    release(&mut book, 7);
    book.made(7, ASKED, Tier::Device, charged.charge(Tier::Device));
    assert!(book.asked(7).is_none() && book.elsewhere(64 * MIB).is_some());
    release(&mut book, 7);
    assert_eq!(charged.held(), [0, 2 * MIB]);
}

#[test]
fn retained_and_imported_handles_are_references_and_a_failed_release_is_none() {
    let (mut book, charged) = one(Tier::Host);
    book.mapped(64 * MIB, 2 * MIB, 7);
    assert!(book.held_again(7) && !book.held_again(8));
    release(&mut book, 7);
    assert!(book.asked(7).is_some());
    let number = book.let_go(7).expect("held twice");
    book.keep(7, number);
    release(&mut book, 7);
    assert!(book.let_go(7).is_none());
    book.retained(65 * MIB, 9);
    book.retained(64 * MIB, 10);
    book.unmapped(64 * MIB, 2 * MIB);
    release(&mut book, 10);
    assert!(book.let_go(10).is_none(), "a handle is released as often as it was given");
    assert_eq!((charged.held(), book.asked(9).is_some()), ([0, 2 * MIB], true));
    release(&mut book, 9);
    assert_eq!(charged.held(), [0, 0]);
}

#[test]
fn what_is_imported_is_charged_to_nobody_and_stands_in_until_it_is_known_for_the_hosts() {
    let mut book = Book::<ModelCharge>::new();
    for (handle, tier) in [(7, Tier::Device), (8, Tier::Host)] {
        book.imported(handle, ASKED, tier, tier == Tier::Host);
        book.mapped(handle * 8 * MIB, 8 * MIB, handle);
    }
    assert!(book.asked(7).is_none() && book.asked(8).is_some());
    assert_eq!(book.borders(56 * MIB..72 * MIB), [64 * MIB]);
    book.disclose(65 * MIB, MIB);
    assert!(book.asked(8).is_none() && !book.reaches_elsewhere(56 * MIB, 16 * MIB));
    assert_eq!(book.borders(56 * MIB..72 * MIB), [64 * MIB], "wherever it is said to be");
    book.unmapped(56 * MIB, 16 * MIB);
    [7, 8].into_iter().for_each(|handle| release(&mut book, handle));
    assert!(book.pieces.is_empty() && book.handles.is_empty() && book.mappings.is_empty());
    // What the program made stays what it asked for.
    let (mut book, _charged) = one(Tier::Host);
    book.mapped(64 * MIB, 2 * MIB, 7);
    book.disclose(0, 128 * MIB);
    assert!(book.reaches_elsewhere(64 * MIB, 1));
}

#[test]
fn what_is_on_the_device_is_not_elsewhere() {
    let (mut book, charged) = one(Tier::Device);
    book.mapped(64 * MIB, 2 * MIB, 7);
    assert!(book.elsewhere(64 * MIB).is_none() && book.asked(7).is_none());
    assert!(!book.reaches_elsewhere(0, 128 * MIB));
    book.made(8, ASKED, Tier::Host, charged.charge(Tier::Host));
    book.mapped(66 * MIB, 2 * MIB, 8);
    assert!(book.reaches_elsewhere(64 * MIB, 4 * MIB) && book.reaches_elsewhere(67 * MIB, MIB));
    assert!(!book.reaches_elsewhere(64 * MIB, 2 * MIB) && !book.reaches_elsewhere(68 * MIB, MIB));
    assert_eq!(book.borders(65 * MIB..67 * MIB), [66 * MIB]);
    assert!(book.borders(64 * MIB..66 * MIB).is_empty() && book.borders(66 * MIB..70 * MIB).is_empty());
}

/// Hazard (corrupt input): another process gets other memory than the program has at an address.
#[test]
fn a_run_has_the_pieces_that_follow_each_other() {
    let charged = Charged::default();
    let mut book = Book::new();
    let other_device = Asked { device: 1, ..ASKED };
    let not_shareable = Asked { handle_types: 8, ..ASKED };
    for (handle, asked) in [(1, ASKED), (2, ASKED), (3, ASKED), (4, other_device), (5, not_shareable)] {
        book.made(handle, asked, Tier::Device, charged.charge(Tier::Device));
    }
    let at = |position: u64| 64 * MIB + position * 2 * MIB;
    for (position, handle) in [(0, 1), (1, 3), (2, 2), (3, 4), (5, 5)] {
        book.mapped(at(position), 2 * MIB, handle);
    }
    let run = |book: &Book<ModelCharge>, base| book.run(base).map(|run| run.pieces);
    let sizes = |numbers: &[u64]| Some(numbers.iter().map(|number| (*number, 2 * MIB)).collect::<Vec<_>>());
    assert_eq!(run(&book, at(0)), sizes(&[1, 3, 2]), "up to the other device's");
    assert_eq!(run(&book, at(1)), sizes(&[3, 2]));
    assert_eq!(run(&book, at(1) + 1), None, "no piece begins there");
    assert_eq!(run(&book, at(5)), None, "it has no descriptor");
    let first = book.run(at(0)).and_then(|run| run.first(4 * MIB)).expect("two pieces");
    assert_eq!((first.bytes(), first.address(1), first.address(3)), (4 * MIB, Some(at(1)), None));
    assert_eq!(book.run(at(0)).and_then(|run| run.first(3 * MIB)), None, "no piece ends there");
    assert_eq!(book.run(at(0)).and_then(|run| run.first(8 * MIB)), None, "so many are not there");
    book.unmapped(at(1), 2 * MIB);
    assert_eq!(run(&book, at(0)), sizes(&[1]), "up to the gap");
    book.mapped(at(1), MIB, 3);
    assert_eq!(run(&book, at(0)), sizes(&[1]), "not all of it is mapped");
}
