//! Hazard (data race): `SIMCUDA_RACES` misses a race, or reports ordered work as one.
//!
//! A race ends the process, so each program runs in one of its own.

mod common;

use std::process::{Command, Output};

use common::*;

const INNER: &str = "SIMCUDA_RACES_INNER";
const BYTES: usize = 1 << 20;

/// The exit code of a process that ran a test's body. A harness that finds no test of the name ends
/// with 0.
const DONE: i32 = 94;

/// Runs the test's program in a process of its own, under the check.
fn in_child(name: &str, program: fn()) -> Output {
    if std::env::var_os(INNER).is_some() {
        start(&[]);
        program();
        std::process::exit(DONE);
    }
    let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
    command.args(["--exact", name, "--nocapture"]).env(INNER, "1").env("SIMCUDA_RACES", "1");
    command.output().expect("it can be started")
}

/// The message.
fn races(name: &str, program: fn()) -> String {
    let output = in_child(name, program);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("simcuda: a race: "), "{text}");
    text
}

fn does_not_race(name: &str, program: fn()) {
    let output = in_child(name, program);
    let is_done = output.status.code() == Some(DONE);
    assert!(is_done, "{name}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Hazard: a test that was renamed runs nothing, and passes.
#[test]
#[should_panic(expected = "no_test_has_this_name")]
fn a_name_that_no_test_has_is_a_failure() {
    does_not_race("no_test_has_this_name", || {});
}

fn pinned() -> u64 {
    let mut place = std::ptr::null_mut();
    ok!(cuMemHostAlloc(&raw mut place, BYTES, 0));
    place as u64
}

fn into(device: u64, host: u64, stream: CUstream) {
    ok!(cuMemcpyHtoDAsync_v2(device, host as *const _, BYTES, stream));
}

fn out(host: u64, device: u64, stream: CUstream) {
    ok!(cuMemcpyDtoHAsync_v2(host as *mut _, device, BYTES, stream));
}

fn two_streams() -> [CUstream; 2] {
    [stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING)]
}

#[test]
fn an_event_that_is_not_waited_for() {
    races("an_event_that_is_not_waited_for", || {
        let ([one, other], device, event) = (two_streams(), allocate(BYTES), event());
        into(device, pinned(), one);
        ok!(cuEventRecord(event, one));
        // Time does not order anything.
        std::thread::sleep(std::time::Duration::from_millis(50));
        out(pinned(), device, other);
    });
}

/// Hazard: a race that shows once in a hundred runs is told without its cause.
#[test]
fn the_threads_of_the_last_accesses_are_told() {
    let text = races("the_threads_of_the_last_accesses_are_told", || {
        let ([one, other], device, beside) = (two_streams(), allocate(BYTES), allocate(BYTES));
        let from = [pinned(), pinned()];
        let writer = std::thread::Builder::new().name("first-writer".to_owned());
        let writer = writer.spawn(move || {
            context(0);
            into(beside, from[0], one);
            into(device, from[0], one);
        });
        writer.expect("a thread").join().expect("it ends");
        into(device, from[1], other);
    });
    let told: Vec<&str> = text.lines().filter(|line| line.contains(" ms ago, thread ")).collect();
    let [first, second] = told[..] else { panic!("{text}") };
    assert!(first.contains("(first-writer): a write of 1048576 bytes at "), "{text}");
    assert!(!second.contains("first-writer") && second.contains(", work 1 of lane "), "{text}");
    assert!(
        text.trim_end().lines().last().is_some_and(|line| line.starts_with("simcuda: a race: ")),
        "{text}"
    );
}

#[test]
fn an_event_that_was_recorded_too_early() {
    races("an_event_that_was_recorded_too_early", || {
        let ([one, other], device, event) = (two_streams(), allocate(BYTES), event());
        ok!(cuEventRecord(event, one));
        into(device, pinned(), one);
        ok!(cuStreamWaitEvent(other, event, 0));
        ok!(cuMemsetD8Async(device + 4096, 0, 1, other));
    });
}

#[test]
fn events_streams_and_the_host_order_copies() {
    does_not_race("events_streams_and_the_host_order_copies", || {
        let ([one, other], device, event) = (two_streams(), allocate(BYTES), event());
        into(device, pinned(), one);
        ok!(cuEventRecord(event, one));
        ok!(cuStreamWaitEvent(other, event, 0));
        out(pinned(), device, other);
        // Seen by the host: through a wait, and through a query.
        ok!(cuStreamSynchronize(other));
        into(device, pinned(), one);
        ok!(cuEventRecord(event, one));
        // SAFETY: an event of this test's own.
        while unsafe { cuEventQuery(event) } == CUresult::NOT_READY {}
        ok!(cuMemsetD8Async(device, 0, BYTES, other));
        ok!(cuCtxSynchronize());
        // The legacy default stream and blocking ones wait for each other.
        let blocking = stream(CU_STREAM_DEFAULT);
        into(device, pinned(), blocking);
        into(device, pinned(), CUstream::LEGACY);
        out(pinned(), device, blocking);
    });
}

#[test]
fn copies_that_share_nothing_or_only_read_need_no_order() {
    does_not_race("copies_that_share_nothing_or_only_read_need_no_order", || {
        let ([one, other], device, host) = (two_streams(), allocate(2 * BYTES), pinned());
        into(device, host, one);
        into(device + BYTES as u64, host, other);
    });
}

#[test]
fn memory_that_was_freed_is_anybodys() {
    does_not_race("memory_that_was_freed_is_anybodys", || {
        let ([one, other], device) = (two_streams(), allocate(BYTES));
        into(device, pinned(), one);
        ok!(cuStreamDestroy_v2(one));
        ok!(cuMemFree_v2(device));
        into(allocate(BYTES), pinned(), other);
    });
}

fn block(stream: CUstream) -> u64 {
    let mut address = 0;
    ok!(cuMemAllocAsync(&raw mut address, BYTES, stream));
    address
}

fn set_all(address: u64, stream: CUstream) {
    ok!(cuMemsetD8Async(address, 1, BYTES, stream));
}

fn fill_all(address: u64, stream: CUstream) {
    assert_eq!(fill(address, BYTES as u64 / 4, 1, stream), CUresult::SUCCESS);
}

#[test]
fn a_kernel_and_a_memset() {
    races("a_kernel_and_a_memset", || {
        let ([one, other], device) = (two_streams(), allocate(BYTES));
        fill_all(device, one);
        set_all(device, other);
    });
}

#[test]
fn kernels_in_one_stream_or_on_other_bytes_need_no_order() {
    does_not_race("kernels_in_one_stream_or_on_other_bytes_need_no_order", || {
        let ([one, other], device) = (two_streams(), allocate(2 * BYTES));
        fill_all(device, one);
        set_all(device, one);
        fill_all(device + BYTES as u64, other);
    });
}

#[test]
fn rows_that_lie_between_each_other_share_nothing() {
    does_not_race("rows_that_lie_between_each_other_share_nothing", || {
        let ([one, other], device) = (two_streams(), allocate(BYTES));
        ok!(cuMemsetD2D8Async(device, 64, 0, 16, 8, one));
        ok!(cuMemsetD2D8Async(device + 16, 64, 0, 16, 8, other));
    });
}

#[test]
fn rows_that_meet() {
    races("rows_that_meet", || {
        let ([one, other], device) = (two_streams(), allocate(BYTES));
        ok!(cuMemsetD2D8Async(device, 64, 0, 16, 8, one));
        ok!(cuMemsetD8Async(device + 3 * 64 + 15, 0, 1, other));
    });
}

#[test]
fn a_graph_that_is_launched() {
    races("a_graph_that_is_launched", || {
        let ([one, other], device) = (two_streams(), allocate(BYTES));
        let (mut graph, mut exec) = (CUgraph::NULL, CUgraphExec::NULL);
        ok!(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
        fill_all(device, one);
        ok!(cuStreamEndCapture(one, &raw mut graph));
        ok!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
        set_all(device, other);
        ok!(cuGraphLaunch(exec, one));
    });
}

#[test]
fn a_capture_is_no_work() {
    does_not_race("a_capture_is_no_work", || {
        let ([one, other], device) = (two_streams(), allocate(BYTES));
        ok!(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
        fill_all(device, one);
        let mut graph = CUgraph::NULL;
        ok!(cuStreamEndCapture(one, &raw mut graph));
        set_all(device, other);
    });
}

/// A second address of a handle.
fn alias(handle: u64) -> u64 {
    let address = reserve(UNIT);
    ok!(cuMemMap(address, UNIT, 0, handle, 0));
    let flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    assert_eq!(access(address, UNIT, CU_MEM_LOCATION_TYPE_DEVICE, 0, flags), CUresult::SUCCESS);
    address
}

#[test]
fn one_handle_at_two_addresses() {
    races("one_handle_at_two_addresses", || {
        let ([one, other], (address, handle)) = (two_streams(), mapped(UNIT));
        set_all(address, one);
        set_all(alias(handle), other);
    });
}

#[test]
fn an_unmapping_under_work() {
    races("an_unmapping_under_work", || {
        let ([one, _], (address, _)) = (two_streams(), mapped(UNIT));
        set_all(address, one);
        std::thread::sleep(std::time::Duration::from_millis(50));
        ok!(cuMemUnmap(address, UNIT));
    });
}

#[test]
fn an_unmapping_after_the_work_or_of_another_address() {
    does_not_race("an_unmapping_after_the_work_or_of_another_address", || {
        let ([one, _], (address, handle)) = (two_streams(), mapped(UNIT));
        let other = alias(handle);
        set_all(address, one);
        ok!(cuMemUnmap(other, UNIT));
        ok!(cuStreamSynchronize(one));
        ok!(cuMemUnmap(address, UNIT));
    });
}

#[test]
fn work_that_is_not_behind_its_allocation() {
    races("work_that_is_not_behind_its_allocation", || {
        let [one, other] = two_streams();
        set_all(block(one), other);
    });
}

#[test]
fn work_that_is_not_before_its_free() {
    races("work_that_is_not_before_its_free", || {
        let [one, other] = two_streams();
        let device = block(one);
        ok!(cuStreamSynchronize(one));
        set_all(device, other);
        ok!(cuMemFreeAsync(device, one));
    });
}

#[test]
fn pool_memory_that_the_host_frees_under_work() {
    races("pool_memory_that_the_host_frees_under_work", || {
        let [one, _] = two_streams();
        let device = block(one);
        set_all(device, one);
        ok!(cuMemFree_v2(device));
    });
}

#[test]
fn a_pools_next_owner_comes_behind_the_last() {
    does_not_race("a_pools_next_owner_comes_behind_the_last", || {
        let [one, other] = two_streams();
        let device = block(one);
        set_all(device, one);
        ok!(cuMemFreeAsync(device, one));
        let again = block(one);
        assert_eq!(again, device, "reused at once in its stream");
        set_all(again, one);
        ok!(cuMemFreeAsync(again, one));
        // SAFETY: a stream of this test's own.
        while unsafe { cuStreamQuery(one) } == CUresult::NOT_READY {}
        set_all(block(other), other);
    });
}

#[test]
fn a_free_in_the_default_stream_is_a_barrier() {
    does_not_race("a_free_in_the_default_stream_is_a_barrier", || {
        let [one, other] = [stream(CU_STREAM_DEFAULT), stream(CU_STREAM_DEFAULT)];
        let (device, freed) = (allocate(BYTES), block(CUstream::LEGACY));
        set_all(device, one);
        ok!(cuMemFreeAsync(freed, CUstream::LEGACY));
        set_all(device, other);
    });
}

#[test]
fn an_allocation_in_the_default_stream_is_none() {
    races("an_allocation_in_the_default_stream_is_none", || {
        let [one, other] = [stream(CU_STREAM_DEFAULT), stream(CU_STREAM_DEFAULT)];
        let device = allocate(BYTES);
        set_all(device, one);
        block(CUstream::LEGACY);
        set_all(device, other);
    });
}

#[test]
fn an_event_in_a_blocking_stream_says_nothing_of_the_default_stream() {
    races("an_event_in_a_blocking_stream_says_nothing_of_the_default_stream", || {
        let ([one, _], blocking, device) = (two_streams(), stream(CU_STREAM_DEFAULT), allocate(BYTES));
        let event = event();
        set_all(device, CUstream::LEGACY);
        ok!(cuEventRecord(event, blocking));
        ok!(cuEventSynchronize(event));
        set_all(device, one);
    });
}

#[test]
fn a_free_in_a_blocking_stream_waits_for_the_default_stream() {
    does_not_race("a_free_in_a_blocking_stream_waits_for_the_default_stream", || {
        let ([one, _], blocking, device) = (two_streams(), stream(CU_STREAM_DEFAULT), allocate(BYTES));
        let freed = block(blocking);
        set_all(device, CUstream::LEGACY);
        ok!(cuMemFreeAsync(freed, blocking));
        ok!(cuStreamSynchronize(blocking));
        set_all(device, one);
    });
}

#[test]
fn an_idle_blocking_stream_says_nothing_of_the_default_stream() {
    races("an_idle_blocking_stream_says_nothing_of_the_default_stream", || {
        let ([one, _], blocking, device) = (two_streams(), stream(CU_STREAM_DEFAULT), allocate(BYTES));
        set_all(device, CUstream::LEGACY);
        ok!(cuStreamSynchronize(blocking));
        set_all(device, one);
    });
}

#[test]
fn a_word_that_a_stream_wrote_orders_what_waits_for_it() {
    does_not_race("a_word_that_a_stream_wrote_orders_what_waits_for_it", || {
        let ([one, other], device, word) = (two_streams(), allocate(BYTES), flag() as u64);
        set_all(device, one);
        ok!(cuStreamWriteValue32_v2(one, word, 1, 0));
        ok!(cuStreamWaitValue32_v2(other, word, 1, 0));
        set_all(device, other);
    });
}
