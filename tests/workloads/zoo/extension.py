"""A CUDA extension that is compiled on the spot and makes runtime calls of its own."""
import torch
from torch.utils.cpp_extension import load_inline

kernels = r"""
__global__ void triple(float *p, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) p[i] *= 3; }
torch::Tensor f(torch::Tensor x) {
    float *unused, *ordered; cudaStream_t stream;
    cudaMalloc(&unused, 1024); cudaFree(unused);
    cudaStreamCreate(&stream); cudaMallocAsync(&ordered, 4096, stream); cudaMemsetAsync(ordered, 0, 4096, stream);
    cudaFreeAsync(ordered, stream); cudaStreamSynchronize(stream); cudaStreamDestroy(stream);
    triple<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), x.numel());
    return x;
}
"""
module = load_inline("zoo_extension", "torch::Tensor f(torch::Tensor x);", cuda_sources=kernels, functions=["f"], verbose=False)
print(float(module.f(torch.ones(1000, device="cuda")).sum()))
