//! A guarded block, and the call that allocated it. A report names both.
//!
//! Where the call came from is kept as return addresses, a few microseconds at each allocation;
//! their names are found when a report is written, if ever.

use std::fmt;

use wm_abi::CUdevice;

use crate::process::callers::{CodeAddress, DEPTH, callers};

/// A guarded block.
#[derive(Debug, Clone)]
pub(super) struct GuardedBlock {
    pub(super) device: CUdevice,
    pub(super) address: u64,
    /// As the program asked for.
    pub(super) bytes: usize,
    /// Unique in the process.
    pub(super) id: u64,
    pub(super) origin: CallOrigin,
}

impl fmt::Display for GuardedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, address, bytes, id, origin } = self;
        write!(f, "block {id} of {bytes} bytes at {address:#x} on device {device}, allocated by {origin}")
    }
}

/// A call of the program.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallOrigin {
    call: &'static str,
    /// Return addresses outside this library, the nearest first; 0 where there are fewer.
    callers: [usize; DEPTH],
}

impl CallOrigin {
    /// The call that is being made, by its name.
    pub(super) fn of(call: &'static str) -> Self {
        Self { call, callers: callers() }
    }
}

impl fmt::Display for CallOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.call)?;
        let known = self.callers.iter().take_while(|caller| **caller != 0);
        known.enumerate().try_for_each(|(depth, caller)| {
            write!(f, "{}{}", if depth == 0 { " from " } else { " < " }, CodeAddress::of(*caller))
        })
    }
}
