//! The meeting of a communicator's ranks, and the connections between them.
//!
//! The unique id has the address of a root: a thread of the process that made the id. Each rank
//! tells the root its own address; when all have come, the root tells each the table of all. Then
//! each rank connects to those of lower numbers. A rank that never comes makes the others wait, as
//! NCCL's do. A stranger, which does not know the id's random bytes, is ignored.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::abi::{Code, Outcome, UniqueId};
use crate::report::{error, line};
use crate::thread;
use crate::wire::{self, Stop};

/// The random bytes of an id, which its ranks show each other.
pub(crate) type Token = [u8; 16];

const MAGIC: [u8; 8] = *b"simnccl1";
const ADDRESS: usize = 18;
const PLACE: usize = ADDRESS + 16;
const HELLO: usize = 16 + 4 + 4 + PLACE;

/// The time within which a connection shows the token.
const GREETING: Duration = Duration::from_secs(2);

/// Where a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Its machine and GPU, as one value.
    pub(crate) gpu: [u8; 16],
}

/// What a rank tells the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hello {
    token: Token,
    size: u32,
    rank: u32,
    place: Place,
}

fn address_bytes(address: SocketAddr) -> [u8; ADDRESS] {
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut bytes = [0; ADDRESS];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_le_bytes());
    bytes
}

fn address_of(bytes: &[u8]) -> SocketAddr {
    let ip = IpAddr::V6(Ipv6Addr::from(array::<16>(bytes, 0))).to_canonical();
    SocketAddr::new(ip, u16::from_le_bytes(array(bytes, 16)))
}

/// `N` bytes from a place in others that are long enough.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

impl Place {
    fn bytes(&self) -> Vec<u8> {
        [&address_bytes(self.address)[..], &self.gpu].concat()
    }

    fn of(bytes: &[u8]) -> Self {
        Self { address: address_of(bytes), gpu: array(bytes, ADDRESS) }
    }
}

impl Hello {
    fn bytes(&self) -> Vec<u8> {
        let numbers = [self.size.to_le_bytes(), self.rank.to_le_bytes()].concat();
        [&self.token[..], &numbers, &self.place.bytes()].concat()
    }

    fn of(bytes: &[u8]) -> Self {
        Self {
            token: array(bytes, 0),
            size: u32::from_le_bytes(array(bytes, 16)),
            rank: u32::from_le_bytes(array(bytes, 20)),
            place: Place::of(&bytes[24..]),
        }
    }
}

/// Makes an id, and starts its root at an address.
pub(crate) fn create_id(at: IpAddr) -> Outcome<UniqueId> {
    let (listener, address) = wire::listen(at)?;
    let token: Token = std::array::from_fn(|_| fastrand::u8(..));
    thread::spawn("simnccl-root", move || root(&listener, token))?;
    let mut id = [0; 128];
    id[..8].copy_from_slice(&MAGIC);
    id[8..8 + ADDRESS].copy_from_slice(&address_bytes(address));
    id[32..48].copy_from_slice(&token);
    Ok(UniqueId(id))
}

/// Waits for all ranks and tells each the table. An inconsistent rank ends the meeting: the others
/// see closed connections.
fn root(listener: &TcpListener, token: Token) {
    let mut come: Vec<(Hello, TcpStream)> = Vec::new();
    while come.first().is_none_or(|(hello, _)| come.len() < hello.size as usize) {
        let Ok(socket) = wire::accept(listener, &|| false) else { return };
        let Some(hello) = greeting(&socket, token) else { continue };
        let differs = |(other, _): &(Hello, TcpStream)| other.size != hello.size || other.rank == hello.rank;
        if hello.rank >= hello.size || come.iter().any(differs) {
            line(&format!("root: rank {} of {} does not fit the others", hello.rank, hello.size));
            return;
        }
        come.push((hello, socket));
    }
    come.sort_by_key(|(hello, _)| hello.rank);
    let table: Vec<u8> = come.iter().flat_map(|(hello, _)| hello.place.bytes()).collect();
    for (_, socket) in &come {
        let begin = Instant::now();
        // A rank that has died meanwhile is seen by the ranks that connect to it.
        let _ = wire::send(socket, &table, &|| begin.elapsed() > GREETING);
    }
}

fn greeting(socket: &TcpStream, token: Token) -> Option<Hello> {
    let (mut bytes, begin) = ([0; HELLO], Instant::now());
    wire::receive(socket, &mut bytes, &|| begin.elapsed() > GREETING).ok()?;
    Some(Hello::of(&bytes)).filter(|hello| hello.token == token)
}

/// A rank's part in the meeting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// Its machine and GPU.
    pub(crate) gpu: [u8; 16],
    /// May another rank use the same GPU?
    pub(crate) shares: bool,
    /// Where it listens.
    pub(crate) at: IpAddr,
}

impl Member {
    /// Meets the others. Returns a connection to each, and none to itself.
    pub(crate) fn meet(&self, id: &UniqueId, stop: Stop<'_>) -> Outcome<Vec<Option<TcpStream>>> {
        let token: Token = array(&id.0, 32);
        let (listener, address) = wire::listen(self.at)?;
        let place = Place { address, gpu: self.gpu };
        let root = wire::connect(address_of(&id.0[8..]), stop)?;
        let hello = Hello { token, size: self.size as u32, rank: self.rank as u32, place };
        wire::send(&root, &hello.bytes(), stop)?;
        let mut bytes = vec![0; self.size * PLACE];
        wire::receive(&root, &mut bytes, stop)?;
        // The root closes when all have the table: its process, perhaps this one, may end now.
        wire::closed(&root, stop)?;
        let table: Vec<Place> = bytes.chunks(PLACE).map(Place::of).collect();
        self.check_gpus(&table)?;
        self.connect_all(&table, &listener, token, stop)
    }

    fn check_gpus(&self, table: &[Place]) -> Outcome {
        let same = |(rank, place): &(usize, &Place)| *rank != self.rank && place.gpu == self.gpu;
        match table.iter().enumerate().find(same) {
            Some((rank, _)) if !self.shares => {
                let text =
                    format!("Duplicate GPU detected : rank {} and rank {rank} are on one GPU", self.rank);
                Err(error(Code::INVALID_USAGE, &text))
            }
            _ => Ok(()),
        }
    }

    fn connect_all(
        &self,
        table: &[Place],
        listener: &TcpListener,
        token: Token,
        stop: Stop<'_>,
    ) -> Outcome<Vec<Option<TcpStream>>> {
        let mut sockets: Vec<Option<TcpStream>> = table.iter().map(|_| None).collect();
        for (rank, place) in table.iter().enumerate().take(self.rank) {
            let socket = wire::connect(place.address, stop)?;
            wire::send(&socket, &[&token[..], &(self.rank as u32).to_le_bytes()].concat(), stop)?;
            sockets[rank] = Some(socket);
        }
        while sockets.iter().skip(self.rank + 1).any(Option::is_none) {
            let socket = wire::accept(listener, stop)?;
            let (mut bytes, begin) = ([0; 20], Instant::now());
            let shown = wire::receive(&socket, &mut bytes, &|| stop() || begin.elapsed() > GREETING);
            let rank = u32::from_le_bytes(array(&bytes, 16)) as usize;
            if shown.is_ok() && bytes[..16] == token && rank > self.rank && rank < self.size {
                sockets[rank] = Some(socket);
            }
        }
        Ok(sockets)
    }
}

/// Was an id made by this library?
pub(crate) fn is_own(id: &UniqueId) -> bool {
    id.0[..8] == MAGIC
}

#[cfg(test)]
mod tests {
    //! Hazard (API conformance): ranks read each other's addresses or numbers wrong.
    use super::*;

    #[test]
    fn a_greeting_is_read_as_it_was_written() {
        for address in ["10.1.2.3:65535", "[2001:db8::1]:7"] {
            let place = Place { address: address.parse().expect("valid"), gpu: [9; 16] };
            let hello = Hello { token: [3; 16], size: 70_000, rank: 69_999, place };
            assert_eq!(hello.bytes().len(), HELLO);
            assert_eq!(Hello::of(&hello.bytes()), hello);
        }
    }
}
