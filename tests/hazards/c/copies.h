/* Copies, memsets and the graphs that have them as nodes, as NVIDIA declares them. */

#ifndef COPIES_H
#define COPIES_H

#include "driver.h"

typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef void *CUarray;

struct plane {
    size_t sx, sy; unsigned skind; const void *shost; CUdeviceptr sdevice; CUarray sarray; size_t spitch;
    size_t dx, dy; unsigned dkind; void *dhost; CUdeviceptr ddevice; CUarray darray; size_t dpitch;
    size_t width, height;
};
/* `scontext` and `dcontext` are reserved where the form does not name contexts. */
struct volume {
    size_t sx, sy, sz, slod; unsigned skind; const void *shost; CUdeviceptr sdevice; CUarray sarray; void *scontext; size_t spitch, sheight;
    size_t dx, dy, dz, dlod; unsigned dkind; void *dhost; CUdeviceptr ddevice; CUarray darray; void *dcontext; size_t dpitch, dheight;
    size_t width, height, depth;
};
struct how { unsigned order; CUmemLocation from, to; unsigned flags; };
struct operand { unsigned kind; CUdeviceptr address; size_t row, height; CUmemLocation hint; };
struct operation { struct operand from, to; size_t width, height, depth; unsigned order, flags; };
struct node { unsigned kind; int reserved0[3]; union { long long all[29]; struct { int flags, reserved; CUcontext context; struct volume copy; } copy; } body; long long reserved; };

CUresult cuMemcpy(CUdeviceptr, CUdeviceptr, size_t), cuMemcpy_ptds(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpyAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream), cuMemcpyAsync_ptsz(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyDtoD_v2(CUdeviceptr, CUdeviceptr, size_t), cuMemcpyDtoD_v2_ptds(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, CUstream), cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream), cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyPeer(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t);
CUresult cuMemcpyPeer_ptds(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t);
CUresult cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream);
CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream);
CUresult cuMemcpy2D_v2(const struct plane *), cuMemcpy2DUnaligned_v2(const struct plane *), cuMemcpy2DAsync_v2(const struct plane *, CUstream);
CUresult cuMemcpy2D_v2_ptds(const struct plane *), cuMemcpy2DAsync_v2_ptsz(const struct plane *, CUstream);
CUresult cuMemcpy3D_v2(const struct volume *), cuMemcpy3DAsync_v2(const struct volume *, CUstream);
CUresult cuMemcpy3D_v2_ptds(const struct volume *), cuMemcpy3DAsync_v2_ptsz(const struct volume *, CUstream);
CUresult cuMemcpy3DPeer(const struct volume *), cuMemcpy3DPeerAsync(const struct volume *, CUstream);
CUresult cuMemcpy3DPeer_ptds(const struct volume *), cuMemcpy3DPeerAsync_ptsz(const struct volume *, CUstream);
CUresult cuMemcpyBatchAsync(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, struct how *, size_t *, size_t, size_t *, CUstream);
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, struct how *, size_t *, size_t, CUstream);
CUresult cuMemcpyWithAttributesAsync(CUdeviceptr, CUdeviceptr, size_t, struct how *, CUstream);
CUresult cuMemcpy3DBatchAsync(size_t, struct operation *, size_t *, unsigned long long, CUstream);
CUresult cuMemcpy3DBatchAsync_v2(size_t, struct operation *, unsigned long long, CUstream);
CUresult cuMemcpy3DWithAttributesAsync(struct operation *, unsigned long long, CUstream);
CUresult cuStreamBeginCapture_v2(CUstream, unsigned), cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuGraphCreate(CUgraph *, unsigned), cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphAddMemcpyNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const struct volume *, CUcontext);
CUresult cuGraphAddNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, struct node *);
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode, const struct volume *), cuGraphNodeSetParams(CUgraphNode, struct node *);
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec, CUgraphNode, const struct volume *, CUcontext);
CUresult cuGraphExecNodeSetParams(CUgraphExec, CUgraphNode, struct node *);

/* As a node's own description, and as a part of a description that names its kind. */
struct memset_node { CUdeviceptr to; size_t pitch; unsigned value, element; size_t width, height; };

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr, const void *, size_t), cuMemcpyDtoH_v2_ptds(void *, CUdeviceptr, size_t);
CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr, const void *, size_t, CUstream), cuMemcpyDtoHAsync_v2_ptsz(void *, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpy2DUnaligned_v2_ptds(const struct plane *);
CUresult cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr, CUdeviceptr, size_t, struct how *, CUstream);
CUresult cuMemcpyBatchAsync_ptsz(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, struct how *, size_t *, size_t, size_t *, CUstream);
CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, struct how *, size_t *, size_t, CUstream);
CUresult cuMemcpy3DBatchAsync_ptsz(size_t, struct operation *, size_t *, unsigned long long, CUstream);
CUresult cuMemcpy3DBatchAsync_v2_ptsz(size_t, struct operation *, unsigned long long, CUstream);
CUresult cuMemcpy3DWithAttributesAsync_ptsz(struct operation *, unsigned long long, CUstream);
CUresult cuMemsetD8_v2_ptds(CUdeviceptr, unsigned char, size_t);
CUresult cuMemsetD16_v2(CUdeviceptr, unsigned short, size_t), cuMemsetD16_v2_ptds(CUdeviceptr, unsigned short, size_t);
CUresult cuMemsetD32_v2(CUdeviceptr, unsigned, size_t), cuMemsetD32_v2_ptds(CUdeviceptr, unsigned, size_t);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream), cuMemsetD8Async_ptsz(CUdeviceptr, unsigned char, size_t, CUstream);
CUresult cuMemsetD16Async(CUdeviceptr, unsigned short, size_t, CUstream), cuMemsetD16Async_ptsz(CUdeviceptr, unsigned short, size_t, CUstream);
CUresult cuMemsetD32Async(CUdeviceptr, unsigned, size_t, CUstream), cuMemsetD32Async_ptsz(CUdeviceptr, unsigned, size_t, CUstream);
CUresult cuMemsetD2D8_v2(CUdeviceptr, size_t, unsigned char, size_t, size_t), cuMemsetD2D8_v2_ptds(CUdeviceptr, size_t, unsigned char, size_t, size_t);
CUresult cuMemsetD2D16_v2(CUdeviceptr, size_t, unsigned short, size_t, size_t), cuMemsetD2D16_v2_ptds(CUdeviceptr, size_t, unsigned short, size_t, size_t);
CUresult cuMemsetD2D32_v2(CUdeviceptr, size_t, unsigned, size_t, size_t), cuMemsetD2D32_v2_ptds(CUdeviceptr, size_t, unsigned, size_t, size_t);
CUresult cuMemsetD2D8Async(CUdeviceptr, size_t, unsigned char, size_t, size_t, CUstream);
CUresult cuMemsetD2D8Async_ptsz(CUdeviceptr, size_t, unsigned char, size_t, size_t, CUstream);
CUresult cuMemsetD2D16Async(CUdeviceptr, size_t, unsigned short, size_t, size_t, CUstream);
CUresult cuMemsetD2D16Async_ptsz(CUdeviceptr, size_t, unsigned short, size_t, size_t, CUstream);
CUresult cuMemsetD2D32Async(CUdeviceptr, size_t, unsigned, size_t, size_t, CUstream);
CUresult cuMemsetD2D32Async_ptsz(CUdeviceptr, size_t, unsigned, size_t, size_t, CUstream);
CUresult cuGraphAddNode_v2(CUgraphNode *, CUgraph, const CUgraphNode *, const void *, size_t, struct node *);
CUresult cuGraphAddMemsetNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const struct memset_node *, CUcontext);
CUresult cuGraphMemsetNodeSetParams(CUgraphNode, const struct memset_node *);
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec, CUgraphNode, const struct memset_node *, CUcontext);
CUresult cuGraphExecDestroy(CUgraphExec), cuGraphDestroy(CUgraph);
CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, unsigned, unsigned);

#endif
