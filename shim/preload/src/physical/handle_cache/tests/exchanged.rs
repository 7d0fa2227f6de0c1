//! Hazard (wrong result): a piece that becomes device memory is lost, is two memories, or becomes
//! it although the program has changed it meanwhile.
use super::*;

const ON_HOST: PieceKind = PieceKind { tier: Tier::Host, ..KIND };
const PLACES: [u64; 2] = [16 * MIB, 32 * MIB];

/// A lent piece, which is mapped at both places with access.
fn mapped() -> (HandleCache<Model>, u64, HeldPiece) {
    let mut cache = HandleCache::new(Model::default());
    let handle = cache.vmm.new_handle(ON_HOST);
    let alias = cache.lend(ON_HOST, handle);
    for at in PLACES {
        assert_eq!(cache.map(at, KIND.bytes, alias), Some(Ok(())));
        assert_eq!(cache.vmm.at(at), None, "the program has not granted access");
        assert_eq!(cache.allow(at, KIND.bytes, &Access::from(ALL)), Some(Ok(())));
        assert_eq!(cache.vmm.at(at), Some(handle));
    }
    let held = cache.held(alias).expect("a piece");
    assert_eq!((&held.at[..], held.handle, held.shared), (&PLACES[..], handle, false));
    (cache, alias, held)
}

/// As [`SharedHandles::exchange`], in one thread.
fn exchange(cache: &mut HandleCache<Model>, alias: u64, seen: &HeldPiece, handle: u64) -> bool {
    let access = access();
    let Some(mut exchange) = cache.begin_exchange(alias, seen, handle, &access) else { return false };
    assert!(cache.begin_exchange(alias, seen, handle, &access).is_none(), "it is in exchange");
    let is_exchanged = exchange.carry_out(&cache.vmm);
    if is_exchanged {
        cache.end_exchange(&exchange);
        exchange.release(&cache.vmm);
    }
    cache.leave_exchange(alias);
    is_exchanged
}

fn access() -> Vec<Access> {
    PLACES.iter().map(|_| Access::from(ALL)).collect()
}

#[test]
fn memory_that_is_lent_goes_back_when_it_is_given_up() {
    let (mut cache, alias, held) = mapped();
    assert_eq!(cache.map(48 * MIB, MIB, alias), None, "the driver answers for a part");
    assert_eq!(cache.unmap(PLACES[0], KIND.bytes), Some(Ok(())));
    assert_eq!(cache.vmm.at(PLACES[0]), None);
    assert_eq!(cache.release(alias), Some(Ok(())));
    assert_eq!(cache.vmm.at(PLACES[1]), Some(held.handle));
    assert_eq!(cache.unmap(PLACES[1], KIND.bytes), Some(Ok(())));
    assert!(cache.vmm.0.borrow().handles.is_empty() && cache.vmm.idle(Tier::Host) == 0);
    assert!(cache.aliases.is_empty() && cache.memories.is_empty() && cache.mappings.is_empty());
}

#[test]
fn an_exchanged_piece_is_the_other_memory_wherever_it_is_mapped() {
    let (mut cache, alias, held) = mapped();
    let other = cache.vmm.new_handle(KIND);
    assert!(exchange(&mut cache, alias, &held, other));
    assert_eq!(PLACES.map(|at| cache.vmm.at(at)), [Some(other); 2]);
    assert_eq!((cache.bound(alias), cache.vmm.0.borrow().handles.len()), (Some(other), 1));
    assert_eq!(cache.held(alias).expect("a piece").kind, KIND);
    assert_eq!(cache.mapped_in(PLACES[0] + MIB, 16 * MIB)[..], [alias, alias]);
    for at in PLACES {
        assert_eq!(cache.unmap(at, KIND.bytes), Some(Ok(())));
    }
    assert_eq!(cache.release(alias), Some(Ok(())));
    assert!(cache.vmm.0.borrow().handles.is_empty() && cache.memories.is_empty());
}

#[test]
fn a_piece_that_has_changed_is_not_exchanged() {
    for change in 0..4 {
        let (mut cache, alias, held) = mapped();
        match change {
            0 => assert_eq!(cache.unmap(PLACES[0], KIND.bytes), Some(Ok(()))),
            1 => {
                // The same addresses, but the program may have written meanwhile.
                assert_eq!(cache.unmap(PLACES[1], KIND.bytes), Some(Ok(())));
                assert_eq!(cache.map(PLACES[1], KIND.bytes, alias), Some(Ok(())));
            }
            2 => assert!(cache.share(alias).is_some()),
            _ => assert_eq!(cache.map(48 * MIB, KIND.bytes, alias), Some(Ok(()))),
        }
        let other = cache.vmm.new_handle(KIND);
        assert!(!exchange(&mut cache, alias, &held, other), "{change}");
        assert_eq!(cache.bound(alias), Some(held.handle), "{change}");
    }
}

/// Memory that the driver does not map is found out at the first place; a place that it does not
/// unmap, at each.
#[test]
fn a_refused_exchange_has_no_effect() {
    let (mut cache, alias, held) = mapped();
    let other = cache.vmm.new_handle(KIND);
    cache.vmm.0.borrow_mut().spoiled.insert(other);
    assert!(!exchange(&mut cache, alias, &held, other));
    assert_eq!(PLACES.map(|at| cache.vmm.at(at)), [Some(held.handle); 2]);
    cache.vmm.0.borrow_mut().spoiled.clear();
    cache.vmm.0.borrow_mut().fails_to_unmap = 1;
    assert!(!exchange(&mut cache, alias, &held, other));
    assert_eq!(PLACES.map(|at| cache.vmm.at(at)), [Some(held.handle); 2]);
    assert_eq!(cache.bound(alias), Some(held.handle));
    assert!(exchange(&mut cache, alias, &held, other));
    assert_eq!(PLACES.map(|at| cache.vmm.at(at)), [Some(other); 2]);
}

/// Hazard (use after free): the alias's former memory is mapped where the program may map another
/// piece.
#[test]
fn mappings_that_the_program_has_given_up_go_with_the_former_memory() {
    let mut program = Program::new();
    program.map_on(Tier::Host, 0..1);
    let (alias, memory, _) = program.pages[&0];
    program.move_to(0, 1);
    assert_eq!(program.cache.vmm.at(Program::address(0)), Some(memory), "it may come back there");
    let held = program.cache.held(alias).expect("a piece");
    let other = program.cache.vmm.new_handle(KIND);
    assert!(exchange(&mut program.cache, alias, &held, other));
    let state = program.cache.vmm.0.borrow();
    assert_eq!(state.mapped.keys().copied().collect::<Vec<_>>(), [Program::address(1)]);
    assert_eq!(state.handles.keys().copied().collect::<Vec<_>>(), [other]);
}
