//! Numbers of the C API, checked once where they come in.
//!
//! A C enum is a number that may be anything: it is never a Rust enum at the boundary.

use crate::error::{Error, Result};

/// Declares an enum whose values have the API's numbers, and the check that turns a number into
/// one.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$value_doc:meta])* $value:ident = $code:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $name { $($(#[$value_doc])* $value = $code,)* }

        impl $name {
            /// The value with a number.
            ///
            /// # Errors
            /// [`Error::Input`] for a number that has none.
            pub fn of(code: u32) -> Result<Self> {
                match code {
                    $($code => Ok(Self::$value),)*
                    other => Err(Error::Input(format!("{other} is no {}", $what))),
                }
            }

            /// Its number.
            pub fn code(self) -> u32 {
                self as u32
            }
        }
    )*};
}

codes! {
    /// How ranks reach each other's part (`wholememory_memory_type_t`).
    MemoryType, "memory type" {
        /// One range of addresses on every rank.
        Continuous = 1,
        /// One range of addresses for each rank's part.
        Chunked = 2,
        /// Each rank has addresses of its own part only; operations reach the others.
        Distributed = 3,
        /// The same, over several machines in two steps.
        Hierarchy = 4,
    }
    /// Location of memory (`wholememory_memory_location_t`).
    Location, "memory location" {
        /// On the ranks' GPUs.
        Device = 1,
        /// In pinned memory of the host.
        Host = 2,
    }
    /// The transport of operations on distributed memory (`wholememory_distributed_backend_t`).
    Backend, "distributed backend" {
        /// The one that there is.
        Nccl = 1,
        /// Never built in.
        Nvshmem = 2,
    }
    /// The accesses that a cache is for (`wholememory_access_type_t`).
    AccessType, "access type" {
        /// Rows are read.
        ReadOnly = 1,
        /// Rows are read and changed.
        ReadWrite = 2,
    }
    /// Sparse optimizers (`wholememory_optimizer_type_t`).
    OptimizerType, "optimizer type" {
        /// Gradient descent.
        Sgd = 1,
        /// Adam, for the rows that have gradients.
        LazyAdam = 2,
        /// RMSProp.
        RmsProp = 3,
        /// Adagrad.
        AdaGrad = 4,
    }
    /// Location of the caller's allocations (`wholememory_memory_allocation_type_t`).
    AllocationType, "type of allocation" {
        /// On the GPU.
        Device = 1,
        /// In memory of the host, which a GPU may not reach.
        Host = 2,
        /// In pinned memory of the host.
        Pinned = 3,
    }
    /// Types of elements (`wholememory_dtype_t`).
    ElementType, "element type" {
        /// 32 bits.
        Float = 1,
        /// IEEE, 16 bits.
        Half = 2,
        /// 64 bits.
        Double = 3,
        /// The upper half of a `Float`.
        Bf16 = 4,
        /// 32 bits.
        Int = 5,
        /// 64 bits.
        Int64 = 6,
        /// 16 bits.
        Int16 = 7,
        /// 8 bits.
        Int8 = 8,
    }
}

impl ElementType {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::Int8 => 1,
            Self::Half | Self::Bf16 | Self::Int16 => 2,
            Self::Float | Self::Int => 4,
            Self::Double | Self::Int64 => 8,
        }
    }

    /// Is it a floating-point number?
    pub fn is_float(self) -> bool {
        matches!(self, Self::Float | Self::Half | Self::Double | Self::Bf16)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a number from outside that becomes a value it is not.
    use super::*;

    #[test]
    fn numbers_are_values_or_errors() {
        assert_eq!(MemoryType::of(3).ok(), Some(MemoryType::Distributed));
        for (code, name) in [(0, "none"), (5, "beyond"), (u32::MAX, "minus one")] {
            assert_eq!(MemoryType::of(code).err().map(|error| error.code()), Some(6), "{name}");
        }
        assert!((1..=8).all(|code| ElementType::of(code).is_ok_and(|kind| kind.code() == code)));
        assert!(ElementType::of(0).is_err() && ElementType::of(9).is_err());
    }
}
