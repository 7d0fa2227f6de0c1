//! Actions of a program beside its copies, which must not affect them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One such action. On the driver alone it orders nothing, changes no byte, and waits for no stream
/// of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Aside {
    /// A sibling's primary context is retained and released: the last release.
    Pair,
    /// `cuDevicePrimaryCtxReset` of a sibling.
    Reset,
    /// A context of the program on a sibling is created, works and is destroyed.
    Pass,
    /// The thread has a pending cancellation, which may happen in its copies: on the driver alone
    /// it does not.
    Cancel,
    /// Some pages of pageable memory fault once each, and a handler of the program resolves the
    /// faults.
    Protect { host: usize },
}

impl Aside {
    /// The name under which it is counted.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pair => "cuDevicePrimaryCtxRelease of a sibling",
            Self::Reset => "cuDevicePrimaryCtxReset of a sibling",
            Self::Pass => "cuCtxDestroy of a sibling's context",
            Self::Cancel => "pthread_cancel",
            Self::Protect { .. } => "mprotect",
        }
    }
}

impl fmt::Display for Aside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let Self::Protect { host } = self { write!(f, " h{host}") } else { Ok(()) }
    }
}
