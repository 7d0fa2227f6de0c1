//! Hazard (resource leak): memory is lost where the driver fails, or a device's contexts end.
use super::*;

/// Hazard: a program that compares handles takes its own memory for another's, or memory that it
/// has unmapped is used by two.
#[test]
fn the_handle_of_an_address_is_the_one_that_is_mapped_there() {
    let mut program = Program::new();
    program.map(0..2);
    let (alias, ..) = program.pages[&0];
    assert_eq!(program.cache.retain(Program::address(0) + 5), Some(Ok(alias)));
    assert_eq!(program.cache.unmap(Program::address(0), KIND.bytes), Some(Ok(())));
    assert_eq!(program.cache.retain(Program::address(0)), Some(Err(CUresult::INVALID_VALUE)));
    assert_eq!(program.cache.retain(Program::address(9)), None);
    assert_eq!(program.cache.release(alias), Some(Ok(())));
    assert_eq!(program.cache.vmm.idle(Tier::Device), 0, "it is held once more");
    assert_eq!(program.cache.map(Program::address(5), KIND.bytes, alias), Some(Ok(())));
    assert_eq!(program.cache.release(alias), Some(Ok(())));
    assert_eq!(program.cache.release(alias), Some(Err(CUresult::INVALID_VALUE)));
    assert_eq!(program.cache.retain(Program::address(5)), Some(Ok(alias)), "it is mapped");
    assert_eq!(program.cache.unmap(Program::address(5), KIND.bytes), Some(Ok(())));
    assert_eq!((program.cache.release(alias), program.cache.release(alias)), (Some(Ok(())), None));
    assert_eq!(program.cache.vmm.idle(Tier::Device), KIND.bytes);
}

/// Hazard: the driver fails once, and the addresses are lost to the program.
#[test]
fn a_mapping_that_was_not_removed_is_removed_when_its_addresses_are_needed() {
    let mut program = Program::new();
    program.map(0..2);
    program.unmap(0);
    program.cache.vmm.0.borrow_mut().fails_to_unmap = 1;
    assert_eq!(program.cache.give_back(0, Tier::Device, 1), 0, "the driver has not taken it");
    assert_eq!(program.cache.clear(Program::address(0), KIND.bytes), Ok(()));
    let left: Vec<u64> = program.cache.vmm.0.borrow().mapped.keys().copied().collect();
    assert_eq!(left, [Program::address(1)]);
    program.map(0..1);
    program.check();
}

/// Hazard: handles belong to no context, and a reset takes the program's.
#[test]
fn pieces_live_on_after_the_contexts() {
    let mut program = Program::new();
    program.map(0..4);
    (2..4).for_each(|page| program.unmap(page));
    let unbound = program.reserve(KIND).expect("idle memory");
    program.cache.vmm.2.has_no_pool.set(true);
    program.cache.end_device(KIND.device);
    *program.cache.vmm.1.borrow_mut() = HandlePool::default();
    program.cache.vmm.2.has_no_pool.set(false);
    program.check();
    assert_eq!(program.cache.vmm.0.borrow().handles.len(), 2, "idle memory is the driver's again");
    program.move_to(1, 7);
    let address = Program::address(3);
    assert_eq!(program.cache.map(address, KIND.bytes, unbound), Some(Ok(())));
    assert_eq!(program.cache.allow(address, KIND.bytes, &Access::from(ALL)), Some(Ok(())));
    let memory = program.cache.handle(unbound).expect("bound when it is mapped");
    program.pages.insert(3, (unbound, memory, KIND));
    program.check();
    [0, 3, 7].into_iter().for_each(|page| program.unmap(page));
    program.check();
    assert_eq!(program.cache.give_back(0, Tier::Device, u64::MAX), 3 * KIND.bytes);
    assert!(program.cache.vmm.0.borrow().mapped.is_empty());
}

/// Hazard (resource leak): a thread makes a piece while another one ends the device's contexts, and
/// releases it when the device has no pool. The driver gets the memory back at the next end of the
/// contexts only, which may never come.
#[test]
fn memory_that_is_released_while_its_device_has_no_pool_goes_back_to_the_driver() {
    let mut cache = HandleCache::new(Model::default());
    let handle = cache.vmm.new_handle(KIND);
    cache.vmm.2.has_no_pool.set(true);
    cache.end_device(KIND.device);
    // The driver made the piece before the end, and it is noted here after it.
    let alias = cache.made(KIND, handle);
    assert_eq!(cache.release(alias), Some(Ok(())));
    assert_eq!(cache.vmm.0.borrow().handles.len(), 0);
    assert!(cache.memories.is_empty() && cache.aliases.is_empty());
}
