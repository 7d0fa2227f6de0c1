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

use wm_abi::{
    CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_LOCATION_TYPE_DEVICE,
    CUdevice, CUmemAllocationFlags, CUmemAllocationProp, CUmemLocation,
};
use wm_driver::Tier;

use crate::events::{PieceEvent, PieceStep};

/// The properties that the program asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) device: CUdevice,
    /// `CU_MEM_HANDLE_TYPE_*` by which it wants to share the memory.
    pub(crate) handle_types: u32,
    pub(crate) flags: CUmemAllocationFlags,
}

impl Asked {
    /// The answer to a query for the properties of such a piece.
    pub(crate) fn property(self) -> CUmemAllocationProp {
        CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: self.handle_types,
            location: CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: self.device },
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: self.flags,
        }
    }
}

#[derive(Debug)]
struct Piece<C> {
    asked: Asked,
    tier: Tier,
    /// `None` for a piece that another process made, or this one imported again.
    charge: Option<C>,
    /// It was imported from where it is, and answers as if it were on its device.
    stands_in: bool,
    /// It is made as the manager makes memory, and answers as the program has asked for it.
    is_movable: bool,
    /// Through all handles.
    references: usize,
    mappings: usize,
}

impl<C> Piece<C> {
    fn new(asked: Asked, tier: Tier, charge: Option<C>, stands_in: bool) -> Self {
        Self { asked, tier, charge, stands_in, is_movable: false, references: 0, mappings: 0 }
    }
}

impl<C: PieceCharge> Piece<C> {
    /// Where it is now. Moves change the charge's.
    fn tier(&self) -> Tier {
        self.charge.as_ref().map_or(self.tier, C::tier)
    }

    /// Is it elsewhere, and answers as if it were on its device?
    fn is_displaced(&self) -> bool {
        self.tier() != Tier::Device && (self.charge.is_some() || self.stands_in)
    }

    /// Does it answer as it was asked for, and not as it is?
    fn answers(&self) -> bool {
        self.is_displaced() || self.is_movable
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
    pub(crate) asked: Asked,
}

/// A piece for the list of what the program holds.
#[derive(Debug)]
pub(crate) struct ListedPiece<'a, C> {
    /// No other piece of the process had it.
    pub(crate) number: u64,
    pub(crate) charge: &'a C,
    /// First addresses and sizes, in ascending order.
    pub(crate) mappings: Vec<(u64, u64)>,
}

/// Pieces that follow each other in memory, as another process gets them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PieceRun {
    /// The first one's address.
    pub(crate) base: u64,
    pub(crate) device: CUdevice,
    /// Their numbers and sizes.
    pub(crate) pieces: Vec<(u64, u64)>,
}

impl PieceRun {
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, bytes)| *bytes).sum()
    }

    /// The address of a piece.
    pub(crate) fn address(&self, index: usize) -> Option<u64> {
        let before = self.pieces.get(..index)?;
        Some(self.base + before.iter().map(|(_, bytes)| *bytes).sum::<u64>())
    }

    /// Its first pieces, if they have so many bytes.
    pub(crate) fn first(mut self, bytes: u64) -> Option<Self> {
        let ends = self.pieces.iter().scan(0, |end, (_, bytes)| {
            *end += bytes;
            Some(*end)
        });
        let count = ends.take_while(|end| *end <= bytes).count();
        self.pieces.truncate(count);
        (bytes > 0 && self.bytes() == bytes).then_some(self)
    }
}

/// Hashed without a random seed: the keys are the driver's numbers and ours, and a static needs a
/// const.
pub(super) type HandleMap<V> = HashMap<u64, V, BuildHasherDefault<DefaultHasher>>;

/// What a piece's charge tells.
pub(crate) trait PieceCharge {
    /// The piece's size.
    fn bytes(&self) -> u64;
    /// Where it is now.
    fn tier(&self) -> Tier;
}

/// All pieces of the process.
#[derive(Debug)]
pub(crate) struct Book<C> {
    pieces: HandleMap<Piece<C>>,
    handles: HandleMap<HeldHandle>,
    /// By first address.
    mappings: BTreeMap<u64, ProgramMapping>,
    last: u64,
    /// What became of pieces with a charge, since it was told.
    events: Vec<PieceEvent>,
}

impl<C: PieceCharge> Book<C> {
    pub(super) const fn new() -> Self {
        Self {
            pieces: HandleMap::with_hasher(BuildHasherDefault::new()),
            handles: HandleMap::with_hasher(BuildHasherDefault::new()),
            mappings: BTreeMap::new(),
            last: 0,
            events: Vec::new(),
        }
    }

    /// A piece was made. `charge` is `None` on a device whose memory is not counted.
    pub(crate) fn made(&mut self, handle: u64, asked: Asked, tier: Tier, charge: Option<C>) {
        let bytes = charge.as_ref().map_or(0, C::bytes);
        self.insert(handle, Piece::new(asked, tier, charge, false));
        self.note(self.last, PieceStep::Made { bytes });
    }

    /// The piece that was made last with this handle may be moved: it is not made quite as the
    /// program has asked for it.
    pub(crate) fn made_movable(&mut self, handle: u64) {
        if let Some(piece) = self.handles.get(&handle).and_then(|held| self.pieces.get_mut(&held.piece)) {
            piece.is_movable = true;
        }
    }

    /// Passes on what became of pieces since the last call of this.
    pub(super) fn tell(&mut self, told: impl FnOnce(&[PieceEvent])) {
        if !self.events.is_empty() {
            told(&self.events);
            self.events.clear();
        }
    }

    fn note(&mut self, number: u64, step: PieceStep) {
        if let Some(piece) = self.pieces.get(&number).filter(|piece| piece.charge.is_some()) {
            self.events.push(PieceEvent { device: piece.asked.device, number, step });
        }
    }

    /// The program got a handle for memory that another process made, or that it made itself and
    /// knows by another handle.
    pub(crate) fn imported(&mut self, handle: u64, asked: Asked, tier: Tier, stands_in: bool) {
        self.insert(handle, Piece::new(asked, tier, None, stands_in));
    }

    fn insert(&mut self, handle: u64, piece: Piece<C>) {
        self.last += 1;
        self.pieces.insert(self.last, piece);
        self.refer(handle, self.last);
    }

    /// The program got a handle that it may have already: one more reference, if it has. Says
    /// whether it has.
    pub(crate) fn held_again(&mut self, handle: u64) -> bool {
        let held = self.handles.get(&handle).copied();
        held.inspect(|held| self.hold(handle, held.piece)).is_some()
    }

    /// A piece has become memory of its device.
    pub(crate) fn came_home(&mut self, handle: u64, charge: C) {
        let number = self.handles.get(&handle).map(|held| held.piece);
        if let Some(piece) = number.and_then(|number| self.pieces.get_mut(&number)) {
            (piece.tier, piece.stands_in, piece.charge) = (Tier::Device, false, Some(charge));
            piece.is_movable = false;
        }
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

    /// One more reference to a piece, which it may have lost before.
    fn hold(&mut self, handle: u64, number: u64) {
        if self.pieces.get(&number).is_some_and(|piece| piece.references == 0) {
            self.note(number, PieceStep::Held);
        }
        self.refer(handle, number);
    }

    /// One more reference to a piece, through this handle.
    fn refer(&mut self, handle: u64, number: u64) {
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
        let piece = self.pieces.get_mut(&number)?;
        piece.references -= 1;
        if piece.references == 0 {
            self.note(number, PieceStep::Released);
        }
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
            self.note(held.piece, PieceStep::Mapped);
        }
    }

    /// Every mapping in a range is about to go. [`Book::unmapped`] or [`Book::stays_mapped`]
    /// follows.
    pub(crate) fn unmapping(&mut self, address: u64, bytes: u64) {
        self.note_inside(address, bytes, PieceStep::Unmapped);
    }

    /// No mapping in a range is gone: the driver refused.
    pub(crate) fn stays_mapped(&mut self, address: u64, bytes: u64) {
        self.note_inside(address, bytes, PieceStep::Mapped);
    }

    fn note_inside(&mut self, address: u64, bytes: u64, step: PieceStep) {
        let inside = self.mappings.range(address..address.saturating_add(bytes));
        let pieces: Vec<u64> = inside.map(|(_, mapping)| mapping.piece).collect();
        pieces.into_iter().for_each(|number| self.note(number, step));
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
        self.mapped_if(address, Piece::is_displaced)
    }

    /// The mapping that an address is in, if its piece answers as it was asked for.
    pub(crate) fn answering(&self, address: u64) -> Option<MappedPiece> {
        self.mapped_if(address, Piece::answers)
    }

    fn mapped_if(&self, address: u64, is_it: impl Fn(&Piece<C>) -> bool) -> Option<MappedPiece> {
        let (base, mapping) = self.mapping(address)?;
        let piece = self.pieces.get(&mapping.piece).filter(|piece| is_it(piece))?;
        Some(MappedPiece { base, bytes: mapping.bytes, asked: piece.asked })
    }

    /// The charge of the piece that is mapped at an address.
    pub(crate) fn charge_at(&self, address: u64) -> Option<&C> {
        let (_, mapping) = self.mapping(address)?;
        self.pieces.get(&mapping.piece)?.charge.as_ref()
    }

    /// The range around an address in which pieces follow each other without a gap.
    pub(crate) fn range_around(&self, address: u64) -> Option<Range<u64>> {
        let (base, mapping) = self.mapping(address)?;
        let mut range = base..base.saturating_add(mapping.bytes);
        for (at, mapping) in self.mappings.range(range.end..) {
            if *at != range.end {
                break;
            }
            range.end = at.saturating_add(mapping.bytes);
        }
        for (at, mapping) in self.mappings.range(..base).rev() {
            if at.saturating_add(mapping.bytes) != range.start {
                break;
            }
            range.start = *at;
        }
        Some(range)
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
        let tiers = pieces.map(|(at, mapping)| (*at, self.pieces.get(&mapping.piece).map(Piece::tier)));
        let tiers: Vec<_> = tiers.collect();
        tiers.windows(2).filter(|pair| pair[0].1 != pair[1].1).map(|pair| pair[1].0).collect()
    }

    /// The properties that were asked for, of a handle whose memory has others.
    pub(crate) fn asked(&self, handle: u64) -> Option<Asked> {
        self.piece_of(handle).filter(|piece| piece.answers()).map(|piece| piece.asked)
    }

    /// Is the memory of a handle not on its device?
    pub(crate) fn is_displaced(&self, handle: u64) -> bool {
        self.piece_of(handle).is_some_and(Piece::is_displaced)
    }

    fn piece_of(&self, handle: u64) -> Option<&Piece<C>> {
        self.pieces.get(&self.handles.get(&handle)?.piece)
    }

    /// The pieces that this process made, in that order, with their charges, and the addresses and
    /// sizes of their mappings.
    pub(crate) fn listed(&self) -> Vec<ListedPiece<'_, C>> {
        let mut mapped: HandleMap<Vec<(u64, u64)>> = HandleMap::default();
        for (address, mapping) in &self.mappings {
            mapped.entry(mapping.piece).or_default().push((*address, mapping.bytes));
        }
        let charged =
            self.pieces.iter().filter_map(|(number, piece)| Some((*number, piece.charge.as_ref()?)));
        let list = charged.map(|(number, charge)| ListedPiece {
            number,
            charge,
            mappings: mapped.remove(&number).unwrap_or_default(),
        });
        let mut all: Vec<_> = list.collect();
        all.sort_unstable_by_key(|piece| piece.number);
        all
    }

    /// Bytes of the longest range of a device in which charged pieces follow each other.
    pub(crate) fn longest_range(&self, device: CUdevice) -> u64 {
        let (mut longest, mut range) = (0, 0..0);
        for (address, mapping) in &self.mappings {
            let piece = self.pieces.get(&mapping.piece);
            if piece.is_none_or(|piece| piece.charge.is_none() || piece.asked.device != device) {
                continue;
            }
            let start = if *address == range.end { range.start } else { *address };
            range = start..address.saturating_add(mapping.bytes);
            longest = longest.max(range.end - range.start);
        }
        longest
    }

    /// The piece that is mapped at an address, and those behind it without a gap: of one device,
    /// made by this process, mapped as a whole, and such that descriptors of them can be passed on.
    pub(crate) fn run(&self, base: u64) -> Option<PieceRun> {
        let first = self.mappings.get(&base)?;
        let device = self.pieces.get(&first.piece)?.asked.device;
        let mut run = PieceRun { base, device, pieces: Vec::new() };
        let mut end = base;
        for (address, mapping) in self.mappings.range(base..) {
            let Some(piece) = self.pieces.get(&mapping.piece) else { break };
            let is_whole = piece.charge.as_ref().is_some_and(|charge| charge.bytes() == mapping.bytes);
            let is_shareable = piece.asked.handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR != 0;
            if *address != end || piece.asked.device != device || !is_whole || !is_shareable {
                break;
            }
            run.pieces.push((mapping.piece, mapping.bytes));
            end += mapping.bytes;
        }
        Some(run).filter(|run| !run.pieces.is_empty())
    }

    /// Is a piece mapped there?
    pub(crate) fn is_mapped(&self, address: u64) -> bool {
        self.mapping(address).is_some()
    }

    fn mapping(&self, address: u64) -> Option<(u64, ProgramMapping)> {
        let (base, mapping) = self.mappings.range(..=address).next_back()?;
        (address - base < mapping.bytes).then_some((*base, *mapping))
    }
}

#[cfg(test)]
mod tests;
