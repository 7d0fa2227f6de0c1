//! Hazard (deadlock): an order gets lost between the broker and a member, or a member that floods,
//! does not read or has ended holds others up. Hazard (privilege boundary): a member does more than
//! take turns.

mod support;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use support::{Folder, PlainClient, RunningBroker, memory, name};
use wm_dedup::protocol::{self, BrokerAnswer, BrokerRequest, Role};
use wm_dedup::turns::message::{GpuUse, TurnOrder, TurnPhase, TurnReport, TurnTask};
use wm_dedup::turns::{HEARTBEAT, PATIENCE};

const GPU: [u8; 16] = [3; 16];

/// A member that keeps to the protocol.
struct Member {
    client: PlainClient,
    report: TurnReport,
}

impl Member {
    fn new(folder: &Folder, present: u64) -> Self {
        let gpus = vec![GpuUse { gpu: GPU, present, missing: 0, free: 0, given: 0 }];
        let client = PlainClient::new(folder, Role::Member);
        let member = Self { client, report: TurnReport { gpus, ..TurnReport::default() } };
        member.report();
        member
    }

    fn report(&self) {
        self.tell(&BrokerRequest::Turn(self.report.clone()));
    }

    fn tell(&self, request: &BrokerRequest) {
        protocol::send(self.client.0.as_fd(), &request.encode(), &[]).expect("sent");
    }

    fn order(&self) -> TurnOrder {
        match self.client.answer().expect("an order").0 {
            BrokerAnswer::Turn(order) => order,
            other => panic!("{other:?}"),
        }
    }

    /// The next order that is more than a question.
    fn obeys(&mut self) -> TurnOrder {
        loop {
            match self.order() {
                TurnOrder { number, task: TurnTask::Report } => {
                    self.report.done = number;
                    self.report();
                }
                order => return order,
            }
        }
    }

    /// Asks for so much, and answers what the broker wants to know for it.
    fn ask(&mut self, missing: u64) {
        (self.report.ask, self.report.phase, self.report.short) = (self.report.ask + 1, TurnPhase::Away, 0);
        self.report.gpus[0].missing = missing;
        self.report();
    }

    /// The next order that is none to wait, while others do not answer.
    fn next(&mut self) -> TurnTask {
        let wait = Some(HEARTBEAT);
        sockopt::set_socket_timeout(&self.client.0, sockopt::Timeout::Recv, wait).expect("set");
        let end = Instant::now() + 20 * PATIENCE;
        loop {
            assert!(Instant::now() < end, "no order");
            match protocol::receive(self.client.0.as_fd()).map(|packet| BrokerAnswer::decode(&packet.bytes)) {
                Ok(Ok(BrokerAnswer::Turn(TurnOrder { number, task: task @ TurnTask::Come { .. } }))) => {
                    self.report.short = number;
                    self.report();
                    return task;
                }
                Ok(Ok(BrokerAnswer::Turn(TurnOrder { task: TurnTask::Wait, .. }))) => {}
                Ok(Ok(BrokerAnswer::Turn(TurnOrder { number, task: TurnTask::Report }))) => {
                    self.report.done = number;
                    self.report();
                }
                Ok(Ok(BrokerAnswer::Turn(order))) => return order.task,
                // It says that it is there.
                Err(_) => self.report(),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn one_gives_way_and_the_other_comes_meanwhile() {
    let folder = Folder::new();
    let _broker = RunningBroker::start(&folder, "60");
    let (mut holder, mut asking) = (Member::new(&folder, 800), Member::new(&folder, 200));
    asking.ask(600);
    let TurnOrder { number, task } = holder.obeys();
    assert_eq!(task, TurnTask::GiveWay { after: Duration::ZERO, bytes: vec![(GPU, 600)] });
    assert_eq!(asking.next(), TurnTask::Come { ask: 1, is_last: false });
    (holder.report.giving, holder.report.gpus[0].given) = (number, 100);
    holder.report();
    assert_eq!(asking.next(), TurnTask::Come { ask: 1, is_last: false }, "there is some room");
    (holder.report.done, holder.report.gpus[0].given) = (number, 600);
    holder.report();
    assert_eq!(asking.next(), TurnTask::Come { ask: 1, is_last: false }, "there is all of it");
}

#[test]
fn the_memory_of_a_member_that_dies_is_the_others() {
    let folder = Folder::new();
    let _broker = RunningBroker::start(&folder, "60");
    let (mut holder, mut asking) = (Member::new(&folder, 800), Member::new(&folder, 0));
    asking.ask(600);
    let _give_way = holder.obeys();
    assert_eq!(asking.next(), TurnTask::Come { ask: 1, is_last: false });
    drop(holder);
    assert_eq!(asking.next(), TurnTask::Come { ask: 1, is_last: false }, "its memory is free");
    assert_eq!(
        asking.next(),
        TurnTask::Come { ask: 1, is_last: true },
        "if it is too little, there is no more"
    );
}

#[test]
fn a_member_that_says_nothing_costs_a_deadline() {
    let folder = Folder::new();
    let _broker = RunningBroker::start(&folder, "60");
    let (_stopped, mut asking) = (Member::new(&folder, 800), Member::new(&folder, 0));
    let begin = Instant::now();
    asking.ask(600);
    assert_eq!(asking.next(), TurnTask::Come { ask: 1, is_last: false });
    assert_eq!(asking.next(), TurnTask::Come { ask: 1, is_last: true });
    assert!(begin.elapsed() >= PATIENCE, "{:?}", begin.elapsed());
    // It is known to be silent: it costs nothing again.
    let begin = Instant::now();
    asking.ask(600);
    while asking.next() != (TurnTask::Come { ask: 2, is_last: true }) {}
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
}

#[test]
fn a_member_may_take_turns_and_nothing_else() {
    let folder = Folder::new();
    let _broker = RunningBroker::start(&folder, "60");
    let sharer = PlainClient::user(&folder);
    sharer.offer(&[1]);
    let wanted = [BrokerRequest::LookUp { again: false, names: vec![name(1)] }, BrokerRequest::Report];
    for request in wanted {
        let hostile = Member::new(&folder, 8);
        hostile.tell(&request);
        assert!(hostile.client.is_ended());
    }
    let hostile = Member::new(&folder, 8);
    let file = memory(5);
    let bytes = BrokerRequest::Turn(TurnReport::default()).encode();
    protocol::send(hostile.client.0.as_fd(), &bytes, &[file.as_fd()]).expect("sent");
    assert!(hostile.client.is_ended());
    let hostile = PlainClient::user(&folder);
    protocol::send(hostile.0.as_fd(), &bytes, &[]).expect("sent");
    assert!(hostile.is_ended());
    assert!(sharer.look_up(&[1])[0].is_some());
}

/// Reports without end, with any numbers, from a member that reads nothing.
#[test]
fn a_flood_of_reports_delays_no_other_member() {
    let folder = Folder::new();
    let _broker = RunningBroker::start(&folder, "60");
    let floods: Vec<_> = (0..3).map(|_| Member::new(&folder, u64::MAX)).collect();
    for (flood, turn) in floods.iter().zip(0..) {
        let gpus = vec![GpuUse { gpu: GPU, present: u64::MAX, missing: u64::MAX, free: 0, given: u64::MAX }];
        let (done, giving) = (u64::MAX, turn % 3);
        let report = TurnReport { done, giving, ask: u64::MAX - turn, gpus, ..TurnReport::default() };
        let bytes = BrokerRequest::Turn(report).encode();
        let wait = Some(Duration::from_millis(5));
        sockopt::set_socket_timeout(&flood.client.0, sockopt::Timeout::Send, wait).expect("set");
        let _is_full = (0..5_000).find_map(|_| protocol::send(flood.client.0.as_fd(), &bytes, &[]).err());
    }
    let mut asking = Member::new(&folder, 0);
    asking.ask(600);
    while !matches!(asking.next(), TurnTask::Come { is_last: true, .. }) {}
    drop(floods);
    asking.ask(1);
    while asking.next() != (TurnTask::Come { ask: 2, is_last: true }) {}
}
