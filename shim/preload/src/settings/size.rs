//! Amounts of memory, as settings give them. Pure.

/// An amount of memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Size {
    /// Bytes.
    Bytes(u64),
    /// A share of the whole, 0 to 1.
    Share(f64),
    /// The smaller of the two: a limit and a ceiling of different kinds.
    Least(u64, f64),
}

impl Size {
    /// Bytes of a whole of `total` bytes.
    pub(crate) fn of(self, total: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => (total as f64 * share) as u64,
            Self::Least(bytes, share) => bytes.min(Self::Share(share).of(total)),
        }
    }

    /// The smaller one, of whatever total.
    pub(super) fn least(self, other: Self) -> Self {
        let bytes = [self, other].into_iter().filter_map(Self::bytes).min();
        let shares = [self, other].into_iter().filter_map(Self::share);
        match (bytes, shares.min_by(f64::total_cmp)) {
            (Some(bytes), Some(share)) => Self::Least(bytes, share),
            (Some(bytes), None) => Self::Bytes(bytes),
            (None, share) => Self::Share(share.unwrap_or(1.0)),
        }
    }

    fn bytes(self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) | Self::Least(bytes, _) => Some(bytes),
            Self::Share(_) => None,
        }
    }

    fn share(self) -> Option<f64> {
        match self {
            Self::Share(share) | Self::Least(_, share) => Some(share),
            Self::Bytes(_) => None,
        }
    }
}
