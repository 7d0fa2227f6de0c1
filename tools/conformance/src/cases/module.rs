//! Modules and launches: images, names, the three ways to pass parameters, and invalid launches.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use wm_abi::*;

use crate::case::{Case, Halt, Verdict};
use crate::fixture::{Kernels, Memory, Primary, image, pattern, pointers};
use crate::{cu, must};

const WORDS: usize = 10_000;

fn holds(memory: &Memory, value: u32) -> Verdict<bool> {
    Ok(memory.read()? == value.to_ne_bytes().repeat(WORDS))
}

pub(super) fn images(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut module = CUmodule::NULL;
    let nonsense = c"this is no image at all";
    let code = cu!(d, cuModuleLoadData(&mut module, nonsense.as_ptr().cast()));
    case.expect_code("nonsense", code, CUresult::INVALID_IMAGE);
    let code = cu!(d, cuModuleLoadData(&mut module, null()));
    case.expect_code("null image", code, CUresult::INVALID_VALUE);
    let code = cu!(d, cuModuleLoadData(null_mut(), image().as_ptr().cast()));
    case.expect_code("null module", code, CUresult::INVALID_VALUE);
    let code = cu!(d, cuModuleLoad(&mut module, c"/nonexistent/image.ptx".as_ptr()));
    case.expect_code("a file that is not there", code, CUresult::FILE_NOT_FOUND);
    let code = cu!(d, cuModuleLoadDataEx(&mut module, image().as_ptr().cast(), 0, null_mut(), null_mut()));
    case.expect_ok("a good image", code);
    case.expect_ok("unload", cu!(d, cuModuleUnload(module)));
    Ok(())
}

pub(super) fn names(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let kernels = Kernels::load(d)?;
    let mut function = CUfunction::NULL;
    let name = c"wm_no_such_kernel";
    let code = cu!(d, cuModuleGetFunction(&mut function, kernels.module, name.as_ptr()));
    case.expect_code("unknown kernel", code, CUresult::NOT_FOUND);
    let code = cu!(d, cuModuleGetFunction(&mut function, kernels.module, null()));
    case.expect_code("null name", code, CUresult::INVALID_VALUE);
    let (mut address, mut bytes) = (0, 0);
    let code = cu!(d, cuModuleGetGlobal_v2(&mut address, &mut bytes, kernels.module, name.as_ptr()));
    case.expect_code("unknown global", code, CUresult::NOT_FOUND);
    let mut threads = 0;
    function = kernels.function(c"wm_fill_u32")?;
    must!(d, cuFuncGetAttribute(&mut threads, 0, function));
    case.expect_that("it may have threads", threads >= 64);
    let (mut offset, mut size) = (0, 0);
    must!(d, cuFuncGetParamInfo(function, 2, &mut offset, &mut size));
    case.expect_eq("the third parameter", format!("{size} bytes at {offset}"), "4 bytes at 16".to_owned());
    let code = cu!(d, cuFuncGetParamInfo(function, 3, &mut offset, &mut size));
    case.expect_code("a fourth", code, CUresult::INVALID_VALUE);
    Ok(())
}

pub(super) fn parameters(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, memory) = (Kernels::load(d)?, Memory::new(d, WORDS * 4)?);
    kernels.fill(CUstream::NULL, memory.address, WORDS as u64, 11)?;
    case.expect_that("kernelParams", holds(&memory, 11)?);
    let function = kernels.function(c"wm_fill_u32")?;
    let fill = |value| [memory.address, WORDS as u64, value];
    let mut buffer = fill(22);
    let mut size = 20_usize;
    let mut extra: [*mut c_void; 5] = [
        CU_LAUNCH_PARAM_BUFFER_POINTER as *mut c_void,
        buffer.as_mut_ptr().cast(),
        CU_LAUNCH_PARAM_BUFFER_SIZE as *mut c_void,
        (&raw mut size).cast(),
        CU_LAUNCH_PARAM_END as *mut c_void,
    ];
    let stream = CUstream::NULL;
    must!(d, cuLaunchKernel(function, 2, 1, 1, 32, 1, 1, 0, stream, null_mut(), extra.as_mut_ptr()));
    case.expect_that("extra", holds(&memory, 22)?);
    let values = fill(33);
    must!(d, cuLaunchKernelEx(&config(stream), function, pointers(&values).as_mut_ptr(), null_mut()));
    case.expect_that("cuLaunchKernelEx", holds(&memory, 33)?);
    let values = fill(44);
    let mut parameters = pointers(&values);
    must!(d, cuLaunchKernel_ptsz(function, 1, 2, 1, 4, 4, 4, 0, stream, parameters.as_mut_ptr(), null_mut()));
    must!(d, cuStreamSynchronize(CUstream::PER_THREAD));
    case.expect_that("three dimensions, per thread", holds(&memory, 44)?);
    let values = fill(55);
    must!(
        d,
        cuLaunchCooperativeKernel(function, 2, 1, 1, 32, 1, 1, 0, stream, pointers(&values).as_mut_ptr())
    );
    case.expect_that("cooperative", holds(&memory, 55)?);
    Ok(())
}

fn config(stream: CUstream) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: 2,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 64,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: stream,
        attrs: null_mut(),
        numAttrs: 0,
    }
}

pub(super) fn launches_that_cannot_be(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, memory) = (Kernels::load(d)?, Memory::new(d, WORDS * 4)?);
    let function = kernels.function(c"wm_fill_u32")?;
    let values = [memory.address, WORDS as u64, 1];
    let launch = |function, grid, block, shared| {
        let (stream, mut values) = (CUstream::NULL, pointers(&values));
        cu!(
            d,
            cuLaunchKernel(
                function,
                grid,
                1,
                1,
                block,
                1,
                1,
                shared,
                stream,
                values.as_mut_ptr(),
                null_mut()
            )
        )
    };
    let wrong = CUresult::INVALID_VALUE;
    case.expect_code("no blocks", launch(function, 0, 32, 0), wrong);
    case.expect_code("no threads", launch(function, 1, 0, 0), wrong);
    case.expect_code("4096 threads", launch(function, 1, 4096, 0), wrong);
    case.expect_code("1 GiB of shared memory", launch(function, 1, 32, 1 << 30), wrong);
    case.expect_one_of(
        "null function",
        launch(CUfunction::NULL, 1, 32, 0),
        &[CUresult::INVALID_HANDLE, wrong],
    );
    case.expect_ok("a good one afterwards", launch(function, 1, 32, 0));
    case.expect_that("its result", holds(&memory, 1)?);
    Ok(())
}

pub(super) fn results(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let kernels = Kernels::load(d)?;
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>();
    let (xs, ys): (Vec<f32>, Vec<f32>) = (0..5000).map(|i| (i as f32 * 0.5, 3.0 - i as f32)).unzip();
    let (x, y) = (Memory::holding(d, &floats(&xs))?, Memory::holding(d, &floats(&ys))?);
    let factor = 1.25_f32;
    kernels.launch(
        c"wm_saxpy_f32",
        CUstream::NULL,
        &[5000, factor.to_bits().into(), x.address, y.address],
    )?;
    let wanted: Vec<f32> = xs.iter().zip(&ys).map(|(x, y)| factor.mul_add(*x, *y)).collect();
    case.expect_that("a x + y", y.read()? == floats(&wanted));
    let (source, target) =
        (Memory::holding(d, &crate::fixture::pattern(40_000, 1))?, Memory::new(d, 40_000)?);
    kernels.copy(CUstream::NULL, target.address, source.address, 10_000)?;
    case.expect_that("a copy by a kernel", target.read()? == crate::fixture::pattern(40_000, 1));
    Ok(())
}

pub(super) fn libraries(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut library = CUlibrary::NULL;
    let code = image().as_ptr().cast();
    must!(d, cuLibraryLoadData(&mut library, code, null_mut(), null_mut(), 0, null_mut(), null_mut(), 0));
    let (mut kernel, mut function, mut module) = (CUkernel::NULL, CUfunction::NULL, CUmodule::NULL);
    must!(d, cuLibraryGetKernel(&mut kernel, library, c"wm_fill_u32".as_ptr()));
    must!(d, cuKernelGetFunction(&mut function, kernel));
    must!(d, cuLibraryGetModule(&mut module, library));
    let (mut offset, mut size) = (0, 0);
    must!(d, cuKernelGetParamInfo(kernel, 1, &mut offset, &mut size));
    case.expect_eq("the second parameter", format!("{size} bytes at {offset}"), "8 bytes at 8".to_owned());
    let memory = Memory::new(d, WORDS * 4)?;
    // A kernel handle is accepted in place of a function handle: the CUDA runtime passes these.
    for (label, function, value) in [("a function", function, 77), ("a kernel", CUfunction(kernel.0), 88)] {
        let values = [memory.address, WORDS as u64, value];
        let (stream, mut values) = (CUstream::NULL, pointers(&values));
        must!(d, cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, stream, values.as_mut_ptr(), null_mut()));
        case.expect_that(&format!("launched as {label}"), holds(&memory, value as u32)?);
    }
    let mut all = [CUkernel::NULL; 64];
    must!(d, cuLibraryEnumerateKernels(all.as_mut_ptr(), all.len() as u32, library));
    case.observe_machine("one of all", all.contains(&kernel).to_string());
    case.expect_code(
        "unknown kernel",
        cu!(d, cuLibraryGetKernel(&mut kernel, library, c"wm_no_such_kernel".as_ptr())),
        CUresult::NOT_FOUND,
    );
    case.expect_ok("unload", cu!(d, cuLibraryUnload(library)));
    Ok(())
}

/// PTX with one variable and no kernel.
const VARIABLE: &CStr =
    c".version 8.2\n.target sm_80\n.address_size 64\n.visible .global .align 8 .b8 wm_bytes[4096];\n";

/// Variables of modules and libraries: memory of the driver, which is copied to and not freed.
pub(super) fn variables(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (mut module, mut address, mut bytes) = (CUmodule::NULL, 0, 0);
    must!(d, cuModuleLoadData(&mut module, VARIABLE.as_ptr().cast()));
    if cu!(d, cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"wm_bytes".as_ptr()))
        == CUresult::NOT_FOUND
    {
        return Err(Halt::Skipped("needs variables in modules".into()));
    }
    case.expect_eq("size", bytes as u64, 4096);
    let contents = pattern(4096, 1);
    crate::fixture::write(d, address, &contents)?;
    case.expect_that("bytes", crate::fixture::read(d, address, 4096)? == contents);
    case.expect_code("free", cu!(d, cuMemFree_v2(address)), CUresult::INVALID_VALUE);
    let (mut base, mut size) = (0, 0);
    let code = cu!(d, cuMemGetAddressRange_v2(&mut base, &mut size, address));
    case.observe_machine("range", crate::case::short(code));
    let (mut library, none, nothing) = (CUlibrary::NULL, null_mut(), null_mut());
    let image = VARIABLE.as_ptr().cast();
    must!(d, cuLibraryLoadData(&mut library, image, none, nothing, 0, null_mut(), null_mut(), 0));
    let code = cu!(d, cuLibraryGetGlobal(&mut address, &mut bytes, library, c"wm_bytes".as_ptr()));
    case.expect_ok("of a library", code);
    must!(d, cuMemsetD8_v2(address, 2, bytes));
    must!(d, cuCtxSynchronize());
    case.expect_that("bytes of a library", crate::fixture::read(d, address, bytes)? == vec![2; bytes]);
    must!(d, cuLibraryUnload(library));
    must!(d, cuModuleUnload(module));
    Ok(())
}

/// Code from a file, and code in a compiler's container.
pub(super) fn other_sources(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let path = std::env::temp_dir().join(format!("conformance-{}.ptx", std::process::id()));
    std::fs::write(&path, image()).map_err(|error| Halt::Failed(format!("{}: {error}", path.display())))?;
    let file = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("no zero byte in a path");
    let (mut library, mut kernel, mut module) = (CUlibrary::NULL, CUkernel::NULL, CUmodule::NULL);
    let (none, nothing) = (null_mut(), null_mut());
    let code = cu!(
        d,
        cuLibraryLoadFromFile(&mut library, file.as_ptr(), none, nothing, 0, null_mut(), null_mut(), 0)
    );
    let _ = std::fs::remove_file(&path);
    case.expect_ok("a library from a file", code);
    must!(d, cuLibraryGetKernel(&mut kernel, library, c"wm_fill_u32".as_ptr()));
    must!(d, cuLibraryUnload(library));
    // A compiler's container wraps its images; drivers differ in whether they accept a bare one.
    let code = cu!(d, cuModuleLoadFatBinary(&mut module, image().as_ptr().cast()));
    case.observe_machine("an image for a container", crate::case::short(code));
    if code == CUresult::SUCCESS {
        must!(d, cuModuleUnload(module));
    }
    Ok(())
}
