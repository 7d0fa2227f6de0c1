//! What a program does beside its copies, and copies must not feel.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One such thing. On the driver alone it orders nothing, changes no byte, and waits for no stream
/// of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Aside {
    /// A sibling's primary context comes and goes: the last release.
    Pair,
    /// `cuDevicePrimaryCtxReset` of a sibling.
    Reset,
    /// A context of the program on a sibling comes, works and goes.
    Pass,
    /// The thread has a cancellation pending, upon which its copies may act: none does on the
    /// driver alone.
    Cancel,
    /// Some pages of pageable memory fault once each, and a handler of the program serves them.
    Protect { host: usize },
}

impl Aside {
    /// What is counted of it.
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
