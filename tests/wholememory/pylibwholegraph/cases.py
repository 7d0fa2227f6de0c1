"""Hazards: RAPIDS' own Python layer, its wheel unchanged, gets other rows, codes or shapes from our library than its users expect.

Two ranks are processes, each with a simulated GPU. `cargo xtask pylibwholegraph` runs it.
"""

import os
import socket
import tempfile
import unittest

import numpy
import pylibwholegraph.binding.wholememory_binding as wmb
import pylibwholegraph.torch as wgth
import torch
from pylibwholegraph.torch import graph_ops, wholegraph_ops
from pylibwholegraph.torch.dlpack_utils import torch_import_from_dlpack
from pylibwholegraph.torch.wholegraph_env import TorchMemoryContext, get_stream, get_wholegraph_env_fns, wrap_torch_tensor
from pylibwholegraph.utils.multiprocess import multiprocess_run

ROWS = 301
PARTITION = numpy.array([100, 201], dtype=numpy.uintp)
TYPES = ["continuous", "chunked", "distributed", "hierarchy"]
# Row pointers and neighbours of four nodes; node 2 has none.
GRAPH = [0, 3, 4, 4, 7], [1, 2, 3, 0, 0, 1, 2]


def cuda(values, dtype=torch.int64):
    """Numbers on the GPU."""
    return torch.tensor(values, dtype=dtype).cuda()


def rows_of(numbers, columns):
    """Row n of the tables: n, n + 1, ..."""
    return numbers.reshape(-1, 1).float() + torch.arange(columns).float()


class OneRank(unittest.TestCase):
    def setUp(self):
        torch.cuda.set_device(0)

    def test_outputs_of_all_kinds_come_through_pytorchs_callbacks(self):
        for rows, columns in [(1, 1), (128, 10), (33, 127)]:
            given, fixed = torch.rand((columns,), device="cuda"), torch.empty((rows, columns), device="cuda")
            contexts = [TorchMemoryContext() for _ in range(3)]
            wrapped = wrap_torch_tensor(given), wrap_torch_tensor(fixed)
            self.assertEqual(wmb.py_get_wholememory_tensor_count(), 2)
            handles = [context.get_c_context() for context in contexts]
            wmb.wholememory_env_test_cython_op(*wrapped, *handles, rows, get_wholegraph_env_fns(), get_stream())
            torch.cuda.synchronize()
            wanted = given.cpu() + torch.arange(rows).reshape(-1, 1)
            for made in [fixed, *(context.get_tensor() for context in contexts)]:
                self.assertTrue(torch.allclose(made.cpu(), wanted))
            del wrapped
            self.assertEqual(wmb.py_get_wholememory_tensor_count(), 0)

    def test_each_node_is_listed_once(self):
        for dtype in [torch.int32, torch.int64]:
            targets, neighbors = torch.randperm(1000)[:67].to(dtype), torch.randint(0, 1000, (1234,)).to(dtype)
            nodes, places = graph_ops.append_unique(targets.cuda(), neighbors.cuda(), need_neighbor_raw_to_unique=True)
            nodes = nodes.cpu()
            self.assertTrue(torch.equal(nodes[:67], targets))
            self.assertEqual(sorted(nodes.tolist()), sorted({*targets.tolist(), *neighbors.tolist()}))
            self.assertTrue(torch.equal(nodes[places.cpu().long()], neighbors))

    def test_self_loops_come_first(self):
        row_ptr, col = graph_ops.add_csr_self_loop(cuda(GRAPH[0], torch.int32), cuda(GRAPH[1], torch.int32))
        self.assertEqual(row_ptr.tolist(), [0, 4, 6, 7, 11])
        self.assertEqual(col.tolist(), [0, 1, 2, 3, 1, 0, 2, 3, 0, 1, 2])

    def test_what_is_refused_is_an_exception_of_python(self):
        with self.assertRaises(ValueError):
            graph_ops.append_unique(cuda([1]), cuda([1], torch.int32))


def moves_rows(comm):
    """Scatter and gather of all kinds of memory, with parts of different lengths."""
    rank = comm.get_rank()
    for kind in TYPES:
        for place in ["cpu", "cuda"]:
            for columns in [0, 64]:
                sizes = [ROWS, columns] if columns else [ROWS]
                assert comm.support_type_location(kind, place)
                # Hierarchy memory is divided in equal parts by RAPIDS, too.
                partition = None if kind == "hierarchy" else PARTITION
                table = wgth.create_wholememory_tensor(comm, kind, place, sizes, torch.float32, None, partition)
                own = torch.arange(rank, ROWS, 2)
                given = rows_of(own, columns or 1)
                table.scatter((given if columns else given.flatten()).cuda(), own.cuda())
                comm.barrier()
                numbers = torch.randint(0, ROWS, (511,), dtype=torch.int32)
                found = table.gather(numbers.cuda()).cpu().reshape(511, -1)
                assert torch.equal(found, rows_of(numbers, columns or 1)), (kind, place, columns)
                local, start = table.get_local_tensor(host_view=False)
                numbers = torch.arange(start, start + local.shape[0])
                assert torch.equal(local.cpu().reshape(len(numbers), -1), rows_of(numbers, columns or 1))
                comm.barrier()
                wgth.destroy_wholememory_tensor(table)


def shows_memory(comm):
    """Views of memory by DLPack: of the own part, of all, and of each rank's part."""
    device = wmb.WholeMemoryMemoryLocation.MlDevice
    view = torch_import_from_dlpack, wmb.WholeMemoryDataType.DtInt64, device, comm.get_rank()
    memory_type, location = wmb.WholeMemoryMemoryType, wmb.WholeMemoryMemoryLocation
    for kind in [memory_type.MtContinuous, memory_type.MtChunked, memory_type.MtDistributed]:
        for place in [location.MlHost, location.MlDevice]:
            memory = wmb.malloc(1 << 20, comm.wmb_comm, kind, place, 256)
            own, offset = memory.get_local_flatten_tensor(*view)
            own.copy_(torch.arange(offset, offset + own.shape[0]))
            comm.barrier()
            has_one = kind == memory_type.MtContinuous or (kind == memory_type.MtChunked and place == location.MlHost)
            for is_shown, show in [
                (has_one, lambda: memory.get_global_flatten_tensor(*view)[0]),
                (kind != memory_type.MtDistributed, lambda: torch.cat(memory.get_all_chunked_flatten_tensor(*view)[0])),
            ]:
                try:
                    assert torch.equal(show().cpu(), torch.arange(1 << 17)) and is_shown
                except ValueError:
                    assert not is_shown, (kind, place)
            comm.barrier()
            wmb.free(memory)


def reads_files(comm, folder):
    """Files of one list and of one prefix."""
    rank, path = comm.get_rank(), os.path.join(folder, "rows")
    if rank == 0:
        rows_of(torch.arange(ROWS), 6).numpy().tofile(path)
    comm.barrier()
    for place in ["cpu", "cuda"]:
        table = wgth.create_wholememory_tensor_from_filelist(comm, "chunked", place, path, torch.float32, 6)
        assert list(table.shape) == [ROWS, 6]
        prefix = os.path.join(folder, f"stored_{place}")
        table.to_file_prefix(prefix)
        again = wgth.create_wholememory_tensor(comm, "distributed", place, [ROWS, 6], torch.float32, None)
        again.from_file_prefix(prefix)
        numbers = torch.tensor([0, 299, 150, 151])
        assert torch.equal(again.gather(numbers.cuda()).cpu(), rows_of(numbers, 6))
        comm.barrier()
        for made in [table, again]:
            wgth.destroy_wholememory_tensor(made)


def samples_graphs(comm):
    """Neighbours of nodes, of a graph that all ranks have a part of."""
    row_ptr = wgth.create_wholememory_tensor(comm, "chunked", "cuda", [5], torch.int64, None)
    col, weights = [
        wgth.create_wholememory_tensor(comm, "continuous", "cpu", [7], dtype, None) for dtype in [torch.int64, torch.float32]
    ]
    if comm.get_rank() == 0:
        for table, values in [(row_ptr, cuda(GRAPH[0])), (col, cuda(GRAPH[1])), (weights, torch.ones(7).cuda())]:
            table.scatter(values, torch.arange(len(values)).cuda())
    comm.barrier()
    graph = [it.wmb_tensor for it in (row_ptr, col, weights)]
    centers = cuda([3, 2, 0])
    for count, offsets in [(-1, [0, 3, 3, 6]), (2, [0, 2, 2, 4])]:
        for sampled in [
            wholegraph_ops.unweighted_sample_without_replacement(*graph[:2], centers, count, 5, True, True),
            wholegraph_ops.weighted_sample_without_replacement(*graph, centers, count, 5, True, True),
        ]:
            found, nodes, places, edges = (it.cpu() for it in sampled)
            assert found.tolist() == offsets and nodes.tolist() == [GRAPH[1][edge] for edge in edges]
            assert places.tolist() == [0] * (offsets[1]) + [2] * (offsets[3] - offsets[2])
            assert len(set(edges.tolist())) == len(edges)
    comm.barrier()
    for table in (row_ptr, col, weights):
        wgth.destroy_wholememory_tensor(table)


def trains_rows(comm):
    """Embeddings and their optimizers, beside PyTorch's own with the gradients of both ranks."""
    rank = comm.get_rank()
    ours = {"sgd": {}, "adam": {"weight_decay": 0.0}, "rmsprop": {}, "adagrad": {}}
    theirs = {
        "sgd": torch.optim.SGD,
        "adam": torch.optim.Adam,
        "rmsprop": torch.optim.RMSprop,
        "adagrad": lambda it, lr: torch.optim.Adagrad(it, lr, eps=1e-8),
    }
    for name, parameters in ours.items():
        for place, policy in [("cuda", None), ("cpu", "local_node")]:
            if policy is not None:
                policy = wgth.create_builtin_cache_policy(policy, "chunked", place, "readwrite", 0.5)
            table = wgth.create_embedding(comm, "chunked", place, torch.float32, [40, 10], cache_policy=policy)
            optimizer = wgth.create_wholememory_optimizer(table, name, parameters)
            local, start = table.get_embedding_tensor().get_local_tensor()
            local.copy_(rows_of(torch.arange(start, start + local.shape[0]), 10) / 64)
            comm.barrier()
            layer = wgth.WholeMemoryEmbeddingModule(table)
            reference = (rows_of(torch.arange(40), 10) / 64).requires_grad_()
            same = theirs[name]([reference], lr=0.1)
            # Every row has a gradient, so that a lazy optimizer is PyTorch's.
            numbers = [torch.cat([torch.arange(40), torch.tensor([3, 3, each])]) for each in range(2)]
            for _ in range(2):
                layer(numbers[rank].cuda()).square().sum().backward()
                optimizer.step(0.1)
                same.zero_grad()
                sum(reference[each].square().sum() for each in numbers).backward()
                same.step()
                found = table.gather(torch.arange(40).cuda()).cpu()
                assert torch.allclose(found, reference.detach(), atol=1e-5), (name, place, (found - reference).abs().max())
            comm.barrier()
            wgth.destroy_embedding(table)


def pair(rank, size):
    """What two ranks do, each in a process of its own."""
    comm, _ = wgth.init_torch_env_and_create_wm_comm(rank, size, rank, size)
    for work in [moves_rows, shows_memory, lambda comm: reads_files(comm, os.environ["CASES_FOLDER"]), samples_graphs, trains_rows]:
        work(comm)
    wgth.finalize()


class TwoRanks(unittest.TestCase):
    def test_they_do_what_rapids_says(self):
        with tempfile.TemporaryDirectory() as folder:
            with socket.socket() as free:
                free.bind(("localhost", 0))
                port = free.getsockname()[1]
            os.environ.update(CASES_FOLDER=folder, MASTER_ADDR="localhost", MASTER_PORT=str(port))
            multiprocess_run(2, pair)


if __name__ == "__main__":
    unittest.main()
