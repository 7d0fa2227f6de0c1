//! The table of settings: a row for each variable, and how a row is read. Pure.
//!
//! One place to add a setting: a row of `settings!`. A row gives the variable, its values, the
//! default and its effect, as users read them, then the field, the default and the function that
//! reads a value. `docs/settings.md` and the messages about bad values are made from the rows.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use wm_memory::KeepCopies;

use super::moving::{Migrate, Pause, PauseArena, Share, kept_copies, migrate, pause, pause_arena, sharing};
use super::profile_target::{ProfileTarget, profile};
use super::shown::Shown;
use super::values::{
    Created, Dedup, Guard, JaxAllocator, LogFormat, Multipath, Overflow, Parsed, Size, TorchAllocator,
    TorchPieces, Verify, allowance, amount, bytes, created, dedup, guard, headroom, jax, level, limit,
    log_format, multipath, overflow, path, path_or_off, share, signal, socket, switch, torch, torch_pieces,
    verify, words,
};

/// How to read one value.
pub(super) type Read<T> = fn(&OsStr) -> Parsed<T>;

/// A row of `settings!` as users read it.
#[derive(Debug)]
pub(super) struct SettingText {
    pub(super) variable: &'static str,
    pub(super) values: &'static str,
    pub(super) default: &'static str,
}

macro_rules! settings {
    (
        library { $(
            $(#[$doc:meta])+ $variable:literal: $values:literal, $shown:literal
                => $field:ident: $type:ty = $default:expr, $read:expr;
        )* }
        others { $($(#[$other_doc:meta])+ $other:literal: $other_values:literal, $other_shown:literal;)* }
    ) => {
        /// The settings in force.
        #[derive(Debug, Clone)]
        pub(crate) struct Settings {
            $($(#[$doc])+ pub(crate) $field: $type,)*
        }

        /// Variables that are read here.
        pub(super) const KNOWN: &[SettingText] =
            &[$(SettingText { variable: $variable, values: $values, default: $shown },)*];

        /// Variables that our other programs and libraries read.
        pub(super) const OF_OTHERS: &[&str] = &[$($other,)*];

        /// Is this text a value of the variable?
        pub(super) fn understands(variable: &str, text: &OsStr) -> bool {
            match variable {
                $($variable => {
                    let read: Read<$type> = $read;
                    read(text).is_ok()
                })*
                _ => false,
            }
        }

        impl Settings {
            /// From the environment, else the node, else the built-in defaults.
            pub(super) fn read(
                environment: SettingSource<'_>,
                node: SettingSource<'_>,
                complain: &mut dyn FnMut(String),
            ) -> Self {
                Self { $($field: value(
                    &SettingText { variable: $variable, values: $values, default: $shown },
                    $default,
                    $read,
                    [environment, node],
                    complain,
                ),)* }
            }

            /// For the `config` request: each variable with its value as it is written, or null
            /// where there is none.
            pub(crate) fn describe(&self) -> BTreeMap<String, Option<String>> {
                BTreeMap::from([$(($variable.to_owned(), self.$field.shown()),)*])
            }
        }
    };
}

/// Where a text comes from, by variable.
pub(super) type SettingSource<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The text of a variable; an empty one is none.
pub(super) fn set(environment: SettingSource<'_>, variable: &str) -> Option<OsString> {
    environment(variable).filter(|text| !text.is_empty())
}

/// The environment's value for a row, else the node's, else the default.
fn value<T>(
    row: &SettingText,
    default: T,
    read: Read<T>,
    [environment, node]: [SettingSource<'_>; 2],
    complain: &mut dyn FnMut(String),
) -> T {
    let set = set(environment, row.variable);
    if let Some(value) = set.as_ref().and_then(|text| read(text).ok()) {
        return value;
    }
    let of_node = node(row.variable);
    if let Some(text) = set {
        complain(row.complaint(&text, of_node.as_deref()));
    }
    of_node.and_then(|text| read(&text).ok()).unwrap_or(default)
}

impl SettingText {
    fn complaint(&self, text: &OsStr, of_node: Option<&OsStr>) -> String {
        let Self { variable, values, default } = self;
        let default = of_node.map_or_else(|| (*default).to_owned(), printable);
        format!("{variable}={} is not understood; valid: {values}; default: {default}", printable(text))
    }
}

/// A value as one line may hold it.
pub(super) fn printable(text: &OsStr) -> String {
    const LONGEST: usize = 80;
    text.to_string_lossy().chars().take(LONGEST).flat_map(char::escape_debug).collect()
}

settings! {
    library {
        // The library and the driver.
        /// Off: every allocation is the driver's, as without wmshim.
        "WMSHIM_STITCH": "on, off", "on"
            => stitch: bool = true, |text| words(text, switch);
        /// On: every call is forwarded, nothing is intercepted.
        "WMSHIM_DISABLE": "on, off", "off"
            => disable: bool = false, |text| words(text, switch);
        /// The real driver library, or the folder it is in. `sim`: the simulated driver of this
        /// installation (a folder of that name is `./sim`).
        "WMSHIM_DRIVER": "a path, or sim", "searched"
            => driver: Option<PathBuf> = None, path;
        // How much memory.
        /// Most device memory to hold, for each device.
        "WMSHIM_DEVICE_LIMIT": "a size above 0 with its unit such as 512MiB or 32GiB, a share such as 80%, or off for no limit", "off"
            => device_limit: Option<Size> = None, limit;
        /// Device memory left to the driver's own needs.
        "WMSHIM_HEADROOM": "a size with its unit such as 64MiB or 1GiB, a share below 100% such as 5%, or 0", "1 %, 32 MiB to 1 GiB"
            => headroom: Option<Size> = None, headroom;
        /// Idle device memory that stays with the process after a `cuMemFree`, of blocks and of the
        /// pages of PyTorch's segments together; the rest goes back to the driver, for other
        /// processes. A program that needs that memory again within two
        /// seconds keeps as much more, up to half of the device, until it was idle for two to four
        /// seconds.
        "WMSHIM_KEEP_IDLE": "a size with its unit such as 512MiB or 2GiB, a share such as 5%, or 0", "512MiB"
            => keep_idle: Option<Size> = None, amount;
        // Where the device is full.
        /// Where blocks go when the device is full; peers come before the host.
        "WMSHIM_OVERFLOW": "host, peer, or both as host,peer; off", "host"
            => overflow: Vec<Overflow> = vec![Overflow::Host], |text| words(text, overflow);
        /// Which memory of `cuMemCreate` goes to the host too. Auto: that of callers which do not
        /// need device memory, as NCCL, NVSHMEM and network cards do. Torch: that of PyTorch's
        /// expandable segments alone. Or all, or none.
        "WMSHIM_OVERFLOW_CREATED": "auto, torch, all, off", "auto"
            => overflow_created: Created = Created::Auto, |text| words(text, created);
        /// Most host memory to pin, for all devices of the process together. A share is one of the
        /// machine's memory, or of the process's control group. Half of what the limit leaves stays
        /// available, a quarter of the machine at most, whatever all processes pin. Off: what is
        /// available.
        "WMSHIM_HOST_LIMIT": "a size with its unit such as 512MiB or 32GiB, a share of the machine such as 80%, 0, or off", "50%"
            => host_limit: Option<Size> = Some(Size::Share(0.5)), allowance;
        /// Most memory to take on each other device. As much as `WMSHIM_HEADROOM` says stays free
        /// there.
        "WMSHIM_PEER_LIMIT": "a size with its unit such as 512MiB or 32GiB, a share such as 80%, 0, or off for no limit", "off"
            => peer_limit: Option<Size> = None, allowance;
        /// Live memory may migrate between GPU and host; addresses do not change
        /// ([overflow.md](overflow.md#what-moves)). Auto: after a shortage, memory that is used
        /// often changes places with other memory while the host waits for the GPU, and memory
        /// moves before kernel launches where that was measured to be faster. On: it also moves
        /// when an allocation finds no room, and at launches from the first shortage on. Asked: it
        /// moves only when `wmctl limit` or `wmctl detach`, or the program itself, asks for it
        /// ([operations.md](operations.md#at-three-in-the-morning)). Unless it is off, calls that
        /// submit work cost some nanoseconds more.
        "WMSHIM_MIGRATE": "auto, on, asked, off", "auto"
            => migrate: Migrate = Migrate::Auto, |text| words(text, migrate);
        /// With `WMSHIM_MIGRATE`: memory that came back from the host keeps its copy there while
        /// there is room, and the GPU finds out by fingerprints which of it was written since. Only
        /// that is copied out again. Auto: while fingerprints take a quarter of the link's time at
        /// most ([overflow.md](overflow.md#what-moves)).
        "WMSHIM_KEPT_COPIES": "auto, on, off", "auto"
            => kept_copies: KeepCopies = KeepCopies::Auto, |text| words(text, kept_copies);
        /// On: the process can be paused (`wmctl pause`, `wmshim_pause`): its device memory goes to
        /// the host and to the driver, and its calls wait until it is resumed
        /// ([pause.md](pause.md)). Unless `WMSHIM_MIGRATE` is off it can be without this setting,
        /// too. Auto: a call that finds it paused resumes it. Paused: it is paused from its first
        /// call on (`wmctl run --paused`). Calls that submit work cost some nanoseconds more.
        "WMSHIM_PAUSE": "on, auto, paused, off", "off"
            => pause: Pause = Pause::Off, |text| words(text, pause);
        /// With `WMSHIM_PAUSE` or `WMSHIM_SHARE`: host memory for a pause is made ahead, while the
        /// program runs, and stays pinned. Auto: for all that could leave. A size: up to that, of
        /// the process. `WMSHIM_HOST_LIMIT` bounds it
        /// ([pause.md](pause.md#host-memory-that-is-ready)).
        "WMSHIM_PAUSE_ARENA": "auto, off, or a size with its unit such as 32GiB, or a share of the machine such as 25%", "off"
            => pause_arena: PauseArena = PauseArena::Off, |text| words(text, pause_arena);
        /// Turns: processes of one user that have this setting take turns at a GPU that is too
        /// small for all of them. A call whose memory is away waits, and the process that launched
        /// least recently is paused for it, as far as room is needed
        /// ([pause.md](pause.md#turns)). Calls that submit work cost some nanoseconds more.
        "WMSHIM_SHARE": "turns, off", "off"
            => share: Share = Share::Off, |text| words(text, sharing);
        // PyTorch.
        /// PyTorch's allocator, chosen when Python starts. `auto` gives PyTorch's own allocator
        /// expandable segments. It leaves a choice of the user alone, and PyTorch's default where
        /// processes could not share such memory, as in most containers
        /// ([pytorch.md](pytorch.md#which-allocator-is-chosen)).
        "WMSHIM_TORCH_ALLOCATOR": "auto, async, native, expandable", "auto"
            => torch_allocator: TorchAllocator = TorchAllocator::Auto, |text| words(text, torch);
        /// `keep`: pages that PyTorch's expandable segments give up stay mapped and serve the next
        /// ones, up to `WMSHIM_KEEP_IDLE` and the recent high-water mark
        /// ([pytorch.md](pytorch.md#expandable-segments)).
        "WMSHIM_TORCH_PIECES": "keep, release", "keep"
            => torch_pieces: TorchPieces = TorchPieces::Keep, |text| words(text, torch_pieces);
        // JAX.
        /// JAX's allocator, chosen when Python starts. Native: JAX's environment is left alone.
        /// `auto` gives JAX `cuda_async` without preallocation where memory may overflow, because
        /// its own allocator ends at 75 % of the device; it leaves a choice of the user alone
        /// ([overflow.md](overflow.md#jax)). Async: also where memory does not overflow.
        "WMSHIM_JAX_ALLOCATOR": "native, auto, async", "native"
            => jax_allocator: JaxAllocator = JaxAllocator::Native, |text| words(text, jax);
        // Copies.
        /// `own`: threads carry large pageable copies over the GPU's own link. `auto`, or devices:
        /// large copies use these siblings' links too. Off: all copies are the driver's
        /// ([multipath.md](multipath.md)).
        "WMSHIM_MULTIPATH": "own, auto, off, or devices by number such as 0,1,2", "own"
            => multipath: Multipath = Multipath::Own, |text| words(text, multipath);
        /// Smallest copy that threads carry or several links share.
        "WMSHIM_MULTIPATH_MIN": "a size with its unit such as 32MiB or 1GiB", "as measured"
            => multipath_min: Option<u64> = None, |text| words(text, bytes).map(Some);
        // Sharing between processes.
        /// Memory with the same bytes as another process's, such as weights of one model, is stored
        /// once on each GPU ([dedup.md](dedup.md)). `auto`: once this process and another one of
        /// the user have copied much from the host. `on`: from the first bytes on. Set it before
        /// Python starts. `advise`: the library counts what would be shared and changes no memory.
        "WMSHIM_DEDUP": "off, advise, auto, on", "auto"
            => dedup: Dedup = Dedup::Auto, |text| words(text, dedup);
        /// With `WMSHIM_DEDUP=auto`: a process begins to share once it has copied this much from
        /// the host, and another process of the user, too.
        "WMSHIM_DEDUP_FROM": "a size such as 1GiB", "1GiB"
            => dedup_from: Option<u64> = None, |text| words(text, bytes).map(Some);
        /// Most of the GPU's time to spend on fingerprints of memory.
        "WMSHIM_DEDUP_SHARE": "a share above 0% such as 1% or 0.5%", "1%"
            => dedup_share: f64 = 0.01, |text| words(text, share);
        /// The program that holds memory for all processes of a user that share it
        /// ([dedup.md](dedup.md#the-broker)).
        "WMSHIM_BROKER": "a path", "`wmshimd` beside `libwmshim.so`"
            => broker: Option<PathBuf> = None, path;
        // Diagnostics.
        /// Finds writes past the end of a block, and names the block ([guard.md](guard.md)).
        "WMSHIM_GUARD": "page, canary, off", "off"
            => guard: Guard = Guard::Off, |text| words(text, guard);
        /// Moves: memory that is not copied because its fingerprint is the same
        /// (`WMSHIM_KEPT_COPIES`) is read and compared, too. Where it differs, an error line names
        /// the block, and it is copied.
        "WMSHIM_VERIFY": "moves, off", "off"
            => verify: Verify = Verify::Off, |text| words(text, verify);
        /// The lines that the library writes, to stderr unless `WMSHIM_LOG_FILE` names a file.
        "WMSHIM_LOG": "error, warn, info, debug, trace, off", "warn"
            => log: log::LevelFilter = log::LevelFilter::Warn, |text| words(text, level);
        /// The file that log lines are appended to; `%p` is the process. A line that cannot be
        /// written there goes to stderr ([operations.md](operations.md#the-log)).
        "WMSHIM_LOG_FILE": "a path, or off", "off"
            => log_file: Option<PathBuf> = None, path_or_off;
        /// Json: each line is an object with `time`, `pid`, `level`, `message`.
        "WMSHIM_LOG_FORMAT": "text, json", "text"
            => log_format: LogFormat = LogFormat::Text, |text| words(text, log_format);
        /// The file of a recording of allocations and frees, for `wmctl replay`; `%p` is the
        /// process, `%d` the device ([replay](wmctl.md#replay)).
        "WMSHIM_TRACE": "a path, or off", "off"
            => trace: Option<PathBuf> = None, path_or_off;
        /// A trace also has each kernel launch, with the blocks that its parameters point into, for
        /// `bench tiers`.
        "WMSHIM_TRACE_LAUNCHES": "on, off", "off"
            => trace_launches: bool = false, |text| words(text, switch);
        /// The file of a profile: which code holds how much device memory, for `wmctl profile`;
        /// `%p` is the process. Behind a comma, the mean of the bytes from one sampled allocation
        /// to the next ([profile.md](profile.md)).
        "WMSHIM_PROFILE": "a path, a path and a size such as p.gz,1MiB, or off", "off"
            => profile: Option<ProfileTarget> = None, profile;
        // Statistics.
        /// The statistics socket ([statistics](wmctl.md#the-socket)). Off: the signal, the file at
        /// exit and the black box are off as well.
        "WMSHIM_STATS_SOCKET": "a path, or off", "in `WMSHIM_STATS_DIR`"
            => stats_socket: Option<PathBuf> = None, socket;
        /// Folder of sockets, dumps and black boxes; see
        /// [sharing](operations.md#sharing-memory-between-processes-and-containers).
        "WMSHIM_STATS_DIR": "a path", "`$XDG_RUNTIME_DIR/wmshim`, else `$TMPDIR/wmshim-$UID`"
            => stats_dir: Option<PathBuf> = None, path;
        /// The signal that writes statistics to a file. No signal is touched unless one is named: a
        /// program may rely on any signal's default action.
        "WMSHIM_STATS_SIGNAL": "USR1, USR2, the number of a real-time signal from 34 to 64, or off", "off"
            => stats_signal: Option<i32> = None, |text| words(text, signal);
        /// A new file for the last statistics, written when the process exits; `%p` is the process.
        "WMSHIM_STATS_AT_EXIT": "a path, or off", "off"
            => stats_at_exit: Option<PathBuf> = None, path_or_off;
    }
    others {
        // Not for the library.
        /// For `wmctl` and the Python package: where `libwmshim.so` is.
        "WMSHIM_LIB": "a path", "beside `wmctl`";
        /// For `libwholegraph.so`: how long ranks wait for each other, in seconds.
        "WMSHIM_WHOLEMEMORY_TIMEOUT": "a number above 0 such as 300", "300";
        /// For `libwholegraph.so`: gathers and scatters over islands return when the rows of all
        /// ranks have moved. By default the stream waits for them.
        "WMSHIM_WHOLEMEMORY_WAIT": "on or off", "off";
        /// For `libwholegraph.so`: the machine that a rank says it is on. Ranks with different
        /// names do not map each other's memory.
        "WMSHIM_WHOLEMEMORY_NODE": "any text", "none: the machine is found out";
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (error handling): a typing error in a job script is ignored in silence, or ends the
    //! job.
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (Settings, Vec<String>) {
        let mut lines = Vec::new();
        let find = |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(*v));
        let settings = Settings::read(&find, &|_| None, &mut |line| lines.push(line));
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
        assert_eq!(settings.host_limit, Some(Size::Share(0.5)));
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("on, off"), "{}", lines[0]);
        assert!(lines[1].contains("GiB"), "{}", lines[1]);
    }

    #[test]
    fn a_proof_of_nothing_and_a_share_without_its_unit_are_not_taken() {
        for (variable, texts) in [
            ("WMSHIM_DEDUP", &["maybe", "advice", "2"][..]),
            ("WMSHIM_DEDUP_SHARE", &["1", "0%", "101%", "1MiB", "-1%", "off"]),
        ] {
            for text in texts {
                let (settings, lines) = read(&[(variable, text)]);
                assert_eq!(lines.len(), 1, "{variable}={text}: {lines:?}");
                assert_eq!((settings.dedup, settings.dedup_share), (Dedup::Auto, 0.01));
            }
        }
        let (settings, lines) = read(&[("WMSHIM_DEDUP", "Advise"), ("WMSHIM_DEDUP_SHARE", "0.5%")]);
        assert!(lines.is_empty(), "{lines:?}");
        assert_eq!((settings.dedup, settings.dedup_share), (Dedup::Advise, 0.005));
    }

    /// The words among a row's values: `on, off`, without descriptions such as `a size`.
    fn words_of(row: &SettingText) -> impl Iterator<Item = &str> {
        let parts = row.values.split([',', ';']).map(|part| part.trim().trim_start_matches("or "));
        parts.filter(|part| part.chars().all(char::is_alphanumeric))
    }

    #[test]
    fn the_values_that_are_named_are_understood() {
        let mut count = 0;
        for row in KNOWN {
            for word in words_of(row) {
                let (_, lines) = read(&[(row.variable, word)]);
                assert!(lines.is_empty(), "{lines:?}");
                count += 1;
            }
        }
        assert!(count > 40, "{count} words are seen");
    }

    #[test]
    fn the_defaults_that_are_named_are_in_force() {
        let (settings, _) = read(&[]);
        let in_force = settings.describe();
        for row in KNOWN {
            if let Some(value) = &in_force[row.variable] {
                assert_eq!(value, row.default, "{}", row.variable);
            }
        }
    }
}
