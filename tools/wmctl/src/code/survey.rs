//! The verdicts on all kernels of a file, counted.

use std::collections::BTreeMap;
use std::time::Instant;

use wm_code::image::{self, CodeForm, ImageEntry};
use wm_code::results;
use wm_code::verdict::{CodeVerdict, Effects};

/// The form of code, and the architecture that it was made for; 0, if a text does not say it here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CodeVariant {
    pub(super) is_text: bool,
    pub(super) sm: u32,
}

/// A kernel and the verdict on it.
#[derive(Debug)]
pub(super) struct JudgedKernel {
    pub(super) form: CodeVariant,
    pub(super) name: String,
    pub(super) verdict: CodeVerdict,
}

/// The kernels of one form, by the facts that decide what one launch writes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Share {
    pub(super) kernels: u64,
    /// The code alone: each store goes through a parameter or to a variable.
    pub(super) by_code: u64,
    /// The values of parameters, too: an address has a part that is loaded.
    pub(super) by_values: u64,
    /// A store goes through a pointer that is loaded.
    pub(super) by_pointers: u64,
    pub(super) unknown: u64,
    /// The time to unpack and to judge them.
    pub(super) seconds: f64,
}

/// The kernels of a file.
#[derive(Debug, Default)]
pub(super) struct CodeSurvey {
    pub(super) found: Vec<JudgedKernel>,
    pub(super) shares: BTreeMap<CodeVariant, Share>,
    /// Kernels by the reason why they are undecided.
    pub(super) reasons: BTreeMap<String, u64>,
    /// Parts by the reason why they are not read.
    pub(super) unread: BTreeMap<String, u64>,
}

/// Judges the kernels of a file: of all architectures, or of one.
pub(super) fn of(file: &[u8], sm: Option<u32>) -> CodeSurvey {
    let mut survey = CodeSurvey::default();
    let mut images: Vec<_> = image::embedded(file).collect();
    if images.is_empty() {
        images.push(file);
    }
    for entry in images.into_iter().flat_map(image::entries) {
        match entry {
            Ok(entry) if sm.is_none_or(|sm| entry.sm == sm || entry.sm == 0) => survey.add(&entry),
            Ok(_) => {}
            Err(error) => survey.leave(&error),
        }
    }
    survey
}

impl CodeSurvey {
    fn add(&mut self, entry: &ImageEntry) {
        let begun = Instant::now();
        let verdicts = match results::of_entry(entry) {
            Ok(verdicts) => verdicts,
            Err(error) => return self.leave(&error),
        };
        let form = CodeVariant { is_text: entry.kind == CodeForm::Ptx, sm: entry.sm };
        let share = self.shares.entry(form).or_default();
        share.seconds += begun.elapsed().as_secs_f64();
        for (name, verdict) in verdicts {
            share.count(&verdict);
            if let CodeVerdict::Undecided(why) = verdict {
                *self.reasons.entry(why.reason()).or_default() += 1;
            }
            self.found.push(JudgedKernel { form, name, verdict });
        }
    }

    fn leave(&mut self, error: &image::ImageError) {
        *self.unread.entry(error.to_string()).or_default() += 1;
    }
}

impl Share {
    fn count(&mut self, verdict: &CodeVerdict) {
        self.kernels += 1;
        let kind = match verdict {
            CodeVerdict::Undecided(_) => &mut self.unknown,
            CodeVerdict::Decided(Effects { stores, .. }) => {
                let loads = stores.iter().filter(|store| store.memory);
                match loads.map(|store| store.words.is_empty()).max() {
                    None => &mut self.by_code,
                    Some(false) => &mut self.by_values,
                    Some(true) => &mut self.by_pointers,
                }
            }
        };
        *kind += 1;
    }
}
