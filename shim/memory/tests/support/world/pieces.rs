//! Steps of a program that makes memory itself, which the manager moves as long as it is adopted.

use std::ops::Range;

use wm_driver::{Gpu, Handle, StreamId, Tier};
use wm_memory::{Charge, Disowned, MoveOrder, MoveRefusal, RangeMove, TierBytes, Usage};

use super::{Point, World};
use crate::support::model::{GRANULARITY, Model};

/// Memory that the program made itself, mapped at an address that it reserved.
pub(super) struct ProgramPiece {
    charge: Charge<'static, Model>,
    address: u64,
    bytes: u64,
    /// `None` while it is adopted.
    memory: Option<Handle>,
    uses: Vec<Point>,
    words: Vec<(u64, u64)>,
}

impl ProgramPiece {
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.address..self.address + self.bytes
    }

    pub(super) fn is_adopted(&self) -> bool {
        self.memory.is_none()
    }
}

impl World {
    /// Bytes that the driver keeps: small memory may use an eighth of the headroom.
    pub(super) fn kept_headroom(&self) -> u64 {
        self.settings.headroom - self.settings.headroom / 8 / GRANULARITY * GRANULARITY
    }

    /// Makes, reserves, maps and allows as the program does. `None`: there is no room.
    pub fn make_piece(&mut self, granules: u64, tier: Tier) -> Option<u64> {
        let bytes = granules * GRANULARITY;
        let charge = self.manager.charge(tier, bytes, true)?;
        let has_room = tier != Tier::Device || {
            let (free, _) = self.model().memory_info().expect("no failure");
            free >= self.settings.headroom + bytes
        };
        let memory = if has_room { self.model().create(tier, bytes as usize).ok()? } else { return None };
        charge.made(false);
        let address = self.model().reserve(bytes as usize).expect("no failure");
        self.model().map(address, bytes as usize, memory).expect("no failure");
        self.model().allow(address, bytes as usize).expect("no failure");
        let words = self.write_words(address, bytes);
        let piece = ProgramPiece { charge, address, bytes, memory: Some(memory), uses: Vec::new(), words };
        self.pieces.push(piece);
        Some(address)
    }

    pub(super) fn touch_piece(&mut self, index: usize, stream: StreamId) {
        let stream = self.current(stream);
        let Some(index) = index.checked_rem(self.pieces.len()) else { return };
        let writes = self.may_write_piece(index, stream);
        let (address, bytes) = (self.pieces[index].address, self.pieces[index].bytes);
        let model = self.manager.gpu();
        self.pieces[index].uses.iter().for_each(|(used, _)| model.program_order(*used, stream));
        let position = self.model().touch(stream, address, bytes);
        self.pieces[index].uses.push((stream, position));
        if writes {
            self.pieces[index].words = self.write_words(address, bytes);
        }
    }

    /// `false`: it is adopted already, or others rely on where memory is.
    pub fn adopt(&mut self, index: usize) -> bool {
        let Some(index) = index.checked_rem(self.pieces.len()) else { return false };
        let piece = &mut self.pieces[index];
        let before = self.manager.usage();
        let is_adopted = self.manager.adopt(&piece.charge, piece.address, piece.memory.unwrap_or(Handle(0)));
        if is_adopted {
            assert!(piece.memory.take().is_some(), "it is adopted twice");
        }
        let after = self.manager.usage();
        assert_eq!(
            (before.live, before.reserved, before.together),
            (after.live, after.reserved, after.together)
        );
        is_adopted
    }

    pub fn disown(&mut self, index: usize, fail: Option<(u64, u64)>) {
        let Some(index) = index.checked_rem(self.pieces.len()) else { return };
        let is_shared = self.manager.has_shared(self.pieces[index].address);
        // Copies that were given up are over, and that is not known yet.
        self.model().copies_take_long(false);
        fail.into_iter().for_each(|(k, count)| self.model().fail_in(k, count));
        let disowned = self.manager.disown(self.pieces[index].address);
        self.model().fail_no_more();
        if is_shared {
            assert_eq!(disowned, None, "its memory is not the program's alone");
            return;
        }
        let piece = &mut self.pieces[index];
        assert_eq!(disowned.is_some(), piece.memory.is_none());
        if let Some(Disowned { memory, tier }) = disowned {
            assert_eq!(tier, piece.charge.tier());
            assert_eq!(self.manager.gpu().resolve(piece.address, 1)[0].0, memory.0, "what lies there");
            piece.memory = Some(memory);
        }
        assert!(self.manager.block(piece.address).is_none());
    }

    pub(super) fn drop_piece(&mut self, index: usize) {
        let Some(index) = index.checked_rem(self.pieces.len()) else { return };
        self.model().copies_take_long(false);
        self.model().drain_all();
        // If there is no room for a private copy, the program is refused.
        if !self.unshare_piece(index, None) {
            return;
        }
        if self.pieces[index].memory.is_none() {
            self.disown(index, None);
        }
        let piece = self.pieces.swap_remove(index);
        let memory = piece.memory.expect("it is not adopted");
        let model = self.model();
        model.unmap(piece.address, piece.bytes as usize).expect("no failure");
        model.unreserve(piece.address, piece.bytes as usize).expect("no failure");
        model.release(memory).expect("no failure");
        self.manager.trim(u64::MAX);
    }

    /// Moves a piece, and a block to the tier that the piece leaves. Why the piece stays.
    pub fn move_piece(
        &mut self,
        index: usize,
        beside: usize,
        to: Tier,
        fail: Option<(u64, u64)>,
    ) -> Option<MoveRefusal> {
        let piece = &self.pieces[index.checked_rem(self.pieces.len())?];
        let range = piece.address..piece.address + piece.bytes;
        let other = if to == Tier::Device { Tier::Host } else { Tier::Device };
        let mut ranges = vec![RangeMove::new(MoveOrder::new(range, to), u64::MAX)];
        if let Some(beside) = beside.checked_rem(self.live.len()) {
            let live = &self.live[beside];
            let range = live.address..live.address + live.bytes;
            ranges.push(RangeMove::new(MoveOrder::new(range, other), u64::MAX));
        }
        let quiet = self.model().is_quiet();
        fail.into_iter().for_each(|(k, count)| self.model().fail_in(k, count));
        let refused = self.manager.swap(&mut ranges, || false).err();
        self.model().fail_no_more();
        let refusal = refused.or(ranges[0].moved.refusal);
        assert!(!matches!(refusal, Some(MoveRefusal::Lost(_))), "{refusal:?}");
        let bytes: u64 = ranges.iter().map(|range| range.moved.bytes).sum();
        assert!(quiet || bytes == 0, "memory moves while work may be touching it");
        let model = self.manager.gpu();
        self.live.iter_mut().for_each(|live| live.places = model.resolve(live.address, live.bytes));
        self.moved += bytes;
        refusal
    }

    pub(super) fn check_pieces(&self, usage: &Usage) {
        let (mut sum, mut own) = (TierBytes::default(), TierBytes::default());
        for piece in &self.pieces {
            sum = sum.plus(piece.charge.tiers());
            let is_shared = self.manager.has_shared(piece.address);
            own = own.plus(if is_shared { TierBytes::default() } else { piece.charge.tiers() });
            let found = self.model().tiers(piece.address, piece.bytes);
            assert_eq!(found.into_iter().collect::<Vec<_>>(), [(piece.charge.tier(), piece.bytes)]);
            let known = self.manager.block(piece.address + piece.bytes - 1);
            assert_eq!(known.map(|block| block.tiers), piece.memory.is_none().then(|| piece.charge.tiers()));
            assert!(!self.manager.owns(piece.address), "its addresses are the program's");
            piece.words.iter().for_each(|(at, word)| assert_eq!(self.model().read(*at), Some(*word)));
        }
        assert_eq!(usage.pieces.held, sum);
        assert_eq!(usage.together.live, usage.live.plus(sum));
        assert_eq!(usage.together.reserved, usage.reserved.plus(own), "what others have does not count");
    }
}
