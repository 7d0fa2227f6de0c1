//! A machine on which copies over several links are compared: its links are measured, its buffers
//! are allocated, and one copy of each direction is verified.

use anyhow::Result;
use wm_abi::CUdevice;
use wm_multipath::{EngineSettings, HostMemory};

use super::links::All;
use super::machine::{self, Machine};

/// The measured machine.
pub struct Prepared {
    /// The target GPU with its buffers.
    pub machine: Machine,
    /// All devices with buffers of their own.
    pub all: All,
    /// Sizes of the copies to compare, bytes, in ascending order.
    pub sizes: Vec<usize>,
    /// Two measurements of the links agreed.
    pub steady: bool,
    /// The measurement is kept for the shim.
    pub kept: bool,
}

impl Prepared {
    /// Measures the links of `target` and of `relays` (all devices by default) and allocates
    /// buffers for the largest of `sizes` (MiB) that `largest` (MiB) allows. Copies of `minimum`
    /// bytes and more are split; the measurement says how many if it is `None`.
    ///
    /// # Errors
    /// No driver, fewer than two devices, too little memory, or a copy that changed bytes.
    pub fn new(
        target: CUdevice,
        relays: Option<Vec<CUdevice>>,
        minimum: Option<usize>,
        sizes: &[usize],
        largest: usize,
    ) -> Result<Self> {
        let sizes: Vec<_> = sizes.iter().filter(|size| **size <= largest).map(|size| size << 20).collect();
        let largest = sizes.last().copied().unwrap_or(1 << 20);
        let measured = machine::measure(relays.as_deref())?;
        let kept = machine::store(&measured)?;
        let settings = EngineSettings {
            relays,
            minimum,
            patience: 0,
            eager: true,
            prompt: true,
            ..EngineSettings::default()
        };
        let mut machine = Machine::new(target, measured.topology, settings, largest)?;
        let all = All::new(&machine, largest)?;
        machine.verify(HostMemory::Pinned, machine::VERIFIED.min(largest))?;
        Ok(Self { machine, all, sizes, steady: measured.steady, kept })
    }
}
