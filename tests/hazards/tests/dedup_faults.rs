//! Hazard (error handling): the driver refuses one call in the middle of an exchange, and a block
//! stays half shared, or another process maps memory that this one writes.
//!
//! For one of two programs the call of a given number fails; both programs read and write the right
//! bytes, shared or not.

use hazards::sharers::{Stage, read_until};

/// The calls of an exchange and of a private copy, and whether the library counts them.
const CALLS: [(&str, bool); 11] = [
    ("cuMemMap", true),
    ("cuMemUnmap", true),
    ("cuMemSetAccess", true),
    ("cuMemCreate", true),
    ("cuMemRelease", true),
    ("cuMemAddressReserve", true),
    ("cuMemcpyDtoDAsync", true),
    ("cuMemExportToShareableHandle", false),
    ("cuMemImportFromShareableHandle", false),
    ("cuMemRetainAllocationHandle", false),
    ("cuCtxRecordEvent", false),
];

/// The numbers of failing calls, counted from the first call of the exchange.
const NUMBERS: [u64; 2] = [1, 5];

const BLOCKS: [(usize, u64, u64); 2] = [(0, 7, 8), (1, 8, 4)];

/// The number of calls of each function that a program makes until it has loaded its blocks.
fn made_before() -> [u64; CALLS.len()] {
    let stage = Stage::new();
    let [mut one] = stage.loaded::<1>(&BLOCKS);
    let made = CALLS.map(|(call, is_counted)| {
        let version = if call == "cuMemcpyDtoDAsync" { "cuMemcpyDtoDAsync_v2" } else { call };
        if is_counted { one.driver_calls(version) } else { 0 }
    });
    stage.end([one]);
    made
}

#[test]
fn a_call_that_fails_once_costs_no_byte() {
    let stage = Stage::new();
    let mut shared = 0;
    for ((call, _), made) in CALLS.into_iter().zip(made_before()) {
        for number in NUMBERS {
            let failing = format!("{call}:{}", made + number);
            let mut sharers = [stage.start_with(&[("SIMCUDA_FAIL", &failing)]), stage.start()];
            sharers.iter_mut().for_each(|sharer| sharer.load(&BLOCKS));
            shared += read_until(&mut sharers, 12, 700).iter().sum::<u64>();
            sharers.iter_mut().for_each(|sharer| sharer.expect_right(&failing));
            for (block, way) in ["kernel", "memset"].into_iter().enumerate() {
                sharers[0].obey(&format!("write {way} {block} 33"));
                sharers[1].obey(&format!("part {way} {block} 44"));
                sharers.iter_mut().for_each(|sharer| sharer.expect_right(&failing));
            }
            sharers.into_iter().for_each(hazards::sharers::Sharer::end);
        }
    }
    assert!(shared > 0, "nothing was shared");
    stage.end([]);
}
