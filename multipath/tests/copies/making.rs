//! Hazard (resource leak): a later call fails, and the streams, events and memory that earlier
//! calls made are in no table any more.

use super::model::Model;
use wm_multipath::parts::{CopyTimer, DirectPipeline, DriverResult, RelayPipeline};
use wm_multipath::{CopyDriver, Home, ProgramStream, StreamOrdering};

/// Fails each call of `make` once. Returns the number of calls.
fn fails_at_each_call<T>(make: impl Fn(&Model, ProgramStream) -> DriverResult<T>) -> u64 {
    for ahead in 1.. {
        let model = Model::new(2, 1);
        let context = model.open(1).expect("nothing fails yet");
        let home = Home { context, life: 1 };
        let user = ProgramStream {
            home,
            device: 1,
            stream: model.user_stream(context),
            kind: StreamOrdering::Alone,
        };
        let before = model.live();
        model.fail_at(ahead);
        if make(&model, user).is_ok() {
            return ahead - 1;
        }
        assert_eq!(model.live(), before, "call {ahead} fails");
    }
    0
}

#[test]
fn what_is_not_whole_is_given_back() {
    // Staging memory that the target may use, and a stream and an event a slot and for the end, on
    // each side.
    let lane = |model: &Model, user| RelayPipeline::new(model, 0, Model::context(0), user);
    assert_eq!(fails_at_each_call(lane), 2 + 2 * 4);
    assert_eq!(fails_at_each_call(|model, user| DirectPipeline::new(model, user.home)), 3);
    assert_eq!(fails_at_each_call(|model, user| CopyTimer::new(model, user.home)), 3);
}
