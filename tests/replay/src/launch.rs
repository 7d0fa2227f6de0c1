//! Launches in every form that a program may choose, each with known blocks.
//!
//! Blocks are numbered as in a recording: 0 and 1 are the ends of copies, 2 is filled.

use std::ffi::{CStr, c_uint, c_void};
use std::ptr::null_mut;

use wm_abi::symbol::{
    cuGraphInstantiateWithFlags, cuGraphLaunch, cuKernelGetFunction, cuLaunchCooperativeKernel,
    cuLaunchKernel, cuLaunchKernelEx, cuLibraryEnumerateKernels, cuLibraryGetKernel, cuLibraryLoadData,
    cuLibraryUnload, cuModuleUnload, cuStreamBeginCapture_v2, cuStreamEndCapture,
};
use wm_abi::{
    CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END, CUfunction, CUgraph,
    CUgraphExec, CUkernel, CUlaunchConfig, CUlibrary, CUmodule, CUstream,
};
use wm_driver::Api;

use crate::{Driver, Failure};

const WORDS: u64 = 64;

struct Launcher {
    driver: Driver,
    stream: CUstream,
    blocks: [u64; 3],
}

/// Makes the launches that `tests/record.rs` expects, in this order.
pub(crate) fn launches(driver: Driver) -> Result<(), Failure> {
    let stream = driver.stream_create(0)?;
    let block = || driver.mem_alloc_async(WORDS as usize * 4, stream);
    let launcher = Launcher { driver, stream, blocks: [block()?, block()?, block()?] };
    launcher.handle_that_comes_again()?;
    let module = launcher.module()?;
    launcher.forms(module)?;
    launcher.of_a_library()?;
    launcher.captured(module)?;
    driver.stream_synchronize(stream)?;
    Ok(())
}

/// An argument's place, for `kernelParams`.
fn at<T>(value: &T) -> *mut c_void {
    std::ptr::from_ref(value).cast_mut().cast()
}

fn key(key: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(key)
}

impl Launcher {
    fn module(&self) -> Result<CUmodule, Failure> {
        Ok(self.driver.module_load_data(wm_kernels::diagnostics::IMAGE.ptx.as_bytes())?)
    }

    fn function(&self, module: CUmodule, name: &CStr) -> Result<CUfunction, Failure> {
        Ok(self.driver.module_function(module, name)?)
    }

    fn forms(&self, module: CUmodule) -> Result<(), Failure> {
        let (copy, fill) = (self.function(module, c"wm_copy_u32")?, self.function(module, c"wm_fill_u32")?);
        let [a, b, c] = self.blocks;
        self.plain(copy, &mut [at(&a), at(&b), at(&WORDS)], null_mut())?;
        self.plain(copy, &mut [at(&(b + 16)), at(&(a + 16)), at(&(WORDS - 8))], null_mut())?;
        self.in_a_buffer(fill, c)?;
        let value: u32 = 3;
        self.extended(fill, &mut [at(&c), at(&WORDS), at(&value)])?;
        self.cooperative(fill, &mut [at(&c), at(&WORDS), at(&value)])?;
        let nothing: u64 = 1;
        self.plain(self.function(module, c"wm_spin")?, &mut [at(&nothing)], null_mut())?;
        self.refused(fill)
    }

    fn plain(
        &self,
        function: CUfunction,
        parameters: &mut [*mut c_void],
        extra: *mut *mut c_void,
    ) -> Result<(), Failure> {
        let parameters = if parameters.is_empty() { null_mut() } else { parameters.as_mut_ptr() };
        // SAFETY: the kernel's own arguments, in one of the two forms.
        Ok(self.driver.checked::<cuLaunchKernel>(|launch| unsafe {
            launch(function, 1, 1, 1, 32, 1, 1, 0, self.stream, parameters, extra)
        })?)
    }

    fn in_a_buffer(&self, fill: CUfunction, block: u64) -> Result<(), Failure> {
        let arguments: [u64; 3] = [block, WORDS, 5];
        let size: usize = 20;
        let mut extra = [
            key(CU_LAUNCH_PARAM_BUFFER_POINTER),
            at(&arguments),
            key(CU_LAUNCH_PARAM_BUFFER_SIZE),
            at(&size),
            key(CU_LAUNCH_PARAM_END),
        ];
        self.plain(fill, &mut [], extra.as_mut_ptr())
    }

    fn extended(&self, function: CUfunction, parameters: &mut [*mut c_void]) -> Result<(), Failure> {
        let config = CUlaunchConfig {
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 32,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: self.stream,
            attrs: null_mut(),
            numAttrs: 0,
        };
        // SAFETY: the kernel's own arguments.
        Ok(self.driver.checked::<cuLaunchKernelEx>(|launch| unsafe {
            launch(&config, function, parameters.as_mut_ptr(), null_mut())
        })?)
    }

    fn cooperative(&self, function: CUfunction, parameters: &mut [*mut c_void]) -> Result<(), Failure> {
        // SAFETY: the kernel's own arguments.
        Ok(self.driver.checked::<cuLaunchCooperativeKernel>(|launch| unsafe {
            launch(function, 1, 1, 1, 32, 1, 1, 0, self.stream, parameters.as_mut_ptr())
        })?)
    }

    /// Lists that the driver refuses: an end at once, a size that is null.
    fn refused(&self, function: CUfunction) -> Result<(), Failure> {
        let mut ended = [key(CU_LAUNCH_PARAM_END)];
        let refused = self.plain(function, &mut [], ended.as_mut_ptr()).is_err();
        if refused { Ok(()) } else { Err(Failure("a launch without its arguments went through".into())) }
    }

    /// As in CUDA's runtime: the kernel's handle in a function's place.
    fn of_a_library(&self) -> Result<(), Failure> {
        let (mut library, mut kernel) = (CUlibrary::NULL, CUkernel::NULL);
        let image = wm_kernels::diagnostics::IMAGE.ptx;
        let none = null_mut::<c_uint>();
        let values = null_mut::<*mut c_void>();
        // SAFETY: an image of our own, and no options.
        self.driver.checked::<cuLibraryLoadData>(|load| unsafe {
            load(&mut library, image.as_ptr().cast(), none, values, 0, none, values, 0)
        })?;
        // SAFETY: a loaded library, and a live local.
        self.driver.checked::<cuLibraryGetKernel>(|get| unsafe {
            get(&mut kernel, library, c"wm_fill_u32".as_ptr())
        })?;
        let value: u32 = 9;
        let mut arguments = [at(&self.blocks[2]), at(&WORDS), at(&value)];
        self.plain(CUfunction(kernel.0), &mut arguments, null_mut())?;
        let mut function = CUfunction::NULL;
        // SAFETY: as above.
        self.driver.checked::<cuKernelGetFunction>(|get| unsafe { get(&mut function, kernel) })?;
        self.plain(function, &mut arguments, null_mut())?;
        let mut all = [CUkernel::NULL; 2];
        // SAFETY: a loaded library, and room for two.
        let enumerate =
            |call: unsafe extern "C" fn(_, _, _) -> _| unsafe { call(all.as_mut_ptr(), 2, library) };
        self.driver.checked::<cuLibraryEnumerateKernels>(enumerate)?;
        self.driver.stream_synchronize(self.stream)?;
        // SAFETY: nothing of it runs any more.
        Ok(self.driver.checked::<cuLibraryUnload>(|unload| unsafe { unload(library) })?)
    }

    /// A launch into a capture counts for nothing; the launch of the graph is one, of unknown
    /// blocks.
    fn captured(&self, module: CUmodule) -> Result<(), Failure> {
        let (stream, value, mut graph, mut exec) = (self.stream, 4_u32, CUgraph::NULL, CUgraphExec::NULL);
        let fill = self.function(module, c"wm_fill_u32")?;
        // SAFETY: a stream of our own, which no other thread captures.
        self.driver.checked::<cuStreamBeginCapture_v2>(|begin| unsafe { begin(stream, 2) })?;
        self.plain(fill, &mut [at(&self.blocks[0]), at(&WORDS), at(&value)], null_mut())?;
        // SAFETY: the capture that was begun.
        self.driver.checked::<cuStreamEndCapture>(|end| unsafe { end(stream, &mut graph) })?;
        // SAFETY: a graph of our own.
        self.driver.checked::<cuGraphInstantiateWithFlags>(|make| unsafe { make(&mut exec, graph, 0) })?;
        // SAFETY: as above.
        Ok(self.driver.checked::<cuGraphLaunch>(|launch| unsafe { launch(exec, stream) })?)
    }

    /// A function gets the handle of an unloaded one with other parameters, as in NVIDIA's driver;
    /// in the simulated one only with a setting.
    fn handle_that_comes_again(&self) -> Result<(), Failure> {
        let (before, time) = (self.module()?, 1_u64);
        let spin = self.function(before, c"wm_spin")?;
        self.plain(spin, &mut [at(&time)], null_mut())?;
        self.driver.stream_synchronize(self.stream)?;
        // SAFETY: nothing of it runs any more.
        self.driver.checked::<cuModuleUnload>(|unload| unsafe { unload(before) })?;
        let copy = self.function(self.module()?, c"wm_copy_u32")?;
        if std::env::var_os("SIMCUDA_REUSE_HANDLES").is_some() && copy != spin {
            return Err(Failure("the handle did not come again".into()));
        }
        let [a, b, _] = self.blocks;
        self.plain(copy, &mut [at(&a), at(&b), at(&WORDS)], null_mut())
    }
}
