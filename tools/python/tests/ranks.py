"""Helpers of the tests: ranks that are threads, each with a simulated GPU, and numbers on a GPU without PyTorch."""

import array
import ctypes
import threading
import traceback

from wmshim import wholememory as wm
from wmshim.wholememory import _arrays

CODES = {"int32": "i", "int64": "q", "float32": "f", "float64": "d", "int8": "b"}
driver = ctypes.CDLL("libcuda.so.1")


def play(count, body, **more):
    """Runs ``body(comm)`` in ``count`` threads, and raises the exception of one that failed."""
    unique_id, failures = wm.unique_id(), []

    def rank(number):
        try:
            with wm.Communicator.create(number, count, unique_id, device=number % 2) as comm:
                body(comm, **more)
        except BaseException:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, "\n".join(failures)


def up(kind, values, columns=None):
    """Numbers on the GPU that is current: a vector, or a matrix of so many columns."""
    numbers = array.array(CODES[kind], values)
    shape = (len(numbers),) if columns is None else (len(numbers) // columns, columns)
    made = _arrays.empty(shape, _arrays.dtype_of(kind))
    copy("cuMemcpyHtoD_v2", made.address, numbers.buffer_info()[0], len(numbers) * numbers.itemsize, True)
    return made


def copy(name, on_gpu, on_host, size, up):
    places = (ctypes.c_uint64(on_gpu), ctypes.c_void_p(on_host))
    if size:
        assert driver.cuCtxSynchronize() == 0
        assert getattr(driver, name)(*(places if up else places[::-1]), ctypes.c_size_t(size)) == 0


def down(made):
    """The numbers of an array without gaps."""
    count = 1
    for size in made.shape:
        count *= size
    numbers = array.array(CODES[made.dtype], [0]) * count
    copy("cuMemcpyDtoH_v2", made.address, numbers.buffer_info()[0], count * numbers.itemsize, False)
    return numbers.tolist()


def fails(kind, body, words=""):
    """The error that a call raises."""
    try:
        body()
    except kind as error:
        assert words in str(error), error
        return error
    raise AssertionError(f"no {kind.__name__}")


def rows_of(table, value):
    """Fills this rank's rows: ``value(row, column)``. All ranks do."""
    columns = table.shape[1] if len(table.shape) == 2 else None
    numbers = [value(row, column) for row in table.local_rows for column in range(columns or 1)]
    table.scatter(up(table.dtype, numbers, columns), up("int64", table.local_rows))
    table.comm.barrier()
