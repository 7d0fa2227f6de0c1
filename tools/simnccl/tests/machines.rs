//! Hazard (API conformance): ranks in different network namespaces do not find each other, or find
//! each other by an interface that was not asked for.

mod common;

use std::process::Command;
use std::sync::atomic::Ordering;

use common::*;

/// Gives the process a network of its own. The first one also becomes root of a user namespace, as
/// which it may connect the others.
fn isolate(flags: i32) -> bool {
    // SAFETY: the process has one thread.
    let (user, group, isolated) = unsafe { (libc::getuid(), libc::getgid(), libc::unshare(flags) == 0) };
    let write = |file: &str, text: String| std::fs::write(format!("/proc/self/{file}"), text).is_ok();
    let mapped = || {
        write("setgroups", "deny".to_owned())
            && write("uid_map", format!("0 {user} 1"))
            && write("gid_map", format!("0 {group} 1"))
    };
    isolated && (flags & libc::CLONE_NEWUSER == 0 || mapped())
}

fn ip(arguments: &str) -> bool {
    let run = Command::new("ip").args(arguments.split_whitespace()).output();
    run.is_ok_and(|output| output.status.success())
}

/// A bridge, to which each machine has a cable. It has an address of a second network too, which no
/// rank shall use.
fn bridge(machines: usize) -> bool {
    let cable = |at: usize| ip(&format!("link add m{at} type veth peer name c{at}"));
    ip("link add bridge0 type bridge")
        && ip("link set bridge0 up")
        && (0..machines).all(|at| {
            cable(at) && ip(&format!("link set c{at} master bridge0")) && ip(&format!("link set c{at} up"))
        })
}

/// Makes one end of a cable the network of a process.
fn plug(at: usize, process: u32) -> bool {
    ip(&format!("link set m{at} netns {process}"))
}

fn configure(at: usize) -> bool {
    ip("link set lo up")
        && ip(&format!("addr add 10.99.7.{}/24 dev m{at}", at + 1))
        && ip(&format!("link set m{at} up"))
}

const MACHINES: usize = 3;

/// Runs in the namespace of the bridge: a process for each machine.
fn cluster() {
    let shared = word();
    let mut id = UniqueId([0; 128]);
    let mut machines = Vec::new();
    for at in 0..MACHINES {
        let (mut ready, mut plugged) = (pipe(), pipe());
        // SAFETY: the child ends without a return.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let run = || {
                assert!(isolate(libc::CLONE_NEWNET), "a network of its own");
                ready.1.write_all(&[1]).expect("the cluster waits");
                plugged.0.read_exact(&mut [0]).expect("the cluster plugs");
                assert!(configure(at), "the machine's address");
                machine(at, &id, shared, &mut ready.1);
            };
            let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err();
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(i32::from(failed)) };
        }
        ready.0.read_exact(&mut [0]).expect("the machine is there");
        assert!(plug(at, child as u32), "the cable is plugged");
        plugged.1.write_all(&[1]).expect("the machine waits");
        if at == 0 {
            ready.0.read_exact(&mut id.0).expect("the first machine makes the id");
        }
        machines.push(child);
    }
    assert_eq!(machines.into_iter().map(status_of).collect::<Vec<_>>(), [0; MACHINES]);
}

use std::io::{PipeReader, PipeWriter, Read, Write};

fn pipe() -> (PipeReader, PipeWriter) {
    std::io::pipe().expect("a pipe")
}

/// A rank on a machine of its own. The first one makes the id.
fn machine(at: usize, id: &UniqueId, shared: &'static std::sync::atomic::AtomicU64, told: &mut PipeWriter) {
    let number = (at + 1).to_string();
    for (name, value) in
        [("SIMCUDA_MACHINE", number.as_str()), ("SIMCUDA_QUIET", "1"), ("NCCL_SOCKET_IFNAME", "m")]
    {
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var(name, value) };
    }
    let mut id = *id;
    if at == 0 {
        ok!(ncclGetUniqueId(&raw mut id));
        told.write_all(&id.0).expect("the cluster waits");
    }
    open_driver(0);
    let rank = Rank { rank: at, size: MACHINES, id, shared };
    let (communicator, stream, (next, last)) = (rank.communicator(), stream(), rank.neighbours());
    for round in 0..20 {
        let (from, to) = (uploaded(&message(at, next, round, 50_000)), allocate(50_000));
        ok!(ncclGroupStart());
        assert_eq!(send(from, 50_000, next, communicator, stream), Code::SUCCESS);
        assert_eq!(receive(to, 50_000, last, communicator, stream), Code::SUCCESS);
        ok!(ncclGroupEnd());
        synchronize(stream);
        assert!(downloaded(to, 50_000) == message(last, at, round, 50_000), "round {round}");
        free(&[from, to]);
    }
    // All machines have passed before the first one ends.
    rank.shared.fetch_add(1, Ordering::SeqCst);
    until("all machines are done", || rank.shared.load(Ordering::SeqCst) == MACHINES as u64);
    ok!(ncclCommDestroy(communicator));
}

/// Runs a body in a child that is root of namespaces of its own. `None`: the machine allows none.
fn in_namespaces(body: impl FnOnce()) -> Option<i32> {
    const REFUSED: i32 = 77;
    // SAFETY: the child ends without a return.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let allowed = isolate(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) && bridge(MACHINES);
        let failed = allowed && std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err();
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(if allowed { i32::from(failed) } else { REFUSED }) };
    }
    Some(status_of(child)).filter(|status| *status != REFUSED)
}

#[test]
fn ranks_of_three_network_namespaces_find_each_other() {
    match in_namespaces(cluster) {
        Some(status) => assert_eq!(status, 0),
        None => hazards::skip("needs user and network namespaces, and the command ip"),
    }
}
