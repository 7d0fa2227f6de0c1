//! Hazard (wrong report): a field of the library's answer is in no table.
//!
//! Each number of an answer, made by the library's own types, is another one. All of them must be
//! in the tables, except those with a reason here.
use wm_schema::{
    BlockEntry, BlockList, Bucket, BytesByTier, CallCount, Config, CopyStats, Counters, DedupStats,
    DeviceBlocks, DeviceBudget, DeviceStats, DriverCall, DriverInfo, FailOpen, GuardStats, MoveStats,
    PauseStats, PieceEntry, PieceRange, PieceStats, Reason, Stats, StayedBytes, TierUsage, Tiers, TurnStats,
};

use super::{blocks, render};

/// An answer as it comes over the socket.
fn received<T: serde::Serialize + serde::de::DeserializeOwned>(answer: &T) -> T {
    crate::client::parsed(&serde_json::to_value(answer).expect("an answer is JSON")).expect("the same type")
}

fn tier(first: u64) -> TierUsage {
    let [live_bytes, reserved_bytes, peak_live_bytes, peak_reserved_bytes] =
        [0, 1, 2, 3].map(|more| (first + more) << 30);
    TierUsage { live_bytes, reserved_bytes, peak_live_bytes, peak_reserved_bytes }
}

fn device() -> DeviceStats {
    DeviceStats {
        ordinal: 3,
        name: "Model H".to_owned(),
        total_bytes: 101 << 30,
        limit_bytes: 102 << 30,
        headroom_bytes: 103 << 30,
        // 45.6 % of these, and all of the pieces, are live.
        tiers: Tiers {
            host: TierUsage { reserved_bytes: 82 << 30, ..TierUsage::default() },
            ..Tiers::default()
        },
        memory: Some(Tiers { device: tier(111), peer: tier(121), host: tier(131) }),
        pieces: PieceStats {
            device_bytes: 141 << 30,
            idle_bytes: 142 << 30,
            host_bytes: 143 << 30,
            host_idle_bytes: 145 << 30,
            overflows: 144,
            peak_bytes: 149 << 30,
            ..PieceStats::default()
        },
        moves: MoveStats {
            in_bytes: 146 << 30,
            out_bytes: 147 << 30,
            clean_bytes: 157 << 30,
            unequal_bytes: 158 << 30,
            unprinted_bytes: 0,
            refused: vec![Reason { reason: "it is in use".to_owned(), count: 148 }],
        },
        utilization: 0.456,
        largest_free_run_bytes: 104 << 30,
        counters: Counters {
            hits: 151,
            splits: 152,
            stitches: 153,
            creates: 154,
            out_of_memory: 155,
            ..Counters::default()
        },
        audit: Some("a run is lost".to_owned()),
        ..DeviceStats::default()
    }
}

fn stats() -> Stats {
    let histogram = vec![Bucket { le_ns: Some(64_000), count: 176 }];
    let calls = vec![CallCount { name: "cuMemAlloc_v2".to_owned(), count: 161, errors: 162 }];
    let driver_calls = vec![DriverCall {
        name: "cuMemMap".to_owned(),
        count: 171,
        errors: 172,
        total_ns: 173_000_000_000,
        histogram,
    }];
    Stats {
        schema: Stats::SCHEMA.to_owned(),
        version: "9.8.7".to_owned(),
        pid: 4711,
        program: "train".to_owned(),
        uptime_s: 12.0,
        driver: Some(DriverInfo { path: "/lib/libcuda.so.1".to_owned(), version: Some(13_010) }),
        torch_allocator: "expandable".to_owned(),
        out_of_bounds: 0,
        detached: false,
        devices: vec![device()],
        calls,
        driver_calls,
        copies: vec![CopyStats {
            path: "relay 6".to_owned(),
            direction: "htod".to_owned(),
            count: 181,
            bytes: 182 << 30,
        }],
        relays: Vec::new(),
        guard: Some(GuardStats {
            mode: "canary".to_owned(),
            guarded: 191,
            looks: 192,
            overrun: 193,
            unwatched: 194,
        }),
        dedup: Some(DedupStats {
            mode: "advise".to_owned(),
            candidate_bytes: 211 << 30,
            shared_bytes: 212 << 30,
            saved_bytes: 213 << 30,
            copied_back_bytes: 214 << 30,
            faults_avoided: 215,
            readers: 216,
            writers: 217,
            unknown: 218,
            launches: 221,
            turns: 219,
            refused: vec![Reason { reason: "it is exported".to_owned(), count: 220 }],
        }),
        pause: Some(PauseStats {
            state: "paused".to_owned(),
            is_awaited: true,
            pause_s: 12.0,
            out_bytes: 231 << 30,
            clean_bytes: 232 << 30,
            common_bytes: 234 << 30,
            stayed: vec![StayedBytes { reason: "a graph names it".to_owned(), bytes: 233 << 30 }],
            ..PauseStats::default()
        }),
        turn: Some(TurnStats {
            state: "away".to_owned(),
            has_broker: true,
            asks: 241,
            gave_way: 242,
            given_bytes: 243 << 30,
            longest_wait_s: 244.0,
            ..TurnStats::default()
        }),
        fail_open: FailOpen {
            count: 201,
            reasons: vec![Reason { reason: "a reason".to_owned(), count: 202 }],
        },
    }
}

fn assert_shown(text: &str, shown: &[&str]) {
    let missing: Vec<_> = shown.iter().filter(|part| !text.contains(**part)).collect();
    assert!(missing.is_empty(), "{missing:?} are not in\n{text}");
}

#[test]
fn what_the_library_says_is_in_the_tables() {
    let text = render::stats(None, &received(&stats()));
    let tiers =
        [111, 112, 113, 114, 121, 122, 123, 124, 131, 132, 133, 134].map(|size| format!("{size}.0 GiB"));
    assert_shown(&text, &tiers.each_ref().map(String::as_str));
    assert_shown(
        &text,
        &[
            "train (process 4711), up 12",
            "wmshim 9.8.7",
            "allocator: expandable",
            "/lib/libcuda.so.1 (CUDA 13.1)",
        ],
    );
    assert_shown(
        &text,
        &["Device 3 Model H: 101.0 GiB (limit 102.0 GiB, headroom 103.0 GiB)", "87.8 %", "104.0 GiB"],
    );
    assert_shown(
        &text,
        &["hits 151", "splits 152", "stitches 153", "creates 154", "out of memory 155", "a run is lost"],
    );
    assert_shown(
        &text,
        &["141.0 GiB on the device", "143.0 GiB on the host", "overflows 144", "149.0 GiB at once"],
    );
    assert_shown(
        &text,
        &[
            "146.0 GiB to the device",
            "147.0 GiB off it, 157.0 GiB of that without a copy",
            "158.0 GiB had the same fingerprints",
            "stayed 148 times: it is in use",
        ],
    );
    assert_shown(&text, &["cuMemAlloc_v2", "161", "162", "cuMemMap", "171", "172", "173.0 s", "64.0 µs"]);
    assert_shown(
        &text,
        &["relay 6", "htod", "181", "182.0 GiB", "canary", "191", "192", "193", "194", "a reason", "202"],
    );
}

#[test]
fn so_is_what_is_stored_once() {
    let text = render::stats(None, &received(&stats()));
    assert_shown(&text, &["advise", "211.0 GiB", "212.0 GiB", "213.0 GiB", "214.0 GiB"]);
    assert_shown(&text, &["215", "216", "217", "218", "219", "not shared: it is exported", "220"]);
}

#[test]
fn so_is_a_pause_while_it_lasts() {
    let text = render::stats(None, &received(&stats()));
    assert_shown(
        &text,
        &[
            "paused; calls wait",
            "231.0 GiB",
            "232.0 GiB",
            "233.0 GiB",
            "234.0 GiB in one copy",
            "a graph names it",
        ],
    );
    for pause in [None, Some(PauseStats { state: "running".to_owned(), ..PauseStats::default() })] {
        let text = render::stats(None, &received(&Stats { pause, ..stats() }));
        assert!(!text.contains("paus"), "{text}");
    }
}

#[test]
fn so_are_turns() {
    let text = render::stats(None, &received(&stats()));
    assert_shown(&text, &["takes turns: away", "241 times", "242 times", "243.0 GiB"]);
    let turn = TurnStats { state: "running".to_owned(), ..TurnStats::default() };
    let text = render::stats(None, &received(&Stats { turn: Some(turn), ..stats() }));
    assert_shown(&text, &["without a broker: running"]);
    let text = render::stats(None, &received(&Stats { turn: None, ..stats() }));
    assert!(!text.contains("takes turns"), "{text}");
}

#[test]
fn where_dedup_is_off_nothing_is_said_of_it() {
    for dedup in [None, Some(DedupStats { mode: "off".to_owned(), ..DedupStats::default() })] {
        let text = render::stats(None, &received(&Stats { dedup, ..stats() }));
        assert!(!text.contains("DEDUP"), "{text}");
    }
}

#[test]
fn so_are_its_blocks() {
    let tiers = BytesByTier { device: 11 << 30, peer: 12 << 30, host: 13 << 30 };
    let block = BlockEntry { address: 0xabc000, bytes: 14 << 30, id: 1, stream: None, tiers };
    let tiers = BytesByTier { host: 15 << 30, ..BytesByTier::default() };
    let mappings = vec![PieceRange { address: 0xdef000, bytes: 15 << 30 }];
    let pieces = vec![PieceEntry { bytes: 16 << 30, id: 2, tiers, mappings }];
    let devices = vec![DeviceBlocks { ordinal: 5, blocks: vec![block], pieces }];
    let text = blocks::table(&received(&BlockList { schema: BlockList::SCHEMA.to_owned(), pid: 1, devices }));
    assert_shown(&text, &["5", "0xabc000", "11.0 GiB", "12.0 GiB", "13.0 GiB", "14.0 GiB"]);
    assert_shown(&text, &["0xdef000", "15.0 GiB", "1 blocks, 14.0 GiB; 1 pieces, 16.0 GiB"]);
}

#[test]
fn so_are_its_settings() {
    let settings = [("WMSHIM_OVERFLOW".to_owned(), Some("host".to_owned()))].into();
    let budget = DeviceBudget {
        ordinal: 6,
        device_limit_bytes: Some(21 << 30),
        headroom_bytes: 22 << 30,
        keep_idle_bytes: 23 << 30,
        host_limit_bytes: Some(24 << 30),
        peer_limit_bytes: Some(25 << 30),
    };
    let config =
        Config { schema: Config::SCHEMA.to_owned(), pid: 1, library: None, settings, devices: vec![budget] };
    let text = render::config(&received(&config));
    assert_shown(
        &text,
        &["WMSHIM_OVERFLOW", "host", "21.0 GiB", "22.0 GiB", "23.0 GiB", "24.0 GiB", "25.0 GiB"],
    );
}
