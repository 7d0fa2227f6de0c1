"""CUDA tensors between processes: to a child, back from it, and after the first owner has let go."""
import torch
import torch.multiprocessing as mp


def child(given, answers, back):
    tensor = given.get()
    answers.put(float(tensor.sum()))
    tensor += 1
    torch.cuda.synchronize()
    answers.put("changed")
    back.put(torch.full((1 << 20,), 3.0, device="cuda"))
    given.get()


if __name__ == "__main__":
    mp.set_start_method("spawn")
    given, answers, back = mp.Queue(), mp.Queue(), mp.Queue()
    process = mp.Process(target=child, args=(given, answers, back))
    process.start()
    x = torch.ones(1 << 20, device="cuda")
    given.put(x)
    print(answers.get(), answers.get(), float(x.sum()))
    y = back.get()
    print(float(y.sum()))
    del y
    given.put(None)
    process.join()
    print(process.exitcode)
