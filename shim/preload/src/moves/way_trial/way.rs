//! The ways of placing memory, as [`super`] describes them.

/// A way of placing memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::moves) enum Way {
    Leave,
    Arrange,
    Follow,
    Bring,
}

impl Way {
    /// Does memory move at launches?
    pub(in crate::moves) fn moves_at_launches(self) -> bool {
        matches!(self, Self::Follow | Self::Bring)
    }
}

/// In the order of trials.
pub(super) const WAYS: [Way; 3] = [Way::Bring, Way::Leave, Way::Follow];

/// Of a careful trial.
pub(super) const CAREFUL_WAYS: [Way; 4] = [Way::Arrange, Way::Leave, Way::Bring, Way::Follow];
