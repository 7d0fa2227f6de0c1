//! The headroom of a device beside memory that the program makes itself.
//!
//! Bare, PyTorch's expandable segments take the device to its last byte and end with PyTorch's own
//! error. Where they go on in host memory instead, the driver still needs some of the device: for
//! the code of kernels that run for the first time, for local memory and page tables. The blocks'
//! headroom is kept from pieces, too, then.
//!
//! Invariant: the lock is not held across the driver's call.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use wm_abi::CUdevice;
use wm_driver::{Device, Gpu};
use wm_memory::Manager;

/// Bytes that may still be made on each device before the driver is asked again.
static UNASKED: Mutex<BTreeMap<CUdevice, u64>> = Mutex::new(BTreeMap::new());

/// Is the headroom left when so many bytes of the device have been made? Where the driver does not
/// tell, it is.
pub(crate) fn is_left(manager: &Manager<Device>, bytes: u64) -> bool {
    let device = manager.gpu().ordinal();
    if unasked(device, |unasked| take(unasked, bytes)) {
        return true;
    }
    let Ok((free, _)) = manager.gpu().memory_info() else { return true };
    let (left, more) = judge(free, bytes, manager.settings().headroom);
    unasked(device, |unasked| *unasked = more);
    left
}

fn unasked<T>(device: CUdevice, change: impl FnOnce(&mut u64) -> T) -> T {
    change(UNASKED.lock().unwrap_or_else(PoisonError::into_inner).entry(device).or_default())
}

fn take(unasked: &mut u64, bytes: u64) -> bool {
    let rest = unasked.checked_sub(bytes);
    *unasked = rest.unwrap_or(*unasked);
    rest.is_some()
}

/// Is the headroom left, and how much may be made afterwards without asking? Half of what there is,
/// since others make memory, too.
fn judge(free: u64, bytes: u64, headroom: u64) -> (bool, u64) {
    match free.saturating_sub(headroom).checked_sub(bytes) {
        Some(rest) => (true, rest / 2),
        None => (false, 0),
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: the driver has no memory left for a kernel's code, although pieces could have gone
    //! to the host.
    use super::*;

    #[test]
    fn pieces_end_at_the_headroom_however_often_the_driver_is_asked() {
        let (mut free, mut unasked, mut asked) = (10_000, 0, 0);
        loop {
            if !take(&mut unasked, 20) {
                asked += 1;
                let (left, more) = judge(free, 20, 1000);
                if !left {
                    break;
                }
                unasked = more;
            }
            free -= 20;
        }
        assert!((1000..1020).contains(&free), "{free} left");
        assert!(asked < 20, "asked {asked} times");
    }
}
