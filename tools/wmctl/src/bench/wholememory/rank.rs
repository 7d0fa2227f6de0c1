//! A rank: a process with a GPU, one library, its communicator, and a table at a time. It carries out orders until they end.

use std::ffi::c_int;
use std::io::stdin;
use std::path::Path;
use std::ptr::null_mut;

use anyhow::{Context as _, Result};
use wm_abi::CUstream;
use wm_driver::Api;
use wm_driver::api::Named;

use super::api::{ApiHandle, GroupId, WholeGraphLibrary, call};
use super::environment::EnvironmentFunctions;
use super::kernels::MeasureKernels;
use super::orders::{MARK, RankAnswer, RankOrder, TableOperation};
use super::subject::Subject;
use crate::output;

/// `LEVEL_WARN`, `CU_STREAM_NON_BLOCKING`
const WARNINGS: u32 = 2;
const NON_BLOCKING: u32 = 1;

/// A rank without its table.
#[derive(Debug)]
pub(super) struct RankProcess {
    pub(super) library: WholeGraphLibrary,
    pub(super) driver: Named<'static>,
    pub(super) kernels: MeasureKernels,
    pub(super) stream: CUstream,
    pub(super) comm: ApiHandle,
    pub(super) number: usize,
    pub(super) ranks: usize,
    environment: EnvironmentFunctions,
}

/// Carries out what standard input says.
pub(super) fn serve(library: &Path, number: usize, ranks: usize) -> Result<()> {
    let mut rank = match RankProcess::enter(library, number, ranks) {
        Ok(rank) => rank,
        Err(error) => return say(&RankAnswer::Failed(format!("{error:#}"))),
    };
    let mut subject = None;
    for line in stdin().lines() {
        let order = serde_json::from_str(&line?).context("an order")?;
        let answer = rank.carry_out(order, &mut subject);
        say(&answer.unwrap_or_else(|error| RankAnswer::Failed(format!("{error:#}"))))?;
    }
    rank.leave(subject)
}

fn say(answer: &RankAnswer) -> Result<()> {
    output::print(&format!("{MARK}{}\n", serde_json::to_string(answer)?))
}

impl RankProcess {
    fn enter(library: &Path, number: usize, ranks: usize) -> Result<Self> {
        let driver = super::driver()?;
        driver.init()?;
        let device = number as c_int % driver.device_count()?.max(1);
        let context = driver.primary_ctx_retain(device)?;
        driver.ctx_set_current(context)?;
        let stream = driver.stream_create(NON_BLOCKING)?;
        let kernels = MeasureKernels::load(driver, stream)?;
        let library = WholeGraphLibrary::open(library)?;
        call!(library, wholememory_init(0, WARNINGS))?;
        let environment = EnvironmentFunctions::new(driver);
        Ok(Self { library, driver, kernels, stream, comm: null_mut(), number, ranks, environment })
    }

    fn carry_out(&mut self, order: RankOrder, subject: &mut Option<Subject>) -> Result<RankAnswer> {
        let made = || "an order for a table that was not made";
        match order {
            RankOrder::Identify => self.identify(),
            RankOrder::Meet(id) => self.meet(&id),
            RankOrder::Make(request) => {
                let made = subject.insert(Subject::make(self, request)?);
                Ok(RankAnswer::Made { is_mapped: made.is_mapped() })
            }
            RankOrder::Check(operation) => {
                subject.as_mut().with_context(made)?.check(self, operation).map(RankAnswer::Wrong)
            }
            RankOrder::Run(operation, count) => {
                self.run(subject.as_ref().with_context(made)?, operation, count)
            }
            RankOrder::Close => subject.take().with_context(made)?.close(self).map(|()| RankAnswer::Done),
        }
    }

    fn identify(&self) -> Result<RankAnswer> {
        let mut id = GroupId([0; 128]);
        call!(self.library, wholememory_create_unique_id(&mut id))?;
        Ok(RankAnswer::Identity(id.to_hex()))
    }

    fn meet(&mut self, id: &str) -> Result<RankAnswer> {
        let (id, number, ranks) = (GroupId::from_hex(id)?, self.number as c_int, self.ranks as c_int);
        call!(self.library, wholememory_create_communicator(&mut self.comm, id, number, ranks))?;
        Ok(RankAnswer::Done)
    }

    /// All ranks begin together; the end is this one's.
    fn run(&self, subject: &Subject, operation: TableOperation, count: u64) -> Result<RankAnswer> {
        self.drain()?;
        self.barrier()?;
        let begin = now();
        (0..count).try_for_each(|turn| subject.perform(self, operation, turn))?;
        self.drain()?;
        Ok(RankAnswer::Ran(begin, now()))
    }

    pub(super) fn barrier(&self) -> Result<()> {
        call!(self.library, wholememory_communicator_barrier(self.comm))
    }

    /// Waits for the stream.
    pub(super) fn drain(&self) -> Result<()> {
        Ok(self.driver.stream_synchronize(self.stream)?)
    }

    /// What operations take as the caller's memory functions.
    pub(super) fn environment(&self) -> *mut EnvironmentFunctions {
        std::ptr::from_ref(&self.environment).cast_mut()
    }

    fn leave(self, subject: Option<Subject>) -> Result<()> {
        if let Some(subject) = subject {
            subject.close(&self)?;
        }
        if !self.comm.is_null() {
            call!(self.library, wholememory_destroy_communicator(self.comm))?;
        }
        call!(self.library, wholememory_finalize())
    }
}

/// The machine's clock, which all processes share, nanoseconds.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer. The clock is one that every Linux has.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
