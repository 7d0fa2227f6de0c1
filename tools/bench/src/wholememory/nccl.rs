//! NCCL by itself: the communicator over which rows are exchanged without a library, for
//! comparison.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use anyhow::{Result, bail, ensure};
use wm_abi::{CUdeviceptr, CUstream};

use super::api::GroupId;

/// `ncclInt8`
const BYTES: c_int = 0;
const NAME: &std::ffi::CStr = c"libnccl.so.2";

macro_rules! functions {
    ($($name:ident as $symbol:literal: fn($($argument:ty),*);)*) => {
        /// Its functions.
        #[derive(Debug, Clone, Copy)]
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Functions {
            fn find(library: *mut c_void) -> Result<Self> {
                Ok(Self { $($name: {
                    // SAFETY: an open library and a terminated name.
                    let found = unsafe { libc::dlsym(library, $symbol.as_ptr()) };
                    ensure!(!found.is_null(), "libnccl.so.2 has no {}", $symbol.to_string_lossy());
                    // SAFETY: the signature is the one in NCCL's header.
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> c_int>(found) }
                },)* })
            }
        }
    };
}

functions! {
    identify as c"ncclGetUniqueId": fn(*mut GroupId);
    meet as c"ncclCommInitRank": fn(*mut *mut c_void, c_int, GroupId, c_int);
    leave as c"ncclCommDestroy": fn(*mut c_void);
    begin as c"ncclGroupStart": fn();
    end as c"ncclGroupEnd": fn();
    send as c"ncclSend": fn(*const c_void, usize, c_int, c_int, *mut c_void, *mut c_void);
    receive as c"ncclRecv": fn(*mut c_void, usize, c_int, c_int, *mut c_void, *mut c_void);
}

/// Bytes of device memory for a rank, or from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parcel {
    pub(super) peer: usize,
    pub(super) address: CUdeviceptr,
    pub(super) bytes: usize,
}

/// A rank of a communicator of NCCL's.
#[derive(Debug)]
pub(super) struct PlainNetwork {
    functions: Functions,
    communicator: *mut c_void,
}

fn open() -> Result<Functions> {
    // SAFETY: a terminated name. The library's constructors run, in a process that is there for
    // that.
    let library = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    ensure!(!library.is_null(), "libnccl.so.2 does not open: set LD_LIBRARY_PATH to its folder");
    Functions::find(library)
}

fn succeeded(what: &str, code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { bail!("{what} of NCCL: code {code}; NCCL_DEBUG=WARN has the reason") }
}

impl PlainNetwork {
    /// A unique id for [`meet`](Self::meet), as hexadecimal digits.
    pub(super) fn identify() -> Result<String> {
        let mut id = GroupId([0; 128]);
        // SAFETY: a live local of the id's size.
        succeeded("ncclGetUniqueId", unsafe { (open()?.identify)(&raw mut id) })?;
        Ok(id.to_hex())
    }

    /// Joins the communicator with this id, on the current context's device. All ranks do it at
    /// once.
    pub(super) fn meet(id: &str, number: usize, ranks: usize) -> Result<Self> {
        let (functions, mut communicator) = (open()?, null_mut());
        let (id, place) = (GroupId::from_hex(id)?, &raw mut communicator);
        // SAFETY: a live local; ranks and numbers are those of the group.
        let code = unsafe { (functions.meet)(place, ranks as c_int, id, number as c_int) };
        succeeded("ncclCommInitRank", code)?;
        Ok(Self { functions, communicator })
    }

    /// Sends and receives at once, in a stream. Parcels without bytes are none.
    ///
    /// # Errors
    /// NCCL's code.
    pub(super) fn exchange(&self, out: &[Parcel], into: &[Parcel], stream: CUstream) -> Result<()> {
        let Self { functions, communicator } = *self;
        let full = |parcel: &&Parcel| parcel.bytes > 0;
        // SAFETY: parcels are live device memory of their size, and stay until the stream is
        // drained.
        unsafe {
            succeeded("ncclGroupStart", (functions.begin)())?;
            for Parcel { peer, address, bytes } in out.iter().filter(full) {
                let (place, peer) = (*address as *const c_void, *peer as c_int);
                let code =
                    (functions.send)(place, *bytes, BYTES, peer, communicator, stream.0 as *mut c_void);
                succeeded("ncclSend", code)?;
            }
            for Parcel { peer, address, bytes } in into.iter().filter(full) {
                let (place, peer) = (*address as *mut c_void, *peer as c_int);
                let code =
                    (functions.receive)(place, *bytes, BYTES, peer, communicator, stream.0 as *mut c_void);
                succeeded("ncclRecv", code)?;
            }
            succeeded("ncclGroupEnd", (functions.end)())
        }
    }

    /// Leaves the communicator. All ranks do it at once.
    pub(super) fn leave(self) -> Result<()> {
        // SAFETY: a communicator of this library's, for the last time.
        succeeded("ncclCommDestroy", unsafe { (self.functions.leave)(self.communicator) })
    }
}
