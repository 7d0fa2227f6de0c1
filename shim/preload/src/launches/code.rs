//! The facts about the functions that the program has loaded: their layouts and their images.

use wm_abi::{CUfunction, CUkernel, CUlibrary, CUmodule};

use super::images::{self, CodeImages, FunctionCode};
use super::layouts::Layouts;

/// See above.
pub(crate) struct LoadedCode {
    pub(crate) layouts: Layouts,
    pub(crate) images: CodeImages,
}

/// Code of the process. `moves`, sharing and the trace import this layer, so it owns its value.
pub(crate) static CODE: LoadedCode = LoadedCode::new();

impl LoadedCode {
    const fn new() -> Self {
        Self { layouts: Layouts::new(), images: CodeImages::new() }
    }

    /// Which kernel a handle names in this process: the first value counts the unloads of code,
    /// after which the driver may give a handle to another kernel.
    #[inline]
    pub(crate) fn identity(&self, function: CUfunction) -> (u64, usize) {
        (self.layouts.forgotten(), function.0)
    }

    /// The code of a kernel that the program launches, if it is known. Asks the driver.
    pub(crate) fn of(&self, function: CUfunction) -> Option<FunctionCode> {
        self.images.code(function, self.layouts.library_of(function))
    }

    /// The program got the function of a kernel in the current context.
    pub(crate) fn note_function(&self, function: CUfunction, kernel: CUkernel) {
        if let Some(library) = self.layouts.library_of(CUfunction(kernel.0))
            && let Some(module) = images::module_of(function)
        {
            self.images.note_module_of(module, library);
        }
    }

    /// A module is about to be unloaded.
    pub(crate) fn forget_module(&self, module: CUmodule) {
        self.layouts.forget();
        self.images.forget_module(module);
    }

    /// A library is about to be unloaded.
    pub(crate) fn forget_library(&self, library: CUlibrary) {
        self.layouts.forget_library(library);
        self.images.forget_library(library);
    }

    /// A context is about to end.
    pub(crate) fn forget_context(&self) {
        self.layouts.forget();
        self.images.forget_modules();
    }
}
