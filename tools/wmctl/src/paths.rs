//! `wmctl paths`: the values for the loader's variables, for use by hand or in an image.
//!
//! The same paths that `wmctl run` sets: the installation's own where they do, else links in a
//! private folder. As JSON with the complaints about this environment's settings, for the Python
//! package.

use anyhow::{Context, Result};
use serde_json::json;

use crate::shim::{self, Library};
use crate::{layout, output};

/// Arguments of `wmctl paths`.
#[derive(Debug, clap::Args)]
pub(crate) struct PathsArguments {
    /// Print the path for LD_PRELOAD only
    #[arg(long, conflicts_with = "dropin")]
    preload: bool,
    /// Print the folder for LD_LIBRARY_PATH only
    #[arg(long)]
    dropin: bool,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["preload", "dropin"])]
    json: bool,
}

/// Prints the paths.
///
/// # Errors
/// No library, or no names for it.
pub(crate) fn paths(arguments: &PathsArguments) -> Result<()> {
    let library = shim::find()?;
    let layout = layout::of(&library)?;
    let shown = |path: &std::path::Path| path.display().to_string();
    if arguments.json {
        let environment: Vec<_> = std::env::vars_os().collect();
        return output::print_json(&json!({
            "schema": "wmctl-paths/1",
            "problems": Library::open(&library)?.judge_settings(&environment).problems,
            "library": shown(&library),
            "preload": shown(&layout.preload),
            "dropin": layout.dropin.ok().map(|path| shown(&path)),
            "simulator": shim::simulated().ok().map(|path| shown(&path)),
        }));
    }
    let preload = shown(&layout.preload);
    if arguments.preload {
        return output::print(&format!("{preload}\n"));
    }
    let dropin = shown(&layout.dropin.context("no drop-in folder")?);
    output::print(&match arguments.dropin {
        true => format!("{dropin}\n"),
        false => format!("LD_PRELOAD={preload}\nLD_LIBRARY_PATH={dropin}\n"),
    })
}
