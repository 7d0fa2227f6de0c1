//! Everything a user can set, read once at the first CUDA call.
//!
//! [`table`] has a row for each setting. A bad value or an unknown `WMSHIM_` variable is one line
//! on stderr with the valid values; the default is used. The node's file has other defaults, and
//! ceilings ([`node`]).

mod check;
mod file_names;
mod moving;
mod node;
mod profile_target;
mod shown;
mod size;
mod table;
mod unknown;
mod values;

use std::ffi::OsStr;
use std::path::Path;
use std::sync::OnceLock;

use wm_driver::logger::{self, LogSink};
use wm_trust::environment;
use wm_trust::node::NodeFile;

use node::{BoundSetting, NodeSettings};
use table::{SettingSource, printable, set, understands};
use unknown::strangers;
use values::{jax, overflow, switch, torch};

pub(crate) use file_names::{replace, with_process};
pub(crate) use moving::{Migrate, Pause, PauseArena, Share};
pub(crate) use table::Settings;
pub(crate) use values::{
    Created, Dedup, Guard, JaxAllocator, LogFormat, Multipath, Overflow, Size, TorchAllocator, TorchPieces,
    Verify,
};

impl Settings {
    /// May the process be paused, by an operator, by itself or for another process?
    pub(crate) fn may_pause(&self) -> bool {
        self.pause != Pause::Off || self.share != Share::Off
    }

    /// Does the library move memory by itself? Where processes take turns, each has all of its
    /// memory in its turn. With `auto` nothing else moves then, so that the library knows what a
    /// process lacks.
    pub(crate) fn migrates_by_itself(&self) -> bool {
        match self.migrate {
            Migrate::On => true,
            Migrate::Auto => self.share == Share::Off,
            Migrate::Off | Migrate::Asked => false,
        }
    }
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The node's file, read once.
fn of_node() -> &'static NodeSettings {
    static NODE: OnceLock<NodeSettings> = OnceLock::new();
    NODE.get_or_init(|| {
        let file = NodeFile::read(Path::new(wm_trust::node::PATH));
        file.map(NodeSettings::of).unwrap_or_default()
    })
}

/// Reads the environment once; later calls get the same settings.
pub(crate) fn load() -> &'static Settings {
    SETTINGS.get_or_init(|| {
        let node = of_node();
        let Judged { settings, problems, bounds, .. } =
            Settings::of(&|name| environment::variable(name), node);
        logger::choose(LogSink::new(settings.log_file.as_deref(), settings.log_format == LogFormat::Json));
        log::set_max_level(settings.log);
        problems.iter().for_each(|line| log::warn!("{line}. The default is used"));
        bounds.iter().for_each(|line| log::warn!("{line}"));
        if let Some(line) = node.fault_line() {
            log::warn!("{line}");
        }
        for line in strangers(environment::all().filter_map(|(name, _)| name.into_string().ok())) {
            log::warn!("{line}");
        }
        settings
    })
}

/// A variable of ours as text, for the choices that are made before settings are read: the node's
/// default where there is none.
pub(crate) fn text(variable: &str) -> Option<String> {
    let set = environment::text(variable).filter(|text| !text.is_empty());
    set.or_else(|| of_node().default_of(variable)?.to_str().map(str::to_owned))
}

/// The most device memory that the node lets a process have.
pub(crate) fn device_ceiling() -> Option<Size> {
    of_node().most("WMSHIM_DEVICE_LIMIT")
}

/// The settings, if the first CUDA call has been made.
pub(crate) fn get() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// A value of WMSHIM_TORCH_ALLOCATOR, for the choice that is made before settings are read.
pub(crate) fn torch_allocator(text: &str) -> Option<TorchAllocator> {
    torch(text).ok()
}

/// The same of WMSHIM_JAX_ALLOCATOR.
pub(crate) fn jax_allocator(text: &str) -> Option<JaxAllocator> {
    jax(text).ok()
}

/// The same of a switch with this default.
pub(crate) fn switch_or(text: &str, default: bool) -> bool {
    switch(text).unwrap_or(default)
}

/// Does a value of WMSHIM_OVERFLOW let memory overflow? An invalid one is the default.
pub(crate) fn overflows(text: &str) -> bool {
    overflow(text).map_or(true, |tiers| !tiers.is_empty())
}

/// What is read, with the lines about it.
struct Judged {
    settings: Settings,
    /// Values that are not understood.
    problems: Vec<String>,
    /// Settings that the node's ceilings have changed.
    bounded: Vec<BoundSetting>,
    /// Variables above the ceilings.
    bounds: Vec<String>,
}

impl Settings {
    /// The settings of these variables and the node's file.
    fn of(environment: SettingSource<'_>, node: &NodeSettings) -> Judged {
        let mut problems = Vec::new();
        let mut settings =
            Self::read(environment, &|name| node.default_of(name).map(OsStr::to_owned), &mut |line| {
                problems.push(line)
            });
        let bounded = node.bound(&mut settings);
        let above = bounded.iter().filter(|bound| bound.is_above).map(|bound| bound.variable);
        let bounds = above.filter_map(|variable| {
            let text = set(environment, variable).filter(|text| understands(variable, text))?;
            node.bound_sentence(variable, &printable(&text))
        });
        Judged { bounds: bounds.collect(), bounded, settings, problems }
    }
}
