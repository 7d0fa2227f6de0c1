//! Operations, and the plan of a group: the copies and the messages of its operations on one
//! communicator, over one block of memory of the host.
//!
//! The block has two parts: bytes that leave (`out`), and bytes that come (`into`). Copies from the
//! device fill the first, messages and local copies the second, copies to the device empty it.

use std::ops::Range;

use crate::abi::{Code, Outcome};
use crate::faults::Kind;
use crate::link::Message;
use crate::reduce::Reduction;
use crate::report::error;

/// An operation of a program, its arguments checked. Lengths are in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation {
    Send { from: u64, bytes: usize, peer: usize },
    Receive { to: u64, bytes: usize, peer: usize },
    Broadcast { from: u64, to: u64, bytes: usize, root: usize },
    AllGather { from: u64, to: u64, bytes: usize },
    AllReduce { from: u64, to: u64, bytes: usize, reduction: Reduction },
}

impl Operation {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Send { .. } => Kind::Send,
            Self::Receive { .. } => Kind::Receive,
            Self::Broadcast { .. } => Kind::Broadcast,
            Self::AllGather { .. } => Kind::AllGather,
            Self::AllReduce { .. } => Kind::AllReduce,
        }
    }

    fn is_collective(&self) -> bool {
        !matches!(self, Self::Send { .. } | Self::Receive { .. })
    }

    /// Its number among operations, less than 256: 0 for sends and receives.
    fn number(&self) -> u64 {
        match self {
            Self::Send { .. } | Self::Receive { .. } => 0,
            Self::Broadcast { .. } => 1,
            Self::AllGather { .. } => 2,
            Self::AllReduce { reduction, .. } => 3 + u64::from(reduction.number()),
        }
    }
}

/// A copy between the device and a part of the block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Staged {
    pub(crate) device: u64,
    pub(crate) bytes: Range<usize>,
}

/// The work of a group on one communicator.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) downloads: Vec<Staged>,
    pub(crate) uploads: Vec<Staged>,
    pub(crate) sends: Vec<Message>,
    pub(crate) receives: Vec<Message>,
    /// Copies inside of the block: from a part of `out` to one of `into`.
    local: Vec<(Range<usize>, Range<usize>)>,
    reductions: Vec<(Reduction, Range<usize>)>,
    /// Messages of the rank to itself that have no other half yet.
    own_sends: Vec<Range<usize>>,
    own_receives: Vec<Range<usize>>,
    /// The number of collectives of the communicator, with those of this group.
    pub(crate) collectives: u64,
    /// The lengths of both parts.
    pub(crate) out: usize,
    pub(crate) into: usize,
}

fn grow(length: &mut usize, bytes: usize) -> Range<usize> {
    let start = *length;
    *length += bytes;
    start..*length
}

/// A communicator's shape, seen by one of its ranks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

impl Shape {
    fn others(self) -> impl Iterator<Item = usize> {
        (0..self.size).filter(move |peer| *peer != self.rank)
    }
}

impl Plan {
    /// The plan of a group's operations. Collectives come first, in the order of the calls, because
    /// the order between them and sends is not the same at all ranks. `collectives` is the number
    /// of those that the communicator has had before.
    pub(crate) fn new(operations: &[Operation], shape: Shape, collectives: u64) -> Outcome<Self> {
        let mut plan = Self { collectives, ..Self::default() };
        let (collectives, pairs): (Vec<_>, Vec<_>) = operations.iter().partition(|it| it.is_collective());
        collectives.into_iter().chain(pairs).for_each(|operation| plan.add(operation, shape));
        plan.join_own()?;
        Ok(plan)
    }

    /// Messages whose tags differ do not belong together. The tag of a collective has its place in
    /// the order of collectives, so that a broadcast of another root is not taken for this one.
    fn tag(&mut self, operation: &Operation) -> u64 {
        let place = if operation.is_collective() { self.collectives << 8 } else { 0 };
        self.collectives += u64::from(operation.is_collective());
        place | operation.number()
    }

    fn add(&mut self, operation: &Operation, shape: Shape) {
        let tag = self.tag(operation);
        match *operation {
            Operation::Send { from, bytes, peer } => {
                let bytes = self.download(from, bytes);
                match peer == shape.rank {
                    true => self.own_sends.push(bytes),
                    false => self.sends.push(Message { peer, tag, bytes }),
                }
            }
            Operation::Receive { to, bytes, peer } => {
                let bytes = self.upload(to, bytes);
                match peer == shape.rank {
                    true => self.own_receives.push(bytes),
                    false => self.receives.push(Message { peer, tag, bytes }),
                }
            }
            Operation::Broadcast { from, to, bytes, root } if root == shape.rank => {
                let own = self.download(from, bytes);
                self.send_to_others(&own, tag, shape);
                let place = self.upload(to, bytes);
                self.local.push((own, place));
            }
            Operation::Broadcast { to, bytes, root, .. } => {
                let bytes = self.upload(to, bytes);
                self.receives.push(Message { peer: root, tag, bytes });
            }
            Operation::AllGather { from, to, bytes } => {
                let all = self.upload(to, bytes * shape.size);
                self.gather(from, bytes, all.start, tag, shape);
            }
            Operation::AllReduce { from, to, bytes, reduction } => {
                let slots = grow(&mut self.into, bytes * shape.size);
                self.gather(from, bytes, slots.start, tag, shape);
                let result = self.upload(to, bytes);
                self.reductions.push((reduction, slots.start..result.end));
            }
        }
    }

    fn download(&mut self, device: u64, length: usize) -> Range<usize> {
        let bytes = grow(&mut self.out, length);
        self.downloads.push(Staged { device, bytes: bytes.clone() });
        bytes
    }

    fn upload(&mut self, device: u64, length: usize) -> Range<usize> {
        let bytes = grow(&mut self.into, length);
        self.uploads.push(Staged { device, bytes: bytes.clone() });
        bytes
    }

    fn send_to_others(&mut self, bytes: &Range<usize>, tag: u64, shape: Shape) {
        self.sends.extend(shape.others().map(|peer| Message { peer, tag, bytes: bytes.clone() }));
    }

    /// Each rank's bytes into the slot of its number, the first slot at `start`.
    fn gather(&mut self, from: u64, bytes: usize, start: usize, tag: u64, shape: Shape) {
        let slot = |rank: usize| start + rank * bytes..start + (rank + 1) * bytes;
        let own = self.download(from, bytes);
        self.send_to_others(&own, tag, shape);
        self.receives.extend(shape.others().map(|peer| Message { peer, tag, bytes: slot(peer) }));
        self.local.push((own, slot(shape.rank)));
    }

    /// Joins the rank's messages to itself, in the order of the calls.
    fn join_own(&mut self) -> Outcome {
        let (sends, receives) = (std::mem::take(&mut self.own_sends), std::mem::take(&mut self.own_receives));
        let text = match sends.len().cmp(&receives.len()) {
            std::cmp::Ordering::Less => "Trying to recv to self without a matching send",
            std::cmp::Ordering::Greater => "Trying to send to self without a matching recv",
            std::cmp::Ordering::Equal if sends.iter().zip(&receives).all(|(s, r)| s.len() == r.len()) => {
                self.local.extend(sends.into_iter().zip(receives));
                return Ok(());
            }
            std::cmp::Ordering::Equal => "A send to self and its recv differ in their lengths",
        };
        Err(error(Code::INVALID_USAGE, text))
    }

    /// The copies inside of the block.
    pub(crate) fn copy_local(&self, out: &[u8], into: &mut [u8]) {
        for (from, to) in &self.local {
            into[to.clone()].copy_from_slice(&out[from.clone()]);
        }
    }

    /// The reductions, once all messages have come.
    pub(crate) fn reduce(&self, into: &mut [u8], size: usize) {
        for (reduction, range) in &self.reductions {
            reduction.apply(&mut into[range.clone()], size);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (API conformance): an operation of a group moves other bytes than the call says.
    use super::*;

    const SHAPE: Shape = Shape { rank: 1, size: 3 };

    #[test]
    fn bytes_to_the_rank_itself_are_joined_in_the_order_of_the_calls() {
        let operations = [
            Operation::Send { from: 1, bytes: 4, peer: 1 },
            Operation::Receive { to: 2, bytes: 4, peer: 1 },
            Operation::Receive { to: 3, bytes: 2, peer: 1 },
            Operation::Send { from: 4, bytes: 2, peer: 1 },
        ];
        let plan = Plan::new(&operations, SHAPE, 0).expect("valid");
        assert!(plan.sends.is_empty() && plan.receives.is_empty());
        let mut into = [0; 6];
        plan.copy_local(&[1, 2, 3, 4, 5, 6], &mut into);
        assert_eq!(into, [1, 2, 3, 4, 5, 6]);
        for wrong in [&operations[..1], &operations[1..2], &operations[1..2], &[operations[0], operations[2]]]
        {
            assert_eq!(Plan::new(wrong, SHAPE, 0).err(), Some(Code::INVALID_USAGE));
        }
    }

    #[test]
    fn a_gather_has_a_message_to_and_from_each_other_rank() {
        let plan = Plan::new(&[Operation::AllGather { from: 1, to: 2, bytes: 8 }], SHAPE, 0).expect("valid");
        assert_eq!(plan.sends.iter().map(|it| it.peer).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(plan.receives.iter().map(|it| it.bytes.clone()).collect::<Vec<_>>(), [0..8, 16..24]);
        assert_eq!((plan.out, plan.into, plan.uploads.len()), (8, 24, 1));
    }

    #[test]
    fn collectives_precede_sends_in_every_order_of_the_calls() {
        let send = Operation::Send { from: 1, bytes: 4, peer: 0 };
        let gather = Operation::AllGather { from: 1, to: 2, bytes: 8 };
        for calls in [[send, gather], [gather, send]] {
            let plan = Plan::new(&calls, SHAPE, 7).expect("valid");
            let gather = 7 << 8 | 2;
            assert_eq!(plan.sends.iter().map(|it| it.tag).collect::<Vec<_>>(), [gather, gather, 0]);
            assert_eq!(plan.collectives, 8);
        }
    }
}
