//! How requests fail.

use std::fmt;

use thiserror::Error;
use wm_abi::CUresult;

use crate::vocabulary::tiers::TierBytes;

/// Why an allocation failed. Nothing changed.
#[derive(Debug, Error)]
pub enum AllocateError {
    /// Every allowed tier is full.
    #[error("{0}")]
    OutOfMemory(Box<Shortage>),
    /// The driver failed for another reason, or the request was not valid (`INVALID_VALUE` for 0
    /// bytes).
    #[error("{0}")]
    Driver(CUresult),
}

impl From<CUresult> for AllocateError {
    fn from(code: CUresult) -> Self {
        Self::Driver(code)
    }
}

/// Why a free failed. Nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FreeError {
    /// No address of this manager's: the driver may know it.
    #[error("the address is not the manager's")]
    NotOurs,
    /// Inside a live block, but not its first address.
    #[error("the address is inside a block; only a block's first address can be freed")]
    Interior,
    /// The manager's, but no live block starts there.
    #[error("no live block starts at the address: it was freed before")]
    AlreadyFree,
    /// The block is the CPU's, and its access could not be taken away.
    #[error("the block stays the CPU's: {0}")]
    OnCpu(CUresult),
}

/// The state of the memory when a request could not be met. Displayed as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// Bytes asked for.
    pub asked: u64,
    /// In blocks, and in memory that the program made itself.
    pub live: TierBytes,
    /// Physical memory held.
    pub reserved: TierBytes,
    /// Whole handles without an owner.
    pub idle: TierBytes,
    /// Longest free run.
    pub largest_free_run: u64,
    /// Device memory the driver would still have given, less the headroom.
    pub device_left: u64,
    /// The user's limit on device memory.
    pub device_limit: u64,
    /// Host memory that could still have been pinned.
    pub host_left: u64,
    /// Could other tiers have been used?
    pub overflow: OverflowVerdict,
}

/// Could a request go to other tiers?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverflowVerdict {
    /// The user does not allow it.
    Off,
    /// The library that asked relies on memory of the device itself.
    Unfit,
    /// The library that asked has memory to give up first, and asks again.
    Later,
    /// All tiers together have less than was asked for.
    Beyond,
    /// Yes.
    Allowed,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out of memory: {} asked", ReadableBytes(self.asked))?;
        write!(
            f,
            "; device {} live of {} held",
            ReadableBytes(self.live.device),
            ReadableBytes(self.reserved.device)
        )?;
        write!(
            f,
            " ({} idle, longest free run {}",
            ReadableBytes(self.idle.total()),
            ReadableBytes(self.largest_free_run)
        )?;
        write!(
            f,
            ", {} more to have, limit {})",
            ReadableBytes(self.device_left),
            ReadableBytes(self.device_limit)
        )?;
        match self.overflow {
            OverflowVerdict::Off => return write!(f, "; overflow is off"),
            OverflowVerdict::Unfit => {
                return write!(f, "; the library that asks needs memory of the device itself");
            }
            OverflowVerdict::Later => {
                return write!(f, "; the library that asks gives up what it caches first");
            }
            OverflowVerdict::Beyond => return write!(f, "; that is more than all memory that may be used"),
            OverflowVerdict::Allowed => {}
        }
        write!(f, "; peers {} of {}", ReadableBytes(self.live.peer), ReadableBytes(self.reserved.peer))?;
        write!(f, "; host {} of {}", ReadableBytes(self.live.host), ReadableBytes(self.reserved.host))?;
        write!(f, ", {} more to have", ReadableBytes(self.host_left))
    }
}

/// Bytes for people.
pub struct ReadableBytes(pub u64);

impl fmt::Display for ReadableBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => write!(f, "none"),
            bytes if bytes >= 1 << 30 => write!(f, "{:.2} GiB", bytes as f64 / (1u64 << 30) as f64),
            bytes => write!(f, "{:.1} MiB", bytes as f64 / (1u64 << 20) as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_one_line_that_says_what_is_where() {
        let on = |device, host| TierBytes { device, peer: 0, host };
        let shortage = Shortage {
            asked: 3 << 30,
            live: on(40 << 30, 1 << 30),
            reserved: on(44 << 30, 2 << 30),
            idle: on(1 << 30, 0),
            largest_free_run: 512 << 20,
            device_left: 0,
            device_limit: u64::MAX,
            host_left: 100 << 20,
            overflow: OverflowVerdict::Allowed,
        };
        assert_eq!(
            shortage.to_string(),
            "out of memory: 3.00 GiB asked; device 40.00 GiB live of 44.00 GiB held (1.00 GiB idle, longest free run \
             512.0 MiB, 0.0 MiB more to have, limit none); peers 0.0 MiB of 0.0 MiB; host 1.00 GiB of 2.00 GiB, \
             100.0 MiB more to have"
        );
    }
}
