//! Hazard (use after free): a lane is lent while the context that it serves ends. No lane may go
//! to the next context with the same handle, and none may be kept.

use wm_multipath::parts::Pool;
use wm_multipath::{Home, ProgramStream, StreamOrdering};

use super::model::Model;

fn user(model: &Model, life: u64) -> ProgramStream {
    let context = Model::context(0);
    ProgramStream {
        home: Home { context, life },
        device: 0,
        stream: model.user_stream(context),
        kind: StreamOrdering::Alone,
    }
}

#[test]
fn a_lane_that_comes_back_after_its_context_has_ended_is_given_up() {
    let (model, pool) = (Model::new(2, 1), Pool::default());
    pool.open(&model, 1);
    let first = user(&model, 1);
    pool.sweep(&model, first.home);
    let lane = pool.lane(&model, 1, first).expect("a lane");
    let (_, staging, ..) = model.live();
    pool.end_home(&model, first.home);
    pool.give_back(lane);
    let second = user(&model, 2);
    // A later copy destroys the lanes whose work is over; each check lets the model's time pass.
    (0..1000).for_each(|_| pool.sweep(&model, second.home));
    assert!(model.live().1 < staging, "its staging memory is kept");
    let lane = pool.lane(&model, 1, second).expect("a lane");
    assert_eq!(lane.home(), second.home);
    assert_eq!(model.live().1, staging);
}
