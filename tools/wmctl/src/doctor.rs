//! `wmctl doctor`: is this machine fit for the shim, and if not, which remedy is there?
//!
//! Each part examines one subject, returns its observations as data, and adds findings. A finding
//! is good, worth a note, or blocks; every finding that is not good has a remedy. The exit code is
//! 1 if one blocks.
//!
//! The driver is opened here as the shim opens it, by the same code. So the doctor must not itself
//! run under the shim: started in a shell whose `LD_PRELOAD` names it, it starts itself again
//! without.

mod driver;
mod environment;
mod finding;
mod folders;
mod host;
mod installation;
mod limits;
mod links;
mod settings;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;
use serde_json::json;

use crate::{output, screen, shim};
use finding::Severity;

/// Arguments of `wmctl doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Examines the machine and prints the findings. The code is 1 when one of them blocks.
///
/// # Errors
/// Only those of printing: a fault of the machine is a finding.
pub(crate) fn doctor(arguments: &DoctorArguments) -> Result<ExitCode> {
    if shim::is_preloaded() {
        return Err(start_again());
    }
    let mut findings = Vec::new();
    let driver = driver::examine(&mut findings);
    let links = links::examine();
    let installation = installation::examine(&mut findings);
    let devices = driver.iter().flat_map(driver::ExaminedDriver::limited);
    limits::examine(devices, installation.device_limit(), &mut findings);
    let host = host::examine(installation.host_limit(), &mut findings);
    environment::examine(&mut findings);
    folders::examine(&mut findings);
    let blocked = findings.iter().any(|finding| finding.level == Severity::Blocks);
    if arguments.json {
        output::print_json(&json!({
            "schema": "wmctl-doctor/1",
            "fit": !blocked,
            "driver": driver,
            "links": links,
            "host": host,
            "installation": installation,
            "findings": findings,
        }))?;
    } else {
        let (driver, links) = (driver::render(&driver), links::render(&links));
        output::print(&format!("{driver}{links}{}{}\n", host.render(), installation.render()))?;
        output::print(&screen::folded(&finding::render(&findings)))?;
    }
    Ok(if blocked { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Replaces this process by one without the shim. Returns only the reason why that failed.
fn start_again() -> anyhow::Error {
    let preload = std::env::var("LD_PRELOAD").unwrap_or_default();
    let others = preload.split([':', ' ']).filter(|path| {
        let file = Path::new(path).file_name().unwrap_or_default();
        file != shim::NAME && file != "libcuda.so.1" && file != "libcuda.so"
    });
    let others = others.collect::<Vec<_>>().join(":");
    if others == preload || preload.is_empty() {
        return anyhow::anyhow!(
            "this wmctl runs under the shim, but not by LD_PRELOAD: start it outside that container"
        );
    }
    let Ok(own) = std::env::current_exe() else { return anyhow::anyhow!("/proc is not mounted") };
    Command::new(own).args(std::env::args_os().skip(1)).env("LD_PRELOAD", others).exec().into()
}
