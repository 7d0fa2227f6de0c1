//! The verdicts on all kernels of an image, for one architecture of devices, and their bytes.
//!
//! | bytes | |
//! |---|---|
//! | 0..16 | head, with the version of the format |
//! | 16..20 | [`ANALYSER`] |
//! | 20..24 | architecture of the device |
//! | 24..40 | hash of the image |
//! | 40.. | of each kernel, ordered: hash of its name (16 bytes), verdict |
//! | last 8 | checksum of all before it |
//!
//! Numbers of fixed size are little-endian; those of verdicts have seven bits a byte, lowest first,
//! and the eighth says that another byte follows.
//!
//! Bytes that are damaged, of another analyser, image or architecture yield no results.

mod verdicts;

use std::collections::BTreeMap;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::image::{CodeForm, Cubin, ImageEntry, ImageError, entries};
use crate::verdict::{AddressSource, CodeVerdict, Effects, Why};
use crate::{flow, ptx};

/// The version of the analysis. A change that can change a verdict counts it up, so that no result
/// of an older version is believed.
pub const ANALYSER: u32 = 1;

const HEAD: [u8; 16] = *b"wmshim code 1\0\0\0";
const KEY_BYTES: usize = 16;
const FIRST: usize = 40;

/// The verdicts on the kernels of an image, by the hashes of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Results(BTreeMap<u128, CodeVerdict>);

/// What results are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// The hash of the image's bytes.
    pub image: u128,
    /// The architecture of the device: 10 times the major part of its compute capability, and the
    /// minor part.
    pub sm: u32,
}

impl Results {
    /// Judges the kernels that a device of this architecture may take from an image. If a part of
    /// the image that it may take is not read, there are none.
    ///
    /// The driver takes machine code of the same major architecture; it compiles a text if none is
    /// exact. A program can make it compile in any case (`CUDA_FORCE_PTX_JIT`): the results are not
    /// about that.
    pub fn of_image(image: &[u8], sm: u32) -> Self {
        taken(image, sm).and_then(|taken| Self::of_entries(&taken)).unwrap_or_default()
    }

    fn of_entries(entries: &[ImageEntry]) -> Result<Self, ImageError> {
        let mut results = Self::default();
        for entry in entries {
            for (name, verdict) in of_entry(entry)? {
                results.add(&name, verdict);
            }
        }
        Ok(results)
    }

    /// Adds a verdict. Two about one name are about two variants, either of which may run.
    pub fn add(&mut self, name: &str, verdict: CodeVerdict) {
        let both = match self.0.remove(&key(name)) {
            Some(other) => either(other, verdict),
            None => verdict,
        };
        self.0.insert(key(name), both);
    }

    /// The verdict on the kernel with this name.
    pub fn verdict(&self, name: &str) -> Option<&CodeVerdict> {
        self.0.get(&key(name))
    }

    /// The number of kernels.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Is there no kernel?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All bytes of a file.
    pub fn encode(&self, subject: Subject) -> Vec<u8> {
        let mut bytes = head(subject);
        for (key, verdict) in &self.0 {
            bytes.extend(key.to_le_bytes());
            verdicts::encode(verdict, &mut bytes);
        }
        let checksum = checksum(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    /// The results of a file. `None`: they cannot be believed, or are about something else.
    pub fn decode(bytes: &[u8], subject: Subject) -> Option<Self> {
        let (checked, found) = bytes.split_last_chunk()?;
        if !checked.starts_with(&head(subject)) || checksum(checked).to_le_bytes() != *found {
            return None;
        }
        let mut results = Self::default();
        let mut rest = &checked[FIRST..];
        while let Some((key, after)) = rest.split_first_chunk::<KEY_BYTES>() {
            let (verdict, after) = verdicts::decode(after)?;
            results.0.insert(u128::from_le_bytes(*key), verdict);
            rest = after;
        }
        rest.is_empty().then_some(results)
    }
}

/// The entries of an image that a device may take.
fn taken(image: &[u8], sm: u32) -> Result<Vec<ImageEntry<'_>>, ImageError> {
    let all: Vec<_> = entries(image).collect::<Result<_, _>>()?;
    let has_exact = all.iter().any(|entry| entry.kind == CodeForm::Cubin && entry.sm == sm);
    let is_taken = |entry: &ImageEntry| match entry.kind {
        CodeForm::Cubin => entry.sm / 10 == sm / 10 && entry.sm <= sm,
        CodeForm::Ptx => entry.sm <= sm && !has_exact,
    };
    Ok(all.into_iter().filter(is_taken).collect())
}

/// The verdicts on the kernels of an entry.
///
/// # Errors
/// The entry is not read.
pub fn of_entry(entry: &ImageEntry) -> Result<Vec<(String, CodeVerdict)>, ImageError> {
    let content = entry.open()?;
    match entry.kind {
        CodeForm::Ptx => {
            let text = std::str::from_utf8(&content).map_err(|_| ImageError::Text)?;
            ptx::judge(text).ok_or(ImageError::Text)
        }
        CodeForm::Cubin => Ok(Cubin::parse(&content)?
            .kernels()
            .map(|kernel| match kernel {
                Ok(kernel) => (kernel.name.to_owned(), flow::judge(&kernel)),
                Err(name) => (name.to_owned(), CodeVerdict::Undecided(Why::Image)),
            })
            .collect()),
    }
}

/// What one of two kernels may do.
fn either(one: CodeVerdict, other: CodeVerdict) -> CodeVerdict {
    match (one, other) {
        (CodeVerdict::Decided(one), CodeVerdict::Decided(other)) => CodeVerdict::Decided(Effects {
            stores: joined(one.stores, other.stores),
            reads: joined(one.reads, other.reads),
            escapes: one.escapes.union(&other.escapes),
        }),
        (undecided @ CodeVerdict::Undecided(_), _) | (_, undecided) => undecided,
    }
}

fn joined(mut one: Vec<AddressSource>, other: Vec<AddressSource>) -> Vec<AddressSource> {
    one.extend(other);
    one.sort_unstable();
    one.dedup();
    one
}

fn head(Subject { image, sm }: Subject) -> Vec<u8> {
    [&HEAD[..], &ANALYSER.to_le_bytes(), &sm.to_le_bytes(), &image.to_le_bytes()].concat()
}

fn key(name: &str) -> u128 {
    let mut hasher = SipHasher24::new();
    hasher.write(name.as_bytes());
    hasher.finish128().as_u128()
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0x7765_6d73_6869_6d20, 0x636f_6465_2031_0000);
    hasher.write(bytes);
    hasher.finish()
}
