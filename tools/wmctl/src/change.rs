//! `wmctl limit`, `trim`, `detach` and `attach`: changes of a running program.
//!
//! A request makes one step of bounded time in the program. It is made again while the program says
//! that another one may do more, up to the time of `--wait`. An interruption leaves the program as
//! it is: the limit is in force from the first step on.

mod render;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use serde_json::{Value, json};
use wm_schema::ProcessChange;

use crate::client::{self, Endpoint};
use crate::{output, target};

/// Between two steps that moved nothing: the GPU is busy.
const PAUSE: Duration = Duration::from_millis(50);

/// Arguments of `wmctl limit`.
#[derive(Debug, clap::Args)]
pub(crate) struct LimitArguments {
    /// The program: its process id, or the name of its file or script
    #[arg(value_name = "PID|NAME")]
    program: String,
    /// Most device memory to hold, such as 40GiB; `none` lifts the limit
    #[arg(value_parser = Wish::parse)]
    limit: Wish,
    /// Only for this device, as the program numbers it
    #[arg(long, value_name = "ORDINAL")]
    device: Option<u16>,
    #[command(flatten)]
    terms: ChangeTerms,
}

/// Arguments of `wmctl trim`, `detach` and `attach`.
#[derive(Debug, clap::Args)]
pub(crate) struct ChangeArguments {
    /// The program: its process id, or the name of its file or script
    #[arg(value_name = "PID|NAME")]
    program: String,
    #[command(flatten)]
    terms: ChangeTerms,
}

#[derive(Debug, clap::Args)]
struct ChangeTerms {
    /// How long to go on while the GPU is busy
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = crate::stats::interval)]
    wait: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A limit as the command line says it.
#[derive(Debug, Clone, Copy)]
enum Wish {
    Bytes(u64),
    None,
}

impl Wish {
    fn parse(text: &str) -> Result<Self> {
        match text {
            "none" | "off" => Ok(Self::None),
            size => target::size(size).map(Self::Bytes).map_err(|error| anyhow!("{error}, or `none`")),
        }
    }

    fn value(self) -> Value {
        match self {
            Self::Bytes(bytes) => json!(bytes),
            Self::None => json!("none"),
        }
    }
}

/// Limits the device memory of a running program.
///
/// # Errors
/// No such program, or one that cannot be asked; what stays beyond the limit.
pub(crate) fn limit(arguments: &LimitArguments) -> Result<()> {
    let LimitArguments { program, limit, device, terms } = arguments;
    let first = json!({ "request": "limit", "bytes": limit.value(), "device": device });
    let next = json!({ "request": "limit" });
    let change = make(program, terms, &first, &next)?;
    show(terms, &change, &render::limit(&change))?;
    match change.devices.iter().map(|device| device.beyond_bytes).sum::<u64>() {
        0 => Ok(()),
        bytes => bail!("{} stay beyond the limit", crate::human::bytes(bytes)),
    }
}

/// Has a program give its unused device memory to the driver.
///
/// # Errors
/// No such program, or one that cannot be asked.
pub(crate) fn trim(arguments: &ChangeArguments) -> Result<()> {
    let request = json!({ "request": "trim" });
    let change = make(&arguments.program, &arguments.terms, &request, &request)?;
    show(&arguments.terms, &change, &render::trim(&change))
}

/// Turns the features of the library off in a running program.
///
/// # Errors
/// No such program, or one that cannot be asked.
pub(crate) fn detach(arguments: &ChangeArguments) -> Result<()> {
    let request = json!({ "request": "detach" });
    let change = make(&arguments.program, &arguments.terms, &request, &request)?;
    show(&arguments.terms, &change, &render::detach(&change))
}

/// Turns them on again.
///
/// # Errors
/// No such program, or one that cannot be asked.
pub(crate) fn attach(arguments: &ChangeArguments) -> Result<()> {
    let request = json!({ "request": "attach" });
    let change = make(&arguments.program, &arguments.terms, &request, &request)?;
    show(&arguments.terms, &change, &render::attach(&change))
}

fn show(terms: &ChangeTerms, change: &ProcessChange, text: &str) -> Result<()> {
    if terms.json { output::print_json(&serde_json::to_value(change)?) } else { output::print(text) }
}

/// Makes a change in steps. The answer is the last one, with the sums of all.
fn make(program: &str, terms: &ChangeTerms, first: &Value, next: &Value) -> Result<ProcessChange> {
    let endpoint = client::of_process(target::find(program)?)?;
    let until = Instant::now() + terms.wait;
    let mut change = step(&endpoint, first)?;
    while change.goes_on && Instant::now() < until {
        let later = step(&endpoint, next)?;
        let has_moved = later.devices.iter().any(|device| device.out_bytes + device.back_bytes > 0);
        change = together(&change, later);
        if change.goes_on && !has_moved {
            thread::sleep(PAUSE);
        }
    }
    Ok(change)
}

fn step(endpoint: &Endpoint, request: &Value) -> Result<ProcessChange> {
    client::parsed(&client::ask_with(endpoint, request, client::PATIENCE)?)
}

/// A later answer, with what earlier steps did.
fn together(earlier: &ProcessChange, mut later: ProcessChange) -> ProcessChange {
    for device in &mut later.devices {
        if let Some(before) = earlier.devices.iter().find(|before| before.ordinal == device.ordinal) {
            device.out_bytes += before.out_bytes;
            device.back_bytes += before.back_bytes;
            device.given_bytes += before.given_bytes;
        }
    }
    later
}
