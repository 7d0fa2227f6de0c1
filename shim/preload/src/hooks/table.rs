// The rows of `hooks!`. To intercept a function, add a row; `wmctl hooks` prints them.

hooks! {
    serve {
        // The first call.
        cuInit
            => initialise::init, Always, "after it succeeded, opens the statistics endpoint";
        // Look-up by name: the program gets our exports, the driver keeps its rules.
        cuGetProcAddress
            => lookup::get_proc_address, Always, "maps the pointer that the driver answers to our export of the same function";
        cuGetProcAddress_v2, cuGetProcAddress_v2_ptsz
            => lookup::get_proc_address_v2, Always, "maps the pointer that the driver answers to our export of the same function";
        // Device memory: given and taken back.
        cuMemAlloc_v2
            => allocate::mem_alloc, Memory, "serves device memory that does not fragment and may exceed the device";
        cuMemAllocPitch_v2
            => allocate::mem_alloc_pitch, Memory, "the same for rows of equal distance";
        cuMemFree_v2
            => allocate::mem_free, Memory, "takes a block back once the work of its context is over, as the driver does";
        cuMemAllocAsync
            => allocate::mem_alloc_async::<NullStream>, Memory, "serves device memory in stream order";
        cuMemAllocAsync_ptsz
            => allocate::mem_alloc_async::<NullStream>, Memory, "the same, null is the thread's stream";
        cuMemAllocFromPoolAsync
            => allocate::mem_alloc_from_pool_async::<NullStream>, Memory, "serves the default pool; other pools stay with the driver";
        cuMemAllocFromPoolAsync_ptsz
            => allocate::mem_alloc_from_pool_async::<NullStream>, Memory, "the same, null is the thread's stream";
        cuMemFreeAsync
            => allocate::mem_free_async::<NullStream>, Memory, "takes a block back in stream order";
        cuMemFreeAsync_ptsz
            => allocate::mem_free_async::<NullStream>, Memory, "the same, null is the thread's stream";
        // Pools: the default pool is ours, its figures too.
        cuDeviceSetMemPool
            => pool::device_set_mem_pool, Memory, "a device whose pool the program chose keeps that pool";
        cuMemSetMemPool
            => pool::mem_set_mem_pool, Memory, "the same by CUDA 13's name for it";
        cuMemPoolGetAttribute
            => pool::mem_pool_get_attribute, Memory, "adds our bytes to the default pool's figures";
        cuMemPoolSetAttribute
            => pool::mem_pool_set_attribute, Memory, "resets our high-water marks with the pool's";
        cuMemPoolTrimTo
            => pool::mem_pool_trim_to, Memory, "gives our unused memory back with the pool's";
        cuMemPoolDestroy
            => pool::mem_pool_destroy, Memory, "a device whose pool this was has its default pool again";
        cuMemPoolSetAccess
            => pool::mem_pool_set_access, Memory, "lets peers reach our blocks as they reach the pool's";
        // Queries: our blocks answer like the driver's own memory.
        cuMemGetInfo_v2
            => pointer::mem_get_info, Memory, "counts our unused memory as free";
        cuMemGetAddressRange_v2
            => pointer::mem_get_address_range, Memory, "answers the block, not the mapping it is cut from";
        cuPointerGetAttribute
            => pointer::pointer_get_attribute, Memory, "answers like device memory, whatever backs the block";
        cuPointerGetAttributes
            => pointer::pointer_get_attributes, Memory, "the same for several attributes";
        cuPointerSetAttribute
            => pointer::pointer_set_attribute, Memory, "synchronous copies for a block, by its context";
        cuMemRetainAllocationHandle
            => pointer::mem_retain_allocation_handle, Memory, "refused for our blocks, as for the driver's own memory: their handles are not the program's";
        // Peer access: mappings do not inherit it.
        cuCtxEnablePeerAccess
            => peer_access::ctx_enable_peer_access, Memory, "lets the peer reach our blocks too";
        // Sharing between processes: the driver refuses it for mapped memory.
        cuIpcGetMemHandle
            => sharing::ipc_get_mem_handle, Memory, "names a block of ours, or pieces of an expandable segment that the library chose, in a handle that other processes under the shim can open";
        cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2
            => sharing::ipc_open_mem_handle, Memory, "maps the block of another process under the shim";
        cuIpcCloseMemHandle
            => sharing::ipc_close_mem_handle, Memory, "unmaps it";
        // Streams: their kinds, their ends, and captures.
        cuStreamCreate
            => stream::stream_create, Lifetimes, "a blocking stream can tell frees in the default stream";
        cuStreamCreateWithPriority
            => stream::stream_create_with_priority, Lifetimes, "a blocking stream can tell frees in the default stream";
        cuStreamDestroy, cuStreamDestroy_v2
            => stream::stream_destroy, Lifetimes, "blocks freed on the stream get an event that outlives it";
        cuStreamBeginCapture, cuStreamBeginCapture_ptsz
            => stream::stream_begin_capture::<Function, NullStream>, Lifetimes, "a capture is under way: our calls keep away from it";
        cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz
            => stream::stream_begin_capture_v2::<Function, NullStream>, Lifetimes, "a capture is under way: our calls keep away from it";
        cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz
            => stream::stream_begin_capture_to_graph::<Function, NullStream>, Lifetimes, "a capture is under way: our calls keep away from it";
        cuStreamBeginRecaptureToGraph, cuStreamBeginRecaptureToGraph_ptsz
            => stream::stream_begin_recapture_to_graph::<Function, NullStream>, Lifetimes, "a capture is under way: our calls keep away from it";
        cuStreamBeginCaptureToCig, cuStreamBeginCaptureToCig_ptsz
            => stream::stream_begin_capture_to_cig::<Function, NullStream>, Lifetimes, "a capture is under way: our calls keep away from it";
        cuStreamEndCapture, cuStreamEndCapture_ptsz
            => stream::stream_end_capture::<Function, NullStream>, Lifetimes, "a capture is over";
        cuStreamEndCaptureToCig, cuStreamEndCaptureToCig_ptsz
            => stream::stream_end_capture_to_cig::<Function, NullStream>, Lifetimes, "a capture is over";
        // Waits of the host.
        cuStreamSynchronize, cuStreamSynchronize_ptsz
            => wait::stream_synchronize::<Function, NullStream>, Memory, "a pool gives back what is above its threshold; written into a trace; guarded blocks are looked at";
        cuStreamQuery, cuStreamQuery_ptsz
            => wait::stream_query::<Function, NullStream>, Memory, "what was freed in a stream that has nothing left to do is past";
        cuEventSynchronize
            => wait::event_synchronize, Memory, "a pool gives back what is above its threshold; guarded blocks are looked at";
        cuCtxSynchronize
            => wait::ctx_synchronize, Memory, "a pool gives back what is above its threshold; written into a trace; guarded blocks are looked at";
        cuCtxSynchronize_v2
            => wait::ctx_synchronize_v2, Memory, "a pool gives back what is above its threshold; written into a trace; guarded blocks are looked at";
        // Physical memory that the program makes itself; our blocks are not its to map.
        cuMemCreate
            => physical::mem_create, Memory, "counted; where the device is full, it goes on in host memory, unless its maker needs the device";
        cuMemRelease
            => physical::mem_release, Memory, "counted";
        cuMemImportFromShareableHandle
            => physical::mem_import_from_shareable_handle, Memory, "one more reference to memory that the program has already; other memory is known by where it lies";
        cuMemExportToShareableHandle
            => passed_on::mem_export_to_shareable_handle, Memory, "what stands in for device memory becomes it, or is out of memory, but to PyTorch";
        cuMulticastBindMem
            => passed_on::multicast_bind_mem, Memory, "memory that is bound is not kept for other pieces";
        cuMulticastBindMem_v2
            => passed_on::multicast_bind_mem_v2, Memory, "the same";
        cuLogicalEndpointBindMem
            => passed_on::logical_endpoint_bind_mem, Memory, "the same";
        cuMulticastBindAddr
            => passed_on::multicast_bind_addr, Memory, "the same by its address";
        cuMulticastBindAddr_v2
            => passed_on::multicast_bind_addr_v2, Memory, "the same by its address";
        cuMemGetHandleForAddressRange
            => passed_on::mem_get_handle_for_address_range, Memory, "memory that others get by a descriptor is not kept for other pieces";
        cuMemGetAllocationPropertiesFromHandle
            => physical::mem_get_allocation_properties_from_handle, Memory, "answers what was asked for, wherever the memory is";
        cuMemMap
            => physical::mem_map, Memory, "remembers what is mapped where; refused on our blocks";
        cuMemUnmap
            => physical::mem_unmap, Memory, "forgets it; refused on our blocks";
        cuMemSetAccess
            => physical::mem_set_access, Memory, "the CPU gets no access to what stands in for device memory; refused on our blocks";
        cuMemGetAccess
            => granted::mem_get_access, Memory, "answers what was granted, while shared memory can only be read";
        cuMemAddressReserve
            => address_ranges::mem_address_reserve, Memory, "the end of a segment of PyTorch's is known: a request that has no room there is refused; what fills a range is one object";
        cuMemAddressFree
            => address_ranges::mem_address_free, Memory, "refused on our blocks; what lies unused there goes";
        cuMemHostGetDevicePointer_v2
            => reserved::mem_host_get_device_pointer, Memory, "refused on our blocks, as on the driver's own memory";
        cuMemHostGetFlags
            => reserved::mem_host_get_flags, Memory, "refused on our blocks, as on the driver's own memory";
        // Contexts: their ends.
        cuCtxDestroy, cuCtxDestroy_v2
            => context::ctx_destroy::<Function>, Lifetimes, "the context's streams and events are forgotten";
        cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2
            => context::device_primary_ctx_release::<Function>, Lifetimes, "after the last release, the device's blocks are given back";
        cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2
            => context::device_primary_ctx_reset::<Function>, Lifetimes, "the device's blocks are given back";
        cuCtxAttach
            => context::ctx_attach, Lifetimes, "one user more, before whom the context does not end";
        cuCtxDetach
            => context::ctx_detach, Lifetimes, "with the last user the context's streams and events are forgotten";
        cuCtxFromGreenCtx
            => context::ctx_from_green_ctx, Lifetimes, "memory and events of a green context are those of the context that it is a part of";
        cuGreenCtxDestroy
            => context::green_ctx_destroy, Lifetimes, "blocks freed in its streams get an event that outlives it";
        // Code: which handles launches name, and when handles may come again.
        cuLibraryGetKernel
            => code::library_get_kernel, Memory, "a launch that names the kernel is asked for its parameters, where launches are recorded";
        cuLibraryEnumerateKernels
            => code::library_enumerate_kernels, Memory, "the same for all of a library's kernels";
        cuKernelGetFunction
            => code::kernel_get_function, Memory, "the function is of the same code, where memory is shared";
        cuLibraryGetModule
            => code::library_get_module, Memory, "the same for a module";
        cuModuleLoadData
            => code::module_load_data, Memory, "loading code takes device memory; the code is hashed where memory is shared, so that what is learned of its kernels holds in every process";
        cuModuleLoadFatBinary
            => code::module_load_fat_binary, Memory, "the same";
        cuModuleLoadDataEx
            => code::module_load_data_ex, Memory, "the same";
        cuLibraryLoadData
            => code::library_load_data, Memory, "the same for a library";
        cuLibraryUnload
            => code::library_unload, Memory, "parameters of its kernels are forgotten";
        cuModuleUnload
            => code::module_unload, Memory, "parameters of its functions are forgotten";
        // Copies: counted by path.
        cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds
            => linear::memcpy_htod::<NullStream>, Always, "counted; a large one may be carried by threads, or over several links";
        cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz
            => linear::memcpy_htod_async::<NullStream>, Always, "counted; a large one may be carried by threads, or over several links";
        cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds
            => linear::memcpy_dtoh::<NullStream>, Always, "counted; a large one may be carried by threads, or over several links";
        cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz
            => linear::memcpy_dtoh_async::<NullStream>, Always, "counted; a large one may be carried by threads, or over several links";
        cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds
            => linear::memcpy_dtod::<NullStream>, Always, "counted";
        cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz
            => linear::memcpy_dtod_async::<NullStream>, Always, "counted";
        // Copies whose call has another form: those that may take several links, and all that a
        // peer's blocks are opened for.
        cuMemcpy, cuMemcpy_ptds
            => linear::memcpy::<NullStream>, Copies, "a large one may be carried by threads, or over several links; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpyAsync, cuMemcpyAsync_ptsz
            => linear::memcpy_async::<NullStream>, Copies, "a large one may be carried by threads, or over several links; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds
            => shaped::memcpy_2d::<Function, NullStream>, Copies, "one whose rows touch is a linear one; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz
            => shaped::memcpy_2d_async::<Function, NullStream>, Copies, "one whose rows touch is a linear one; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz
            => batch::memcpy_batch_async::<Function>, Copies, "large copies of it may be carried by threads, or over several links; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz
            => batch::memcpy_batch_async_v2::<Function>, Copies, "large copies of it may be carried by threads, or over several links; between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy3D_v2, cuMemcpy3D_v2_ptds
            => shaped::memcpy_3d::<Function, NullStream, _>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz
            => shaped::memcpy_3d_async::<Function, NullStream, _>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync_ptsz
            => batch::memcpy_with_attributes_async::<Function, NullStream>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpyPeer, cuMemcpyPeer_ptds
            => shaped::memcpy_peer::<NullStream>, Copies, "parts at the border of tiers";
        cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz
            => shaped::memcpy_peer_async::<NullStream>, Copies, "parts at the border of tiers";
        cuMemcpy3DPeer, cuMemcpy3DPeer_ptds
            => shaped::memcpy_3d::<Function, NullStream, _>, Copies, "parts at the border of tiers";
        cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz
            => shaped::memcpy_3d_async::<Function, NullStream, _>, Copies, "parts at the border of tiers";
        cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_ptsz
            => batch_volumes::memcpy_3d_batch_async::<Function>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync_v2_ptsz
            => batch_volumes::memcpy_3d_batch_async_v2::<Function>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync_ptsz
            => batch_volumes::memcpy_3d_with_attributes_async::<Function, NullStream>, Copies, "between devices, reaches blocks without peer access, and parts at the border of tiers";
        // Graphs: nodes that a program makes or changes itself.
        cuGraphAddMemcpyNode
            => graph::graph_add_memcpy_node, Memory, "between devices, reaches blocks without peer access, and parts at the border of tiers; names a block's context";
        cuGraphAddMemsetNode
            => graph::graph_add_memset_node, Memory, "names a block's context";
        cuGraphAddMemAllocNode
            => graph::graph_add_mem_alloc_node, Memory, "where its device is full, unused memory of ours is given back for it";
        cuGraphAddNode
            => graph::graph_add_node::<Function>, Memory, "the same for a copy; names a block's context";
        cuGraphAddNode_v2
            => graph::graph_add_node_v2::<Function>, Memory, "the same for a copy; names a block's context";
        cuGraphMemcpyNodeSetParams
            => graph::graph_memcpy_node_set_params, Memory, "between devices, reaches blocks without peer access";
        cuGraphNodeSetParams
            => graph::graph_node_set_params::<Function>, Memory, "the same for a copy; names a block's context";
        cuGraphExecMemcpyNodeSetParams
            => graph::graph_exec_memcpy_node_set_params, Memory, "the same for a copy; names a block's context";
        cuGraphExecMemsetNodeSetParams
            => graph::graph_exec_memset_node_set_params, Memory, "names a block's context";
        cuGraphExecNodeSetParams
            => graph::graph_exec_node_set_params, Memory, "the same for a copy; names a block's context";
    }
    retry {
        cuModuleLoad, cuLibraryLoadFromFile
            => "loading code takes device memory";
        cuLaunchKernel, cuLaunchKernel_ptsz, cuLaunchKernelEx, cuLaunchKernelEx_ptsz, cuLaunchCooperativeKernel,
        cuLaunchCooperativeKernel_ptsz
            => "a first launch loads code and grows local memory; the blocks that its parameters point into are written into a trace";
        cuMemAllocManaged, cuArrayCreate_v2, cuArray3DCreate_v2, cuMipmappedArrayCreate
            => "memory that stays with the driver";
        cuDevicePrimaryCtxRetain, cuCtxCreate, cuCtxCreate_v2, cuCtxCreate_v3, cuCtxCreate_v4, cuEventCreate
            => "contexts, streams and events live in device memory";
        cuGraphInstantiate, cuGraphInstantiate_v2, cuGraphInstantiateWithFlags, cuGraphInstantiateWithParams,
        cuGraphInstantiateWithParams_ptsz, cuGraphLaunch, cuGraphLaunch_ptsz, cuGraphUpload, cuGraphUpload_ptsz
            => "an instantiated graph and its memory nodes live in device memory";
        // These may be the first to work in a per-thread default stream named by its handle.
        cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async, cuMemsetD2D8Async, cuMemsetD2D16Async, cuMemsetD2D32Async,
        cuEventRecord, cuEventRecordWithFlags, cuStreamWaitEvent, cuLaunchHostFunc, cuLaunchHostFunc_v2,
        cuStreamAddCallback, cuStreamWaitValue32, cuStreamWaitValue64, cuStreamWriteValue32, cuStreamWriteValue64,
        cuStreamBatchMemOp, cuStreamWaitValue32_v2, cuStreamWaitValue64_v2, cuStreamWriteValue32_v2,
        cuStreamWriteValue64_v2, cuStreamBatchMemOp_v2, cuMemcpyAtoHAsync_v2, cuMemcpyHtoAAsync_v2, cuMemPrefetchAsync,
        cuMemPrefetchAsync_v2
            => "sees per-thread default streams";
    }
}
