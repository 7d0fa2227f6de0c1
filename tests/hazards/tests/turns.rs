//! Hazard (wrong result): bytes change while processes take turns at a GPU. Hazard (deadlock): a
//! process waits for one that is stopped, has died or is in its exit. Hazard (latency): one of
//! two that launch all the time never runs. Hazard (silent degradation): memory lies on the host
//! although another process is idle on the device.

use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::time::{Duration, Instant};

use hazards::pace;
use hazards::turns::{Machine, Program, SOON, until};
use serde_json::{Value, json};

/// The one that runs has all of its memory on the device. Of the other one as much stays as fits.
#[test]
fn two_that_do_not_fit_take_turns_and_no_more_moves_than_has_to() {
    let machine = Machine::made();
    let mut programs = machine.with(&[96, 96]);
    for _ in 0..10 {
        for index in [0, 1] {
            programs[index].once();
            assert_eq!(programs[index].place(), (96, 0), "{}", programs[index].turn());
            let (on_device, on_host) = programs[1 - index].place();
            assert!(on_device + on_host == 96 && on_host >= 64, "{on_device} and {on_host} MiB");
            assert!(on_host <= 80, "{on_host} MiB have left for 64");
        }
    }
    for mut program in programs {
        let turn = program.turn();
        assert!(turn["gave_way"].as_u64() >= Some(9) && turn["asks"].as_u64() >= Some(9), "{turn}");
        assert_eq!(program.say("check"), 1);
        assert_eq!(program.end(), "");
    }
}

/// Hazard (latency): memory comes only when all that makes room for it has left.
#[test]
fn memory_comes_while_the_others_leaves() {
    const MIB: u64 = 104;
    let machine = Machine::made();
    let links = [("SIMCUDA_LINKS", "pcie=400MB/s")];
    let mut programs = [0, 1].map(|_| machine.start(&links));
    programs.iter_mut().for_each(|program| program.has(MIB));
    // The second time all is there.
    let switch = |program: &mut Program| program.once().saturating_sub(program.once());
    let mut switches = || programs.each_mut().map(switch);
    // Host memory is made, too.
    switches();
    // One way of what has no room.
    let way = Duration::from_secs_f64(((2 * MIB - 128) << 20) as f64 / 400e6);
    pace::bounded(AssertUnwindSafe(|| {
        let fastest = (0..3).flat_map(|_| switches()).min().expect("switches");
        assert!(fastest >= way && fastest < way * 5 / 3, "{fastest:?}, one way {way:?}");
    }));
}

#[test]
fn two_that_fit_do_not_give_way() {
    let machine = Machine::made();
    let mut programs = machine.with(&[56, 56]);
    for _ in 0..3 {
        for program in &mut programs {
            program.once();
        }
    }
    for program in &mut programs {
        assert_eq!(program.place(), (56, 0));
        let turn = program.turn();
        assert!(turn["asks"] == 0 && turn["gave_way"] == 0 && turn["state"] == "running", "{turn}");
    }
}

/// The one that launched least recently gives way, and a third one is left alone.
#[test]
fn the_one_that_launched_least_recently_gives_way() {
    let machine = Machine::made();
    let mut programs = machine.with(&[40, 40, 40]);
    programs[0].once();
    programs[2].once();
    // 8 MiB are free, and 32 more are needed.
    programs[0].has(40);
    assert_eq!(programs[0].place(), (80, 0));
    assert_eq!((programs[2].place(), programs[2].turn()["gave_way"].as_u64()), ((40, 0), Some(0)));
    let (on_device, on_host) = programs[1].place();
    assert!(on_host >= 32 && on_device + on_host == 40, "{on_device} and {on_host} MiB");
    programs[1].once();
    assert_eq!(programs[1].place(), (40, 0));
    assert!(programs.iter_mut().all(|program| program.say("check") == 1));
}

#[test]
fn two_that_launch_all_the_time_alternate() {
    let machine = Machine::made();
    let mut programs = machine.with(&[96, 96]);
    programs.iter_mut().for_each(|program| assert_eq!(program.say("work"), 0));
    let mut before = [0, 0];
    for _ in 0..4 {
        for index in [0, 1] {
            until("both work", || programs[index].say("count") > before[index] + 1);
        }
        before = [0, 1].map(|index| programs[index].say("count"));
    }
    // The one that is away when it is to halt needs another turn.
    programs.iter_mut().for_each(|program| program.tell("halt"));
    for mut program in programs {
        assert_eq!(program.hear(), "1", "all words were right");
        let turn = program.turn();
        assert!(turn["asks"].as_u64() >= Some(2), "{turn}");
    }
}

/// Each wants memory that the other one holds, while it gives way itself.
#[test]
fn two_that_grow_at_the_same_time_both_get_their_memory() {
    let machine = Machine::made();
    let mut programs = machine.with(&[8, 8]);
    for _ in 0..11 {
        programs.iter_mut().for_each(|program| program.tell("block 8"));
        assert!(
            programs.iter_mut().all(|program| program.hear().parse::<i64>().is_ok_and(|count| count > 0))
        );
    }
    for index in [0, 1] {
        programs[index].once();
        assert_eq!(programs[index].place(), (96, 0), "{}", programs[index].turn());
    }
    assert!(programs.iter_mut().all(|program| program.say("check") == 1));
    let longest =
        programs.iter_mut().map(|program| program.turn()["longest_wait_s"].as_f64().expect("seconds"));
    assert!(longest.fold(0.0, f64::max) < 20.0, "a wait ended by its deadline alone");
}

#[test]
fn one_that_is_killed_leaves_the_device_to_the_other() {
    let machine = Machine::made();
    let mut programs = machine.with(&[96, 96]);
    let (mut other, killed) = (programs.remove(0), programs.remove(0));
    assert_eq!(other.say("work"), 0);
    until("it works", || other.say("count") > 3);
    killed.kill();
    let count = other.say("count");
    until("it goes on", || other.say("count") > count + 3);
    assert_eq!((other.say("halt"), other.place()), (1, (96, 0)));
}

/// A process that is stopped with its memory on the device costs a deadline, once. The other one
/// goes on with memory on the host.
#[test]
fn one_that_is_stopped_costs_a_deadline_and_goes_on_later() {
    let machine = Machine::made();
    let mut programs = machine.with(&[96, 96]);
    programs[0].once();
    programs[0].signal(libc::SIGSTOP);
    let begin = Instant::now();
    programs[1].once();
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    let (on_device, on_host) = programs[1].place();
    assert!(on_host >= 32 && on_device + on_host == 96, "{on_device} and {on_host} MiB");
    programs[0].signal(libc::SIGCONT);
    programs[0].once();
    assert_eq!(programs[0].place(), (96, 0));
    until("the other one has its memory back", || {
        programs[1].once();
        programs[1].place() == (96, 0)
    });
    assert!(programs.iter_mut().all(|program| program.say("check") == 1));
}

/// Without a broker all goes on, with memory on the host; then there is a new broker, and turns
/// again.
#[test]
fn when_the_broker_is_killed_all_go_on() {
    let machine = Machine::made();
    let mut programs = machine.with(&[96, 96]);
    for _ in 0..2 {
        programs.iter_mut().for_each(|program| assert_eq!(program.say("work"), 0));
        until("both work", || programs.iter_mut().all(|program| program.say("count") > 1));
        let brokers = machine.brokers();
        assert!(!brokers.is_empty(), "there is a broker");
        for broker in brokers {
            Command::new("kill").args(["-KILL", &broker.to_string()]).status().expect("kill runs");
        }
        let before: Vec<_> = programs.iter_mut().map(|program| program.say("count")).collect();
        for (program, before) in programs.iter_mut().zip(before) {
            until("it goes on", || program.say("count") > before + 2);
        }
        programs.iter_mut().for_each(|program| program.tell("halt"));
        assert!(programs.iter_mut().all(|program| program.hear() == "1"));
        until("there is a broker", || {
            programs.iter_mut().all(|program| program.turn()["has_broker"] == true)
        });
    }
    for index in [0, 1, 0, 1] {
        programs[index].once();
    }
    assert!(programs.iter_mut().all(|program| program.say("check") == 1));
}

/// A broker that is stopped is one that does not answer.
#[test]
fn when_the_broker_is_stopped_all_go_on() {
    let machine = Machine::made();
    let mut programs = machine.with(&[96, 96]);
    programs[0].once();
    let brokers = machine.brokers();
    let signal = |name: &str| {
        for broker in &brokers {
            Command::new("kill").args([name, &broker.to_string()]).status().expect("kill runs");
        }
    };
    signal("-STOP");
    let begin = Instant::now();
    programs[1].once();
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    signal("-CONT");
    programs[0].once();
    assert!(programs.iter_mut().all(|program| program.say("check") == 1));
}

/// A pause that is refused changes nothing, and keeps no call for long. The other one goes on with
/// memory on the host.
#[test]
fn one_that_cannot_be_paused_keeps_its_memory() {
    for migrate in ["off", "auto"] {
        let machine = Machine::made();
        let mut programs = [(); 2].map(|()| machine.start(&[("WMSHIM_MIGRATE", migrate)]));
        programs.iter_mut().for_each(|program| program.has(96));
        programs[0].once();
        assert_eq!(programs[0].say("hold"), 0);
        programs[1].tell("once");
        let mut longest = Duration::ZERO;
        until("the pause is refused", || {
            longest = longest.max(programs[0].once());
            let problem = &programs[0].stats()["pause"]["problem"];
            problem.as_str().is_some_and(|why| why.contains("waits for the host"))
        });
        assert!(longest < Duration::from_secs(6), "{longest:?}");
        assert!(programs[1].hear().parse::<i64>().is_ok_and(|milliseconds| milliseconds >= 0));
        assert_eq!(programs[0].place(), (96, 0));
        assert_eq!(programs[0].say("release"), 0);
        until("the other one has its memory back", || {
            programs[1].once();
            programs[1].place() == (96, 0)
        });
        assert!(programs.iter_mut().all(|program| program.say("check") == 1));
    }
}

/// It waits for the operator, and not for its turn.
#[test]
fn one_that_an_operator_has_paused_takes_no_turn() {
    let machine = Machine::made();
    let mut programs = machine.with(&[96, 96]);
    programs[0].ask("pause");
    until("it is paused", || programs[0].ask("pause_state")["pause"]["state"] == "paused");
    assert_eq!(programs[0].place(), (0, 96), "all leaves");
    programs[0].tell("once");
    until("its call waits", || programs[0].ask("pause_state")["pause"]["is_awaited"] == true);
    programs[1].once();
    assert_eq!(programs[1].place(), (96, 0));
    let turn = programs[0].ask("stats")["turn"].clone();
    assert_eq!(turn["state"], "paused");
    programs[0].ask("resume");
    assert!(
        programs[0].hear().parse::<i64>().is_ok_and(|milliseconds| milliseconds >= 0),
        "all words are right"
    );
    until("it has its memory back", || {
        programs[0].once();
        programs[0].place() == (96, 0)
    });
    assert!(programs.iter_mut().all(|program| program.say("check") == 1));
}

/// The same for a pause to files. Memory of one that gave way stays on the host, though.
#[test]
fn one_that_an_operator_has_paused_to_files_takes_no_turn() {
    let machine = Machine::made();
    let pause = json!({ "request": "pause", "to": machine.scratch.folder("away") }).to_string();
    let mut programs = machine.with(&[96, 96]);
    assert!(programs[0].place().1 > 0, "it gave way");
    for in_files in [0, 96 << 20] {
        programs[0].ask(&pause);
        until("all is away", || {
            let pause = programs[0].ask("pause_state")["pause"].clone();
            pause["state"] == "paused" && pause["file_bytes"] == in_files && programs[0].place().0 == 0
        });
        programs[0].tell("once");
        until("its call waits", || programs[0].ask("pause_state")["pause"]["is_awaited"] == true);
        programs[1].once();
        assert_eq!(programs[1].place(), (96, 0));
        assert_eq!(programs[0].ask("stats")["turn"]["state"], "paused");
        programs[0].ask("resume");
        assert!(programs[0].hear().parse::<i64>().is_ok_and(|milliseconds| milliseconds >= 0));
        until("it has its memory back", || {
            programs[0].once();
            programs[0].place() == (96, 0)
        });
    }
    // The next pause for another process is not to files.
    programs[1].once();
    assert!(programs[0].place().1 > 0);
    assert!(programs.iter_mut().all(|program| program.say("check") == 1));
}

/// One that is detached while it is away has its memory back with its next call.
#[test]
fn one_that_is_detached_while_it_is_away_asks_all_the_same() {
    let machine = Machine::made();
    let mut programs = machine.with(&[96, 96]);
    assert!(programs[0].place().1 > 0, "it gave way");
    let made = programs[0].ask("detach");
    assert_eq!(made["detached"], true, "{made}");
    assert!(programs[0].once() < Duration::from_secs(20), "not by the thread's next look");
    assert!(programs.iter_mut().all(|program| program.say("check") == 1));
}

/// Hazard (wrong result): a move fails in the middle of a turn.
#[test]
fn calls_of_the_driver_that_fail_lose_no_byte() {
    for failing in
        ["cuMemcpyDtoDAsync:9", "cuMemUnmap:5", "cuMemMap:70", "cuMemCreate:60", "cuMemSetAccess:75"]
    {
        let machine = Machine::made();
        let mut programs = [machine.start(&[("SIMCUDA_FAIL", failing)]), machine.start(&[])];
        programs.iter_mut().for_each(|program| program.has(96));
        for _ in 0..3 {
            programs.iter_mut().for_each(|program| assert!(program.once() < SOON, "{failing}"));
        }
        assert!(programs.iter_mut().all(|program| program.say("check") == 1), "{failing}");
    }
}

/// Neither a child nor an exit waits for a turn.
#[test]
fn children_and_exits_of_a_process_that_is_away_wait_for_no_turn() {
    let machine = Machine::made();
    let mut programs = machine.with(&[96, 96]);
    programs[1].once();
    until("the first one is away", || programs[0].turn()["state"] == "away");
    let begin = Instant::now();
    assert!(programs[0].say("fork") >= 0);
    programs.remove(0).end();
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert_eq!(programs[0].say("check"), 1);
}

/// Nothing of it is in a process without the setting.
#[test]
fn without_the_setting_there_is_no_broker() {
    let machine = Machine::made();
    let mut program = machine.start(&[("WMSHIM_SHARE", "off")]);
    assert_eq!(program.say("block 8"), 1);
    program.once();
    assert_eq!(program.turn(), Value::Null);
    assert_eq!(machine.brokers(), Vec::<u32>::new());
    let threads = std::fs::read_dir(format!("/proc/{}/task", program.pid())).expect("threads").flatten();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    assert!(!names.into_iter().any(|name| name.trim() == "wmshim-turns"));
}
