//! The limit of device memory that is in force on a device: by the settings or by an operator's
//! change of it, by the node's ceiling, and by the process's control groups.
//!
//! Invariant: nothing that is asked for while the program runs exceeds the ceiling or the groups'
//! `dmem.max`.

use std::sync::Mutex;

use wm_abi::CUdevice;
use wm_driver::dmem::GroupLimits;
use wm_driver::lock;

use crate::process::DeviceValues;

/// What was asked for while the program runs, and what the settings say.
pub(crate) struct LimitBook {
    asked: Mutex<AskedLimits>,
    /// By the settings alone, for each device that has a manager.
    of_settings: DeviceValues,
}

/// The limits that were asked for, bytes; `u64::MAX` lifts the one of the settings.
#[derive(Debug, Default)]
struct AskedLimits {
    of_all: Option<u64>,
    of_one: Vec<(CUdevice, u64)>,
}

impl AskedLimits {
    const fn new() -> Self {
        Self { of_all: None, of_one: Vec::new() }
    }

    /// For one device, or for all of them, those included that had another one.
    fn ask(&mut self, device: Option<CUdevice>, bytes: u64) {
        self.of_one.retain(|(known, _)| device.is_some_and(|device| device != *known));
        match device {
            Some(device) => self.of_one.push((device, bytes)),
            None => self.of_all = Some(bytes),
        }
    }

    fn of(&self, device: CUdevice) -> Option<u64> {
        let own = self.of_one.iter().find(|(known, _)| *known == device);
        own.map(|(_, bytes)| *bytes).or(self.of_all)
    }
}

/// What a limit comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitSource {
    /// There is none.
    None,
    Settings,
    /// It was asked for while the program runs.
    Asked,
    Ceiling,
    /// `dmem.max`.
    Group,
    /// It was asked for, and `dmem.min` leaves the process more.
    GroupLeast,
}

impl LimitSource {
    /// In words, as users know it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Settings => "WMSHIM_DEVICE_LIMIT",
            Self::Asked => "asked",
            Self::Ceiling => wm_trust::node::PATH,
            Self::Group => "dmem.max",
            Self::GroupLeast => "dmem.min",
        }
    }
}

/// The limit of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimitInForce {
    /// `u64::MAX` for none.
    pub(crate) bytes: u64,
    pub(crate) source: LimitSource,
}

/// What a limit is made of, bytes.
#[derive(Debug, Clone, Copy)]
struct LimitFacts {
    settings: u64,
    asked: Option<u64>,
    ceiling: u64,
    group: GroupLimits,
}

/// The smallest one counts. Only one that was asked for is raised to what the group is sure of: an
/// operator has set that for the case that others ask.
fn judge(facts: &LimitFacts) -> LimitInForce {
    let wanted = match facts.asked {
        Some(bytes) => match facts.group.least.filter(|least| *least > bytes) {
            Some(least) => LimitInForce { bytes: least, source: LimitSource::GroupLeast },
            None => LimitInForce { bytes, source: LimitSource::Asked },
        },
        None => LimitInForce { bytes: facts.settings, source: LimitSource::Settings },
    };
    let ceiling = LimitInForce { bytes: facts.ceiling, source: LimitSource::Ceiling };
    let most = facts.group.most.unwrap_or(u64::MAX);
    let group = LimitInForce { bytes: most, source: LimitSource::Group };
    // The settings are bounded by the ceiling already.
    let bounded = if ceiling.bytes <= wanted.bytes { ceiling } else { wanted };
    let limit = if group.bytes < bounded.bytes { group } else { bounded };
    match limit.bytes {
        u64::MAX => LimitInForce { source: LimitSource::None, ..limit },
        _ => limit,
    }
}

impl LimitBook {
    pub(super) const fn new() -> Self {
        Self { asked: Mutex::new(AskedLimits::new()), of_settings: DeviceValues::new(u64::MAX) }
    }

    /// Asks for a limit of one device or of all; `u64::MAX` lifts it.
    pub(super) fn ask(&self, device: Option<CUdevice>, bytes: u64) {
        lock(&self.asked).ask(device, bytes);
    }

    /// The settings give a device this limit.
    pub(super) fn set_of_settings(&self, device: CUdevice, bytes: u64) {
        self.of_settings.set(device, bytes);
    }

    /// The limit of a device, by the node's ceiling and what its control groups say.
    pub(super) fn of(&self, device: CUdevice, ceiling: u64, group: GroupLimits) -> LimitInForce {
        let settings = self.of_settings.get(device).unwrap_or(u64::MAX);
        judge(&LimitFacts { settings, asked: lock(&self.asked).of(device), ceiling, group })
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (out of memory): a limit that is asked for while the program runs exceeds what the
    //! node or the container allows.
    use proptest::prelude::*;

    use super::*;

    const NO_GROUP: GroupLimits = GroupLimits { most: None, least: None };

    fn limit(facts: LimitFacts) -> (u64, &'static str) {
        let LimitInForce { bytes, source } = judge(&facts);
        (bytes, source.text())
    }

    #[test]
    fn the_limit_names_what_it_comes_from() {
        let none = LimitFacts { settings: u64::MAX, asked: None, ceiling: u64::MAX, group: NO_GROUP };
        assert_eq!(limit(none), (u64::MAX, "none"));
        assert_eq!(limit(LimitFacts { settings: 40, ..none }), (40, "WMSHIM_DEVICE_LIMIT"));
        let asked = LimitFacts { settings: 40, asked: Some(60), ..none };
        assert_eq!(limit(asked), (60, "asked"));
        assert_eq!(limit(LimitFacts { asked: Some(u64::MAX), ..asked }), (u64::MAX, "none"));
        let bounded = LimitFacts { ceiling: 50, ..asked };
        assert_eq!(limit(bounded), (50, wm_trust::node::PATH));
        let group = GroupLimits { most: Some(30), least: Some(20) };
        assert_eq!(limit(LimitFacts { group, ..bounded }), (30, "dmem.max"));
        assert_eq!(limit(LimitFacts { group, asked: Some(10), ..bounded }), (20, "dmem.min"));
        assert_eq!(
            limit(LimitFacts { group, asked: None, settings: 10, ..none }),
            (10, "WMSHIM_DEVICE_LIMIT")
        );
    }

    #[test]
    fn a_limit_for_all_devices_replaces_that_of_one_and_not_the_other_way_round() {
        let mut asked = AskedLimits::new();
        assert_eq!(asked.of(0), None);
        asked.ask(Some(1), 10);
        assert_eq!((asked.of(0), asked.of(1)), (None, Some(10)));
        asked.ask(None, 20);
        assert_eq!((asked.of(0), asked.of(1)), (Some(20), Some(20)));
        asked.ask(Some(1), 0);
        asked.ask(Some(1), 30);
        assert_eq!((asked.of(0), asked.of(1), asked.of_one.len()), (Some(20), Some(30), 1));
    }

    proptest! {
        #[test]
        fn nothing_that_is_asked_for_exceeds_the_ceiling_or_the_group(
            settings in 0..100_u64,
            asked in proptest::option::of(prop_oneof![Just(u64::MAX), 0..100_u64]),
            ceiling in prop_oneof![Just(u64::MAX), 0..100_u64],
            most in proptest::option::of(0..100_u64),
            least in proptest::option::of(0..100_u64),
        ) {
            let group = GroupLimits { most, least };
            let facts = LimitFacts { settings: settings.min(ceiling), asked, ceiling, group };
            let LimitInForce { bytes, source } = judge(&facts);
            prop_assert!(bytes <= ceiling && bytes <= most.unwrap_or(u64::MAX));
            prop_assert_eq!(bytes == u64::MAX, source == LimitSource::None);
            let wanted = asked.map_or(facts.settings, |asked| asked.max(least.unwrap_or(0)));
            prop_assert_eq!(bytes, wanted.min(ceiling).min(most.unwrap_or(u64::MAX)));
        }
    }
}
