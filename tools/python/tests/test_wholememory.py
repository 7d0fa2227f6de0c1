"""Hazards: a row of another rank, or of another time; memory that is used after it was given back; an error without its reason."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import wmshim

PACKAGE = Path(wmshim.__file__).parents[1]
# Where the libraries were built; the tests of wmctl name them.
PRELOADED, TABLES, DRIVER = (os.environ.get(f"TEST_{name}") for name in ("LIBRARY", "WHOLEGRAPH", "DRIVER"))
NEEDS_LIBRARY = unittest.skipUnless(TABLES and DRIVER, "run by `cargo xtask test`, which builds the library")

BEGIN = "from tests.ranks import *\n"


class WholeMemoryTest(unittest.TestCase):
    def run_python(self, code, **variables):
        """A Python of its own, whose driver is the simulator with two devices."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("WMSHIM_", "LD_", "SIMCUDA_"))}
        with tempfile.TemporaryDirectory() as folder:
            if DRIVER:
                (Path(folder) / "libcuda.so.1").symlink_to(DRIVER)
            ours = {"PYTHONPATH": str(PACKAGE), "LD_LIBRARY_PATH": folder, "SIMCUDA_DEVICES": "2"}
            limits = {"WHOLEMEMORY_LIBRARY": TABLES or "", "WMSHIM_WHOLEMEMORY_TIMEOUT": "60", "SCRATCH": folder}
            environment = {**kept, **ours, **limits, **variables}
            command = [sys.executable, "-B", "-c", code]
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def succeed(self, code, **variables):
        outcome = self.run_python(code, **variables)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        # Reasons are in the errors, and not on standard error as well.
        self.assertNotIn("wholememory[", outcome.stderr)
        return outcome.stdout

    def test_importing_it_opens_nothing(self):
        self.succeed("""
import sys
import wmshim
wmshim.wholememory.Table
maps = open("/proc/self/maps").read()
assert "torch" not in sys.modules and "libcuda" not in maps and "libwholegraph" not in maps
""")

    def test_a_library_that_is_nowhere_is_a_clear_error(self):
        outcome = self.run_python("from wmshim import wholememory as wm; wm.unique_id()", WHOLEMEMORY_LIBRARY="/nowhere")
        self.assertRegex(outcome.stderr.splitlines()[-1], "FileNotFoundError: /nowhere is not there: set WHOLEMEMORY_LIBRARY")

    def test_without_a_driver_it_says_so(self):
        if "libcuda.so.1" not in self.run_python("import ctypes; ctypes.CDLL('libcuda.so.1')", LD_LIBRARY_PATH="").stderr:
            self.skipTest("needs a machine without a CUDA driver")
        outcome = self.run_python("from wmshim.wholememory import _cuda; _cuda.enter(None)", LD_LIBRARY_PATH="")
        self.assertRegex(outcome.stderr.splitlines()[-1], "CudaError: .*is a CUDA driver installed[?]$")

    @NEEDS_LIBRARY
    def test_every_kind_of_table_gives_each_row_to_each_rank(self):
        self.succeed(BEGIN + """
def body(comm, type, location):
    with wm.Table.create([11, 3], "float32", comm, type, location) as table:
        rows_of(table, lambda row, column: 10 * row + column)
        assert down(table.gather(up("int32", [10, 0, 5]))) == [100, 101, 102, 0, 1, 2, 50, 51, 52]
        assert down(table.gather(up("int64", [7]), dtype="float64")) == [70, 71, 72]
        out = up("float32", [1, 2, 3, 4, 5, 6], 3)
        assert table.gather(up("int64", [-1, 1]), out) is out and down(out) == [1, 2, 3, 10, 11, 12]
        comm.barrier()

for type in ("continuous", "chunked", "distributed", "hierarchy"):
    for location in ("device", "host"):
        play(3, body, type=type, location=location)
""")

    @NEEDS_LIBRARY
    def test_vectors_partitions_and_the_own_rows(self):
        self.succeed(BEGIN + """
import ctypes
def body(comm):
    each = [1, 6, 3]
    for location in ("device", "host"):
        with wm.Table.create([10], "int64", comm, location=location, partition=each) as table:
            rows_of(table, lambda row, _: row * row)
            own = table.local_array
            assert len(table.local_rows) == each[comm.rank] and own.shape == (each[comm.rank],)
            interface = own.__cuda_array_interface__ if location == "device" else own.__array_interface__
            assert interface["typestr"] == "<i8" and interface["strides"] is None
            assert hasattr(own, "__array_interface__") == (location == "host") != hasattr(own, "__cuda_array_interface__")
            if location == "host":
                seen = (ctypes.c_int64 * len(table.local_rows)).from_address(interface["data"][0])
                assert list(seen) == [row * row for row in table.local_rows]
            else:
                assert down(own) == [row * row for row in table.local_rows]
            assert down(table.gather(up("int64", [9, 2]))) == [81, 4]
            comm.barrier()

play(3, body)
""")

    @NEEDS_LIBRARY
    def test_files_are_those_of_the_rows(self):
        self.succeed(BEGIN + """
import os, struct
prefix = os.environ["SCRATCH"] + "/rows"
def body(comm):
    with wm.Table.create([5, 2], "float32", comm) as table, wm.Table.create([5, 2], "float32", comm) as other:
        rows_of(table, lambda row, column: 2 * row + column)
        file = table.store(prefix)
        assert file == f"{prefix}_part_{comm.rank}_of_2"
        assert list(struct.unpack(f"{os.path.getsize(file) // 4}f", open(file, "rb").read())) == down(table.local_array)
        other.load_parts(prefix)
        comm.barrier()
        assert down(other.gather(up("int64", range(5)))) == list(range(10))
        error = fails(wm.WholeMemoryError, lambda: other.load([prefix + "_missing"]))
        assert "_missing" in str(error) or "rank" in str(error), error

play(2, body)
""")

    @NEEDS_LIBRARY
    def test_embeddings_are_trained_saved_and_loaded(self):
        self.succeed(BEGIN + """
import os
prefix = os.environ["SCRATCH"] + "/rows"
STATES = {wm.Sgd(): [], wm.LazyAdam(adam_w=True): ["m", "v", "beta12t"], wm.RmsProp(alpha=0.5): ["v"], wm.Adagrad(): ["state_sum"]}
def body(comm):
    for optimizer, states in STATES.items():
        with wm.Embedding.create([6, 3], "float32", comm, optimizer=optimizer, cache=wm.CachePolicy(0.5)) as embedding:
            rows_of(embedding.table, lambda row, column: 1.0)
            # Rank 1 has none, but a step is a collective call.
            mine = [5, 0, 5] if comm.rank == 0 else []
            embedding.apply_gradients(up("int64", mine), up("float32", [1.0] * 3 * len(mine), 3), 0.5)
            after = down(embedding.gather(up("int64", [0, 1, 5])))
            assert after[3:6] == [1.0] * 3 and after[0] < 1.0, after
            if optimizer == wm.Sgd():
                assert after == [0.5] * 3 + [1.0] * 3 + [0.0] * 3, after
            assert embedding.optimizer_state_names == states
            name = f"{prefix}_{type(optimizer).__name__}"
            def every():
                tables = [embedding.table, *map(embedding.optimizer_state, states)]
                return [down(table.gather(up("int64", range(6)))) for table in tables]
            embedding.save(name)
            saved = every()
            embedding.apply_gradients(up("int64", range(6)), up("float32", [1.0] * 18, 3), 0.5)
            assert all(now != then for now, then in zip(every(), saved))
            embedding.load(name)
            comm.barrier()
            assert every() == saved
            rows, other = embedding.table, embedding.table
            other.close()
            assert rows.handle == embedding.table.handle and down(rows.gather(up("int64", [0]))) == after[:3]
            fails(ValueError, lambda: embedding.optimizer_state("none"), "none")
    with wm.Embedding.create([6, 3], "float32", comm) as embedding:
        gradients = up("int64", [0]), up("float32", [1.0] * 3, 3), 0.1
        fails(wm.LogicError, lambda: embedding.apply_gradients(*gradients), "no optimizer")

play(2, body)
""")

    @NEEDS_LIBRARY
    def test_neighbours_are_sampled_from_tables_and_from_arrays(self):
        self.succeed(BEGIN + """
ROWS, COLUMNS = [0, 3, 4, 6, 6], [1, 2, 3, 0, 0, 1]
def body(comm):
    with wm.Table.create([5], "int64", comm) as row_ptr, wm.Table.create([6], "int32", comm, "distributed") as col:
        with wm.Table.create([6], "float32", comm) as weights:
            rows_of(row_ptr, lambda row, _: ROWS[row])
            rows_of(col, lambda row, _: COLUMNS[row])
            rows_of(weights, lambda row, _: 1.0 + row)
            arrays = up("int64", ROWS), up("int32", COLUMNS)
            for graph, weight in (((row_ptr, col), None), (arrays, None), ((row_ptr, col), weights)):
                samples = wm.sample_neighbors(*graph, up("int32", [2, 0, 3]), 2, weights=weight, seed=7, edges=True)
                offsets, neighbors, centers, edges = map(down, samples)
                assert offsets == [0, 2, 4, 4] and centers == [0, 0, 1, 1], (offsets, centers)
                assert neighbors == [COLUMNS[edge] for edge in edges] and len(set(edges)) == 4, (neighbors, edges)
            every = wm.sample_neighbors(row_ptr, col, up("int32", [0]), 0, centers=False)
            assert down(every.neighbors) == [1, 2, 3] and every.centers is None and every.edges is None
            every = wm.sample_neighbors(row_ptr, col, up("int32", [2]), 0, centers=False, edges=True)
            assert down(every.edges) == [4, 5] and every.centers is None
            comm.barrier()

play(2, body)
import wmshim.wholememory._cuda as cuda
cuda.enter(0)
nodes, mapping = wm.append_unique(up("int64", [4, 7]), up("int64", [7, 9, 4, 9, 1]))
assert (down(nodes), down(mapping)) == ([4, 7, 9, 1], [1, 2, 0, 2, 3])
assert wm.append_unique(up("int64", [4]), up("int64", []), mapping=False).mapping is None
row_ptr, col = wm.add_self_loops(up("int32", [0, 1, 2]), up("int32", [1, 0]))
assert (down(row_ptr), down(col)) == ([0, 2, 4], [0, 1, 1, 0])
""")

    @NEEDS_LIBRARY
    def test_errors_are_classes_with_the_librarys_words(self):
        self.succeed(BEGIN + """
fails(ValueError, lambda: wm.Communicator.create(0, 2), "unique_id()")
fails(ValueError, lambda: wm.Communicator.create(0, 1, b"short"), "128 bytes")
with wm.Communicator.create() as comm:
    table = wm.Table.create([4, 2], "float32", comm)
    fails(TypeError, lambda: table.gather([1, 2]), "indices must be a CUDA tensor")
    fails(ValueError, lambda: wm.Table.create([4], "complex64", comm), "bfloat16")
    fails(ValueError, lambda: wm.Table.create([4], "int8", comm, type="flat"), "chunked")
    fails(ValueError, lambda: wm.Table.create([4], "int8", comm, partition=[1, 3]), "1 ranks")
    fails(ValueError, lambda: table.gather(up("int64", [1]), up("float32", [1, 2])), "out has 2 dimensions")
    error = fails(wm.InvalidInput, lambda: table.gather(up("float32", [1])), "numbers of rows have 32 or 64 bits")
    assert (error.code, error.call) == (6, "wholememory_gather") and isinstance(error, ValueError)
    error = fails(wm.OutOfMemory, lambda: wm.Table.create([1 << 40], "int64", comm), "out of memory")
    assert isinstance(error, MemoryError)
    fails(wm.InvalidValue, lambda: wm.Embedding.create([4, 2], "float32", comm, cache=wm.CachePolicy(2.0)), "1/512")
    table.close()
    table.close()
    fails(ValueError, lambda: table.gather(up("int64", [1])), "this table is closed")
    fails(ValueError, lambda: table.local_rows, "closed")
fails(ValueError, comm.barrier, "this communicator is closed")
""")

    @NEEDS_LIBRARY
    def test_ranks_that_are_processes_and_a_rank_that_ends(self):
        self.succeed(BEGIN + """
import os
unique_id, parent = wm.unique_id(), os.getpid()
if os.fork() == 0:
    comm = wm.Communicator.create(1, 2, unique_id, device=1)
    table = wm.Table.create([4], "int64", comm)
    rows_of(table, lambda row, _: row + 1)
    comm.barrier()
    os._exit(0)
comm = wm.Communicator.create(0, 2, unique_id, device=0)
table = wm.Table.create([4], "int64", comm)
rows_of(table, lambda row, _: row + 1)
assert down(table.gather(up("int64", [3, 0]))) == [4, 1]
comm.barrier()
os.wait()
fails(wm.CommunicationError, comm.barrier, "WMSHIM_WHOLEMEMORY_TIMEOUT")
""")

    @NEEDS_LIBRARY
    def test_a_forked_child_leaves_its_parents_tables_alone(self):
        self.succeed(BEGIN + """
import os
comm = wm.Communicator.create()
table = wm.Table.create([4], "int64", comm)
rows_of(table, lambda row, _: row + 1)
child = os.fork()
if child == 0:
    # A call into a driver that was forked may hang.
    wm._api.call = lambda *_: os._exit(1)
    table.close()
    del table, comm
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert down(table.gather(up("int64", [3, 0]))) == [4, 1]
""")

    @NEEDS_LIBRARY
    def test_memory_lives_as_long_as_somebody_has_it(self):
        self.succeed(BEGIN + """
import ctypes, gc
def held():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return total.value - free.value

comm = wm.Communicator.create()
before = held()
table = wm.Table.create([1 << 20], "int64", comm)
rows_of(table, lambda row, _: row)
rows = table.local_array
del table
gc.collect()
assert held() - before >= 8 << 20 and down(rows)[:3] == [0, 1, 2]
del rows
gc.collect()
assert held() == before, held() - before
embedding = wm.Embedding.create([1 << 18, 8], "float32", comm, optimizer=wm.Adagrad())
state = embedding.optimizer_state("state_sum")
del embedding
gc.collect()
assert len(down(state.gather(up("int64", [1])))) == 8
del state
gc.collect()
assert held() == before, held() - before
""")

    @NEEDS_LIBRARY
    def test_calls_leave_nothing_behind_whether_they_fail_or_not(self):
        self.succeed(BEGIN + """
from wmshim.wholememory import _environment
with wm.Communicator.create() as comm, wm.Table.create([4, 2], "float32", comm) as table:
    nodes, rows = up("int64", [1, 3]), up("float32", [1] * 4, 2)
    for number in range(3):
        table.scatter(rows, nodes)
        assert down(table.gather(nodes)) == [1] * 4
        fails(wm.InvalidInput, lambda: table.gather(rows.__class__(rows.address, (4,), (1,), rows._dtype, rows)))
        fails(ValueError, lambda: table.gather(nodes, up("int64", [1])))
        down(wm.append_unique(nodes, up("int64", [7])).nodes)
        fails(wm.InvalidInput, lambda: wm.append_unique(nodes, up("int32", [7])))
        fails(wm.InvalidInput, lambda: wm.sample_neighbors(nodes, nodes, rows.__class__(rows.address, (4,), (1,), rows._dtype, rows), 2))
    assert wm._api.library().get_wholememory_tensor_count() == 1
    assert not _environment._environments
assert wm._api.library().get_wholememory_tensor_count() == 0
""")

    @NEEDS_LIBRARY
    def test_arrays_of_others_are_taken_as_the_interface_says(self):
        self.succeed(BEGIN + """
class Foreign:
    def __init__(self, array, **more):
        self.array, self.__cuda_array_interface__ = array, {**array.__cuda_array_interface__, **more}

with wm.Communicator.create() as comm, wm.Table.create([4, 2], "float32", comm) as table:
    table.scatter(up("float32", range(8), 2), up("int64", range(4)))
    # Every other column of a wider array would be taken for the next one.
    wide = up("float32", [0] * 8, 4)
    fails(ValueError, lambda: table.gather(up("int64", [1, 2]), Foreign(wide, shape=(2, 2), strides=(16, 8))), "side by side")
    out = Foreign(wide, shape=(2, 2), strides=(16, 4))
    table.gather(Foreign(up("int64", [1, 2])), out)
    assert down(wide) == [2, 3, 0, 0, 4, 5, 0, 0]
    fails(ValueError, lambda: table.gather(Foreign(wide, typestr="<u4", shape=(8,))), "<u4")
    # The stream that fills an array is waited for: one that is none is an error.
    fails(wm.CudaError, lambda: table.gather(Foreign(up("int64", [1]), stream=4711)), "cuStreamSynchronize")
    assert down(table.gather(Foreign(up("int64", [3]), stream=1))) == [6, 7]
""")

    @NEEDS_LIBRARY
    def test_one_thread_has_tables_of_several_gpus(self):
        self.succeed(BEGIN + """
def on(device, body):
    wm._cuda.enter(device)
    return body()

wm._cuda.enter(1)
with wm.Group.create() as group:
    # The current device is the program's.
    assert wm._cuda.enter(None) == 1 and [rank.device for rank in group.ranks] == [0, 1] and len(group) == 2
    for type in wm._api.TYPES:
        for location in wm._api.LOCATIONS:
            with group.create_table([7, 2], "int64", type, location) as table:
                assert [list(each.local_rows) for each in table] == [[0, 1, 2, 3], [4, 5, 6]]
                on(0, lambda: table[0].scatter(up("int64", range(8), 2), up("int64", [6, 0, 4, 2])))
                on(1, lambda: table[1].scatter(up("int64", range(10, 16), 2), up("int64", [1, 5, 3])))
                group.synchronize()
                for rank in range(2):
                    found = on(rank, lambda: down(table[rank].gather(up("int64", range(7)))))
                    assert found == [2, 3, 10, 11, 6, 7, 14, 15, 4, 5, 12, 13, 0, 1], (type, location, rank, found)
    with group.create_table([6], "float32", partition=[1, 5]) as table:
        on(0, lambda: table.scatter(up("float32", range(6)), up("int64", range(6))))
        assert on(0, lambda: down(table.gather(up("int64", [5, 0])))) == [5, 0]
        assert [len(each.local_rows) for each in table] == [1, 5]
    fails(wm.InvalidInput, lambda: group.create_table([6], "float32", partition=[1, 4]), "has 5 rows")
    fails(ValueError, lambda: group.create_table([6], "float32", partition=[6]), "each of the 2 ranks")
    fails(ValueError, lambda: group.create_table([2, 2, 2], "float32"))
    fails(wm.OutOfMemory, lambda: group.create_table([1 << 40], "int64"))
    assert wm._api.library().get_wholememory_tensor_count() == 0
# Several ranks share a GPU, and more ranks than devices are one communicator, too.
with wm.Group.create([1, 0, 1]) as group, group.create_table([5], "int64") as table:
    on(1, lambda: table[2].scatter(up("int64", [8]), up("int64", [0])))
    group.synchronize()
    assert on(0, lambda: down(table[1].gather(up("int64", [0])))) == [8]
# A call for some ranks alone, or for ranks in another order, would wait for ranks that do not call.
import ctypes
library = wm._api.library()
handles = lambda *ranks: (ctypes.c_void_p * len(ranks))(*(rank.handle for rank in ranks))
with wm.Group.create([0, 1]) as group, wm.Group.create([0, 1]) as other:
    memory, size = (ctypes.c_void_p * 2)(), ctypes.c_size_t(1024)
    def malloc(*ranks, type=1):
        return library.wmshim_wholememory_malloc(memory, size, handles(*ranks), len(ranks), type, 1, ctypes.c_size_t(8), None)
    first, second = group.ranks
    for wrong in [(first,), (second, first), (first, first), (first, other.ranks[1]), ()]:
        assert malloc(*wrong) == 6, wrong
    assert malloc(first, second, type=9) == 6 and malloc(first, second) == 0
    assert library.wmshim_wholememory_free(memory, 2) == 0 and library.wmshim_wholememory_free(memory, 2) == 6
    assert malloc(first, second) == 0 and library.wmshim_wholememory_free(memory, 2) == 0
fails(wm.CudaError, lambda: wm.Group.create([0, 7]))
fails(ValueError, lambda: wm.Group.create([]))
""")

    @NEEDS_LIBRARY
    def test_under_the_preloaded_library(self):
        preloaded = {"LD_PRELOAD": PRELOADED, "WMSHIM_DRIVER": DRIVER, "WMSHIM_STATS_SOCKET": "off"}
        self.succeed(BEGIN + """
import wmshim
assert wmshim.active()
def body(comm):
    with wm.Table.create([8, 2], "float32", comm) as table:
        rows_of(table, lambda row, column: row)
        assert down(table.gather(up("int64", [7, 1]))) == [7, 7, 1, 1]
        comm.barrier()

play(2, body)
""", **preloaded)

    @NEEDS_LIBRARY
    def test_with_pytorch_results_are_its_tensors_in_its_stream(self):
        self.succeed(BEGIN + """
import ctypes
from tests import fake_cuda
torch = fake_cuda.install()
comm = wm.Communicator.create(device=0)
table = wm.Table.create([6, 2], torch.float32, comm)
rows_of(table, lambda row, column: row)
indices = fake_cuda.Tensor(up("int64", [5, 2]))
rows = table.gather(indices)
assert isinstance(rows, torch.Tensor) and down(rows.array) == [5, 5, 2, 2] and torch.made == ["cuda:0"]
fails(TypeError, lambda: table.gather(fake_cuda.Tensor(up("int64", [5]), is_cuda=False)), "must be on a GPU")
half = fake_cuda.Tensor(up("float32", [7, 7, 8, 8], 2), is_packed=False)
table.scatter(half, indices)
assert down(table.gather(indices).array) == [7, 7, 8, 8]
# A capture is refused in the stream that PyTorch has made current, and only there.
nodes = fake_cuda.Tensor(up("int64", [1])), fake_cuda.Tensor(up("int64", [2, 1]))
stream = ctypes.c_void_p()
assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0 and driver.cuStreamBeginCapture_v2(stream, 2) == 0
torch.stream = fake_cuda.Stream(stream.value)
fails(wm.NotSupported, lambda: wm.append_unique(*nodes), "captured")
torch.stream = fake_cuda.Stream(0)
assert driver.cuStreamEndCapture(stream, ctypes.byref(ctypes.c_void_p())) == 0
unique = wm.append_unique(*nodes)
assert down(unique.nodes.array) == [1, 2] and down(unique.mapping.array) == [1, 0]
""")

    @NEEDS_LIBRARY
    def test_no_memory_for_a_result_is_pytorchs_own_error(self):
        self.succeed(BEGIN + """
from tests import fake_cuda
torch = fake_cuda.install()
comm = wm.Communicator.create(device=0)
nodes = fake_cuda.Tensor(up("int64", [1])), fake_cuda.Tensor(up("int64", [2, 1]))
class Full(RuntimeError): pass
def full(shape, dtype, device):
    raise Full("CUDA out of memory")
torch.empty = full
fails(Full, lambda: wm.append_unique(*nodes))
error = fails(wm.OutOfMemory, lambda: wm.append_unique(*nodes, mapping=False), "CUDA out of memory")
assert isinstance(error.__cause__, Full)
torch.empty = fake_cuda.empty
assert down(wm.append_unique(*nodes).nodes.array) == [1, 2]
""")

    @NEEDS_LIBRARY
    def test_a_process_group_of_pytorch_is_a_communicator(self):
        self.succeed(BEGIN + """
from tests import fake_cuda
torch = fake_cuda.install(ranks=3)
seen = []
def rank(number):
    torch.distributed.numbers.rank = number
    with wm.Communicator.from_torch(device=number % 2) as comm:
        comm.barrier()
        seen.append((comm.rank, comm.size, comm.device))
        part = comm.split(None if number == 1 else 0, -number)
        seen.append((number, None if part is None else (part.rank, part.size)))

threads = [threading.Thread(target=rank, args=(number,)) for number in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
wanted = [(0, 3, 0), (1, 3, 1), (2, 3, 0), (0, (1, 2)), (1, None), (2, (0, 2))]
assert sorted(map(str, seen)) == sorted(map(str, wanted)), seen
""")


if __name__ == "__main__":
    unittest.main()
