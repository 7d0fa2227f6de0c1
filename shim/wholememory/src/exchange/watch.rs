//! A look at the other ranks while this one waits for something else than a round, and the end of
//! an exchange that has failed elsewhere.

use std::sync::{PoisonError, TryLockError};

use super::link::RankLink;
use super::links::RankLinks;
use super::wire::RankFrame;
use super::{ExchangeState, RankExchange};
use crate::error::{Error, Result};

impl RankExchange {
    /// Are the other ranks there, as far as this one can see? A rank sees its leader. A leader sees
    /// the ranks that it hears, and tells the others of an end. Does not wait. After an error there
    /// are no more rounds.
    ///
    /// # Errors
    /// [`Error::Communication`] where a rank has ended or has broken off.
    pub fn check(&self) -> Result {
        self.is_own()?;
        // A round of another thread looks by itself.
        let Ok(mut state) = self.state.try_lock() else { return Ok(()) };
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        look(&state.links).inspect_err(|error| state.break_off(error))
    }

    /// Ends the exchange: the other ranks get an error from their next round or look.
    pub fn break_off(&self, error: &Error) {
        if self.is_own().is_err() {
            return;
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner).break_off(error);
    }

    /// The same, if no round is under way. Returns whether it was done.
    pub fn try_break_off(&self, error: &Error) -> bool {
        if self.is_own().is_err() {
            return true;
        }
        match self.state.try_lock() {
            Ok(mut state) => state.break_off(error),
            Err(TryLockError::Poisoned(state)) => state.into_inner().break_off(error),
            Err(TryLockError::WouldBlock) => return false,
        }
        true
    }
}

impl ExchangeState {
    fn break_off(&mut self, error: &Error) {
        if self.broken.is_none() {
            tell(&self.links, self.round.wrapping_add(1), error);
            self.broken = Some(error.clone());
        }
    }
}

fn look(links: &RankLinks) -> Result {
    if let Some(lost) = links.spokes.iter().find(|spoke| spoke.link.has_ended()) {
        let ranks = &lost.ranks;
        return Err(Error::Communication(match ranks[..] {
            [rank] => format!("rank {rank} has ended"),
            _ => format!("a rank of {ranks:?} has ended, or their machine"),
        }));
    }
    match &links.up {
        // Between rounds a leader says nothing but that there are no more.
        Some(up) if up.has_news() => Err(reason(up)),
        _ => Ok(()),
    }
}

/// Says to all that this rank reaches that there are no more rounds.
fn tell(links: &RankLinks, round: u32, error: &Error) {
    let refusal = RankFrame::refusal(round, error);
    for spoke in &links.spokes {
        // One that has ended hears nothing.
        let _gone = refusal.send(&spoke.link);
        spoke.link.shut_down();
    }
    if let Some(up) = &links.up {
        up.shut_down();
    }
}

/// Why the leader has spoken.
fn reason(up: &RankLink) -> Error {
    Error::Communication(match RankFrame::receive(up) {
        Ok(frame) => frame.call().to_owned(),
        Err(error) => format!("the rank that this one hears has ended or does not answer: {error}"),
    })
}
