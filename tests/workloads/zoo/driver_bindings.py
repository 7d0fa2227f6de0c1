"""NVIDIA's Python bindings of the driver: contexts, memory without a stream, in stream order, and by mapping."""
from cuda.bindings import driver as cu


def must(answer):
    code, *values = answer
    assert code == cu.CUresult.CUDA_SUCCESS, code
    return values[0] if values else None


must(cu.cuInit(0))
context = must(cu.cuDevicePrimaryCtxRetain(0))
must(cu.cuCtxSetCurrent(context))
plain = must(cu.cuMemAlloc(1 << 20))
must(cu.cuMemsetD32(plain, 7, 1 << 18))
stream = must(cu.cuStreamCreate(0))
ordered = must(cu.cuMemAllocAsync(1 << 20, stream))
must(cu.cuMemcpyDtoDAsync(ordered, plain, 1 << 20, stream))
back = bytearray(1 << 20)
must(cu.cuMemcpyDtoHAsync(back, ordered, 1 << 20, stream))
must(cu.cuMemFreeAsync(ordered, stream))
must(cu.cuStreamSynchronize(stream))
print(sum(back))
prop = cu.CUmemAllocationProp()
prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
handle = must(cu.cuMemCreate(2 << 20, prop, 0))
place = must(cu.cuMemAddressReserve(2 << 20, 0, 0, 0))
must(cu.cuMemMap(place, 2 << 20, 0, handle, 0))
access = cu.CUmemAccessDesc()
access.location, access.flags = prop.location, cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
must(cu.cuMemSetAccess(place, 2 << 20, [access], 1))
must(cu.cuMemsetD8(place, 5, 2 << 20))
must(cu.cuMemcpyDtoH(back, place, 1 << 20))
print(sum(back), must(cu.cuPointerGetAttribute(cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, plain)))
must(cu.cuMemUnmap(place, 2 << 20))
must(cu.cuMemRelease(handle))
must(cu.cuMemAddressFree(place, 2 << 20))
must(cu.cuMemFree(plain))
must(cu.cuStreamDestroy(stream))
must(cu.cuDevicePrimaryCtxRelease(0))
