//! Hazard (wrong report): `wmctl dedup` shows wrong figures of sharing, or starts the broker that
//! it is to look at.

mod support;

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use hazards::places;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::Value;
use support::{Scratch, stdout, wmctl};
use wm_dedup::chunk::{ChunkName, CopyName, Fingerprint};
use wm_dedup::protocol::{self, BrokerRequest, Role, SOCKET, VERSION};

/// A broker that ends with the test.
struct TestBroker(Child);

impl TestBroker {
    fn start(scratch: &Scratch) -> Self {
        let program = places::broker();
        let mut command = Command::new(program);
        command.args(["--foreground", "--folder"]).arg(scratch.path());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
        // It ends when the broker listens.
        std::io::Read::read_to_end(&mut child.stdout.take().expect("a pipe"), &mut Vec::new()).expect("read");
        Self(child)
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that shares, or another one, with an answer to each request.
fn program(scratch: &Scratch, role: Role, requests: &[BrokerRequest]) -> OwnedFd {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    let path = SocketAddrUnix::new(scratch.path().join(SOCKET)).expect("an address");
    rustix::net::connect(&socket, &path).expect("connected");
    let hello = BrokerRequest::Hello { version: VERSION, role };
    for request in std::iter::once(&hello).chain(requests) {
        let memory = memory();
        let descriptors = vec![memory.as_fd(); request.descriptors()];
        protocol::send(socket.as_fd(), &request.encode(), &descriptors).expect("sent");
        protocol::receive(socket.as_fd()).expect("answered");
    }
    socket
}

/// Memory of 2 MiB that cannot shrink.
fn memory() -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create("chunk", flags).expect("a memfd");
    rustix::fs::ftruncate(&memory, 2 << 20).expect("there is room");
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::WRITE).expect("sealed");
    memory
}

fn names(count: u8) -> Vec<ChunkName> {
    let name = |number: u8| ChunkName { device: [0xab; 16], fingerprint: Fingerprint(number.into()) };
    (0..count).map(name).collect()
}

#[test]
fn no_broker_is_said_and_none_is_started() {
    let scratch = Scratch::new("dedup-none");
    let output = wmctl(&scratch).arg("dedup").output().expect("run");
    assert!(output.status.success());
    assert!(stdout(&output).starts_with("no broker listens in "), "{}", stdout(&output));
    let output = wmctl(&scratch).args(["dedup", "--json"]).output().expect("run");
    let report: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(report["brokers"], serde_json::json!([]));
    assert!(!scratch.path().join("dedup.lock").exists());
}

#[test]
fn what_is_shared_and_saved_is_shown() {
    let scratch = Scratch::new("dedup");
    let broker = TestBroker::start(&scratch);
    let _first = program(&scratch, Role::User, &[BrokerRequest::Offer { again: false, names: names(5) }]);
    let _second = program(&scratch, Role::User, &[BrokerRequest::LookUp { again: false, names: names(4) }]);
    let output = wmctl(&scratch).args(["dedup", "--json"]).output().expect("run");
    let report: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!((&report["schema"], &report["problems"]), (&"wmctl-dedup/1".into(), &serde_json::json!([])));
    let shown = &report["brokers"][0];
    assert_eq!(
        (&shown["pid"], &shown["version"]),
        (&broker.0.id().into(), &env!("CARGO_PKG_VERSION").into())
    );
    let device = &shown["devices"][0];
    assert_eq!(device["uuid"], "GPU-abababab-abab-abab-abab-abababababab");
    assert_eq!((&device["chunks"], &device["leases"]), (&5.into(), &9.into()));
    assert_eq!((&device["held_bytes"], &device["saved_bytes"]), (&(5 << 21).into(), &(4 << 21).into()));
    let leases = shown["clients"].as_array().expect("a list").iter().map(|client| client["leases"].as_u64());
    assert_eq!(leases.collect::<Vec<_>>(), [Some(5), Some(4)]);
    let output = wmctl(&scratch).arg("dedup").output().expect("run");
    assert!(stdout(&output).contains("10.0 MiB  8.0 MiB"), "{}", stdout(&output));
    assert!(stdout(&output).contains("2 programs, 5 of at most"), "{}", stdout(&output));
    assert!(!stdout(&output).contains("host memory"), "there are no copies: {}", stdout(&output));
}

#[test]
fn common_copies_in_host_memory_are_shown() {
    let scratch = Scratch::new("dedup-copies");
    let _broker = TestBroker::start(&scratch);
    let copy = |number: u8| CopyName { fingerprint: Fingerprint(number.into()), bytes: 1 << 20 };
    let offer = BrokerRequest::OfferCopies(vec![(copy(1), 0), (copy(2), 1 << 20)]);
    let _keeper = program(&scratch, Role::Keeper, &[offer]);
    let output = wmctl(&scratch).args(["dedup", "--json"]).output().expect("run");
    let report: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let shown = &report["brokers"][0];
    assert_eq!((&shown["copy_segments"], &shown["copy_bytes"]), (&1.into(), &(2 << 20).into()));
    let output = wmctl(&scratch).arg("dedup").output().expect("run");
    assert!(stdout(&output).contains("host memory: 2.0 MiB (segments: 1)"), "{}", stdout(&output));
}
