//! Which code made the program's call: return addresses outside this library, and the loaded
//! objects that they lie in.
//!
//! The trampolines jump, so a hook returns to the program itself. If the unwinder cannot walk the
//! stack, no caller is known.

use std::borrow::Cow;
use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use wm_driver::Loader;

/// Callers that are looked for.
pub(crate) const DEPTH: usize = 8;

/// The part of PyTorch that makes expandable segments, and nothing that relies on where they are.
pub(super) const TORCH: &str = "libc10_cuda";

/// Libraries whose buffers other devices and network cards write into. NCCL's flags come in lines
/// of 128 bytes, which arrive whole over NVLink only.
const COMMUNICATION: &[&str] =
    &["libnccl", "libnvshmem", "libmscclpp", "libucp", "libuct", "libucs", "libucm"];

/// The part of PyTorch that NCCL may be linked into, and that makes symmetric memory. What it makes
/// with `cuMemCreate` is theirs.
pub(super) const TORCH_COLLECTIVES: &str = "libtorch_cuda";

/// A library that registers memory with network cards, storage, the CPU or engines of the GPU by
/// ways that no driver call shows.
#[derive(Debug)]
struct RegisteringLibrary {
    /// The beginning of its file's name.
    name: &'static str,
    /// Why memory stays for its sake, in words.
    reason: &'static str,
    /// It registers nothing where none of these files exists. None: nothing is known to lack.
    devices: &'static [&'static str],
}

macro_rules! registering {
    ($($name:literal: $devices:expr;)*) => {
        &[$(RegisteringLibrary {
            name: $name,
            reason: concat!($name, " is loaded, which may register memory with other devices"),
            devices: $devices,
        }),*]
    };
}

/// Nodes of network cards, and of such that a process drives itself. NCCL loads libraries of
/// network cards on every machine.
const VERBS: &[&str] = &["/dev/infiniband", "/dev/vfio"];

const UCX: &[&str] = &["/dev/infiniband", "/dev/vfio", "/dev/gdrdrv"];

const REGISTERING: &[RegisteringLibrary] = registering! {
    "libibverbs": VERBS;
    "librdmacm": VERBS;
    "libmlx5": VERBS;
    "libgdrapi": &["/dev/gdrdrv"];
    "libucp": UCX;
    "libuct": UCX;
    "libucs": UCX;
    "libucm": UCX;
    "libcufile": &["/dev/nvidia-fs0"];
    "libpsm2": &[];
    "libfabric": &[];
    "libnvidia-encode": &[];
    "libnvcuvid": &[];
    "libnvidia-opticalflow": &[];
    "libnvoptix": &[];
    "libnvjpeg": &[];
};

/// The decoder of pictures, which torchvision loads whether it is used or not. Its engine is not
/// seen to work in streams. CUDA's runtime is linked into it, so its first use looks the driver's
/// functions up by `cuGetProcAddress`. Earlier versions may find them without a call of the driver.
const DECODER: &str = "libnvjpeg";
const DECODER_SINCE: u32 = 12;
const DECODER_USED: &str = "libnvjpeg is in use, whose engine uses memory by ways that are not seen";

/// CUDA's runtime: it calls on behalf of other code.
const RUNTIME: &str = "libcudart";

/// Where code is loaded, once it is found: neither is ever unloaded.
struct CodeRanges {
    own: OnceLock<Range<usize>>,
    torch: OnceLock<Range<usize>>,
    /// The decoder has looked functions of the driver up.
    is_decoder_used: AtomicBool,
}

static CODE: CodeRanges =
    CodeRanges { own: OnceLock::new(), torch: OnceLock::new(), is_decoder_used: AtomicBool::new(false) };

/// Is the call one of PyTorch's allocator?
pub(crate) fn is_torch() -> bool {
    nearest().starts_with(TORCH)
}

/// Is it one that PyTorch's allocator makes itself, and not through CUDA's runtime? Costs a
/// microsecond.
pub(crate) fn is_torch_itself() -> bool {
    let [nearest, ..] = callers_up_to(1);
    torch_code(nearest).is_some()
}

/// A hash of the return addresses inside PyTorch's allocator, if it makes the call itself. Calls
/// from the same place in it have the same hash, whatever code called the allocator. Costs a few
/// microseconds.
pub(crate) fn way_through_torch() -> Option<u64> {
    let callers = callers();
    let code = torch_code(callers[0])?;
    let mut way = DefaultHasher::new();
    callers.iter().take_while(|address| code.contains(address)).for_each(|address| way.write_usize(*address));
    Some(way.finish())
}

/// Where the code of PyTorch's allocator is, if the address is in it.
fn torch_code(address: usize) -> Option<Range<usize>> {
    if CODE.torch.get().is_none() && address != 0 && CodeAddress::of(address).object.starts_with(TORCH) {
        let _first = CODE.torch.set(code_around(address));
    }
    CODE.torch.get().filter(|code| code.contains(&address)).cloned()
}

/// Does the caller need memory that is on the device?
pub(crate) fn need_device() -> bool {
    is_communication(&nearest())
}

fn is_communication(object: &str) -> bool {
    COMMUNICATION.iter().any(|name| object.starts_with(name))
}

/// The maker of physical memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PieceMaker {
    /// PyTorch's allocator.
    Torch,
    /// It gives the memory to other devices.
    Communication,
    Other,
}

/// The caller that makes physical memory.
pub(crate) fn piece_maker() -> PieceMaker {
    let nearest = nearest();
    if nearest.starts_with(TORCH) {
        PieceMaker::Torch
    } else if is_communication(&nearest) || nearest.starts_with(TORCH_COLLECTIVES) {
        PieceMaker::Communication
    } else {
        PieceMaker::Other
    }
}

/// The nearest calling object but CUDA's runtime, which calls for others; empty if no caller is
/// known. The stack is walked only in a process that has loaded one of the libraries that make a
/// difference here.
fn nearest() -> Cow<'static, str> {
    // To name an object takes tens of microseconds in a process that has loaded hundreds.
    let [nearest, ..] = callers_up_to(1);
    if CODE.torch.get().is_some_and(|code| code.contains(&nearest)) {
        return Cow::Borrowed(TORCH);
    }
    let makes_a_difference =
        |file: &[u8]| begins(file, COMMUNICATION) || begins(file, &[TORCH, TORCH_COLLECTIVES]);
    if find_loaded(|_, file| makes_a_difference(file).then_some(())).is_none() {
        return Cow::default();
    }
    let known = callers().into_iter().take_while(|address| *address != 0);
    known
        .map(|address| CodeAddress::of(address).object)
        .find(|object| !object.starts_with(RUNTIME))
        .unwrap_or_default()
}

/// Why memory stays where it is, if a library is loaded that may let others than this process's
/// work use memory. Costs some microseconds. NCCL and NVSHMEM, which PyTorch loads whether they are
/// used or not, are told by their calls: [`need_device`].
pub(crate) fn registering_loaded() -> Option<&'static str> {
    if CODE.is_decoder_used.load(SeqCst) {
        return Some(DECODER_USED);
    }
    find_loaded(|_, file| reason_of(file, |device| Path::new(device).exists()))
}

fn reason_of(file: &[u8], exists: impl Fn(&str) -> bool) -> Option<&'static str> {
    if is_decoder(file) {
        return None;
    }
    let mut libraries = REGISTERING.iter().filter(|library| file.starts_with(library.name.as_bytes()));
    let has_devices = |devices: &[&str]| devices.is_empty() || devices.iter().any(|device| exists(device));
    libraries.find(|library| has_devices(library.devices)).map(|library| library.reason)
}

/// Is it the decoder, of a version whose use is seen?
fn is_decoder(file: &[u8]) -> bool {
    let Some(file) = std::str::from_utf8(file).ok().filter(|file| file.starts_with(DECODER)) else {
        return false;
    };
    let version =
        file.rsplit_once(".so.").and_then(|(_, version)| version.split('.').next()?.parse::<u32>().ok());
    version.is_some_and(|version| version >= DECODER_SINCE)
}

/// Is the call, which looks a function of the driver up, the first one of the decoder's? If the
/// caller is not known, it is if the decoder is loaded. Costs a microsecond.
pub(crate) fn is_first_of_decoder() -> bool {
    if CODE.is_decoder_used.load(SeqCst) {
        return false;
    }
    let [nearest, ..] = callers_up_to(1);
    if nearest == 0 {
        return find_loaded(|_, file| file.starts_with(DECODER.as_bytes()).then_some(())).is_some();
    }
    CodeAddress::of(nearest).object.starts_with(DECODER)
}

/// From now on the decoder counts as used.
pub(crate) fn note_decoder() {
    CODE.is_decoder_used.store(true, SeqCst);
}

fn begins(file: &[u8], names: &[&str]) -> bool {
    names.iter().any(|name| file.starts_with(name.as_bytes()))
}

/// A look at the files of loaded objects, and its first answer.
struct LoadedSearch<F, R> {
    look: F,
    found: Option<R>,
}

/// The address of a symbol in a loaded object with a file name that begins with `file`.
pub(super) fn symbol_of_loaded(file: &str, name: &CStr) -> Option<*const c_void> {
    let path = find_loaded(|path, loaded| loaded.starts_with(file.as_bytes()).then(|| path.to_owned()))?;
    Loader::system().find(&path, name)
}

/// The first answer of `look` to the path of a loaded object, and to the name of its file.
fn find_loaded<R, F: Fn(&CStr, &[u8]) -> Option<R>>(look: F) -> Option<R> {
    let mut search = LoadedSearch { look, found: None };
    // SAFETY: the visitor gets back the pointer to `search`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look_at_object::<R, F>), (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn look_at_object<R, F: Fn(&CStr, &[u8]) -> Option<R>>(
    object: *mut libc::dl_phdr_info,
    _: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the search that `find_loaded` handed over.
    let search = unsafe { &mut *search.cast::<LoadedSearch<F, R>>() };
    // SAFETY: the loader's description of an object; its name is null or a text that lives as long.
    let name = unsafe {
        let name = (*object).dlpi_name;
        if name.is_null() { c"" } else { CStr::from_ptr(name) }
    };
    let file = name.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    search.found = (search.look)(name, file);
    c_int::from(search.found.is_some())
}

/// The unwinder that every Rust library is linked with.
type Frame = c_void;

unsafe extern "C-unwind" {
    fn _Unwind_Backtrace(
        visit: unsafe extern "C" fn(*mut Frame, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut Frame) -> usize;
}

/// The callers found so far.
struct Walk {
    own: Range<usize>,
    found: [usize; DEPTH],
    count: usize,
    most: usize,
}

/// Return addresses outside this library, the nearest first; 0 where there are fewer. Costs a few
/// microseconds.
pub(crate) fn callers() -> [usize; DEPTH] {
    callers_up_to(DEPTH)
}

fn callers_up_to(most: usize) -> [usize; DEPTH] {
    let mut walk = Walk { own: own_code(), found: [0; DEPTH], count: 0, most };
    // SAFETY: the visitor gets back the pointer to `walk`, which outlives the walk.
    unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
    walk.found
}

unsafe extern "C" fn visit(frame: *mut Frame, walk: *mut c_void) -> c_int {
    const GO_ON: c_int = 0;
    const END: c_int = 5;
    // SAFETY: the unwinder's frame, and the `Walk` that `callers` handed over.
    let (address, walk) = unsafe { (_Unwind_GetIP(frame), &mut *walk.cast::<Walk>()) };
    if address == 0 || walk.count == walk.most {
        return END;
    }
    if !walk.own.contains(&address) {
        walk.found[walk.count] = address;
        walk.count += 1;
    }
    GO_ON
}

/// Where this library's code is. Empty if the loader does not tell: then our own frames are named
/// too.
fn own_code() -> Range<usize> {
    CODE.own.get_or_init(|| code_around(own_code as *const () as usize)).clone()
}

/// Code that an object has loaded around an address; empty if the loader does not tell.
fn code_around(address: usize) -> Range<usize> {
    let mut search = Search { address, found: 0..0 };
    // SAFETY: the visitor gets back the pointer to `search`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(has_it), (&raw mut search).cast()) };
    search.found
}

struct Search {
    address: usize,
    found: Range<usize>,
}

unsafe extern "C" fn has_it(object: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the `Search` that `code_around` handed over.
    let search = unsafe { &mut *search.cast::<Search>() };
    // SAFETY: the loader's description of an object, with as many headers as it says.
    let (base, headers) = unsafe {
        let object = &*object;
        (object.dlpi_addr as usize, std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()))
    };
    let mut code = headers.iter().filter(|header| header.p_type == libc::PT_LOAD).map(|header| {
        let start = base + header.p_vaddr as usize;
        start..start + header.p_memsz as usize
    });
    let Some(code) = code.find(|range| range.contains(&search.address)) else { return 0 };
    search.found = code;
    1
}

/// An address in a loaded object: `libfoo.so.1+0x1234 (name)`.
pub(crate) struct CodeAddress {
    object: Cow<'static, str>,
    offset: usize,
    function: Option<Cow<'static, str>>,
}

impl CodeAddress {
    pub(crate) fn of(address: usize) -> Self {
        // SAFETY: all-zero is valid for this plain structure; the loader fills it for any address.
        let info = unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            libc::dladdr(address as *const c_void, &mut info);
            info
        };
        let text = |text: *const libc::c_char| {
            // SAFETY: not null, so a text of the loader's that lives as long as the object. Objects
            // are taken to be there while they are named.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
        };
        let object = match text(info.dli_fname).unwrap_or_default() {
            Cow::Borrowed(path) => Cow::Borrowed(file_of(path)),
            Cow::Owned(path) => Cow::Owned(file_of(&path).to_owned()),
        };
        Self { object, offset: address - info.dli_fbase as usize, function: text(info.dli_sname) }
    }
}

/// The name of a file without its folder.
fn file_of(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("?")
}

impl fmt::Display for CodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x}", self.object, self.offset)?;
        self.function.iter().try_for_each(|function| write!(f, " ({function})"))
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a report that names no caller.
    use super::*;

    #[test]
    fn an_address_is_named_by_its_object() {
        let place = CodeAddress::of(libc::getpid as *const () as usize).to_string();
        assert!(place.starts_with("libc.so.6+0x") && place.contains("getpid"), "{place}");
        assert_eq!(CodeAddress::of(1).to_string(), "?+0x1");
    }

    #[test]
    fn a_library_counts_where_it_has_a_device() {
        let of = |file: &str, there: &[&str]| reason_of(file.as_bytes(), |device| there.contains(&device));
        let verbs = "libibverbs is loaded, which may register memory with other devices";
        assert_eq!(of("libibverbs.so.1", &["/dev/infiniband"]), Some(verbs));
        assert_eq!(of("libibverbs.so.1", &["/dev/gdrdrv"]), None);
        assert!(of("libuct_cuda.so.0", &["/dev/gdrdrv"]).is_some() && of("libuct.so.0", &[]).is_none());
        for engine in [
            "libnvidia-encode.so.1",
            "libnvcuvid.so.1",
            "libnvoptix.so.1",
            "libnvjpeg.0ab1.so.11",
            "libnvjpeg.so",
        ] {
            assert!(of(engine, &[]).is_some(), "{engine}");
        }
        for file in ["libnvjpeg.so.12.4.0", "libnvjpeg.4a0b5c81.so.13", "libc.so.6"] {
            assert_eq!(of(file, VERBS), None, "{file}");
        }
    }

    #[test]
    fn callers_are_outside_this_object() {
        let own = own_code();
        assert!(own.contains(&(callers as *const () as usize)));
        let callers = callers();
        assert!(callers.iter().all(|caller| !own.contains(caller)), "{callers:x?} in {own:x?}");
        assert_ne!(callers[0], 0, "the C library's start of a thread is there");
    }
}
