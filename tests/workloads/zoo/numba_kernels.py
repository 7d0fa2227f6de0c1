"""Numba: kernels over device, managed and mapped arrays."""
import numpy
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack
from numba import cuda


@cuda.jit
def double(source, target):
    i = cuda.grid(1)
    if i < source.size:
        target[i] = source[i] * 2


source = cuda.to_device(numpy.arange(1 << 20, dtype=numpy.float32))
target = cuda.device_array_like(source)
double[4096, 256](source, target)
print(float(target.copy_to_host().sum()))
for make in (cuda.managed_array, cuda.mapped_array):
    array = make(1024, dtype=numpy.float32)
    array[:] = 2
    print(float(array.sum()))
