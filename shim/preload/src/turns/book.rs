//! What the threads of the program want, and what the broker has said of room. Pure.

use std::time::Duration;

use wm_abi::CUdevice;
use wm_schema::TurnStats;

/// How often a request may be told that there is room, and ask again before any request of the
/// process was met. Memory in parts may be of no use to a request.
const TRIES: u32 = 3;

/// Bytes of some devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeviceBytes(Vec<(CUdevice, u64)>);

impl DeviceBytes {
    fn add(&mut self, device: CUdevice, bytes: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == device) {
            Some((_, sum)) => *sum = sum.saturating_add(bytes),
            None => self.0.push((device, bytes)),
        }
    }

    pub(super) fn of(&self, device: CUdevice) -> u64 {
        self.0.iter().find(|(known, _)| *known == device).map_or(0, |(_, bytes)| *bytes)
    }

    pub(super) fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}

/// A thread waits for memory of a device.
#[derive(Debug)]
pub(super) struct RoomRequest {
    ticket: u64,
    pub(super) device: CUdevice,
    pub(super) bytes: u64,
    /// Is there room?
    pub(super) answer: Option<bool>,
}

/// What the broker has said of room for the ask that is under way.
#[derive(Debug, Default)]
pub(super) struct RoomNews {
    /// The order that told of room last; 0: none has yet.
    told: u64,
    seen: u64,
    /// The order after which there was too little room, and a thread waits for more; 0: none does.
    short: u64,
    pub(super) is_last: bool,
    /// An ask is under way: the broker will speak.
    is_asked: bool,
}

#[derive(Debug)]
pub(super) struct TurnBook {
    requests: Vec<RoomRequest>,
    last_ticket: u64,
    /// Answers that there is room since a number of allocations.
    hopes: (u64, u32),
    pub(super) room: RoomNews,
    /// There is no broker, so no other process gives way.
    pub(super) is_alone: bool,
    /// Given to the driver for the order that is under way.
    pub(super) given: DeviceBytes,
    /// The time for which memory has moved for the ask or the order that is under way.
    pub(super) moved: Duration,
    pub(super) figures: TurnStats,
}

impl TurnBook {
    pub(super) const fn new() -> Self {
        Self {
            requests: Vec::new(),
            last_ticket: 0,
            hopes: (0, 0),
            room: RoomNews { told: 0, seen: 0, short: 0, is_last: false, is_asked: false },
            is_alone: true,
            given: DeviceBytes(Vec::new()),
            moved: Duration::ZERO,
            figures: TurnStats {
                state: String::new(),
                has_broker: false,
                asks: 0,
                gave_way: 0,
                given_bytes: 0,
                wait_s: 0.0,
                longest_wait_s: 0.0,
            },
        }
    }

    /// A request, by its ticket. `None`: room was found for requests several times, and served none
    /// of them. `allocations`: those of the device so far; `None` if the request is not repeated.
    pub(super) fn request(&mut self, device: CUdevice, bytes: u64, allocations: Option<u64>) -> Option<u64> {
        if let Some(allocations) = allocations {
            if self.hopes.0 != allocations {
                self.hopes = (allocations, 0);
            }
            if self.hopes.1 >= TRIES {
                return None;
            }
        }
        self.last_ticket += 1;
        self.requests.push(RoomRequest { ticket: self.last_ticket, device, bytes, answer: None });
        Some(self.last_ticket)
    }

    /// The answer to a request, which ends with it. `is_over`: it waits no longer.
    pub(super) fn take_answer(&mut self, ticket: u64, is_over: bool) -> Option<bool> {
        let at = self.requests.iter().position(|request| request.ticket == ticket)?;
        let answer = self.requests[at].answer.or(is_over.then_some(false))?;
        self.requests.remove(at);
        self.hopes.1 += u32::from(answer);
        Some(answer)
    }

    /// Requests that have no answer yet.
    pub(super) fn unanswered(&mut self) -> impl Iterator<Item = &mut RoomRequest> {
        self.requests.iter_mut().filter(|request| request.answer.is_none())
    }

    /// Bytes that requests wait for.
    pub(super) fn requested(&self) -> DeviceBytes {
        let mut requested = DeviceBytes::default();
        for request in self.requests.iter().filter(|request| request.answer.is_none()) {
            requested.add(request.device, request.bytes);
        }
        requested
    }

    /// An ask begins.
    pub(super) fn begin_ask(&mut self) {
        (self.room, self.moved) = (RoomNews::default(), Duration::ZERO);
        self.room.is_asked = true;
    }

    /// It has ended, or no broker hears of it.
    pub(super) fn end_ask(&mut self) {
        self.room.is_asked = false;
    }

    /// An order says that there is room, or more than before.
    pub(super) fn tell_room(&mut self, order: u64, is_last: bool) {
        (self.room.told, self.room.short) = (order, 0);
        self.room.is_last |= is_last;
    }

    /// There will be no more room for what comes already.
    pub(super) fn end_room(&mut self) {
        self.room.is_last |= self.is_let_in();
    }

    /// The room that the last order has told of is too little.
    pub(super) fn is_short(&mut self) {
        self.room.short = self.room.told;
    }

    /// The order after which there was too little room.
    pub(super) fn short(&self) -> u64 {
        self.room.short
    }

    /// Has the broker spoken of room for the ask?
    pub(super) fn is_let_in(&self) -> bool {
        self.room.told > 0
    }

    /// May there be more room than when this was asked last? `None`: that is not known yet, and the
    /// broker is to hear that there was too little.
    pub(super) fn room_news(&mut self) -> Option<bool> {
        if self.room.told > self.room.seen {
            self.room.seen = self.room.told;
            return Some(true);
        }
        // An operator may let the process come back without an ask.
        if self.room.is_last || self.is_alone || !self.room.is_asked {
            return Some(false);
        }
        self.is_short();
        None
    }

    /// An order to give way begins.
    pub(super) fn begin_giving(&mut self) {
        self.given = DeviceBytes::default();
        self.moved = Duration::ZERO;
    }

    pub(super) fn gave(&mut self, device: CUdevice, bytes: u64) {
        self.given.add(device, bytes);
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (deadlock): a thread waits for room of which nothing more will be heard. Hazard
    //! (deadlock): a request asks for ever for room that is of no use to it.
    use super::*;

    #[test]
    fn who_waits_for_room_hears_of_each_news_once_and_of_the_end() {
        let mut book = TurnBook::new();
        book.is_alone = false;
        book.begin_ask();
        assert_eq!(book.room_news(), None);
        book.tell_room(5, false);
        assert_eq!((book.room_news(), book.short()), (Some(true), 0));
        assert_eq!((book.room_news(), book.short()), (None, 5));
        book.tell_room(7, true);
        assert_eq!(book.short(), 0);
        assert_eq!((book.room_news(), book.room_news()), (Some(true), Some(false)));
        book.begin_ask();
        assert_eq!(book.room_news(), None);
        book.is_alone = true;
        assert_eq!(book.room_news(), Some(false), "without a broker no other process gives way");
        book.is_alone = false;
        book.end_ask();
        assert_eq!(book.room_news(), Some(false), "the broker was not asked");
    }

    #[test]
    fn a_request_is_answered_once_and_not_hopeful_for_ever() {
        let mut book = TurnBook::new();
        for _ in 0..TRIES {
            let ticket = book.request(0, 8, Some(5)).expect("a ticket");
            assert_eq!((book.requested().of(0), book.requested().of(1)), (8, 0));
            assert_eq!(book.take_answer(ticket, false), None);
            book.unanswered().for_each(|request| request.answer = Some(true));
            assert_eq!((book.requested().sum(), book.take_answer(ticket, false)), (0, Some(true)));
            assert_eq!(book.take_answer(ticket, true), None);
        }
        assert_eq!(book.request(0, 8, Some(5)), None);
        let late = book.request(0, 8, Some(6)).expect("another one was met meanwhile");
        assert_eq!(book.take_answer(late, true), Some(false));
        assert_eq!(book.unanswered().count(), 0);
    }
}
