"""CuPy: its own pool over cudaMalloc, its async pool, and results checked against NumPy."""
import time

import cupy
import numpy
from figures import emit


def work(seed):
    random = numpy.random.default_rng(seed)
    a = random.standard_normal((1500, 1200))
    device = cupy.asarray(a)
    parts = [device[:, i::7] @ device[:, i::7].T for i in range(7)]
    total = cupy.asnumpy(sum(parts))
    assert numpy.allclose(total, a @ a.T, rtol=1e-8, atol=1e-6)
    return float(total.trace())


values, seconds = [], []
for allocator in (cupy.cuda.MemoryPool().malloc, cupy.cuda.MemoryAsyncPool().malloc, None):
    cupy.cuda.set_allocator(allocator)
    for seed in range(5):
        start = time.perf_counter()
        values.append(work(seed))
        cupy.cuda.Device().synchronize()
        seconds.append(time.perf_counter() - start)
emit("cupy", seconds, sum(values))
