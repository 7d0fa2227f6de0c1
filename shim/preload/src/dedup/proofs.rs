//! Proofs that kernels only read: their code is judged by [`wm_code`], on the background thread.
//!
//! A parameter is asked about when it first points into a block that could be shared. Until there
//! is an answer it may write. The verdicts on the kernels of an image are kept in the user's cache
//! folder, if it took long to find them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rustc_hash::FxBuildHasher;
use wm_abi::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CUdevice,
};
use wm_code::results::{Results, Subject};
use wm_code::verdict::CodeVerdict;
use wm_dedup::cache::ResultsCache;
use wm_dedup::readers::ParameterKey;
use wm_driver::Api;
use wm_trust::environment;

use super::kernel_effects::ProcessKernels;
use crate::launches;
use crate::process::driver;

/// Results that took less time are made again by each process.
const WORTH_KEEPING: Duration = Duration::from_millis(5);

/// With this variable the driver compiles the text of images that have machine code.
const FORCE_PTX: &str = "CUDA_FORCE_PTX_JIT";

/// The verdicts on the images of which a kernel was asked about.
pub(super) struct KernelProofs {
    cache: Option<ResultsCache>,
    images: HashMap<Subject, Results, FxBuildHasher>,
    is_possible: bool,
}

impl KernelProofs {
    pub(super) fn new(cache: Option<ResultsCache>) -> Self {
        let is_forced = environment::text(FORCE_PTX).is_some_and(|text| text != "0" && !text.is_empty());
        Self { cache, images: HashMap::default(), is_possible: !is_forced }
    }

    /// Judges the parameters that are asked about, for each device of the process.
    pub(super) fn judge(&mut self, kernels: &ProcessKernels, devices: &[CUdevice]) {
        for parameter in kernels.asked() {
            let only_reads = devices.iter().all(|device| self.only_reads(kernels, parameter, *device));
            kernels.readers().prove(parameter, only_reads);
        }
    }

    /// Without its code a kernel may write.
    fn only_reads(&mut self, kernels: &ProcessKernels, parameter: ParameterKey, device: CUdevice) -> bool {
        let Some(code) = kernels.code(parameter.function).filter(|_| self.is_possible) else { return false };
        let Some(sm) = architecture(device) else { return false };
        let subject = Subject { image: code.image, sm };
        if !self.images.contains_key(&subject) {
            let results = self.results(subject);
            self.images.insert(subject, results);
        }
        let verdict = self.images.get(&subject).and_then(|results| results.verdict(&code.name));
        verdict.is_some_and(|verdict| is_only_read(verdict, parameter.offset))
    }

    fn results(&self, subject: Subject) -> Results {
        if let Some(kept) = self.cache.as_ref().and_then(|cache| cache.load(subject)) {
            return kept;
        }
        let begin = Instant::now();
        let Some(image) = launches::CODE.images.take_image(subject.image) else { return Results::default() };
        let results = Results::of_image(&image, subject.sm);
        let took = begin.elapsed();
        log::debug!("{} kernels of an image of {} bytes were judged in {took:?}", results.len(), image.len());
        if took >= WORTH_KEEPING
            && let Some(Err(error)) = self.cache.as_ref().map(|cache| cache.keep(subject, &results))
        {
            log::info!("the verdicts on kernels are not kept: {error}");
        }
        results
    }
}

/// Is the address at an offset of the parameters neither stored through nor stored?
fn is_only_read(verdict: &CodeVerdict, offset: u32) -> bool {
    let CodeVerdict::Decided(effects) = verdict else { return false };
    // An address without its alignment has a part in two words.
    let mut words = [offset / 8, offset.div_ceil(8)].into_iter();
    words.all(|word| {
        let mut stores = effects.stores.iter();
        !stores.any(|store| store.words.contains(word) || store.offsets.contains(word))
            && !effects.escapes.contains(word)
    })
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
    use wm_code::verdict::{AddressSource, Effects, Why};

    use super::*;

    #[test]
    fn what_is_stored_through_or_stored_is_not_only_read() {
        let store = AddressSource { words: [1].into_iter().collect(), ..AddressSource::default() };
        let effects =
            Effects { stores: vec![store], escapes: [4].into_iter().collect(), ..Effects::default() };
        let verdict = CodeVerdict::Decided(effects);
        let read: Vec<u32> = (0..48).step_by(4).filter(|at| is_only_read(&verdict, *at)).collect();
        assert_eq!(read, [0, 16, 20, 24, 40, 44], "12, 28 and 36 reach into the next word");
        assert!(!is_only_read(&CodeVerdict::Undecided(Why::Image), 0));
    }
}
