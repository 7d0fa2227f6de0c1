//! Opaque driver handles: the bits of a pointer that only the driver may follow.

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub usize);

        impl $name {
            /// The null handle.
            pub const NULL: Self = Self(0);

            /// Is this the null handle?
            pub fn is_null(self) -> bool {
                self.0 == 0
            }
        }
    )*};
}

handles! {
    /// A CUDA array.
    CUarray,
    /// A context.
    CUcontext,
    /// An event.
    CUevent,
    /// A kernel in a module.
    CUfunction,
    /// A graph.
    CUgraph,
    /// An instantiated graph.
    CUgraphExec,
    /// A node of a graph.
    CUgraphNode,
    /// A kernel in a library.
    CUkernel,
    /// A library: a module for every context.
    CUlibrary,
    /// A stream-ordered memory pool.
    CUmemoryPool,
    /// A mipmapped array.
    CUmipmappedArray,
    /// A module: loaded code.
    CUmodule,
    /// A stream. Three values are names of streams, not handles: see the constants.
    CUstream,
    /// A surface reference.
    CUsurfref,
    /// A texture reference.
    CUtexref,
}

impl CUstream {
    /// `CU_STREAM_LEGACY`: the context's default stream, which blocking streams wait for.
    pub const LEGACY: Self = Self(1);
    /// `CU_STREAM_PER_THREAD`: the calling thread's default stream.
    pub const PER_THREAD: Self = Self(2);
}

/// A device's ordinal.
pub type CUdevice = std::ffi::c_int;
/// An address in the unified address space.
pub type CUdeviceptr = u64;
/// Physical memory made by `cuMemCreate`.
pub type CUmemGenericAllocationHandle = u64;
