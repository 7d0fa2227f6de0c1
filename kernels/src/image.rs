//! The parts of an image as types: GPU code, kernels, parameters, and the arguments of one launch.

use std::ffi::c_void;

/// One GPU module in the forms that the driver loads, and the kernels in it.
#[derive(Debug)]
pub struct Image {
    /// The folder of `cuda/` that it is compiled from.
    pub name: &'static str,
    /// PTX 8.2 for compute capability 8.0: any later GPU, driver 535 or newer. A zero byte ends it,
    /// as the driver wants it.
    pub ptx: &'static str,
    /// Machine code for compute capability 8.x.
    pub sm_80: &'static [u8],
    /// Machine code for compute capability 9.x.
    pub sm_90: &'static [u8],
    /// In source order.
    pub kernels: &'static [Kernel],
}

impl Image {
    /// The image for `cuModuleLoadData` on a device of compute capability `major`.x: machine code
    /// if there is some, else PTX, which the driver compiles. `major` is 8 or more.
    pub fn code_for(&self, major: i32) -> &'static [u8] {
        match major {
            8 => self.sm_80,
            9 => self.sm_90,
            _ => self.ptx.as_bytes(),
        }
    }

    /// The kernel called `name`.
    pub fn kernel(&self, name: &str) -> Option<&'static Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }
}

/// One kernel: its name in the module and its parameters.
#[derive(Debug, PartialEq, Eq)]
pub struct Kernel {
    /// For `cuModuleGetFunction`.
    pub name: &'static str,
    /// In order.
    pub parameters: &'static [Parameter],
}

/// One parameter of a kernel.
#[derive(Debug, PartialEq, Eq)]
pub struct Parameter {
    /// As in the source.
    pub name: &'static str,
    /// As in the source, e.g. `const u64*`.
    pub c_type: &'static str,
    /// In bytes.
    pub size: usize,
}

/// The arguments of one launch, typed. Each kernel has its own structure, generated, with one field
/// a parameter.
pub trait Arguments {
    /// The kernel that takes them.
    const KERNEL: &'static Kernel;
    /// An array, one pointer a parameter.
    type Pointers: AsRef<[*const c_void]>;
    /// `kernelParams` of `cuLaunchKernel`. The pointers are into `self`, which must outlive the
    /// call.
    fn pointers(&self) -> Self::Pointers;
}
