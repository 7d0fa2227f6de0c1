//! The answers about copies in host memory: the table of copies with descriptors in it.

use std::io::{Error, Result};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::fs::SealFlags;

use super::reply::{Reply, SharedDescriptor, may_be_memory};
use crate::broker::{CopyLimits, CopyTable, KeeperNumber, OfferedPlaces};
use crate::chunk::CopyName;
use crate::protocol::{BATCH, BrokerAnswer, BrokerRequest, Malformed, ReceivedPacket};

/// Copies begin at multiples of so many bytes: they can be mapped.
const PAGE: u64 = 4096;

/// The copies of a broker.
#[derive(Debug)]
pub(super) struct CopyService(CopyTable<SharedDescriptor>);

impl CopyService {
    pub(super) fn new(limits: CopyLimits) -> Self {
        Self(CopyTable::new(limits))
    }

    /// `None`: there are too many.
    pub(super) fn join(&mut self) -> Option<KeeperNumber> {
        self.0.join()
    }

    pub(super) fn gone(&mut self, keeper: KeeperNumber) {
        self.0.gone(keeper);
    }

    pub(super) fn keepers(&self) -> usize {
        self.0.keepers()
    }

    pub(super) fn segments(&self) -> usize {
        self.0.segments()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Answers a request without descriptors.
    ///
    /// # Errors
    /// It is none about copies.
    pub(super) fn serve(&mut self, keeper: KeeperNumber, request: BrokerRequest) -> Result<Reply> {
        match request {
            BrokerRequest::FindCopies(names) => Ok(self.find(keeper, &names)),
            BrokerRequest::ReleaseCopies(segments) => {
                let released = segments.iter().filter(|segment| self.0.release(keeper, **segment)).count();
                Ok(BrokerAnswer::CopiesReleased(released as u32).into())
            }
            _ => Err(Error::other("one that uses copies, and wants more than that")),
        }
    }

    /// A segment with copies.
    ///
    /// # Errors
    /// There is not one descriptor of a file.
    pub(super) fn offer(
        &mut self,
        keeper: KeeperNumber,
        copies: &[(CopyName, u64)],
        packet: ReceivedPacket,
    ) -> Result<Reply> {
        let ReceivedPacket { mut descriptors, lost_some, .. } = packet;
        if descriptors.is_empty() && lost_some {
            // No more can be opened here.
            return Ok(offered(OfferedPlaces { segment: None, accepted: vec![false; copies.len()] }));
        }
        let one = descriptors.pop().filter(|one| descriptors.is_empty() && !lost_some && may_be_memory(one));
        let segment = one.ok_or(Malformed)?;
        let size = fixed_size(&segment);
        let fitting: Vec<_> = copies.iter().copied().filter(|copy| lies_within(copy, size)).collect();
        let OfferedPlaces { segment, accepted } = self.0.offer(keeper, Rc::new(segment), &fitting);
        let mut accepted = accepted.into_iter();
        let all = copies.iter().map(|copy| lies_within(copy, size) && accepted.next() == Some(true));
        Ok(offered(OfferedPlaces { segment, accepted: all.collect() }))
    }

    fn find(&mut self, keeper: KeeperNumber, names: &[CopyName]) -> Reply {
        let found = self.0.find(keeper, names, BATCH);
        let (segments, descriptors) = found.segments.into_iter().unzip();
        let answer = BrokerAnswer::CopiesFound { places: found.places, segments };
        Reply { descriptors, ..answer.into() }
    }
}

fn offered(outcome: OfferedPlaces) -> Reply {
    let OfferedPlaces { segment, accepted } = outcome;
    BrokerAnswer::CopiesOffered { segment, accepted }.into()
}

/// The bytes that a segment has for ever: a process that maps it is not to end by a signal, and
/// reads what it has compared. 0: it may be written, or shrink.
fn fixed_size(segment: &OwnedFd) -> u64 {
    let fixed = SealFlags::SHRINK | SealFlags::WRITE;
    let is_fixed = rustix::fs::fcntl_get_seals(segment).is_ok_and(|seals| seals.contains(fixed));
    let size = is_fixed.then(|| rustix::fs::fstat(segment).ok()).flatten();
    size.map_or(0, |status| u64::try_from(status.st_size).unwrap_or(0))
}

fn lies_within((name, offset): &(CopyName, u64), size: u64) -> bool {
    let end = offset.checked_add(name.bytes);
    name.bytes > 0 && offset % PAGE == 0 && end.is_some_and(|end| end <= size)
}
