//! CUDA kernels, compiled for the GPU and for the CPU.
