//! Hazard (corrupt input): a file that any process of the user can write makes its reader panic.
//! Hazard (wrong report): a figure is read as another.

use proptest::prelude::*;

use super::*;

fn bytes(black_box: &BlackBox) -> Vec<u8> {
    let BlackBox {
        process,
        program,
        library,
        allocator,
        driver,
        copies,
        refusals,
        devices,
        seconds,
        minutes,
        marks,
    } = black_box;
    let mut file = Vec::new();
    let mut add =
        |cells: &[AtomicU64]| file.extend(cells.iter().flat_map(|cell| cell.load(Relaxed).to_ne_bytes()));
    add(&process.cells());
    [&program.0[..], &library.0, &allocator.0, &driver.0].into_iter().for_each(&mut add);
    copies.iter().for_each(|cells| add(&cells.cells()));
    refusals.iter().for_each(|cells| add(&cells.cells()));
    for device in devices {
        add(&device.hot.cells());
        add(&device.figures.cells());
        add(&device.limits.cells());
        [&device.name.0[..], &device.uuid.0, &device.pci.0].into_iter().for_each(&mut add);
        add(&[const { AtomicU64::new(0) }; PADDING]);
    }
    seconds.iter().for_each(|cells| add(&cells.cells()));
    minutes.iter().for_each(|cells| add(&cells.cells()));
    add(&marks.cells());
    file
}

/// Words of a device behind its name.
const PADDING: usize =
    size_of::<DeviceBox>() / 8 - HotWords::COUNT - DeviceWords::COUNT - LimitWords::COUNT - 16;

fn whole() -> BlackBox {
    let made = BlackBox::new();
    made.process.version.store(BlackBox::VERSION, Relaxed);
    made.process.bytes.store(BlackBox::BYTES as u64, Relaxed);
    made.process.pid.store(4711, Relaxed);
    made.process.magic.store(BlackBox::MAGIC, Relaxed);
    made
}

#[test]
fn what_was_written_is_read() {
    let made = whole();
    made.program.store("python3.11");
    made.driver.store(&"ä".repeat(200));
    for (row, path) in [(5, CopyWords::RELAY + 3), (1, CopyWords::DIRECT), (4, CopyWords::DIRECT)] {
        made.copies[row].store(&CopyWords { path, direction: CopyWords::FROM_DEVICE, count: 4, bytes: 5 });
    }
    let device = &made.devices[3];
    device.hot.store(&HotWords {
        number: 4,
        live_device: 8,
        live_host: 2,
        allocations: 7,
        ..HotWords::default()
    });
    let words = DeviceWords {
        reserved_device: 16,
        pieces_device: 4,
        pieces_idle_device: 1,
        live_peak_host: 6,
        ..DeviceWords::default()
    };
    device.publish(&DeviceWords { all_live_peak_device: 13, out_of_memory: 2, ..words });
    device.name.store("Simulated GPU");
    let read = BlackBoxReading::parse(&bytes(&made)).expect("a box");
    let stats = &read.stats;
    assert_eq!((stats.pid, stats.program.as_str(), stats.devices.len()), (4711, "python3.11", 1));
    assert_eq!(stats.driver.as_ref().map(|driver| driver.path.chars().count()), Some(144), "cut at a letter");
    let copies =
        stats.copies.iter().map(|row| (row.path.as_str(), row.direction.as_str(), row.count, row.bytes));
    assert_eq!(copies.collect::<Vec<_>>(), [("direct", "dtoh", 8, 10), ("relay 3", "dtoh", 4, 5)]);
    let device = &stats.devices[0];
    assert_eq!(
        (device.ordinal, device.name.as_str(), device.counters.out_of_memory),
        (3, "Simulated GPU", 2)
    );
    assert_eq!((device.tiers.host.live_bytes, device.tiers.host.peak_live_bytes), (2, 6));
    let all = device.everything().device;
    assert_eq!((all.live_bytes, all.reserved_bytes, all.peak_live_bytes), (12, 21, 13));
}

#[test]
fn a_pause_is_read_with_the_host_memory_that_is_ready_for_it() {
    let made = whole();
    for (number, reserved_host) in [(0, 9), (1, 5)] {
        let device = &made.devices[number];
        device.hot.store(&HotWords { number: number as u64 + 1, live_host: 2, ..HotWords::default() });
        device.publish(&DeviceWords { reserved_host, ..DeviceWords::default() });
    }
    let read = || BlackBoxReading::parse(&bytes(&made)).expect("a box").stats;
    assert_eq!(read().pause, None, "it cannot be paused");
    for (state, word, is_deep) in [(1, "running", false), (3, "paused", false), (5, "deep", true)] {
        made.process.pause_state.store(state, Relaxed);
        let pause = read().pause.expect("it can be paused");
        assert_eq!((pause.word(), pause.is_deep, pause.arena.bytes), (word, is_deep, 10));
        assert_eq!(pause.runs(), state == 1);
    }
}

#[test]
fn the_latest_refusals_are_kept() {
    let made = whole();
    for asked in 0..20 {
        made.refused(&RefusalWords { at_s: asked + 1, ordinal: 1, asked, held: 9 });
    }
    let read = BlackBoxReading::parse(&bytes(&made)).expect("a box").refused;
    let asked: Vec<_> = read.iter().map(|refusal| refusal.asked).collect();
    assert_eq!(asked, (4..20).rev().collect::<Vec<_>>());
    assert_eq!((read[0].at.as_secs(), read[0].ordinal, read[0].held), (19, 1, 9));
}

#[test]
fn a_sample_is_the_most_of_its_second_and_the_ring_forgets_the_oldest() {
    let made = whole();
    let live = |device: u64| BytesByTier { device: device << 20, peer: 3 << 10, host: 1 };
    for (second, device) in [(0, 5), (0, 9), (0, 7), (61, 2), (64, 4)] {
        made.sample(second, live(device));
    }
    let file = bytes(&made);
    let [seconds, minutes] = BlackBoxReading::samples(&file);
    let told = |samples: &[PastSample]| {
        samples.iter().map(|sample| (sample.at, sample.live.device >> 20)).collect::<Vec<_>>()
    };
    assert_eq!(told(&seconds), [(61, 2), (64, 4)], "second 64 has the place of second 0");
    assert_eq!(told(&minutes), [(0, 9), (1, 4)]);
    assert_eq!((minutes[0].live.peer, minutes[0].live.host), (3 << 10, 1 << 10), "whole KiB, rounded up");
    assert_eq!(BlackBoxReading::parse(&file).expect("a box").stats.uptime_s, 64.0);
}

#[test]
fn the_latest_marks_are_kept_and_one_that_is_being_written_is_left_out() {
    let made = whole();
    let last = MarkRing::PLACES as u64 + 5;
    for step in 0..=last {
        made.marks.note(1000 * step, &format!("step {step} {}", "é".repeat(40)));
    }
    let file = bytes(&made);
    let marks = BlackBoxReading::marks(&file);
    assert_eq!(marks.len(), MarkRing::PLACES);
    assert!(marks[0].text.starts_with("step 6 é"), "{marks:?}");
    let newest = &marks[MarkRing::PLACES - 1];
    assert_eq!((newest.at.as_nanos(), newest.text.len()), (u128::from(1000 * last), 56), "cut at a letter");
    let later = whole();
    later.marks.take_over(&made.marks);
    assert_eq!(BlackBoxReading::marks(&bytes(&later)), marks);
    // The place of mark 6, with one word of a newer writer's.
    for word in [0, 9] {
        let mut torn = file.clone();
        let at = std::mem::offset_of!(BlackBox, marks) + 8 * (8 + 10 * 6 + word);
        torn[at..at + 8].copy_from_slice(&(last + 2).to_ne_bytes());
        assert_eq!(BlackBoxReading::marks(&torn), marks[1..]);
    }
}

#[test]
fn a_device_that_is_being_written_is_seen() {
    let made = whole();
    made.devices[0].publish(&DeviceWords { extents: 7, ..DeviceWords::default() });
    let before = bytes(&made);
    made.devices[0].hot.live_device.store(9, Relaxed);
    assert!(!BlackBoxReading::is_torn(&before, &bytes(&made)), "hits and frees go on");
    made.devices[0].publish(&DeviceWords { extents: 8, ..DeviceWords::default() });
    assert!(BlackBoxReading::is_torn(&before, &bytes(&made)));
    made.devices[0].figures.sequence.fetch_add(1, Relaxed);
    assert!(BlackBoxReading::is_torn(&bytes(&made), &bytes(&made)), "the writer was ended within");
    made.devices[0].publish(&DeviceWords::default());
    assert!(!BlackBoxReading::is_torn(&bytes(&made), &bytes(&made)), "and another goes on");
}

#[test]
fn another_version_and_a_short_file_are_told_apart() {
    let file = bytes(&whole());
    assert_eq!(file.len(), BlackBox::BYTES);
    let with = |word: usize, value: u64| {
        let mut file = file.clone();
        file[8 * word..8 * word + 8].copy_from_slice(&value.to_ne_bytes());
        BlackBoxReading::parse(&file).map(drop)
    };
    assert_eq!(with(0, 0), Err(BlackBoxError::Unfinished));
    assert_eq!(with(0, 1), Err(BlackBoxError::Foreign));
    assert_eq!(with(1, 99), Err(BlackBoxError::Version(99)));
    assert_eq!(with(2, 99), Err(BlackBoxError::Short));
    assert_eq!(BlackBoxReading::parse(&file[..BlackBox::FIGURES - 1]).map(drop), Err(BlackBoxError::Short));
    assert_eq!(BlackBoxReading::parse(&[]).map(drop), Err(BlackBoxError::Unfinished));
    assert!(BlackBoxReading::parse(&file[..BlackBox::FIGURES]).is_ok(), "the rings are not needed");
}

proptest! {
    /// Words that a hostile process would choose, under a head that is right.
    #[test]
    fn no_content_makes_a_reader_panic(
        words in prop::collection::vec(prop_oneof![any::<u64>(), Just(u64::MAX), Just(0), Just(1), Just(1 << 63)], 1..300),
        head in any::<bool>(),
        cut in prop_oneof![3 => Just(BlackBox::BYTES), 1 => 0..BlackBox::BYTES],
    ) {
        let mut words: Vec<u64> = words.into_iter().cycle().take(BlackBox::BYTES / 8).collect();
        if head {
            words[..3].copy_from_slice(&[BlackBox::MAGIC, BlackBox::VERSION, BlackBox::BYTES as u64]);
        }
        let mut file: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        file.truncate(cut);
        let [seconds, minutes] = BlackBoxReading::samples(&file);
        prop_assert!(seconds.len() <= BlackBox::SECONDS && minutes.len() <= BlackBox::MINUTES);
        prop_assert!(BlackBoxReading::marks(&file).len() <= MarkRing::PLACES);
        let read = BlackBoxReading::parse(&file);
        prop_assert_eq!(read.is_ok(), head && cut >= BlackBox::FIGURES);
        let _ = BlackBoxReading::is_torn(&file, &file);
        for device in read.iter().flat_map(|read| &read.stats.devices) {
            let all = device.everything();
            prop_assert!(all.device.peak_live_bytes >= all.device.live_bytes);
            prop_assert!((0.0..=1.0).contains(&device.utilization));
        }
    }
}
