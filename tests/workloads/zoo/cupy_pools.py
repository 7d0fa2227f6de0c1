"""CuPy with each of its memory pools."""
import cupy

cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
print(float(cupy.arange(1 << 24, dtype=cupy.float64).sum()))
cupy.cuda.set_allocator(cupy.cuda.MemoryPool().malloc)
print(float(cupy.linalg.svd(cupy.eye(512))[1].sum()))
managed = cupy.cuda.MemoryPool(cupy.cuda.malloc_managed)
cupy.cuda.set_allocator(managed.malloc)
print(float(cupy.ones(1 << 20).sum()))
cupy.cuda.set_allocator(None)
with cupy.cuda.Stream():
    print(float(cupy.fft.fft(cupy.ones(1 << 16)).real.sum()))
