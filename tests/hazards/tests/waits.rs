//! Hazard (out of memory): a host wait creates a manager on a device that the program never used,
//! or does not release the memory that the driver would release.

use hazards::{Host, Scratch, c, driver};
use serde_json::Value;

/// The statistics after the program `c/waits.c` has waited in this situation.
fn after(situation: &str) -> Value {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "waits");
    let outcome = Host::shimmed(program, &scratch, &driver).args([situation]).run();
    serde_json::from_str(outcome.expect_success()).expect("JSON")
}

#[test]
fn a_wait_makes_no_manager() {
    let stats = after("stranger");
    assert_eq!(stats["devices"].as_array().map(Vec::len), Some(0), "{stats}");
}

#[test]
fn the_pool_gives_back_when_a_threads_own_stream_was_waited_for() {
    let stats = after("thread");
    assert_eq!(stats["devices"][0]["tiers"]["device"]["reserved_bytes"], 0, "{stats}");
}

/// Hazard: the stream of a destroyed green context is queried, which crashes NVIDIA's driver, or
/// memory that was freed in it is lost.
#[test]
fn what_was_freed_in_a_green_context_that_has_ended_is_given_back() {
    let stats = after("green");
    assert_eq!(stats["devices"][0]["tiers"]["device"]["reserved_bytes"], 0, "{stats}");
    assert_eq!(stats["devices"][0]["counters"]["allocations"], 1, "it was ours: {stats}");
}

/// After a wait for the device, all earlier frees are complete: no event needs to be recorded to
/// learn that.
#[test]
fn a_wait_is_as_good_as_an_event() {
    let stats = after("device");
    let calls = stats["driver_calls"].as_array().expect("a list").iter();
    let made = |name: &str| {
        let mine = calls.clone().filter(|call| call["name"] == name);
        mine.map(|call| call["count"].as_u64().unwrap_or_default()).sum::<u64>()
    };
    assert_eq!(made("cuCtxRecordEvent"), 0, "{stats}");
    assert_eq!(made("cuMemAddressReserve"), 1, "one extent serves all ten blocks: {stats}");
}

/// Hazard: memory that a program has freed never becomes available to other processes.
#[test]
fn what_is_freed_without_a_stream_goes_back_to_the_driver() {
    let stats = after("freed");
    let reserved = &stats["devices"][0]["tiers"]["device"]["reserved_bytes"];
    assert!(reserved.as_u64().is_some_and(|bytes| bytes <= 512 << 20), "{stats}");
}

/// Hazard: a periodic program pays for that in every period.
#[test]
fn a_program_that_comes_back_at_once_maps_its_memory_once_more_and_no_oftener() {
    let stats = after("period");
    let created = &stats["devices"][0]["counters"]["creates"];
    let once = &after("freed")["devices"][0]["counters"]["creates"];
    assert!(created.as_u64() <= once.as_u64().map(|creates| 2 * creates), "{created} for {once} in a period");
}

/// Hazard: a thread's own stream ends with the thread, and the library's own allocations in it are
/// leaked.
#[test]
fn nothing_of_the_librarys_stays_in_a_threads_own_stream() {
    let stats = after("unfreed");
    let count = |name: &str| {
        let calls = stats["driver_calls"].as_array().expect("a list");
        calls.iter().find(|call| call["name"] == name).and_then(|call| call["count"].as_u64())
    };
    assert_eq!((count("cuMemAllocFromPoolAsync"), count("cuMemFreeAsync")), (Some(4), Some(4)), "{stats}");
}

/// Hazard: in a blocking stream each allocation and each free costs more than the driver's own, or
/// leaks memory.
#[test]
fn an_action_of_a_blocking_stream_is_one_call_and_nothing_is_left() {
    let stats = after("actions");
    let count = |name: &str| {
        let calls = stats["driver_calls"].as_array().expect("a list");
        calls.iter().find(|call| call["name"] == name).and_then(|call| call["count"].as_u64())
    };
    assert_eq!(
        (count("cuMemAllocFromPoolAsync"), count("cuMemFreeAsync")),
        (Some(101), Some(101)),
        "{stats}"
    );
}
