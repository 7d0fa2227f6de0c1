//! Two devices of one process, under one limit of host memory, beside each other.

use super::*;

/// Two devices of a process, each full, under one host limit.
fn two_devices() -> [Arc<Shared>; 2] {
    let budget = Arc::new(HostBudget::default());
    let limited = || ManagerSettings { host_limit: 40 * MIB, ..settings(vec![Tier::Host]) };
    let full = || {
        let model = Model::with_hook(0, 256 * MIB, thread::yield_now);
        let manager = Manager::sharing(model, limited(), Arc::clone(&budget), None);
        Arc::new(Shared { manager, held: Mutex::default() })
    };
    let devices = [full(), full()];
    for (mine, other) in [(0, 1), (1, 0)] {
        let other = Arc::downgrade(&devices[other]);
        let held = move || other.upgrade().map_or(0, |other| other.manager.held_on_host());
        devices[mine].manager.gpu().beside(held);
    }
    devices
}

/// Two pieces of work, one on each device, of which the limit allows one.
fn only_one_fits(work: [fn(&Shared); 2]) {
    let devices = two_devices();
    join([spawn(&devices[0], work[0]), spawn(&devices[1], work[1])]);
    let pinned: u64 = devices.iter().map(|device| device.manager.gpu().held(Tier::Host)).sum();
    assert_eq!(pinned, 30 * MIB, "one of two fits, and gets it");
}

/// Hazard (out of memory): two devices each see that the host limit has room, and both pin it.
#[test]
fn two_devices_never_pin_more_of_the_host_than_one_limit() {
    fn block(shared: &Shared) {
        let _refused = shared.take(30 * MB, stream(1));
    }
    fn piece(shared: &Shared) {
        // The charge is for the whole test.
        if let Some(charge) = shared.manager.charge(Tier::Host, 30 * MIB, true) {
            shared.manager.gpu().create(Tier::Host, 30 * MB).expect("the machine has the memory");
            std::mem::forget(charge);
        }
    }
    under_all_schedulers(|| only_one_fits([block, block]));
    under_all_schedulers(|| only_one_fits([piece, piece]));
    under_all_schedulers(|| {
        only_one_fits([block, |shared| {
            // As many steps as a block takes until it is planned.
            (0..8).for_each(|_| thread::yield_now());
            piece(shared);
        }])
    });
}

/// Hazard: a request is refused for memory that another device planned and did not get.
#[test]
fn memory_that_another_device_did_not_get_is_not_missing() {
    under_all_schedulers(|| {
        let devices = two_devices();
        let fails = |shared: &Shared| {
            shared.manager.gpu().fail_creates_on(Tier::Host);
            assert!(shared.take(30 * MB, stream(1)).is_none());
        };
        let fits = |shared: &Shared| assert!(shared.take(30 * MB, stream(1)).is_some());
        let piece = |shared: &Shared| assert!(shared.manager.charge(Tier::Host, 10 * MIB, true).is_some());
        join([spawn(&devices[0], fails), spawn(&devices[1], fits), spawn(&devices[1], piece)]);
    });
}
