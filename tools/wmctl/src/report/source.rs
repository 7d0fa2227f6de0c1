//! What a report is made from: a process by its number, or a file, by what is in it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use flate2::read::MultiGzDecoder;
use serde_json::Value;
use wm_schema::black_box::{BlackBox, BlackBoxReading};
use wm_schema::{BlockList, Stats};

use super::from_process::{ProcessFigures, ProcessState};
use crate::client::{self, boxes::ReadBox};
use crate::human;
use crate::profile::recording::RecordedProfile;
use crate::trace::Trace;

/// The longest file that is read as one text.
const LONGEST: u64 = 256 << 20;

/// What a report is made from.
#[derive(Debug)]
pub(crate) enum ReportSource {
    Process(Box<ProcessFigures>),
    Recording { trace: Box<Trace>, name: String },
    Profile { profile: Box<RecordedProfile>, name: String },
}

impl ReportSource {
    /// Opens a process by its number, or a file.
    ///
    /// # Errors
    /// No such process or file, or one that no report can be made of.
    pub(crate) fn open(source: &str) -> Result<Self> {
        if let Ok(pid) = source.parse() {
            return Ok(Self::Process(Box::new(process(pid)?)));
        }
        let path = Path::new(source);
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let opened = match ReportFileForm::of(path).with_context(|| human::shown(source))? {
            ReportFileForm::Box => Self::Process(Box::new(box_file(path)?)),
            ReportFileForm::Document => {
                Self::Process(Box::new(dump(path).with_context(|| human::shown(source))?))
            }
            ReportFileForm::Profile => {
                Self::Profile { profile: Box::new(RecordedProfile::open(path)?), name }
            }
            ReportFileForm::Trace => Self::Recording { trace: Box::new(Trace::open(path)?), name },
        };
        Ok(opened)
    }
}

/// The form of a file, by its beginning.
enum ReportFileForm {
    Box,
    Document,
    Profile,
    /// Also one that has no known form: reading it says why.
    Trace,
}

impl ReportFileForm {
    fn of(path: &Path) -> Result<Self> {
        // Before it is opened: a pipe waits for a writer.
        if !std::fs::metadata(path)?.is_file() {
            bail!("is no file: name a recording, a profile, a dump, or a process by its number");
        }
        let packed = beginning(File::open(path)?);
        if packed == BlackBox::MAGIC.to_ne_bytes() {
            return Ok(Self::Box);
        }
        if packed.first() == Some(&b'{') {
            return Ok(Self::Document);
        }
        let unpacked = beginning(MultiGzDecoder::new(File::open(path)?));
        Ok(if unpacked.starts_with(b"{") { Self::Profile } else { Self::Trace })
    }
}

/// The first bytes, as many as there are.
fn beginning(file: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A file that cannot be read is told by its reader.
    let _any = file.take(8).read_to_end(&mut bytes);
    bytes
}

/// A process that lives, or one that ended without an exit.
fn process(pid: u32) -> Result<ProcessFigures> {
    if let Some(read) = client::box_of(pid) {
        let state = if read.is_stopped { ProcessState::Stopped } else { ProcessState::Running };
        let figures = of_box(&read, state)?;
        return Ok(if state == ProcessState::Running { asked(pid, figures) } else { figures });
    }
    if let Some(read) = client::own_boxes().dead.into_iter().find(|read| read.pid == pid) {
        return of_box(&read, ProcessState::Ended);
    }
    let endpoint = client::of_process(pid)?;
    let stats = client::parsed(&client::ask(&endpoint, "stats")?)?;
    Ok(asked(pid, ProcessFigures { stats, ..ProcessFigures::default() }))
}

fn of_box(read: &ReadBox, state: ProcessState) -> Result<ProcessFigures> {
    let file = read.whole().with_context(|| read.path.display().to_string())?;
    let stats = read.stats(state == ProcessState::Running);
    Ok(ProcessFigures { stats, state, ..past(&file, &read.reading) })
}

/// The rings of a box.
fn past(file: &[u8], reading: &BlackBoxReading) -> ProcessFigures {
    ProcessFigures {
        stats: reading.stats.clone(),
        samples: BlackBoxReading::samples(file),
        marks: BlackBoxReading::marks(file),
        refused: reading.refused.clone(),
        state: ProcessState::Ended,
        blocks: None,
    }
}

/// What the process itself adds to its box. One that does not answer adds nothing.
fn asked(pid: u32, figures: ProcessFigures) -> ProcessFigures {
    let Ok(endpoint) = client::of_process(pid) else { return figures };
    let told = |request| client::ask(&endpoint, request).ok();
    let stats: Option<Stats> = told("stats").and_then(|answer| client::parsed(&answer).ok());
    let blocks: Option<BlockList> = told("blocks").and_then(|answer| client::parsed(&answer).ok());
    // The times of the box count from when it was made.
    let uptime_s = figures.stats.uptime_s;
    let stats = stats.map_or(figures.stats, |stats| Stats { uptime_s, ..stats });
    ProcessFigures { stats, blocks, ..figures }
}

fn box_file(path: &Path) -> Result<ProcessFigures> {
    let file = text_of(path)?;
    let reading = BlackBoxReading::parse(&file).map_err(|error| anyhow!("{}: {error}", path.display()))?;
    Ok(past(&file, &reading))
}

fn dump(path: &Path) -> Result<ProcessFigures> {
    let document: Value = serde_json::from_slice(&text_of(path)?).context("is no JSON")?;
    let schema = document["schema"].as_str().unwrap_or_default();
    if schema != "wmshim-dump/1" {
        bail!("has the schema `{}`: no report is made of it", human::shortened(schema, 40));
    }
    let blocks = (!document["blocks"].is_null()).then(|| client::parsed(&document["blocks"])).transpose()?;
    let stats = client::parsed(&document["stats"])?;
    Ok(ProcessFigures { stats, blocks, state: ProcessState::Dumped, ..ProcessFigures::default() })
}

fn text_of(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        bail!("is longer than {}: no dump is", human::bytes(LONGEST));
    }
    Ok(bytes)
}
