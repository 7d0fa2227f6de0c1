//! The address map: every range that the driver knows, with its origin and its access rights.
//!
//! Invariants: areas do not overlap; mappings lie inside their reservation and do not overlap; a
//! mapping starts with no rights; the protection of the pages equals the union of the rights.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use wm_abi::{
    CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    CUresult,
};

use super::space::Protection;
use super::store::{Physical, Place};
use crate::entry::Outcome;

/// A range of addresses with one origin.
#[derive(Debug)]
pub(crate) struct Area {
    /// First address.
    pub(crate) start: u64,
    /// Bytes that the program asked for.
    pub(crate) size: u64,
    /// Bytes of address space, with rounding and guard page. 0 if the space is the program's own.
    pub(crate) span: u64,
    /// Unique in the process: a range that is allocated again at the same address is another
    /// buffer.
    pub(crate) id: u64,
    /// Do copies of it wait, in every form? Stored for the attribute's query.
    pub(crate) sync_memops: bool,
    /// Its origin.
    pub(crate) owner: Owner,
}

/// The origin of an area. Contexts and pools are named by their handles.
#[derive(Debug)]
pub(crate) enum Owner {
    /// `cuMemAlloc`.
    Linear { physical: Arc<Physical>, context: usize },
    /// `cuMemAllocManaged`.
    Managed { physical: Arc<Physical>, context: usize },
    /// `cuMemAllocAsync`. A freed block stays here, not live, until the pool releases it.
    Pool { physical: Arc<Physical>, pool: usize, live: bool },
    /// Memory of a graph's allocation node.
    Graph { physical: Arc<Physical> },
    /// An array's bytes, which no address of the program reaches.
    Array { physical: Arc<Physical>, context: usize },
    /// `cuMemHostAlloc`.
    Host { physical: Arc<Physical>, context: usize, flags: u32 },
    /// `cuMemHostRegister`.
    Registered { context: usize, flags: u32 },
    /// `cuIpcOpenMemHandle`.
    Imported { physical: Arc<Physical>, context: usize, opened: usize, origin: (u32, u64) },
    /// `cuMemAddressReserve`, with its mappings by address.
    Reserved(BTreeMap<u64, Mapping>),
}

/// A handle in a reservation.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// The mapped memory.
    pub(crate) physical: Arc<Physical>,
    /// Its access rights.
    pub(crate) rights: Rights,
    /// Unique in the process.
    pub(crate) id: u64,
}

/// Rights to a mapping: `CU_MEM_ACCESS_FLAGS_*` of each device, and of the CPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rights {
    devices: BTreeMap<usize, u32>,
    host: u32,
}

impl Rights {
    /// The rights of a device, or of the CPU.
    pub(crate) fn of(&self, place: Place) -> u32 {
        match place {
            Place::Device(ordinal) => {
                self.devices.get(&ordinal).copied().unwrap_or(CU_MEM_ACCESS_FLAGS_PROT_NONE)
            }
            Place::Host => self.host,
        }
    }

    /// Replaces the rights of a device, or of the CPU.
    pub(crate) fn set(&mut self, place: Place, flags: u32) {
        match place {
            Place::Device(ordinal) => {
                self.devices.insert(ordinal, flags);
            }
            Place::Host => self.host = flags,
        }
    }

    /// The protection of the pages: one process has one page table, so this is the union.
    pub(crate) fn protection(&self) -> Protection {
        match self.devices.values().fold(self.host, |all, flags| all | flags) {
            CU_MEM_ACCESS_FLAGS_PROT_NONE => Protection::None,
            CU_MEM_ACCESS_FLAGS_PROT_READ => Protection::Read,
            _ => Protection::ReadWrite,
        }
    }
}

/// The access of an operation to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// Read it.
    Read,
    /// Write it.
    Write,
}

/// A stretch of a range that has one backing.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    /// The place of its bytes.
    pub(crate) place: Place,
    /// Its rights, if it is a mapping; everything else is open to every copy.
    pub(crate) rights: Option<Rights>,
    end: u64,
}

/// Bytes that lie in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The file's number; 0 for memory of the program, which lies at its addresses.
    pub(crate) file: u64,
    /// The range in the file.
    pub(crate) range: Range<u64>,
}

/// The extent of an area for a kind of query.
type Extent = fn(&Area) -> u64;

/// Every area, by start.
#[derive(Debug, Default)]
pub(crate) struct AddressMap {
    areas: BTreeMap<u64, Area>,
}

impl AddressMap {
    /// Enters an area.
    pub(crate) fn insert(&mut self, area: Area) {
        self.areas.insert(area.start, area);
    }

    /// Takes out the area that starts at an address, if it passes a test.
    pub(crate) fn remove_if(&mut self, start: u64, test: impl Fn(&Area) -> bool) -> Option<Area> {
        if self.areas.get(&start).is_some_and(test) { self.areas.remove(&start) } else { None }
    }

    /// Takes out every area that passes a test.
    pub(crate) fn drain(&mut self, test: impl Fn(&Area) -> bool) -> Vec<Area> {
        self.areas.extract_if(.., |_, area| test(area)).map(|(_, area)| area).collect()
    }

    /// The area that contains an address.
    pub(crate) fn find(&self, address: u64) -> Option<&Area> {
        self.find_within(address, |area| area.size)
    }

    fn find_within(&self, address: u64, extent: Extent) -> Option<&Area> {
        let (_, area) = self.areas.range(..=address).next_back()?;
        (address - area.start < extent(area)).then_some(area)
    }

    /// Is this address in our address space but in no area: in the rounding or the guard page
    /// behind one?
    pub(crate) fn is_behind(&self, address: u64) -> bool {
        let before = self.areas.range(..=address).next_back();
        before.is_some_and(|(_, area)| (area.size..area.span).contains(&(address - area.start)))
    }

    /// As [`Self::find`], to change it.
    pub(crate) fn find_mut(&mut self, address: u64) -> Option<&mut Area> {
        let (_, area) = self.areas.range_mut(..=address).next_back()?;
        (address - area.start < area.size).then_some(area)
    }

    /// Does any area share a byte with this range?
    pub(crate) fn overlaps(&self, start: u64, bytes: u64) -> bool {
        let before = self.areas.range(..start.saturating_add(bytes)).next_back();
        before.is_some_and(|(_, area)| area.start + area.size > start)
    }

    /// Every area.
    pub(crate) fn areas(&self) -> impl Iterator<Item = &Area> {
        self.areas.values()
    }

    /// The reservation that wholly contains a range, and its mappings.
    pub(crate) fn reservation(&mut self, start: u64, bytes: u64) -> Option<&mut BTreeMap<u64, Mapping>> {
        let end = start.checked_add(bytes)?;
        let area = self.find_mut(start).filter(|area| end <= area.start + area.size)?;
        match &mut area.owner {
            Owner::Reserved(mappings) => Some(mappings),
            _ => None,
        }
    }

    /// The backing of a range, stretch by stretch; an error if a byte of it is unknown or not
    /// mapped.
    fn segments_within(&self, start: u64, bytes: u64, extent: Extent) -> Outcome<Vec<Segment>> {
        let end = start.checked_add(bytes).ok_or(CUresult::INVALID_VALUE)?;
        let mut segments = Vec::new();
        let mut at = start;
        while at < end {
            let segment = self.segment(at, extent).ok_or(CUresult::INVALID_VALUE)?;
            at = segment.end;
            segments.push(segment);
        }
        Ok(segments)
    }

    fn segment(&self, address: u64, extent: Extent) -> Option<Segment> {
        let area = self.find_within(address, extent)?;
        if let Owner::Reserved(_) = area.owner {
            let (start, mapping) = area.mapping(address)?;
            let (place, rights) = (mapping.physical.place, Some(mapping.rights.clone()));
            return Some(Segment { place, rights, end: start + mapping.physical.size });
        }
        Some(Segment { place: area.place(), rights: None, end: area.start + extent(area) })
    }

    /// Does a copy engine of `device` have this right to the whole range?
    ///
    /// # Errors
    /// `INVALID_VALUE` if any byte is unknown, not mapped, or without the right; also where a range
    /// crosses the border of device and host memory while the CPU has access to the host part:
    /// NVIDIA's driver crashes there.
    pub(crate) fn check(&self, start: u64, bytes: u64, want: Want, device: usize) -> Outcome {
        self.check_within(start, bytes, want, device, |area| area.size)
    }

    /// As [`Self::check`], when the bytes move. By then a pool may have given the block out again
    /// for later, smaller work in the same stream: the backed size counts.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub(crate) fn check_moving(&self, start: u64, bytes: u64, want: Want, device: usize) -> Outcome {
        self.check_within(start, bytes, want, device, Area::backed)
    }

    fn check_within(&self, start: u64, bytes: u64, want: Want, device: usize, extent: Extent) -> Outcome {
        let segments = self.segments_within(start, bytes, extent)?;
        if !segments.iter().all(|segment| segment.allows(want, device)) || crosses_visible_border(&segments) {
            return Err(CUresult::INVALID_VALUE);
        }
        Ok(())
    }

    /// The places of the mappings in a range, each once; none for a range that the program has not
    /// mapped.
    pub(crate) fn mapped_places(&self, start: u64, bytes: u64) -> Vec<Place> {
        let segments = self.segments_within(start, bytes, |area| area.size).unwrap_or_default();
        let mut places = Vec::new();
        for segment in segments.iter().filter(|segment| segment.rights.is_some()) {
            if !places.contains(&segment.place) {
                places.push(segment.place);
            }
        }
        places
    }

    /// The places of the mappings in a range, in order, each with its end there; none for a range
    /// that the program has not mapped.
    pub(crate) fn mapped(&self, start: u64, bytes: u64) -> Vec<(Place, u64)> {
        let segments = self.segments_within(start, bytes, |area| area.size).unwrap_or_default();
        let mut parts: Vec<(Place, u64)> = Vec::new();
        for segment in segments.iter().filter(|segment| segment.rights.is_some()) {
            let end = segment.end.min(start + bytes);
            match parts.last_mut() {
                Some((place, last)) if *place == segment.place => *last = end,
                _ => parts.push((segment.place, end)),
            }
        }
        parts
    }

    /// Is there mapped host memory in a range to which `device` has a right and `other` has none?
    pub(crate) fn is_on_the_host_for_one(&self, start: u64, bytes: u64, device: usize, other: usize) -> bool {
        let segments = self.segments_within(start, bytes, |area| area.size).unwrap_or_default();
        let may = |rights: &Rights, device| rights.of(Place::Device(device)) != CU_MEM_ACCESS_FLAGS_PROT_NONE;
        let one_alone = |rights: &Rights| may(rights, device) && !may(rights, other);
        segments
            .iter()
            .any(|segment| segment.place == Place::Host && segment.rights.as_ref().is_some_and(one_alone))
    }

    /// The places of the bytes of a range, independent of the addresses that reach them.
    pub(crate) fn pieces(&self, range: Range<u64>) -> Vec<Piece> {
        let (mut at, mut pieces) = (range.start, Vec::new());
        while at < range.end {
            let (end, piece) = self.piece(at, range.end);
            pieces.push(piece);
            at = end;
        }
        pieces
    }

    /// The piece at an address, which ends before the limit, and its end.
    fn piece(&self, at: u64, limit: u64) -> (u64, Piece) {
        let found = self.find_within(at, Area::backed).and_then(|area| match area.mapping(at) {
            Some((start, mapping)) => Some((start, &mapping.physical)),
            None => area.physical().map(|physical| (area.start, physical)),
        });
        let Some((start, physical)) = found.filter(|(start, physical)| at - start < physical.size) else {
            let next = self.areas.range(at + 1..).next().map_or(limit, |(start, _)| *start);
            let end = next.min(limit);
            return (end, Piece { file: 0, range: at..end });
        };
        let end = limit.min(start + physical.size);
        let offset = physical.file().1;
        (end, Piece { file: physical.file_number(), range: offset + at - start..offset + end - start })
    }

    /// The place of the first byte of a range; `None` if the driver does not know the address.
    pub(crate) fn place(&self, address: u64) -> Option<Place> {
        self.segment(address, |area| area.size).map(|segment| segment.place)
    }
}

impl Segment {
    fn allows(&self, want: Want, device: usize) -> bool {
        let Some(rights) = &self.rights else { return true };
        let flags = rights.of(Place::Device(device));
        match want {
            Want::Read => flags & CU_MEM_ACCESS_FLAGS_PROT_READ != 0,
            Want::Write => flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        }
    }

    fn visible_to_cpu(&self) -> bool {
        self.rights.as_ref().is_some_and(|rights| rights.of(Place::Host) != CU_MEM_ACCESS_FLAGS_PROT_NONE)
    }
}

fn crosses_visible_border(segments: &[Segment]) -> bool {
    let on_host = |segment: &Segment| segment.place == Place::Host;
    segments.iter().any(on_host)
        && !segments.iter().all(on_host)
        && segments.iter().any(|segment| on_host(segment) && segment.visible_to_cpu())
}

impl Area {
    /// The place of its bytes. A reservation has no single place; its mappings have.
    pub(crate) fn place(&self) -> Place {
        self.physical().map_or(Place::Host, |physical| physical.place)
    }

    /// Bytes that can be accessed without a page fault, as far as known.
    fn backed(&self) -> u64 {
        match &self.owner {
            Owner::Pool { physical, .. } => physical.size.max(self.size),
            _ => self.size,
        }
    }

    /// Its memory, if it is one piece.
    pub(crate) fn physical(&self) -> Option<&Arc<Physical>> {
        match &self.owner {
            Owner::Linear { physical, .. }
            | Owner::Managed { physical, .. }
            | Owner::Pool { physical, .. }
            | Owner::Graph { physical }
            | Owner::Array { physical, .. }
            | Owner::Host { physical, .. }
            | Owner::Imported { physical, .. } => Some(physical),
            Owner::Registered { .. } | Owner::Reserved(_) => None,
        }
    }

    /// The context that made it, if the area ends with that context.
    pub(crate) fn context(&self) -> Option<usize> {
        match self.owner {
            Owner::Linear { context, .. }
            | Owner::Managed { context, .. }
            | Owner::Array { context, .. }
            | Owner::Host { context, .. }
            | Owner::Registered { context, .. }
            | Owner::Imported { context, .. } => Some(context),
            Owner::Pool { .. } | Owner::Graph { .. } | Owner::Reserved(_) => None,
        }
    }

    /// The mapping of a reservation that contains an address, with its start.
    pub(crate) fn mapping(&self, address: u64) -> Option<(u64, &Mapping)> {
        let Owner::Reserved(mappings) = &self.owner else { return None };
        let (start, mapping) = mappings.range(..=address).next_back()?;
        (address - start < mapping.physical.size).then_some((*start, mapping))
    }

    /// Releases its address space. Its memory goes with its last owner.
    pub(crate) fn discard(self) {
        super::space::release(self.start, self.span);
    }
}
