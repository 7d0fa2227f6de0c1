//! A recording of `WMSHIM_PROFILE`, played to its end: what each call site held at the peak and at
//! the end.
//!
//! Lines of kinds that are not known are passed over. A file that ends in the midst of a chunk (a
//! program that was killed, a full disk) is read up to there, and says so.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use flate2::read::MultiGzDecoder;
use serde::Serialize;
use wm_schema::profile::{
    ProfileHeader, ProfileLine, ProfileMark, ProfileModule, ProfileRefusal, SampledAllocation,
};
use wm_schema::{HolderFrame, ObjectPlace};

/// Longest line. A file with a longer one is no profile, and that line is not read to its end.
const LONGEST: u64 = 1 << 20;

/// What a site, on a device and of a kind, holds: estimates from its samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct SiteFigures {
    /// When all sites together held the most.
    pub(crate) at_peak_bytes: u64,
    pub(crate) at_end_bytes: u64,
    /// All that it allocated.
    pub(crate) allocated_bytes: u64,
    /// Allocations that it made.
    pub(crate) count: f64,
}

/// A site, a device and a kind of memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SiteKey {
    pub(crate) site: u32,
    pub(crate) device: i32,
    pub(crate) kind: String,
}

/// A whole recording.
#[derive(Debug, Default)]
pub(crate) struct RecordedProfile {
    pub(crate) header: ProfileHeader,
    modules: HashMap<u32, ProfileModule>,
    frames: HashMap<u32, HolderFrame>,
    sites: HashMap<u32, Vec<u32>>,
    pub(crate) figures: HashMap<SiteKey, SiteFigures>,
    pub(crate) refusals: Vec<ProfileRefusal>,
    pub(crate) marks: Vec<ProfileMark>,
    /// What all sites held together: milliseconds and bytes, after each sample.
    pub(crate) timeline: Vec<(u64, u64)>,
    pub(crate) peak_bytes: u64,
    pub(crate) peak_ms: u64,
    /// Samples.
    pub(crate) samples: u64,
    /// The file ends too early.
    pub(crate) is_cut_short: bool,
}

/// Sums of the figures of all sites.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProfileTotals {
    pub(crate) at_peak: u64,
    pub(crate) at_end: u64,
    pub(crate) allocated: u64,
}

impl RecordedProfile {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read, or is no profile.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| {
            format!("{}: record a profile with WMSHIM_PROFILE=FILE under `wmctl run`", path.display())
        })?;
        let text = BufReader::new(MultiGzDecoder::new(BufReader::new(file)));
        Self::read(text).with_context(|| path.display().to_string())
    }

    fn read(mut text: impl BufRead) -> Result<Self> {
        let mut player = ProfilePlayer::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = text.by_ref().take(LONGEST).read_until(b'\n', &mut line);
            if read.is_err() || (!line.is_empty() && line.last() != Some(&b'\n')) {
                player.profile.is_cut_short = true;
                break;
            }
            if line.is_empty() {
                break;
            }
            // A kind of a later version.
            let Ok(line) = serde_json::from_slice(&line) else { continue };
            player.play(line);
        }
        if player.profile.header.schema != ProfileHeader::SCHEMA {
            bail!("no profile of a version that this wmctl reads ({})", ProfileHeader::SCHEMA);
        }
        Ok(player.finish())
    }

    /// The frames of a site, the innermost first.
    pub(crate) fn frames(&self, site: u32) -> Vec<HolderFrame> {
        let frames = self.sites.get(&site).into_iter().flatten();
        frames.map(|frame| self.frames.get(frame).cloned().unwrap_or_default()).collect()
    }

    pub(crate) fn totals(&self) -> ProfileTotals {
        let sum = |of: fn(&SiteFigures) -> u64| self.figures.values().map(of).fold(0, u64::saturating_add);
        ProfileTotals {
            at_peak: sum(|figures| figures.at_peak_bytes),
            at_end: sum(|figures| figures.at_end_bytes),
            allocated: sum(|figures| figures.allocated_bytes),
        }
    }
}

/// Plays lines.
#[derive(Default)]
struct ProfilePlayer {
    profile: RecordedProfile,
    live: HashMap<u64, (SiteKey, u64)>,
    held: HashMap<SiteKey, u64>,
    total: u64,
    /// What is held now is the most so far, and not noted yet.
    is_highest: bool,
}

impl ProfilePlayer {
    fn play(&mut self, line: ProfileLine) {
        match line {
            ProfileLine::Profile(header) => self.profile.header = header,
            ProfileLine::Module(module) => drop(self.profile.modules.insert(module.id, module)),
            ProfileLine::Frame(frame) => {
                let native = frame.native.map(|place| self.object_place(place.module, place.offset));
                let known = HolderFrame { native, python: frame.python };
                self.profile.frames.insert(frame.id, known);
            }
            ProfileLine::Site(site) => drop(self.profile.sites.insert(site.id, site.frames)),
            ProfileLine::Allocated(sample) => {
                let ms = sample.ms;
                self.allocated(sample);
                self.profile.timeline.push((ms, self.total));
            }
            ProfileLine::Freed(free) => {
                self.freed(free.number);
                self.profile.timeline.push((free.ms, self.total));
            }
            ProfileLine::OutOfMemory(refusal) => self.profile.refusals.push(refusal),
            ProfileLine::Mark(mark) => self.profile.marks.push(mark),
        }
    }

    fn object_place(&self, module: Option<u32>, offset: u64) -> ObjectPlace {
        let module = module.and_then(|module| self.profile.modules.get(&module));
        let (path, build_id) =
            module.map(|module| (module.path.clone(), module.build_id.clone())).unwrap_or_default();
        ObjectPlace { path, build_id, offset }
    }

    fn allocated(&mut self, sample: SampledAllocation) {
        let SampledAllocation { ms, number, site, device, bytes, weight_bytes, kind } = sample;
        self.freed(number);
        let key = SiteKey { site, device, kind };
        let figures = self.profile.figures.entry(key.clone()).or_default();
        figures.allocated_bytes = figures.allocated_bytes.saturating_add(weight_bytes);
        figures.count += weight_bytes as f64 / bytes.max(1) as f64;
        let held = self.held.entry(key.clone()).or_default();
        *held = held.saturating_add(weight_bytes);
        self.live.insert(number, (key, weight_bytes));
        self.total = self.total.saturating_add(weight_bytes);
        self.profile.samples += 1;
        if self.total > self.profile.peak_bytes {
            (self.profile.peak_bytes, self.profile.peak_ms, self.is_highest) = (self.total, ms, true);
        }
    }

    fn freed(&mut self, number: u64) {
        let Some((key, bytes)) = self.live.remove(&number) else { return };
        self.note_peak();
        self.total = self.total.saturating_sub(bytes);
        if let Some(held) = self.held.get_mut(&key) {
            *held = held.saturating_sub(bytes);
        }
    }

    /// The peak is noted when something is about to be freed: until then more may come.
    fn note_peak(&mut self) {
        if std::mem::take(&mut self.is_highest) {
            for (key, figures) in &mut self.profile.figures {
                figures.at_peak_bytes = self.held.get(key).copied().unwrap_or(0);
            }
        }
    }

    fn finish(mut self) -> RecordedProfile {
        self.note_peak();
        for (key, figures) in &mut self.profile.figures {
            figures.at_end_bytes = self.held.get(key).copied().unwrap_or(0);
        }
        self.profile
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): figures of another moment. Hazard (error handling): a file that was
    //! cut short.
    use std::io::{Cursor, Write};

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const TEXT: &str = r#"{"profile":{"schema":"wmshim-profile/1","pid":7,"interval_bytes":64}}
{"module":{"id":0,"path":"/lib/a.so","build_id":"ab","base":4096}}
{"frame":{"id":0,"native":{"module":0,"offset":32}}}
{"frame":{"id":1,"python":{"function":"f","file":"/x/a.py","line":3}}}
{"site":{"id":0,"frames":[0,1],"is_cut":false}}
{"site":{"id":1,"frames":[0],"is_cut":false}}
{"allocated":{"ms":1,"number":0,"site":0,"device":0,"bytes":10,"weight_bytes":20,"kind":"block"}}
{"allocated":{"ms":2,"number":1,"site":1,"device":0,"bytes":30,"weight_bytes":30,"kind":"piece"}}
{"weather":{"is":"fine"}}
{"freed":{"ms":3,"number":0}}
{"allocated":{"ms":4,"number":2,"site":1,"device":0,"bytes":5,"weight_bytes":5,"kind":"piece"}}
{"mark":{"ms":5,"text":"step 1"}}
{"out_of_memory":{"ms":6,"device":0,"asked_bytes":99}}
"#;

    fn packed(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).expect("memory");
        encoder.finish().expect("memory")
    }

    fn unpacked(bytes: &[u8]) -> Result<RecordedProfile> {
        RecordedProfile::read(BufReader::new(MultiGzDecoder::new(Cursor::new(bytes.to_vec()))))
    }

    #[test]
    fn figures_are_those_of_the_peak_and_of_the_end() {
        let profile = unpacked(&packed(TEXT)).expect("a profile");
        assert_eq!((profile.peak_bytes, profile.peak_ms, profile.samples), (50, 2, 3));
        let of = |site, kind: &str| profile.figures[&SiteKey { site, device: 0, kind: kind.to_owned() }];
        let python = SiteFigures { at_peak_bytes: 20, at_end_bytes: 0, allocated_bytes: 20, count: 2.0 };
        let native = SiteFigures { at_peak_bytes: 30, at_end_bytes: 35, allocated_bytes: 35, count: 2.0 };
        assert_eq!((of(0, "block"), of(1, "piece")), (python, native));
        assert_eq!(profile.totals(), ProfileTotals { at_peak: 50, at_end: 35, allocated: 55 });
        assert_eq!(profile.timeline, [(1, 20), (2, 50), (3, 30), (4, 35)]);
        assert_eq!((profile.marks.len(), profile.refusals.len(), profile.is_cut_short), (1, 1, false));
        let frames = profile.frames(0);
        let place = frames[0].native.clone().expect("native");
        assert_eq!((place.path.as_str(), place.offset), ("/lib/a.so", 32));
        assert_eq!(frames[1].python.as_ref().map(|place| place.line), Some(3));
    }

    #[test]
    fn a_file_that_was_cut_short_is_read_up_to_there() {
        let (first, second) = TEXT.split_at(TEXT.find("{\"freed\"").expect("there"));
        let mut bytes = packed(first);
        let rest = packed(second);
        bytes.extend(&rest[..rest.len() / 2]);
        let profile = unpacked(&bytes).expect("a profile");
        assert!(profile.is_cut_short && profile.peak_bytes == 50);
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        for text in ["", "# wmshim-trace 3\n", "{\"profile\":{\"schema\":\"wmshim-profile/9\"}}\n"] {
            assert!(unpacked(&packed(text)).is_err(), "{text}");
        }
        assert!(unpacked(b"my thesis").is_err());
    }
}
