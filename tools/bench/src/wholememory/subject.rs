//! The subject of a measurement on one rank: a table or an embedding with known contents, row
//! numbers, and memory for gathered rows.
//!
//! An element of the table follows from its place, so that any row can be checked where it arrives.
//! Its value is exact in the table's type and in the one of packed rows.
//! Contents have a salt: a scatter is checked on a table with the contents of another salt.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use anyhow::{Context as _, Result, bail};
use wm_abi::CUdeviceptr;
use wm_driver::Api;
use wm_kernels::measure::{CheckRows, PlainGather, PlainScatter, WriteTable};

use super::api::{ApiHandle, call};
use super::exchange::{PlainExchange, drawn};
use super::orders::{TableForm, TableLocation, TableOperation, TableRequest, TableType};
use super::process::RankProcess;
use super::shape::TensorShape;

/// The salt of a table's contents, and the one of its contents before a scatter is checked.
const SALT: u64 = 1;
const OTHER_SALT: u64 = 2;
/// Batches of row numbers in which a cache learns.
const WARM_BATCHES: u64 = 4;
/// Rows with which a step is checked.
const CHECKED_ROWS: u64 = 4096;
/// Each gradient, and the learning rate: the first step of any optimizer is this long.
const GRADIENT: f32 = 1.0;
const RATE: f32 = 1.0;

/// A table at work.
#[derive(Debug)]
pub(super) struct Subject {
    request: TableRequest,
    table: ApiHandle,
    embedding: ApiHandle,
    policy: ApiHandle,
    optimizer: ApiHandle,
    numbers: LocalTensor,
    packed: LocalTensor,
    warm: Vec<LocalTensor>,
    /// Where each rank's rows begin, in device memory, if a plain kernel moves them all.
    bases: Option<CUdeviceptr>,
    /// NCCL alone on the same rows, if the ranks have met over it.
    exchange: Option<PlainExchange>,
    /// A counter in device memory.
    wrong: CUdeviceptr,
}

/// Device memory of this rank as a tensor.
#[derive(Debug)]
struct LocalTensor {
    address: CUdeviceptr,
    bytes: usize,
    tensor: ApiHandle,
}

impl LocalTensor {
    fn new(rank: &RankProcess, mut shape: TensorShape) -> Result<Self> {
        let bytes = shape.bytes();
        let (address, mut tensor) = (rank.driver.mem_alloc(bytes)?, null_mut());
        let place = address as *mut c_void;
        call!(rank.library, wholememory_make_tensor_from_pointer(&mut tensor, place, &mut shape))?;
        Ok(Self { address, bytes, tensor })
    }

    fn numbers(rank: &RankProcess, numbers: &[i64]) -> Result<Self> {
        let local = Self::new(rank, TensorShape::numbers(numbers.len() as u64))?;
        // SAFETY: memory of as many bytes; the call returns when they were read.
        unsafe { rank.driver.memcpy_htod(local.address, numbers.as_ptr().cast(), local.bytes) }?;
        rank.driver.ctx_synchronize()?;
        Ok(local)
    }

    fn set(&self, rank: &RankProcess, word: u32) -> Result<()> {
        // SAFETY: memory of as many bytes; the stream orders the memset with other work.
        Ok(unsafe { rank.driver.memset_d32_async(self.address, word, self.bytes / 4, rank.stream) }?)
    }

    fn close(self, rank: &RankProcess) -> Result<()> {
        call!(rank.library, wholememory_destroy_tensor(self.tensor))?;
        Ok(rank.driver.mem_free(self.address)?)
    }
}

impl Subject {
    /// Makes a table with its contents. A collective call.
    pub(super) fn make(rank: &RankProcess, request: TableRequest) -> Result<Self> {
        let (count, none) = (request.count, null_mut());
        let batch = |batch| LocalTensor::numbers(rank, &drawn(&request, rank.number, batch));
        let batches = if matches!(request.form, TableForm::Cached(_)) { WARM_BATCHES } else { 0 };
        let mut subject = Self {
            request,
            table: none,
            embedding: none,
            policy: none,
            optimizer: none,
            numbers: batch(0)?,
            packed: LocalTensor::new(rank, TensorShape::rows(count, request.columns(), request.types[1]))?,
            warm: (1..=batches).map(batch).collect::<Result<_>>()?,
            bases: None,
            exchange: None,
            wrong: rank.driver.mem_alloc(8)?,
        };
        subject.make_table(rank)?;
        subject.fill(rank, SALT)?;
        subject.packed.set(rank, GRADIENT.to_bits())?;
        subject.bases = subject.find_bases(rank)?;
        if rank.network.is_some() {
            subject.exchange = Some(PlainExchange::make(rank, &request)?);
        }
        rank.drain()?;
        rank.barrier()?;
        Ok(subject)
    }

    fn make_table(&mut self, rank: &RankProcess) -> Result<()> {
        let TableRequest { memory_type, location, types, rows, .. } = self.request;
        let mut shape = TensorShape::rows(rows, self.request.columns(), types[0]);
        let (memory_type, location) = (memory_type as c_uint, location as c_uint);
        if self.request.is_tensor() {
            let (place, none) = (&mut self.table, null_mut());
            return call!(
                rank.library,
                wholememory_create_tensor(place, &mut shape, rank.comm, memory_type, location, none)
            );
        }
        self.make_policy(rank)?;
        let (place, none) = (&mut self.embedding, null_mut());
        call!(
            rank.library,
            wholememory_create_embedding(
                place,
                &mut shape,
                rank.comm,
                memory_type,
                location,
                self.policy,
                none,
                -1,
                0
            )
        )?;
        // SAFETY: a handle of the library's.
        self.table = unsafe { (rank.library.wholememory_embedding_get_embedding_tensor)(self.embedding) };
        self.make_optimizer(rank)
    }

    /// Caches of all devices, which all ranks read.
    fn make_policy(&mut self, rank: &RankProcess) -> Result<()> {
        /// `WHOLEMEMORY_AT_READONLY`
        const READ_ONLY: c_uint = 1;
        let TableForm::Cached(ratio) = self.request.form else { return Ok(()) };
        let (place, device) = (&mut self.policy, TableLocation::Device as c_uint);
        let chunked = TableType::Chunked as c_uint;
        call!(
            rank.library,
            wholememory_create_embedding_cache_policy(place, rank.comm, chunked, device, READ_ONLY, ratio)
        )
    }

    fn make_optimizer(&mut self, rank: &RankProcess) -> Result<()> {
        let TableForm::Trained(kind) = self.request.form else { return Ok(()) };
        let place = &mut self.optimizer;
        call!(rank.library, wholememory_create_embedding_optimizer(place, kind as c_uint))?;
        call!(rank.library, wholememory_embedding_set_optimizer(self.embedding, self.optimizer))
    }

    fn memory(&self, rank: &RankProcess) -> ApiHandle {
        // SAFETY: a handle of the library's.
        unsafe { (rank.library.wholememory_tensor_get_memory_handle)(self.table) }
    }

    /// This rank's part: address, bytes, and bytes before it.
    fn own_part(&self, rank: &RankProcess) -> Result<(CUdeviceptr, u64, u64)> {
        let (mut address, mut bytes, mut offset) = (null_mut(), 0, 0);
        let memory = self.memory(rank);
        call!(rank.library, wholememory_get_local_memory(&mut address, &mut bytes, &mut offset, memory))?;
        Ok((address as CUdeviceptr, bytes as u64, offset as u64))
    }

    /// Writes this rank's part.
    fn fill(&self, rank: &RankProcess, salt: u64) -> Result<()> {
        let (memory, bytes, offset) = self.own_part(rank)?;
        let (kind, bits) = (self.request.types[0], self.request.exact_bits());
        let (count, first) = (bytes / kind.bytes(), offset / kind.bytes());
        rank.kernels.launch(&WriteTable { memory, count, first, salt, kind: kind as u32, bits }, count)
    }

    /// The same on all ranks, with nothing under way before or after.
    fn fill_together(&self, rank: &RankProcess, salt: u64) -> Result<()> {
        rank.drain()?;
        rank.barrier()?;
        self.fill(rank, salt)?;
        rank.drain()?;
        rank.barrier()
    }

    fn find_bases(&self, rank: &RankProcess) -> Result<Option<CUdeviceptr>> {
        // A library hands out no other rank's part of these.
        let is_shown = matches!(self.request.memory_type, TableType::Continuous | TableType::Chunked)
            && self.request.is_tensor();
        if !is_shown || !self.request.is_plain() {
            return Ok(None);
        }
        let memory = self.memory(rank);
        let mut bases = Vec::new();
        for other in 0..rank.shape.ranks as c_int {
            let (mut address, mut bytes, mut offset) = (null_mut(), 0, 0);
            call!(
                rank.library,
                wholememory_get_rank_memory(&mut address, &mut bytes, &mut offset, other, memory)
            )?;
            bases.push(address as CUdeviceptr);
        }
        let place = rank.driver.mem_alloc(bases.len() * 8)?;
        // SAFETY: memory of as many bytes; the call returns when they were read.
        unsafe { rank.driver.memcpy_htod(place, bases.as_ptr().cast(), bases.len() * 8) }?;
        Ok(Some(place))
    }

    pub(super) fn is_mapped(&self) -> bool {
        self.bases.is_some()
    }

    /// Does it once. It may still be under way in the stream afterwards.
    pub(super) fn perform(&self, rank: &RankProcess, operation: TableOperation, turn: u64) -> Result<()> {
        match operation {
            TableOperation::Gather => self.gather(rank, &self.numbers, false),
            TableOperation::Warm => self.gather(rank, &self.warm[turn as usize % self.warm.len()], true),
            TableOperation::Scatter => self.scatter(rank),
            TableOperation::Step => self.step(rank, &self.numbers, &self.packed),
            TableOperation::PlainGather | TableOperation::PlainScatter => self.plain(rank, operation),
            TableOperation::PlainExchange => self.exchanged()?.perform(rank),
        }
    }

    fn gather(&self, rank: &RankProcess, numbers: &LocalTensor, learns: bool) -> Result<()> {
        let (numbers, packed, environment) = (numbers.tensor, self.packed.tensor, rank.environment());
        if self.embedding.is_null() {
            let stream = rank.stream.0 as *mut c_void;
            return call!(
                rank.library,
                wholememory_gather(self.table, numbers, packed, environment, stream, -1)
            );
        }
        let stream = rank.stream.0 as i64;
        call!(
            rank.library,
            wholememory_embedding_gather(self.embedding, numbers, packed, learns, environment, stream)
        )
    }

    fn scatter(&self, rank: &RankProcess) -> Result<()> {
        let (numbers, packed, stream) =
            (self.numbers.tensor, self.packed.tensor, rank.stream.0 as *mut c_void);
        let environment = rank.environment();
        call!(rank.library, wholememory_scatter(packed, numbers, self.table, environment, stream, -1))
    }

    fn step(&self, rank: &RankProcess, numbers: &LocalTensor, gradients: &LocalTensor) -> Result<()> {
        let (numbers, gradients, stream) = (numbers.tensor, gradients.tensor, rank.stream.0 as i64);
        let environment = rank.environment();
        call!(
            rank.library,
            wholememory_embedding_gather_gradient_apply(
                self.embedding,
                numbers,
                gradients,
                false,
                RATE,
                environment,
                stream
            )
        )
    }

    fn plain(&self, rank: &RankProcess, operation: TableOperation) -> Result<()> {
        let TableRequest { row_bytes, rows, count, .. } = self.request;
        let Some(bases) = self.bases else { bail!("a kernel does not reach all of this table") };
        let (rows_each, shift) = ((rows / rank.shape.ranks as u64) as u32, (row_bytes / 16).ilog2());
        let (numbers, work) = (self.numbers.address, count << shift);
        if operation == TableOperation::PlainGather {
            let output = self.packed.address;
            let arguments = PlainGather { output, bases, rows_each, numbers, count, shift };
            return rank.kernels.launch(&arguments, work);
        }
        let input = self.packed.address;
        rank.kernels.launch(&PlainScatter { input, bases, rows_each, numbers, count, shift }, work)
    }

    /// Does it once, and counts the elements that are not right afterwards. A collective call.
    pub(super) fn check(&mut self, rank: &RankProcess, operation: TableOperation) -> Result<u64> {
        match operation {
            TableOperation::Scatter | TableOperation::PlainScatter => self.check_scatter(rank, operation),
            TableOperation::Step => self.check_step(rank),
            TableOperation::PlainExchange => self.exchanged()?.check(rank),
            _ => self.check_gather(rank, operation),
        }
    }

    fn exchanged(&self) -> Result<&PlainExchange> {
        self.exchange.as_ref().context("the ranks have not met over NCCL")
    }

    fn check_gather(&self, rank: &RankProcess, operation: TableOperation) -> Result<u64> {
        self.packed.set(rank, 0)?;
        self.perform(rank, operation, 0)?;
        let numbers = if operation == TableOperation::Warm { &self.warm[0] } else { &self.numbers };
        self.count_wrong(rank, numbers)
    }

    fn count_wrong(&self, rank: &RankProcess, numbers: &LocalTensor) -> Result<u64> {
        let (count, columns, wrong) = (self.request.count, self.request.columns(), self.wrong);
        let (kind, bits) = (self.request.types[1] as u32, self.request.exact_bits());
        let (rows, numbers) = (self.packed.address, numbers.address);
        // SAFETY: a counter of 8 bytes, that only this stream uses.
        unsafe { rank.driver.memset_d32_async(wrong, 0, 2, rank.stream) }?;
        let arguments = CheckRows { rows, numbers, count, columns, salt: SALT, kind, bits, wrong };
        rank.kernels.launch(&arguments, count * columns)?;
        rank.drain()?;
        let mut found = 0_u64;
        // SAFETY: a live local of as many bytes; the call returns when they are there.
        unsafe { rank.driver.memcpy_dtoh((&raw mut found).cast(), wrong, 8) }?;
        Ok(found)
    }

    /// Scatters rows that were gathered to a table that no longer has them, and gathers them again.
    fn check_scatter(&self, rank: &RankProcess, operation: TableOperation) -> Result<u64> {
        self.gather(rank, &self.numbers, false)?;
        self.fill_together(rank, OTHER_SALT)?;
        self.perform(rank, operation, 0)?;
        rank.drain()?;
        rank.barrier()?;
        self.packed.set(rank, 0)?;
        self.gather(rank, &self.numbers, false)?;
        let wrong = self.count_wrong(rank, &self.numbers)?;
        self.fill_together(rank, SALT)?;
        // From now on the rows that were gathered are scattered.
        self.gather(rank, &self.numbers, false)?;
        rank.drain()?;
        Ok(wrong)
    }

    /// Makes a first step of rows that no other rank touches, from 0: by any optimizer it leads to
    /// -1.
    fn check_step(&mut self, rank: &RankProcess) -> Result<u64> {
        let (ranks, columns, kind) = (rank.shape.ranks as u64, self.request.columns(), self.request.types[1]);
        let count = (self.request.rows / ranks).min(CHECKED_ROWS).min(self.request.count);
        let own: Vec<_> = (0..count).map(|at| (at * ranks + rank.number as u64) as i64).collect();
        let numbers = LocalTensor::numbers(rank, &own)?;
        let rows = LocalTensor::new(rank, TensorShape::rows(count, columns, kind))?;
        let (part, bytes, _) = self.own_part(rank)?;
        // SAFETY: the library's memory of as many bytes.
        unsafe { rank.driver.memset_d8_async(part, 0, bytes as usize, rank.stream) }?;
        rows.set(rank, GRADIENT.to_bits())?;
        rank.drain()?;
        rank.barrier()?;
        self.step(rank, &numbers, &rows)?;
        rank.drain()?;
        rank.barrier()?;
        rows.set(rank, 0)?;
        let (stream, environment) = (rank.stream.0 as i64, rank.environment());
        call!(
            rank.library,
            wholememory_embedding_gather(
                self.embedding,
                numbers.tensor,
                rows.tensor,
                false,
                environment,
                stream
            )
        )?;
        rank.drain()?;
        let wrong = self.not_stepped(rank, &rows)?;
        numbers.close(rank)?;
        rows.close(rank)?;
        Ok(wrong)
    }

    fn not_stepped(&self, rank: &RankProcess, rows: &LocalTensor) -> Result<u64> {
        let mut found = vec![0_f32; rows.bytes / 4];
        // SAFETY: a vector of as many bytes; the call returns when they are there.
        unsafe { rank.driver.memcpy_dtoh(found.as_mut_ptr().cast(), rows.address, rows.bytes) }?;
        // A weight that is no number is not near either.
        let is_near = |weight: &&f32| (**weight + RATE * GRADIENT).abs() < 1e-3;
        Ok((found.len() - found.iter().filter(is_near).count()) as u64)
    }

    /// Gives everything back. A collective call.
    pub(super) fn close(self, rank: &RankProcess) -> Result<()> {
        rank.drain()?;
        rank.barrier()?;
        for local in self.warm.into_iter().chain([self.numbers, self.packed]) {
            local.close(rank)?;
        }
        self.exchange.map_or(Ok(()), |exchange| exchange.close(rank))?;
        for address in self.bases.into_iter().chain([self.wrong]) {
            rank.driver.mem_free(address)?;
        }
        if self.embedding.is_null() {
            return call!(rank.library, wholememory_destroy_tensor(self.table));
        }
        call!(rank.library, wholememory_destroy_embedding(self.embedding))?;
        if !self.optimizer.is_null() {
            // SAFETY: a handle of the library's, for the last time.
            unsafe { (rank.library.wholememory_destroy_embedding_optimizer)(self.optimizer) };
        }
        if !self.policy.is_null() {
            call!(rank.library, wholememory_destroy_embedding_cache_policy(self.policy))?;
        }
        Ok(())
    }
}
