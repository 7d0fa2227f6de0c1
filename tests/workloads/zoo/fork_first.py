"""Processes that are forked before the first use of CUDA, each of which uses it."""
import multiprocessing
import torch


def work(answers):
    answers.put(float(torch.ones(1000, device="cuda").sum()))


fork = multiprocessing.get_context("fork")
answers = fork.Queue()
processes = [fork.Process(target=work, args=(answers,)) for _ in range(4)]
[process.start() for process in processes]
print(sum(answers.get() for _ in processes))
[process.join() for process in processes]
