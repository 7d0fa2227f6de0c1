// Written by `cargo run -p xtask -- generate` from shim/abi/data/driver.tsv. Do not edit.

/// How often a program makes a call.
macro_rules! pace {
    (cuMemAllocAsync) => { Pace::Frequent };
    (cuMemAllocAsync_ptsz) => { Pace::Frequent };
    (cuMemFreeAsync) => { Pace::Frequent };
    (cuMemFreeAsync_ptsz) => { Pace::Frequent };
    ($other:ident) => { Pace::Usual };
}

/// Shows a launch to those that have subscribed; nothing for a function that launches nothing.
macro_rules! observe_launch {
    (cuGraphLaunch $parameters:tt) => { observed!(Legacy $parameters) };
    (cuGraphLaunch_ptsz $parameters:tt) => { observed!(PerThread $parameters) };
    (cuLaunchCooperativeKernel $parameters:tt) => { observed!(Legacy $parameters) };
    (cuLaunchCooperativeKernel_ptsz $parameters:tt) => { observed!(PerThread $parameters) };
    (cuLaunchKernel $parameters:tt) => { observed!(Legacy $parameters) };
    (cuLaunchKernelEx $parameters:tt) => { observed!(Legacy $parameters) };
    (cuLaunchKernelEx_ptsz $parameters:tt) => { observed!(PerThread $parameters) };
    (cuLaunchKernel_ptsz $parameters:tt) => { observed!(PerThread $parameters) };
    ($other:ident $parameters:tt) => {};
}

/// The functions that launch kernels or graphs.
const LAUNCHES: &[usize] = &[
    <symbol::cuGraphLaunch as Symbol>::INDEX,
    <symbol::cuGraphLaunch_ptsz as Symbol>::INDEX,
    <symbol::cuLaunchCooperativeKernel as Symbol>::INDEX,
    <symbol::cuLaunchCooperativeKernel_ptsz as Symbol>::INDEX,
    <symbol::cuLaunchKernel as Symbol>::INDEX,
    <symbol::cuLaunchKernelEx as Symbol>::INDEX,
    <symbol::cuLaunchKernelEx_ptsz as Symbol>::INDEX,
    <symbol::cuLaunchKernel_ptsz as Symbol>::INDEX,
];
