//! Hazard (wrong report): advice of the broker counts bytes that a client has withdrawn or that
//! belong to a client that is gone, or its memory grows without bound.

use proptest::collection::vec;
use proptest::prelude::*;
use wm_dedup::broker::{Broker, ClientNumber, CopyLimits, Limits};
use wm_dedup::chunk::{ChunkName, Fingerprint};

const LIMITS: Limits =
    Limits { clients: 3, chunks: 8, leases: 20, leases_of_one: 9, copies: CopyLimits::NONE };

#[derive(Debug, Clone)]
enum Step {
    /// A client notes these, instead of its earlier names or besides them.
    Note { client: usize, anew: bool, names: Vec<u8> },
    /// Another one takes its place.
    Replace(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_usize, any::<bool>(), vec(0..6_u8, 1..6))
            .prop_map(|(client, anew, names)| Step::Note { client, anew, names }),
        1 => (0..3_usize).prop_map(Step::Replace),
    ]
}

fn name(bits: u8) -> ChunkName {
    ChunkName { device: [0; 16], fingerprint: Fingerprint(bits.into()) }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_name_counts_as_often_as_clients_have_it(steps in vec(step(), 1..60)) {
        let mut broker: Broker<()> = Broker::new(LIMITS);
        let mut clients: Vec<ClientNumber> = (0..3).filter_map(|_| broker.join()).collect();
        let mut model: Vec<(usize, u8)> = Vec::new();
        for step in steps {
            match step {
                Step::Replace(client) => {
                    broker.gone(clients[client]);
                    model.retain(|(of, _)| *of != client);
                    clients[client] = broker.join().expect("room for one");
                }
                Step::Note { client, anew, names } => {
                    if anew {
                        model.retain(|(of, _)| *of != client);
                    }
                    for name in &names {
                        let own = model.iter().filter(|(of, _)| *of == client).count();
                        if own < LIMITS.leases_of_one && model.len() < LIMITS.leases {
                            model.push((client, *name));
                        }
                    }
                    let asked: Vec<ChunkName> = names.iter().map(|bits| name(*bits)).collect();
                    let expected: Vec<u32> = names
                        .iter()
                        .map(|bits| model.iter().filter(|(_, noted)| noted == bits).count() as u32)
                        .collect();
                    prop_assert_eq!(broker.declare(clients[client], anew, &asked), expected);
                }
            }
        }
    }
}

#[test]
fn who_is_not_connected_notes_nothing_and_what_is_held_counts() {
    let mut broker: Broker<()> = Broker::new(LIMITS);
    let [one, two] = [broker.join().expect("room"), broker.join().expect("room")];
    broker.offer(one, name(1), ());
    assert_eq!(broker.declare(two, true, &[name(1), name(2)]), [2, 1], "one holds it, the other would");
    broker.gone(two);
    assert_eq!(broker.declare(two, false, &[name(2)]), [0]);
}
