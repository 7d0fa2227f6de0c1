//! Which code a function is: the bytes of the image that it was loaded from, and its name there.
//! The same in every process.
//!
//! Images are hashed when they are loaded, since a program may give their memory back afterwards.
//! Small ones are kept until they are judged, because those are made at run time; the place of
//! larger ones, which lie in libraries, is noted.
//! Code that is loaded in other ways, or has an unknown form, is not in these tables.
//!
//! Invariant: the driver reuses handles. So [`CodeImages::forget_module`] or
//! [`CodeImages::forget_library`] is called before the driver unloads code, and
//! [`CodeImages::forget_modules`] before a context ends, or a new kernel would inherit the old
//! one's hash.

use std::ffi::{CStr, c_char, c_void};
use std::hash::Hasher;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;
use siphasher::sip128::{Hasher128, SipHasher13};
use wm_abi::symbol::{cuFuncGetModule, cuFuncGetName, cuKernelGetName};
use wm_abi::{CUfunction, CUkernel, CUlibrary, CUmodule, CUresult};
use wm_driver::lock;

use crate::process::{driver, own_memory};

/// A function's code: a hash of its image, and its name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FunctionCode {
    pub(crate) image: u128,
    pub(crate) name: String,
}

type Hashes = OnceLock<DashMap<usize, u128, FxBuildHasher>>;

/// Images up to so many bytes are kept.
const KEPT: usize = 1 << 20;

/// Bytes of all images that are kept.
const MOST_KEPT: usize = 256 << 20;

/// No image with more bytes is read again.
const MOST_READ: usize = 64 << 20;

/// The bytes of an image after it was loaded.
enum LoadedImage {
    Kept(Arc<[u8]>),
    /// Where they were. There may be others by now.
    Place {
        address: u64,
        bytes: usize,
    },
}

/// The hashes of the images that a process has loaded, by the handle that the driver gave.
pub(crate) struct CodeImages {
    modules: Hashes,
    libraries: Hashes,
    /// By hash.
    images: OnceLock<DashMap<u128, LoadedImage, FxBuildHasher>>,
    kept: AtomicUsize,
    /// Images that are kept, and that were not [taken](CodeImages::take_new).
    new: Mutex<Vec<u128>>,
}

impl CodeImages {
    pub(super) const fn new() -> Self {
        Self {
            modules: OnceLock::new(),
            libraries: OnceLock::new(),
            images: OnceLock::new(),
            kept: AtomicUsize::new(0),
            new: Mutex::new(Vec::new()),
        }
    }

    /// A module has been loaded from an image.
    ///
    /// # Safety
    /// The image is one that the driver has just read, or null.
    pub(crate) unsafe fn note_module(&self, module: CUmodule, image: *const c_void) {
        // SAFETY: by contract.
        note(&self.modules, module.0, unsafe { self.note_image(image) });
    }

    /// A library has been loaded from an image.
    ///
    /// # Safety
    /// As for [`CodeImages::note_module`].
    pub(crate) unsafe fn note_library(&self, library: CUlibrary, image: *const c_void) {
        // SAFETY: by contract.
        note(&self.libraries, library.0, unsafe { self.note_image(image) });
    }

    /// A module is a library as one context has it.
    pub(crate) fn note_module_of(&self, module: CUmodule, library: CUlibrary) {
        let image = self.libraries.get().and_then(|known| Some(*known.get(&library.0)?));
        note(&self.modules, module.0, image);
    }

    /// The hash of an image.
    ///
    /// # Safety
    /// As for [`CodeImages::note_module`].
    unsafe fn note_image(&self, image: *const c_void) -> Option<u128> {
        // SAFETY: by contract.
        let bytes = unsafe { bytes(image.cast()) }?;
        let hash = hash(bytes);
        let images = self.images.get_or_init(DashMap::default);
        images.entry(hash).or_insert_with(|| {
            let is_kept = bytes.len() <= KEPT && self.kept.load(Relaxed) + bytes.len() <= MOST_KEPT;
            if is_kept {
                self.kept.fetch_add(bytes.len(), Relaxed);
                lock(&self.new).push(hash);
                return LoadedImage::Kept(bytes.into());
            }
            LoadedImage::Place { address: bytes.as_ptr() as u64, bytes: bytes.len() }
        });
        Some(hash)
    }

    /// The bytes of the image with this hash. `None`: they are not there any more, or too many.
    pub(crate) fn image(&self, wanted: u128) -> Option<Arc<[u8]>> {
        let (address, bytes) = match &*self.images.get()?.get(&wanted)? {
            LoadedImage::Kept(bytes) => return Some(Arc::clone(bytes)),
            LoadedImage::Place { address, bytes } => (*address, *bytes),
        };
        if bytes > MOST_READ {
            return None;
        }
        let mut read = vec![0; bytes];
        let is_same = own_memory::read(address, &mut read) && hash(&read) == wanted;
        is_same.then(|| read.into())
    }

    /// The small images that were loaded since the last call, by hash.
    pub(crate) fn take_new(&self) -> Vec<u128> {
        std::mem::take(&mut *lock(&self.new))
    }

    /// All kernels of the image with this hash are judged: its bytes are not needed any more.
    pub(crate) fn drop_image(&self, judged: u128) {
        let image = self.images.get().and_then(|images| images.remove(&judged));
        if let Some((_, LoadedImage::Kept(bytes))) = image {
            self.kept.fetch_sub(bytes.len(), Relaxed);
        }
    }

    /// A module is about to be unloaded.
    pub(crate) fn forget_module(&self, module: CUmodule) {
        note(&self.modules, module.0, None);
    }

    /// The same of a library, and of its modules.
    pub(crate) fn forget_library(&self, library: CUlibrary) {
        let image = self.libraries.get().and_then(|known| Some(known.remove(&library.0)?.1));
        if let (Some(modules), Some(image)) = (self.modules.get(), image) {
            // Others of the same image are unknown from now on, which costs time only.
            modules.retain(|_, of| *of != image);
        }
    }

    /// A context is about to end, and its modules with it.
    pub(crate) fn forget_modules(&self) {
        self.modules.get().into_iter().for_each(DashMap::clear);
    }

    /// Asks the driver which code a function is. It lives, since the program launches it.
    /// `library`: of a kernel.
    pub(super) fn code(&self, function: CUfunction, library: Option<CUlibrary>) -> Option<FunctionCode> {
        let mut name: *const c_char = std::ptr::null();
        let (image, asked) = match library {
            Some(library) => {
                let image = *self.libraries.get()?.get(&library.0)?;
                // SAFETY: a kernel that lives, and a live local.
                (image, unsafe { driver().get::<cuKernelGetName>()(&mut name, CUkernel(function.0)) })
            }
            None => {
                let image = *self.modules.get()?.get(&module_of(function)?.0)?;
                // SAFETY: the same function, and a live local.
                (image, unsafe { driver().get::<cuFuncGetName>()(&mut name, function) })
            }
        };
        if asked != CUresult::SUCCESS || name.is_null() {
            return None;
        }
        // SAFETY: the driver's own text, which lives as long as the function.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        Some(FunctionCode { image, name })
    }
}

/// The module of a function that lives. Asks the driver.
pub(super) fn module_of(function: CUfunction) -> Option<CUmodule> {
    let mut module = CUmodule(0);
    // SAFETY: by contract a function that lives, and a live local.
    let found = unsafe { driver().get::<cuFuncGetModule>()(&mut module, function) };
    (found == CUresult::SUCCESS).then_some(module)
}

fn note(hashes: &Hashes, handle: usize, hash: Option<u128>) {
    let hashes = hashes.get_or_init(DashMap::default);
    match hash {
        Some(hash) => hashes.insert(handle, hash),
        None => hashes.remove(&handle).map(|(_, hash)| hash),
    };
}

fn hash(bytes: &[u8]) -> u128 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish128().as_u128()
}

/// As CUDA's compiler puts a fat binary into a program (`fatbinary_section.h`): magic, version,
/// address.
const WRAPPER: u32 = 0x4662_43b1;
/// A fat binary: magic, version (16 bits), bytes of the header (16 bits), bytes of all that follows
/// (64 bits).
const FAT_BINARY: u32 = 0xba55_ed50;
const ELF: u32 = 0x464c_457f;

/// No image is larger, in bytes.
const LARGEST: u64 = 4 << 30;

/// All bytes of an image. `None`: its form is not known.
///
/// # Safety
/// As for [`CodeImages::note_module`].
unsafe fn bytes<'a>(image: *const u8) -> Option<&'a [u8]> {
    if image.is_null() {
        return None;
    }
    // SAFETY: by contract, the driver has read at least as much as says what it is. A text is read
    // up to its end, which it has.
    let size = unsafe {
        if begins(image, WRAPPER) {
            let inner = field::<u64>(image, 8) as usize as *const u8;
            let is_plain = field::<u32>(image, 4) == 1 && !inner.is_null() && begins(inner, FAT_BINARY);
            return is_plain.then(|| bytes(inner)).flatten();
        } else if begins(image, FAT_BINARY) {
            field::<u64>(image, 8).checked_add(field::<u16>(image, 6).into())?
        } else if begins(image, ELF) {
            elf_size(image)?
        } else if matches!(image.read(), b'\t'..=b'~') {
            CStr::from_ptr(image.cast()).count_bytes() as u64
        } else {
            return None;
        }
    };
    // SAFETY: the image states this length, by which the driver has read it.
    (0 < size && size <= LARGEST).then(|| unsafe { std::slice::from_raw_parts(image, size as usize) })
}

/// Up to the end of the last section or table of a 64-bit ELF file.
///
/// # Safety
/// The image is one, which the driver has read.
unsafe fn elf_size(image: *const u8) -> Option<u64> {
    const NO_BITS: u32 = 8;
    // SAFETY: fields of the header, and of the tables that it names.
    unsafe {
        if image.add(4).read() != 2 {
            return None;
        }
        let (programs, sections) = (field::<u64>(image, 32), field::<u64>(image, 40));
        let [program_bytes, programs_count, section_bytes, sections_count] =
            [54, 56, 58, 60].map(|at| u64::from(field::<u16>(image, at)));
        let mut end = programs.checked_add(program_bytes * programs_count)?;
        end = end.max(sections.checked_add(section_bytes * sections_count)?);
        for index in 0..sections_count {
            let section = image.add(usize::try_from(sections + index * section_bytes).ok()?);
            if field::<u32>(section, 4) != NO_BITS {
                end = end.max(field::<u64>(section, 24).checked_add(field::<u64>(section, 32))?);
            }
        }
        Some(end)
    }
}

/// Stops at the first byte that differs, so a short text is not read beyond its end.
///
/// # Safety
/// The image is one, or a text that ends with a zero.
unsafe fn begins(image: *const u8, magic: u32) -> bool {
    // SAFETY: by contract; no magic number has a zero in it.
    magic.to_le_bytes().iter().enumerate().all(|(at, byte)| unsafe { image.add(at).read() } == *byte)
}

/// # Safety
/// So many bytes are there.
unsafe fn field<T: Copy>(image: *const u8, at: usize) -> T {
    // SAFETY: by contract.
    unsafe { image.add(at).cast::<T>().read_unaligned() }
}

#[cfg(test)]
mod tests {
    //! Hazard: two images have one hash because not all of one is read, or more is read than there
    //! is.
    use super::*;

    fn size(image: &[u8]) -> Option<usize> {
        // SAFETY: whole images.
        unsafe { bytes(image.as_ptr()) }.map(<[u8]>::len)
    }

    fn fat_binary(payload: usize) -> Vec<u8> {
        let mut image = FAT_BINARY.to_le_bytes().to_vec();
        image.extend(1_u16.to_le_bytes());
        image.extend(16_u16.to_le_bytes());
        image.extend((payload as u64).to_le_bytes());
        image.resize(16 + payload, 7);
        image
    }

    #[test]
    fn every_form_is_read_to_its_end() {
        assert_eq!(size(b".version 8.2\0more"), Some(12));
        assert_eq!(size(b"\n//\0"), Some(3));
        let fat = fat_binary(100);
        assert_eq!(size(&fat), Some(116));
        let mut wrapper = WRAPPER.to_le_bytes().to_vec();
        wrapper.extend(1_u32.to_le_bytes());
        wrapper.extend((fat.as_ptr() as u64).to_le_bytes());
        assert_eq!(size(&wrapper), Some(116));
        for image in wm_kernels::IMAGES {
            assert_eq!(size(image.sm_90), Some(image.sm_90.len()), "{}", image.name);
        }
    }

    #[test]
    fn what_is_not_known_is_not_read() {
        assert_eq!((size(&[0, 1, 2, 3]), size(&[0x7f, b'E', b'L', b'F', 1])), (None, None));
        // SAFETY: null is allowed.
        assert!(unsafe { CodeImages::new().note_image(std::ptr::null()) }.is_none());
    }

    #[test]
    fn a_byte_at_the_end_counts() {
        let (one, mut other) = (fat_binary(100), fat_binary(100));
        *other.last_mut().expect("bytes") = 8;
        let images = CodeImages::new();
        // SAFETY: whole images.
        let [one, other] = [one, other].map(|image| unsafe { images.note_image(image.as_ptr().cast()) });
        assert!(one.is_some() && one != other);
    }

    /// Hazard (use after free): an image is judged after the program gave its memory back.
    #[test]
    fn an_image_is_the_one_that_was_loaded_or_none() {
        let images = CodeImages::new();
        let (small, mut large) = (fat_binary(100), fat_binary(KEPT));
        // SAFETY: whole images.
        let [one, other] = [&small, &large].map(|image| unsafe { images.note_image(image.as_ptr().cast()) });
        let (one, other) = (one.expect("a hash"), other.expect("a hash"));
        drop(small);
        assert_eq!(images.image(one).as_deref(), Some(&fat_binary(100)[..]));
        assert_eq!(images.image(other).as_deref(), Some(&large[..]));
        assert_eq!(images.take_new(), [one], "the small one is judged soon");
        assert!(images.take_new().is_empty(), "it is told once");
        *large.last_mut().expect("bytes") = 8;
        assert!(images.image(other).is_none(), "there are other bytes by now");
        images.drop_image(one);
        assert!(images.image(one).is_none() && images.kept.load(Relaxed) == 0);
    }
}
