"""Libraries with workspaces of their own: cuSOLVER, cuFFT, cuSPARSE."""
import torch

torch.manual_seed(0)
a = torch.randn(512, 512, device="cuda", dtype=torch.float64)
values = torch.linalg.eigvalsh(a @ a.T)
print(round(float(values.sum()), 4), round(float(torch.linalg.inv(a).abs().max()), 4))
print(round(float(torch.fft.fft2(torch.ones(512, 512, device="cuda")).real.sum()), 1))
sparse = torch.eye(4096, device="cuda").to_sparse_csr()
print(float((sparse @ torch.ones(4096, 8, device="cuda")).sum()))
