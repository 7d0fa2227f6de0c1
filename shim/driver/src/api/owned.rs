//! Handles that are released on drop, and ranges of addresses with their mappings.
//!
//! An object that is to live longer is taken out with `into_raw`. A failed release is not reported:
//! the object then ends with its context or with the process.

use std::ffi::{CString, c_int, c_uint};

use wm_abi::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CUdeviceptr, CUfunction, CUgraph, CUmemAccessDesc,
    CUmemAllocationProp, CUmodule, CUstream,
};

use super::Api;

/// Declares owners, one a row: the type, the method that makes it, and the method that releases it.
macro_rules! owners {
    ($($(#[$doc:meta])* $name:ident($raw:ty): $make:ident($($argument:ident: $type:ty),*), $give_back:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<'a, A: Api> {
            driver: &'a A,
            raw: $raw,
        }

        impl<'a, A: Api> $name<'a, A> {
            /// Makes one.
            ///
            /// # Errors
            /// The driver's.
            pub fn new(driver: &'a A, $($argument: $type),*) -> Result<Self, A::Error> {
                driver.$make($($argument),*).map(|raw| Self { driver, raw })
            }

            /// Takes ownership of a raw handle.
            pub fn from_raw(driver: &'a A, raw: $raw) -> Self {
                Self { driver, raw }
            }

            /// The driver's name for it.
            pub fn raw(&self) -> $raw {
                self.raw
            }

            /// Passes ownership to the caller, which releases the handle by other means or never.
            #[must_use]
            pub fn into_raw(self) -> $raw {
                std::mem::ManuallyDrop::new(self).raw
            }
        }

        impl<A: Api> Drop for $name<'_, A> {
            fn drop(&mut self) {
                let _ = self.driver.$give_back(self.raw);
            }
        }
    )*};
}

owners! {
    /// Physical memory. Its mappings stay when this is dropped.
    PhysicalMemory(u64): mem_create(bytes: usize, property: &CUmemAllocationProp), mem_release;
    /// Code in the current context.
    LoadedModule(CUmodule): module_load_data(code: &[u8]), module_unload;
    /// A stream in the current context.
    OwnedStream(CUstream): stream_create(flags: c_uint), stream_destroy;
    /// A graph.
    Graph(CUgraph): graph_create(), graph_destroy;
}

impl<'a, A: Api> LoadedModule<'a, A> {
    /// The code that `code_for` has for the compute capability of the context's device (the major
    /// number). May take milliseconds, and memory of the device.
    ///
    /// # Errors
    /// The driver's.
    pub fn load(driver: &'a A, code_for: impl FnOnce(c_int) -> &'static [u8]) -> Result<Self, A::Error> {
        let device = driver.ctx_device()?;
        let major = driver.device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)?;
        Self::new(driver, code_for(major))
    }

    /// A kernel of it.
    ///
    /// # Errors
    /// The driver's. A name that has a zero byte is not found.
    pub fn function(&self, name: &str) -> Result<CUfunction, A::Error> {
        self.driver.module_function(self.raw, &CString::new(name).unwrap_or_default())
    }
}

/// A range of addresses. The drop returns it to the driver, with its mappings; no work may use
/// these any more.
#[derive(Debug)]
pub struct Reservation<'a, A: Api> {
    driver: &'a A,
    address: CUdeviceptr,
    bytes: usize,
    /// Bytes mapped from its start.
    mapped: usize,
}

impl<'a, A: Api> Reservation<'a, A> {
    /// An empty range.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(driver: &'a A, bytes: usize) -> Result<Self, A::Error> {
        let address = driver.mem_address_reserve(bytes)?;
        Ok(Self { driver, address, bytes, mapped: 0 })
    }

    /// A range with new physical memory throughout, which ends with the mapping.
    ///
    /// # Errors
    /// The driver's; the memory and the range are then released.
    pub fn filled(driver: &'a A, bytes: usize, property: &CUmemAllocationProp) -> Result<Self, A::Error> {
        let mut range = Self::new(driver, bytes)?;
        let memory = PhysicalMemory::new(driver, bytes, property)?;
        driver.mem_map(range.address, bytes, memory.raw())?;
        range.mapped = bytes;
        Ok(range)
    }

    /// Sets the access rights of mapped memory.
    ///
    /// # Errors
    /// The driver's.
    pub fn allow(&self, access: &[CUmemAccessDesc]) -> Result<(), A::Error> {
        self.driver.mem_set_access(self.address, self.mapped, access)
    }

    /// Passes ownership of the range to the caller, with its mappings.
    #[must_use]
    pub fn into_raw(self) -> CUdeviceptr {
        std::mem::ManuallyDrop::new(self).address
    }
}

impl<A: Api> Drop for Reservation<'_, A> {
    fn drop(&mut self) {
        if self.mapped > 0 {
            let _ = self.driver.mem_unmap(self.address, self.mapped);
        }
        let _ = self.driver.mem_address_free(self.address, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (resource leak): a later step fails, and physical memory or address space is in no
    //! table any more.
    use std::cell::RefCell;

    use wm_abi::symbol::Symbol;
    use wm_abi::{CU_MEM_LOCATION_TYPE_DEVICE, CUmemAllocationFlags, CUmemLocation, CUresult};

    use super::*;
    use crate::api::Failed;

    /// Records each call and makes none; one function fails.
    struct Notes {
        fails: &'static str,
        calls: RefCell<Vec<&'static str>>,
    }

    impl Notes {
        fn where_fails(fails: &'static str) -> Self {
            Self { fails, calls: RefCell::default() }
        }
    }

    impl Api for Notes {
        type Error = Failed;

        fn call<S: Symbol>(&self, _: impl FnOnce(S::Function) -> CUresult) -> CUresult {
            let name = S::NAME.to_str().expect("ASCII");
            self.calls.borrow_mut().push(name);
            if name == self.fails { CUresult::OUT_OF_MEMORY } else { CUresult::SUCCESS }
        }
    }

    fn fill(driver: &Notes) -> Result<u64, String> {
        let property = CUmemAllocationProp {
            type_: 1,
            requestedHandleTypes: 0,
            location: CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 },
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationFlags::default(),
        };
        let range = Reservation::filled(driver, 2 << 20, &property).map_err(|failed| failed.to_string())?;
        range.allow(&[]).map_err(|failed| failed.to_string())?;
        Ok(range.into_raw())
    }

    #[test]
    fn what_a_later_step_leaves_is_given_back() {
        const RESERVE: &str = "cuMemAddressReserve";
        const FREE: &str = "cuMemAddressFree";
        for (fails, calls) in [
            (RESERVE, &[RESERVE][..]),
            ("cuMemCreate", &[RESERVE, "cuMemCreate", FREE]),
            ("cuMemMap", &[RESERVE, "cuMemCreate", "cuMemMap", "cuMemRelease", FREE]),
            (
                "cuMemSetAccess",
                &[RESERVE, "cuMemCreate", "cuMemMap", "cuMemRelease", "cuMemSetAccess", "cuMemUnmap", FREE],
            ),
        ] {
            let driver = Notes::where_fails(fails);
            assert_eq!(fill(&driver), Err(format!("{fails}: CUDA_ERROR_OUT_OF_MEMORY (2)")));
            assert_eq!(*driver.calls.borrow(), calls);
        }
    }

    #[test]
    fn what_is_taken_out_stays() {
        let driver = Notes::where_fails("");
        assert_eq!(fill(&driver), Ok(0));
        let graph = Graph::new(&driver).expect("nothing fails").into_raw();
        drop(Graph::from_raw(&driver, graph));
        let calls = driver.calls.take();
        let (given_back, kept) = (["cuGraphDestroy", "cuMemRelease"], ["cuMemUnmap", "cuMemAddressFree"]);
        assert!(given_back.iter().all(|name| calls.iter().filter(|call| call == &name).count() == 1));
        assert!(!kept.iter().any(|name| calls.contains(name)));
    }
}
