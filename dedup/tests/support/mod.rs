//! Common parts of the tests of the running broker: a folder, a broker in it, and clients that
//! speak the protocol or anything else.
#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use wm_dedup::broker::LeaseNumber;
use wm_dedup::chunk::{ChunkName, Fingerprint};
use wm_dedup::protocol::{
    self, BrokerAnswer, BrokerReport, BrokerRequest, LookedUp, Offered, Role, SOCKET, VERSION,
};

/// Longest wait for anything that must happen.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A folder of this test's own, removed afterwards.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("wmshimd-test-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::DirBuilder::new().mode(0o700).create(&path).expect("a fresh folder");
        Self(path)
    }

    /// One that is another process's to remove.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join(SOCKET)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A broker of this test's, ended with it.
pub(crate) struct RunningBroker(pub(crate) Child);

impl RunningBroker {
    /// Starts one, and waits until it listens or has found another.
    pub(crate) fn start(folder: &Folder, idle: &str) -> Self {
        let mut broker = Self::spawn(folder, idle);
        broker.await_ready();
        broker
    }

    pub(crate) fn spawn(folder: &Folder, idle: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wmshimd"));
        command.args(["--foreground", "--idle-seconds", idle, "--folder"]).arg(folder.path());
        // Its lines are kept out of the test's own pipes, which a broker that is left over would
        // keep open.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self(command.spawn().expect("wmshimd starts"))
    }

    /// Its standard output ends when it listens.
    pub(crate) fn await_ready(&mut self) {
        let mut output = self.0.stdout.take().expect("a pipe");
        io::Read::read_to_end(&mut output, &mut Vec::new()).expect("read");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Descriptors that it has open.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it runs").count()
    }

    /// Waits until it has so many open.
    pub(crate) fn await_descriptors(&self, count: usize) {
        until(&format!("{count} descriptors"), || self.descriptors() == count);
    }
}

impl Drop for RunningBroker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for something that has no event here.
pub(crate) fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !happened() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A connection that has said nothing yet. It waits for the broker, but not for ever.
pub(crate) fn connect(folder: &Folder) -> io::Result<OwnedFd> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(SOON))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(SOON))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(folder.socket())?)?;
    Ok(socket)
}

/// A client that keeps to the protocol.
pub(crate) struct PlainClient(pub(crate) OwnedFd);

impl PlainClient {
    pub(crate) fn new(folder: &Folder, role: Role) -> Self {
        let client = Self(connect(folder).expect("a broker listens"));
        let greeting = client.ask(&BrokerRequest::Hello { version: VERSION, role }, &[]).expect("a greeting");
        assert!(matches!(greeting.0, BrokerAnswer::Hello { version: VERSION, .. }), "{greeting:?}");
        client
    }

    pub(crate) fn user(folder: &Folder) -> Self {
        Self::new(folder, Role::User)
    }

    pub(crate) fn ask(
        &self,
        request: &BrokerRequest,
        descriptors: &[OwnedFd],
    ) -> io::Result<(BrokerAnswer, Vec<OwnedFd>)> {
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        protocol::send(self.0.as_fd(), &request.encode(), &descriptors)?;
        self.answer()
    }

    pub(crate) fn answer(&self) -> io::Result<(BrokerAnswer, Vec<OwnedFd>)> {
        let packet = protocol::receive(self.0.as_fd())?;
        let answer = BrokerAnswer::decode(&packet.bytes)?;
        assert_eq!(packet.descriptors.len(), answer.descriptors());
        Ok((answer, packet.descriptors))
    }

    pub(crate) fn offer(&self, numbers: &[u64]) -> Vec<Offered> {
        let descriptors: Vec<_> = numbers.iter().map(|number| memory(*number)).collect();
        let names = numbers.iter().copied().map(name).collect();
        match self.ask(&BrokerRequest::Offer { again: false, names }, &descriptors).expect("an answer").0 {
            BrokerAnswer::Offered(outcomes) => outcomes,
            other => panic!("{other:?}"),
        }
    }

    /// Leases, and the number that is in the memory.
    pub(crate) fn look_up(&self, numbers: &[u64]) -> Vec<Option<(LeaseNumber, u64)>> {
        let names = numbers.iter().copied().map(name).collect();
        let (answer, descriptors) =
            self.ask(&BrokerRequest::LookUp { again: false, names }, &[]).expect("an answer");
        let BrokerAnswer::Found(outcomes) = answer else { panic!("{answer:?}") };
        let mut descriptors = descriptors.into_iter();
        let found = outcomes.into_iter().map(|outcome| match outcome {
            LookedUp::Chunk(lease) => Some((lease, said(&descriptors.next().expect("a descriptor")))),
            _ => None,
        });
        found.collect()
    }

    pub(crate) fn release(&self, leases: &[LeaseNumber]) -> u32 {
        match self.ask(&BrokerRequest::Release(leases.to_vec()), &[]).expect("an answer").0 {
            BrokerAnswer::Released(count) => count,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn report(&self) -> BrokerReport {
        match self.ask(&BrokerRequest::Report, &[]).expect("an answer").0 {
            BrokerAnswer::Report(report) => report,
            other => panic!("{other:?}"),
        }
    }

    /// Has the broker ended this connection?
    pub(crate) fn is_ended(&self) -> bool {
        match protocol::receive(self.0.as_fd()) {
            Ok(packet) => panic!("{packet:?}"),
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
            ),
        }
    }
}

pub(crate) fn lease(outcome: Offered) -> LeaseNumber {
    match outcome {
        Offered::Accepted(lease) => lease,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn name(number: u64) -> ChunkName {
    ChunkName { device: [1; 16], fingerprint: Fingerprint(u128::from(number) << 64 | u128::from(number)) }
}

/// A file without a name that says its number, in place of GPU memory.
pub(crate) fn memory(number: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("chunk", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::io::pwrite(&file, &number.to_le_bytes(), 0).expect("written");
    file
}

pub(crate) fn said(file: &OwnedFd) -> u64 {
    let mut number = [0; 8];
    rustix::io::pread(file, &mut number, 0).expect("read");
    u64::from_le_bytes(number)
}
