//! Attributes that the driver writes behind a pointer without type, each with the type of its
//! value.

use std::ffi::{c_int, c_uint};
use std::marker::PhantomData;

use wm_abi::*;

macro_rules! attributes {
    ($($(#[$doc:meta])* $attribute:ident { $($name:ident: $type:ty = $code:ident,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $attribute<T>(c_uint, PhantomData<T>);

        impl<T> $attribute<T> {
            pub(super) fn code(self) -> c_uint {
                self.0
            }
        }

        $(impl $attribute<$type> {
            #[doc = concat!("`", stringify!($code), "`.")]
            pub const $name: Self = Self($code, PhantomData);
        })*
    )*};
}

attributes! {
    /// The driver's facts about an address.
    PointerAttribute {
        CONTEXT: CUcontext = CU_POINTER_ATTRIBUTE_CONTEXT,
        MEMORY_TYPE: c_uint = CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        DEVICE_ORDINAL: c_uint = CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        IS_MANAGED: c_uint = CU_POINTER_ATTRIBUTE_IS_MANAGED,
        SYNC_MEMOPS: c_uint = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
        RANGE_START_ADDR: u64 = CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        RANGE_SIZE: u64 = CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    }
    /// The state and the settings of a pool.
    PoolAttribute {
        REUSE_FOLLOW_EVENT_DEPENDENCIES: c_int = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
        REUSE_ALLOW_INTERNAL_DEPENDENCIES: c_int = CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
        RELEASE_THRESHOLD: u64 = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
        RESERVED_MEM_CURRENT: u64 = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
        RESERVED_MEM_HIGH: u64 = CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
        USED_MEM_CURRENT: u64 = CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
        USED_MEM_HIGH: u64 = CU_MEMPOOL_ATTR_USED_MEM_HIGH,
    }
}
