//! Holders as rows: by call site, or by function with everything that it called.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use wm_schema::HolderFrame;
use wm_schema::profile::PythonPlace;

use super::recording::{RecordedProfile, SiteFigures, SiteKey};
use super::symbols::Symbols;

/// Frames of a site that a table shows.
const SHOWN: usize = 4;

/// A frame with its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct NamedFrame {
    /// The function; for one without a name the object and the address in it.
    pub(crate) function: String,
    /// The source of a Python function, the object of native code.
    pub(crate) file: String,
    /// The line of a Python function; null for native code.
    pub(crate) line: Option<u32>,
}

/// One that holds memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct HolderRow {
    /// The device, as the process numbers it; null for a function, which may use several.
    pub(crate) device: Option<i32>,
    /// `block` or `piece`; null for a function.
    pub(crate) kind: Option<String>,
    #[serde(flatten)]
    pub(crate) figures: SiteFigures,
    /// The innermost first. Of a function itself alone.
    pub(crate) frames: Vec<NamedFrame>,
}

impl NamedFrame {
    /// A frame, with its name if its file has one.
    pub(crate) fn of(frame: &HolderFrame, symbols: &mut Symbols) -> Self {
        if let Some(PythonPlace { function, file, line }) = &frame.python {
            return Self { function: function.clone(), file: file.clone(), line: Some(*line) };
        }
        let native = frame.native.clone().unwrap_or_default();
        let known = symbols.function(&native.path, &native.build_id, native.offset);
        let function = known.unwrap_or_else(|| format!("{}+{:#x}", last_part(&native.path), native.offset));
        Self { function, file: native.path, line: None }
    }

    /// `train (train.py:12)`, `at::empty (libtorch_cpu.so)`.
    pub(crate) fn shown(&self) -> String {
        match self.line {
            Some(0) => format!("{} ({})", self.function, last_part(&self.file)),
            Some(line) => format!("{} ({}:{line})", self.function, last_part(&self.file)),
            None if self.function.contains("+0x") => self.function.clone(),
            None => format!("{} ({})", self.function, last_part(&self.file)),
        }
    }
}

/// The last part of a path; `?` for code that is in no file.
fn last_part(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("?")
}

impl HolderRow {
    /// The frames in a line, the innermost first: those of Python where there are some.
    pub(crate) fn place(&self) -> String {
        place(&self.frames)
    }
}

/// Frames in a line: those of Python where there are some. A function that calls itself from one
/// line is written once.
pub(crate) fn place(frames: &[NamedFrame]) -> String {
    let of_python = frames.iter().any(|frame| frame.line.is_some());
    let shown: Vec<_> = frames.iter().filter(|frame| frame.line.is_some() == of_python).collect();
    let alike = shown.chunk_by(|one, other| one == other);
    let words = alike.take(SHOWN).map(|frames| match frames {
        [frame] => frame.shown(),
        frames => format!("{} x{}", frames[0].shown(), frames.len()),
    });
    let words = words.collect::<Vec<_>>();
    if words.is_empty() { "?".to_owned() } else { words.join(" < ") }
}

/// A part of a whole in percent.
pub(crate) fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

/// A row for each site, device and kind of memory.
pub(crate) fn by_site(profile: &RecordedProfile, symbols: &mut Symbols) -> Vec<HolderRow> {
    let mut keys: Vec<_> = profile.figures.iter().collect();
    keys.sort_unstable_by_key(|(key, _)| *key);
    let row = |(key, figures): (&SiteKey, &SiteFigures)| HolderRow {
        device: Some(key.device),
        kind: Some(key.kind.clone()),
        figures: *figures,
        frames: profile.frames(key.site).iter().map(|frame| NamedFrame::of(frame, symbols)).collect(),
    };
    keys.into_iter().map(row).collect()
}

/// A row for each function, with all that it and those that it called hold.
pub(crate) fn by_function(sites: &[HolderRow]) -> Vec<HolderRow> {
    let mut functions: BTreeMap<NamedFrame, SiteFigures> = BTreeMap::new();
    for site in sites {
        // A function that calls itself counts once, and so do its lines.
        let once =
            site.frames.iter().map(|frame| NamedFrame { line: frame.line.map(|_| 0), ..frame.clone() });
        for function in once.collect::<BTreeSet<_>>() {
            functions.entry(function).or_default().add(&site.figures);
        }
    }
    let row = |(function, figures)| HolderRow { device: None, kind: None, figures, frames: vec![function] };
    functions.into_iter().map(row).collect()
}

impl SiteFigures {
    fn add(&mut self, other: &Self) {
        self.at_peak_bytes = self.at_peak_bytes.saturating_add(other.at_peak_bytes);
        self.at_end_bytes = self.at_end_bytes.saturating_add(other.at_end_bytes);
        self.allocated_bytes = self.allocated_bytes.saturating_add(other.allocated_bytes);
        self.count += other.count;
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a function that calls itself holds its memory twice.
    use super::*;

    fn python(function: &str, line: u32) -> NamedFrame {
        NamedFrame { function: function.to_owned(), file: "/x/a.py".to_owned(), line: Some(line) }
    }

    fn native(function: &str) -> NamedFrame {
        NamedFrame { function: function.to_owned(), file: "/lib/a.so".to_owned(), line: None }
    }

    fn site(bytes: u64, frames: Vec<NamedFrame>) -> HolderRow {
        let figures = SiteFigures { at_peak_bytes: bytes, count: 1.0, ..SiteFigures::default() };
        HolderRow { device: Some(0), kind: Some("block".to_owned()), figures, frames }
    }

    #[test]
    fn a_function_holds_what_it_called_and_counts_once() {
        let sites = [
            site(10, vec![native("malloc"), python("f", 3), python("f", 4), python("main", 9)]),
            site(5, vec![python("main", 12)]),
        ];
        let rows = by_function(&sites);
        let found: Vec<_> =
            rows.iter().map(|row| (row.frames[0].function.as_str(), row.figures.at_peak_bytes)).collect();
        assert_eq!(found, [("f", 10), ("main", 15), ("malloc", 10)]);
    }

    #[test]
    fn a_line_has_the_frames_of_python_where_there_are_some() {
        assert_eq!(place(&[native("b"), python("f", 3), python("main", 9)]), "f (a.py:3) < main (a.py:9)");
        assert_eq!(place(&[native("b"), native("a.so+0x20")]), "b (a.so) < a.so+0x20");
        let itself = [python("f", 3), python("f", 3), python("f", 4), python("main", 9)];
        assert_eq!(place(&itself), "f (a.py:3) x2 < f (a.py:4) < main (a.py:9)");
        assert_eq!(place(&[]), "?");
    }
}
