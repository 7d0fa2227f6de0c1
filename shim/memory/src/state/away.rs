//! Drafts of handles that lose their memory while a caller has their bytes, and get other memory
//! when they come back ([`crate::books::ledger`], `away`).
//!
//! Such a handle lies on the host, as far as blocks and pieces tell. Its memory counts as none, but
//! as that of a piece on the host where a piece has it.

use wm_driver::Tier;

use crate::books::ledger::{FormerMemory, OccupiedHandle};
use crate::policy::attempt::Room;
use crate::policy::swap::may_make;
use crate::state::State;
use crate::state::swap::{Swap, TakenFingerprints};
use crate::vocabulary::moves::MoveRefusal;
use crate::vocabulary::plan::Undo;
use crate::vocabulary::settings::Rules;
use crate::vocabulary::tiers::only;

impl State {
    /// Takes the handle that a live block lies on, to unmap its memory, also where other processes
    /// use that, too.
    pub(crate) fn draft_away(&mut self, address: u64) -> Result<Swap, MoveRefusal> {
        self.may_begin()?;
        let handle = self.occupied_handle(address)?;
        if handle.away || handle.unmapped.is_some() || matches!(handle.tier, Tier::Peer(_)) {
            return Err(MoveRefusal::Unfit);
        }
        self.may_change(&handle, Tier::Host, false)?;
        self.holdings.plan(&only(Tier::Host, handle.bytes()));
        self.holdings.ledger.hold(handle.key, true);
        self.under_way.begin_move();
        Ok(Swap { is_away: true, ..bare(handle, Tier::Host) })
    }

    /// Chooses memory for a handle that has none. Nothing is to be copied.
    pub(crate) fn draft_return(
        &mut self,
        address: u64,
        to: Tier,
        room: Room,
        rules: &Rules,
    ) -> Result<Swap, MoveRefusal> {
        self.may_begin()?;
        let handle = self.occupied_handle(address)?;
        if !handle.away {
            return Err(MoveRefusal::NoBlock);
        }
        if to == Tier::Device {
            self.may_change(&handle, to, false)?;
            return self.begin_swap(handle, to, Vec::new(), Some(room), rules, &TakenFingerprints::new());
        }
        if !rules.settings.overflow.contains(&to) {
            return Err(MoveRefusal::Unfit);
        }
        if !may_make(&self.facts(), room, rules, (to, handle.bytes())) {
            return Err(MoveRefusal::Full);
        }
        self.holdings.plan(&only(to, handle.bytes()));
        self.holdings.ledger.hold(handle.key, true);
        self.under_way.begin_move();
        Ok(bare(handle, to))
    }

    fn may_begin(&self) -> Result<(), MoveRefusal> {
        if self.fixed {
            return Err(MoveRefusal::Fixed);
        }
        if self.under_way.is_none_but(0) { Ok(()) } else { Err(MoveRefusal::Busy) }
    }

    /// The handle has lost its memory, or has some again: there is no memory that it had.
    pub(super) fn commit_away(&mut self, swap: &Swap, former: FormerMemory) -> FormerMemory {
        let ledger = &mut self.holdings.ledger;
        if swap.is_away || swap.handle.away {
            ledger.set_away(swap.handle.key, swap.is_away);
        }
        match former {
            FormerMemory::Idle(none) if swap.handle.away => {
                ledger.forget_bare(none);
                FormerMemory::None
            }
            former => former,
        }
    }

    /// A swap counts memory for each end; at one of these is none.
    pub(super) fn count_away(&mut self, swap: &Swap) {
        let bytes = swap.handle.bytes();
        match (swap.handle.adopted, swap.handle.away, swap.is_away) {
            (true, _, true) => self.away_pieces += bytes,
            (true, true, _) => self.away_pieces = self.away_pieces.saturating_sub(bytes),
            _ => {}
        }
        let is_counted = if swap.handle.adopted { swap.handle.away } else { swap.is_away };
        if is_counted {
            self.holdings.drop_held(&only(Tier::Host, bytes));
        }
    }

    /// The blocks of a handle without memory were freed: it is forgotten. Returns the steps that
    /// give its addresses up; `None`: no such handle is there.
    pub(crate) fn forget_away(&mut self, address: u64) -> Option<Vec<Undo>> {
        let key = self.holdings.ledger.left_away(address)?;
        Some(self.holdings.ledger.take_away(key))
    }
}

fn bare(handle: OccupiedHandle, to: Tier) -> Swap {
    let (occupied, parts, unmap_first) = (Vec::new(), Vec::new(), Vec::new());
    Swap { handle, to, spare: None, is_away: false, unmaps: false, occupied, parts, unmap_first }
}
