"""Hazard (wrong result): a layer's gradient is lost, applied twice or to another row; training differs from PyTorch's own.

PyTorch has a simulated GPU (`cargo xtask rapids`). Ranks are processes.
"""

import multiprocessing
import unittest

import torch
from wmshim import wholememory as wm
from wmshim.wholememory import nn

ROWS, COLUMNS, RATE = 40, 6, 0.1
OPTIMIZERS = {
    wm.Sgd(): lambda it: torch.optim.SGD(it, RATE),
    wm.LazyAdam(): lambda it: torch.optim.Adam(it, RATE),
    wm.RmsProp(): lambda it: torch.optim.RMSprop(it, RATE, eps=1e-8),
    wm.Adagrad(): lambda it: torch.optim.Adagrad(it, RATE, eps=1e-8),
}


def first_rows():
    """The rows before training."""
    return (torch.arange(ROWS * COLUMNS).float().reshape(ROWS, COLUMNS) / 99).sin()


def layer_of(comm, optimizer, dtype=torch.float32):
    """A layer whose rows are `first_rows`."""
    embedding = wm.Embedding.create([ROWS, COLUMNS], dtype, comm, optimizer=optimizer)
    embedding.table.scatter(first_rows().to(dtype).cuda(), torch.arange(ROWS).cuda())
    comm.barrier()
    return nn.EmbeddingLayer(embedding)


def rows_of(layer):
    """All rows, on the host."""
    with torch.no_grad():
        return layer(torch.arange(ROWS)).cpu()


def trains(comm, optimizer, begin):
    """Two lookups a step, one of a matrix of numbers with repetitions, beside PyTorch's dense layer."""
    layer = layer_of(comm, optimizer)
    sparse = nn.SparseOptimizer(layer, RATE)
    dense = torch.nn.Embedding.from_pretrained(first_rows(), freeze=False)
    same = begin(dense.parameters())
    weights = torch.linspace(-1, 1, COLUMNS)
    # All rows have a gradient at some rank: a lazy optimizer is PyTorch's then.
    every = [torch.arange(ROWS), torch.tensor([[3, 3], [3, 39]])]
    for step in range(3):
        own = every[0][comm.rank :: comm.size], every[1] + torch.tensor(comm.rank - 1 if comm.size > 1 else 0)
        all_own = [every[1] + torch.tensor(rank - 1 if comm.size > 1 else 0) for rank in range(comm.size)]
        loss = (layer(own[0].cuda()) * weights).sum() + layer(own[1].int()).square().sum()
        loss.backward()
        sparse.step()
        same.zero_grad()
        ((dense(every[0]) * weights).sum() + sum(dense(numbers).square().sum() for numbers in all_own)).backward()
        same.step()
        found = rows_of(layer)
        assert torch.allclose(found, dense.weight.detach(), atol=1e-5), (optimizer, step, (found - dense.weight).abs().max())
        comm.barrier()


def rank(number, size, unique_id):
    """What each rank does."""
    torch.cuda.set_device(number)
    with wm.Communicator.create(number, size, unique_id, device=number) as comm:
        for optimizer, begin in OPTIMIZERS.items():
            trains(comm, optimizer, begin)
        # One rank has no gradient, and steps all the same.
        layer = layer_of(comm, wm.Sgd())
        sparse = nn.SparseOptimizer([layer], RATE)
        if comm.rank == 0:
            layer(torch.tensor([7])).sum().backward()
        sparse.step()
        assert torch.allclose(rows_of(layer)[7], first_rows()[7] - RATE) and torch.equal(rows_of(layer)[8], first_rows()[8])
        comm.barrier()


class LayerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.cuda.set_device(0)
        cls.comm = wm.Communicator.create(device=0)

    def moved(self, layer, row):
        """How far a row has come."""
        return (first_rows()[row] - rows_of(layer)[row]).mean().item() / RATE

    def test_two_ranks_train_as_pytorch_does(self):
        context, unique_id = multiprocessing.get_context("spawn"), wm.unique_id()
        ranks = [context.Process(target=rank, args=(number, 2, unique_id)) for number in range(2)]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
        self.assertEqual([each.exitcode for each in ranks], [0, 0])

    def test_without_recording_there_is_no_gradient(self):
        layer = layer_of(self.comm, wm.Sgd())
        sparse = nn.SparseOptimizer(layer, RATE)
        with torch.no_grad():
            self.assertFalse(layer(torch.tensor([1])).requires_grad)
        frozen = layer_of(self.comm, None)
        self.assertFalse(frozen(torch.tensor([1])).requires_grad)
        self.assertRaisesRegex(ValueError, "has no optimizer", nn.SparseOptimizer, frozen, RATE)
        sparse.step()
        self.assertTrue(torch.equal(rows_of(layer), first_rows()))

    def test_gradients_are_applied_once_and_can_be_dropped(self):
        layer = layer_of(self.comm, wm.Sgd())
        sparse = nn.SparseOptimizer(layer, RATE)
        layer(torch.tensor([5])).sum().backward()
        sparse.zero_grad()
        rows = layer(torch.tensor([5, 5, 6])).sum()
        rows.backward(retain_graph=True)
        rows.backward()
        sparse.step()
        sparse.step()
        self.assertAlmostEqual(self.moved(layer, 5), 4, places=4)
        self.assertAlmostEqual(self.moved(layer, 6), 2, places=4)

    def test_a_scheduler_and_a_closure_are_pytorchs(self):
        layer = layer_of(self.comm, wm.Sgd())
        sparse = nn.SparseOptimizer(layer, RATE)
        schedule = torch.optim.lr_scheduler.StepLR(sparse, step_size=1, gamma=0.5)

        def closure():
            loss = layer(torch.tensor([5])).sum()
            loss.backward()
            return loss

        for _ in range(2):
            self.assertTrue(sparse.step(closure).requires_grad)
            schedule.step()
        self.assertAlmostEqual(self.moved(layer, 5), 1.5, places=4)

    def test_results_have_the_type_that_is_asked_for(self):
        embedding = wm.Embedding.create([ROWS, COLUMNS], torch.float16, self.comm, optimizer=wm.Sgd())
        embedding.table.scatter(first_rows().half().cuda(), torch.arange(ROWS).cuda())
        layer = nn.EmbeddingLayer(embedding, torch.float32)
        rows = layer(torch.tensor([[1, 2], [3, 4]]))
        self.assertEqual((rows.dtype, tuple(rows.shape)), (torch.float32, (2, 2, COLUMNS)))
        rows.sum().backward()
        nn.SparseOptimizer(layer, RATE).step()
        self.assertAlmostEqual(self.moved(layer, 4), 1, places=2)
        self.assertEqual(list(layer.parameters()), [])

    def test_a_layer_is_a_part_of_a_model(self):
        torch.manual_seed(0)
        layer = layer_of(self.comm, wm.LazyAdam())
        model = torch.nn.Sequential(layer, torch.nn.Linear(COLUMNS, 1))
        sparse, dense = nn.SparseOptimizer(layer, 0.05), torch.optim.Adam(model.parameters(), 0.05)
        wanted, losses = torch.arange(ROWS).remainder(3).float(), []
        for _ in range(60):
            loss = (model(torch.arange(ROWS)).reshape(-1) - wanted).square().mean()
            loss.backward()
            for optimizer in (sparse, dense):
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0] / 50)


if __name__ == "__main__":
    unittest.main()
