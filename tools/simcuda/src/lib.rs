//! A CUDA driver for machines without a GPU.
//!
//! Built as a shared object with NVIDIA's SONAME: programs and the shim open it like the driver. It
//! shares no allocator code with the shim that it tests: it imports the binary interface, and
//! kernels compiled for the CPU.
//!
//! | part | files |
//! |---|---|
//! | the boundary: exports, the process's end, faults on demand, settings | `entry` `ending` `fail` `settings` `visible` `unsimulated` `proc_address` `errors` |
//! | state: devices, contexts, handles | `state` `device` `attributes` `context` `green` `registry` |
//! | order: streams, events, graphs | `lane` `stream` `event` `callback` `capture` `graph` `graph_form` `graph_copy` `graph_memory` |
//! | memory: its storage, its address, its access rights | `memory` `linear` `managed` `vmm` `pool` `host` `pointer` `ipc` |
//! | arrays, and textures over them and over addresses | `array` `array_copy` `texture` |
//! | work: copies, memsets, launches | `copy` `batch` `link` `memset` `memory_operations` `module` `launch` |
//! | checkpoints by other processes | `checkpoint` |
//! | checks for missing order | `races` `footprint` |
//!
//! Files named `*_api` hold the `exports!` tables of an area; the file without that ending has the
//! implementation.
//!
//! Invariants: nothing happens before the first driver call; no lock of ours is held during a wait
//! for a stream; a child of `fork` never enters the driver of its parent.

/// Every export, for programs that link the simulator instead of opening it.
pub mod exports {
    pub use crate::context_api::*;
    pub use crate::copy_api::*;
    pub use crate::graph_api::*;
    pub use crate::module_api::*;
    pub use crate::pool_api::*;
    pub use crate::stream_api::*;
    pub use crate::unsimulated::*;
    pub use crate::{array::*, array_copy::*, graph_copy::*, graph_form::*, graph_memory::*};
    pub use crate::{
        capture::*, checkpoint::*, device::*, errors::*, event::*, host::*, ipc::*, launch::*, linear::*,
    };
    pub use crate::{green::*, texture::*};
    pub use crate::{managed::*, memory_operations::*, memset::*, pointer::*, proc_address::*, vmm::*};
}

mod array;
mod array_copy;
mod attributes;
mod batch;
mod callback;
mod cancel;
mod capture;
mod checkpoint;
mod context;
mod context_api;
mod copy;
mod copy_api;
mod device;
mod ending;
mod entry;
mod errors;
mod event;
mod exclusion;
mod fail;
mod footprint;
mod graph;
mod graph_api;
mod graph_copy;
mod graph_form;
mod graph_memory;
mod green;
mod host;
mod ipc;
mod lane;
mod launch;
mod linear;
mod link;
mod managed;
mod memory;
mod memory_operations;
mod memset;
mod module;
mod module_api;
mod pointer;
mod pool;
mod pool_api;
mod proc_address;
mod races;
mod registry;
mod settings;
mod state;
mod stream;
mod stream_api;
mod texture;
mod unsimulated;
mod visible;
mod vmm;
