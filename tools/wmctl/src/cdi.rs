//! `wmctl cdi`: wmshim as a device of containers, in the form of the Container Device Interface.
//!
//! The engine (Docker, podman, containerd, CRI-O) mounts the library into a container that names
//! the device and sets the variables, so neither the image nor the command changes. The preload
//! alone is set: the engine would replace an image's own library path, which may be how it finds
//! its driver. JSON is YAML, so the output is a file of either ending. The node's file comes along,
//! if there is one, because a container has an `/etc` of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::builder::{OsStringValueParser, TypedValueParser};
use serde_json::{Value, json};
use wm_trust::node;

use crate::output::Coded;
use crate::shim::Library;
use crate::{output, run, shim};

/// Where the library lies in a container.
const INSIDE: &str = "/opt/wmshim/lib";

/// Arguments of `wmctl cdi`.
#[derive(Debug, clap::Args)]
pub(crate) struct CdiArguments {
    /// Set a variable in each container, such as WMSHIM_DEVICE_LIMIT=48GiB
    #[arg(long, value_name = "NAME=VALUE", value_parser = OsStringValueParser::new().try_map(run::assignment))]
    set: Vec<(OsString, OsString)>,
    /// Accepted by every command; the output is JSON in any case
    #[arg(long)]
    json: bool,
}

/// Prints the specification.
///
/// # Errors
/// No library, or a setting that it does not understand.
pub(crate) fn cdi(arguments: &CdiArguments) -> Result<()> {
    let library = shim::find()?;
    let problems = Library::open(&library)?.judge_settings(&arguments.set).problems;
    if !problems.is_empty() {
        return Err(Coded { code: 2, sentence: problems.join("; ") }.into());
    }
    let document = specification(&library, &arguments.set)?;
    if arguments.json {
        return output::print_json(&document);
    }
    output::print(&format!("{document:#}\n"))
}

/// # Errors
/// A path or a value that is not text: a specification is text.
fn specification(library: &Path, settings: &[(OsString, OsString)]) -> Result<Value> {
    let library: PathBuf = library.canonicalize().context("the library has a path")?;
    let folder = library.parent().and_then(Path::to_str);
    let Some(folder) = folder else { bail!("{} cannot be named in JSON: move it", library.display()) };
    let mut variables = vec![format!("LD_PRELOAD={INSIDE}/{}", shim::NAME)];
    for (name, value) in settings {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else {
            bail!("{} is not text", name.display());
        };
        variables.push(format!("{name}={value}"));
    }
    let mount = |from: &str, to: &str| json!({ "hostPath": from, "containerPath": to, "options": ["ro", "nosuid", "nodev", "bind"] });
    let mut mounts = vec![mount(folder, INSIDE)];
    // A mount of a file that is not there is an error of the engine.
    if Path::new(node::PATH).is_file() {
        mounts.push(mount(node::PATH, node::PATH));
    }
    Ok(json!({
        "cdiVersion": "0.5.0",
        "kind": "wmshim.dev/memory",
        // Edits of the device itself: an empty list is an error of some engines.
        "devices": [{ "name": "all", "containerEdits": { "env": variables } }],
        "containerEdits": { "mounts": mounts },
    }))
}
