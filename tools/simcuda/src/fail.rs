//! Faults on demand: `SIMCUDA_FAIL=cuMemCreate:7` makes the seventh `cuMemCreate` fail,
//! `cuMemCreate:7+` also all later.
//!
//! A rule's name covers every version and twin of a function: `cuMemAlloc` counts calls of
//! `cuMemAlloc_v2`, and `cuMemAllocAsync` those of `cuMemAllocAsync_ptsz`. The full exported name
//! covers only that export. `cuMemCreate@2:7` counts calls with a context of device 2 current.
//!
//! Invariant: a call that fails by a rule has no effect.

use std::sync::atomic::{AtomicU64, Ordering};

use wm_abi::{CUresult, symbol};

use crate::context;
use crate::entry::Outcome;
use crate::settings::settings;

/// The syntax of `SIMCUDA_FAIL`, for the message about a bad value.
pub(crate) const SYNTAX: &str = "FUNCTION:N (the N-th call fails) or FUNCTION:N+ (the N-th and all later), FUNCTION@DEVICE for one device, with commas between several";

/// One entry of `SIMCUDA_FAIL`.
#[derive(Debug)]
pub(crate) struct Rule {
    /// Positions of the functions that it covers.
    functions: Vec<usize>,
    /// The device whose context must be current; `None` for any.
    device: Option<usize>,
    /// The first call that fails, counted from 1.
    from: u64,
    /// Do all later calls fail too?
    onwards: bool,
    calls: AtomicU64,
}

/// Reads all entries; `None` if any is wrong.
pub(crate) fn rules(text: &str) -> Option<Vec<Rule>> {
    text.split(',').map(|entry| rule(entry.trim())).collect()
}

fn rule(entry: &str) -> Option<Rule> {
    let (name, when) = entry.split_once(':')?;
    let (name, device) = match name.split_once('@') {
        Some((name, device)) => (name, Some(device.parse().ok()?)),
        None => (name, None),
    };
    let (number, onwards) = when.strip_suffix('+').map_or((when, false), |number| (number, true));
    let from = number.parse().ok().filter(|from| *from > 0)?;
    let functions: Vec<usize> = (0..symbol::COUNT).filter(|index| covers(name, exported(*index))).collect();
    (!functions.is_empty()).then(|| Rule { functions, device, from, onwards, calls: AtomicU64::new(0) })
}

fn exported(index: usize) -> &'static str {
    symbol::NAMES[index].to_str().unwrap_or_default()
}

fn covers(name: &str, export: &str) -> bool {
    let plain = export.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    name == export
        || name == plain
        || name == plain.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches("_v")
}

impl Rule {
    fn concerns(&self, index: usize) -> bool {
        let is_there = |device| context::current_device() == Some(device);
        self.functions.contains(&index) && self.device.is_none_or(is_there)
    }
}

/// Counts a call, and fails it if a rule applies.
///
/// # Errors
/// The error that the driver would return: out of memory if the function allocates.
pub(crate) fn strike(index: usize) -> Outcome {
    let due = settings().failures.iter().filter(|rule| rule.concerns(index)).fold(false, |due, rule| {
        let call = rule.calls.fetch_add(1, Ordering::Relaxed) + 1;
        due | (call == rule.from) | (rule.onwards && call > rule.from)
    });
    if due { Err(error(exported(index))) } else { Ok(()) }
}

/// The error of a function when the machine, not the caller, is at fault.
fn error(function: &str) -> CUresult {
    const ALLOCATING: [&str; 16] = [
        "cuMemAlloc",
        "cuMemCreate",
        "cuMemAddressReserve",
        "cuMemHostAlloc",
        "cuMemHostRegister",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemPoolCreate",
        "cuCtxCreate",
        "cuDevicePrimaryCtxRetain",
        "cuStreamCreate",
        "cuEventCreate",
        "cuModuleLoad",
        "cuLibraryLoad",
        "cuArrayCreate",
        "cuGraphInstantiate",
    ];
    if ALLOCATING.iter().any(|prefix| function.starts_with(prefix)) {
        CUresult::OUT_OF_MEMORY
    } else {
        CUresult::UNKNOWN
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a fault is injected into the wrong call, or into none, and a test passes because of
    //! it.
    use super::*;

    #[test]
    fn a_name_covers_its_versions_and_twins() {
        let names = |text| rules(text).unwrap()[0].functions.iter().map(|i| exported(*i)).collect::<Vec<_>>();
        assert_eq!(names("cuMemAllocAsync:1"), ["cuMemAllocAsync", "cuMemAllocAsync_ptsz"]);
        assert_eq!(names("cuMemAlloc:1"), ["cuMemAlloc", "cuMemAlloc_v2"]);
        assert_eq!(names("cuMemAlloc_v2:1"), ["cuMemAlloc_v2"]);
    }

    #[test]
    fn a_device_is_named_by_its_ordinal() {
        assert_eq!(rules("cuMemCreate@2:7").unwrap()[0].device, Some(2));
        assert_eq!(rules("cuMemCreate:7").unwrap()[0].device, None);
        assert!(rules("cuMemCreate@two:7").is_none());
    }

    #[test]
    fn errors_are_the_drivers() {
        assert_eq!(error("cuMemCreate"), CUresult::OUT_OF_MEMORY);
        assert_eq!(error("cuMemUnmap"), CUresult::UNKNOWN);
    }
}
