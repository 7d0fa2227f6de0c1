//! The driver's functions about modules, libraries and kernels.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, PoisonError};

use wm_abi::{CUdevice, CUfunction, CUkernel, CUlibrary, CUmodule, CUresult};

use crate::context::Context;
use crate::entry::{Call, Outcome, exports, put, require};
use crate::launch::{self, parameter};
use crate::module::{Function, Image, Kernel, Library, Module};
use crate::state::driver;

unsafe fn text<'a>(name: *const c_char) -> Outcome<&'a str> {
    require(!name.is_null(), CUresult::INVALID_VALUE)?;
    // SAFETY: the program passes a C string.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| CUresult::NOT_FOUND)
}

unsafe fn load(call: &Call, image: *const c_void) -> Outcome<CUmodule> {
    let context = call.context()?;
    // SAFETY: the program guarantees its image.
    Ok(CUmodule(Module::load(&context, unsafe { Image::read(image)? })))
}

/// An image in a file, with zeros behind it for PTX.
unsafe fn read_file(path: *const c_char) -> Outcome<Arc<Image>> {
    // SAFETY: the program passes a C string.
    let path = unsafe { text(path)? };
    let mut image = std::fs::read(path).map_err(|_| CUresult::FILE_NOT_FOUND)?;
    image.extend([0; 64]);
    // SAFETY: whole, and padded.
    unsafe { Image::read(image.as_ptr().cast()) }
}

fn module(handle: CUmodule) -> Outcome<Arc<Module>> {
    driver().modules.get(handle.0).ok_or(CUresult::INVALID_HANDLE)
}

fn function(handle: CUfunction) -> Outcome<Arc<Function>> {
    driver().functions.get(handle.0).ok_or(CUresult::INVALID_HANDLE)
}

fn library(handle: CUlibrary) -> Outcome<Arc<Library>> {
    driver().libraries.get(handle.0).ok_or(CUresult::INVALID_HANDLE)
}

fn kernel(handle: CUkernel) -> Outcome<Arc<Kernel>> {
    driver().kernels.get(handle.0).ok_or(CUresult::INVALID_HANDLE)
}

/// An attribute (`CUfunction_attribute`) with the value of compiled code of moderate size.
fn attribute(function: Option<&Function>, attribute: c_uint) -> Outcome<c_int> {
    let set = function.and_then(|function| {
        function.attributes.lock().unwrap_or_else(PoisonError::into_inner).get(&attribute).copied()
    });
    match (set, attribute) {
        (Some(value), _) => Ok(value),
        // MAX_THREADS_PER_BLOCK, NUM_REGS, PTX_VERSION and BINARY_VERSION,
        // PREFERRED_SHARED_MEMORY_CARVEOUT.
        (None, 0) => Ok(1024),
        (None, 4) => Ok(32),
        (None, 5 | 6) => Ok(90),
        (None, 8) => Ok(49_152),
        (None, 9) => Ok(-1),
        (None, 1..=15) => Ok(0),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

fn set_attribute(function: &Function, attribute: c_uint, value: c_int) -> Outcome {
    // MAX_DYNAMIC_SHARED_SIZE_BYTES has a limit; the carve-out and the cluster attributes are hints
    // here.
    require((8..=15).contains(&attribute), CUresult::INVALID_VALUE)?;
    require(attribute != 8 || (0..=232_448).contains(&value), CUresult::INVALID_VALUE)?;
    function.attributes.lock().unwrap_or_else(PoisonError::into_inner).insert(attribute, value);
    Ok(())
}

/// Blocks that fit a multiprocessor by their number of threads.
fn blocks(threads: c_int) -> Outcome<c_int> {
    require((1..=1024).contains(&threads), CUresult::INVALID_VALUE)?;
    Ok((2048 / threads).min(32))
}

fn kernel_function(context: &Context, kernel: &Kernel) -> Outcome<usize> {
    let module = library(CUlibrary(kernel.library))?.module(context)?;
    module.function(kernel.name.to_str().unwrap_or_default())
}

exports! {
    fn cuModuleLoad(module: *mut CUmodule, fname: *const c_char) |call| {
        let context = call.context()?;
        require(!module.is_null(), CUresult::INVALID_VALUE)?;
        put(module, CUmodule(Module::load(&context, read_file(fname)?)))
    }

    fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) |call| {
        require(!module.is_null(), CUresult::INVALID_VALUE)?;
        put(module, load(call, image)?)
    }

    fn cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, numOptions: c_uint, options: *mut c_uint, optionValues: *mut *mut c_void) |call| {
        require(!module.is_null(), CUresult::INVALID_VALUE)?;
        put(module, load(call, image)?)
    }

    fn cuModuleLoadFatBinary(module: *mut CUmodule, fatCubin: *const c_void) |call| {
        require(!module.is_null(), CUresult::INVALID_VALUE)?;
        put(module, load(call, fatCubin)?)
    }

    fn cuModuleUnload(hmod: CUmodule) |call| {
        call.context()?;
        module(hmod)?.unload();
        driver().modules.remove(hmod.0).map(drop).ok_or(CUresult::INVALID_HANDLE)
    }

    fn cuModuleGetLoadingMode(mode: *mut c_uint) |call| {
        // CU_MODULE_LAZY_LOADING.
        put(mode, 2)
    }

    fn cuModuleGetFunction(hfunc: *mut CUfunction, hmod: CUmodule, name: *const c_char) |call| {
        call.context()?;
        require(!hfunc.is_null(), CUresult::INVALID_VALUE)?;
        put(hfunc, CUfunction(module(hmod)?.function(text(name)?)?))
    }

    fn cuModuleGetFunctionCount(count: *mut c_uint, mod_: CUmodule) |call| {
        put(count, module(mod_)?.names().len() as c_uint)
    }

    fn cuModuleEnumerateFunctions(functions: *mut CUfunction, numFunctions: c_uint, mod_: CUmodule) |call| {
        let module = module(mod_)?;
        for (i, name) in module.names().into_iter().take(numFunctions as usize).enumerate() {
            put(functions.wrapping_add(i), CUfunction(module.function(name)?))?;
        }
        Ok(())
    }

    fn cuModuleGetGlobal_v2(dptr: *mut wm_abi::CUdeviceptr, bytes: *mut usize, hmod: CUmodule, name: *const c_char) |call| {
        // Kernels for the CPU have no variables to look up.
        module(hmod)?;
        text(name)?;
        Err(CUresult::NOT_FOUND)
    }

    fn cuFuncGetModule(hmod: *mut CUmodule, hfunc: CUfunction) |call| {
        put(hmod, CUmodule(function(hfunc)?.module))
    }

    fn cuFuncGetName(name: *mut *const c_char, hfunc: CUfunction) |call| {
        put(name, function(hfunc)?.name.as_ptr())
    }

    fn cuFuncGetAttribute(pi: *mut c_int, attrib: c_uint, hfunc: CUfunction) |call| {
        let (function, _) = launch::function(call, hfunc)?;
        put(pi, attribute(Some(&function), attrib)?)
    }

    fn cuFuncSetAttribute(hfunc: CUfunction, attrib: c_uint, value: c_int) |call| {
        set_attribute(&launch::function(call, hfunc)?.0, attrib, value)
    }

    fn cuFuncSetCacheConfig(hfunc: CUfunction, config: c_uint) |call| {
        launch::function(call, hfunc)?;
        require(config <= 3, CUresult::INVALID_VALUE)
    }

    fn cuFuncGetParamInfo(func: CUfunction, paramIndex: usize, paramOffset: *mut usize, paramSize: *mut usize) |call| {
        let (offset, size) = parameter(function(func)?.kernel, paramIndex)?;
        crate::entry::put_optional(paramSize, size);
        put(paramOffset, offset)
    }

    fn cuFuncGetParamCount(func: CUfunction, paramCount: *mut usize) |call| {
        put(paramCount, function(func)?.kernel.parameters.len())
    }

    fn cuFuncIsLoaded(state: *mut c_uint, function: CUfunction) |call| {
        self::function(function)?;
        put(state, 1)
    }

    fn cuFuncLoad(function: CUfunction) |call| {
        self::function(function).map(drop)
    }

    fn cuLibraryLoadData(library: *mut CUlibrary, code: *const c_void, jitOptions: *mut c_uint, jitOptionsValues: *mut *mut c_void, numJitOptions: c_uint, libraryOptions: *mut c_uint, libraryOptionValues: *mut *mut c_void, numLibraryOptions: c_uint) |call| {
        require(!library.is_null(), CUresult::INVALID_VALUE)?;
        put(library, CUlibrary(Library::load(Image::read(code)?)))
    }

    fn cuLibraryLoadFromFile(library: *mut CUlibrary, fileName: *const c_char, jitOptions: *mut c_uint, jitOptionsValues: *mut *mut c_void, numJitOptions: c_uint, libraryOptions: *mut c_uint, libraryOptionValues: *mut *mut c_void, numLibraryOptions: c_uint) |call| {
        require(!library.is_null(), CUresult::INVALID_VALUE)?;
        put(library, CUlibrary(Library::load(read_file(fileName)?)))
    }

    fn cuLibraryUnload(library: CUlibrary) |call| {
        driver().libraries.remove(library.0).ok_or(CUresult::INVALID_HANDLE)?;
        driver().kernels.retain(|kernel| kernel.library != library.0);
        Ok(())
    }

    fn cuLibraryGetKernel(pKernel: *mut CUkernel, library: CUlibrary, name: *const c_char) |call| {
        require(!pKernel.is_null(), CUresult::INVALID_VALUE)?;
        put(pKernel, CUkernel(self::library(library)?.kernel(library.0, text(name)?)?))
    }

    fn cuLibraryGetKernelCount(count: *mut c_uint, lib: CUlibrary) |call| {
        put(count, library(lib)?.names().len() as c_uint)
    }

    fn cuLibraryEnumerateKernels(kernels: *mut CUkernel, numKernels: c_uint, lib: CUlibrary) |call| {
        let library = library(lib)?;
        for (i, name) in library.names().into_iter().take(numKernels as usize).enumerate() {
            put(kernels.wrapping_add(i), CUkernel(library.kernel(lib.0, name)?))?;
        }
        Ok(())
    }

    fn cuLibraryGetModule(pMod: *mut CUmodule, library: CUlibrary) |call| {
        let context = call.context()?;
        put(pMod, CUmodule(self::library(library)?.module(&context)?.handle))
    }

    fn cuLibraryGetGlobal(dptr: *mut wm_abi::CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char) |call| {
        self::library(library)?;
        text(name)?;
        Err(CUresult::NOT_FOUND)
    }

    fn cuKernelGetFunction(pFunc: *mut CUfunction, kernel: CUkernel) |call| {
        let context = call.context()?;
        put(pFunc, CUfunction(kernel_function(&context, &*self::kernel(kernel)?)?))
    }

    fn cuKernelGetLibrary(pLib: *mut CUlibrary, kernel: CUkernel) |call| {
        put(pLib, CUlibrary(self::kernel(kernel)?.library))
    }

    fn cuKernelGetName(name: *mut *const c_char, hfunc: CUkernel) |call| {
        put(name, kernel(hfunc)?.name.as_ptr())
    }

    fn cuKernelGetParamInfo(kernel: CUkernel, paramIndex: usize, paramOffset: *mut usize, paramSize: *mut usize) |call| {
        let (offset, size) = parameter(self::kernel(kernel)?.kernel, paramIndex)?;
        crate::entry::put_optional(paramSize, size);
        put(paramOffset, offset)
    }

    fn cuKernelGetParamCount(kernel: CUkernel, paramCount: *mut usize) |call| {
        put(paramCount, self::kernel(kernel)?.kernel.parameters.len())
    }

    fn cuKernelGetAttribute(pi: *mut c_int, attrib: c_uint, kernel: CUkernel, dev: CUdevice) |call| {
        driver().device(dev)?;
        self::kernel(kernel)?;
        put(pi, attribute(None, attrib)?)
    }

    fn cuKernelSetAttribute(attrib: c_uint, val: c_int, kernel: CUkernel, dev: CUdevice) |call| {
        driver().device(dev)?;
        self::kernel(kernel)?;
        require((8..=15).contains(&attrib), CUresult::INVALID_VALUE)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(numBlocks: *mut c_int, func: CUfunction, blockSize: c_int, dynamicSMemSize: usize) |call| {
        launch::function(call, func)?;
        put(numBlocks, blocks(blockSize)?)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks: *mut c_int, func: CUfunction, blockSize: c_int, dynamicSMemSize: usize, flags: c_uint) |call| {
        launch::function(call, func)?;
        put(numBlocks, blocks(blockSize)?)
    }

    fn cuOccupancyMaxPotentialBlockSize(minGridSize: *mut c_int, blockSize: *mut c_int, func: CUfunction, blockSizeToDynamicSMemSize: *mut c_void, dynamicSMemSize: usize, blockSizeLimit: c_int) |call| {
        launch::function(call, func)?;
        let threads = if blockSizeLimit > 0 { blockSizeLimit.min(1024) } else { 1024 };
        put(minGridSize, 132 * blocks(threads)?)?;
        put(blockSize, threads)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(dynamicSmemSize: *mut usize, func: CUfunction, numBlocks: c_int, blockSize: c_int) |call| {
        launch::function(call, func)?;
        require(numBlocks > 0, CUresult::INVALID_VALUE)?;
        put(dynamicSmemSize, (233_472 / numBlocks as usize).saturating_sub(1024).min(232_448))
    }
}
