//! The library under test, as C programs use it: opened by name, with functions found by theirs.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;

use crate::environment::Functions;

/// `wholememory_comm_t` and all other handles.
pub(crate) type Handle = *mut c_void;

/// `wholememory_unique_id_t`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct UniqueId(pub(crate) [u8; 128]);

/// `wholememory_tensor_description_t`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Description {
    pub(crate) sizes: [i64; 8],
    pub(crate) strides: [i64; 8],
    pub(crate) storage_offset: i64,
    pub(crate) dim: c_int,
    pub(crate) dtype: c_uint,
}

impl Description {
    /// An array.
    pub(crate) fn array(size: i64, dtype: c_uint) -> Self {
        Self { dim: 1, ..Self::matrix(size, 1, 1, dtype) }
    }

    /// A matrix whose rows are `stride` elements apart.
    pub(crate) fn matrix(rows: i64, columns: i64, stride: i64, dtype: c_uint) -> Self {
        let (mut sizes, mut strides) = ([1; 8], [1; 8]);
        (sizes[0], sizes[1], strides[0]) = (rows, columns, stride);
        Self { sizes, strides, storage_offset: 0, dim: 2, dtype }
    }
}

/// `wholememory_gref_t`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Reference {
    pub(crate) pointer: *mut c_void,
    pub(crate) offsets: *mut usize,
    pub(crate) ranks: c_int,
    pub(crate) stride: usize,
    pub(crate) is_same: bool,
}

impl Default for Reference {
    fn default() -> Self {
        let none = std::ptr::null_mut();
        Self { pointer: none, offsets: none.cast(), ranks: 0, stride: 0, is_same: false }
    }
}

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $answer:ty)?;)*) => {
        /// Its functions.
        #[derive(Debug, Clone, Copy)]
        #[allow(clippy::type_complexity, reason = "C has them")]
        pub(crate) struct Library {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
        }

        impl Library {
            /// Opens a library.
            ///
            /// # Errors
            /// The loader's message, or the name of a missing function.
            pub(crate) fn open(path: &Path) -> Result<Self, String> {
                let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| "a path with a NUL")?;
                // SAFETY: a terminated path.
                let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
                if library.is_null() {
                    // SAFETY: the loader's own text, copied at once.
                    return Err(unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned());
                }
                Ok(Self { $($name: {
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: a terminated name.
                    let found = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
                    if found.is_null() {
                        return Err(format!("{}: no {}", path.display(), stringify!($name)));
                    }
                    // SAFETY: the signature is the one in the API's headers.
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $answer)?>(found) }
                },)* })
            }
        }
    };
}

functions! {
    wholememory_create_unique_id(*mut UniqueId) -> c_uint;
    wholememory_create_communicator(*mut Handle, UniqueId, c_int, c_int) -> c_uint;
    wholememory_split_communicator(*mut Handle, Handle, c_int, c_int) -> c_uint;
    wholememory_destroy_communicator(Handle) -> c_uint;
    wholememory_communicator_get_rank(*mut c_int, Handle) -> c_uint;
    wholememory_communicator_support_type_location(Handle, c_uint, c_uint) -> c_uint;
    wholememory_communicator_get_size(*mut c_int, Handle) -> c_uint;
    wholememory_communicator_get_local_size(*mut c_int, Handle) -> c_uint;
    wholememory_is_intranode_communicator(Handle) -> bool;
    wholememory_communicator_barrier(Handle) -> c_uint;
    wholememory_communicator_set_distributed_backend(Handle, c_uint) -> c_uint;
    wholememory_malloc(*mut Handle, usize, Handle, c_uint, c_uint, usize, *const usize) -> c_uint;
    wholememory_free(Handle) -> c_uint;
    wholememory_get_communicator(*mut Handle, Handle) -> c_uint;
    wholememory_get_local_communicator(*mut Handle, Handle) -> c_uint;
    wholememory_get_cross_communicator(*mut Handle, Handle) -> c_uint;
    wholememory_get_local_memory(*mut *mut c_void, *mut usize, *mut usize, Handle) -> c_uint;
    wholememory_get_rank_memory(*mut *mut c_void, *mut usize, *mut usize, c_int, Handle) -> c_uint;
    wholememory_get_global_pointer(*mut *mut c_void, Handle) -> c_uint;
    wholememory_get_global_reference(*mut Reference, Handle) -> c_uint;
    wholememory_get_total_size(Handle) -> usize;
    wholememory_create_tensor(*mut Handle, *const Description, Handle, c_uint, c_uint, *const usize) -> c_uint;
    wholememory_destroy_tensor(Handle) -> c_uint;
    wholememory_make_tensor_from_pointer(*mut Handle, *mut c_void, *const Description) -> c_uint;
    wholememory_make_tensor_from_handle(*mut Handle, Handle, *const Description) -> c_uint;
    wholememory_tensor_get_subtensor(Handle, *const i64, *const i64, *mut Handle) -> c_uint;
    wholememory_tensor_get_tensor_description(Handle) -> *const Description;
    wholememory_tensor_get_memory_handle(Handle) -> Handle;
    wholememory_tensor_map_local_tensor(Handle, *mut Handle) -> c_uint;
    wholememory_tensor_get_data_pointer(Handle) -> *mut c_void;
    wholememory_tensor_get_local_entry_count(*mut usize, Handle) -> c_uint;
    wholememory_tensor_get_local_entry_start(*mut usize, Handle) -> c_uint;
    wholememory_tensor_get_root(Handle) -> Handle;
    wholememory_gather(Handle, Handle, Handle, *const c_void, *mut c_void, c_int) -> c_uint;
    wholememory_scatter(Handle, Handle, Handle, *const c_void, *mut c_void, c_int) -> c_uint;
    wholememory_create_embedding_optimizer(*mut Handle, c_uint) -> c_uint;
    wholememory_optimizer_set_parameter(Handle, *const c_char, *const f32) -> c_uint;
    wholememory_destroy_embedding_optimizer(Handle);
    wholememory_create_embedding_cache_policy(*mut Handle, Handle, c_uint, c_uint, c_uint, f32) -> c_uint;
    wholememory_destroy_embedding_cache_policy(Handle) -> c_uint;
    wholememory_create_embedding(*mut Handle, *const Description, Handle, c_uint, c_uint, Handle, *const usize, c_int, c_int) -> c_uint;
    wholememory_destroy_embedding(Handle) -> c_uint;
    wholememory_embedding_get_embedding_tensor(Handle) -> Handle;
    wholememory_embedding_gather(Handle, Handle, Handle, bool, *const c_void, i64) -> c_uint;
    wholememory_embedding_set_optimizer(Handle, Handle) -> c_uint;
    wholememory_embedding_gather_gradient_apply(Handle, Handle, Handle, bool, f32, *const c_void, i64) -> c_uint;
    wholememory_embedding_get_optimizer_state_names(Handle) -> *const *const c_char;
    wholememory_embedding_get_optimizer_state(Handle, *const c_char) -> Handle;
    wholememory_embedding_writeback_cache(Handle, i64) -> c_uint;
    wholememory_embedding_drop_all_cache(Handle, i64) -> c_uint;
    wholememory_env_test_op(Handle, Handle, *mut c_void, *mut c_void, *mut c_void, i64, *const Functions, *mut c_void) -> c_uint;
    wholegraph_csr_unweighted_sample_without_replacement(Handle, Handle, Handle, c_int, Handle, *mut c_void, *mut c_void, *mut c_void, u64, *const Functions, *mut c_void) -> c_uint;
    wholegraph_csr_weighted_sample_without_replacement(Handle, Handle, Handle, Handle, c_int, Handle, *mut c_void, *mut c_void, *mut c_void, u64, *const Functions, *mut c_void) -> c_uint;
    graph_append_unique(Handle, Handle, *mut c_void, Handle, *const Functions, *mut c_void) -> c_uint;
    csr_add_self_loop(Handle, Handle, Handle, Handle, *mut c_void) -> c_uint;
    get_wholememory_tensor_count() -> i64;
    wholememory_init(c_uint, c_uint) -> c_uint;
    wholememory_finalize() -> c_uint;
    wholememory_get_rank_partition_offsets(*mut usize, Handle) -> c_uint;
    fork_get_device_count() -> c_int;
    get_device_prop(c_int) -> *const u8;
    wholememory_load_from_file(Handle, usize, usize, usize, *const *const c_char, c_int, c_int) -> c_uint;
    wholememory_store_to_file(Handle, usize, usize, usize, *const c_char) -> c_uint;
    generate_random_positive_int_cpu(i64, i64, Handle) -> c_uint;
    generate_exponential_distribution_negative_float_cpu(i64, i64, Handle) -> c_uint;
}
