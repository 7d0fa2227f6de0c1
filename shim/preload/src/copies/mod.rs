//! A copy of the program as one value.
//!
//! | module | one idea |
//! |---|---|
//! | [`end`] | one end of a copy, and the memory it lies in, which is looked up at most once |
//! | [`strided`] | which bytes a copy touches at one end, as arithmetic |
//!
//! A handler makes the value from the arguments of its call. Everything that decides about the copy
//! reads the value: access between devices and the borders of tiers (`hooks/copy/peer_copy.rs`),
//! and whether several links carry it ([`crate::multipath`]).
//!
//! Invariant: to make the value costs no look-up. In a process with one device, a small copy never
//! makes one.

mod end;
mod strided;

use wm_abi::{CUdeviceptr, CUstream};

pub(crate) use end::{CopyEnd, EndKind};
pub(crate) use strided::{CopySize, StridedRange};

/// A copy of consecutive bytes between two addresses.
pub(crate) struct LinearCopy {
    pub(crate) to: CopyEnd,
    pub(crate) from: CopyEnd,
    pub(crate) bytes: usize,
    /// The program's stream; a null stream has been replaced by the default stream that it stands
    /// for.
    pub(crate) stream: CUstream,
    /// The call returns when the copy is done.
    pub(crate) waits: bool,
}

impl LinearCopy {
    /// A copy whose call does not say which end is the host's.
    pub(crate) fn unified(
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
        waits: bool,
    ) -> Self {
        let [to, from] = [to, from].map(|address| CopyEnd::linear(address, EndKind::Unified));
        Self { to, from, bytes, stream, waits }
    }

    /// Bytes, rows and layers.
    pub(crate) fn size(&self) -> CopySize {
        [self.bytes as u64, 1, 1]
    }

    /// Destination and source; `None` for an end that the call says is the host's.
    pub(crate) fn device_ends(&self) -> [Option<&CopyEnd>; 2] {
        [&self.to, &self.from].map(|end| (end.kind != EndKind::Host).then_some(end))
    }

    /// Destination, source and length of the part that begins `offset` bytes behind the first.
    pub(crate) fn addresses_of(&self, offset: u64, bytes: u64) -> (CUdeviceptr, CUdeviceptr, usize) {
        (self.to.address() + offset, self.from.address() + offset, bytes as usize)
    }

    /// Does the call say that both ends are device memory?
    pub(crate) fn is_between_devices(&self) -> bool {
        self.to.kind == EndKind::Device && self.from.kind == EndKind::Device
    }
}
