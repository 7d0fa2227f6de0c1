//! Hazard (wrong result): a kernel gets other arguments than its launch passed, or a module
//! reports a kernel that it does not have.

mod common;

use std::ffi::c_void;

use common::*;

fn function_of(image: *const c_void, name: &std::ffi::CStr) -> Result<CUfunction, CUresult> {
    let (mut module, mut function) = (CUmodule::NULL, CUfunction::NULL);
    // SAFETY: whole images.
    unsafe {
        cuModuleLoadData(&raw mut module, image).ok()?;
        cuModuleGetFunction(&raw mut function, module, name.as_ptr()).ok()?;
    }
    Ok(function)
}

#[test]
fn every_form_of_the_real_image_has_every_kernel() {
    start(&[]);
    for image in wm_kernels::IMAGES {
        for kernel in image.kernels {
            let name = std::ffi::CString::new(kernel.name).unwrap();
            for code in [image.ptx.as_bytes(), image.sm_80, image.sm_90] {
                assert!(function_of(code.as_ptr().cast(), &name).is_ok(), "{name:?}");
            }
        }
        assert_eq!(function_of(image.sm_90.as_ptr().cast(), c"wm_no_such").unwrap_err(), CUresult::NOT_FOUND);
    }
}

#[test]
fn images_that_are_none_are_refused() {
    start(&[]);
    assert_eq!(function_of(c"hello, world".as_ptr().cast(), c"x").unwrap_err(), CUresult::INVALID_IMAGE);
    assert_eq!(function_of(std::ptr::null(), c"x").unwrap_err(), CUresult::INVALID_VALUE);
    let foreign = c".version 8.2\n.visible .entry somebody_elses()\n";
    assert_eq!(function_of(foreign.as_ptr().cast(), c"somebody_elses").unwrap_err(), CUresult::NOT_FOUND);
    assert_eq!(function_of(foreign.as_ptr().cast(), c"wm_fill_u32").unwrap_err(), CUresult::NOT_FOUND);
}

#[test]
fn parameters_have_offsets_and_sizes() {
    start(&[]);
    let function = kernel("wm_saxpy_f32");
    let ask = |index| {
        let (mut offset, mut size) = (0, 0);
        ok!(cuFuncGetParamInfo(function, index, &raw mut offset, &raw mut size));
        (offset, size)
    };
    assert_eq!([ask(0), ask(1), ask(2), ask(3)], [(0, 8), (8, 4), (16, 8), (24, 8)]);
    let mut offset = 0;
    fails!(INVALID_VALUE, cuFuncGetParamInfo(function, 4, &raw mut offset, std::ptr::null_mut()));
    let mut count = 0;
    ok!(cuFuncGetParamCount(function, &raw mut count));
    assert_eq!(count, 4);
}

#[test]
fn arguments_come_by_pointer_or_in_a_buffer() {
    start(&[]);
    let (block, function) = (allocate(16), kernel("wm_fill_u32"));
    #[repr(C)]
    struct Packed {
        address: u64,
        count: u64,
        value: u32,
    }
    let packed = Packed { address: block, count: 4, value: 99 };
    let launch_with = |size: usize, threads: u32| {
        let mut extra = [
            CU_LAUNCH_PARAM_BUFFER_POINTER as *mut c_void,
            (&raw const packed).cast_mut().cast(),
            CU_LAUNCH_PARAM_BUFFER_SIZE as *mut c_void,
            (&raw const size).cast_mut().cast(),
            CU_LAUNCH_PARAM_END as *mut c_void,
        ];
        let (stream, null) = (CUstream::NULL, std::ptr::null_mut());
        // SAFETY: a buffer of that size.
        unsafe { cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, stream, null, extra.as_mut_ptr()) }
    };
    assert_eq!((launch_with(20, 32), download(block, 4)), (CUresult::SUCCESS, vec![99; 4]));
    assert_eq!(launch_with(16, 32), CUresult::INVALID_VALUE);
    assert_eq!(launch_with(20, 2048), CUresult::INVALID_VALUE);
    let none = std::ptr::null_mut();
    fails!(INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, CUstream::NULL, none, none));
}

#[test]
fn a_librarys_kernel_launches_in_every_context() {
    start(&[]);
    let block = allocate(16);
    let (mut library, mut kernel, mut function) = (CUlibrary::NULL, CUkernel::NULL, CUfunction::NULL);
    let image = wm_kernels::IMAGES.iter().find(|image| image.ptx.contains("wm_fill_u32"));
    let (image, null) = (image.expect("a kernel that fills").ptx, std::ptr::null_mut::<c_void>());
    ok!(cuLibraryLoadData(
        &raw mut library,
        image.as_ptr().cast(),
        null.cast(),
        null.cast(),
        0,
        null.cast(),
        null.cast(),
        0
    ));
    ok!(cuLibraryGetKernel(&raw mut kernel, library, c"wm_fill_u32".as_ptr()));
    ok!(cuKernelGetFunction(&raw mut function, kernel));
    let mut offset = 0;
    ok!(cuKernelGetParamInfo(kernel, 2, &raw mut offset, std::ptr::null_mut()));
    assert_eq!(offset, 16);
    fails!(
        INVALID_HANDLE,
        cuFuncGetParamInfo(CUfunction(kernel.0), 0, &raw mut offset, std::ptr::null_mut())
    );
    let (mut address, mut count, mut value) = (block, 4_u64, 5_u32);
    let launched =
        launch(CUfunction(kernel.0), CUstream::NULL, &mut [at(&mut address), at(&mut count), at(&mut value)]);
    assert_eq!((launched, download(block, 4)), (CUresult::SUCCESS, vec![5; 4]));
    let mut own = CUcontext::NULL;
    ok!(cuCtxCreate_v2(&raw mut own, 0, 0));
    let mut again = CUfunction::NULL;
    ok!(cuKernelGetFunction(&raw mut again, kernel));
    assert_ne!(again, function);
}

#[test]
fn a_wild_kernel_costs_the_device_and_not_the_process() {
    start(&[("SIMCUDA_DEVICES", "2")]);
    assert_eq!(fill(0x10, 4, 1, CUstream::NULL), CUresult::SUCCESS);
    fails!(ILLEGAL_ADDRESS, cuStreamSynchronize(CUstream::NULL));
    fails!(ILLEGAL_ADDRESS, cuCtxSynchronize());
    // "Any further work returns the same error", CUDA's documentation says, until the process is
    // started anew.
    ok!(cuDevicePrimaryCtxReset_v2(0));
    context(0);
    let mut address = 0;
    fails!(ILLEGAL_ADDRESS, cuMemAlloc_v2(&raw mut address, 4));
    context(1);
    let block = allocate(4);
    assert_eq!(fill(block, 1, 2, CUstream::NULL), CUresult::SUCCESS);
    assert_eq!(download(block, 1), [2]);
}
