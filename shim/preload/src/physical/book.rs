//! The books of the program's own physical memory: pieces, their handles, and where they are
//! mapped. Pure data.
//!
//! A piece lives as long as the driver's: until its last reference is released *and* its last
//! mapping is gone. It holds a charge `C` until then: a value whose drop says that the piece's
//! bytes count no more. The driver may give a handle's number out again as soon as it is released,
//! while the piece is still mapped: pieces have numbers of their own.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ops::Range;

use wm_abi::{CUdevice, CUmemAllocationFlags};
use wm_driver::Tier;

/// The properties that the program asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) device: CUdevice,
    /// `CU_MEM_HANDLE_TYPE_*` by which it wants to share the memory.
    pub(crate) handle_types: u32,
    pub(crate) flags: CUmemAllocationFlags,
}

#[derive(Debug)]
struct Piece<C> {
    asked: Asked,
    tier: Tier,
    /// `None` for a piece that another process made, or this one imported again.
    charge: Option<C>,
    /// It is not on its device, and answers as if it were.
    stands_in: bool,
    /// Through all handles.
    references: usize,
    mappings: usize,
}

impl<C> Piece<C> {
    fn new(asked: Asked, tier: Tier, charge: Option<C>, stands_in: bool) -> Self {
        Self { asked, tier, charge, stands_in, references: 0, mappings: 0 }
    }
}

/// A handle that the program holds: the driver may have given it several for one piece.
#[derive(Debug, Clone, Copy)]
struct HeldHandle {
    piece: u64,
    references: usize,
}

#[derive(Debug, Clone, Copy)]
struct ProgramMapping {
    bytes: u64,
    piece: u64,
}

/// A mapping, as queries about its addresses see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MappedPiece {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) device: CUdevice,
}

/// Hashed without a random seed: the keys are the driver's numbers and ours, and a static needs a
/// const.
pub(super) type HandleMap<V> = HashMap<u64, V, BuildHasherDefault<DefaultHasher>>;

/// All pieces of the process.
#[derive(Debug)]
pub(crate) struct Book<C> {
    pieces: HandleMap<Piece<C>>,
    handles: HandleMap<HeldHandle>,
    /// By first address.
    mappings: BTreeMap<u64, ProgramMapping>,
    last: u64,
}

impl<C> Book<C> {
    pub(super) const fn new() -> Self {
        Self {
            pieces: HandleMap::with_hasher(BuildHasherDefault::new()),
            handles: HandleMap::with_hasher(BuildHasherDefault::new()),
            mappings: BTreeMap::new(),
            last: 0,
        }
    }

    /// A piece was made. `charge` is `None` on a device whose memory is not counted.
    pub(crate) fn made(&mut self, handle: u64, asked: Asked, tier: Tier, charge: Option<C>) {
        self.insert(handle, Piece::new(asked, tier, charge, tier != Tier::Device));
    }

    /// The program got a handle for memory that another process made, or that it made itself and
    /// knows by another handle.
    pub(crate) fn imported(&mut self, handle: u64, asked: Asked, tier: Tier, stands_in: bool) {
        self.insert(handle, Piece::new(asked, tier, None, stands_in));
    }

    fn insert(&mut self, handle: u64, piece: Piece<C>) {
        self.last += 1;
        self.pieces.insert(self.last, piece);
        self.hold(handle, self.last);
    }

    /// The program got a handle that it may have already: one more reference, if it has. Says
    /// whether it has.
    pub(crate) fn held_again(&mut self, handle: u64) -> bool {
        let held = self.handles.get(&handle).copied();
        held.inspect(|held| self.hold(handle, held.piece)).is_some()
    }

    /// The program knows imported memory in a range for the host's: it is what was exported, and
    /// stands in for nothing.
    pub(crate) fn disclose(&mut self, address: u64, bytes: u64) {
        let first = self.mapping(address).map_or(address, |(base, _)| base);
        for mapping in self.mappings.range(first..address.saturating_add(bytes)).map(|(_, mapping)| mapping) {
            if let Some(piece) = self.pieces.get_mut(&mapping.piece).filter(|piece| piece.charge.is_none()) {
                piece.stands_in = false;
            }
        }
    }

    /// The program asked for the handle of the memory at an address.
    pub(crate) fn retained(&mut self, address: u64, handle: u64) {
        if let Some((_, mapping)) = self.mapping(address) {
            self.hold(handle, mapping.piece);
        }
    }

    /// One more reference to a piece, through this handle.
    fn hold(&mut self, handle: u64, number: u64) {
        let Some(piece) = self.pieces.get_mut(&number) else { return };
        piece.references += 1;
        let held = self.handles.entry(handle).or_insert(HeldHandle { piece: number, references: 0 });
        // A handle of another piece is one that the driver has given out again.
        held.references = if held.piece == number { held.references + 1 } else { 1 };
        held.piece = number;
    }

    /// A reference is about to be released. Our number of its piece, for [`Book::settle`] or
    /// [`Book::keep`] after it.
    pub(crate) fn let_go(&mut self, handle: u64) -> Option<u64> {
        let held = self.handles.get_mut(&handle)?;
        let number = held.piece;
        held.references -= 1;
        if held.references == 0 {
            self.handles.remove(&handle);
        }
        self.pieces.get_mut(&number)?.references -= 1;
        Some(number)
    }

    /// The release failed.
    pub(crate) fn keep(&mut self, handle: u64, number: u64) {
        self.hold(handle, number);
    }

    /// Forgets a piece that is neither held nor mapped.
    pub(crate) fn settle(&mut self, number: u64) {
        let is_gone = |piece: &Piece<C>| piece.references == 0 && piece.mappings == 0;
        if self.pieces.get(&number).is_some_and(is_gone) {
            self.pieces.remove(&number);
        }
    }

    /// A handle was mapped.
    pub(crate) fn mapped(&mut self, address: u64, bytes: u64, handle: u64) {
        let Some(held) = self.handles.get(&handle).copied() else { return };
        if let Some(piece) = self.pieces.get_mut(&held.piece) {
            piece.mappings += 1;
            self.mappings.insert(address, ProgramMapping { bytes, piece: held.piece });
        }
    }

    /// Every mapping in a range is gone.
    pub(crate) fn unmapped(&mut self, address: u64, bytes: u64) {
        let inside = self.mappings.range(address..address.saturating_add(bytes));
        let gone: Vec<u64> = inside.map(|(at, _)| *at).collect();
        for mapping in gone.iter().filter_map(|at| self.mappings.remove(at)).collect::<Vec<_>>() {
            if let Some(piece) = self.pieces.get_mut(&mapping.piece) {
                piece.mappings = piece.mappings.saturating_sub(1);
            }
            self.settle(mapping.piece);
        }
    }

    /// The mapping that an address is in, if its piece answers for a device that it is not on.
    pub(crate) fn elsewhere(&self, address: u64) -> Option<MappedPiece> {
        let (base, mapping) = self.mapping(address)?;
        let piece = self.pieces.get(&mapping.piece).filter(|piece| piece.stands_in)?;
        Some(MappedPiece { base, bytes: mapping.bytes, device: piece.asked.device })
    }

    /// Does a range have a part that is not on its device?
    pub(crate) fn reaches_elsewhere(&self, address: u64, bytes: u64) -> bool {
        let inside = self.mappings.range(address..address.saturating_add(bytes));
        self.elsewhere(address).is_some() || inside.map(|(at, _)| *at).any(|at| self.elsewhere(at).is_some())
    }

    /// Addresses in a range, its first byte excepted, where a piece on another tier begins than the
    /// one before it is on.
    pub(crate) fn borders(&self, range: Range<u64>) -> Vec<u64> {
        let first = self.mapping(range.start).map_or(range.start, |(base, _)| base);
        let pieces = self.mappings.range(first..range.end.max(first));
        let tiers =
            pieces.map(|(at, mapping)| (*at, self.pieces.get(&mapping.piece).map(|piece| piece.tier)));
        let tiers: Vec<_> = tiers.collect();
        tiers.windows(2).filter(|pair| pair[0].1 != pair[1].1).map(|pair| pair[1].0).collect()
    }

    /// The properties that were asked for, of a handle that is not on its device.
    pub(crate) fn asked(&self, handle: u64) -> Option<Asked> {
        let piece = self.pieces.get(&self.handles.get(&handle)?.piece)?;
        piece.stands_in.then_some(piece.asked)
    }

    fn mapping(&self, address: u64) -> Option<(u64, ProgramMapping)> {
        let (base, mapping) = self.mappings.range(..=address).next_back()?;
        (address - base < mapping.bytes).then_some((*base, *mapping))
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: memory that is counted although it is gone, or forgotten while the program still
    //! uses it.
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    const MIB: u64 = 1 << 20;
    const ASKED: Asked = Asked {
        device: 0,
        handle_types: 1,
        flags: CUmemAllocationFlags {
            compressionType: 0,
            gpuDirectRDMACapable: 1,
            usage: 0,
            reserved: [0; 4],
        },
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
                let view = MappedPiece { base: 64 * MIB, bytes: 2 * MIB, device: 0 };
                assert_eq!(book.elsewhere(66 * MIB - 1), Some(view));
                book.unmapped(0, 128 * MIB);
            }
            assert_eq!(charged.held(), [0, 0], "unmap first: {unmap_first}");
            assert!(book.pieces.is_empty() && book.handles.is_empty() && book.mappings.is_empty());
        }
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
}
