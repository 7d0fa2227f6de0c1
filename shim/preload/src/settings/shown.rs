//! Settings as people write them: a value that `stats --config` shows can be set again as it
//! stands.
//!
//! `None` is a setting that is not set and has no fixed default: the driver is searched for, a
//! limit is not there.

use std::path::PathBuf;

use log::LevelFilter;
use wm_memory::KeepCopies;
use wm_schema::size;

use super::moving::{Migrate, Pause, PauseArena, Share};
use super::values::{
    Created, Dedup, Guard, JaxAllocator, LogFormat, Multipath, Overflow, Size, TorchAllocator, TorchPieces,
    Verify,
};

/// A value in the notation in which it is read.
pub(super) trait Shown {
    fn shown(&self) -> Option<String>;
}

impl Shown for bool {
    fn shown(&self) -> Option<String> {
        Some(if *self { "on" } else { "off" }.to_owned())
    }
}

impl Shown for Option<PathBuf> {
    fn shown(&self) -> Option<String> {
        self.as_ref().map(|path| path.display().to_string())
    }
}

impl Shown for Option<Size> {
    fn shown(&self) -> Option<String> {
        self.map(|size| match size {
            Size::Bytes(count) => size::exact(count),
            Size::Share(share) => format!("{}%", share * 100.0),
            Size::Least(bytes, share) => format!("{}, at most {}%", size::exact(bytes), share * 100.0),
        })
    }
}

impl Shown for Option<u64> {
    fn shown(&self) -> Option<String> {
        self.map(size::exact)
    }
}

impl Shown for u32 {
    fn shown(&self) -> Option<String> {
        Some(self.to_string())
    }
}

/// A share, as percent.
impl Shown for f64 {
    fn shown(&self) -> Option<String> {
        Some(format!("{}%", self * 100.0))
    }
}

/// A signal by its number: names of real-time signals are the C library's.
impl Shown for Option<i32> {
    fn shown(&self) -> Option<String> {
        Some(match *self {
            None => "off".to_owned(),
            Some(libc::SIGUSR1) => "USR1".to_owned(),
            Some(libc::SIGUSR2) => "USR2".to_owned(),
            Some(number) => number.to_string(),
        })
    }
}

impl Shown for Vec<Overflow> {
    fn shown(&self) -> Option<String> {
        let word = |tier: &Overflow| match tier {
            Overflow::Peer => "peer",
            Overflow::Host => "host",
        };
        let words: Vec<_> = self.iter().map(word).collect();
        Some(if words.is_empty() { "off".to_owned() } else { words.join(",") })
    }
}

impl Shown for Created {
    fn shown(&self) -> Option<String> {
        let word = match self {
            Self::Auto => "auto",
            Self::Torch => "torch",
            Self::All => "all",
            Self::Off => "off",
        };
        Some(word.to_owned())
    }
}

impl Shown for TorchPieces {
    fn shown(&self) -> Option<String> {
        Some(if *self == Self::Keep { "keep" } else { "release" }.to_owned())
    }
}

impl Shown for Multipath {
    fn shown(&self) -> Option<String> {
        Some(match self {
            Self::Off => "off".to_owned(),
            Self::Own => "own".to_owned(),
            Self::Auto => "auto".to_owned(),
            Self::Devices(list) => list.iter().map(i32::to_string).collect::<Vec<_>>().join(","),
        })
    }
}

impl Shown for KeepCopies {
    fn shown(&self) -> Option<String> {
        let word = match self {
            Self::Off => "off",
            Self::Auto => "auto",
            Self::On => "on",
        };
        Some(word.to_owned())
    }
}

impl Shown for Pause {
    fn shown(&self) -> Option<String> {
        let word = match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Auto => "auto",
            Self::Paused => "paused",
        };
        Some(word.to_owned())
    }
}

impl Shown for PauseArena {
    fn shown(&self) -> Option<String> {
        match self {
            Self::Off => Some("off".to_owned()),
            Self::Auto => Some("auto".to_owned()),
            Self::AtMost(size) => Some(*size).shown(),
        }
    }
}

impl Shown for Share {
    fn shown(&self) -> Option<String> {
        Some(if *self == Self::Turns { "turns" } else { "off" }.to_owned())
    }
}

impl Shown for Migrate {
    fn shown(&self) -> Option<String> {
        let word = match self {
            Self::Off => "off",
            Self::Asked => "asked",
            Self::Auto => "auto",
            Self::On => "on",
        };
        Some(word.to_owned())
    }
}

impl Shown for Verify {
    fn shown(&self) -> Option<String> {
        Some(if *self == Self::Moves { "moves" } else { "off" }.to_owned())
    }
}

impl Shown for Dedup {
    fn shown(&self) -> Option<String> {
        let word = match self {
            Self::Off => "off",
            Self::Advise => "advise",
            Self::Auto => "auto",
            Self::On => "on",
        };
        Some(word.to_owned())
    }
}

impl Shown for Guard {
    fn shown(&self) -> Option<String> {
        let word = match self {
            Self::Off => "off",
            Self::Page => "page",
            Self::Canary => "canary",
        };
        Some(word.to_owned())
    }
}

impl Shown for JaxAllocator {
    fn shown(&self) -> Option<String> {
        Some(format!("{self:?}").to_ascii_lowercase())
    }
}

impl Shown for TorchAllocator {
    fn shown(&self) -> Option<String> {
        Some(format!("{self:?}").to_ascii_lowercase())
    }
}

impl Shown for LogFormat {
    fn shown(&self) -> Option<String> {
        Some(format!("{self:?}").to_ascii_lowercase())
    }
}

impl Shown for LevelFilter {
    fn shown(&self) -> Option<String> {
        Some(self.as_str().to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a shown value cannot be set again, or is set again as something else.
    use std::ffi::OsStr;

    use super::super::values;
    use super::*;

    #[test]
    fn what_is_shown_is_read_as_the_same() {
        for text in ["48GiB", "1536MiB", "7B", "80%", "12.5%", "0B"] {
            let size = values::amount(OsStr::new(text)).expect(text);
            let shown = size.shown().expect(text);
            assert_eq!(values::amount(OsStr::new(&shown)), Ok(size), "{text} -> {shown}");
        }
        assert_eq!(values::limit(OsStr::new("1.5GiB")).expect("a size").shown().as_deref(), Some("1536MiB"));
        for text in ["USR1", "USR2", "off", "34"] {
            assert_eq!(values::signal(text).expect(text).shown().as_deref(), Some(text));
        }
        for text in ["off", "peer,host", "host"] {
            assert_eq!(values::overflow(text).expect(text).shown().as_deref(), Some(text));
        }
        assert_eq!(values::multipath("0,2").expect("devices").shown().as_deref(), Some("0,2"));
        assert_eq!((true.shown().as_deref(), None::<Size>.shown()), (Some("on"), None));
    }
}
