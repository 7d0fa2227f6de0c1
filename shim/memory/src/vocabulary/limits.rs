//! What of a device's memory may be held and kept now. An operator may change it at any time.

/// Bytes of blocks' handles and pieces on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceLimits {
    /// Most of them; `u64::MAX` for all of it.
    pub(crate) device: u64,
    /// It is another one than at first.
    pub(crate) is_changed: bool,
    /// So many may be held while memory leaves until the limit is kept; 0 at other times.
    pub(crate) descent: u64,
    /// Idle memory is kept, as the settings say.
    pub(crate) keeps_idle: bool,
}

impl Default for DeviceLimits {
    fn default() -> Self {
        Self { device: u64::MAX, is_changed: false, descent: 0, keeps_idle: true }
    }
}

impl DeviceLimits {
    /// Of so many held bytes, those beyond the limit.
    pub(crate) fn excess(self, held: u64) -> u64 {
        held.saturating_sub(self.device)
    }

    /// The limit for memory that is made, and for idle memory that stays.
    pub(crate) fn in_force(self) -> u64 {
        self.device.max(self.descent)
    }
}
