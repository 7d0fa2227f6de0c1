//! What the driver tells about a node: the same for captured ones and for those that a program adds
//! itself. Copies of arrays that were captured, and graphs launched in a capture, are not told.
//!
//! NVIDIA's driver may decide how it makes a copy or a memset when the graph is instantiated. If
//! the memory there lies in another place when the work runs, that is a fault here.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

use wm_abi::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D,
    CUDA_MEMSET_NODE_PARAMS, CUcontext, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUkernel, CUresult,
};

use crate::copy::{self, Said, Shape, Side};
use crate::entry::{Call, Outcome, exports, get, put, require};
use crate::graph::{Graph, Kind, exec, graph, node};
use crate::lane::Work;
use crate::launch::{self, Arguments, Grid};
use crate::memset::{self, Fill};
use crate::races;
use crate::settings::complain;
use crate::state::driver;

/// The kind of a node, and its parameters.
#[derive(Debug, Clone)]
pub(crate) enum Form {
    /// A kind with parameters that are kept elsewhere, or not told.
    Plain(Kind),
    Kernel(Arc<KernelForm>),
    Copy(CopyForm),
    Set(Fill),
    Child(ChildGraph),
}

impl From<Kind> for Form {
    fn from(kind: Kind) -> Self {
        Self::Plain(kind)
    }
}

/// The parameters of a copy's node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyForm(pub(crate) CUDA_MEMCPY3D);

// SAFETY: the pointers in it are numbers here; the copy itself checks them.
unsafe impl Send for CopyForm {}

/// The parameters of a kernel's node.
#[derive(Debug)]
pub(crate) struct KernelForm {
    /// A function, or a library's kernel.
    function: CUfunction,
    context: usize,
    grid: Grid,
    arguments: Arc<Arguments>,
    /// The address of each argument, for the program: made when it asks.
    pointers: OnceLock<Box<[usize]>>,
}

impl KernelForm {
    pub(crate) fn new(function: CUfunction, context: usize, grid: Grid, arguments: Arc<Arguments>) -> Self {
        Self { function, context, grid, arguments, pointers: OnceLock::new() }
    }

    fn told(&self) -> CUDA_KERNEL_NODE_PARAMS {
        let is_function = driver().functions.get(self.function.0).is_some();
        let addresses = || self.arguments.pointers().map(|pointer| pointer as usize).collect();
        let Grid { grid, block, shared } = self.grid;
        CUDA_KERNEL_NODE_PARAMS {
            func: if is_function { self.function } else { CUfunction(0) },
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: block[0],
            blockDimY: block[1],
            blockDimZ: block[2],
            sharedMemBytes: shared,
            kernelParams: self.pointers.get_or_init(addresses).as_ptr().cast_mut().cast(),
            extra: null_mut(),
            kern: CUkernel(if is_function { 0 } else { self.function.0 }),
            ctx: CUcontext(self.context),
        }
    }
}

/// The graph of a child's node: a copy of the program's, with a handle while the node lives.
#[derive(Debug)]
pub(crate) struct ChildGraph(Arc<Graph>);

impl ChildGraph {
    fn of(graph: &Graph) -> Self {
        let own = graph.copy();
        driver().graphs.enter(own.handle, Arc::clone(&own));
        Self(own)
    }

    pub(crate) fn graph(&self) -> &Graph {
        &self.0
    }
}

impl Clone for ChildGraph {
    fn clone(&self) -> Self {
        Self::of(&self.0)
    }
}

impl Drop for ChildGraph {
    fn drop(&mut self) {
        driver().graphs.remove(self.0.handle);
    }
}

impl Form {
    /// The form of a copy that is captured.
    pub(crate) fn of_copy(shape: &Shape) -> Self {
        let is_told = [&shape.to, &shape.from].iter().all(|side| side.said != Said::Array);
        if is_told { Self::Copy(CopyForm(described(shape))) } else { Self::Plain(Kind::MEMCPY) }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Plain(kind) => *kind,
            Self::Kernel(_) => Kind::KERNEL,
            Self::Copy(_) => Kind::MEMCPY,
            Self::Set(_) => Kind::MEMSET,
            Self::Child(_) => Kind::GRAPH,
        }
    }

    /// The parameters of a copy, if they are told.
    ///
    /// # Errors
    /// `INVALID_VALUE`.
    pub(crate) fn copied(&self) -> Outcome<CUDA_MEMCPY3D> {
        if let Self::Copy(copy) = self { Ok(copy.0) } else { Err(CUresult::INVALID_VALUE) }
    }

    /// The ranges that a copy or a memset names, as address and length.
    fn ranges(&self) -> Vec<(u64, u64)> {
        match self {
            Self::Set(fill) if !fill.is_empty() => {
                fill.extent().map_or(Vec::new(), |bytes| vec![(fill.address, bytes)])
            }
            Self::Copy(copy) => match Shape::of_3d(&copy.0) {
                Ok(shape) if shape.bytes() > 0 => {
                    let sides = [shape.to, shape.from];
                    let named = sides.iter().filter(|side| side.said != Said::Host);
                    named.map(|side| (side.address, shape.extent(side))).collect()
                }
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// The work of a node in a graph that is instantiated now: a fault if its memory lies in other
    /// places when it runs.
    pub(crate) fn fix(&self, work: Work) -> Work {
        let (ranges, kind) = (self.ranges(), self.kind());
        let places = move || {
            let memory = driver().memory();
            ranges.iter().map(|(start, bytes)| memory.mapped(*start, *bytes)).collect::<Vec<_>>()
        };
        let (before, inner) = (places(), Arc::clone(&work));
        if before.iter().all(Vec::is_empty) {
            return work;
        }
        let checked = move || {
            if places() != before {
                let what = if kind == Kind::MEMSET { "memset" } else { "copy" };
                complain(&format!("memory of a graph's {what} has moved since the graph was instantiated"));
                return Err(CUresult::ILLEGAL_ADDRESS);
            }
            inner()
        };
        races::declare_all(Arc::new(checked), [&work])
    }
}

/// A copy between addresses, as the driver describes it.
fn described(shape: &Shape) -> CUDA_MEMCPY3D {
    let kind = |side: &Side| match side.said {
        Said::Host => CU_MEMORYTYPE_HOST,
        Said::Anything => CU_MEMORYTYPE_UNIFIED,
        Said::Device | Said::Array => CU_MEMORYTYPE_DEVICE,
    };
    let rows = |side: &Side| side.layer.checked_div(side.pitch).unwrap_or(0);
    let Shape { to, from, width, height, depth } = *shape;
    // SAFETY: numbers and null pointers are all zeroes.
    let mut copy: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (copy.srcMemoryType, copy.dstMemoryType) = (kind(&from), kind(&to));
    (copy.srcHost, copy.dstHost) = (from.address as *const c_void, to.address as *mut c_void);
    (copy.srcDevice, copy.dstDevice) = (from.address, to.address);
    (copy.srcPitch, copy.srcHeight) = (from.pitch, rows(&from));
    (copy.dstPitch, copy.dstHeight) = (to.pitch, rows(&to));
    (copy.WidthInBytes, copy.Height, copy.Depth) = (width, height, depth);
    copy
}

/// A copy as a node.
///
/// # Errors
/// As [`copy::work`].
pub(crate) fn copying(call: &Call, copy: &CUDA_MEMCPY3D, context: CUcontext) -> Outcome<(Form, Work)> {
    let work = copy::work(&*call.context_or_current(context)?, Shape::of_3d(copy)?)?;
    Ok((Form::Copy(CopyForm(*copy)), work))
}

/// A memset as a node.
///
/// # Errors
/// As [`memset::work`].
pub(crate) fn setting(call: &Call, p: &CUDA_MEMSET_NODE_PARAMS, context: CUcontext) -> Outcome<(Form, Work)> {
    let pitch = if p.height > 1 { p.pitch } else { 0 };
    let (element, width, height) = (p.elementSize as usize, p.width, p.height);
    let fill = Fill { address: p.dst, pitch, value: p.value, element, width, height };
    Ok((Form::Set(fill), memset::work(&*call.context_or_current(context)?, fill)?))
}

/// A kernel as a node.
///
/// # Safety
/// The parameters are those of the driver's functions for such nodes.
///
/// # Errors
/// As [`launch::work`].
pub(crate) unsafe fn launching(call: &Call, p: &CUDA_KERNEL_NODE_PARAMS) -> Outcome<(Form, Work)> {
    let (grid, block) = ([p.gridDimX, p.gridDimY, p.gridDimZ], [p.blockDimX, p.blockDimY, p.blockDimZ]);
    let grid = Grid { grid, block, shared: p.sharedMemBytes };
    let handle = if p.func.0 == 0 { CUfunction(p.kern.0) } else { p.func };
    let (function, context) = launch::function(call, handle)?;
    // SAFETY: by contract.
    let arguments = Arc::new(unsafe { Arguments::read(&function, p.kernelParams, p.extra)? });
    let form = KernelForm::new(handle, context.handle, grid, Arc::clone(&arguments));
    Ok((Form::Kernel(Arc::new(form)), launch::work(&context, &function, grid, arguments)?))
}

/// Another graph as a node. Its work is that of the node's own copy.
///
/// # Errors
/// `INVALID_VALUE` if there is no such graph, or if its nodes wait for each other in a circle.
pub(crate) fn child(of: CUgraph) -> Outcome<(Form, Work)> {
    let of = graph(of)?;
    of.work()?;
    Ok((Form::Child(ChildGraph::of(&of)), Arc::new(|| Ok(()))))
}

exports! {
    fn cuGraphKernelNodeGetParams_v2(hNode: CUgraphNode, nodeParams: *mut CUDA_KERNEL_NODE_PARAMS) |call| {
        match &*node(hNode)?.form() {
            Form::Kernel(kernel) => put(nodeParams, kernel.told()),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    fn cuGraphKernelNodeSetParams_v2(hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS) |call| {
        let node = node(hNode)?;
        require(node.kind == Kind::KERNEL, CUresult::INVALID_VALUE)?;
        let (form, work) = launching(call, &get(nodeParams)?)?;
        node.change(form, work);
        Ok(())
    }

    fn cuGraphExecKernelNodeSetParams_v2(hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS) |call| {
        let (_, work) = launching(call, &get(nodeParams)?)?;
        exec(hGraphExec)?.steps().change(hNode.0, work)
    }

    fn cuGraphMemcpyNodeGetParams(hNode: CUgraphNode, nodeParams: *mut CUDA_MEMCPY3D) |call| {
        put(nodeParams, node(hNode)?.form().copied()?)
    }

    fn cuGraphMemsetNodeGetParams(hNode: CUgraphNode, nodeParams: *mut CUDA_MEMSET_NODE_PARAMS) |call| {
        let Form::Set(Fill { address, pitch, value, element, width, height }) = *node(hNode)?.form() else {
            return Err(CUresult::INVALID_VALUE);
        };
        put(nodeParams, CUDA_MEMSET_NODE_PARAMS { dst: address, pitch, value, elementSize: element as c_uint, width, height })
    }

    fn cuGraphChildGraphNodeGetGraph(hNode: CUgraphNode, phGraph: *mut CUgraph) |call| {
        match &*node(hNode)?.form() {
            Form::Child(child) => put(phGraph, CUgraph(child.graph().handle)),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }
}
