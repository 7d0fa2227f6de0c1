//! Chooses JAX's allocator before JAX reads its environment, if `WMSHIM_JAX_ALLOCATOR` says so.
//!
//! XLA's default allocator (`BFCAllocator`) has a limit of its own: 75 % of the memory that
//! `cuMemGetInfo` tells. It takes that as one region when it starts, and refuses what exceeds it
//! without a call of the driver, so nothing could go on in host memory. XLA's `cuda_async` takes
//! each buffer by `cuMemAllocFromPoolAsync`, without a limit: each is a block of ours. It would
//! take 75 % at first, too, which no program needs that gets blocks one by one.
//!
//! If any variable about XLA's memory is set, the user has chosen, and the environment is left
//! alone.

use wm_trust::environment;

use crate::settings::{self, JaxAllocator};

/// What is written, by variable.
const WRITTEN: [(&str, &str); 2] =
    [("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async"), ("XLA_PYTHON_CLIENT_PREALLOCATE", "false")];

/// Says in a child process that it is our choice, not the user's.
const MARK: &str = "WMSHIM_JAX_CHOICE";

/// Variables by which a user chooses, besides those that are written.
const CHOSEN: [&str; 5] = [
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB",
    "TF_FORCE_UNIFIED_MEMORY",
    "TF_GPU_ALLOCATOR",
];

/// What the choice changes in the environment: variables with their values; `None`: the variable is
/// removed.
pub(crate) fn changes() -> Vec<(&'static str, Option<&'static str>)> {
    let ours = inherited();
    let mut names = WRITTEN.iter().map(|(name, _)| *name).chain(CHOSEN);
    let is_chosen = names.any(|name| is_set(name) && !ours.contains(&name));
    let mut changes: Vec<_> = ours.into_iter().map(|name| (name, None)).collect();
    if is_wanted() && !is_chosen {
        changes.extend(WRITTEN.map(|(name, value)| (name, Some(value))));
        changes.push((MARK, Some("async")));
    }
    changes
}

/// The variables that another process of ours has chosen, with the mark.
fn inherited() -> Vec<&'static str> {
    if !is_set(MARK) {
        return Vec::new();
    }
    let ours = WRITTEN.iter().filter(|(name, value)| environment::text(name).as_deref() == Some(*value));
    ours.map(|(name, _)| *name).chain([MARK]).collect()
}

fn is_set(name: &str) -> bool {
    environment::variable(name).is_some_and(|value| !value.is_empty())
}

/// The settings are read at the first call, which is later: here only those about JAX are.
fn is_wanted() -> bool {
    let text = |name| settings::text(name).unwrap_or_default();
    match settings::jax_allocator(&text("WMSHIM_JAX_ALLOCATOR")).unwrap_or(JaxAllocator::Native) {
        JaxAllocator::Native => false,
        JaxAllocator::Async => true,
        JaxAllocator::Auto => {
            settings::switch_or(&text("WMSHIM_STITCH"), true)
                && !settings::switch_or(&text("WMSHIM_DISABLE"), false)
                && settings::overflows(&text("WMSHIM_OVERFLOW"))
        }
    }
}
