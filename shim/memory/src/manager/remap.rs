//! Other memory at the same addresses: the step of a move, and of a share, that cannot be taken
//! while anything uses them.
//!
//! Either all places have the new memory afterwards, or all have the old one. Between the two a
//! place has none, so a failure there is mended by trying again; a place where every try fails is
//! told as lost.

use wm_abi::CUresult;
use wm_driver::gpu::Result;
use wm_driver::{Gpu, Handle};

/// Tries to map the old memory again, before it is told as lost.
pub(super) const TRIES: usize = 8;

/// The access that the GPU has to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MappedAccess {
    Full,
    /// Full, and no peer has it.
    Alone,
    Reading,
    /// Full, and the CPU has it too.
    WithCpu,
}

impl MappedAccess {
    /// Grants it where memory is mapped.
    pub(super) fn grant<G: Gpu>(self, gpu: &G, address: u64, bytes: usize) -> Result<()> {
        match self {
            Self::Full => gpu.allow(address, bytes),
            Self::Alone => gpu.allow_alone(address, bytes),
            Self::Reading => gpu.allow_reading(address, bytes),
            Self::WithCpu => gpu.allow_cpu(address, bytes),
        }
    }
}

/// Memory, and the access that the GPU has where it is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mappable {
    pub(super) handle: Handle,
    pub(super) access: MappedAccess,
}

impl Mappable {
    /// Can it be had from what is mapped, without an unmapping? The CPU's access ends with its
    /// mapping only.
    fn can_come_from(self, mapped: Self) -> bool {
        let keeps_cpu = mapped.access != MappedAccess::WithCpu || self.access == MappedAccess::WithCpu;
        self.handle == mapped.handle && keeps_cpu
    }
}

/// Memory that replaces other memory of the same size, or the same memory with other access.
#[derive(Debug)]
pub(super) struct Remap<'a> {
    /// First addresses of whole mappings of the old memory. The last is changed last.
    pub(super) places: &'a [u64],
    pub(super) bytes: u64,
    /// `None`: nothing is mapped there.
    pub(super) old: Option<Mappable>,
    pub(super) new: Option<Mappable>,
    /// The old memory is not mapped there any more.
    pub(super) is_unmapped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RemapFailure {
    /// All is as it was.
    Undone(CUresult),
    /// Some place has no memory.
    Lost(CUresult),
}

/// One place, and the memory that is mapped there with or without access.
struct MappedPlace {
    address: u64,
    bytes: usize,
    mapped: Option<Mappable>,
}

impl MappedPlace {
    /// One step after the other until a handle is mapped with its access; goes on where an earlier
    /// try failed.
    fn lead_to<G: Gpu>(&mut self, gpu: &G, wanted: Option<Mappable>) -> Result<()> {
        let comes_from = |mapped| wanted.is_some_and(|wanted| wanted.can_come_from(mapped));
        if self.mapped.is_some_and(|mapped| !comes_from(mapped)) {
            gpu.unmap(self.address, self.bytes)?;
            self.mapped = None;
        }
        let Some(wanted) = wanted else { return Ok(()) };
        if self.mapped.is_none() {
            gpu.map(self.address, self.bytes, wanted.handle)?;
            self.mapped = Some(wanted);
        }
        wanted.access.grant(gpu, self.address, self.bytes)
    }
}

impl Remap<'_> {
    pub(super) fn carry_out<G: Gpu>(&self, gpu: &G) -> std::result::Result<(), RemapFailure> {
        let mapped = self.old.filter(|_| !self.is_unmapped);
        let begin = |address: &u64| MappedPlace { address: *address, bytes: self.bytes as usize, mapped };
        let mut places: Vec<MappedPlace> = self.places.iter().map(begin).collect();
        for index in 0..places.len() {
            if let Err(code) = places[index].lead_to(gpu, self.new) {
                let lost = places[..=index]
                    .iter_mut()
                    .map(|place| self.restore(gpu, place))
                    .filter(|restored| !restored)
                    .count();
                return Err(if lost == 0 { RemapFailure::Undone(code) } else { RemapFailure::Lost(code) });
            }
        }
        Ok(())
    }

    fn restore<G: Gpu>(&self, gpu: &G, place: &mut MappedPlace) -> bool {
        (0..TRIES).any(|_| place.lead_to(gpu, self.old).is_ok())
    }
}
