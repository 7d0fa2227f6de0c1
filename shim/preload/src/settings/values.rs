//! The notations of settings' values: sizes, switches, lists. Pure, each with what is valid as its error.

use std::path::PathBuf;

use log::LevelFilter;

/// An amount of memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Size {
    /// Bytes.
    Bytes(u64),
    /// A share of the whole, 0 to 1.
    Share(f64),
}

impl Size {
    /// Bytes of a whole of `total` bytes.
    pub(crate) fn of(self, total: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => (total as f64 * share) as u64,
        }
    }
}

/// Where blocks go when the device is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// Other GPUs.
    Peer,
    /// Pinned host memory.
    Host,
}

/// Whose memory of `cuMemCreate` may go where blocks go when the device is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Created {
    /// PyTorch's expandable segments.
    Torch,
    /// Everybody's.
    All,
    /// Nobody's.
    Off,
}

/// Does PyTorch's own allocator hear of a full device?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TorchShortage {
    /// First: it empties its cache, and what it asks for then goes elsewhere.
    Told,
    /// Never: its memory goes elsewhere at once.
    Hidden,
}

/// What becomes of physical memory that PyTorch's expandable segments give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TorchPieces {
    /// It stays, and serves their next ones.
    Keep,
    /// It goes back to the driver.
    Release,
}

/// Which devices' links copies may use besides the target's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Multipath {
    /// None.
    Off,
    /// All that are worth it.
    Auto,
    /// These, by ordinal.
    Devices(Vec<i32>),
}

/// What tells of writes past the end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Nothing.
    Off,
    /// Unmapped space behind large blocks.
    Page,
    /// Patterns behind all blocks.
    Canary,
}

/// PyTorch's allocator back end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TorchAllocator {
    /// `cudaMallocAsync`, but for programs that need what it lacks.
    Auto,
    /// `cudaMallocAsync`.
    Async,
    /// PyTorch's own.
    Native,
    /// PyTorch's own with expandable segments.
    Expandable,
}

type Parsed<T> = Result<T, &'static str>;

pub(super) fn switch(text: &str) -> Parsed<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "1" | "true" | "yes" => Ok(true),
        "off" | "0" | "false" | "no" => Ok(false),
        _ => Err("on, off"),
    }
}

pub(super) fn path(text: &str) -> Parsed<Option<PathBuf>> {
    Ok(Some(PathBuf::from(text)))
}

/// `512MiB`, `32GiB`, `80%`, or plain bytes.
pub(super) fn size(text: &str) -> Parsed<Size> {
    const VALID: &str = "a size such as 512MiB or 32GiB (B, KiB, MiB, GiB, TiB), or a share such as 80%";
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| VALID)?;
    let scale = match unit.trim().to_ascii_lowercase().as_str() {
        "%" if number <= 100.0 => return Ok(Size::Share(number / 100.0)),
        "" | "b" => 0,
        "k" | "kib" | "kb" => 10,
        "m" | "mib" | "mb" => 20,
        "g" | "gib" | "gb" => 30,
        "t" | "tib" | "tb" => 40,
        _ => return Err(VALID),
    };
    Ok(Size::Bytes((number * (1u64 << scale) as f64) as u64))
}

pub(super) fn overflow(text: &str) -> Parsed<Vec<Overflow>> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(Vec::new());
    }
    let mut tiers = text
        .split(',')
        .map(|word| match word.trim().to_ascii_lowercase().as_str() {
            "host" => Ok(Overflow::Host),
            "peer" => Ok(Overflow::Peer),
            _ => Err("off, or a list of: host, peer"),
        })
        .collect::<Parsed<Vec<_>>>()?;
    // Kernels read peers seven times as fast as the host: they come first in whatever order they were named.
    tiers.sort_by_key(|tier| *tier == Overflow::Host);
    tiers.dedup();
    Ok(tiers)
}

pub(super) fn torch_shortage(text: &str) -> Parsed<TorchShortage> {
    match text.to_ascii_lowercase().as_str() {
        "told" => Ok(TorchShortage::Told),
        "hidden" => Ok(TorchShortage::Hidden),
        _ => Err("told, hidden"),
    }
}

pub(super) fn torch_pieces(text: &str) -> Parsed<TorchPieces> {
    match text.to_ascii_lowercase().as_str() {
        "keep" => Ok(TorchPieces::Keep),
        "release" => Ok(TorchPieces::Release),
        _ => Err("keep, release"),
    }
}

pub(super) fn created(text: &str) -> Parsed<Created> {
    match text.to_ascii_lowercase().as_str() {
        "torch" => Ok(Created::Torch),
        "all" => Ok(Created::All),
        "off" => Ok(Created::Off),
        _ => Err("torch, all, off"),
    }
}

pub(super) fn multipath(text: &str) -> Parsed<Multipath> {
    let device = |word: &str| word.trim().parse().ok().filter(|device| (0..64).contains(device));
    match text.to_ascii_lowercase().as_str() {
        "off" => Ok(Multipath::Off),
        "auto" => Ok(Multipath::Auto),
        list => list
            .split(',')
            .map(device)
            .collect::<Option<Vec<i32>>>()
            .map(Multipath::Devices)
            .ok_or("auto, off, or devices by number such as 0,1,2"),
    }
}

pub(super) fn guard(text: &str) -> Parsed<Guard> {
    match text.to_ascii_lowercase().as_str() {
        "off" => Ok(Guard::Off),
        "page" => Ok(Guard::Page),
        "canary" => Ok(Guard::Canary),
        _ => Err("off, page, canary"),
    }
}

/// A size that is not a share of anything.
pub(super) fn bytes(text: &str) -> Parsed<u64> {
    match size(text) {
        Ok(Size::Bytes(bytes)) => Ok(bytes),
        _ => Err("a size such as 32MiB or 1GiB (B, KiB, MiB, GiB, TiB)"),
    }
}

pub(super) fn torch(text: &str) -> Parsed<TorchAllocator> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(TorchAllocator::Auto),
        "async" => Ok(TorchAllocator::Async),
        "native" => Ok(TorchAllocator::Native),
        "expandable" => Ok(TorchAllocator::Expandable),
        _ => Err("auto, async, native, expandable"),
    }
}

pub(super) fn signal(text: &str) -> Parsed<Option<i32>> {
    match text.to_ascii_uppercase().trim_start_matches("SIG") {
        "OFF" | "0" => Ok(None),
        "USR1" => Ok(Some(libc::SIGUSR1)),
        "USR2" => Ok(Some(libc::SIGUSR2)),
        number => number
            .parse()
            .ok()
            .filter(|n| (1..=64).contains(n))
            .map(Some)
            .ok_or("off, USR1, USR2, or a number from 1 to 64"),
    }
}

pub(super) fn level(text: &str) -> Parsed<LevelFilter> {
    text.parse().map_err(|_| "off, error, warn, info, debug, trace")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("512MiB"), Ok(Size::Bytes(512 << 20)));
        assert_eq!(size("1.5 GiB"), Ok(Size::Bytes(3 << 29)));
        assert_eq!(size("4096"), Ok(Size::Bytes(4096)));
        assert_eq!(size("80%").map(|s| s.of(1000)), Ok(800));
        for bad in ["", "GiB", "101%", "5 bananas", "-1GiB", "1e99"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn peers_come_before_the_host() {
        assert_eq!(overflow("host,peer"), Ok(vec![Overflow::Peer, Overflow::Host]));
        assert_eq!(overflow("off"), Ok(vec![]));
        assert!(overflow("disk").is_err());
    }

    #[test]
    fn links() {
        assert_eq!(multipath("auto"), Ok(Multipath::Auto));
        assert_eq!(multipath("OFF"), Ok(Multipath::Off));
        assert_eq!(multipath("0, 3"), Ok(Multipath::Devices(vec![0, 3])));
        for bad in ["", "on", "0,", "-1", "64", "0;1"] {
            assert!(multipath(bad).is_err(), "{bad}");
        }
        assert_eq!(bytes("32MiB"), Ok(32 << 20));
        assert!(bytes("80%").is_err());
    }

    #[test]
    fn signals() {
        assert_eq!(signal("SIGUSR1"), Ok(Some(libc::SIGUSR1)));
        assert_eq!(signal("off"), Ok(None));
        assert!(signal("99").is_err());
    }
}
