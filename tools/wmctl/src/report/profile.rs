//! A profile (`WMSHIM_PROFILE`) as a report needs it: which call sites held how much, at the peak
//! and at the end.
//!
//! The file is gzip of JSON lines, each an object with its kind as its only key. Lines of kinds
//! that are not known here are passed over; a file that is cut short is read up to there.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, bail};
use flate2::read::MultiGzDecoder;
use serde_json::Value;
use wm_schema::BytesByTier;

use super::holders::sorted;
use super::model::{MemoryHolder, TimelineEvent, TimelineEventKind, TimelinePoint};
use crate::human;

/// Frames of a call site that are shown.
const FRAMES: usize = 96;

/// A profile that was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Profile {
    pub(crate) program: String,
    pub(crate) pid: u64,
    /// Call sites at the peak, the outermost frame first.
    pub(crate) at_peak: Vec<MemoryHolder>,
    /// Call sites of what was not freed.
    pub(crate) at_end: Vec<MemoryHolder>,
    pub(crate) timeline: Vec<TimelinePoint>,
    pub(crate) events: Vec<TimelineEvent>,
}

impl Profile {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read, or is no profile.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let lines = BufReader::new(MultiGzDecoder::new(file)).lines().map_while(Result::ok);
        Self::read(lines).with_context(|| path.display().to_string())
    }

    pub(crate) fn read(mut lines: impl Iterator<Item = String>) -> Result<Self> {
        let head = lines.next().and_then(|line| serde_json::from_str::<Value>(&line).ok());
        let head = head.as_ref().map(|head| &head["profile"]).filter(|head| head.is_object());
        let Some(head) = head else { bail!("is no profile: name a file that WMSHIM_PROFILE wrote") };
        let mut reader = ProfileReader::default();
        for line in lines.filter(|line| !line.is_empty()) {
            let Ok(line) = serde_json::from_str::<Value>(&line) else { break };
            reader.read(&line);
        }
        let peak = reader.peak.take().unwrap_or_else(|| reader.held.clone());
        Ok(Self {
            program: head["program"].as_str().unwrap_or_default().to_owned(),
            pid: head["pid"].as_u64().unwrap_or(0),
            at_peak: reader.holders(&peak),
            at_end: reader.holders(&reader.held),
            timeline: reader.timeline,
            events: reader.events,
        })
    }
}

/// Bytes and count by call site.
type HeldBySite = HashMap<u64, (u64, u64)>;

#[derive(Default)]
struct ProfileReader {
    modules: HashMap<u64, String>,
    frames: HashMap<u64, String>,
    sites: HashMap<u64, Vec<String>>,
    live: HashMap<u64, (u64, u64)>,
    held: HeldBySite,
    total: u64,
    highest: u64,
    /// What was held at the peak; `None` while the peak is now.
    peak: Option<HeldBySite>,
    timeline: Vec<TimelinePoint>,
    events: Vec<TimelineEvent>,
}

impl ProfileReader {
    fn read(&mut self, line: &Value) {
        let Some((kind, it)) = line.as_object().and_then(|line| line.iter().next()) else { return };
        let number = |name: &str| it[name].as_u64().unwrap_or(0);
        match kind.as_str() {
            "module" => drop(self.modules.insert(number("id"), file_name(&it["path"]))),
            "frame" => drop(self.frames.insert(number("id"), self.name_of(it))),
            "site" => drop(self.sites.insert(number("id"), self.path_of(it))),
            "allocated" => {
                self.allocated(number("number"), number("site"), number("weight_bytes"), number("ms"))
            }
            "freed" => self.freed(number("number"), number("ms")),
            "out_of_memory" => {
                let text = format!("out of memory: {} asked", human::bytes(number("asked_bytes")));
                self.event(number("ms"), TimelineEventKind::OutOfMemory, text);
            }
            "mark" => {
                let text = it["text"].as_str().unwrap_or_default().to_owned();
                self.event(number("ms"), TimelineEventKind::Mark, text);
            }
            _ => {}
        }
    }

    fn name_of(&self, frame: &Value) -> String {
        if let Some(python) = frame.get("python") {
            let function = python["function"].as_str().unwrap_or("?");
            return format!(
                "{function} {}:{}",
                file_name(&python["file"]),
                python["line"].as_u64().unwrap_or(0)
            );
        }
        let native = &frame["native"];
        let offset = native["offset"].as_u64().unwrap_or(0);
        let module = native["module"].as_u64().and_then(|module| self.modules.get(&module));
        format!("{}+{offset:#x}", module.map_or("?", String::as_str))
    }

    /// The frames of a site, the outermost first.
    fn path_of(&self, site: &Value) -> Vec<String> {
        let frames = site["frames"].as_array().map(Vec::as_slice).unwrap_or_default();
        let name = |frame: &Value| frame.as_u64().and_then(|id| self.frames.get(&id)).cloned();
        frames.iter().take(FRAMES).map(|frame| name(frame).unwrap_or_else(|| "?".to_owned())).rev().collect()
    }

    fn allocated(&mut self, number: u64, site: u64, bytes: u64, ms: u64) {
        self.live.insert(number, (site, bytes));
        let held = self.held.entry(site).or_default();
        *held = (held.0.saturating_add(bytes), held.1 + 1);
        self.total = self.total.saturating_add(bytes);
        if self.total > self.highest {
            (self.highest, self.peak) = (self.total, None);
        }
        self.point(ms);
    }

    fn freed(&mut self, number: u64, ms: u64) {
        let Some((site, bytes)) = self.live.remove(&number) else { return };
        if self.total == self.highest && self.peak.is_none() {
            self.peak = Some(self.held.clone());
        }
        if let Some(held) = self.held.get_mut(&site) {
            *held = (held.0.saturating_sub(bytes), held.1.saturating_sub(1));
        }
        self.total = self.total.saturating_sub(bytes);
        self.point(ms);
    }

    fn point(&mut self, ms: u64) {
        let last = self.timeline.last().map_or(0, |point| point.at);
        let live = BytesByTier { device: self.total, ..BytesByTier::default() };
        self.timeline.push(TimelinePoint { at: ms.saturating_mul(1000).max(last), live });
    }

    fn event(&mut self, ms: u64, kind: TimelineEventKind, text: String) {
        self.events.push(TimelineEvent { at: ms.saturating_mul(1000), kind, text });
    }

    fn holders(&self, held: &HeldBySite) -> Vec<MemoryHolder> {
        let unknown = vec!["?".to_owned()];
        let holders =
            held.iter().filter(|(_, (bytes, _))| *bytes > 0).map(|(site, (bytes, count))| MemoryHolder {
                path: self.sites.get(site).unwrap_or(&unknown).clone(),
                bytes: *bytes,
                count: *count,
            });
        sorted(holders.collect())
    }
}

/// The last part of a path.
fn file_name(path: &Value) -> String {
    path.as_str().and_then(|path| path.rsplit('/').next()).unwrap_or("?").to_owned()
}
