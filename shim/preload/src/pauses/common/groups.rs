//! Copies of memory in groups, some segments each: what other processes have copied is compared,
//! and the rest is written.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;

use rustix::io::Errno;
use wm_abi::CUdevice;
use wm_dedup::chunk::SharableMemory;
use wm_dedup::client::{CopyClient, CopyPlace as FoundPlace};
use wm_driver::lock;

use super::CommonBook;
use super::kept::{CommonPlace, CopiedMemory, RememberedCopy};
use super::segment::{MappedSegment, OpenSegment};
use super::verified;
use crate::pauses::devices::host_available;
use crate::pauses::files::{ChunkPlace, FileFailure, StoredMemory, Transfers, staged_out, transfer_threads};

/// Bytes of a group, unless a single memory has more.
const GROUP: u64 = 512 << 20;

/// Memory that may have a copy, of a block.
pub(super) struct Candidate {
    pub(super) device: CUdevice,
    pub(super) block: u64,
    pub(super) memory: SharableMemory,
}

/// A memory of a group.
struct GroupEntry<'a> {
    candidate: &'a Candidate,
    place: EntryPlace,
}

impl GroupEntry<'_> {
    fn range(&self) -> &Range<u64> {
        &self.candidate.memory.range
    }
}

/// Where its copy lies.
#[derive(Clone, Copy)]
enum EntryPlace {
    /// Another process has written it.
    Found(CommonPlace),
    /// At an offset in one of the segments that are being written.
    New { segment: usize, offset: u64 },
}

/// The segments of a group that are being written, each with its bytes. Writes into one wait for
/// each other, so there is one for each thread.
struct NewSegments(Vec<(OpenSegment, u64)>);

impl NewSegments {
    fn create() -> Result<Self, Errno> {
        (0..transfer_threads()).map(|_| Ok((OpenSegment::create()?, 0))).collect::<Result<_, _>>().map(Self)
    }

    /// A place for so many bytes.
    fn place(&mut self, bytes: u64) -> EntryPlace {
        let place = self.0.iter_mut().enumerate().min_by_key(|(_, (_, length))| *length);
        place.map_or(EntryPlace::New { segment: 0, offset: 0 }, |(segment, (_, length))| {
            let offset = *length;
            *length += bytes;
            EntryPlace::New { segment, offset }
        })
    }

    /// Bytes of all of them.
    fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, length)| length).sum()
    }
}

/// How many of the first memories are a group.
fn first_group(named: &[Candidate]) -> usize {
    let mut bytes = 0_u64;
    let fits = |one: &&Candidate| {
        bytes += one.memory.name.bytes;
        bytes <= GROUP
    };
    named.iter().take(CopyClient::BATCH).take_while(fits).count().max(1)
}

impl CommonBook {
    /// Finds or makes copies of memory of which none is remembered. Returns what has one now, and
    /// the bytes that no process had written before.
    pub(super) fn copy(
        &mut self,
        candidates: &[Candidate],
        transfers: &Transfers<'_>,
    ) -> (Vec<CopiedMemory>, u64) {
        let (mut copied, mut written) = (Vec::new(), 0);
        if candidates.is_empty() || !self.is_connected() {
            return (copied, written);
        }
        let mut rest = candidates;
        while !rest.is_empty() {
            let (group, later) = rest.split_at(first_group(rest));
            rest = later;
            match self.copy_group(group, transfers) {
                Ok((mut more, new)) => {
                    copied.append(&mut more);
                    written += new;
                }
                Err(why) => {
                    log::info!("memory has no copy in common with other processes: {why}");
                    break;
                }
            }
        }
        self.remember(&copied);
        (copied, written)
    }

    fn is_connected(&mut self) -> bool {
        let before = self.client.connections();
        let is_connected = self.client.connect();
        if self.client.connections() != before {
            self.forget_numbers();
        }
        is_connected
    }

    /// A group of memories: what other processes have copied is compared, and the rest is written
    /// where other processes use it, too.
    fn copy_group(
        &mut self,
        group: &[Candidate],
        transfers: &Transfers<'_>,
    ) -> Result<(Vec<CopiedMemory>, u64), FileFailure> {
        let places = self.find(&group.iter().collect::<Vec<_>>())?;
        let mut new = NewSegments::create()?;
        let room = host_available();
        let mut entries: Vec<GroupEntry> = Vec::new();
        for (candidate, place) in group.iter().zip(places) {
            let memory = &candidate.memory;
            let bytes = memory.name.bytes;
            match place {
                Some(place) => entries.push(GroupEntry { candidate, place: EntryPlace::Found(place) }),
                None if memory.is_shared && new.bytes() + bytes <= room => {
                    entries.push(GroupEntry { candidate, place: new.place(bytes) });
                }
                None => {}
            }
        }
        let unequal = self.transfer(&entries, &new, transfers)?;
        entries.retain(|entry| unequal.range(entry.range().clone()).next().is_none());
        for (number, (open, _)) in new.0.iter().enumerate() {
            self.offer(open, number, &mut entries)?;
        }
        let copied = entries.iter().filter_map(|entry| {
            let EntryPlace::Found(place) = entry.place else { return None };
            let Candidate { device, block, memory } = entry.candidate;
            Some(CopiedMemory { device: *device, range: memory.range.clone(), block: *block, place })
        });
        Ok((copied.collect(), new.bytes()))
    }

    /// Where other processes have put copies; their segments are mapped.
    fn find(&mut self, group: &[&Candidate]) -> Result<Vec<Option<CommonPlace>>, FileFailure> {
        let names: Vec<_> = group.iter().map(|one| one.memory.name).collect();
        let found = self.client.find(&names).map_err(|_| Errno::NOTCONN)?;
        for (number, descriptor) in found.segments {
            let mapped = descriptor.get().ok().and_then(|file| MappedSegment::of(file).ok());
            match mapped {
                Some(memory) => drop(self.add(memory, Some(number))),
                None => self.client.release(&[number]),
            }
        }
        let place = |found: FoundPlace| {
            let segment = *self.numbers.get(&found.segment)?;
            Some(CommonPlace { segment, offset: found.offset })
        };
        Ok(found.places.into_iter().map(|found| found.and_then(place)).collect())
    }

    /// Writes what is new, and compares the rest. The addresses of chunks that are not equal.
    fn transfer(
        &self,
        entries: &[GroupEntry<'_>],
        new: &NewSegments,
        transfers: &Transfers<'_>,
    ) -> Result<BTreeSet<u64>, FileFailure> {
        let unequal = Mutex::new(BTreeSet::new());
        let mut segments: Vec<&MappedSegment> = Vec::new();
        let memory: Option<Vec<StoredMemory>> = entries
            .iter()
            .map(|entry| {
                let (file, offset) = match entry.place {
                    EntryPlace::New { segment, offset } => (segment, offset),
                    EntryPlace::Found(place) => {
                        segments.push(&self.segments.get(&place.segment)?.memory);
                        (new.0.len() + segments.len() - 1, place.offset)
                    }
                };
                let place = ChunkPlace { file, offset };
                Some(StoredMemory::in_segment((entry.candidate.device, entry.range()), None, place))
            })
            .collect();
        let memory = memory.ok_or(Errno::BADF)?;
        transfers.of(&memory, |manager, buffer, chunk| {
            let bytes = &staged_out(manager, buffer, chunk)?[..chunk.bytes as usize];
            let place = chunk.place;
            if let Some((open, _)) = new.0.get(place.file) {
                return Ok(open.write(place.offset, bytes)?);
            }
            let copy = segments.get(place.file - new.0.len());
            if !copy.is_some_and(|copy| copy.has(place.offset, bytes)) {
                lock(&unequal).insert(chunk.address);
            }
            Ok(())
        })?;
        Ok(std::mem::take(&mut *lock(&unequal)))
    }

    /// A segment is whole: it is mapped, and the broker is told. What another process has offered
    /// meanwhile is used instead.
    fn offer(
        &mut self,
        open: &OpenSegment,
        number: usize,
        entries: &mut [GroupEntry<'_>],
    ) -> Result<(), FileFailure> {
        let (mut names, mut new) = (Vec::new(), Vec::new());
        for entry in entries {
            match entry.place {
                EntryPlace::New { segment, offset } if segment == number => {
                    names.push((entry.candidate.memory.name, offset));
                    new.push(entry);
                }
                _ => {}
            }
        }
        if names.is_empty() {
            return Ok(());
        }
        let memory = open.seal()?;
        // Without an answer it is this process's alone.
        let offered = self.client.offer(open.descriptor(), &names).ok();
        let segment = self.add(memory, offered.as_ref().and_then(|offered| offered.segment));
        for (entry, (_, offset)) in new.iter_mut().zip(&names) {
            entry.place = EntryPlace::Found(CommonPlace { segment, offset: *offset });
        }
        let accepted = offered.map(|offered| offered.accepted).unwrap_or_default();
        let late =
            new.into_iter().zip(accepted).filter_map(|(entry, is_accepted)| (!is_accepted).then_some(entry));
        self.use_others(late.collect());
        Ok(())
    }

    /// Other processes were first with copies of the same names.
    fn use_others(&mut self, entries: Vec<&mut GroupEntry<'_>>) {
        if entries.is_empty() {
            return;
        }
        let candidates: Vec<&Candidate> = entries.iter().map(|entry| entry.candidate).collect();
        let Ok(found) = self.find(&candidates) else { return };
        for (entry, found) in entries.into_iter().zip(found) {
            let (EntryPlace::Found(own), Some(other)) = (entry.place, found) else { continue };
            let bytes = |place: CommonPlace| {
                self.segments
                    .get(&place.segment)?
                    .memory
                    .chunk(place.offset, entry.candidate.memory.name.bytes)
            };
            if bytes(own).is_some() && bytes(own) == bytes(other) {
                entry.place = EntryPlace::Found(other);
            }
        }
    }

    /// The next pause knows of the copies.
    fn remember(&mut self, copied: &[CopiedMemory]) {
        let prints = verified::prints(copied);
        for (one, prints) in copied.iter().zip(prints) {
            let bytes = one.range.end - one.range.start;
            let (device, block, place) = (one.device, one.block, one.place);
            self.kept.keep(one.range.start, RememberedCopy { device, bytes, block, place, prints });
        }
    }
}
