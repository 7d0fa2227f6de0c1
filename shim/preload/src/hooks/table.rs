// The rows of `hooks!`. To intercept a function, add a row; `cargo run -p xtask -- hooks` renews docs/hooks.md.

hooks! {
    serve {
        // The first call.
        cuInit(flags: c_uint)
            => initialise::init, Always, "after it succeeded, opens the statistics endpoint";
        // Look-up by name: the program gets our exports, the driver keeps its rules.
        cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: u64)
            => lookup::get_proc_address, Always, "maps the pointer that the driver answers to our export of the same function";
        cuGetProcAddress_v2(symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: u64, symbol_status: *mut c_uint)
            => lookup::get_proc_address_v2, Always, "maps the pointer that the driver answers to our export of the same function";
        cuGetProcAddress_v2_ptsz(symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: u64, symbol_status: *mut c_uint)
            => lookup::get_proc_address_v2, Always, "maps the pointer that the driver answers to our export of the same function";
        // Device memory: given and taken back.
        cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize)
            => allocate::mem_alloc, Memory, "serves device memory that does not fragment and may exceed the device";
        cuMemAllocPitch_v2(dptr: *mut CUdeviceptr, p_pitch: *mut usize, width_in_bytes: usize, height: usize, element_size_bytes: c_uint)
            => allocate::mem_alloc_pitch, Memory, "the same for rows of equal distance";
        cuMemFree_v2(dptr: CUdeviceptr)
            => allocate::mem_free, Memory, "takes a block back once the work of its context is over, as the driver does";
        cuMemAllocAsync(dptr: *mut CUdeviceptr, bytesize: usize, stream: CUstream)
            => allocate::mem_alloc_async::<Legacy>, Memory, "serves device memory in stream order";
        cuMemAllocAsync_ptsz(dptr: *mut CUdeviceptr, bytesize: usize, stream: CUstream)
            => allocate::mem_alloc_async::<PerThread>, Memory, "the same, null is the thread's stream";
        cuMemAllocFromPoolAsync(dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, stream: CUstream)
            => allocate::mem_alloc_from_pool_async::<Legacy>, Memory, "serves the default pool; other pools stay with the driver";
        cuMemAllocFromPoolAsync_ptsz(dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, stream: CUstream)
            => allocate::mem_alloc_from_pool_async::<PerThread>, Memory, "the same, null is the thread's stream";
        cuMemFreeAsync(dptr: CUdeviceptr, stream: CUstream)
            => allocate::mem_free_async::<Legacy>, Memory, "takes a block back in stream order";
        cuMemFreeAsync_ptsz(dptr: CUdeviceptr, stream: CUstream)
            => allocate::mem_free_async::<PerThread>, Memory, "the same, null is the thread's stream";
        // Pools: the default pool is ours, its figures too.
        cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool)
            => pool::device_set_mem_pool, Memory, "a device whose pool the program chose keeps that pool";
        cuMemSetMemPool(location: *mut CUmemLocation, kind: c_uint, pool: CUmemoryPool)
            => pool::mem_set_mem_pool, Memory, "the same by CUDA 13's name for it";
        cuMemPoolGetAttribute(pool: CUmemoryPool, attr: c_uint, value: *mut c_void)
            => pool::mem_pool_get_attribute, Memory, "adds our bytes to the default pool's figures";
        cuMemPoolSetAttribute(pool: CUmemoryPool, attr: c_uint, value: *mut c_void)
            => pool::mem_pool_set_attribute, Memory, "resets our high-water marks with the pool's";
        cuMemPoolTrimTo(pool: CUmemoryPool, min_bytes_to_keep: usize)
            => pool::mem_pool_trim_to, Memory, "gives our unused memory back with the pool's";
        cuMemPoolDestroy(pool: CUmemoryPool)
            => pool::mem_pool_destroy, Memory, "a device whose pool this was has its default pool again";
        cuMemPoolSetAccess(pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize)
            => pool::mem_pool_set_access, Memory, "lets peers reach our blocks as they reach the pool's";
        // Queries: our blocks answer like the driver's own memory.
        cuMemGetInfo_v2(free: *mut usize, total: *mut usize)
            => pointer::mem_get_info, Memory, "counts our unused memory as free";
        cuMemGetAddressRange_v2(pbase: *mut CUdeviceptr, psize: *mut usize, dptr: CUdeviceptr)
            => pointer::mem_get_address_range, Memory, "answers the block, not the mapping it is cut from";
        cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, ptr: CUdeviceptr)
            => pointer::pointer_get_attribute, Memory, "answers like device memory, whatever backs the block";
        cuPointerGetAttributes(num_attributes: c_uint, attributes: *mut c_uint, data: *mut *mut c_void, ptr: CUdeviceptr)
            => pointer::pointer_get_attributes, Memory, "the same for several attributes";
        cuPointerSetAttribute(value: *const c_void, attribute: c_uint, ptr: CUdeviceptr)
            => pointer::pointer_set_attribute, Memory, "synchronous copies for a block, by its context";
        cuMemRetainAllocationHandle(handle: *mut u64, addr: *mut c_void)
            => pointer::mem_retain_allocation_handle, Memory, "refused for our blocks, as for the driver's own memory: their handles are not the program's";
        // Peer access: mappings do not inherit it.
        cuCtxEnablePeerAccess(peer_context: CUcontext, flags: c_uint)
            => peer_access::ctx_enable_peer_access, Memory, "lets the peer reach our blocks too";
        // Sharing between processes: the driver refuses it for mapped memory.
        cuIpcGetMemHandle(p_handle: *mut CUipcMemHandle, dptr: CUdeviceptr)
            => sharing::ipc_get_mem_handle, Memory, "names a block of ours in a handle that other processes under the shim can open";
        cuIpcOpenMemHandle(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint)
            => sharing::ipc_open_mem_handle, Memory, "maps the block of another process under the shim";
        cuIpcOpenMemHandle_v2(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint)
            => sharing::ipc_open_mem_handle, Memory, "maps the block of another process under the shim";
        cuIpcCloseMemHandle(dptr: CUdeviceptr)
            => sharing::ipc_close_mem_handle, Memory, "unmaps it";
        // Streams: their kinds, their ends, and captures.
        cuStreamCreate(pstream: *mut CUstream, flags: c_uint)
            => stream::stream_create, Lifetimes, "a blocking stream can tell frees in the default stream";
        cuStreamCreateWithPriority(pstream: *mut CUstream, flags: c_uint, priority: c_int)
            => stream::stream_create_with_priority, Lifetimes, "a blocking stream can tell frees in the default stream";
        cuStreamDestroy(stream: CUstream)
            => stream::stream_destroy, Lifetimes, "blocks freed on the stream get an event that outlives it";
        cuStreamDestroy_v2(stream: CUstream)
            => stream::stream_destroy, Lifetimes, "blocks freed on the stream get an event that outlives it";
        cuStreamBeginCapture(stream: CUstream)
            => stream::stream_begin_capture::<symbol::cuStreamBeginCapture, Legacy>, Lifetimes, "a capture is under way: our calls keep away from it";
        cuStreamBeginCapture_ptsz(stream: CUstream)
            => stream::stream_begin_capture::<symbol::cuStreamBeginCapture_ptsz, PerThread>, Lifetimes, "a capture is under way: our calls keep away from it";
        cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint)
            => stream::stream_begin_capture_v2::<symbol::cuStreamBeginCapture_v2, Legacy>, Lifetimes, "a capture is under way: our calls keep away from it";
        cuStreamBeginCapture_v2_ptsz(stream: CUstream, mode: c_uint)
            => stream::stream_begin_capture_v2::<symbol::cuStreamBeginCapture_v2_ptsz, PerThread>, Lifetimes, "a capture is under way: our calls keep away from it";
        cuStreamBeginCaptureToGraph(stream: CUstream, h_graph: CUgraph, dependencies: *const CUgraphNode, dependency_data: *const c_void, num_dependencies: usize, mode: c_uint)
            => stream::stream_begin_capture_to_graph::<symbol::cuStreamBeginCaptureToGraph, Legacy>, Lifetimes, "a capture is under way: our calls keep away from it";
        cuStreamBeginCaptureToGraph_ptsz(stream: CUstream, h_graph: CUgraph, dependencies: *const CUgraphNode, dependency_data: *const c_void, num_dependencies: usize, mode: c_uint)
            => stream::stream_begin_capture_to_graph::<symbol::cuStreamBeginCaptureToGraph_ptsz, PerThread>, Lifetimes, "a capture is under way: our calls keep away from it";
        cuStreamEndCapture(stream: CUstream, p_graph: *mut CUgraph)
            => stream::stream_end_capture::<symbol::cuStreamEndCapture, Legacy>, Lifetimes, "a capture is over";
        cuStreamEndCapture_ptsz(stream: CUstream, p_graph: *mut CUgraph)
            => stream::stream_end_capture::<symbol::cuStreamEndCapture_ptsz, PerThread>, Lifetimes, "a capture is over";
        // Waits of the host.
        cuStreamSynchronize(stream: CUstream)
            => wait::stream_synchronize::<symbol::cuStreamSynchronize, Legacy>, Memory, "a pool gives back what is above its threshold; written into a trace; guarded blocks are looked at";
        cuStreamSynchronize_ptsz(stream: CUstream)
            => wait::stream_synchronize::<symbol::cuStreamSynchronize_ptsz, PerThread>, Memory, "a pool gives back what is above its threshold; written into a trace; guarded blocks are looked at";
        cuEventSynchronize(event: CUevent)
            => wait::event_synchronize, Memory, "a pool gives back what is above its threshold; guarded blocks are looked at";
        cuCtxSynchronize()
            => wait::ctx_synchronize, Memory, "a pool gives back what is above its threshold; written into a trace; guarded blocks are looked at";
        cuCtxSynchronize_v2(ctx: CUcontext)
            => wait::ctx_synchronize_v2, Memory, "a pool gives back what is above its threshold; written into a trace; guarded blocks are looked at";
        // Physical memory that the program makes itself; our blocks are not its to map.
        cuMemCreate(handle: *mut u64, size: usize, prop: *const CUmemAllocationProp, flags: u64)
            => physical::mem_create, Memory, "counted; where the device is full, PyTorch's goes on in host memory";
        cuMemRelease(handle: u64)
            => physical::mem_release, Memory, "counted";
        cuMemImportFromShareableHandle(handle: *mut u64, os_handle: *mut c_void, sh_handle_type: c_uint)
            => physical::mem_import_from_shareable_handle, Memory, "one more reference to memory that the program has already";
        cuMemExportToShareableHandle(shareable_handle: *mut c_void, handle: u64, handle_type: c_uint, flags: u64)
            => physical::mem_export_to_shareable_handle, Memory, "refused for what stands in for device memory, but to its maker";
        cuMemGetAllocationPropertiesFromHandle(prop: *mut CUmemAllocationProp, handle: u64)
            => physical::mem_get_allocation_properties_from_handle, Memory, "answers what was asked for, wherever the memory is";
        cuMemMap(ptr: CUdeviceptr, size: usize, offset: usize, handle: u64, flags: u64)
            => physical::mem_map, Memory, "remembers what is mapped where; refused on our blocks";
        cuMemUnmap(ptr: CUdeviceptr, size: usize)
            => physical::mem_unmap, Memory, "forgets it; refused on our blocks";
        cuMemSetAccess(ptr: CUdeviceptr, size: usize, desc: *const CUmemAccessDesc, count: usize)
            => physical::mem_set_access, Memory, "the CPU gets no access to what stands in for device memory; refused on our blocks";
        cuMemAddressFree(ptr: CUdeviceptr, size: usize)
            => physical::mem_address_free, Memory, "refused on our blocks; what lies unused there goes";
        cuMemHostGetDevicePointer_v2(pdptr: *mut CUdeviceptr, p: *mut c_void, flags: c_uint)
            => reserved::mem_host_get_device_pointer, Memory, "refused on our blocks, as on the driver's own memory";
        cuMemHostGetFlags(p_flags: *mut c_uint, p: *mut c_void)
            => reserved::mem_host_get_flags, Memory, "refused on our blocks, as on the driver's own memory";
        // Contexts: their ends.
        cuCtxDestroy(ctx: CUcontext)
            => context::ctx_destroy::<symbol::cuCtxDestroy>, Lifetimes, "the context's streams and events are forgotten";
        cuCtxDestroy_v2(ctx: CUcontext)
            => context::ctx_destroy::<symbol::cuCtxDestroy_v2>, Lifetimes, "the context's streams and events are forgotten";
        cuDevicePrimaryCtxRelease(dev: CUdevice)
            => context::device_primary_ctx_release::<symbol::cuDevicePrimaryCtxRelease>, Lifetimes, "after the last release, the device's blocks are given back";
        cuDevicePrimaryCtxRelease_v2(dev: CUdevice)
            => context::device_primary_ctx_release::<symbol::cuDevicePrimaryCtxRelease_v2>, Lifetimes, "after the last release, the device's blocks are given back";
        cuDevicePrimaryCtxReset(dev: CUdevice)
            => context::device_primary_ctx_reset::<symbol::cuDevicePrimaryCtxReset>, Lifetimes, "the device's blocks are given back";
        cuDevicePrimaryCtxReset_v2(dev: CUdevice)
            => context::device_primary_ctx_reset::<symbol::cuDevicePrimaryCtxReset_v2>, Lifetimes, "the device's blocks are given back";
        cuCtxAttach(pctx: *mut CUcontext, flags: c_uint)
            => context::ctx_attach, Lifetimes, "one user more, before whom the context does not end";
        cuCtxDetach(ctx: CUcontext)
            => context::ctx_detach, Lifetimes, "with the last user the context's streams and events are forgotten";
        cuCtxFromGreenCtx(p_context: *mut CUcontext, h_ctx: *mut c_void)
            => context::ctx_from_green_ctx, Lifetimes, "memory and events of a green context are those of the context that it is a part of";
        cuGreenCtxDestroy(h_ctx: *mut c_void)
            => context::green_ctx_destroy, Lifetimes, "blocks freed in its streams get an event that outlives it";
        // Copies: counted by path.
        cuMemcpyHtoD_v2(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize)
            => copies::memcpy_htod::<Legacy>, Always, "counted; a large one may be carried by threads, or over several links";
        cuMemcpyHtoD_v2_ptds(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize)
            => copies::memcpy_htod::<PerThread>, Always, "counted; a large one may be carried by threads, or over several links";
        cuMemcpyHtoDAsync_v2(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize, stream: CUstream)
            => copies::memcpy_htod_async::<Legacy>, Always, "counted; a large one may be carried by threads, or over several links";
        cuMemcpyHtoDAsync_v2_ptsz(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize, stream: CUstream)
            => copies::memcpy_htod_async::<PerThread>, Always, "counted; a large one may be carried by threads, or over several links";
        cuMemcpyDtoH_v2(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize)
            => copies::memcpy_dtoh::<Legacy>, Always, "counted; a large one may be carried by threads, or over several links";
        cuMemcpyDtoH_v2_ptds(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize)
            => copies::memcpy_dtoh::<PerThread>, Always, "counted; a large one may be carried by threads, or over several links";
        cuMemcpyDtoHAsync_v2(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize, stream: CUstream)
            => copies::memcpy_dtoh_async::<Legacy>, Always, "counted; a large one may be carried by threads, or over several links";
        cuMemcpyDtoHAsync_v2_ptsz(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize, stream: CUstream)
            => copies::memcpy_dtoh_async::<PerThread>, Always, "counted; a large one may be carried by threads, or over several links";
        cuMemcpyDtoD_v2(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize)
            => copies::memcpy_dtod::<Legacy>, Always, "counted";
        cuMemcpyDtoD_v2_ptds(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize)
            => copies::memcpy_dtod::<PerThread>, Always, "counted";
        cuMemcpyDtoDAsync_v2(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize, stream: CUstream)
            => copies::memcpy_dtod_async::<Legacy>, Always, "counted";
        cuMemcpyDtoDAsync_v2_ptsz(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize, stream: CUstream)
            => copies::memcpy_dtod_async::<PerThread>, Always, "counted";
        // Copies whose call has another form: those that may take several links, and all that a peer's blocks are opened for.
        cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize)
            => copies::memcpy::<Legacy>, Copies, "a large one may be carried by threads, or over several links; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy_ptds(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize)
            => copies::memcpy::<PerThread>, Copies, "a large one may be carried by threads, or over several links; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize, stream: CUstream)
            => copies::memcpy_async::<Legacy>, Copies, "a large one may be carried by threads, or over several links; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpyAsync_ptsz(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize, stream: CUstream)
            => copies::memcpy_async::<PerThread>, Copies, "a large one may be carried by threads, or over several links; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D)
            => copies::memcpy_2d::<symbol::cuMemcpy2D_v2, Legacy>, Copies, "one whose rows touch is a linear one; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy2D_v2_ptds(copy: *const CUDA_MEMCPY2D)
            => copies::memcpy_2d::<symbol::cuMemcpy2D_v2_ptds, PerThread>, Copies, "one whose rows touch is a linear one; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy2DUnaligned_v2(copy: *const CUDA_MEMCPY2D)
            => copies::memcpy_2d::<symbol::cuMemcpy2DUnaligned_v2, Legacy>, Copies, "one whose rows touch is a linear one; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy2DUnaligned_v2_ptds(copy: *const CUDA_MEMCPY2D)
            => copies::memcpy_2d::<symbol::cuMemcpy2DUnaligned_v2_ptds, PerThread>, Copies, "one whose rows touch is a linear one; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream)
            => copies::memcpy_2d_async::<symbol::cuMemcpy2DAsync_v2, Legacy>, Copies, "one whose rows touch is a linear one; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy2DAsync_v2_ptsz(copy: *const CUDA_MEMCPY2D, stream: CUstream)
            => copies::memcpy_2d_async::<symbol::cuMemcpy2DAsync_v2_ptsz, PerThread>, Copies, "one whose rows touch is a linear one; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpyBatchAsync(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, fail_idx: *mut usize, stream: CUstream)
            => batch::memcpy_batch_async::<symbol::cuMemcpyBatchAsync>, Copies, "large copies of it may be carried by threads, or over several links; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpyBatchAsync_ptsz(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, fail_idx: *mut usize, stream: CUstream)
            => batch::memcpy_batch_async::<symbol::cuMemcpyBatchAsync_ptsz>, Copies, "large copies of it may be carried by threads, or over several links; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpyBatchAsync_v2(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, stream: CUstream)
            => batch::memcpy_batch_async_v2::<symbol::cuMemcpyBatchAsync_v2>, Copies, "large copies of it may be carried by threads, or over several links; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpyBatchAsync_v2_ptsz(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, stream: CUstream)
            => batch::memcpy_batch_async_v2::<symbol::cuMemcpyBatchAsync_v2_ptsz>, Copies, "large copies of it may be carried by threads, or over several links; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy3D_v2(copy: *const CUDA_MEMCPY3D)
            => crossing::memcpy_3d::<symbol::cuMemcpy3D_v2, Legacy, _>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy3D_v2_ptds(copy: *const CUDA_MEMCPY3D)
            => crossing::memcpy_3d::<symbol::cuMemcpy3D_v2_ptds, PerThread, _>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D, stream: CUstream)
            => crossing::memcpy_3d_async::<symbol::cuMemcpy3DAsync_v2, Legacy, _>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy3DAsync_v2_ptsz(copy: *const CUDA_MEMCPY3D, stream: CUstream)
            => crossing::memcpy_3d_async::<symbol::cuMemcpy3DAsync_v2_ptsz, PerThread, _>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpyWithAttributesAsync(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, attributes: *mut CUmemcpyAttributes, stream: CUstream)
            => batch::memcpy_with_attributes_async::<symbol::cuMemcpyWithAttributesAsync, Legacy>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpyWithAttributesAsync_ptsz(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, attributes: *mut CUmemcpyAttributes, stream: CUstream)
            => batch::memcpy_with_attributes_async::<symbol::cuMemcpyWithAttributesAsync_ptsz, PerThread>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpyPeer(dst_device: CUdeviceptr, dst_context: CUcontext, src_device: CUdeviceptr, src_context: CUcontext, byte_count: usize)
            => crossing::memcpy_peer::<Legacy>, Copies, "parts at the border of tiers";
        cuMemcpyPeer_ptds(dst_device: CUdeviceptr, dst_context: CUcontext, src_device: CUdeviceptr, src_context: CUcontext, byte_count: usize)
            => crossing::memcpy_peer::<PerThread>, Copies, "parts at the border of tiers";
        cuMemcpyPeerAsync(dst_device: CUdeviceptr, dst_context: CUcontext, src_device: CUdeviceptr, src_context: CUcontext, byte_count: usize, stream: CUstream)
            => crossing::memcpy_peer_async::<Legacy>, Copies, "parts at the border of tiers";
        cuMemcpyPeerAsync_ptsz(dst_device: CUdeviceptr, dst_context: CUcontext, src_device: CUdeviceptr, src_context: CUcontext, byte_count: usize, stream: CUstream)
            => crossing::memcpy_peer_async::<PerThread>, Copies, "parts at the border of tiers";
        cuMemcpy3DPeer(copy: *const CUDA_MEMCPY3D_PEER)
            => crossing::memcpy_3d::<symbol::cuMemcpy3DPeer, Legacy, _>, Copies, "parts at the border of tiers";
        cuMemcpy3DPeer_ptds(copy: *const CUDA_MEMCPY3D_PEER)
            => crossing::memcpy_3d::<symbol::cuMemcpy3DPeer_ptds, PerThread, _>, Copies, "parts at the border of tiers";
        cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream)
            => crossing::memcpy_3d_async::<symbol::cuMemcpy3DPeerAsync, Legacy, _>, Copies, "parts at the border of tiers";
        cuMemcpy3DPeerAsync_ptsz(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream)
            => crossing::memcpy_3d_async::<symbol::cuMemcpy3DPeerAsync_ptsz, PerThread, _>, Copies, "parts at the border of tiers";
        cuMemcpy3DBatchAsync(num_ops: usize, op_list: *mut c_void, fail_idx: *mut usize, flags: u64, stream: CUstream)
            => batch_volumes::memcpy_3d_batch_async::<symbol::cuMemcpy3DBatchAsync>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy3DBatchAsync_ptsz(num_ops: usize, op_list: *mut c_void, fail_idx: *mut usize, flags: u64, stream: CUstream)
            => batch_volumes::memcpy_3d_batch_async::<symbol::cuMemcpy3DBatchAsync_ptsz>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy3DBatchAsync_v2(num_ops: usize, op_list: *mut c_void, flags: u64, stream: CUstream)
            => batch_volumes::memcpy_3d_batch_async_v2::<symbol::cuMemcpy3DBatchAsync_v2>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy3DBatchAsync_v2_ptsz(num_ops: usize, op_list: *mut c_void, flags: u64, stream: CUstream)
            => batch_volumes::memcpy_3d_batch_async_v2::<symbol::cuMemcpy3DBatchAsync_v2_ptsz>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy3DWithAttributesAsync(op: *mut c_void, flags: u64, stream: CUstream)
            => batch_volumes::memcpy_3d_with_attributes_async::<symbol::cuMemcpy3DWithAttributesAsync, Legacy>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy3DWithAttributesAsync_ptsz(op: *mut c_void, flags: u64, stream: CUstream)
            => batch_volumes::memcpy_3d_with_attributes_async::<symbol::cuMemcpy3DWithAttributesAsync_ptsz, PerThread>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        // Graphs: nodes that a program makes or changes itself.
        cuGraphAddMemcpyNode(node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, copy_params: *const CUDA_MEMCPY3D, ctx: CUcontext)
            => graph::graph_add_memcpy_node, Memory, "between devices, reaches blocks without peer access, and parts at the border of tiers; names a block's context";
        cuGraphAddMemsetNode(node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, memset_params: *const CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext)
            => graph::graph_add_memset_node, Memory, "names a block's context";
        cuGraphAddNode(node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, node_params: *mut c_void)
            => graph::graph_add_node::<symbol::cuGraphAddNode>, Memory, "the same for a copy; names a block's context";
        cuGraphAddNode_v2(node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, dependency_data: *const c_void, num_dependencies: usize, node_params: *mut c_void)
            => graph::graph_add_node_v2::<symbol::cuGraphAddNode_v2>, Memory, "the same for a copy; names a block's context";
        cuGraphMemcpyNodeSetParams(h_node: CUgraphNode, node_params: *const CUDA_MEMCPY3D)
            => graph::graph_memcpy_node_set_params, Memory, "between devices, reaches blocks without peer access";
        cuGraphNodeSetParams(h_node: CUgraphNode, node_params: *mut c_void)
            => graph::graph_node_set_params::<symbol::cuGraphNodeSetParams>, Memory, "the same for a copy; names a block's context";
        cuGraphExecMemcpyNodeSetParams(h_graph_exec: CUgraphExec, h_node: CUgraphNode, copy_params: *const CUDA_MEMCPY3D, ctx: CUcontext)
            => graph::graph_exec_memcpy_node_set_params, Memory, "the same for a copy; names a block's context";
        cuGraphExecMemsetNodeSetParams(h_graph_exec: CUgraphExec, h_node: CUgraphNode, memset_params: *const CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext)
            => graph::graph_exec_memset_node_set_params, Memory, "names a block's context";
        cuGraphExecNodeSetParams(h_graph_exec: CUgraphExec, h_node: CUgraphNode, node_params: *mut c_void)
            => graph::graph_exec_node_set_params, Memory, "the same for a copy; names a block's context";
    }
    retry {
        cuModuleLoad(module: *mut CUmodule, fname: *const c_char): "loading code takes device memory";
        cuModuleLoadData(module: *mut CUmodule, image: *const c_void): "loading code takes device memory";
        cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, num_options: c_uint, options: *mut c_uint, option_values: *mut *mut c_void): "loading code takes device memory";
        cuModuleLoadFatBinary(module: *mut CUmodule, fat_cubin: *const c_void): "loading code takes device memory";
        cuLibraryLoadData(library: *mut CUlibrary, code: *const c_void, jit_options: *mut c_uint, jit_options_values: *mut *mut c_void, num_jit_options: c_uint, library_options: *mut c_uint, library_option_values: *mut *mut c_void, num_library_options: c_uint): "loading code takes device memory";
        cuLibraryLoadFromFile(library: *mut CUlibrary, file_name: *const c_char, jit_options: *mut c_uint, jit_options_values: *mut *mut c_void, num_jit_options: c_uint, library_options: *mut c_uint, library_option_values: *mut *mut c_void, num_library_options: c_uint): "loading code takes device memory";
        cuLaunchKernel(f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, stream: CUstream, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) in stream: "a first launch loads code and grows local memory";
        cuLaunchKernel_ptsz(f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, stream: CUstream, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) in stream: "a first launch loads code and grows local memory";
        cuLaunchKernelEx(config: *const CUlaunchConfig, f: CUfunction, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) in config: "a first launch loads code and grows local memory";
        cuLaunchKernelEx_ptsz(config: *const CUlaunchConfig, f: CUfunction, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) in config: "a first launch loads code and grows local memory";
        cuLaunchCooperativeKernel(f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, stream: CUstream, kernel_params: *mut *mut c_void) in stream: "a first launch loads code and grows local memory";
        cuLaunchCooperativeKernel_ptsz(f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, stream: CUstream, kernel_params: *mut *mut c_void) in stream: "a first launch loads code and grows local memory";
        cuMemAllocManaged(dptr: *mut CUdeviceptr, bytesize: usize, flags: c_uint): "memory that stays with the driver";
        cuArrayCreate_v2(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY_DESCRIPTOR): "memory that stays with the driver";
        cuArray3DCreate_v2(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR): "memory that stays with the driver";
        cuMipmappedArrayCreate(p_handle: *mut CUmipmappedArray, p_mipmapped_array_desc: *const CUDA_ARRAY3D_DESCRIPTOR, num_mipmap_levels: c_uint): "memory that stays with the driver";
        cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice): "contexts, streams and events live in device memory";
        cuCtxCreate(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice): "contexts, streams and events live in device memory";
        cuCtxCreate_v2(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice): "contexts, streams and events live in device memory";
        cuCtxCreate_v3(pctx: *mut CUcontext, params_array: *mut c_void, num_params: c_int, flags: c_uint, dev: CUdevice): "contexts, streams and events live in device memory";
        cuCtxCreate_v4(pctx: *mut CUcontext, ctx_create_params: *mut c_void, flags: c_uint, dev: CUdevice): "contexts, streams and events live in device memory";
        cuEventCreate(p_event: *mut CUevent, flags: c_uint): "contexts, streams and events live in device memory";
        cuGraphInstantiate(p_grap_exec: *mut CUgraphExec, h_graph: CUgraph, p_error_node: *mut CUgraphNode, log_buffer: *mut c_char, buffer_size: usize): "an instantiated graph and its memory nodes live in device memory";
        cuGraphInstantiate_v2(p_grap_exec: *mut CUgraphExec, h_graph: CUgraph, p_error_node: *mut CUgraphNode, log_buffer: *mut c_char, buffer_size: usize): "an instantiated graph and its memory nodes live in device memory";
        cuGraphInstantiateWithFlags(p_grap_exec: *mut CUgraphExec, h_graph: CUgraph, flags: u64): "an instantiated graph and its memory nodes live in device memory";
        cuGraphInstantiateWithParams(p_grap_exec: *mut CUgraphExec, h_graph: CUgraph, instantiate_params: *mut c_void): "an instantiated graph and its memory nodes live in device memory";
        cuGraphInstantiateWithParams_ptsz(p_grap_exec: *mut CUgraphExec, h_graph: CUgraph, instantiate_params: *mut c_void): "an instantiated graph and its memory nodes live in device memory";
        cuGraphLaunch(h_graph: CUgraphExec, stream: CUstream) in stream: "an instantiated graph and its memory nodes live in device memory";
        cuGraphLaunch_ptsz(h_graph: CUgraphExec, stream: CUstream) in stream: "an instantiated graph and its memory nodes live in device memory";
        cuGraphUpload(h_graph: CUgraphExec, stream: CUstream) in stream: "an instantiated graph and its memory nodes live in device memory";
        cuGraphUpload_ptsz(h_graph: CUgraphExec, stream: CUstream) in stream: "an instantiated graph and its memory nodes live in device memory";
        // What may be the first to work in a per-thread default stream that is named by its handle.
        cuMemsetD8Async(dst_device: CUdeviceptr, uc: u8, n: usize, stream: CUstream) in stream: "sees per-thread default streams";
        cuMemsetD16Async(dst_device: CUdeviceptr, us: u16, n: usize, stream: CUstream) in stream: "sees per-thread default streams";
        cuMemsetD32Async(dst_device: CUdeviceptr, ui: c_uint, n: usize, stream: CUstream) in stream: "sees per-thread default streams";
        cuMemsetD2D8Async(dst_device: CUdeviceptr, dst_pitch: usize, uc: u8, width: usize, height: usize, stream: CUstream) in stream: "sees per-thread default streams";
        cuMemsetD2D16Async(dst_device: CUdeviceptr, dst_pitch: usize, us: u16, width: usize, height: usize, stream: CUstream) in stream: "sees per-thread default streams";
        cuMemsetD2D32Async(dst_device: CUdeviceptr, dst_pitch: usize, ui: c_uint, width: usize, height: usize, stream: CUstream) in stream: "sees per-thread default streams";
        cuEventRecord(h_event: CUevent, stream: CUstream) in stream: "sees per-thread default streams";
        cuEventRecordWithFlags(h_event: CUevent, stream: CUstream, flags: c_uint) in stream: "sees per-thread default streams";
        cuStreamWaitEvent(stream: CUstream, h_event: CUevent, flags: c_uint) in stream: "sees per-thread default streams";
        cuLaunchHostFunc(stream: CUstream, fn_: *mut c_void, user_data: *mut c_void) in stream: "sees per-thread default streams";
        cuLaunchHostFunc_v2(stream: CUstream, fn_: *mut c_void, user_data: *mut c_void, sync_mode: c_uint) in stream: "sees per-thread default streams";
        cuStreamAddCallback(stream: CUstream, callback: *mut c_void, user_data: *mut c_void, flags: c_uint) in stream: "sees per-thread default streams";
        cuStreamWaitValue32(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) in stream: "sees per-thread default streams";
        cuStreamWaitValue64(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) in stream: "sees per-thread default streams";
        cuStreamWriteValue32(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) in stream: "sees per-thread default streams";
        cuStreamWriteValue64(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) in stream: "sees per-thread default streams";
        cuStreamBatchMemOp(stream: CUstream, count: c_uint, param_array: *mut c_void, flags: c_uint) in stream: "sees per-thread default streams";
        cuStreamWaitValue32_v2(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) in stream: "sees per-thread default streams";
        cuStreamWaitValue64_v2(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) in stream: "sees per-thread default streams";
        cuStreamWriteValue32_v2(stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint) in stream: "sees per-thread default streams";
        cuStreamWriteValue64_v2(stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint) in stream: "sees per-thread default streams";
        cuStreamBatchMemOp_v2(stream: CUstream, count: c_uint, param_array: *mut c_void, flags: c_uint) in stream: "sees per-thread default streams";
        cuMemcpyAtoHAsync_v2(dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize, stream: CUstream) in stream: "sees per-thread default streams";
        cuMemcpyHtoAAsync_v2(dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize, stream: CUstream) in stream: "sees per-thread default streams";
        cuMemPrefetchAsync(dev_ptr: CUdeviceptr, count: usize, dst_device: CUdevice, stream: CUstream) in stream: "sees per-thread default streams";
        cuMemPrefetchAsync_v2(dev_ptr: CUdeviceptr, count: usize, location: CUmemLocation, flags: c_uint, stream: CUstream) in stream: "sees per-thread default streams";
    }
}
