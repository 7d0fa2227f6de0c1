//! Memory of the program's own, made by `cuMemCreate` and mapped by the program.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How such memory is mapped again where it was. Its bytes stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Renewal {
    /// By the handles that the program has.
    Kept,
    /// By handles that it gets for the addresses, after which it releases the old ones.
    Retained,
    /// By handles that it imports from its own export.
    Passed,
}

impl Renewal {
    pub(crate) const ALL: [Self; 3] = [Self::Kept, Self::Retained, Self::Passed];

    /// The name under which it is counted.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kept => "cuMemMap again",
            Self::Retained => "cuMemRetainAllocationHandle",
            Self::Passed => "cuMemExportToShareableHandle",
        }
    }
}

impl fmt::Display for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
