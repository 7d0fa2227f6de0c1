//! The notations of settings' values: sizes, switches, lists. Pure; the row of a setting in
//! `settings!` says which of them is valid.
//!
//! Rules for all of them: the words of [`environment::switch`] turn off every setting that can be
//! off, and on every setting that has one meaning of `on`; a size names its unit, for a forgotten
//! one turns 48 GiB into 48 bytes; a path may have any bytes.

use std::ffi::OsStr;
use std::path::PathBuf;

use log::LevelFilter;
use wm_driver::logger;
use wm_schema::size::Quantity;
use wm_trust::environment;

pub(crate) use super::size::Size;

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
    /// All whose maker does not need the device.
    Auto,
    /// PyTorch's expandable segments.
    Torch,
    /// All of them.
    All,
    /// None.
    Off,
}

/// The use of physical memory that PyTorch's expandable segments give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TorchPieces {
    /// It stays, and serves their next ones.
    Keep,
    /// It goes back to the driver.
    Release,
}

/// Which links copies may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Multipath {
    /// All copies are the driver's.
    Off,
    /// Pageable ones the target's own, filled by threads; others are the driver's.
    Own,
    /// Also those of siblings that are worth it.
    Auto,
    /// Also those of these devices, by ordinal.
    Devices(Vec<i32>),
}

/// Is memory that holds the same bytes stored once?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dedup {
    Off,
    /// Blocks that could be shared are counted, and no memory changes.
    Advise,
    /// From the moment on when another process could share with this one.
    Auto,
    On,
}

/// What of the library's own work is checked at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verify {
    Off,
    /// Memory that leaves the device without a copy.
    Moves,
}

/// The detector of writes past the end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Nothing.
    Off,
    /// Unmapped space behind large blocks.
    Page,
    /// Patterns behind all blocks.
    Canary,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// An object a line.
    Json,
}

/// PyTorch's allocator back end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TorchAllocator {
    /// `cudaMallocAsync`, except for programs that need features that it lacks.
    Auto,
    /// `cudaMallocAsync`.
    Async,
    /// PyTorch's own.
    Native,
    /// PyTorch's own with expandable segments.
    Expandable,
}

/// JAX's allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JaxAllocator {
    /// `cuda_async` where memory may overflow, if the user has not chosen.
    Auto,
    /// `cuda_async`, if the user has not chosen.
    Async,
    /// JAX's own choice.
    Native,
}

/// A value that a setting does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotUnderstood;

pub(super) type Parsed<T> = Result<T, NotUnderstood>;

pub(super) fn is_off(text: &str) -> bool {
    environment::switch(text) == Some(false)
}

fn is_on(text: &str) -> bool {
    environment::switch(text) == Some(true)
}

pub(super) fn switch(text: &str) -> Parsed<bool> {
    environment::switch(text).ok_or(NotUnderstood)
}

/// A reader of text as a reader of the environment's bytes.
pub(super) fn words<T>(text: &OsStr, read: fn(&str) -> Parsed<T>) -> Parsed<T> {
    text.to_str().map_or(Err(NotUnderstood), |text| read(text.trim()))
}

pub(super) fn path(text: &OsStr) -> Parsed<Option<PathBuf>> {
    Ok(Some(PathBuf::from(text)))
}

/// A path, or nothing at all.
pub(super) fn path_or_off(text: &OsStr) -> Parsed<Option<PathBuf>> {
    Ok(Some(text).filter(|text| !text.to_str().is_some_and(is_off)).map(PathBuf::from))
}

/// A path, or `off` in one spelling.
pub(super) fn socket(text: &OsStr) -> Parsed<Option<PathBuf>> {
    Ok(path_or_off(text)?.or_else(|| Some(PathBuf::from("off"))))
}

/// `512MiB`, `32GiB`, `80%`; no number without a unit.
pub(super) fn size(text: &str) -> Parsed<Size> {
    let quantity = Quantity::split(text).ok_or(NotUnderstood)?;
    match quantity {
        Quantity { number, unit: "%" } if number <= 100.0 => Ok(Size::Share(number / 100.0)),
        _ => quantity.bytes().map(|bytes| Size::Bytes(bytes as u64)).ok_or(NotUnderstood),
    }
}

/// A limit that must not be 0: with no device memory at all, every block would lie on the host.
/// `off`: no limit.
pub(super) fn limit(text: &OsStr) -> Parsed<Option<Size>> {
    words(text, |text| match text {
        "0" => Err(NotUnderstood),
        off if is_off(off) => Ok(None),
        text => size(text).ok().filter(|size| size.of(u64::MAX) > 0).map(Some).ok_or(NotUnderstood),
    })
}

/// Memory that is left to others: not the whole device. `off` and 0: none.
pub(super) fn headroom(text: &OsStr) -> Parsed<Option<Size>> {
    let parsed = words(text, |text| if is_off(text) { Ok(Size::Bytes(0)) } else { size(text) });
    parsed
        .ok()
        .filter(|size| !matches!(size, Size::Share(share) if *share >= 1.0))
        .map(Some)
        .ok_or(NotUnderstood)
}

/// A limit that may be nothing. `0`: nothing may be held; `off`: no limit.
pub(super) fn allowance(text: &OsStr) -> Parsed<Option<Size>> {
    words(text, |text| match text {
        "0" => Ok(Some(Size::Bytes(0))),
        off if is_off(off) => Ok(None),
        text => size(text).map(Some),
    })
}

/// An amount that may be nothing, which `off` says too.
pub(super) fn amount(text: &OsStr) -> Parsed<Option<Size>> {
    words(text, |text| if is_off(text) { Ok(Some(Size::Bytes(0))) } else { size(text).map(Some) })
}

pub(super) fn overflow(text: &str) -> Parsed<Vec<Overflow>> {
    match environment::switch(text) {
        Some(false) => return Ok(Vec::new()),
        Some(true) => return Ok(vec![Overflow::Host]),
        None => {}
    }
    let mut tiers = text
        .split(',')
        .map(|word| match word.trim().to_ascii_lowercase().as_str() {
            "host" => Ok(Overflow::Host),
            "peer" => Ok(Overflow::Peer),
            _ => Err(NotUnderstood),
        })
        .collect::<Parsed<Vec<_>>>()?;
    // Kernels read peers seven times as fast as the host: they come first in whatever order they
    // were named.
    tiers.sort_by_key(|tier| *tier == Overflow::Host);
    tiers.dedup();
    Ok(tiers)
}

pub(super) fn torch_pieces(text: &str) -> Parsed<TorchPieces> {
    match text.to_ascii_lowercase().as_str() {
        "keep" => Ok(TorchPieces::Keep),
        "release" => Ok(TorchPieces::Release),
        _ => Err(NotUnderstood),
    }
}

pub(super) fn created(text: &str) -> Parsed<Created> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(Created::Auto),
        on if is_on(on) => Ok(Created::Auto),
        "torch" => Ok(Created::Torch),
        "all" => Ok(Created::All),
        off if is_off(off) => Ok(Created::Off),
        _ => Err(NotUnderstood),
    }
}

pub(super) fn multipath(text: &str) -> Parsed<Multipath> {
    let device = |word: &str| word.trim().parse().ok().filter(|device| (0..64).contains(device));
    match text.to_ascii_lowercase().as_str() {
        // 0 and 1 are devices here.
        off if off != "0" && is_off(off) => Ok(Multipath::Off),
        on if on != "1" && is_on(on) => Ok(Multipath::Own),
        "own" => Ok(Multipath::Own),
        "auto" => Ok(Multipath::Auto),
        list => list
            .split(',')
            .map(device)
            .collect::<Option<Vec<i32>>>()
            .map(Multipath::Devices)
            .ok_or(NotUnderstood),
    }
}

pub(super) fn guard(text: &str) -> Parsed<Guard> {
    match text.to_ascii_lowercase().as_str() {
        off if is_off(off) => Ok(Guard::Off),
        "page" => Ok(Guard::Page),
        "canary" => Ok(Guard::Canary),
        _ => Err(NotUnderstood),
    }
}

pub(super) fn verify(text: &str) -> Parsed<Verify> {
    match text.to_ascii_lowercase().as_str() {
        off if is_off(off) => Ok(Verify::Off),
        "moves" => Ok(Verify::Moves),
        on if is_on(on) => Ok(Verify::Moves),
        _ => Err(NotUnderstood),
    }
}

pub(super) fn dedup(text: &str) -> Parsed<Dedup> {
    match text.to_ascii_lowercase().as_str() {
        off if is_off(off) => Ok(Dedup::Off),
        on if is_on(on) => Ok(Dedup::On),
        "advise" => Ok(Dedup::Advise),
        "auto" => Ok(Dedup::Auto),
        _ => Err(NotUnderstood),
    }
}

/// A share of a whole, above 0 and at most 1.
pub(super) fn share(text: &str) -> Parsed<f64> {
    match size(text) {
        Ok(Size::Share(share)) if share > 0.0 => Ok(share),
        _ => Err(NotUnderstood),
    }
}

/// A size that is not a share of anything.
pub(super) fn bytes(text: &str) -> Parsed<u64> {
    match size(text) {
        Ok(Size::Bytes(bytes)) => Ok(bytes),
        _ => Err(NotUnderstood),
    }
}

pub(super) fn torch(text: &str) -> Parsed<TorchAllocator> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(TorchAllocator::Auto),
        "async" => Ok(TorchAllocator::Async),
        "native" => Ok(TorchAllocator::Native),
        "expandable" => Ok(TorchAllocator::Expandable),
        _ => Err(NotUnderstood),
    }
}

pub(super) fn jax(text: &str) -> Parsed<JaxAllocator> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(JaxAllocator::Auto),
        "async" => Ok(JaxAllocator::Async),
        "native" => Ok(JaxAllocator::Native),
        _ => Err(NotUnderstood),
    }
}

/// Signals without a meaning but a program's own. Any other is a fault's, the terminal's, the job
/// system's, or cannot be taken.
pub(super) fn signal(text: &str) -> Parsed<Option<i32>> {
    const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;
    let upper = text.to_ascii_uppercase();
    match upper.strip_prefix("SIG").unwrap_or(&upper) {
        off if is_off(off) => Ok(None),
        "USR1" => Ok(Some(libc::SIGUSR1)),
        "USR2" => Ok(Some(libc::SIGUSR2)),
        number => {
            let free = |n: &i32| [libc::SIGUSR1, libc::SIGUSR2].contains(n) || REAL_TIME.contains(n);
            number.parse().ok().filter(free).map(Some).ok_or(NotUnderstood)
        }
    }
}

pub(super) fn level(text: &str) -> Parsed<LevelFilter> {
    logger::level(text).ok_or(NotUnderstood)
}

pub(super) fn log_format(text: &str) -> Parsed<LogFormat> {
    let is_json = logger::is_json(text).ok_or(NotUnderstood)?;
    Ok(if is_json { LogFormat::Json } else { LogFormat::Text })
}

#[cfg(test)]
mod tests {
    //! Hazard (error handling): a value is read as another one, or a bad one is accepted.
    use std::os::unix::ffi::OsStrExt;

    use wm_memory::KeepCopies;

    use super::super::moving::{Migrate, kept_copies, migrate};
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("512MiB"), Ok(Size::Bytes(512 << 20)));
        assert_eq!(size("1.5 GiB"), Ok(Size::Bytes(3 << 29)));
        assert_eq!(size("48GB"), Ok(Size::Bytes(48_000_000_000)));
        assert_eq!(size("4096B"), Ok(Size::Bytes(4096)));
        assert_eq!(size("80%").map(|s| s.of(1000)), Ok(800));
        for bad in ["", "GiB", "101%", "5 bananas", "-1GiB", "1e99", "48", "4096", "1.5"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_device_is_not_limited_to_nothing() {
        for bad in ["0", "0B", "0%", "48", "no limit"] {
            assert!(limit(OsStr::new(bad)).is_err(), "{bad}");
        }
        assert_eq!(limit(OsStr::new("off")), Ok(None));
        for bad in ["100%", "101%", "64"] {
            assert!(headroom(OsStr::new(bad)).is_err(), "{bad}");
        }
        for nothing in ["0", "off", "0%"] {
            assert_eq!(
                headroom(OsStr::new(nothing)).map(|size| size.map(|size| size.of(1 << 30))),
                Ok(Some(0))
            );
        }
        assert_eq!(allowance(OsStr::new("0")), Ok(Some(Size::Bytes(0))));
        assert_eq!(allowance(OsStr::new("off")), Ok(None));
        assert_eq!(amount(OsStr::new("off")), Ok(Some(Size::Bytes(0))));
        assert!(amount(OsStr::new("512")).is_err() && allowance(OsStr::new("7")).is_err());
    }

    #[test]
    fn off_has_the_same_words_everywhere() {
        for off in ["off", "OFF", "no", "false", "none"] {
            assert_eq!(overflow(off), Ok(vec![]), "{off}");
            assert_eq!(created(off), Ok(Created::Off), "{off}");
            assert_eq!(guard(off), Ok(Guard::Off), "{off}");
            assert_eq!(multipath(off), Ok(Multipath::Off), "{off}");
            assert_eq!(signal(off), Ok(None), "{off}");
            assert_eq!(level(off), Ok(LevelFilter::Off), "{off}");
            assert_eq!(socket(OsStr::new(off)), Ok(Some("off".into())), "{off}");
            assert_eq!(path_or_off(OsStr::new(off)), Ok(None), "{off}");
        }
        assert_eq!((switch("0"), switch("No"), switch("none")), (Ok(false), Ok(false), Ok(false)));
        assert_eq!((overflow("0"), guard("0")), (Ok(vec![]), Ok(Guard::Off)));
        assert_eq!(multipath("0"), Ok(Multipath::Devices(vec![0])));
    }

    #[test]
    fn on_has_the_same_words_where_it_has_one_meaning() {
        for on in ["on", "ON", "yes", "true"] {
            assert_eq!(multipath(on), Ok(Multipath::Own), "{on}");
        }
        for on in ["on", "Yes", "true", "1"] {
            assert_eq!((switch(on), kept_copies(on)), (Ok(true), Ok(KeepCopies::On)), "{on}");
            assert_eq!(migrate(on), Ok(Migrate::On), "{on}");
            assert_eq!((dedup(on), verify(on)), (Ok(Dedup::On), Ok(Verify::Moves)), "{on}");
            assert_eq!((overflow(on), created(on)), (Ok(vec![Overflow::Host]), Ok(Created::Auto)), "{on}");
            // There are two guards, and any signal could be meant.
            assert!(guard(on).is_err() && signal(on).is_err(), "{on}");
        }
        assert_eq!(multipath("1"), Ok(Multipath::Devices(vec![1])));
    }

    #[test]
    fn paths_may_have_any_bytes() {
        let odd = OsStr::from_bytes(b"/a/\xff");
        assert_eq!(path(odd), Ok(Some(PathBuf::from(odd))));
        assert!(words(odd, size).is_err());
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
        assert_eq!(multipath("Own"), Ok(Multipath::Own));
        assert_eq!(multipath("OFF"), Ok(Multipath::Off));
        assert_eq!(multipath("0, 3"), Ok(Multipath::Devices(vec![0, 3])));
        for bad in ["", "0,", "-1", "64", "0;1"] {
            assert!(multipath(bad).is_err(), "{bad}");
        }
        assert_eq!(bytes("32MiB"), Ok(32 << 20));
        assert!(bytes("80%").is_err());
    }

    #[test]
    fn signals() {
        assert_eq!(signal("SIGUSR1"), Ok(Some(libc::SIGUSR1)));
        assert_eq!(signal("off"), Ok(None));
        assert_eq!(signal("34"), Ok(Some(34)));
        for bad in ["99", "9", "11", "SEGV", "15", "TERM", "32", "-1", "SIGSIGUSR1"] {
            assert!(signal(bad).is_err(), "{bad}");
        }
    }
}
