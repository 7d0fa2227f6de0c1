//! Proofs that kernels only read: their code is judged by [`wm_code`], on the background thread.
//!
//! A parameter is asked about when it first points into a block that could be shared. Until there
//! is an answer it may write, so a launch waits some milliseconds for it. The kernels of small
//! images, which are made at run time, are judged soon after they were loaded. The verdicts on the
//! kernels of an image are kept in the user's cache folder, if it took long to find them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rustc_hash::FxBuildHasher;
use wm_abi::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CUdevice,
};
use wm_code::results::{Results, Subject};
use wm_code::verdict::{AddressSource, CodeVerdict, Effects, Why, WordSet};
use wm_dedup::cache::ResultsCache;
use wm_dedup::readers::ParameterKey;
use wm_driver::Api;
use wm_trust::environment;

use super::kernel_effects::ProcessKernels;
use crate::launches::{self, FunctionCode};
use crate::process::driver;

/// Results that took less time are made again by each process.
const WORTH_KEEPING: Duration = Duration::from_millis(5);

/// With this variable the driver compiles the text of images that have machine code.
const FORCE_PTX: &str = "CUDA_FORCE_PTX_JIT";

/// The verdicts on the images of which a kernel was asked about.
pub(super) struct KernelProofs {
    cache: Option<ResultsCache>,
    images: HashMap<Subject, Results, FxBuildHasher>,
    /// Small images of which some kernels may have no verdict, by hash.
    open: VecDeque<u128>,
    /// Of the process's devices, as far as the driver tells them.
    architectures: Vec<Option<u32>>,
    is_possible: bool,
}

impl KernelProofs {
    pub(super) fn new(cache: Option<ResultsCache>) -> Self {
        let is_forced = environment::text(FORCE_PTX).is_some_and(|text| text != "0" && !text.is_empty());
        Self {
            cache,
            images: HashMap::default(),
            open: VecDeque::new(),
            architectures: Vec::new(),
            is_possible: !is_forced,
        }
    }

    /// Judges the parameters that are asked about, for each device of the process. Launches may
    /// wait for that, so no other kernel is judged before.
    pub(super) fn judge(&mut self, kernels: &ProcessKernels, devices: &[CUdevice]) {
        self.open.extend(launches::CODE.images.take_new());
        let asked = kernels.asked();
        if asked.is_empty() && self.open.is_empty() {
            return;
        }
        self.architectures = devices.iter().map(|device| architecture(*device)).collect();
        for sm in self.architectures.clone().into_iter().flatten() {
            self.read_code(kernels, &asked, sm);
        }
        for parameter in asked {
            let code = kernels.code(parameter.function).filter(|_| self.is_possible);
            let doubt = |sm: &Option<u32>| match (code.as_deref(), sm) {
                (Some(code), Some(sm)) => self.doubt(code, parameter.offset, *sm),
                _ => Some(Doubt::NoCode),
            };
            let doubt = self.architectures.iter().find_map(doubt);
            if let Some(doubt) = &doubt {
                let name = code.as_ref().map_or("?", |code| &code.name);
                log::debug!("{name} may write through its parameter at {}: {doubt}", parameter.offset);
            }
            kernels.readers().prove(parameter, doubt.is_none() && !self.architectures.is_empty());
        }
        kernels.have_judged();
    }

    /// Are there images with kernels that will be asked about?
    pub(super) fn has_more(&self) -> bool {
        self.is_possible && !self.open.is_empty() && !self.architectures.is_empty()
    }

    /// Judges all kernels of one small image, before the program launches them.
    pub(super) fn judge_some_more(&mut self) {
        if !self.has_more() {
            return;
        }
        let Some(image) = self.open.pop_front() else { return };
        for sm in self.architectures.clone().into_iter().flatten() {
            let subject = Subject { image, sm };
            self.known(subject);
            self.read_image(subject, |_| true);
        }
        launches::CODE.images.drop_image(image);
    }

    /// Why a kernel may write through the parameter at an offset. `None`: it only reads.
    fn doubt(&self, code: &FunctionCode, offset: u32, sm: u32) -> Option<Doubt> {
        let results = self.images.get(&Subject { image: code.image, sm });
        match results.and_then(|results| results.verdict(&code.name)) {
            None => Some(Doubt::NoCode),
            Some(CodeVerdict::Undecided(why)) => Some(Doubt::Undecided(*why)),
            Some(CodeVerdict::Decided(effects)) => doubt_of(effects, offset),
        }
    }

    /// Judges the kernels of these parameters that have no verdict, image by image.
    fn read_code(&mut self, kernels: &ProcessKernels, asked: &[ParameterKey], sm: u32) {
        let mut open: BTreeMap<Subject, BTreeSet<String>> = BTreeMap::new();
        for code in asked.iter().filter_map(|parameter| kernels.code(parameter.function)) {
            let subject = Subject { image: code.image, sm };
            let known = self.known(subject);
            if known.verdict(&code.name).is_none() {
                open.entry(subject).or_default().insert(code.name.clone());
            }
        }
        for (subject, names) in open {
            self.read_image(subject, |name| names.contains(name));
        }
    }

    /// The verdicts on the kernels of an image so far, or those that were kept.
    fn known(&mut self, subject: Subject) -> &mut Results {
        let cache = self.cache.as_ref();
        let kept = || cache.and_then(|cache| cache.load(subject)).unwrap_or_default();
        self.images.entry(subject).or_insert_with(kept)
    }

    /// Judges those of the wanted kernels of an image that have no verdict.
    fn read_image(&mut self, subject: Subject, is_wanted: impl Fn(&str) -> bool) {
        let begin = Instant::now();
        let Some(image) = launches::CODE.images.image(subject.image) else { return };
        let known = self.known(subject);
        let judge = || {
            Results::of_kernels(&image, subject.sm, |name| is_wanted(name) && known.verdict(name).is_none())
        };
        // An image that the analysis does not survive has kernels that may write.
        let judged = catch_unwind(AssertUnwindSafe(judge)).unwrap_or_default();
        let took = begin.elapsed();
        log::debug!("{} kernels of an image of {} bytes were judged in {took:?}", judged.len(), image.len());
        known.extend(judged);
        let results = &self.images[&subject];
        if took >= WORTH_KEEPING
            && let Some(Err(error)) = self.cache.as_ref().map(|cache| cache.keep(subject, results))
        {
            log::info!("the verdicts on kernels are not kept: {error}");
        }
    }
}

/// Why a kernel counts as one that writes through a parameter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Doubt {
    #[error("its code is not known")]
    NoCode,
    #[error("{}", .0.reason())]
    Undecided(Why),
    #[error("its code stores through it")]
    Stores,
    #[error("its code stores the address")]
    Escapes,
}

/// Is the address at an offset of the parameters stored through, or stored?
fn doubt_of(effects: &Effects, offset: u32) -> Option<Doubt> {
    // An address without its alignment has a part in two words, and takes part with both of them.
    let words = [offset / 8, offset.div_ceil(8)];
    let is_in = |set: &WordSet| words.into_iter().all(|word| set.contains(word));
    let stores = |store: &AddressSource| is_in(&store.words.union(&store.offsets));
    if effects.stores.iter().any(stores) {
        return Some(Doubt::Stores);
    }
    is_in(&effects.escapes).then_some(Doubt::Escapes)
}

/// Of a device: ten times the major part of its compute capability, and the minor part.
fn architecture(device: CUdevice) -> Option<u32> {
    let part = |attribute| u32::try_from(driver().device_attribute(attribute, device).ok()?).ok();
    let major = part(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    Some(10 * major + part(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?)
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a parameter that is stored through counts as only read.
    use super::*;

    #[test]
    fn what_is_stored_through_or_stored_is_not_only_read() {
        let store = AddressSource {
            words: [1, 2].into_iter().collect(),
            offsets: [3].into_iter().collect(),
            ..AddressSource::default()
        };
        let effects =
            Effects { stores: vec![store], escapes: [4].into_iter().collect(), ..Effects::default() };
        let read: Vec<u32> = (0..48).step_by(4).filter(|at| doubt_of(&effects, *at).is_none()).collect();
        assert_eq!(read, [0, 4, 28, 36, 40, 44], "only 12 and 20 have both words");
        assert_eq!([12, 32].map(|at| doubt_of(&effects, at)), [Some(Doubt::Stores), Some(Doubt::Escapes)]);
    }
}
