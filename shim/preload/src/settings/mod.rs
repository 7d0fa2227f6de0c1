//! Everything a user can set, read once at the first CUDA call.
//!
//! One place to add a setting: a row of `settings!`. A row gives the field, the variable, the default, how a value is
//! read, and what the values are. A bad value or an unknown `WMSHIM_` variable is one line on stderr that says what
//! would be right; the default is used.

mod check;
mod file_names;
mod shown;
mod values;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::OnceLock;

use shown::Shown;
use values::{
    allowance, amount, bytes, created, guard, headroom, level, limit, multipath, overflow, path, path_or_off,
    signal, socket, switch, torch, torch_pieces, torch_shortage, words,
};

pub(crate) use file_names::{replace, with_process};
pub(crate) use values::{
    Created, Guard, Multipath, Overflow, Size, TorchAllocator, TorchPieces, TorchShortage,
};

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// How to read one value; `Err` says what would be right.
type Read<T> = fn(&OsStr) -> Result<T, &'static str>;

macro_rules! settings {
    ($($(#[$doc:meta])+ $field:ident: $type:ty = $default:expr, $variable:literal, $read:expr;)*) => {
        /// The settings in force.
        #[derive(Debug, Clone)]
        pub(crate) struct Settings {
            $($(#[$doc])+ pub(crate) $field: $type,)*
        }

        /// Variables that are read here.
        const KNOWN: &[&str] = &[$($variable,)*];

        impl Settings {
            fn read(environment: &dyn Fn(&str) -> Option<OsString>, complain: &mut dyn FnMut(String)) -> Self {
                Self { $($field: value($variable, $default, $read, environment, complain),)* }
            }

            /// For the `config` request: each variable with its value as it is written, or null where there is none.
            pub(crate) fn describe(&self) -> BTreeMap<String, Option<String>> {
                BTreeMap::from([$(($variable.to_owned(), self.$field.shown()),)*])
            }
        }
    };
}

settings! {
    /// The real driver library, or the folder it lies in. Default: searched.
    driver: Option<PathBuf> = None, "WMSHIM_DRIVER", path;
    /// Forward everything, intercept nothing.
    disable: bool = false, "WMSHIM_DISABLE", |text| words(text, NOT_TEXT, switch);
    /// PyTorch's allocator back end, chosen when the process loads.
    torch_allocator: TorchAllocator = TorchAllocator::Auto, "WMSHIM_TORCH_ALLOCATOR", |text| words(text, NOT_TEXT, torch);
    /// Serve device memory ourselves. `off`: every allocation is the driver's.
    stitch: bool = true, "WMSHIM_STITCH", |text| words(text, NOT_TEXT, switch);
    /// `cuMemFree` waits for the device, as the driver's does. `off`: it returns at once, and its memory is used again later.
    free_waits: bool = true, "WMSHIM_FREE_WAITS", |text| words(text, NOT_TEXT, switch);
    /// Most device memory to hold, a size or a share of the device.
    device_limit: Option<Size> = None, "WMSHIM_DEVICE_LIMIT", limit;
    /// Device memory left free for the driver. Default: 1 % of the device, from 32 MiB to 1 GiB.
    headroom: Option<Size> = None, "WMSHIM_HEADROOM", headroom;
    /// Idle device memory that stays where the program frees with `cuMemFree`, a size or a share of the device. What is more goes
    /// back to the driver, so that other processes can have it. Default: 512 MiB.
    keep_idle: Option<Size> = None, "WMSHIM_KEEP_IDLE", amount;
    /// Where blocks go when the device is full, in this order.
    overflow: Vec<Overflow> = vec![Overflow::Host], "WMSHIM_OVERFLOW", |text| words(text, NOT_TEXT, overflow);
    /// Whose memory of `cuMemCreate` goes there too: not everybody bears it.
    overflow_created: Created = Created::Torch, "WMSHIM_OVERFLOW_CREATED", |text| words(text, NOT_TEXT, created);
    /// Does PyTorch's own allocator hear of a full device before its memory goes elsewhere?
    torch_shortage: TorchShortage = TorchShortage::Told, "WMSHIM_TORCH_SHORTAGE", |text| words(text, NOT_TEXT, torch_shortage);
    /// Does physical memory that PyTorch's expandable segments give up stay, for their next ones?
    torch_pieces: TorchPieces = TorchPieces::Keep, "WMSHIM_TORCH_PIECES", |text| words(text, NOT_TEXT, torch_pieces);
    /// Most host memory to pin, a size or a share of the machine. Default: what is available.
    host_limit: Option<Size> = None, "WMSHIM_HOST_LIMIT", allowance;
    /// Most memory to take on other devices, a size or a share of one.
    peer_limit: Option<Size> = None, "WMSHIM_PEER_LIMIT", allowance;
    /// Links that copies may use: the target's own, and siblings'.
    multipath: Multipath = Multipath::Own, "WMSHIM_MULTIPATH", |text| words(text, NOT_TEXT, multipath);
    /// Smallest copy that is not the driver's. Default: as measured.
    multipath_min: Option<u64> = None, "WMSHIM_MULTIPATH_MIN", |text| words(text, NOT_TEXT, bytes).map(Some);
    /// What tells of writes past the end of a block.
    guard: Guard = Guard::Off, "WMSHIM_GUARD", |text| words(text, NOT_TEXT, guard);
    /// The statistics socket's path, or `off`.
    stats_socket: Option<PathBuf> = None, "WMSHIM_STATS_SOCKET", socket;
    /// The folder of statistics sockets and dumps.
    stats_dir: Option<PathBuf> = None, "WMSHIM_STATS_DIR", path;
    /// The signal that writes statistics to a file. Default: none, for a program may rely on any signal's default action.
    stats_signal: Option<i32> = None, "WMSHIM_STATS_SIGNAL", |text| words(text, NOT_TEXT, signal);
    /// The file that the last statistics are written to when the process exits; `%p` is the process.
    stats_at_exit: Option<PathBuf> = None, "WMSHIM_STATS_AT_EXIT", path_or_off;
    /// Where what the shim serves is written down, for `wmctl replay`.
    trace: Option<PathBuf> = None, "WMSHIM_TRACE", path_or_off;
    /// What goes to stderr.
    log: log::LevelFilter = log::LevelFilter::Warn, "WMSHIM_LOG", |text| words(text, NOT_TEXT, level);
}

/// What is valid where text is wanted and something else stands.
const NOT_TEXT: &str = "text in UTF-8, see docs/operations.md";

/// NamedStream in the documentation of later versions, without effect in this one.
const RESERVED: &[&str] = &["WMSHIM_MIGRATE", "WMSHIM_DEDUP"];

/// Of our tools, and a note from a process to its children; not settings of the library.
const FOREIGN: &[&str] = &["WMSHIM_LIB", "WMSHIM_TORCH_CHOICE"];

/// Reads the environment once; later calls get the same settings.
pub(crate) fn load() -> &'static Settings {
    SETTINGS.get_or_init(|| {
        let settings = Settings::read(&|name| std::env::var_os(name), &mut |line| {
            log::warn!("{line}. The default is used")
        });
        log::set_max_level(settings.log);
        for line in strangers(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())) {
            log::warn!("{line}");
        }
        settings
    })
}

/// The settings, if the first CUDA call has been made.
pub(crate) fn get() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// A value of WMSHIM_TORCH_ALLOCATOR, for the choice that is made before settings are read.
pub(crate) fn torch_allocator(text: &str) -> Option<TorchAllocator> {
    torch(text).ok()
}

fn value<T>(
    name: &str,
    default: T,
    read: Read<T>,
    environment: &dyn Fn(&str) -> Option<OsString>,
    complain: &mut dyn FnMut(String),
) -> T {
    let Some(text) = environment(name).filter(|text| !text.is_empty()) else { return default };
    read(&text).unwrap_or_else(|valid| {
        complain(format!("{name}={} is not understood; valid: {valid}", printable(&text)));
        default
    })
}

/// A value as one line may hold it.
fn printable(text: &OsStr) -> String {
    const LONGEST: usize = 80;
    text.to_string_lossy().chars().take(LONGEST).flat_map(char::escape_debug).collect()
}

fn strangers(names: impl Iterator<Item = String>) -> Vec<String> {
    let ours = names.filter(|name| name.starts_with("WMSHIM_"));
    let strange = ours.filter(|name| !KNOWN.contains(&name.as_str()) && !FOREIGN.contains(&name.as_str()));
    strange.map(|name| complaint(&name)).collect()
}

fn complaint(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("{name} has no effect in this version");
    }
    format!("{name} is not a setting; valid: {}", KNOWN.join(" "))
}

#[cfg(test)]
mod tests {
    //! Hazard: a typing error in a job script is ignored in silence, or ends the job.
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (Settings, Vec<String>) {
        let mut lines = Vec::new();
        let find = |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(*v));
        let settings = Settings::read(&find, &mut |line| lines.push(line));
        (settings, lines)
    }

    #[test]
    fn good_values_are_taken() {
        let (settings, lines) =
            read(&[("WMSHIM_STITCH", "off"), ("WMSHIM_DEVICE_LIMIT", "48GiB"), ("WMSHIM_OVERFLOW", "off")]);
        assert!(lines.is_empty());
        assert!(!settings.stitch);
        assert_eq!(settings.device_limit, Some(Size::Bytes(48 << 30)));
        assert!(settings.overflow.is_empty());
    }

    #[test]
    fn a_bad_value_is_one_line_with_the_valid_ones_and_the_default() {
        let (settings, lines) = read(&[("WMSHIM_STITCH", "maybe"), ("WMSHIM_HOST_LIMIT", "12 bananas")]);
        assert!(settings.stitch);
        assert_eq!(settings.host_limit, None);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("on, off"), "{}", lines[0]);
        assert!(lines[1].contains("GiB"), "{}", lines[1]);
    }

    #[test]
    fn unknown_variables_are_named() {
        let names = ["WMSHIM_STICH", "WMSHIM_LOG", "PATH", "WMSHIM_DEDUP", "WMSHIM_LIB"];
        let lines = strangers(names.iter().map(|name| (*name).to_owned()));
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("WMSHIM_STITCH"));
        assert!(lines[1].contains("no effect"));
    }
}
