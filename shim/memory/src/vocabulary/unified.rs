//! Blocks that the CPU and the GPU use in turn, at one address.

/// Which of the two may use such a block now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    /// Its memory is on the host, and mapped for the CPU.
    Cpu,
    /// As every other block.
    Gpu,
}
