//! A `libwholegraph.so` as C programs have it: opened by path, its functions found by name.
//!
//! Types are those of the library's headers. Enumerations are numbers: a library may know other
//! values than we do.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;

use anyhow::{Result, anyhow, bail, ensure};

use super::environment::EnvironmentFunctions;
use super::shape::TensorShape;

/// `wholememory_comm_t` and all other handles.
pub(super) type ApiHandle = *mut c_void;

/// `wholememory_unique_id_t`, which goes by value.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct GroupId(pub(super) [u8; 128]);

impl GroupId {
    pub(super) fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn from_hex(text: &str) -> Result<Self> {
        let digits =
            |at: usize| text.get(at * 2..at * 2 + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes: Option<Vec<u8>> = (0..128).map(digits).collect();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| anyhow!("a unique id has 256 digits"))
    }
}

/// An answer of the library, as a result.
pub(super) fn succeeded(function: &str, code: c_uint) -> Result<()> {
    // By `WHOLEMEMORY_*`.
    const NAMES: [&str; 11] = [
        "success",
        "unknown error",
        "not implemented",
        "logic error",
        "CUDA error",
        "communication error",
        "invalid input",
        "invalid value",
        "out of memory",
        "not supported",
        "system error",
    ];
    ensure!(code == 0, "{function}: {}", NAMES.get(code as usize).copied().unwrap_or("an unknown code"));
    Ok(())
}

/// Calls a function of a library and wants success.
macro_rules! call {
    ($library:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the signature is that of the headers; places are live locals, handles the
        // library's, memory as large as its shape.
        let code = unsafe { ($library.$name)($($argument),*) };
        $crate::wholememory::api::succeeded(stringify!($name), code)
    }};
}
pub(super) use call;

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $answer:ty)?;)*) => {
        /// Its functions.
        #[derive(Debug, Clone, Copy)]
        pub(super) struct WholeGraphLibrary {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
        }

        impl WholeGraphLibrary {
            /// Opens a library.
            ///
            /// # Errors
            /// The loader's sentence with the remedy, or the name of a function that it lacks.
            pub(super) fn open(path: &Path) -> Result<Self> {
                let library = open(path)?;
                Ok(Self { $($name: {
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: an open library and a terminated name.
                    let found = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
                    ensure!(!found.is_null(), "{} has no {}: it is no libwholegraph.so", path.display(), stringify!($name));
                    // SAFETY: the signature is the one in the API's headers.
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $answer)?>(found) }
                },)* })
            }
        }
    };
}

functions! {
    wholememory_init(c_uint, c_uint) -> c_uint;
    wholememory_finalize() -> c_uint;
    wholememory_create_unique_id(*mut GroupId) -> c_uint;
    wholememory_create_communicator(*mut ApiHandle, GroupId, c_int, c_int) -> c_uint;
    wholememory_destroy_communicator(ApiHandle) -> c_uint;
    wholememory_communicator_barrier(ApiHandle) -> c_uint;
    wholememory_get_local_memory(*mut *mut c_void, *mut usize, *mut usize, ApiHandle) -> c_uint;
    wholememory_get_rank_memory(*mut *mut c_void, *mut usize, *mut usize, c_int, ApiHandle) -> c_uint;
    wholememory_create_tensor(*mut ApiHandle, *mut TensorShape, ApiHandle, c_uint, c_uint, *mut usize) -> c_uint;
    wholememory_destroy_tensor(ApiHandle) -> c_uint;
    wholememory_make_tensor_from_pointer(*mut ApiHandle, *mut c_void, *mut TensorShape) -> c_uint;
    wholememory_tensor_get_memory_handle(ApiHandle) -> ApiHandle;
    wholememory_gather(ApiHandle, ApiHandle, ApiHandle, *mut EnvironmentFunctions, *mut c_void, c_int) -> c_uint;
    wholememory_scatter(ApiHandle, ApiHandle, ApiHandle, *mut EnvironmentFunctions, *mut c_void, c_int) -> c_uint;
    wholememory_create_embedding_optimizer(*mut ApiHandle, c_uint) -> c_uint;
    wholememory_destroy_embedding_optimizer(ApiHandle);
    wholememory_create_embedding_cache_policy(*mut ApiHandle, ApiHandle, c_uint, c_uint, c_uint, f32) -> c_uint;
    wholememory_destroy_embedding_cache_policy(ApiHandle) -> c_uint;
    wholememory_create_embedding(*mut ApiHandle, *mut TensorShape, ApiHandle, c_uint, c_uint, ApiHandle, *mut usize, c_int, c_int) -> c_uint;
    wholememory_destroy_embedding(ApiHandle) -> c_uint;
    wholememory_embedding_get_embedding_tensor(ApiHandle) -> ApiHandle;
    wholememory_embedding_set_optimizer(ApiHandle, ApiHandle) -> c_uint;
    wholememory_embedding_gather(ApiHandle, ApiHandle, ApiHandle, bool, *mut EnvironmentFunctions, i64) -> c_uint;
    wholememory_embedding_gather_gradient_apply(ApiHandle, ApiHandle, ApiHandle, bool, f32, *mut EnvironmentFunctions, i64) -> c_uint;
}

fn open(path: &Path) -> Result<*mut c_void> {
    let name = CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: a terminated path. The library's constructors run, in a process that is there for
    // that.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        // SAFETY: after a failed `dlopen` there is a message, copied at once.
        let why = unsafe { CStr::from_ptr(libc::dlerror() as *const c_char) }.to_string_lossy().into_owned();
        bail!(
            "{} does not open: {why}; the libraries that it needs (RAPIDS' needs NCCL, librmm and librapids_logger) are found \
             through LD_LIBRARY_PATH: set it to their folders",
            path.display()
        );
    }
    Ok(library)
}

#[cfg(test)]
mod tests {
    //! Hazard: a unique id that changes on its way to another rank, and then ranks never meet.
    use super::*;

    #[test]
    fn an_id_comes_back_from_its_digits() {
        let id = GroupId(std::array::from_fn(|at| at as u8 ^ 0x5a));
        assert_eq!(GroupId::from_hex(&id.to_hex()).expect("an id").0, id.0);
        assert!(GroupId::from_hex("12").is_err());
    }
}
