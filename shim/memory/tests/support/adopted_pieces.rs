//! Hazard (data race): memory of the program's own moves while another thread unmaps it, or while
//! its context ends.

use super::*;

use crate::manager::pieces::Charge;

const BYTES: u64 = 4 * MIB;

/// A piece of the program's, and how it makes, uses and unmaps it.
struct Piece<'m> {
    charge: Charge<'m, Model>,
    address: u64,
}

impl<'m> Piece<'m> {
    fn make(manager: &'m Manager<Model>, word: u64) -> Self {
        let model = manager.gpu();
        let charge = manager.charge(Tier::Device, BYTES, false).expect("it is not limited");
        let memory = model.create(Tier::Device, BYTES as usize).expect("there is room");
        charge.made(false);
        let address = model.reserve(BYTES as usize).expect("no failure");
        model.map(address, BYTES as usize, memory).expect("no failure");
        model.allow(address, BYTES as usize).expect("no failure");
        model.write(address, word);
        assert!(manager.adopt(&charge, address, memory));
        Self { charge, address }
    }

    /// What lies there is told, has the bytes, and stays: no mover uses it any more.
    fn unmap(self, word: u64) {
        let manager = self.charge.manager();
        let model = manager.gpu();
        let disowned = manager.disown(self.address).expect("it is adopted");
        assert_eq!(model.resolve(self.address, BYTES), [(disowned.memory.0, 0..BYTES)]);
        assert_eq!((model.read(self.address), disowned.tier), (Some(word), self.charge.tier()));
        model.unmap(self.address, BYTES as usize).expect("no failure");
        model.unreserve(self.address, BYTES as usize).expect("no failure");
        model.release(disowned.memory).expect("no failure");
    }
}

fn manager() -> &'static Manager<Model> {
    let settings = ManagerSettings { headroom: 0, overflow: vec![Tier::Host], ..ManagerSettings::default() };
    Box::leak(Box::new(Manager::new(Model::with_hook(64 * MIB, 64 * MIB, thread::yield_now), settings)))
}

fn end(manager: &Manager<Model>) {
    manager.audit().expect("the books balance");
    manager.trim(0);
    manager.give_back_elsewhere();
    assert_eq!(manager.usage().together.reserved.total(), 0);
    manager.discard();
    assert_eq!(manager.gpu().objects(), [0; 4]);
}

fn move_both_ways(manager: &'static Manager<Model>, address: u64) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for to in [Tier::Host, Tier::Device, Tier::Host] {
            // It is disowned by then, perhaps, or other changes are under way.
            let _moved = manager.move_handle(address, to);
        }
    })
}

#[test]
fn a_piece_that_is_unmapped_while_it_moves_has_its_bytes_and_leaves_nothing() {
    under_all_schedulers(|| {
        let manager = manager();
        let (one, other) = (Piece::make(manager, 7), Piece::make(manager, 8));
        let movers = [one.address, other.address].map(|address| move_both_ways(manager, address));
        let (blocks, address) = (
            thread::spawn(move || {
                let block = manager.allocate(BYTES as usize, Order::Device).expect("there is room");
                manager.free(block, Order::Device).expect("it is live");
                manager.trim(0);
                manager.give_back_elsewhere();
            }),
            other.address,
        );
        one.unmap(7);
        movers.into_iter().chain([blocks]).for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(manager.gpu().read(address), Some(8));
        other.unmap(8);
        end(manager);
    });
}

#[test]
fn a_context_that_ends_while_pieces_move_leaves_them_to_the_program() {
    under_all_schedulers(|| {
        let manager = manager();
        let piece = Piece::make(manager, 9);
        let mover = move_both_ways(manager, piece.address);
        manager.discard();
        piece.unmap(9);
        mover.join().expect("no panic");
        end(manager);
    });
}
