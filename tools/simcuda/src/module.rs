//! Modules and libraries: the kernels of an image.
//!
//! No code is loaded: an image is searched for the names of kernels, and the kernels of these names
//! run that wm-kernels compiled for the CPU. A kernel that exists in the image only is not found.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use wm_abi::CUresult;
use wm_kernels::cpu;

use crate::context::Context;
use crate::entry::{Outcome, require};
use crate::settings::{complain, settings};
use crate::state::driver;

/// A module: an image in a context.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) handle: usize,
    /// Its context's [`Context::id`].
    pub(crate) context_id: u64,
    image: Arc<Image>,
    functions: Mutex<HashMap<String, usize>>,
}

/// A kernel in a module.
#[derive(Debug)]
pub(crate) struct Function {
    /// Handle of its module.
    pub(crate) module: usize,
    /// Its context's [`Context::id`].
    pub(crate) context_id: u64,
    /// As a C string.
    pub(crate) name: CString,
    /// The kernel that runs.
    pub(crate) kernel: &'static cpu::CpuKernel,
    /// The values of `cuFuncSetAttribute`, by attribute.
    pub(crate) attributes: Mutex<HashMap<u32, i32>>,
}

/// A library: an image for every context.
#[derive(Debug)]
pub(crate) struct Library {
    image: Arc<Image>,
    kernels: Mutex<HashMap<String, usize>>,
    /// Handle of its module in each context, by [`Context::id`].
    modules: Mutex<HashMap<u64, usize>>,
}

/// A kernel in a library.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Handle of its library.
    pub(crate) library: usize,
    /// As a C string.
    pub(crate) name: CString,
    /// The kernel that runs.
    pub(crate) kernel: &'static cpu::CpuKernel,
}

/// The names of the kernels in an image.
#[derive(Debug)]
pub(crate) struct Image(Vec<String>);

impl Image {
    /// Reads PTX, machine code or a fat binary.
    ///
    /// # Safety
    /// `image` is null or a whole image of one of these kinds.
    ///
    /// # Errors
    /// `INVALID_VALUE` for null, `INVALID_IMAGE` for other content, `INVALID_PTX` for PTX without
    /// version.
    pub(crate) unsafe fn read(image: *const c_void) -> Outcome<Arc<Self>> {
        require(!image.is_null(), CUresult::INVALID_VALUE)?;
        // SAFETY: by contract there are four bytes; a text of fewer has a zero among them.
        let magic = unsafe { std::ptr::read_unaligned(image.cast::<[u8; 4]>()) };
        // SAFETY: by contract the image is whole, so its header tells its size.
        let names = unsafe {
            match magic {
                [0x7f, b'E', b'L', b'F'] => known_names(bytes(image, elf_size(image))),
                [0x50, 0xed, 0x55, 0xba] => known_names(bytes(image, fat_size(image))),
                _ => entries(CStr::from_ptr(image.cast::<c_char>()))?,
            }
        };
        Ok(Arc::new(Self(names)))
    }

    /// The kernels that can run.
    pub(crate) fn kernels(&self) -> impl Iterator<Item = &'static cpu::CpuKernel> {
        self.0.iter().filter_map(|name| cpu::find(name))
    }

    fn kernel(&self, name: &str) -> Outcome<&'static cpu::CpuKernel> {
        require(self.0.iter().any(|known| known == name), CUresult::NOT_FOUND)?;
        cpu::find(name).ok_or_else(|| {
            if !settings().quiet {
                complain(&format!("kernel {name} has no form for the CPU and cannot be simulated"));
            }
            CUresult::NOT_FOUND
        })
    }
}

unsafe fn bytes<'a>(image: *const c_void, size: usize) -> &'a [u8] {
    // SAFETY: the caller read the size from the image's own header.
    unsafe { std::slice::from_raw_parts(image.cast(), size) }
}

/// End of an ELF file: that of its section headers or program headers, whichever comes last.
unsafe fn elf_size(image: *const c_void) -> usize {
    // SAFETY: an ELF header has 64 bytes.
    let header: [u8; 64] = unsafe { std::ptr::read_unaligned(image.cast()) };
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i])) as usize;
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]) as usize;
    let (programs, sections) = (long(32) + half(54) * half(56), long(40) + half(58) * half(60));
    programs.max(sections).max(64)
}

/// Size of a fat binary: its header and the size in the header.
unsafe fn fat_size(image: *const c_void) -> usize {
    // SAFETY: the header has 16 bytes.
    let header: [u8; 16] = unsafe { std::ptr::read_unaligned(image.cast()) };
    let follows = u64::from_le_bytes(std::array::from_fn(|i| header[8 + i])) as usize;
    u16::from_le_bytes([header[6], header[7]]) as usize + follows
}

/// Kernels of ours whose names occur in machine code, as its symbol table's strings.
fn known_names(code: &[u8]) -> Vec<String> {
    // The strings between two zeros, in one pass: code may be large, and every tested process loads
    // some. Most of its strings are none of ours by their length or their first byte.
    let names: HashMap<&[u8], &str> =
        cpu::all().iter().map(|kernel| (kernel.name.as_bytes(), kernel.name)).collect();
    let shortest = names.keys().map(|name| name.len()).min().unwrap_or(usize::MAX);
    let begins: HashSet<u8> = names.keys().filter_map(|name| name.first().copied()).collect();
    let mut strings = code.split(|byte| *byte == 0);
    let (_before, _behind) = (strings.next(), strings.next_back());
    let likely = strings.filter(|string| string.len() >= shortest && begins.contains(&string[0]));
    let found: BTreeSet<&str> = likely.filter_map(|string| names.get(string).copied()).collect();
    found.into_iter().map(str::to_owned).collect()
}

/// Names behind `.entry` in PTX.
fn entries(text: &CStr) -> Outcome<Vec<String>> {
    let text = text.to_str().map_err(|_| CUresult::INVALID_IMAGE)?;
    let lines: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = lines.join("\n");
    let start = code.trim_start();
    require(start.starts_with('.') || text.trim_start().starts_with("//"), CUresult::INVALID_IMAGE)?;
    require(code.contains(".version"), CUresult::INVALID_PTX)?;
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    let name = |rest: &str| rest.trim_start().chars().take_while(|c| part(*c)).collect::<String>();
    Ok(code.split(".entry").skip(1).map(name).collect())
}

impl Module {
    /// Loads an image into a context.
    pub(crate) fn load(context: &Context, image: Arc<Image>) -> usize {
        let make = |handle| Self { handle, context_id: context.id, image, functions: Mutex::default() };
        driver().modules.insert(make).0
    }

    /// The handle of a kernel: the same each time.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub(crate) fn function(&self, name: &str) -> Outcome<usize> {
        let kernel = self.image.kernel(name)?;
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = functions.get(name) {
            return Ok(*handle);
        }
        let make = |_| Function {
            module: self.handle,
            context_id: self.context_id,
            name: CString::new(name).unwrap_or_default(),
            kernel,
            attributes: Mutex::default(),
        };
        let (handle, _) = driver().functions.insert(make);
        functions.insert(name.to_owned(), handle);
        Ok(handle)
    }

    /// Names of its kernels that can run.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.image.kernels().map(|kernel| kernel.name).collect()
    }

    /// Unloads its kernels.
    pub(crate) fn unload(&self) {
        driver().functions.retain(|function| function.module != self.handle);
    }
}

impl Library {
    /// Loads an image for every context.
    pub(crate) fn load(image: Arc<Image>) -> usize {
        driver().libraries.insert(|_| Self { image, kernels: Mutex::default(), modules: Mutex::default() }).0
    }

    /// The handle of a kernel: the same each time.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub(crate) fn kernel(&self, own: usize, name: &str) -> Outcome<usize> {
        let kernel = self.image.kernel(name)?;
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = kernels.get(name) {
            return Ok(*handle);
        }
        let make = |_| Kernel { library: own, name: CString::new(name).unwrap_or_default(), kernel };
        let (handle, _) = driver().kernels.insert(make);
        kernels.insert(name.to_owned(), handle);
        Ok(handle)
    }

    /// Names of its kernels that can run.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.image.kernels().map(|kernel| kernel.name).collect()
    }

    /// The library as a module of a context, loaded at first use.
    ///
    /// # Errors
    /// None today; the context may have ended.
    pub(crate) fn module(&self, context: &Context) -> Outcome<Arc<Module>> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let handle =
            modules.entry(context.id).or_insert_with(|| Module::load(context, Arc::clone(&self.image)));
        driver().modules.get(*handle).ok_or(CUresult::CONTEXT_IS_DESTROYED)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a kernel name is read from a comment, or only half a name.
    use super::*;

    #[test]
    fn names_come_from_entries_only() {
        let ptx = c"// .entry ghost\n.version 8.2\n.target sm_80\n.visible .entry first(\n)\n.entry\tsecond$2 (\n) {}\n";
        assert_eq!(entries(ptx).unwrap(), ["first", "second$2"]);
    }

    #[test]
    fn other_text_is_not_an_image() {
        assert_eq!(entries(c"hello").unwrap_err(), CUresult::INVALID_IMAGE);
        assert_eq!(entries(c".target sm_80").unwrap_err(), CUresult::INVALID_PTX);
    }
}
