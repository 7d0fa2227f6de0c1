//! Copies in host memory that several processes use: which copy lies where, without sockets and
//! descriptors.
//!
//! A keeper is a connection of a process that uses copies. One keeper writes copies into a segment
//! and offers it; others find the copies by name, and use the segment, too. The uses of a keeper go
//! with its connection, and a segment (`D`) is dropped with its last use.
//!
//! Invariants:
//! * A segment has at least one user and at least one copy; each name has one place, in a segment
//!   that is held.
//! * A keeper gets a segment once for each time that it becomes a user of it: by a name that lies
//!   there, or by its own offer.
//! * Each number stays within [`CopyLimits`]. A limit that is reached is an answer.

use std::collections::{HashMap, HashSet};

use super::numbers::{KeeperNumber, SegmentNumber};
use crate::chunk::CopyName;

/// How many copies the broker takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyLimits {
    /// Keepers at a time.
    pub keepers: usize,
    /// Segments at a time; each costs a descriptor.
    pub segments: usize,
    /// Names of copies at a time.
    pub names: usize,
    /// Segments that one keeper uses.
    pub segments_of_one: usize,
}

impl CopyLimits {
    /// No copies are taken on.
    pub const NONE: Self = Self { keepers: 0, segments: 0, names: 0, segments_of_one: 0 };
}

/// Where a copy lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyPlace {
    /// The segment.
    pub segment: SegmentNumber,
    /// In bytes from the begin of the segment.
    pub offset: u64,
}

/// The outcome of a question about names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacesFound<D> {
    /// One for each name. `None`: there is no such copy, or a limit is reached.
    pub places: Vec<Option<CopyPlace>>,
    /// Segments that the keeper uses from now on.
    pub segments: Vec<(SegmentNumber, D)>,
}

/// The outcome of an offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedPlaces {
    /// `None`: it is dropped, because no name is accepted.
    pub segment: Option<SegmentNumber>,
    /// One for each name. False: there is such a copy, or a limit is reached.
    pub accepted: Vec<bool>,
}

/// A segment that has users.
#[derive(Debug)]
struct HeldSegment<D> {
    descriptor: D,
    users: usize,
    names: Vec<CopyName>,
}

/// The state. `D` stands for a segment: a descriptor, shared with answers that are under way.
#[derive(Debug)]
pub struct CopyTable<D> {
    limits: CopyLimits,
    /// The segments that each keeper uses.
    keepers: HashMap<KeeperNumber, HashSet<SegmentNumber>>,
    segments: HashMap<SegmentNumber, HeldSegment<D>>,
    places: HashMap<CopyName, CopyPlace>,
    /// Of all copies. A client may state any number, so their sum may exceed 64 bits.
    bytes: u128,
    last_keeper: u64,
    last_segment: u64,
}

impl<D: Clone> CopyTable<D> {
    /// Without keepers and segments.
    pub fn new(limits: CopyLimits) -> Self {
        Self {
            limits,
            keepers: HashMap::new(),
            segments: HashMap::new(),
            places: HashMap::new(),
            bytes: 0,
            last_keeper: 0,
            last_segment: 0,
        }
    }

    /// A new keeper. `None`: there are too many.
    pub fn join(&mut self) -> Option<KeeperNumber> {
        if self.keepers.len() >= self.limits.keepers {
            return None;
        }
        self.last_keeper += 1;
        let keeper = KeeperNumber(self.last_keeper);
        self.keepers.insert(keeper, HashSet::new());
        Some(keeper)
    }

    /// A keeper's connection has ended, and its uses with it. An unknown keeper has no effect.
    pub fn gone(&mut self, keeper: KeeperNumber) {
        for segment in self.keepers.remove(&keeper).unwrap_or_default() {
            self.leave(segment);
        }
    }

    /// Where copies of these names lie. The keeper becomes a user of each segment in the answer, of
    /// at most `most` new ones; names in further segments are answered as if there were none.
    pub fn find(&mut self, keeper: KeeperNumber, names: &[CopyName], most: usize) -> PlacesFound<D> {
        let mut segments = Vec::new();
        let Some(used) = self.keepers.get_mut(&keeper) else {
            return PlacesFound { places: vec![None; names.len()], segments };
        };
        let mut find = |name| {
            let place: &CopyPlace = self.places.get(name)?;
            if !used.contains(&place.segment) {
                if segments.len() >= most || used.len() >= self.limits.segments_of_one {
                    return None;
                }
                let held = self.segments.get_mut(&place.segment)?;
                held.users += 1;
                used.insert(place.segment);
                segments.push((place.segment, held.descriptor.clone()));
            }
            Some(*place)
        };
        let places = names.iter().map(&mut find).collect();
        PlacesFound { places, segments }
    }

    /// A keeper has copies in a segment, at these offsets. It is a user of the segment if any name
    /// is accepted.
    pub fn offer(&mut self, keeper: KeeperNumber, segment: D, copies: &[(CopyName, u64)]) -> OfferedPlaces {
        let used = self.keepers.get(&keeper).map(HashSet::len);
        let has_room = used.is_some_and(|used| used < self.limits.segments_of_one)
            && self.segments.len() < self.limits.segments;
        let number = SegmentNumber(self.last_segment + 1);
        let mut names = Vec::new();
        let mut accept = |(name, offset): &(CopyName, u64)| {
            let is_new = has_room && self.places.len() < self.limits.names && !self.places.contains_key(name);
            if is_new {
                self.places.insert(*name, CopyPlace { segment: number, offset: *offset });
                names.push(*name);
            }
            is_new
        };
        let accepted: Vec<_> = copies.iter().map(&mut accept).collect();
        if names.is_empty() {
            return OfferedPlaces { segment: None, accepted };
        }
        self.last_segment = number.0;
        self.bytes += names.iter().map(|name| u128::from(name.bytes)).sum::<u128>();
        self.segments.insert(number, HeldSegment { descriptor: segment, users: 1, names });
        self.keepers.entry(keeper).or_default().insert(number);
        OfferedPlaces { segment: Some(number), accepted }
    }

    /// A keeper uses a segment no longer. False: it did not.
    pub fn release(&mut self, keeper: KeeperNumber, segment: SegmentNumber) -> bool {
        let was_used = self.keepers.get_mut(&keeper).is_some_and(|used| used.remove(&segment));
        if was_used {
            self.leave(segment);
        }
        was_used
    }

    /// Keepers that are connected.
    pub fn keepers(&self) -> usize {
        self.keepers.len()
    }

    /// Segments that are held.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Names of copies.
    pub fn names(&self) -> usize {
        self.places.len()
    }

    /// Segments that a keeper uses; 0 if it is not known.
    pub fn segments_of(&self, keeper: KeeperNumber) -> usize {
        self.keepers.get(&keeper).map_or(0, HashSet::len)
    }

    /// Bytes of all copies, as their names state them.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(u64::MAX)
    }

    /// One user less; the last one takes the segment along.
    fn leave(&mut self, segment: SegmentNumber) {
        let held = self.segments.get_mut(&segment).expect("a use leads to a segment");
        held.users -= 1;
        if held.users > 0 {
            return;
        }
        for name in self.segments.remove(&segment).into_iter().flat_map(|held| held.names) {
            self.places.remove(&name);
            self.bytes -= u128::from(name.bytes);
        }
        if self.segments.is_empty() {
            // The memory of a large table is given back.
            (self.segments, self.places) = (HashMap::new(), HashMap::new());
        }
    }
}
