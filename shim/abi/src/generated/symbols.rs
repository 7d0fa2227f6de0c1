// Written by `cargo run -p xtask -- generate` from shim/abi/data/driver.tsv. Do not edit.

symbol!(0, cuArray3DCreate, (pHandle: *mut CUarray, pAllocateArray: *const c_void));
symbol!(1, cuArray3DCreate_v2, (pHandle: *mut CUarray, pAllocateArray: *const CUDA_ARRAY3D_DESCRIPTOR));
symbol!(2, cuArray3DGetDescriptor, (pArrayDescriptor: *mut c_void, hArray: CUarray));
symbol!(3, cuArray3DGetDescriptor_v2, (pArrayDescriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, hArray: CUarray));
symbol!(4, cuArrayCreate, (pHandle: *mut CUarray, pAllocateArray: *const c_void));
symbol!(5, cuArrayCreate_v2, (pHandle: *mut CUarray, pAllocateArray: *const CUDA_ARRAY_DESCRIPTOR));
symbol!(6, cuArrayDestroy, (hArray: CUarray));
symbol!(7, cuArrayGetDescriptor, (pArrayDescriptor: *mut c_void, hArray: CUarray));
symbol!(8, cuArrayGetDescriptor_v2, (pArrayDescriptor: *mut CUDA_ARRAY_DESCRIPTOR, hArray: CUarray));
symbol!(9, cuArrayGetMemoryRequirements, (memoryRequirements: *mut c_void, array: CUarray, device: CUdevice));
symbol!(10, cuArrayGetPlane, (pPlaneArray: *mut CUarray, hArray: CUarray, planeIdx: c_uint));
symbol!(11, cuArrayGetSparseProperties, (sparseProperties: *mut c_void, array: CUarray));
symbol!(12, cuCheckpointOperationComplete, (handle: *mut c_void));
symbol!(13, cuCheckpointProcessCheckpoint, (pid: c_int, args: *mut c_void));
symbol!(14, cuCheckpointProcessGetRestoreThreadId, (pid: c_int, tid: *mut c_int));
symbol!(15, cuCheckpointProcessGetState, (pid: c_int, state: *mut c_uint));
symbol!(16, cuCheckpointProcessLock, (pid: c_int, args: *mut c_void));
symbol!(17, cuCheckpointProcessRestore, (pid: c_int, args: *mut c_void));
symbol!(18, cuCheckpointProcessUnlock, (pid: c_int, args: *mut c_void));
symbol!(19, cuCoredumpDeregisterCompleteCallback, (callback: *mut c_void));
symbol!(20, cuCoredumpDeregisterStartCallback, (callback: *mut c_void));
symbol!(21, cuCoredumpGetAttribute, (attrib: c_uint, value: *mut c_void, size: *mut usize));
symbol!(22, cuCoredumpGetAttributeGlobal, (attrib: c_uint, value: *mut c_void, size: *mut usize));
symbol!(23, cuCoredumpRegisterCompleteCallback, (callback: *mut c_void, userData: *mut c_void, callbackOut: *mut c_void));
symbol!(24, cuCoredumpRegisterStartCallback, (callback: *mut c_void, userData: *mut c_void, callbackOut: *mut c_void));
symbol!(25, cuCoredumpSetAttribute, (attrib: c_uint, value: *mut c_void, size: *mut usize));
symbol!(26, cuCoredumpSetAttributeGlobal, (attrib: c_uint, value: *mut c_void, size: *mut usize));
symbol!(27, cuCtxAttach, (pctx: *mut CUcontext, flags: c_uint));
symbol!(28, cuCtxCreate, (pctx: *mut CUcontext, flags: c_uint, dev: CUdevice));
symbol!(29, cuCtxCreate_v2, (pctx: *mut CUcontext, flags: c_uint, dev: CUdevice));
symbol!(30, cuCtxCreate_v3, (pctx: *mut CUcontext, paramsArray: *mut c_void, numParams: c_int, flags: c_uint, dev: CUdevice));
symbol!(31, cuCtxCreate_v4, (pctx: *mut CUcontext, ctxCreateParams: *mut c_void, flags: c_uint, dev: CUdevice));
symbol!(32, cuCtxDestroy, (ctx: CUcontext));
symbol!(33, cuCtxDestroy_v2, (ctx: CUcontext));
symbol!(34, cuCtxDetach, (ctx: CUcontext));
symbol!(35, cuCtxDisablePeerAccess, (peerContext: CUcontext));
symbol!(36, cuCtxEnablePeerAccess, (peerContext: CUcontext, Flags: c_uint));
symbol!(37, cuCtxFromGreenCtx, (pContext: *mut CUcontext, hCtx: *mut c_void));
symbol!(38, cuCtxGetApiVersion, (ctx: CUcontext, version: *mut c_uint));
symbol!(39, cuCtxGetCacheConfig, (pconfig: *mut c_uint));
symbol!(40, cuCtxGetCurrent, (pctx: *mut CUcontext));
symbol!(41, cuCtxGetDevResource, (hCtx: CUcontext, resource: *mut c_void, type_: c_uint));
symbol!(42, cuCtxGetDevice, (device: *mut CUdevice));
symbol!(43, cuCtxGetDevice_v2, (device: *mut CUdevice, ctx: CUcontext));
symbol!(44, cuCtxGetExecAffinity, (pExecAffinity: *mut c_void, type_: c_uint));
symbol!(45, cuCtxGetFlags, (flags: *mut c_uint));
symbol!(46, cuCtxGetId, (ctx: CUcontext, ctxId: *mut u64));
symbol!(47, cuCtxGetLimit, (pvalue: *mut usize, limit: c_uint));
symbol!(48, cuCtxGetSharedMemConfig, (pConfig: *mut c_uint));
symbol!(49, cuCtxGetStreamPriorityRange, (leastPriority: *mut c_int, greatestPriority: *mut c_int));
symbol!(50, cuCtxPopCurrent, (pctx: *mut CUcontext));
symbol!(51, cuCtxPopCurrent_v2, (pctx: *mut CUcontext));
symbol!(52, cuCtxPushCurrent, (ctx: CUcontext));
symbol!(53, cuCtxPushCurrent_v2, (ctx: CUcontext));
symbol!(54, cuCtxRecordEvent, (hCtx: CUcontext, hEvent: CUevent));
symbol!(55, cuCtxResetPersistingL2Cache, ());
symbol!(56, cuCtxSetCacheConfig, (config: c_uint));
symbol!(57, cuCtxSetCurrent, (ctx: CUcontext));
symbol!(58, cuCtxSetFlags, (flags: c_uint));
symbol!(59, cuCtxSetLimit, (limit: c_uint, value: usize));
symbol!(60, cuCtxSetSharedMemConfig, (config: c_uint));
symbol!(61, cuCtxSynchronize, ());
symbol!(62, cuCtxSynchronize_v2, (ctx: CUcontext));
symbol!(63, cuCtxWaitEvent, (hCtx: CUcontext, hEvent: CUevent));
symbol!(64, cuDestroyExternalMemory, (extMem: *mut c_void));
symbol!(65, cuDestroyExternalSemaphore, (extSem: *mut c_void));
symbol!(66, cuDevResourceGenerateDesc, (phDesc: *mut c_void, resources: *mut c_void, nbResources: c_uint));
symbol!(67, cuDevSmResourceSplit, (result: *mut c_void, nbGroups: c_uint, input: *const c_void, remainder: *mut c_void, flags: c_uint, groupParams: *mut c_void));
symbol!(68, cuDevSmResourceSplitByCount, (result: *mut c_void, nbGroups: *mut c_uint, input: *const c_void, remainder: *mut c_void, flags: c_uint, minCount: c_uint));
symbol!(69, cuDeviceCanAccessPeer, (canAccessPeer: *mut c_int, dev: CUdevice, peerDev: CUdevice));
symbol!(70, cuDeviceComputeCapability, (major: *mut c_int, minor: *mut c_int, dev: CUdevice));
symbol!(71, cuDeviceGet, (device: *mut CUdevice, ordinal: c_int));
symbol!(72, cuDeviceGetAttribute, (pi: *mut c_int, attrib: c_uint, dev: CUdevice));
symbol!(73, cuDeviceGetByPCIBusId, (dev: *mut CUdevice, pciBusId: *const c_char));
symbol!(74, cuDeviceGetCliqueCount, (count: *mut usize, dev: CUdevice));
symbol!(75, cuDeviceGetCliqueInfo, (cliqueInfo: *mut c_void, count: *mut usize, dev: CUdevice));
symbol!(76, cuDeviceGetCount, (count: *mut c_int));
symbol!(77, cuDeviceGetDefaultMemPool, (pool_out: *mut CUmemoryPool, dev: CUdevice));
symbol!(78, cuDeviceGetDevResource, (device: CUdevice, resource: *mut c_void, type_: c_uint));
symbol!(79, cuDeviceGetExecAffinitySupport, (pi: *mut c_int, type_: c_uint, dev: CUdevice));
symbol!(80, cuDeviceGetFabricClusterUuid, (uuid: *mut CUuuid, dev: CUdevice));
symbol!(81, cuDeviceGetGraphMemAttribute, (device: CUdevice, attr: c_uint, value: *mut c_void));
symbol!(82, cuDeviceGetHostAtomicCapabilities, (capabilities: *mut c_uint, operations: *const c_uint, count: c_uint, dev: CUdevice));
symbol!(83, cuDeviceGetLuid, (luid: *mut c_char, deviceNodeMask: *mut c_uint, dev: CUdevice));
symbol!(84, cuDeviceGetMemPool, (pool: *mut CUmemoryPool, dev: CUdevice));
symbol!(85, cuDeviceGetName, (name: *mut c_char, len: c_int, dev: CUdevice));
symbol!(86, cuDeviceGetNvSciSyncAttributes, (nvSciSyncAttrList: *mut c_void, dev: CUdevice, flags: c_int));
symbol!(87, cuDeviceGetP2PAtomicCapabilities, (capabilities: *mut c_uint, operations: *const c_uint, count: c_uint, srcDevice: CUdevice, dstDevice: CUdevice));
symbol!(88, cuDeviceGetP2PAttribute, (value: *mut c_int, attrib: c_uint, srcDevice: CUdevice, dstDevice: CUdevice));
symbol!(89, cuDeviceGetPCIBusId, (pciBusId: *mut c_char, len: c_int, dev: CUdevice));
symbol!(90, cuDeviceGetProperties, (prop: *mut c_void, dev: CUdevice));
symbol!(91, cuDeviceGetTexture1DLinearMaxWidth, (maxWidthInElements: *mut usize, format: c_uint, numChannels: c_uint, dev: CUdevice));
symbol!(92, cuDeviceGetUuid, (uuid: *mut CUuuid, dev: CUdevice));
symbol!(93, cuDeviceGetUuid_v2, (uuid: *mut CUuuid, dev: CUdevice));
symbol!(94, cuDeviceGraphMemTrim, (device: CUdevice));
symbol!(95, cuDevicePrimaryCtxGetState, (dev: CUdevice, flags: *mut c_uint, active: *mut c_int));
symbol!(96, cuDevicePrimaryCtxRelease, (dev: CUdevice));
symbol!(97, cuDevicePrimaryCtxRelease_v2, (dev: CUdevice));
symbol!(98, cuDevicePrimaryCtxReset, (dev: CUdevice));
symbol!(99, cuDevicePrimaryCtxReset_v2, (dev: CUdevice));
symbol!(100, cuDevicePrimaryCtxRetain, (pctx: *mut CUcontext, dev: CUdevice));
symbol!(101, cuDevicePrimaryCtxSetFlags, (dev: CUdevice, flags: c_uint));
symbol!(102, cuDevicePrimaryCtxSetFlags_v2, (dev: CUdevice, flags: c_uint));
symbol!(103, cuDeviceRegisterAsyncNotification, (device: CUdevice, callbackFunc: *mut c_void, userData: *mut c_void, callback: *mut c_void));
symbol!(104, cuDeviceSetGraphMemAttribute, (device: CUdevice, attr: c_uint, value: *mut c_void));
symbol!(105, cuDeviceSetMemPool, (dev: CUdevice, pool: CUmemoryPool));
symbol!(106, cuDeviceTotalMem, (bytes: *mut c_uint, dev: CUdevice));
symbol!(107, cuDeviceTotalMem_v2, (bytes: *mut usize, dev: CUdevice));
symbol!(108, cuDeviceUnregisterAsyncNotification, (device: CUdevice, callback: *mut c_void));
symbol!(109, cuDriverGetVersion, (driverVersion: *mut c_int));
undocumented!(110, cuEGLApiInit);
symbol!(111, cuEGLStreamConsumerAcquireFrame, (conn: *mut c_void, pCudaResource: *mut c_void, pStream: *mut CUstream, timeout: c_uint));
symbol!(112, cuEGLStreamConsumerConnect, (conn: *mut c_void, stream: *mut c_void));
symbol!(113, cuEGLStreamConsumerConnectWithFlags, (conn: *mut c_void, stream: *mut c_void, flags: c_uint));
symbol!(114, cuEGLStreamConsumerDisconnect, (conn: *mut c_void));
symbol!(115, cuEGLStreamConsumerReleaseFrame, (conn: *mut c_void, pCudaResource: *mut c_void, pStream: *mut CUstream));
symbol!(116, cuEGLStreamProducerConnect, (conn: *mut c_void, stream: *mut c_void, width: c_int, height: c_int));
symbol!(117, cuEGLStreamProducerDisconnect, (conn: *mut c_void));
symbol!(118, cuEGLStreamProducerPresentFrame, (conn: *mut c_void, eglframe: *mut c_void, pStream: *mut CUstream));
symbol!(119, cuEGLStreamProducerReturnFrame, (conn: *mut c_void, eglframe: *mut c_void, pStream: *mut CUstream));
symbol!(120, cuEventCreate, (phEvent: *mut CUevent, Flags: c_uint));
symbol!(121, cuEventCreateFromEGLSync, (phEvent: *mut CUevent, eglSync: *mut c_void, flags: c_uint));
symbol!(122, cuEventDestroy, (hEvent: CUevent));
symbol!(123, cuEventDestroy_v2, (hEvent: CUevent));
symbol!(124, cuEventElapsedTime, (pMilliseconds: *mut f32, hStart: CUevent, hEnd: CUevent));
symbol!(125, cuEventElapsedTime_v2, (pMilliseconds: *mut f32, hStart: CUevent, hEnd: CUevent));
symbol!(126, cuEventQuery, (hEvent: CUevent));
symbol!(127, cuEventRecord, (hEvent: CUevent, hStream: CUstream));
symbol!(128, cuEventRecordWithFlags, (hEvent: CUevent, hStream: CUstream, flags: c_uint));
symbol!(129, cuEventRecordWithFlags_ptsz, (hEvent: CUevent, hStream: CUstream, flags: c_uint));
symbol!(130, cuEventRecord_ptsz, (hEvent: CUevent, hStream: CUstream));
symbol!(131, cuEventSynchronize, (hEvent: CUevent));
symbol!(132, cuExternalMemoryGetMappedBuffer, (devPtr: *mut CUdeviceptr, extMem: *mut c_void, bufferDesc: *const c_void));
symbol!(133, cuExternalMemoryGetMappedMipmappedArray, (mipmap: *mut CUmipmappedArray, extMem: *mut c_void, mipmapDesc: *const c_void));
symbol!(134, cuFabricCpyBatchAsync, (numOps: usize, opList: *mut c_void, flags: u64, hStream: CUstream));
symbol!(135, cuFabricCpyBatchAsync_ptsz, (numOps: usize, opList: *mut c_void, flags: u64, hStream: CUstream));
symbol!(136, cuFlushGPUDirectRDMAWrites, (target: c_uint, scope: c_uint));
symbol!(137, cuFuncGetAttribute, (pi: *mut c_int, attrib: c_uint, hfunc: CUfunction));
symbol!(138, cuFuncGetModule, (hmod: *mut CUmodule, hfunc: CUfunction));
symbol!(139, cuFuncGetName, (name: *mut *const c_char, hfunc: CUfunction));
symbol!(140, cuFuncGetParamCount, (func: CUfunction, paramCount: *mut usize));
symbol!(141, cuFuncGetParamInfo, (func: CUfunction, paramIndex: usize, paramOffset: *mut usize, paramSize: *mut usize));
symbol!(142, cuFuncIsLoaded, (state: *mut c_uint, function: CUfunction));
symbol!(143, cuFuncLoad, (function: CUfunction));
symbol!(144, cuFuncSetAttribute, (hfunc: CUfunction, attrib: c_uint, value: c_int));
symbol!(145, cuFuncSetBlockShape, (hfunc: CUfunction, x: c_int, y: c_int, z: c_int));
symbol!(146, cuFuncSetCacheConfig, (hfunc: CUfunction, config: c_uint));
symbol!(147, cuFuncSetSharedMemConfig, (hfunc: CUfunction, config: c_uint));
symbol!(148, cuFuncSetSharedSize, (hfunc: CUfunction, bytes: c_uint));
symbol!(149, cuGLCtxCreate, (pCtx: *mut CUcontext, Flags: c_uint, device: CUdevice));
symbol!(150, cuGLCtxCreate_v2, (pCtx: *mut CUcontext, Flags: c_uint, device: CUdevice));
symbol!(151, cuGLGetDevices, (pCudaDeviceCount: *mut c_uint, pCudaDevices: *mut CUdevice, cudaDeviceCount: c_uint, deviceList: c_uint));
symbol!(152, cuGLGetDevices_v2, (pCudaDeviceCount: *mut c_uint, pCudaDevices: *mut CUdevice, cudaDeviceCount: c_uint, deviceList: c_uint));
symbol!(153, cuGLInit, ());
symbol!(154, cuGLMapBufferObject, (dptr: *mut c_uint, size: *mut c_uint, buffer: c_uint));
symbol!(155, cuGLMapBufferObjectAsync, (dptr: *mut c_uint, size: *mut c_uint, buffer: c_uint, hStream: CUstream));
symbol!(156, cuGLMapBufferObjectAsync_v2, (dptr: *mut CUdeviceptr, size: *mut usize, buffer: c_uint, hStream: CUstream));
symbol!(157, cuGLMapBufferObjectAsync_v2_ptsz, (dptr: *mut CUdeviceptr, size: *mut usize, buffer: c_uint, hStream: CUstream));
symbol!(158, cuGLMapBufferObject_v2, (dptr: *mut CUdeviceptr, size: *mut usize, buffer: c_uint));
symbol!(159, cuGLMapBufferObject_v2_ptds, (dptr: *mut CUdeviceptr, size: *mut usize, buffer: c_uint));
symbol!(160, cuGLRegisterBufferObject, (buffer: c_uint));
symbol!(161, cuGLSetBufferObjectMapFlags, (buffer: c_uint, Flags: c_uint));
symbol!(162, cuGLUnmapBufferObject, (buffer: c_uint));
symbol!(163, cuGLUnmapBufferObjectAsync, (buffer: c_uint, hStream: CUstream));
symbol!(164, cuGLUnregisterBufferObject, (buffer: c_uint));
symbol!(165, cuGetErrorName, (error: CUresult, pStr: *mut *const c_char));
symbol!(166, cuGetErrorString, (error: CUresult, pStr: *mut *const c_char));
symbol!(167, cuGetExportTable, (ppExportTable: *mut *const c_void, pExportTableId: *const CUuuid));
symbol!(168, cuGetProcAddress, (symbol: *const c_char, pfn: *mut *mut c_void, cudaVersion: c_int, flags: u64));
symbol!(169, cuGetProcAddress_v2, (symbol: *const c_char, pfn: *mut *mut c_void, cudaVersion: c_int, flags: u64, symbolStatus: *mut c_uint));
symbol!(170, cuGetProcAddress_v2_ptsz, (symbol: *const c_char, pfn: *mut *mut c_void, cudaVersion: c_int, flags: u64, symbolStatus: *mut c_uint));
symbol!(171, cuGraphAddBatchMemOpNode, (phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, nodeParams: *const c_void));
symbol!(172, cuGraphAddChildGraphNode, (phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, childGraph: CUgraph));
symbol!(173, cuGraphAddDependencies, (hGraph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, numDependencies: usize));
symbol!(174, cuGraphAddDependencies_v2, (hGraph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edgeData: *const c_void, numDependencies: usize));
symbol!(175, cuGraphAddEmptyNode, (phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize));
symbol!(176, cuGraphAddEventRecordNode, (phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, event: CUevent));
symbol!(177, cuGraphAddEventWaitNode, (phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, event: CUevent));
symbol!(178, cuGraphAddExternalSemaphoresSignalNode, (phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, nodeParams: *const c_void));
symbol!(179, cuGraphAddExternalSemaphoresWaitNode, (phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, nodeParams: *const c_void));
symbol!(180, cuGraphAddHostNode, (phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, nodeParams: *const c_void));
symbol!(181, cuGraphAddKernelNode, (phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, nodeParams: *const c_void));
symbol!(182, cuGraphAddKernelNode_v2, (phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, nodeParams: *const CUDA_KERNEL_NODE_PARAMS));
symbol!(183, cuGraphAddMemAllocNode, (phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, nodeParams: *mut c_void));
symbol!(184, cuGraphAddMemFreeNode, (phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, dptr: CUdeviceptr));
symbol!(185, cuGraphAddMemcpyNode, (phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, copyParams: *const CUDA_MEMCPY3D, ctx: CUcontext));
symbol!(186, cuGraphAddMemsetNode, (phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, memsetParams: *const CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext));
symbol!(187, cuGraphAddNode, (phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, nodeParams: *mut c_void));
symbol!(188, cuGraphAddNode_v2, (phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, dependencyData: *const c_void, numDependencies: usize, nodeParams: *mut c_void));
symbol!(189, cuGraphAddNode_v3, (phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, dependencyData: *const c_void, numDependencies: usize, nodeParams: *mut c_void));
symbol!(190, cuGraphBatchMemOpNodeGetParams, (hNode: CUgraphNode, nodeParams_out: *mut c_void));
symbol!(191, cuGraphBatchMemOpNodeSetParams, (hNode: CUgraphNode, nodeParams: *const c_void));
symbol!(192, cuGraphChildGraphNodeGetGraph, (hNode: CUgraphNode, phGraph: *mut CUgraph));
symbol!(193, cuGraphClone, (phGraphClone: *mut CUgraph, originalGraph: CUgraph));
symbol!(194, cuGraphConditionalHandleCreate, (pHandle_out: *mut u64, hGraph: CUgraph, ctx: CUcontext, defaultLaunchValue: c_uint, flags: c_uint));
symbol!(195, cuGraphCreate, (phGraph: *mut CUgraph, flags: c_uint));
symbol!(196, cuGraphDebugDotPrint, (hGraph: CUgraph, path: *const c_char, flags: c_uint));
symbol!(197, cuGraphDestroy, (hGraph: CUgraph));
symbol!(198, cuGraphDestroyNode, (hNode: CUgraphNode));
symbol!(199, cuGraphEventRecordNodeGetEvent, (hNode: CUgraphNode, event_out: *mut CUevent));
symbol!(200, cuGraphEventRecordNodeSetEvent, (hNode: CUgraphNode, event: CUevent));
symbol!(201, cuGraphEventWaitNodeGetEvent, (hNode: CUgraphNode, event_out: *mut CUevent));
symbol!(202, cuGraphEventWaitNodeSetEvent, (hNode: CUgraphNode, event: CUevent));
symbol!(203, cuGraphExecBatchMemOpNodeSetParams, (hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const c_void));
symbol!(204, cuGraphExecChildGraphNodeSetParams, (hGraphExec: CUgraphExec, hNode: CUgraphNode, childGraph: CUgraph));
symbol!(205, cuGraphExecDestroy, (hGraphExec: CUgraphExec));
symbol!(206, cuGraphExecEventRecordNodeSetEvent, (hGraphExec: CUgraphExec, hNode: CUgraphNode, event: CUevent));
symbol!(207, cuGraphExecEventWaitNodeSetEvent, (hGraphExec: CUgraphExec, hNode: CUgraphNode, event: CUevent));
symbol!(208, cuGraphExecExternalSemaphoresSignalNodeSetParams, (hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const c_void));
symbol!(209, cuGraphExecExternalSemaphoresWaitNodeSetParams, (hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const c_void));
symbol!(210, cuGraphExecGetFlags, (hGraphExec: CUgraphExec, flags: *mut u64));
symbol!(211, cuGraphExecGetId, (hGraphExec: CUgraphExec, graphId: *mut c_uint));
symbol!(212, cuGraphExecHostNodeSetParams, (hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const c_void));
symbol!(213, cuGraphExecKernelNodeSetParams, (hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const c_void));
symbol!(214, cuGraphExecKernelNodeSetParams_v2, (hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS));
symbol!(215, cuGraphExecMemcpyNodeSetParams, (hGraphExec: CUgraphExec, hNode: CUgraphNode, copyParams: *const CUDA_MEMCPY3D, ctx: CUcontext));
symbol!(216, cuGraphExecMemsetNodeSetParams, (hGraphExec: CUgraphExec, hNode: CUgraphNode, memsetParams: *const CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext));
symbol!(217, cuGraphExecNodeSetParams, (hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *mut c_void));
symbol!(218, cuGraphExecUpdate, (hGraphExec: CUgraphExec, hGraph: CUgraph, hErrorNode_out: *mut CUgraphNode, updateResult_out: *mut c_uint));
symbol!(219, cuGraphExecUpdate_v2, (hGraphExec: CUgraphExec, hGraph: CUgraph, resultInfo: *mut c_void));
symbol!(220, cuGraphExternalSemaphoresSignalNodeGetParams, (hNode: CUgraphNode, params_out: *mut c_void));
symbol!(221, cuGraphExternalSemaphoresSignalNodeSetParams, (hNode: CUgraphNode, nodeParams: *const c_void));
symbol!(222, cuGraphExternalSemaphoresWaitNodeGetParams, (hNode: CUgraphNode, params_out: *mut c_void));
symbol!(223, cuGraphExternalSemaphoresWaitNodeSetParams, (hNode: CUgraphNode, nodeParams: *const c_void));
symbol!(224, cuGraphGetEdges, (hGraph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, numEdges: *mut usize));
symbol!(225, cuGraphGetEdges_v2, (hGraph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edgeData: *mut c_void, numEdges: *mut usize));
symbol!(226, cuGraphGetId, (hGraph: CUgraph, graphId: *mut c_uint));
symbol!(227, cuGraphGetNodes, (hGraph: CUgraph, nodes: *mut CUgraphNode, numNodes: *mut usize));
symbol!(228, cuGraphGetRootNodes, (hGraph: CUgraph, rootNodes: *mut CUgraphNode, numRootNodes: *mut usize));
symbol!(229, cuGraphHostNodeGetParams, (hNode: CUgraphNode, nodeParams: *mut c_void));
symbol!(230, cuGraphHostNodeSetParams, (hNode: CUgraphNode, nodeParams: *const c_void));
symbol!(231, cuGraphInstantiate, (phGraphExec: *mut CUgraphExec, hGraph: CUgraph, phErrorNode: *mut CUgraphNode, logBuffer: *mut c_char, bufferSize: usize));
symbol!(232, cuGraphInstantiateWithFlags, (phGraphExec: *mut CUgraphExec, hGraph: CUgraph, flags: u64));
symbol!(233, cuGraphInstantiateWithParams, (phGraphExec: *mut CUgraphExec, hGraph: CUgraph, instantiateParams: *mut c_void));
symbol!(234, cuGraphInstantiateWithParams_ptsz, (phGraphExec: *mut CUgraphExec, hGraph: CUgraph, instantiateParams: *mut c_void));
symbol!(235, cuGraphInstantiate_v2, (phGraphExec: *mut CUgraphExec, hGraph: CUgraph, phErrorNode: *mut CUgraphNode, logBuffer: *mut c_char, bufferSize: usize));
symbol!(236, cuGraphKernelNodeCopyAttributes, (dst: CUgraphNode, src: CUgraphNode));
symbol!(237, cuGraphKernelNodeGetAttribute, (hNode: CUgraphNode, attr: *mut c_void, value_out: *mut c_void));
symbol!(238, cuGraphKernelNodeGetParams, (hNode: CUgraphNode, nodeParams: *mut c_void));
symbol!(239, cuGraphKernelNodeGetParams_v2, (hNode: CUgraphNode, nodeParams: *mut CUDA_KERNEL_NODE_PARAMS));
symbol!(240, cuGraphKernelNodeSetAttribute, (hNode: CUgraphNode, attr: *mut c_void, value: *const c_void));
symbol!(241, cuGraphKernelNodeSetParams, (hNode: CUgraphNode, nodeParams: *const c_void));
symbol!(242, cuGraphKernelNodeSetParams_v2, (hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS));
symbol!(243, cuGraphLaunch, (hGraph: CUgraphExec, hStream: CUstream));
symbol!(244, cuGraphLaunch_ptsz, (hGraph: CUgraphExec, hStream: CUstream));
symbol!(245, cuGraphMemAllocNodeGetParams, (hNode: CUgraphNode, params_out: *mut c_void));
symbol!(246, cuGraphMemFreeNodeGetParams, (hNode: CUgraphNode, dptr_out: *mut CUdeviceptr));
symbol!(247, cuGraphMemcpyNodeGetParams, (hNode: CUgraphNode, nodeParams: *mut CUDA_MEMCPY3D));
symbol!(248, cuGraphMemcpyNodeSetParams, (hNode: CUgraphNode, nodeParams: *const CUDA_MEMCPY3D));
symbol!(249, cuGraphMemsetNodeGetParams, (hNode: CUgraphNode, nodeParams: *mut CUDA_MEMSET_NODE_PARAMS));
symbol!(250, cuGraphMemsetNodeSetParams, (hNode: CUgraphNode, nodeParams: *const CUDA_MEMSET_NODE_PARAMS));
symbol!(251, cuGraphNodeFindInClone, (phNode: *mut CUgraphNode, hOriginalNode: CUgraphNode, hClonedGraph: CUgraph));
symbol!(252, cuGraphNodeGetContainingGraph, (hNode: CUgraphNode, phGraph: *mut CUgraph));
symbol!(253, cuGraphNodeGetDependencies, (hNode: CUgraphNode, dependencies: *mut CUgraphNode, numDependencies: *mut usize));
symbol!(254, cuGraphNodeGetDependencies_v2, (hNode: CUgraphNode, dependencies: *mut CUgraphNode, edgeData: *mut c_void, numDependencies: *mut usize));
symbol!(255, cuGraphNodeGetDependentNodes, (hNode: CUgraphNode, dependentNodes: *mut CUgraphNode, numDependentNodes: *mut usize));
symbol!(256, cuGraphNodeGetDependentNodes_v2, (hNode: CUgraphNode, dependentNodes: *mut CUgraphNode, edgeData: *mut c_void, numDependentNodes: *mut usize));
symbol!(257, cuGraphNodeGetEnabled, (hGraphExec: CUgraphExec, hNode: CUgraphNode, isEnabled: *mut c_uint));
symbol!(258, cuGraphNodeGetLocalId, (hNode: CUgraphNode, nodeId: *mut c_uint));
symbol!(259, cuGraphNodeGetParams, (hNode: CUgraphNode, nodeParams: *mut c_void));
symbol!(260, cuGraphNodeGetToolsId, (hNode: CUgraphNode, toolsNodeId: *mut u64));
symbol!(261, cuGraphNodeGetType, (hNode: CUgraphNode, type_: *mut c_uint));
symbol!(262, cuGraphNodeSetEnabled, (hGraphExec: CUgraphExec, hNode: CUgraphNode, isEnabled: c_uint));
symbol!(263, cuGraphNodeSetParams, (hNode: CUgraphNode, nodeParams: *mut c_void));
symbol!(264, cuGraphNodeSetParams_v2, (hNode: CUgraphNode, nodeParams: *mut c_void));
symbol!(265, cuGraphReleaseUserObject, (graph: CUgraph, object: *mut c_void, count: c_uint));
symbol!(266, cuGraphRemoveDependencies, (hGraph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, numDependencies: usize));
symbol!(267, cuGraphRemoveDependencies_v2, (hGraph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edgeData: *const c_void, numDependencies: usize));
symbol!(268, cuGraphRetainUserObject, (graph: CUgraph, object: *mut c_void, count: c_uint, flags: c_uint));
symbol!(269, cuGraphUpload, (hGraph: CUgraphExec, hStream: CUstream));
symbol!(270, cuGraphUpload_ptsz, (hGraph: CUgraphExec, hStream: CUstream));
symbol!(271, cuGraphicsEGLRegisterImage, (pCudaResource: *mut c_void, image: *mut c_void, flags: c_uint));
symbol!(272, cuGraphicsGLRegisterBuffer, (pCudaResource: *mut c_void, buffer: c_uint, Flags: c_uint));
symbol!(273, cuGraphicsGLRegisterImage, (pCudaResource: *mut c_void, image: c_uint, target: c_uint, Flags: c_uint));
symbol!(274, cuGraphicsMapResources, (count: c_uint, resources: *mut c_void, hStream: CUstream));
symbol!(275, cuGraphicsMapResources_ptsz, (count: c_uint, resources: *mut c_void, hStream: CUstream));
symbol!(276, cuGraphicsResourceGetMappedEglFrame, (eglFrame: *mut c_void, resource: *mut c_void, index: c_uint, mipLevel: c_uint));
symbol!(277, cuGraphicsResourceGetMappedMipmappedArray, (pMipmappedArray: *mut CUmipmappedArray, resource: *mut c_void));
symbol!(278, cuGraphicsResourceGetMappedPointer, (pDevPtr: *mut c_uint, pSize: *mut c_uint, resource: *mut c_void));
symbol!(279, cuGraphicsResourceGetMappedPointer_v2, (pDevPtr: *mut CUdeviceptr, pSize: *mut usize, resource: *mut c_void));
symbol!(280, cuGraphicsResourceSetMapFlags, (resource: *mut c_void, flags: c_uint));
symbol!(281, cuGraphicsResourceSetMapFlags_v2, (resource: *mut c_void, flags: c_uint));
symbol!(282, cuGraphicsSubResourceGetMappedArray, (pArray: *mut CUarray, resource: *mut c_void, arrayIndex: c_uint, mipLevel: c_uint));
symbol!(283, cuGraphicsUnmapResources, (count: c_uint, resources: *mut c_void, hStream: CUstream));
symbol!(284, cuGraphicsUnmapResources_ptsz, (count: c_uint, resources: *mut c_void, hStream: CUstream));
symbol!(285, cuGraphicsUnregisterResource, (resource: *mut c_void));
symbol!(286, cuGraphicsVDPAURegisterOutputSurface, (pCudaResource: *mut c_void, vdpSurface: c_uint, flags: c_uint));
symbol!(287, cuGraphicsVDPAURegisterVideoSurface, (pCudaResource: *mut c_void, vdpSurface: c_uint, flags: c_uint));
symbol!(288, cuGreenCtxCreate, (phCtx: *mut c_void, desc: *mut c_void, dev: CUdevice, flags: c_uint));
symbol!(289, cuGreenCtxDestroy, (hCtx: *mut c_void));
symbol!(290, cuGreenCtxGetDevResource, (hCtx: *mut c_void, resource: *mut c_void, type_: c_uint));
symbol!(291, cuGreenCtxGetId, (greenCtx: *mut c_void, greenCtxId: *mut u64));
symbol!(292, cuGreenCtxRecordEvent, (hCtx: *mut c_void, hEvent: CUevent));
symbol!(293, cuGreenCtxStreamCreate, (phStream: *mut CUstream, greenCtx: *mut c_void, flags: c_uint, priority: c_int));
symbol!(294, cuGreenCtxWaitEvent, (hCtx: *mut c_void, hEvent: CUevent));
symbol!(295, cuImportExternalMemory, (extMem_out: *mut c_void, memHandleDesc: *const c_void));
symbol!(296, cuImportExternalSemaphore, (extSem_out: *mut c_void, semHandleDesc: *const c_void));
symbol!(297, cuInit, (Flags: c_uint));
symbol!(298, cuIpcCloseMemHandle, (dptr: CUdeviceptr));
symbol!(299, cuIpcGetEventHandle, (pHandle: *mut CUipcEventHandle, event: CUevent));
symbol!(300, cuIpcGetMemHandle, (pHandle: *mut CUipcMemHandle, dptr: CUdeviceptr));
symbol!(301, cuIpcOpenEventHandle, (phEvent: *mut CUevent, handle: CUipcEventHandle));
symbol!(302, cuIpcOpenMemHandle, (pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: c_uint));
symbol!(303, cuIpcOpenMemHandle_v2, (pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: c_uint));
symbol!(304, cuKernelGetAttribute, (pi: *mut c_int, attrib: c_uint, kernel: CUkernel, dev: CUdevice));
symbol!(305, cuKernelGetFunction, (pFunc: *mut CUfunction, kernel: CUkernel));
symbol!(306, cuKernelGetLibrary, (pLib: *mut CUlibrary, kernel: CUkernel));
symbol!(307, cuKernelGetName, (name: *mut *const c_char, hfunc: CUkernel));
symbol!(308, cuKernelGetParamCount, (kernel: CUkernel, paramCount: *mut usize));
symbol!(309, cuKernelGetParamInfo, (kernel: CUkernel, paramIndex: usize, paramOffset: *mut usize, paramSize: *mut usize));
symbol!(310, cuKernelSetAttribute, (attrib: c_uint, val: c_int, kernel: CUkernel, dev: CUdevice));
symbol!(311, cuKernelSetCacheConfig, (kernel: CUkernel, config: c_uint, dev: CUdevice));
symbol!(312, cuLaunch, (f: CUfunction));
symbol!(313, cuLaunchCooperativeKernel, (f: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream, kernelParams: *mut *mut c_void));
symbol!(314, cuLaunchCooperativeKernelMultiDevice, (launchParamsList: *mut c_void, numDevices: c_uint, flags: c_uint));
symbol!(315, cuLaunchCooperativeKernel_ptsz, (f: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream, kernelParams: *mut *mut c_void));
symbol!(316, cuLaunchGrid, (f: CUfunction, grid_width: c_int, grid_height: c_int));
symbol!(317, cuLaunchGridAsync, (f: CUfunction, grid_width: c_int, grid_height: c_int, hStream: CUstream));
symbol!(318, cuLaunchHostFunc, (hStream: CUstream, fn_: *mut c_void, userData: *mut c_void));
symbol!(319, cuLaunchHostFunc_ptsz, (hStream: CUstream, fn_: *mut c_void, userData: *mut c_void));
symbol!(320, cuLaunchHostFunc_v2, (hStream: CUstream, fn_: *mut c_void, userData: *mut c_void, syncMode: c_uint));
symbol!(321, cuLaunchHostFunc_v2_ptsz, (hStream: CUstream, fn_: *mut c_void, userData: *mut c_void, syncMode: c_uint));
symbol!(322, cuLaunchKernel, (f: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream, kernelParams: *mut *mut c_void, extra: *mut *mut c_void));
symbol!(323, cuLaunchKernelEx, (config: *const CUlaunchConfig, f: CUfunction, kernelParams: *mut *mut c_void, extra: *mut *mut c_void));
symbol!(324, cuLaunchKernelEx_ptsz, (config: *const CUlaunchConfig, f: CUfunction, kernelParams: *mut *mut c_void, extra: *mut *mut c_void));
symbol!(325, cuLaunchKernel_ptsz, (f: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream, kernelParams: *mut *mut c_void, extra: *mut *mut c_void));
symbol!(326, cuLibraryEnumerateKernels, (kernels: *mut CUkernel, numKernels: c_uint, lib: CUlibrary));
symbol!(327, cuLibraryGetGlobal, (dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char));
symbol!(328, cuLibraryGetKernel, (pKernel: *mut CUkernel, library: CUlibrary, name: *const c_char));
symbol!(329, cuLibraryGetKernelCount, (count: *mut c_uint, lib: CUlibrary));
symbol!(330, cuLibraryGetManaged, (dptr: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char));
symbol!(331, cuLibraryGetModule, (pMod: *mut CUmodule, library: CUlibrary));
symbol!(332, cuLibraryGetUnifiedFunction, (fptr: *mut *mut c_void, library: CUlibrary, symbol: *const c_char));
symbol!(333, cuLibraryLoadData, (library: *mut CUlibrary, code: *const c_void, jitOptions: *mut c_uint, jitOptionsValues: *mut *mut c_void, numJitOptions: c_uint, libraryOptions: *mut c_uint, libraryOptionValues: *mut *mut c_void, numLibraryOptions: c_uint));
symbol!(334, cuLibraryLoadFromFile, (library: *mut CUlibrary, fileName: *const c_char, jitOptions: *mut c_uint, jitOptionsValues: *mut *mut c_void, numJitOptions: c_uint, libraryOptions: *mut c_uint, libraryOptionValues: *mut *mut c_void, numLibraryOptions: c_uint));
symbol!(335, cuLibraryUnload, (library: CUlibrary));
symbol!(336, cuLinkAddData, (state: *mut c_void, type_: c_uint, data: *mut c_void, size: usize, name: *const c_char, numOptions: c_uint, options: *mut c_uint, optionValues: *mut *mut c_void));
symbol!(337, cuLinkAddData_v2, (state: *mut c_void, type_: c_uint, data: *mut c_void, size: usize, name: *const c_char, numOptions: c_uint, options: *mut c_uint, optionValues: *mut *mut c_void));
symbol!(338, cuLinkAddFile, (state: *mut c_void, type_: c_uint, path: *const c_char, numOptions: c_uint, options: *mut c_uint, optionValues: *mut *mut c_void));
symbol!(339, cuLinkAddFile_v2, (state: *mut c_void, type_: c_uint, path: *const c_char, numOptions: c_uint, options: *mut c_uint, optionValues: *mut *mut c_void));
symbol!(340, cuLinkComplete, (state: *mut c_void, cubinOut: *mut *mut c_void, sizeOut: *mut usize));
symbol!(341, cuLinkCreate, (numOptions: c_uint, options: *mut c_uint, optionValues: *mut *mut c_void, stateOut: *mut c_void));
symbol!(342, cuLinkCreate_v2, (numOptions: c_uint, options: *mut c_uint, optionValues: *mut *mut c_void, stateOut: *mut c_void));
symbol!(343, cuLinkDestroy, (state: *mut c_void));
symbol!(344, cuLogicalEndpointAddDevice, (leId: *mut c_void, dev: CUdevice));
symbol!(345, cuLogicalEndpointBindAddr, (leId: *mut c_void, dev: CUdevice, offset: u64, ptr: *mut c_void, size: u64, flags: u64));
symbol!(346, cuLogicalEndpointBindMem, (leId: *mut c_void, dev: CUdevice, offset: u64, memHandle: u64, memOffset: u64, size: u64, flags: u64));
symbol!(347, cuLogicalEndpointCreate, (leId: *mut c_void, prop: *const c_void));
symbol!(348, cuLogicalEndpointDestroy, (leId: *mut c_void));
symbol!(349, cuLogicalEndpointExport, (handle: *mut c_void, leId: *mut c_void, handleType: c_uint));
symbol!(350, cuLogicalEndpointGetLimits, (bindAlignment: *mut u64, maxSize: *mut u64, prop: *const c_void));
symbol!(351, cuLogicalEndpointIdRelease, (baseLeId: *mut c_void, count: c_uint));
symbol!(352, cuLogicalEndpointIdReserve, (baseLeId: *mut c_void, count: c_uint));
symbol!(353, cuLogicalEndpointImport, (leId: *mut c_void, handle: *const c_void, handleType: c_uint));
symbol!(354, cuLogicalEndpointQuery, (leId: *mut c_void, count: c_uint, queryStatus: *mut c_int));
symbol!(355, cuLogicalEndpointUnbind, (leId: *mut c_void, dev: CUdevice, offset: u64, size: u64));
symbol!(356, cuLogsCurrent, (iterator_out: *mut c_void, flags: c_uint));
symbol!(357, cuLogsDumpToFile, (iterator: *mut c_void, pathToFile: *const c_char, flags: c_uint));
symbol!(358, cuLogsDumpToMemory, (iterator: *mut c_void, buffer: *mut c_char, size: *mut usize, flags: c_uint));
symbol!(359, cuLogsRegisterCallback, (callbackFunc: *mut c_void, userData: *mut c_void, callback_out: *mut c_void));
symbol!(360, cuLogsUnregisterCallback, (callback: *mut c_void));
symbol!(361, cuMemAddressFree, (ptr: CUdeviceptr, size: usize));
symbol!(362, cuMemAddressReserve, (ptr: *mut CUdeviceptr, size: usize, alignment: usize, addr: CUdeviceptr, flags: u64));
symbol!(363, cuMemAdvise, (devPtr: CUdeviceptr, count: usize, advice: c_uint, device: CUdevice));
symbol!(364, cuMemAdvise_v2, (devPtr: CUdeviceptr, count: usize, advice: c_uint, location: CUmemLocation));
symbol!(365, cuMemAlloc, (dptr: *mut c_uint, bytesize: c_uint));
symbol!(366, cuMemAllocAsync, (dptr: *mut CUdeviceptr, bytesize: usize, hStream: CUstream));
symbol!(367, cuMemAllocAsync_ptsz, (dptr: *mut CUdeviceptr, bytesize: usize, hStream: CUstream));
symbol!(368, cuMemAllocFromPoolAsync, (dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, hStream: CUstream));
symbol!(369, cuMemAllocFromPoolAsync_ptsz, (dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, hStream: CUstream));
symbol!(370, cuMemAllocHost, (pp: *mut *mut c_void, bytesize: c_uint));
symbol!(371, cuMemAllocHost_v2, (pp: *mut *mut c_void, bytesize: usize));
symbol!(372, cuMemAllocManaged, (dptr: *mut CUdeviceptr, bytesize: usize, flags: c_uint));
symbol!(373, cuMemAllocPitch, (dptr: *mut c_uint, pPitch: *mut c_uint, WidthInBytes: c_uint, Height: c_uint, ElementSizeBytes: c_uint));
symbol!(374, cuMemAllocPitch_v2, (dptr: *mut CUdeviceptr, pPitch: *mut usize, WidthInBytes: usize, Height: usize, ElementSizeBytes: c_uint));
symbol!(375, cuMemAlloc_v2, (dptr: *mut CUdeviceptr, bytesize: usize));
symbol!(376, cuMemBatchDecompressAsync, (paramsArray: *mut c_void, count: usize, flags: c_uint, errorIndex: *mut usize, stream: CUstream));
symbol!(377, cuMemBatchDecompressAsync_ptsz, (paramsArray: *mut c_void, count: usize, flags: c_uint, errorIndex: *mut usize, stream: CUstream));
symbol!(378, cuMemCreate, (handle: *mut u64, size: usize, prop: *const CUmemAllocationProp, flags: u64));
symbol!(379, cuMemDiscardAndPrefetchBatchAsync, (dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetchLocs: *mut CUmemLocation, prefetchLocIdxs: *mut usize, numPrefetchLocs: usize, flags: u64, hStream: CUstream));
symbol!(380, cuMemDiscardAndPrefetchBatchAsync_ptsz, (dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetchLocs: *mut CUmemLocation, prefetchLocIdxs: *mut usize, numPrefetchLocs: usize, flags: u64, hStream: CUstream));
symbol!(381, cuMemDiscardBatchAsync, (dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: u64, hStream: CUstream));
symbol!(382, cuMemDiscardBatchAsync_ptsz, (dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: u64, hStream: CUstream));
symbol!(383, cuMemExportToShareableHandle, (shareableHandle: *mut c_void, handle: u64, handleType: c_uint, flags: u64));
symbol!(384, cuMemFree, (dptr: c_uint));
symbol!(385, cuMemFreeAsync, (dptr: CUdeviceptr, hStream: CUstream));
symbol!(386, cuMemFreeAsync_ptsz, (dptr: CUdeviceptr, hStream: CUstream));
symbol!(387, cuMemFreeHost, (p: *mut c_void));
symbol!(388, cuMemFree_v2, (dptr: CUdeviceptr));
symbol!(389, cuMemGetAccess, (flags: *mut u64, location: *const CUmemLocation, ptr: CUdeviceptr));
symbol!(390, cuMemGetAddressRange, (pbase: *mut c_uint, psize: *mut c_uint, dptr: c_uint));
symbol!(391, cuMemGetAddressRange_v2, (pbase: *mut CUdeviceptr, psize: *mut usize, dptr: CUdeviceptr));
symbol!(392, cuMemGetAllocationGranularity, (granularity: *mut usize, prop: *const CUmemAllocationProp, option: c_uint));
symbol!(393, cuMemGetAllocationPropertiesFromHandle, (prop: *mut CUmemAllocationProp, handle: u64));
undocumented!(394, cuMemGetAttribute);
undocumented!(395, cuMemGetAttribute_v2);
symbol!(396, cuMemGetDefaultMemPool, (pool_out: *mut CUmemoryPool, location: *mut CUmemLocation, type_: c_uint));
symbol!(397, cuMemGetHandleForAddressRange, (handle: *mut c_void, dptr: CUdeviceptr, size: usize, handleType: c_uint, flags: u64));
symbol!(398, cuMemGetInfo, (free: *mut c_uint, total: *mut c_uint));
symbol!(399, cuMemGetInfo_v2, (free: *mut usize, total: *mut usize));
symbol!(400, cuMemGetLocationInfo, (ptr: CUdeviceptr, size: usize, summaryGranularity: usize, samplingGranularity: usize, location_out: *mut CUmemLocation));
symbol!(401, cuMemGetMemPool, (pool: *mut CUmemoryPool, location: *mut CUmemLocation, type_: c_uint));
symbol!(402, cuMemHostAlloc, (pp: *mut *mut c_void, bytesize: usize, Flags: c_uint));
symbol!(403, cuMemHostGetDevicePointer, (pdptr: *mut c_uint, p: *mut c_void, Flags: c_uint));
symbol!(404, cuMemHostGetDevicePointer_v2, (pdptr: *mut CUdeviceptr, p: *mut c_void, Flags: c_uint));
symbol!(405, cuMemHostGetFlags, (pFlags: *mut c_uint, p: *mut c_void));
symbol!(406, cuMemHostRegister, (p: *mut c_void, bytesize: usize, Flags: c_uint));
symbol!(407, cuMemHostRegister_v2, (p: *mut c_void, bytesize: usize, Flags: c_uint));
symbol!(408, cuMemHostUnregister, (p: *mut c_void));
symbol!(409, cuMemImportFromShareableHandle, (handle: *mut u64, osHandle: *mut c_void, shHandleType: c_uint));
symbol!(410, cuMemMap, (ptr: CUdeviceptr, size: usize, offset: usize, handle: u64, flags: u64));
symbol!(411, cuMemMapArrayAsync, (mapInfoList: *mut c_void, count: c_uint, hStream: CUstream));
symbol!(412, cuMemMapArrayAsync_ptsz, (mapInfoList: *mut c_void, count: c_uint, hStream: CUstream));
symbol!(413, cuMemPoolCreate, (pool: *mut CUmemoryPool, poolProps: *const CUmemPoolProps));
symbol!(414, cuMemPoolDestroy, (pool: CUmemoryPool));
symbol!(415, cuMemPoolExportPointer, (shareData_out: *mut CUmemPoolPtrExportData, ptr: CUdeviceptr));
symbol!(416, cuMemPoolExportToShareableHandle, (handle_out: *mut c_void, pool: CUmemoryPool, handleType: c_uint, flags: u64));
symbol!(417, cuMemPoolGetAccess, (flags: *mut c_uint, memPool: CUmemoryPool, location: *mut CUmemLocation));
symbol!(418, cuMemPoolGetAttribute, (pool: CUmemoryPool, attr: c_uint, value: *mut c_void));
symbol!(419, cuMemPoolImportFromShareableHandle, (pool_out: *mut CUmemoryPool, handle: *mut c_void, handleType: c_uint, flags: u64));
symbol!(420, cuMemPoolImportPointer, (ptr_out: *mut CUdeviceptr, pool: CUmemoryPool, shareData: *mut CUmemPoolPtrExportData));
symbol!(421, cuMemPoolSetAccess, (pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize));
symbol!(422, cuMemPoolSetAttribute, (pool: CUmemoryPool, attr: c_uint, value: *mut c_void));
symbol!(423, cuMemPoolTrimTo, (pool: CUmemoryPool, minBytesToKeep: usize));
symbol!(424, cuMemPrefetchAsync, (devPtr: CUdeviceptr, count: usize, dstDevice: CUdevice, hStream: CUstream));
symbol!(425, cuMemPrefetchAsync_ptsz, (devPtr: CUdeviceptr, count: usize, dstDevice: CUdevice, hStream: CUstream));
symbol!(426, cuMemPrefetchAsync_v2, (devPtr: CUdeviceptr, count: usize, location: CUmemLocation, flags: c_uint, hStream: CUstream));
symbol!(427, cuMemPrefetchAsync_v2_ptsz, (devPtr: CUdeviceptr, count: usize, location: CUmemLocation, flags: c_uint, hStream: CUstream));
symbol!(428, cuMemPrefetchBatchAsync, (dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetchLocs: *mut CUmemLocation, prefetchLocIdxs: *mut usize, numPrefetchLocs: usize, flags: u64, hStream: CUstream));
symbol!(429, cuMemPrefetchBatchAsync_ptsz, (dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetchLocs: *mut CUmemLocation, prefetchLocIdxs: *mut usize, numPrefetchLocs: usize, flags: u64, hStream: CUstream));
symbol!(430, cuMemRangeGetAttribute, (data: *mut c_void, dataSize: usize, attribute: c_uint, devPtr: CUdeviceptr, count: usize));
symbol!(431, cuMemRangeGetAttributes, (data: *mut *mut c_void, dataSizes: *mut usize, attributes: *mut c_uint, numAttributes: usize, devPtr: CUdeviceptr, count: usize));
symbol!(432, cuMemRelease, (handle: u64));
symbol!(433, cuMemRetainAllocationHandle, (handle: *mut u64, addr: *mut c_void));
symbol!(434, cuMemSetAccess, (ptr: CUdeviceptr, size: usize, desc: *const CUmemAccessDesc, count: usize));
symbol!(435, cuMemSetMemPool, (location: *mut CUmemLocation, type_: c_uint, pool: CUmemoryPool));
symbol!(436, cuMemUnmap, (ptr: CUdeviceptr, size: usize));
symbol!(437, cuMemcpy, (dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize));
symbol!(438, cuMemcpy2D, (pCopy: *const c_void));
symbol!(439, cuMemcpy2DAsync, (pCopy: *const c_void, hStream: CUstream));
symbol!(440, cuMemcpy2DAsync_v2, (pCopy: *const CUDA_MEMCPY2D, hStream: CUstream));
symbol!(441, cuMemcpy2DAsync_v2_ptsz, (pCopy: *const CUDA_MEMCPY2D, hStream: CUstream));
symbol!(442, cuMemcpy2DUnaligned, (pCopy: *const c_void));
symbol!(443, cuMemcpy2DUnaligned_v2, (pCopy: *const CUDA_MEMCPY2D));
symbol!(444, cuMemcpy2DUnaligned_v2_ptds, (pCopy: *const CUDA_MEMCPY2D));
symbol!(445, cuMemcpy2D_v2, (pCopy: *const CUDA_MEMCPY2D));
symbol!(446, cuMemcpy2D_v2_ptds, (pCopy: *const CUDA_MEMCPY2D));
symbol!(447, cuMemcpy3D, (pCopy: *const c_void));
symbol!(448, cuMemcpy3DAsync, (pCopy: *const c_void, hStream: CUstream));
symbol!(449, cuMemcpy3DAsync_v2, (pCopy: *const CUDA_MEMCPY3D, hStream: CUstream));
symbol!(450, cuMemcpy3DAsync_v2_ptsz, (pCopy: *const CUDA_MEMCPY3D, hStream: CUstream));
symbol!(451, cuMemcpy3DBatchAsync, (numOps: usize, opList: *mut c_void, failIdx: *mut usize, flags: u64, hStream: CUstream));
symbol!(452, cuMemcpy3DBatchAsync_ptsz, (numOps: usize, opList: *mut c_void, failIdx: *mut usize, flags: u64, hStream: CUstream));
symbol!(453, cuMemcpy3DBatchAsync_v2, (numOps: usize, opList: *mut c_void, flags: u64, hStream: CUstream));
symbol!(454, cuMemcpy3DBatchAsync_v2_ptsz, (numOps: usize, opList: *mut c_void, flags: u64, hStream: CUstream));
symbol!(455, cuMemcpy3DPeer, (pCopy: *const CUDA_MEMCPY3D_PEER));
symbol!(456, cuMemcpy3DPeerAsync, (pCopy: *const CUDA_MEMCPY3D_PEER, hStream: CUstream));
symbol!(457, cuMemcpy3DPeerAsync_ptsz, (pCopy: *const CUDA_MEMCPY3D_PEER, hStream: CUstream));
symbol!(458, cuMemcpy3DPeer_ptds, (pCopy: *const CUDA_MEMCPY3D_PEER));
symbol!(459, cuMemcpy3DWithAttributesAsync, (op: *mut c_void, flags: u64, hStream: CUstream));
symbol!(460, cuMemcpy3DWithAttributesAsync_ptsz, (op: *mut c_void, flags: u64, hStream: CUstream));
symbol!(461, cuMemcpy3D_v2, (pCopy: *const CUDA_MEMCPY3D));
symbol!(462, cuMemcpy3D_v2_ptds, (pCopy: *const CUDA_MEMCPY3D));
symbol!(463, cuMemcpyAsync, (dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream));
symbol!(464, cuMemcpyAsync_ptsz, (dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream));
symbol!(465, cuMemcpyAtoA, (dstArray: CUarray, dstOffset: c_uint, srcArray: CUarray, srcOffset: c_uint, ByteCount: c_uint));
symbol!(466, cuMemcpyAtoA_v2, (dstArray: CUarray, dstOffset: usize, srcArray: CUarray, srcOffset: usize, ByteCount: usize));
symbol!(467, cuMemcpyAtoA_v2_ptds, (dstArray: CUarray, dstOffset: usize, srcArray: CUarray, srcOffset: usize, ByteCount: usize));
symbol!(468, cuMemcpyAtoD, (dstDevice: c_uint, srcArray: CUarray, srcOffset: c_uint, ByteCount: c_uint));
symbol!(469, cuMemcpyAtoD_v2, (dstDevice: CUdeviceptr, srcArray: CUarray, srcOffset: usize, ByteCount: usize));
symbol!(470, cuMemcpyAtoD_v2_ptds, (dstDevice: CUdeviceptr, srcArray: CUarray, srcOffset: usize, ByteCount: usize));
symbol!(471, cuMemcpyAtoH, (dstHost: *mut c_void, srcArray: CUarray, srcOffset: c_uint, ByteCount: c_uint));
symbol!(472, cuMemcpyAtoHAsync, (dstHost: *mut c_void, srcArray: CUarray, srcOffset: c_uint, ByteCount: c_uint, hStream: CUstream));
symbol!(473, cuMemcpyAtoHAsync_v2, (dstHost: *mut c_void, srcArray: CUarray, srcOffset: usize, ByteCount: usize, hStream: CUstream));
symbol!(474, cuMemcpyAtoHAsync_v2_ptsz, (dstHost: *mut c_void, srcArray: CUarray, srcOffset: usize, ByteCount: usize, hStream: CUstream));
symbol!(475, cuMemcpyAtoH_v2, (dstHost: *mut c_void, srcArray: CUarray, srcOffset: usize, ByteCount: usize));
symbol!(476, cuMemcpyAtoH_v2_ptds, (dstHost: *mut c_void, srcArray: CUarray, srcOffset: usize, ByteCount: usize));
symbol!(477, cuMemcpyBatchAsync, (dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrsIdxs: *mut usize, numAttrs: usize, failIdx: *mut usize, hStream: CUstream));
symbol!(478, cuMemcpyBatchAsync_ptsz, (dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrsIdxs: *mut usize, numAttrs: usize, failIdx: *mut usize, hStream: CUstream));
symbol!(479, cuMemcpyBatchAsync_v2, (dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrsIdxs: *mut usize, numAttrs: usize, hStream: CUstream));
symbol!(480, cuMemcpyBatchAsync_v2_ptsz, (dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrsIdxs: *mut usize, numAttrs: usize, hStream: CUstream));
symbol!(481, cuMemcpyDtoA, (dstArray: CUarray, dstOffset: c_uint, srcDevice: c_uint, ByteCount: c_uint));
symbol!(482, cuMemcpyDtoA_v2, (dstArray: CUarray, dstOffset: usize, srcDevice: CUdeviceptr, ByteCount: usize));
symbol!(483, cuMemcpyDtoA_v2_ptds, (dstArray: CUarray, dstOffset: usize, srcDevice: CUdeviceptr, ByteCount: usize));
symbol!(484, cuMemcpyDtoD, (dstDevice: c_uint, srcDevice: c_uint, ByteCount: c_uint));
symbol!(485, cuMemcpyDtoDAsync, (dstDevice: c_uint, srcDevice: c_uint, ByteCount: c_uint, hStream: CUstream));
symbol!(486, cuMemcpyDtoDAsync_v2, (dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream));
symbol!(487, cuMemcpyDtoDAsync_v2_ptsz, (dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream));
symbol!(488, cuMemcpyDtoD_v2, (dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize));
symbol!(489, cuMemcpyDtoD_v2_ptds, (dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize));
symbol!(490, cuMemcpyDtoH, (dstHost: *mut c_void, srcDevice: c_uint, ByteCount: c_uint));
symbol!(491, cuMemcpyDtoHAsync, (dstHost: *mut c_void, srcDevice: c_uint, ByteCount: c_uint, hStream: CUstream));
symbol!(492, cuMemcpyDtoHAsync_v2, (dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream));
symbol!(493, cuMemcpyDtoHAsync_v2_ptsz, (dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream));
symbol!(494, cuMemcpyDtoH_v2, (dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize));
symbol!(495, cuMemcpyDtoH_v2_ptds, (dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize));
symbol!(496, cuMemcpyHtoA, (dstArray: CUarray, dstOffset: c_uint, srcHost: *const c_void, ByteCount: c_uint));
symbol!(497, cuMemcpyHtoAAsync, (dstArray: CUarray, dstOffset: c_uint, srcHost: *const c_void, ByteCount: c_uint, hStream: CUstream));
symbol!(498, cuMemcpyHtoAAsync_v2, (dstArray: CUarray, dstOffset: usize, srcHost: *const c_void, ByteCount: usize, hStream: CUstream));
symbol!(499, cuMemcpyHtoAAsync_v2_ptsz, (dstArray: CUarray, dstOffset: usize, srcHost: *const c_void, ByteCount: usize, hStream: CUstream));
symbol!(500, cuMemcpyHtoA_v2, (dstArray: CUarray, dstOffset: usize, srcHost: *const c_void, ByteCount: usize));
symbol!(501, cuMemcpyHtoA_v2_ptds, (dstArray: CUarray, dstOffset: usize, srcHost: *const c_void, ByteCount: usize));
symbol!(502, cuMemcpyHtoD, (dstDevice: c_uint, srcHost: *const c_void, ByteCount: c_uint));
symbol!(503, cuMemcpyHtoDAsync, (dstDevice: c_uint, srcHost: *const c_void, ByteCount: c_uint, hStream: CUstream));
symbol!(504, cuMemcpyHtoDAsync_v2, (dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize, hStream: CUstream));
symbol!(505, cuMemcpyHtoDAsync_v2_ptsz, (dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize, hStream: CUstream));
symbol!(506, cuMemcpyHtoD_v2, (dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize));
symbol!(507, cuMemcpyHtoD_v2_ptds, (dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize));
symbol!(508, cuMemcpyPeer, (dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize));
symbol!(509, cuMemcpyPeerAsync, (dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize, hStream: CUstream));
symbol!(510, cuMemcpyPeerAsync_ptsz, (dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize, hStream: CUstream));
symbol!(511, cuMemcpyPeer_ptds, (dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize));
symbol!(512, cuMemcpyWithAttributesAsync, (dst: CUdeviceptr, src: CUdeviceptr, size: usize, attr: *mut CUmemcpyAttributes, hStream: CUstream));
symbol!(513, cuMemcpyWithAttributesAsync_ptsz, (dst: CUdeviceptr, src: CUdeviceptr, size: usize, attr: *mut CUmemcpyAttributes, hStream: CUstream));
symbol!(514, cuMemcpy_ptds, (dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize));
symbol!(515, cuMemsetD16, (dstDevice: c_uint, us: u16, N: c_uint));
symbol!(516, cuMemsetD16Async, (dstDevice: CUdeviceptr, us: u16, N: usize, hStream: CUstream));
symbol!(517, cuMemsetD16Async_ptsz, (dstDevice: CUdeviceptr, us: u16, N: usize, hStream: CUstream));
symbol!(518, cuMemsetD16_v2, (dstDevice: CUdeviceptr, us: u16, N: usize));
symbol!(519, cuMemsetD16_v2_ptds, (dstDevice: CUdeviceptr, us: u16, N: usize));
symbol!(520, cuMemsetD2D16, (dstDevice: c_uint, dstPitch: c_uint, us: u16, Width: c_uint, Height: c_uint));
symbol!(521, cuMemsetD2D16Async, (dstDevice: CUdeviceptr, dstPitch: usize, us: u16, Width: usize, Height: usize, hStream: CUstream));
symbol!(522, cuMemsetD2D16Async_ptsz, (dstDevice: CUdeviceptr, dstPitch: usize, us: u16, Width: usize, Height: usize, hStream: CUstream));
symbol!(523, cuMemsetD2D16_v2, (dstDevice: CUdeviceptr, dstPitch: usize, us: u16, Width: usize, Height: usize));
symbol!(524, cuMemsetD2D16_v2_ptds, (dstDevice: CUdeviceptr, dstPitch: usize, us: u16, Width: usize, Height: usize));
symbol!(525, cuMemsetD2D32, (dstDevice: c_uint, dstPitch: c_uint, ui: c_uint, Width: c_uint, Height: c_uint));
symbol!(526, cuMemsetD2D32Async, (dstDevice: CUdeviceptr, dstPitch: usize, ui: c_uint, Width: usize, Height: usize, hStream: CUstream));
symbol!(527, cuMemsetD2D32Async_ptsz, (dstDevice: CUdeviceptr, dstPitch: usize, ui: c_uint, Width: usize, Height: usize, hStream: CUstream));
symbol!(528, cuMemsetD2D32_v2, (dstDevice: CUdeviceptr, dstPitch: usize, ui: c_uint, Width: usize, Height: usize));
symbol!(529, cuMemsetD2D32_v2_ptds, (dstDevice: CUdeviceptr, dstPitch: usize, ui: c_uint, Width: usize, Height: usize));
symbol!(530, cuMemsetD2D8, (dstDevice: c_uint, dstPitch: c_uint, uc: u8, Width: c_uint, Height: c_uint));
symbol!(531, cuMemsetD2D8Async, (dstDevice: CUdeviceptr, dstPitch: usize, uc: u8, Width: usize, Height: usize, hStream: CUstream));
symbol!(532, cuMemsetD2D8Async_ptsz, (dstDevice: CUdeviceptr, dstPitch: usize, uc: u8, Width: usize, Height: usize, hStream: CUstream));
symbol!(533, cuMemsetD2D8_v2, (dstDevice: CUdeviceptr, dstPitch: usize, uc: u8, Width: usize, Height: usize));
symbol!(534, cuMemsetD2D8_v2_ptds, (dstDevice: CUdeviceptr, dstPitch: usize, uc: u8, Width: usize, Height: usize));
symbol!(535, cuMemsetD32, (dstDevice: c_uint, ui: c_uint, N: c_uint));
symbol!(536, cuMemsetD32Async, (dstDevice: CUdeviceptr, ui: c_uint, N: usize, hStream: CUstream));
symbol!(537, cuMemsetD32Async_ptsz, (dstDevice: CUdeviceptr, ui: c_uint, N: usize, hStream: CUstream));
symbol!(538, cuMemsetD32_v2, (dstDevice: CUdeviceptr, ui: c_uint, N: usize));
symbol!(539, cuMemsetD32_v2_ptds, (dstDevice: CUdeviceptr, ui: c_uint, N: usize));
symbol!(540, cuMemsetD8, (dstDevice: c_uint, uc: u8, N: c_uint));
symbol!(541, cuMemsetD8Async, (dstDevice: CUdeviceptr, uc: u8, N: usize, hStream: CUstream));
symbol!(542, cuMemsetD8Async_ptsz, (dstDevice: CUdeviceptr, uc: u8, N: usize, hStream: CUstream));
symbol!(543, cuMemsetD8_v2, (dstDevice: CUdeviceptr, uc: u8, N: usize));
symbol!(544, cuMemsetD8_v2_ptds, (dstDevice: CUdeviceptr, uc: u8, N: usize));
symbol!(545, cuMipmappedArrayCreate, (pHandle: *mut CUmipmappedArray, pMipmappedArrayDesc: *const CUDA_ARRAY3D_DESCRIPTOR, numMipmapLevels: c_uint));
symbol!(546, cuMipmappedArrayDestroy, (hMipmappedArray: CUmipmappedArray));
symbol!(547, cuMipmappedArrayGetLevel, (pLevelArray: *mut CUarray, hMipmappedArray: CUmipmappedArray, level: c_uint));
symbol!(548, cuMipmappedArrayGetMemoryRequirements, (memoryRequirements: *mut c_void, mipmap: CUmipmappedArray, device: CUdevice));
symbol!(549, cuMipmappedArrayGetSparseProperties, (sparseProperties: *mut c_void, mipmap: CUmipmappedArray));
symbol!(550, cuModuleEnumerateFunctions, (functions: *mut CUfunction, numFunctions: c_uint, mod_: CUmodule));
symbol!(551, cuModuleGetFunction, (hfunc: *mut CUfunction, hmod: CUmodule, name: *const c_char));
symbol!(552, cuModuleGetFunctionCount, (count: *mut c_uint, mod_: CUmodule));
symbol!(553, cuModuleGetGlobal, (dptr: *mut c_uint, bytes: *mut c_uint, hmod: CUmodule, name: *const c_char));
symbol!(554, cuModuleGetGlobal_v2, (dptr: *mut CUdeviceptr, bytes: *mut usize, hmod: CUmodule, name: *const c_char));
symbol!(555, cuModuleGetLoadingMode, (mode: *mut c_uint));
symbol!(556, cuModuleGetSurfRef, (pSurfRef: *mut CUsurfref, hmod: CUmodule, name: *const c_char));
symbol!(557, cuModuleGetTexRef, (pTexRef: *mut CUtexref, hmod: CUmodule, name: *const c_char));
symbol!(558, cuModuleLoad, (module: *mut CUmodule, fname: *const c_char));
symbol!(559, cuModuleLoadData, (module: *mut CUmodule, image: *const c_void));
symbol!(560, cuModuleLoadDataEx, (module: *mut CUmodule, image: *const c_void, numOptions: c_uint, options: *mut c_uint, optionValues: *mut *mut c_void));
symbol!(561, cuModuleLoadFatBinary, (module: *mut CUmodule, fatCubin: *const c_void));
symbol!(562, cuModuleUnload, (hmod: CUmodule));
symbol!(563, cuMulticastAddDevice, (mcHandle: u64, dev: CUdevice));
symbol!(564, cuMulticastBindAddr, (mcHandle: u64, mcOffset: usize, memptr: CUdeviceptr, size: usize, flags: u64));
symbol!(565, cuMulticastBindAddr_v2, (mcHandle: u64, dev: CUdevice, mcOffset: usize, memptr: CUdeviceptr, size: usize, flags: u64));
symbol!(566, cuMulticastBindMem, (mcHandle: u64, mcOffset: usize, memHandle: u64, memOffset: usize, size: usize, flags: u64));
symbol!(567, cuMulticastBindMem_v2, (mcHandle: u64, dev: CUdevice, mcOffset: usize, memHandle: u64, memOffset: usize, size: usize, flags: u64));
symbol!(568, cuMulticastCreate, (mcHandle: *mut u64, prop: *const c_void));
symbol!(569, cuMulticastGetGranularity, (granularity: *mut usize, prop: *const c_void, option: c_uint));
symbol!(570, cuMulticastUnbind, (mcHandle: u64, dev: CUdevice, mcOffset: usize, size: usize));
symbol!(571, cuOccupancyAvailableDynamicSMemPerBlock, (dynamicSmemSize: *mut usize, func: CUfunction, numBlocks: c_int, blockSize: c_int));
symbol!(572, cuOccupancyMaxActiveBlocksPerMultiprocessor, (numBlocks: *mut c_int, func: CUfunction, blockSize: c_int, dynamicSMemSize: usize));
symbol!(573, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, (numBlocks: *mut c_int, func: CUfunction, blockSize: c_int, dynamicSMemSize: usize, flags: c_uint));
symbol!(574, cuOccupancyMaxActiveClusters, (numClusters: *mut c_int, func: CUfunction, config: *const CUlaunchConfig));
symbol!(575, cuOccupancyMaxPotentialBlockSize, (minGridSize: *mut c_int, blockSize: *mut c_int, func: CUfunction, blockSizeToDynamicSMemSize: *mut c_void, dynamicSMemSize: usize, blockSizeLimit: c_int));
symbol!(576, cuOccupancyMaxPotentialBlockSizeWithFlags, (minGridSize: *mut c_int, blockSize: *mut c_int, func: CUfunction, blockSizeToDynamicSMemSize: *mut c_void, dynamicSMemSize: usize, blockSizeLimit: c_int, flags: c_uint));
symbol!(577, cuOccupancyMaxPotentialClusterSize, (clusterSize: *mut c_int, func: CUfunction, config: *const CUlaunchConfig));
symbol!(578, cuParamSetSize, (hfunc: CUfunction, numbytes: c_uint));
symbol!(579, cuParamSetTexRef, (hfunc: CUfunction, texunit: c_int, hTexRef: CUtexref));
symbol!(580, cuParamSetf, (hfunc: CUfunction, offset: c_int, value: f32));
symbol!(581, cuParamSeti, (hfunc: CUfunction, offset: c_int, value: c_uint));
symbol!(582, cuParamSetv, (hfunc: CUfunction, offset: c_int, ptr: *mut c_void, numbytes: c_uint));
symbol!(583, cuPointerGetAttribute, (data: *mut c_void, attribute: c_uint, ptr: CUdeviceptr));
symbol!(584, cuPointerGetAttributes, (numAttributes: c_uint, attributes: *mut c_uint, data: *mut *mut c_void, ptr: CUdeviceptr));
symbol!(585, cuPointerSetAttribute, (value: *const c_void, attribute: c_uint, ptr: CUdeviceptr));
symbol!(586, cuProfilerInitialize, (configFile: *const c_char, outputFile: *const c_char, outputMode: *mut c_void));
symbol!(587, cuProfilerStart, ());
symbol!(588, cuProfilerStop, ());
symbol!(589, cuSignalExternalSemaphoresAsync, (extSemArray: *const c_void, paramsArray: *const c_void, numExtSems: c_uint, stream: CUstream));
symbol!(590, cuSignalExternalSemaphoresAsync_ptsz, (extSemArray: *const c_void, paramsArray: *const c_void, numExtSems: c_uint, stream: CUstream));
symbol!(591, cuStreamAddCallback, (hStream: CUstream, callback: *mut c_void, userData: *mut c_void, flags: c_uint));
symbol!(592, cuStreamAddCallback_ptsz, (hStream: CUstream, callback: *mut c_void, userData: *mut c_void, flags: c_uint));
symbol!(593, cuStreamAttachMemAsync, (hStream: CUstream, dptr: CUdeviceptr, length: usize, flags: c_uint));
symbol!(594, cuStreamAttachMemAsync_ptsz, (hStream: CUstream, dptr: CUdeviceptr, length: usize, flags: c_uint));
symbol!(595, cuStreamBatchMemOp, (stream: CUstream, count: c_uint, paramArray: *mut c_void, flags: c_uint));
symbol!(596, cuStreamBatchMemOp_ptsz, (stream: CUstream, count: c_uint, paramArray: *mut c_void, flags: c_uint));
symbol!(597, cuStreamBatchMemOp_v2, (stream: CUstream, count: c_uint, paramArray: *mut c_void, flags: c_uint));
symbol!(598, cuStreamBatchMemOp_v2_ptsz, (stream: CUstream, count: c_uint, paramArray: *mut c_void, flags: c_uint));
symbol!(599, cuStreamBeginCapture, (hStream: CUstream));
symbol!(600, cuStreamBeginCaptureToCig, (hStream: CUstream, streamCigCaptureParams: *mut c_void));
symbol!(601, cuStreamBeginCaptureToCig_ptsz, (hStream: CUstream, streamCigCaptureParams: *mut c_void));
symbol!(602, cuStreamBeginCaptureToGraph, (hStream: CUstream, hGraph: CUgraph, dependencies: *const CUgraphNode, dependencyData: *const c_void, numDependencies: usize, mode: c_uint));
symbol!(603, cuStreamBeginCaptureToGraph_ptsz, (hStream: CUstream, hGraph: CUgraph, dependencies: *const CUgraphNode, dependencyData: *const c_void, numDependencies: usize, mode: c_uint));
symbol!(604, cuStreamBeginCapture_ptsz, (hStream: CUstream));
symbol!(605, cuStreamBeginCapture_v2, (hStream: CUstream, mode: c_uint));
symbol!(606, cuStreamBeginCapture_v2_ptsz, (hStream: CUstream, mode: c_uint));
symbol!(607, cuStreamBeginRecaptureToGraph, (hStream: CUstream, mode: c_uint, hGraph: CUgraph, callbackFunc: *mut c_void, userData: *mut c_void));
symbol!(608, cuStreamBeginRecaptureToGraph_ptsz, (hStream: CUstream, mode: c_uint, hGraph: CUgraph, callbackFunc: *mut c_void, userData: *mut c_void));
symbol!(609, cuStreamCopyAttributes, (dstStream: CUstream, srcStream: CUstream));
symbol!(610, cuStreamCopyAttributes_ptsz, (dstStream: CUstream, srcStream: CUstream));
symbol!(611, cuStreamCreate, (phStream: *mut CUstream, Flags: c_uint));
symbol!(612, cuStreamCreateWithPriority, (phStream: *mut CUstream, flags: c_uint, priority: c_int));
symbol!(613, cuStreamDestroy, (hStream: CUstream));
symbol!(614, cuStreamDestroy_v2, (hStream: CUstream));
symbol!(615, cuStreamEndCapture, (hStream: CUstream, phGraph: *mut CUgraph));
symbol!(616, cuStreamEndCaptureToCig, (hStream: CUstream));
symbol!(617, cuStreamEndCaptureToCig_ptsz, (hStream: CUstream));
symbol!(618, cuStreamEndCapture_ptsz, (hStream: CUstream, phGraph: *mut CUgraph));
symbol!(619, cuStreamGetAttribute, (hStream: CUstream, attr: *mut c_void, value: *mut c_void));
symbol!(620, cuStreamGetAttribute_ptsz, (hStream: CUstream, attr: *mut c_void, value: *mut c_void));
symbol!(621, cuStreamGetCaptureInfo, (hStream: CUstream, captureStatus_out: *mut c_uint, id_out: *mut u64));
symbol!(622, cuStreamGetCaptureInfo_ptsz, (hStream: CUstream, captureStatus_out: *mut c_uint, id_out: *mut u64));
symbol!(623, cuStreamGetCaptureInfo_v2, (hStream: CUstream, captureStatus_out: *mut c_uint, id_out: *mut u64, graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode, numDependencies_out: *mut usize));
symbol!(624, cuStreamGetCaptureInfo_v2_ptsz, (hStream: CUstream, captureStatus_out: *mut c_uint, id_out: *mut u64, graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode, numDependencies_out: *mut usize));
symbol!(625, cuStreamGetCaptureInfo_v3, (hStream: CUstream, captureStatus_out: *mut c_uint, id_out: *mut u64, graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode, edgeData_out: *mut *const c_void, numDependencies_out: *mut usize));
symbol!(626, cuStreamGetCaptureInfo_v3_ptsz, (hStream: CUstream, captureStatus_out: *mut c_uint, id_out: *mut u64, graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode, edgeData_out: *mut *const c_void, numDependencies_out: *mut usize));
symbol!(627, cuStreamGetCtx, (hStream: CUstream, pctx: *mut CUcontext));
symbol!(628, cuStreamGetCtx_ptsz, (hStream: CUstream, pctx: *mut CUcontext));
symbol!(629, cuStreamGetCtx_v2, (hStream: CUstream, pCtx: *mut CUcontext, pGreenCtx: *mut c_void));
symbol!(630, cuStreamGetCtx_v2_ptsz, (hStream: CUstream, pCtx: *mut CUcontext, pGreenCtx: *mut c_void));
symbol!(631, cuStreamGetDevResource, (hStream: CUstream, resource: *mut c_void, type_: c_uint));
symbol!(632, cuStreamGetDevResource_ptsz, (hStream: CUstream, resource: *mut c_void, type_: c_uint));
symbol!(633, cuStreamGetDevice, (hStream: CUstream, device: *mut CUdevice));
symbol!(634, cuStreamGetDevice_ptsz, (hStream: CUstream, device: *mut CUdevice));
symbol!(635, cuStreamGetFlags, (hStream: CUstream, flags: *mut c_uint));
symbol!(636, cuStreamGetFlags_ptsz, (hStream: CUstream, flags: *mut c_uint));
symbol!(637, cuStreamGetGreenCtx, (hStream: CUstream, phCtx: *mut c_void));
symbol!(638, cuStreamGetId, (hStream: CUstream, streamId: *mut u64));
symbol!(639, cuStreamGetId_ptsz, (hStream: CUstream, streamId: *mut u64));
symbol!(640, cuStreamGetPriority, (hStream: CUstream, priority: *mut c_int));
symbol!(641, cuStreamGetPriority_ptsz, (hStream: CUstream, priority: *mut c_int));
symbol!(642, cuStreamIsCapturing, (hStream: CUstream, captureStatus: *mut c_uint));
symbol!(643, cuStreamIsCapturing_ptsz, (hStream: CUstream, captureStatus: *mut c_uint));
symbol!(644, cuStreamQuery, (hStream: CUstream));
symbol!(645, cuStreamQuery_ptsz, (hStream: CUstream));
symbol!(646, cuStreamSetAttribute, (hStream: CUstream, attr: *mut c_void, param: *const c_void));
symbol!(647, cuStreamSetAttribute_ptsz, (hStream: CUstream, attr: *mut c_void, param: *const c_void));
symbol!(648, cuStreamSynchronize, (hStream: CUstream));
symbol!(649, cuStreamSynchronize_ptsz, (hStream: CUstream));
symbol!(650, cuStreamUpdateCaptureDependencies, (hStream: CUstream, dependencies: *mut CUgraphNode, numDependencies: usize, flags: c_uint));
symbol!(651, cuStreamUpdateCaptureDependencies_ptsz, (hStream: CUstream, dependencies: *mut CUgraphNode, numDependencies: usize, flags: c_uint));
symbol!(652, cuStreamUpdateCaptureDependencies_v2, (hStream: CUstream, dependencies: *mut CUgraphNode, dependencyData: *const c_void, numDependencies: usize, flags: c_uint));
symbol!(653, cuStreamUpdateCaptureDependencies_v2_ptsz, (hStream: CUstream, dependencies: *mut CUgraphNode, dependencyData: *const c_void, numDependencies: usize, flags: c_uint));
symbol!(654, cuStreamWaitEvent, (hStream: CUstream, hEvent: CUevent, Flags: c_uint));
symbol!(655, cuStreamWaitEvent_ptsz, (hStream: CUstream, hEvent: CUevent, Flags: c_uint));
symbol!(656, cuStreamWaitValue32, (stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint));
symbol!(657, cuStreamWaitValue32_ptsz, (stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint));
symbol!(658, cuStreamWaitValue32_v2, (stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint));
symbol!(659, cuStreamWaitValue32_v2_ptsz, (stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint));
symbol!(660, cuStreamWaitValue64, (stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint));
symbol!(661, cuStreamWaitValue64_ptsz, (stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint));
symbol!(662, cuStreamWaitValue64_v2, (stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint));
symbol!(663, cuStreamWaitValue64_v2_ptsz, (stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint));
symbol!(664, cuStreamWriteValue32, (stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint));
symbol!(665, cuStreamWriteValue32_ptsz, (stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint));
symbol!(666, cuStreamWriteValue32_v2, (stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint));
symbol!(667, cuStreamWriteValue32_v2_ptsz, (stream: CUstream, addr: CUdeviceptr, value: c_uint, flags: c_uint));
symbol!(668, cuStreamWriteValue64, (stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint));
symbol!(669, cuStreamWriteValue64_ptsz, (stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint));
symbol!(670, cuStreamWriteValue64_v2, (stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint));
symbol!(671, cuStreamWriteValue64_v2_ptsz, (stream: CUstream, addr: CUdeviceptr, value: u64, flags: c_uint));
symbol!(672, cuSurfObjectCreate, (pSurfObject: *mut u64, pResDesc: *const c_void));
symbol!(673, cuSurfObjectDestroy, (surfObject: u64));
symbol!(674, cuSurfObjectGetResourceDesc, (pResDesc: *mut c_void, surfObject: u64));
symbol!(675, cuSurfRefGetArray, (phArray: *mut CUarray, hSurfRef: CUsurfref));
symbol!(676, cuSurfRefSetArray, (hSurfRef: CUsurfref, hArray: CUarray, Flags: c_uint));
symbol!(677, cuTensorMapEncodeIm2col, (tensorMap: *mut c_void, tensorDataType: c_uint, tensorRank: c_uint, globalAddress: *mut c_void, globalDim: *const u64, globalStrides: *const u64, pixelBoxLowerCorner: *const c_int, pixelBoxUpperCorner: *const c_int, channelsPerPixel: c_uint, pixelsPerColumn: c_uint, elementStrides: *const c_uint, interleave: c_uint, swizzle: c_uint, l2Promotion: c_uint, oobFill: c_uint));
symbol!(678, cuTensorMapEncodeIm2colWide, (tensorMap: *mut c_void, tensorDataType: c_uint, tensorRank: c_uint, globalAddress: *mut c_void, globalDim: *const u64, globalStrides: *const u64, pixelBoxLowerCornerWidth: c_int, pixelBoxUpperCornerWidth: c_int, channelsPerPixel: c_uint, pixelsPerColumn: c_uint, elementStrides: *const c_uint, interleave: c_uint, mode: c_uint, swizzle: c_uint, l2Promotion: c_uint, oobFill: c_uint));
symbol!(679, cuTensorMapEncodeTiled, (tensorMap: *mut c_void, tensorDataType: c_uint, tensorRank: c_uint, globalAddress: *mut c_void, globalDim: *const u64, globalStrides: *const u64, boxDim: *const c_uint, elementStrides: *const c_uint, interleave: c_uint, swizzle: c_uint, l2Promotion: c_uint, oobFill: c_uint));
symbol!(680, cuTensorMapReplaceAddress, (tensorMap: *mut c_void, globalAddress: *mut c_void));
symbol!(681, cuTensorMapSetAllocationClass, (tensorMap: *mut c_void, allocClass: c_uint, outAllocClass: *mut c_uint));
symbol!(682, cuTexObjectCreate, (pTexObject: *mut u64, pResDesc: *const c_void, pTexDesc: *const c_void, pResViewDesc: *const c_void));
symbol!(683, cuTexObjectDestroy, (texObject: u64));
symbol!(684, cuTexObjectGetResourceDesc, (pResDesc: *mut c_void, texObject: u64));
symbol!(685, cuTexObjectGetResourceViewDesc, (pResViewDesc: *mut c_void, texObject: u64));
symbol!(686, cuTexObjectGetTextureDesc, (pTexDesc: *mut c_void, texObject: u64));
symbol!(687, cuTexRefCreate, (pTexRef: *mut CUtexref));
symbol!(688, cuTexRefDestroy, (hTexRef: CUtexref));
symbol!(689, cuTexRefGetAddress, (pdptr: *mut c_uint, hTexRef: CUtexref));
symbol!(690, cuTexRefGetAddressMode, (pam: *mut c_uint, hTexRef: CUtexref, dim: c_int));
symbol!(691, cuTexRefGetAddress_v2, (pdptr: *mut CUdeviceptr, hTexRef: CUtexref));
symbol!(692, cuTexRefGetArray, (phArray: *mut CUarray, hTexRef: CUtexref));
symbol!(693, cuTexRefGetBorderColor, (pBorderColor: *mut f32, hTexRef: CUtexref));
symbol!(694, cuTexRefGetFilterMode, (pfm: *mut c_uint, hTexRef: CUtexref));
symbol!(695, cuTexRefGetFlags, (pFlags: *mut c_uint, hTexRef: CUtexref));
symbol!(696, cuTexRefGetFormat, (pFormat: *mut c_uint, pNumChannels: *mut c_int, hTexRef: CUtexref));
symbol!(697, cuTexRefGetMaxAnisotropy, (pmaxAniso: *mut c_int, hTexRef: CUtexref));
symbol!(698, cuTexRefGetMipmapFilterMode, (pfm: *mut c_uint, hTexRef: CUtexref));
symbol!(699, cuTexRefGetMipmapLevelBias, (pbias: *mut f32, hTexRef: CUtexref));
symbol!(700, cuTexRefGetMipmapLevelClamp, (pminMipmapLevelClamp: *mut f32, pmaxMipmapLevelClamp: *mut f32, hTexRef: CUtexref));
symbol!(701, cuTexRefGetMipmappedArray, (phMipmappedArray: *mut CUmipmappedArray, hTexRef: CUtexref));
symbol!(702, cuTexRefSetAddress, (ByteOffset: *mut c_uint, hTexRef: CUtexref, dptr: c_uint, bytes: c_uint));
symbol!(703, cuTexRefSetAddress2D, (hTexRef: CUtexref, desc: *const c_void, dptr: c_uint, Pitch: c_uint));
symbol!(704, cuTexRefSetAddress2D_v2, (hTexRef: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR, dptr: CUdeviceptr, Pitch: usize));
symbol!(705, cuTexRefSetAddress2D_v3, (hTexRef: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR, dptr: CUdeviceptr, Pitch: usize));
symbol!(706, cuTexRefSetAddressMode, (hTexRef: CUtexref, dim: c_int, am: c_uint));
symbol!(707, cuTexRefSetAddress_v2, (ByteOffset: *mut usize, hTexRef: CUtexref, dptr: CUdeviceptr, bytes: usize));
symbol!(708, cuTexRefSetArray, (hTexRef: CUtexref, hArray: CUarray, Flags: c_uint));
symbol!(709, cuTexRefSetBorderColor, (hTexRef: CUtexref, pBorderColor: *mut f32));
symbol!(710, cuTexRefSetFilterMode, (hTexRef: CUtexref, fm: c_uint));
symbol!(711, cuTexRefSetFlags, (hTexRef: CUtexref, Flags: c_uint));
symbol!(712, cuTexRefSetFormat, (hTexRef: CUtexref, fmt: c_uint, NumPackedComponents: c_int));
symbol!(713, cuTexRefSetMaxAnisotropy, (hTexRef: CUtexref, maxAniso: c_uint));
symbol!(714, cuTexRefSetMipmapFilterMode, (hTexRef: CUtexref, fm: c_uint));
symbol!(715, cuTexRefSetMipmapLevelBias, (hTexRef: CUtexref, bias: f32));
symbol!(716, cuTexRefSetMipmapLevelClamp, (hTexRef: CUtexref, minMipmapLevelClamp: f32, maxMipmapLevelClamp: f32));
symbol!(717, cuTexRefSetMipmappedArray, (hTexRef: CUtexref, hMipmappedArray: CUmipmappedArray, Flags: c_uint));
symbol!(718, cuThreadExchangeStreamCaptureMode, (mode: *mut c_uint));
symbol!(719, cuUserObjectCreate, (object_out: *mut c_void, ptr: *mut c_void, destroy: *mut c_void, initialRefcount: c_uint, flags: c_uint));
symbol!(720, cuUserObjectRelease, (object: *mut c_void, count: c_uint));
symbol!(721, cuUserObjectRetain, (object: *mut c_void, count: c_uint));
symbol!(722, cuVDPAUCtxCreate, (pCtx: *mut CUcontext, flags: c_uint, device: CUdevice, vdpDevice: c_uint, vdpGetProcAddress: *mut c_void));
symbol!(723, cuVDPAUCtxCreate_v2, (pCtx: *mut CUcontext, flags: c_uint, device: CUdevice, vdpDevice: c_uint, vdpGetProcAddress: *mut c_void));
symbol!(724, cuVDPAUGetDevice, (pDevice: *mut CUdevice, vdpDevice: c_uint, vdpGetProcAddress: *mut c_void));
symbol!(725, cuWaitExternalSemaphoresAsync, (extSemArray: *const c_void, paramsArray: *const c_void, numExtSems: c_uint, stream: CUstream));
symbol!(726, cuWaitExternalSemaphoresAsync_ptsz, (extSemArray: *const c_void, paramsArray: *const c_void, numExtSems: c_uint, stream: CUstream));

/// Every symbol's name; the position is its index.
pub const NAMES: [&CStr; 727] = [
    c"cuArray3DCreate",
    c"cuArray3DCreate_v2",
    c"cuArray3DGetDescriptor",
    c"cuArray3DGetDescriptor_v2",
    c"cuArrayCreate",
    c"cuArrayCreate_v2",
    c"cuArrayDestroy",
    c"cuArrayGetDescriptor",
    c"cuArrayGetDescriptor_v2",
    c"cuArrayGetMemoryRequirements",
    c"cuArrayGetPlane",
    c"cuArrayGetSparseProperties",
    c"cuCheckpointOperationComplete",
    c"cuCheckpointProcessCheckpoint",
    c"cuCheckpointProcessGetRestoreThreadId",
    c"cuCheckpointProcessGetState",
    c"cuCheckpointProcessLock",
    c"cuCheckpointProcessRestore",
    c"cuCheckpointProcessUnlock",
    c"cuCoredumpDeregisterCompleteCallback",
    c"cuCoredumpDeregisterStartCallback",
    c"cuCoredumpGetAttribute",
    c"cuCoredumpGetAttributeGlobal",
    c"cuCoredumpRegisterCompleteCallback",
    c"cuCoredumpRegisterStartCallback",
    c"cuCoredumpSetAttribute",
    c"cuCoredumpSetAttributeGlobal",
    c"cuCtxAttach",
    c"cuCtxCreate",
    c"cuCtxCreate_v2",
    c"cuCtxCreate_v3",
    c"cuCtxCreate_v4",
    c"cuCtxDestroy",
    c"cuCtxDestroy_v2",
    c"cuCtxDetach",
    c"cuCtxDisablePeerAccess",
    c"cuCtxEnablePeerAccess",
    c"cuCtxFromGreenCtx",
    c"cuCtxGetApiVersion",
    c"cuCtxGetCacheConfig",
    c"cuCtxGetCurrent",
    c"cuCtxGetDevResource",
    c"cuCtxGetDevice",
    c"cuCtxGetDevice_v2",
    c"cuCtxGetExecAffinity",
    c"cuCtxGetFlags",
    c"cuCtxGetId",
    c"cuCtxGetLimit",
    c"cuCtxGetSharedMemConfig",
    c"cuCtxGetStreamPriorityRange",
    c"cuCtxPopCurrent",
    c"cuCtxPopCurrent_v2",
    c"cuCtxPushCurrent",
    c"cuCtxPushCurrent_v2",
    c"cuCtxRecordEvent",
    c"cuCtxResetPersistingL2Cache",
    c"cuCtxSetCacheConfig",
    c"cuCtxSetCurrent",
    c"cuCtxSetFlags",
    c"cuCtxSetLimit",
    c"cuCtxSetSharedMemConfig",
    c"cuCtxSynchronize",
    c"cuCtxSynchronize_v2",
    c"cuCtxWaitEvent",
    c"cuDestroyExternalMemory",
    c"cuDestroyExternalSemaphore",
    c"cuDevResourceGenerateDesc",
    c"cuDevSmResourceSplit",
    c"cuDevSmResourceSplitByCount",
    c"cuDeviceCanAccessPeer",
    c"cuDeviceComputeCapability",
    c"cuDeviceGet",
    c"cuDeviceGetAttribute",
    c"cuDeviceGetByPCIBusId",
    c"cuDeviceGetCliqueCount",
    c"cuDeviceGetCliqueInfo",
    c"cuDeviceGetCount",
    c"cuDeviceGetDefaultMemPool",
    c"cuDeviceGetDevResource",
    c"cuDeviceGetExecAffinitySupport",
    c"cuDeviceGetFabricClusterUuid",
    c"cuDeviceGetGraphMemAttribute",
    c"cuDeviceGetHostAtomicCapabilities",
    c"cuDeviceGetLuid",
    c"cuDeviceGetMemPool",
    c"cuDeviceGetName",
    c"cuDeviceGetNvSciSyncAttributes",
    c"cuDeviceGetP2PAtomicCapabilities",
    c"cuDeviceGetP2PAttribute",
    c"cuDeviceGetPCIBusId",
    c"cuDeviceGetProperties",
    c"cuDeviceGetTexture1DLinearMaxWidth",
    c"cuDeviceGetUuid",
    c"cuDeviceGetUuid_v2",
    c"cuDeviceGraphMemTrim",
    c"cuDevicePrimaryCtxGetState",
    c"cuDevicePrimaryCtxRelease",
    c"cuDevicePrimaryCtxRelease_v2",
    c"cuDevicePrimaryCtxReset",
    c"cuDevicePrimaryCtxReset_v2",
    c"cuDevicePrimaryCtxRetain",
    c"cuDevicePrimaryCtxSetFlags",
    c"cuDevicePrimaryCtxSetFlags_v2",
    c"cuDeviceRegisterAsyncNotification",
    c"cuDeviceSetGraphMemAttribute",
    c"cuDeviceSetMemPool",
    c"cuDeviceTotalMem",
    c"cuDeviceTotalMem_v2",
    c"cuDeviceUnregisterAsyncNotification",
    c"cuDriverGetVersion",
    c"cuEGLApiInit",
    c"cuEGLStreamConsumerAcquireFrame",
    c"cuEGLStreamConsumerConnect",
    c"cuEGLStreamConsumerConnectWithFlags",
    c"cuEGLStreamConsumerDisconnect",
    c"cuEGLStreamConsumerReleaseFrame",
    c"cuEGLStreamProducerConnect",
    c"cuEGLStreamProducerDisconnect",
    c"cuEGLStreamProducerPresentFrame",
    c"cuEGLStreamProducerReturnFrame",
    c"cuEventCreate",
    c"cuEventCreateFromEGLSync",
    c"cuEventDestroy",
    c"cuEventDestroy_v2",
    c"cuEventElapsedTime",
    c"cuEventElapsedTime_v2",
    c"cuEventQuery",
    c"cuEventRecord",
    c"cuEventRecordWithFlags",
    c"cuEventRecordWithFlags_ptsz",
    c"cuEventRecord_ptsz",
    c"cuEventSynchronize",
    c"cuExternalMemoryGetMappedBuffer",
    c"cuExternalMemoryGetMappedMipmappedArray",
    c"cuFabricCpyBatchAsync",
    c"cuFabricCpyBatchAsync_ptsz",
    c"cuFlushGPUDirectRDMAWrites",
    c"cuFuncGetAttribute",
    c"cuFuncGetModule",
    c"cuFuncGetName",
    c"cuFuncGetParamCount",
    c"cuFuncGetParamInfo",
    c"cuFuncIsLoaded",
    c"cuFuncLoad",
    c"cuFuncSetAttribute",
    c"cuFuncSetBlockShape",
    c"cuFuncSetCacheConfig",
    c"cuFuncSetSharedMemConfig",
    c"cuFuncSetSharedSize",
    c"cuGLCtxCreate",
    c"cuGLCtxCreate_v2",
    c"cuGLGetDevices",
    c"cuGLGetDevices_v2",
    c"cuGLInit",
    c"cuGLMapBufferObject",
    c"cuGLMapBufferObjectAsync",
    c"cuGLMapBufferObjectAsync_v2",
    c"cuGLMapBufferObjectAsync_v2_ptsz",
    c"cuGLMapBufferObject_v2",
    c"cuGLMapBufferObject_v2_ptds",
    c"cuGLRegisterBufferObject",
    c"cuGLSetBufferObjectMapFlags",
    c"cuGLUnmapBufferObject",
    c"cuGLUnmapBufferObjectAsync",
    c"cuGLUnregisterBufferObject",
    c"cuGetErrorName",
    c"cuGetErrorString",
    c"cuGetExportTable",
    c"cuGetProcAddress",
    c"cuGetProcAddress_v2",
    c"cuGetProcAddress_v2_ptsz",
    c"cuGraphAddBatchMemOpNode",
    c"cuGraphAddChildGraphNode",
    c"cuGraphAddDependencies",
    c"cuGraphAddDependencies_v2",
    c"cuGraphAddEmptyNode",
    c"cuGraphAddEventRecordNode",
    c"cuGraphAddEventWaitNode",
    c"cuGraphAddExternalSemaphoresSignalNode",
    c"cuGraphAddExternalSemaphoresWaitNode",
    c"cuGraphAddHostNode",
    c"cuGraphAddKernelNode",
    c"cuGraphAddKernelNode_v2",
    c"cuGraphAddMemAllocNode",
    c"cuGraphAddMemFreeNode",
    c"cuGraphAddMemcpyNode",
    c"cuGraphAddMemsetNode",
    c"cuGraphAddNode",
    c"cuGraphAddNode_v2",
    c"cuGraphAddNode_v3",
    c"cuGraphBatchMemOpNodeGetParams",
    c"cuGraphBatchMemOpNodeSetParams",
    c"cuGraphChildGraphNodeGetGraph",
    c"cuGraphClone",
    c"cuGraphConditionalHandleCreate",
    c"cuGraphCreate",
    c"cuGraphDebugDotPrint",
    c"cuGraphDestroy",
    c"cuGraphDestroyNode",
    c"cuGraphEventRecordNodeGetEvent",
    c"cuGraphEventRecordNodeSetEvent",
    c"cuGraphEventWaitNodeGetEvent",
    c"cuGraphEventWaitNodeSetEvent",
    c"cuGraphExecBatchMemOpNodeSetParams",
    c"cuGraphExecChildGraphNodeSetParams",
    c"cuGraphExecDestroy",
    c"cuGraphExecEventRecordNodeSetEvent",
    c"cuGraphExecEventWaitNodeSetEvent",
    c"cuGraphExecExternalSemaphoresSignalNodeSetParams",
    c"cuGraphExecExternalSemaphoresWaitNodeSetParams",
    c"cuGraphExecGetFlags",
    c"cuGraphExecGetId",
    c"cuGraphExecHostNodeSetParams",
    c"cuGraphExecKernelNodeSetParams",
    c"cuGraphExecKernelNodeSetParams_v2",
    c"cuGraphExecMemcpyNodeSetParams",
    c"cuGraphExecMemsetNodeSetParams",
    c"cuGraphExecNodeSetParams",
    c"cuGraphExecUpdate",
    c"cuGraphExecUpdate_v2",
    c"cuGraphExternalSemaphoresSignalNodeGetParams",
    c"cuGraphExternalSemaphoresSignalNodeSetParams",
    c"cuGraphExternalSemaphoresWaitNodeGetParams",
    c"cuGraphExternalSemaphoresWaitNodeSetParams",
    c"cuGraphGetEdges",
    c"cuGraphGetEdges_v2",
    c"cuGraphGetId",
    c"cuGraphGetNodes",
    c"cuGraphGetRootNodes",
    c"cuGraphHostNodeGetParams",
    c"cuGraphHostNodeSetParams",
    c"cuGraphInstantiate",
    c"cuGraphInstantiateWithFlags",
    c"cuGraphInstantiateWithParams",
    c"cuGraphInstantiateWithParams_ptsz",
    c"cuGraphInstantiate_v2",
    c"cuGraphKernelNodeCopyAttributes",
    c"cuGraphKernelNodeGetAttribute",
    c"cuGraphKernelNodeGetParams",
    c"cuGraphKernelNodeGetParams_v2",
    c"cuGraphKernelNodeSetAttribute",
    c"cuGraphKernelNodeSetParams",
    c"cuGraphKernelNodeSetParams_v2",
    c"cuGraphLaunch",
    c"cuGraphLaunch_ptsz",
    c"cuGraphMemAllocNodeGetParams",
    c"cuGraphMemFreeNodeGetParams",
    c"cuGraphMemcpyNodeGetParams",
    c"cuGraphMemcpyNodeSetParams",
    c"cuGraphMemsetNodeGetParams",
    c"cuGraphMemsetNodeSetParams",
    c"cuGraphNodeFindInClone",
    c"cuGraphNodeGetContainingGraph",
    c"cuGraphNodeGetDependencies",
    c"cuGraphNodeGetDependencies_v2",
    c"cuGraphNodeGetDependentNodes",
    c"cuGraphNodeGetDependentNodes_v2",
    c"cuGraphNodeGetEnabled",
    c"cuGraphNodeGetLocalId",
    c"cuGraphNodeGetParams",
    c"cuGraphNodeGetToolsId",
    c"cuGraphNodeGetType",
    c"cuGraphNodeSetEnabled",
    c"cuGraphNodeSetParams",
    c"cuGraphNodeSetParams_v2",
    c"cuGraphReleaseUserObject",
    c"cuGraphRemoveDependencies",
    c"cuGraphRemoveDependencies_v2",
    c"cuGraphRetainUserObject",
    c"cuGraphUpload",
    c"cuGraphUpload_ptsz",
    c"cuGraphicsEGLRegisterImage",
    c"cuGraphicsGLRegisterBuffer",
    c"cuGraphicsGLRegisterImage",
    c"cuGraphicsMapResources",
    c"cuGraphicsMapResources_ptsz",
    c"cuGraphicsResourceGetMappedEglFrame",
    c"cuGraphicsResourceGetMappedMipmappedArray",
    c"cuGraphicsResourceGetMappedPointer",
    c"cuGraphicsResourceGetMappedPointer_v2",
    c"cuGraphicsResourceSetMapFlags",
    c"cuGraphicsResourceSetMapFlags_v2",
    c"cuGraphicsSubResourceGetMappedArray",
    c"cuGraphicsUnmapResources",
    c"cuGraphicsUnmapResources_ptsz",
    c"cuGraphicsUnregisterResource",
    c"cuGraphicsVDPAURegisterOutputSurface",
    c"cuGraphicsVDPAURegisterVideoSurface",
    c"cuGreenCtxCreate",
    c"cuGreenCtxDestroy",
    c"cuGreenCtxGetDevResource",
    c"cuGreenCtxGetId",
    c"cuGreenCtxRecordEvent",
    c"cuGreenCtxStreamCreate",
    c"cuGreenCtxWaitEvent",
    c"cuImportExternalMemory",
    c"cuImportExternalSemaphore",
    c"cuInit",
    c"cuIpcCloseMemHandle",
    c"cuIpcGetEventHandle",
    c"cuIpcGetMemHandle",
    c"cuIpcOpenEventHandle",
    c"cuIpcOpenMemHandle",
    c"cuIpcOpenMemHandle_v2",
    c"cuKernelGetAttribute",
    c"cuKernelGetFunction",
    c"cuKernelGetLibrary",
    c"cuKernelGetName",
    c"cuKernelGetParamCount",
    c"cuKernelGetParamInfo",
    c"cuKernelSetAttribute",
    c"cuKernelSetCacheConfig",
    c"cuLaunch",
    c"cuLaunchCooperativeKernel",
    c"cuLaunchCooperativeKernelMultiDevice",
    c"cuLaunchCooperativeKernel_ptsz",
    c"cuLaunchGrid",
    c"cuLaunchGridAsync",
    c"cuLaunchHostFunc",
    c"cuLaunchHostFunc_ptsz",
    c"cuLaunchHostFunc_v2",
    c"cuLaunchHostFunc_v2_ptsz",
    c"cuLaunchKernel",
    c"cuLaunchKernelEx",
    c"cuLaunchKernelEx_ptsz",
    c"cuLaunchKernel_ptsz",
    c"cuLibraryEnumerateKernels",
    c"cuLibraryGetGlobal",
    c"cuLibraryGetKernel",
    c"cuLibraryGetKernelCount",
    c"cuLibraryGetManaged",
    c"cuLibraryGetModule",
    c"cuLibraryGetUnifiedFunction",
    c"cuLibraryLoadData",
    c"cuLibraryLoadFromFile",
    c"cuLibraryUnload",
    c"cuLinkAddData",
    c"cuLinkAddData_v2",
    c"cuLinkAddFile",
    c"cuLinkAddFile_v2",
    c"cuLinkComplete",
    c"cuLinkCreate",
    c"cuLinkCreate_v2",
    c"cuLinkDestroy",
    c"cuLogicalEndpointAddDevice",
    c"cuLogicalEndpointBindAddr",
    c"cuLogicalEndpointBindMem",
    c"cuLogicalEndpointCreate",
    c"cuLogicalEndpointDestroy",
    c"cuLogicalEndpointExport",
    c"cuLogicalEndpointGetLimits",
    c"cuLogicalEndpointIdRelease",
    c"cuLogicalEndpointIdReserve",
    c"cuLogicalEndpointImport",
    c"cuLogicalEndpointQuery",
    c"cuLogicalEndpointUnbind",
    c"cuLogsCurrent",
    c"cuLogsDumpToFile",
    c"cuLogsDumpToMemory",
    c"cuLogsRegisterCallback",
    c"cuLogsUnregisterCallback",
    c"cuMemAddressFree",
    c"cuMemAddressReserve",
    c"cuMemAdvise",
    c"cuMemAdvise_v2",
    c"cuMemAlloc",
    c"cuMemAllocAsync",
    c"cuMemAllocAsync_ptsz",
    c"cuMemAllocFromPoolAsync",
    c"cuMemAllocFromPoolAsync_ptsz",
    c"cuMemAllocHost",
    c"cuMemAllocHost_v2",
    c"cuMemAllocManaged",
    c"cuMemAllocPitch",
    c"cuMemAllocPitch_v2",
    c"cuMemAlloc_v2",
    c"cuMemBatchDecompressAsync",
    c"cuMemBatchDecompressAsync_ptsz",
    c"cuMemCreate",
    c"cuMemDiscardAndPrefetchBatchAsync",
    c"cuMemDiscardAndPrefetchBatchAsync_ptsz",
    c"cuMemDiscardBatchAsync",
    c"cuMemDiscardBatchAsync_ptsz",
    c"cuMemExportToShareableHandle",
    c"cuMemFree",
    c"cuMemFreeAsync",
    c"cuMemFreeAsync_ptsz",
    c"cuMemFreeHost",
    c"cuMemFree_v2",
    c"cuMemGetAccess",
    c"cuMemGetAddressRange",
    c"cuMemGetAddressRange_v2",
    c"cuMemGetAllocationGranularity",
    c"cuMemGetAllocationPropertiesFromHandle",
    c"cuMemGetAttribute",
    c"cuMemGetAttribute_v2",
    c"cuMemGetDefaultMemPool",
    c"cuMemGetHandleForAddressRange",
    c"cuMemGetInfo",
    c"cuMemGetInfo_v2",
    c"cuMemGetLocationInfo",
    c"cuMemGetMemPool",
    c"cuMemHostAlloc",
    c"cuMemHostGetDevicePointer",
    c"cuMemHostGetDevicePointer_v2",
    c"cuMemHostGetFlags",
    c"cuMemHostRegister",
    c"cuMemHostRegister_v2",
    c"cuMemHostUnregister",
    c"cuMemImportFromShareableHandle",
    c"cuMemMap",
    c"cuMemMapArrayAsync",
    c"cuMemMapArrayAsync_ptsz",
    c"cuMemPoolCreate",
    c"cuMemPoolDestroy",
    c"cuMemPoolExportPointer",
    c"cuMemPoolExportToShareableHandle",
    c"cuMemPoolGetAccess",
    c"cuMemPoolGetAttribute",
    c"cuMemPoolImportFromShareableHandle",
    c"cuMemPoolImportPointer",
    c"cuMemPoolSetAccess",
    c"cuMemPoolSetAttribute",
    c"cuMemPoolTrimTo",
    c"cuMemPrefetchAsync",
    c"cuMemPrefetchAsync_ptsz",
    c"cuMemPrefetchAsync_v2",
    c"cuMemPrefetchAsync_v2_ptsz",
    c"cuMemPrefetchBatchAsync",
    c"cuMemPrefetchBatchAsync_ptsz",
    c"cuMemRangeGetAttribute",
    c"cuMemRangeGetAttributes",
    c"cuMemRelease",
    c"cuMemRetainAllocationHandle",
    c"cuMemSetAccess",
    c"cuMemSetMemPool",
    c"cuMemUnmap",
    c"cuMemcpy",
    c"cuMemcpy2D",
    c"cuMemcpy2DAsync",
    c"cuMemcpy2DAsync_v2",
    c"cuMemcpy2DAsync_v2_ptsz",
    c"cuMemcpy2DUnaligned",
    c"cuMemcpy2DUnaligned_v2",
    c"cuMemcpy2DUnaligned_v2_ptds",
    c"cuMemcpy2D_v2",
    c"cuMemcpy2D_v2_ptds",
    c"cuMemcpy3D",
    c"cuMemcpy3DAsync",
    c"cuMemcpy3DAsync_v2",
    c"cuMemcpy3DAsync_v2_ptsz",
    c"cuMemcpy3DBatchAsync",
    c"cuMemcpy3DBatchAsync_ptsz",
    c"cuMemcpy3DBatchAsync_v2",
    c"cuMemcpy3DBatchAsync_v2_ptsz",
    c"cuMemcpy3DPeer",
    c"cuMemcpy3DPeerAsync",
    c"cuMemcpy3DPeerAsync_ptsz",
    c"cuMemcpy3DPeer_ptds",
    c"cuMemcpy3DWithAttributesAsync",
    c"cuMemcpy3DWithAttributesAsync_ptsz",
    c"cuMemcpy3D_v2",
    c"cuMemcpy3D_v2_ptds",
    c"cuMemcpyAsync",
    c"cuMemcpyAsync_ptsz",
    c"cuMemcpyAtoA",
    c"cuMemcpyAtoA_v2",
    c"cuMemcpyAtoA_v2_ptds",
    c"cuMemcpyAtoD",
    c"cuMemcpyAtoD_v2",
    c"cuMemcpyAtoD_v2_ptds",
    c"cuMemcpyAtoH",
    c"cuMemcpyAtoHAsync",
    c"cuMemcpyAtoHAsync_v2",
    c"cuMemcpyAtoHAsync_v2_ptsz",
    c"cuMemcpyAtoH_v2",
    c"cuMemcpyAtoH_v2_ptds",
    c"cuMemcpyBatchAsync",
    c"cuMemcpyBatchAsync_ptsz",
    c"cuMemcpyBatchAsync_v2",
    c"cuMemcpyBatchAsync_v2_ptsz",
    c"cuMemcpyDtoA",
    c"cuMemcpyDtoA_v2",
    c"cuMemcpyDtoA_v2_ptds",
    c"cuMemcpyDtoD",
    c"cuMemcpyDtoDAsync",
    c"cuMemcpyDtoDAsync_v2",
    c"cuMemcpyDtoDAsync_v2_ptsz",
    c"cuMemcpyDtoD_v2",
    c"cuMemcpyDtoD_v2_ptds",
    c"cuMemcpyDtoH",
    c"cuMemcpyDtoHAsync",
    c"cuMemcpyDtoHAsync_v2",
    c"cuMemcpyDtoHAsync_v2_ptsz",
    c"cuMemcpyDtoH_v2",
    c"cuMemcpyDtoH_v2_ptds",
    c"cuMemcpyHtoA",
    c"cuMemcpyHtoAAsync",
    c"cuMemcpyHtoAAsync_v2",
    c"cuMemcpyHtoAAsync_v2_ptsz",
    c"cuMemcpyHtoA_v2",
    c"cuMemcpyHtoA_v2_ptds",
    c"cuMemcpyHtoD",
    c"cuMemcpyHtoDAsync",
    c"cuMemcpyHtoDAsync_v2",
    c"cuMemcpyHtoDAsync_v2_ptsz",
    c"cuMemcpyHtoD_v2",
    c"cuMemcpyHtoD_v2_ptds",
    c"cuMemcpyPeer",
    c"cuMemcpyPeerAsync",
    c"cuMemcpyPeerAsync_ptsz",
    c"cuMemcpyPeer_ptds",
    c"cuMemcpyWithAttributesAsync",
    c"cuMemcpyWithAttributesAsync_ptsz",
    c"cuMemcpy_ptds",
    c"cuMemsetD16",
    c"cuMemsetD16Async",
    c"cuMemsetD16Async_ptsz",
    c"cuMemsetD16_v2",
    c"cuMemsetD16_v2_ptds",
    c"cuMemsetD2D16",
    c"cuMemsetD2D16Async",
    c"cuMemsetD2D16Async_ptsz",
    c"cuMemsetD2D16_v2",
    c"cuMemsetD2D16_v2_ptds",
    c"cuMemsetD2D32",
    c"cuMemsetD2D32Async",
    c"cuMemsetD2D32Async_ptsz",
    c"cuMemsetD2D32_v2",
    c"cuMemsetD2D32_v2_ptds",
    c"cuMemsetD2D8",
    c"cuMemsetD2D8Async",
    c"cuMemsetD2D8Async_ptsz",
    c"cuMemsetD2D8_v2",
    c"cuMemsetD2D8_v2_ptds",
    c"cuMemsetD32",
    c"cuMemsetD32Async",
    c"cuMemsetD32Async_ptsz",
    c"cuMemsetD32_v2",
    c"cuMemsetD32_v2_ptds",
    c"cuMemsetD8",
    c"cuMemsetD8Async",
    c"cuMemsetD8Async_ptsz",
    c"cuMemsetD8_v2",
    c"cuMemsetD8_v2_ptds",
    c"cuMipmappedArrayCreate",
    c"cuMipmappedArrayDestroy",
    c"cuMipmappedArrayGetLevel",
    c"cuMipmappedArrayGetMemoryRequirements",
    c"cuMipmappedArrayGetSparseProperties",
    c"cuModuleEnumerateFunctions",
    c"cuModuleGetFunction",
    c"cuModuleGetFunctionCount",
    c"cuModuleGetGlobal",
    c"cuModuleGetGlobal_v2",
    c"cuModuleGetLoadingMode",
    c"cuModuleGetSurfRef",
    c"cuModuleGetTexRef",
    c"cuModuleLoad",
    c"cuModuleLoadData",
    c"cuModuleLoadDataEx",
    c"cuModuleLoadFatBinary",
    c"cuModuleUnload",
    c"cuMulticastAddDevice",
    c"cuMulticastBindAddr",
    c"cuMulticastBindAddr_v2",
    c"cuMulticastBindMem",
    c"cuMulticastBindMem_v2",
    c"cuMulticastCreate",
    c"cuMulticastGetGranularity",
    c"cuMulticastUnbind",
    c"cuOccupancyAvailableDynamicSMemPerBlock",
    c"cuOccupancyMaxActiveBlocksPerMultiprocessor",
    c"cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    c"cuOccupancyMaxActiveClusters",
    c"cuOccupancyMaxPotentialBlockSize",
    c"cuOccupancyMaxPotentialBlockSizeWithFlags",
    c"cuOccupancyMaxPotentialClusterSize",
    c"cuParamSetSize",
    c"cuParamSetTexRef",
    c"cuParamSetf",
    c"cuParamSeti",
    c"cuParamSetv",
    c"cuPointerGetAttribute",
    c"cuPointerGetAttributes",
    c"cuPointerSetAttribute",
    c"cuProfilerInitialize",
    c"cuProfilerStart",
    c"cuProfilerStop",
    c"cuSignalExternalSemaphoresAsync",
    c"cuSignalExternalSemaphoresAsync_ptsz",
    c"cuStreamAddCallback",
    c"cuStreamAddCallback_ptsz",
    c"cuStreamAttachMemAsync",
    c"cuStreamAttachMemAsync_ptsz",
    c"cuStreamBatchMemOp",
    c"cuStreamBatchMemOp_ptsz",
    c"cuStreamBatchMemOp_v2",
    c"cuStreamBatchMemOp_v2_ptsz",
    c"cuStreamBeginCapture",
    c"cuStreamBeginCaptureToCig",
    c"cuStreamBeginCaptureToCig_ptsz",
    c"cuStreamBeginCaptureToGraph",
    c"cuStreamBeginCaptureToGraph_ptsz",
    c"cuStreamBeginCapture_ptsz",
    c"cuStreamBeginCapture_v2",
    c"cuStreamBeginCapture_v2_ptsz",
    c"cuStreamBeginRecaptureToGraph",
    c"cuStreamBeginRecaptureToGraph_ptsz",
    c"cuStreamCopyAttributes",
    c"cuStreamCopyAttributes_ptsz",
    c"cuStreamCreate",
    c"cuStreamCreateWithPriority",
    c"cuStreamDestroy",
    c"cuStreamDestroy_v2",
    c"cuStreamEndCapture",
    c"cuStreamEndCaptureToCig",
    c"cuStreamEndCaptureToCig_ptsz",
    c"cuStreamEndCapture_ptsz",
    c"cuStreamGetAttribute",
    c"cuStreamGetAttribute_ptsz",
    c"cuStreamGetCaptureInfo",
    c"cuStreamGetCaptureInfo_ptsz",
    c"cuStreamGetCaptureInfo_v2",
    c"cuStreamGetCaptureInfo_v2_ptsz",
    c"cuStreamGetCaptureInfo_v3",
    c"cuStreamGetCaptureInfo_v3_ptsz",
    c"cuStreamGetCtx",
    c"cuStreamGetCtx_ptsz",
    c"cuStreamGetCtx_v2",
    c"cuStreamGetCtx_v2_ptsz",
    c"cuStreamGetDevResource",
    c"cuStreamGetDevResource_ptsz",
    c"cuStreamGetDevice",
    c"cuStreamGetDevice_ptsz",
    c"cuStreamGetFlags",
    c"cuStreamGetFlags_ptsz",
    c"cuStreamGetGreenCtx",
    c"cuStreamGetId",
    c"cuStreamGetId_ptsz",
    c"cuStreamGetPriority",
    c"cuStreamGetPriority_ptsz",
    c"cuStreamIsCapturing",
    c"cuStreamIsCapturing_ptsz",
    c"cuStreamQuery",
    c"cuStreamQuery_ptsz",
    c"cuStreamSetAttribute",
    c"cuStreamSetAttribute_ptsz",
    c"cuStreamSynchronize",
    c"cuStreamSynchronize_ptsz",
    c"cuStreamUpdateCaptureDependencies",
    c"cuStreamUpdateCaptureDependencies_ptsz",
    c"cuStreamUpdateCaptureDependencies_v2",
    c"cuStreamUpdateCaptureDependencies_v2_ptsz",
    c"cuStreamWaitEvent",
    c"cuStreamWaitEvent_ptsz",
    c"cuStreamWaitValue32",
    c"cuStreamWaitValue32_ptsz",
    c"cuStreamWaitValue32_v2",
    c"cuStreamWaitValue32_v2_ptsz",
    c"cuStreamWaitValue64",
    c"cuStreamWaitValue64_ptsz",
    c"cuStreamWaitValue64_v2",
    c"cuStreamWaitValue64_v2_ptsz",
    c"cuStreamWriteValue32",
    c"cuStreamWriteValue32_ptsz",
    c"cuStreamWriteValue32_v2",
    c"cuStreamWriteValue32_v2_ptsz",
    c"cuStreamWriteValue64",
    c"cuStreamWriteValue64_ptsz",
    c"cuStreamWriteValue64_v2",
    c"cuStreamWriteValue64_v2_ptsz",
    c"cuSurfObjectCreate",
    c"cuSurfObjectDestroy",
    c"cuSurfObjectGetResourceDesc",
    c"cuSurfRefGetArray",
    c"cuSurfRefSetArray",
    c"cuTensorMapEncodeIm2col",
    c"cuTensorMapEncodeIm2colWide",
    c"cuTensorMapEncodeTiled",
    c"cuTensorMapReplaceAddress",
    c"cuTensorMapSetAllocationClass",
    c"cuTexObjectCreate",
    c"cuTexObjectDestroy",
    c"cuTexObjectGetResourceDesc",
    c"cuTexObjectGetResourceViewDesc",
    c"cuTexObjectGetTextureDesc",
    c"cuTexRefCreate",
    c"cuTexRefDestroy",
    c"cuTexRefGetAddress",
    c"cuTexRefGetAddressMode",
    c"cuTexRefGetAddress_v2",
    c"cuTexRefGetArray",
    c"cuTexRefGetBorderColor",
    c"cuTexRefGetFilterMode",
    c"cuTexRefGetFlags",
    c"cuTexRefGetFormat",
    c"cuTexRefGetMaxAnisotropy",
    c"cuTexRefGetMipmapFilterMode",
    c"cuTexRefGetMipmapLevelBias",
    c"cuTexRefGetMipmapLevelClamp",
    c"cuTexRefGetMipmappedArray",
    c"cuTexRefSetAddress",
    c"cuTexRefSetAddress2D",
    c"cuTexRefSetAddress2D_v2",
    c"cuTexRefSetAddress2D_v3",
    c"cuTexRefSetAddressMode",
    c"cuTexRefSetAddress_v2",
    c"cuTexRefSetArray",
    c"cuTexRefSetBorderColor",
    c"cuTexRefSetFilterMode",
    c"cuTexRefSetFlags",
    c"cuTexRefSetFormat",
    c"cuTexRefSetMaxAnisotropy",
    c"cuTexRefSetMipmapFilterMode",
    c"cuTexRefSetMipmapLevelBias",
    c"cuTexRefSetMipmapLevelClamp",
    c"cuTexRefSetMipmappedArray",
    c"cuThreadExchangeStreamCaptureMode",
    c"cuUserObjectCreate",
    c"cuUserObjectRelease",
    c"cuUserObjectRetain",
    c"cuVDPAUCtxCreate",
    c"cuVDPAUCtxCreate_v2",
    c"cuVDPAUGetDevice",
    c"cuWaitExternalSemaphoresAsync",
    c"cuWaitExternalSemaphoresAsync_ptsz",
];
