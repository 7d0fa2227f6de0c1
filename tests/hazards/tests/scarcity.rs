//! Hazard (out of memory): on a full device idle memory of the library blocks a driver allocation,
//! or a caller that relies on device memory gets host memory.

use hazards::{Host, Scratch, c, driver, places};

#[test]
fn a_pool_of_the_programs_own_gets_what_we_do_not_use() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "own_pool");
    // More than is released at once, so that all of it must be released.
    let host = Host::shimmed(program, &scratch, &driver).env("SIMCUDA_MEMORY", "1GiB");
    assert_eq!(host.run().expect_success(), "0");
}

/// The output and the log of a program in which a library of this name allocates twelve blocks of 4
/// MiB, on a device of 26 MiB.
fn twelve_blocks(library: &str) -> (String, String) {
    twelve_blocks_of("any", library)
}

fn twelve_blocks_of(kind: &str, library: &str) -> (String, String) {
    let scratch = Scratch::new();
    let folder = scratch.folder("libraries");
    let runtime = text(c::library("block", folder.join("libcudart.so.12"), &[]));
    let library = text(c::library("through", folder.join(library), &[&runtime]));
    let program = c::program(&scratch, "filled", &[&library, &runtime, &text(places::shim())]);
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch)).args(["12", kind]);
    let outcome = host.env("SIMCUDA_MEMORY", "26MiB").run();
    (outcome.expect_success().to_owned(), outcome.stderr.clone())
}

#[test]
fn a_library_that_others_write_into_gets_no_memory_of_the_host() {
    assert_eq!(twelve_blocks("libsome.so.1").0, "12 0");
    for library in ["libnccl.so.2", "libnvshmem_host.so.3", "libuct_cuda.so.0"] {
        let (answer, said) = twelve_blocks(library);
        assert!(answer.ends_with(" 2") && !answer.starts_with("12"), "{library}: {answer}");
        assert!(said.contains("needs memory of the device itself"), "{said}");
    }
}

/// Hazard: PyTorch's `cudaMallocAsync` back end, which caches no memory and never asks again, is
/// told to empty its cache, and gives up.
#[test]
fn who_asks_in_a_stream_is_not_refused_first() {
    assert_eq!(twelve_blocks_of("ordered", "libc10_cuda.so").0, "12 0");
}

/// Where PyTorch counts its private pools.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Pools {
    /// In its allocator's library: 2.5 to 2.9.
    InAllocator,
    /// In another one: since 2.10.
    InCollectives,
    /// There, and one is in use: the allocator does not ask again.
    InUse,
    /// Nowhere: before 2.5.
    Nowhere,
}

impl Pools {
    fn in_use(self, host: Host) -> Host {
        if self == Self::InUse { host.env("PRIVATE_POOL", "1") } else { host }
    }
}

fn text(path: std::path::PathBuf) -> String {
    path.to_str().expect("a readable path").to_owned()
}

/// The libraries of a model of PyTorch's allocator.
fn allocator(scratch: &Scratch, source: &str, file: &str, pools: Pools) -> Vec<String> {
    let folder = scratch.folder("libraries");
    let counts = match pools {
        Pools::InAllocator => return vec![text(c::library(source, folder.join(file), &[]))],
        Pools::InCollectives | Pools::InUse => "libtorch_cuda.so",
        Pools::Nowhere => "libcounts.so",
    };
    let counts = text(c::library("pools", folder.join(counts), &[]));
    vec![text(c::library(source, folder.join(file), &["-DPOOLS", &counts])), counts]
}

/// The number of times that a caching library of this name emptied its cache, and whether host
/// memory was in use: after a block for which its cache had to go, and after more than the device
/// has. On a device of 26 MiB.
fn emptied(library: &str, pools: Pools) -> Vec<(u64, bool)> {
    let scratch = Scratch::new();
    let libraries = allocator(&scratch, "cache", library, pools);
    let shim = text(places::shim());
    let flags: Vec<&str> = libraries.iter().map(String::as_str).chain([shim.as_str()]).collect();
    let program = c::program(&scratch, "caching", &flags);
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch));
    let host = host.env("SIMCUDA_MEMORY", "26MiB").env("WMSHIM_HEADROOM", "2MiB");
    let outcome = pools.in_use(host).run();
    assert!(!outcome.stderr.contains("out of memory"), "{}", outcome.stderr);
    let line = |line: &str| {
        let (emptied, stats) = line.split_once(' ').expect("two words");
        let stats: serde_json::Value = serde_json::from_str(stats).expect("JSON");
        let host = stats["devices"][0]["tiers"]["host"]["live_bytes"].as_u64().expect("bytes");
        (emptied.parse().expect("a number"), host > 0)
    };
    outcome.expect_success().lines().map(line).collect()
}

/// Hazard: memory goes to the host although device memory is unused in PyTorch's cache; or PyTorch
/// gives up needlessly.
#[test]
fn pytorch_hears_of_a_shortage_before_memory_goes_to_the_host() {
    for pools in [Pools::InAllocator, Pools::InCollectives] {
        assert_eq!(emptied("libc10_cuda.so", pools), [(1, false), (1, true)], "{pools:?}");
    }
    assert_eq!(emptied("libsome.so", Pools::InAllocator), [(0, true), (0, true)]);
}

/// Hazard (out of memory): a private pool of PyTorch's takes its allocations, as before the capture
/// of a compiled step, and what it is refused is an error; or nothing is known of its pools.
#[test]
fn pytorch_is_not_refused_where_it_may_not_ask_again() {
    for pools in [Pools::InUse, Pools::Nowhere] {
        assert_eq!(emptied("libc10_cuda.so", pools), [(0, true), (0, true)], "{pools:?}");
        let [turns, both] = paged_by(pools, "9", "both", &[]);
        assert_eq!((turns.emptied, both.emptied, both.code), (0, 0, 0), "{pools:?}");
    }
}

/// The figures of a library that makes its memory itself: the number of emptied caches, the result
/// of the last step, bytes of the host, and idle bytes of the device.
#[derive(Debug)]
struct Paged {
    emptied: u64,
    code: u64,
    host: u64,
    idle: u64,
}

/// These figures after `turns` turns in which the cache must go, and after the step `then`.
fn paged(turns: &str, then: &str, variables: &[(&str, &str)]) -> [Paged; 2] {
    paged_by(Pools::InCollectives, turns, then, variables)
}

fn paged_by(pools: Pools, turns: &str, then: &str, variables: &[(&str, &str)]) -> [Paged; 2] {
    let scratch = Scratch::new();
    let libraries = allocator(&scratch, "pages", "libc10_cuda.so", pools);
    let shim = text(places::shim());
    let flags: Vec<&str> = libraries.iter().map(String::as_str).chain([shim.as_str()]).collect();
    let program = c::program(&scratch, "paging", &flags);
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch)).args([turns, then]);
    let host = pools.in_use(host.env("SIMCUDA_MEMORY", "26MiB").env("WMSHIM_HEADROOM", "0MiB"));
    let outcome = variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run();
    let line = |line: &str| {
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        let stats: serde_json::Value = serde_json::from_str(words[2]).expect("JSON");
        let bytes = |name: &str| stats["devices"][0]["pieces"][name].as_u64().expect("bytes");
        let number = |word: &str| word.parse().expect("a number");
        Paged {
            emptied: number(words[0]),
            code: number(words[1]),
            host: bytes("host_bytes"),
            idle: bytes("idle_bytes"),
        }
    };
    let said: Vec<Paged> = outcome.expect_success().lines().map(line).collect();
    said.try_into().expect("two lines")
}

/// Hazard: after the first emptied cache all memory goes to the host, as with a graph network of
/// six million nodes.
#[test]
fn pytorchs_pages_go_to_the_host_only_where_an_emptied_cache_does_not_suffice() {
    for kept in ["release", "keep"] {
        let [turns, both] = paged("9", "both", &[("WMSHIM_TORCH_PIECES", kept)]);
        assert_eq!((turns.emptied, turns.host), (8, 0), "{kept}");
        assert!(both.code == 0 && both.emptied <= 10 && both.host > 0, "{kept}: {both:?}");
    }
}

/// Hazard: a program releases memory for another one, which does not get it.
#[test]
fn what_pytorch_gives_up_for_others_goes_back_to_the_driver() {
    let none = ("WMSHIM_KEEP_IDLE", "0");
    let [_, emptied] = paged("9", "empty", &[none]);
    assert_eq!(emptied.idle, 0, "it was not asked for by PyTorch itself");
    let [_, failed] = paged("9", "both", &[none, ("WMSHIM_OVERFLOW", "off")]);
    assert_eq!((failed.code, failed.idle), (2, 0), "PyTorch has given up");
}
