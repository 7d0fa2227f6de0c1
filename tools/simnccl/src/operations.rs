//! The exports for operations, with NCCL's checks of the arguments.
//!
//! # Safety
//! The addresses are used by the driver, which checks them.
#![allow(non_snake_case, reason = "NCCL's names")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use wm_abi::CUstream;

use crate::abi::{Code, Handle, Outcome, width};
use crate::communicator::Communicator;
use crate::exports::{answer, require};
use crate::group::{self, Call};
use crate::operation::Operation;
use crate::reduce::Reduction;
use crate::registry::REGISTRY;
use crate::report::error;

/// An operation with a length in bytes, on a communicator that takes one.
fn submit(
    communicator: Handle,
    (count, datatype): (usize, c_int),
    stream: CUstream,
    make: impl FnOnce(&Communicator, usize) -> Outcome<Operation>,
) -> Code {
    let call = || {
        let communicator = REGISTRY.find(communicator)?;
        communicator.state().ready()?;
        let bytes = width(datatype).and_then(|width| width.checked_mul(count));
        let bytes = bytes.filter(|bytes| bytes.checked_mul(communicator.shape().size + 1).is_some());
        let bytes =
            bytes.ok_or_else(|| error(Code::INVALID_ARGUMENT, "the type or the count is not valid"))?;
        let operation = make(&communicator, bytes)?;
        Ok(Call::Operate(Arc::clone(&communicator), operation, stream))
    };
    answer(|| group::add(call()))
}

/// A rank of the communicator.
fn ranked(communicator: &Communicator, rank: c_int, name: &str) -> Outcome<usize> {
    let size = communicator.shape().size as c_int;
    require((0..size).contains(&rank), &format!("{name} {rank} is not in the communicator of {size} ranks"))?;
    Ok(rank as usize)
}

/// `ncclSend`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclSend(
    from: *const c_void,
    count: usize,
    datatype: c_int,
    peer: c_int,
    communicator: Handle,
    stream: CUstream,
) -> Code {
    submit(communicator, (count, datatype), stream, |communicator, bytes| {
        let peer = ranked(communicator, peer, "peer")?;
        Ok(Operation::Send { from: from as u64, bytes, peer })
    })
}

/// `ncclRecv`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclRecv(
    to: *mut c_void,
    count: usize,
    datatype: c_int,
    peer: c_int,
    communicator: Handle,
    stream: CUstream,
) -> Code {
    submit(communicator, (count, datatype), stream, |communicator, bytes| {
        let peer = ranked(communicator, peer, "peer")?;
        Ok(Operation::Receive { to: to as u64, bytes, peer })
    })
}

/// `ncclBroadcast`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclBroadcast(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    communicator: Handle,
    stream: CUstream,
) -> Code {
    submit(communicator, (count, datatype), stream, |communicator, bytes| {
        let root = ranked(communicator, root, "root")?;
        Ok(Operation::Broadcast { from: from as u64, to: to as u64, bytes, root })
    })
}

/// `ncclAllGather`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclAllGather(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: c_int,
    communicator: Handle,
    stream: CUstream,
) -> Code {
    submit(communicator, (count, datatype), stream, |_, bytes| {
        Ok(Operation::AllGather { from: from as u64, to: to as u64, bytes })
    })
}

/// `ncclAllReduce`, for integers of 8, 32 and 64 bits and floats of 32 and 64.
#[unsafe(no_mangle)]
pub extern "C" fn ncclAllReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: c_int,
    operator: c_int,
    communicator: Handle,
    stream: CUstream,
) -> Code {
    submit(communicator, (count, datatype), stream, |_, bytes| {
        require((0..5).contains(&operator), "the operator is not valid")?;
        let reduction = Reduction::new(datatype, operator)
            .ok_or_else(|| error(Code::INTERNAL, "16-bit floats are not reduced by the simulated NCCL"))?;
        Ok(Operation::AllReduce { from: from as u64, to: to as u64, bytes, reduction })
    })
}
