//! The streams of a part whose ranks are on several machines.
//!
//! The part's rank 0 listens at a new port and tells its address in a round of all ranks, with a
//! nonce, as each rank tells one. The first ranks of the other machines connect and send their
//! proof; the system does its half of that without rank 0. Then another round says whether all
//! could. So when rank 0 accepts, all connections are there, and no rank waits to be found.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, accept_with};
use wm_sockets::descriptor::Descriptor;

use super::forked::closed_in_child;
use super::key::{Key, random};
use super::link::{RankLink, left};
use super::links::Spoke;
use super::roster::Roster;
use super::{interfaces, tcp};
use crate::error::{Error, Result};

/// A connection that was opened is accepted sooner than this, unless its machine is lost.
const SOON: Duration = Duration::from_secs(4);
/// The rank and its proof.
const WORDS: usize = 16;
/// Connections that are read side by side: more than machines whose ranks connect at once.
const MOST: usize = 256;

/// A rank's word to the ranks of its part.
#[derive(Debug)]
pub(super) struct PartOffer {
    nonce: u64,
    /// Of rank 0.
    listener: Option<(Descriptor, SocketAddr)>,
}

impl PartOffer {
    /// Of rank 0, with a listener.
    pub(super) fn new(is_root: bool) -> Result<Self> {
        let listen = || -> Result<(Descriptor, SocketAddr)> {
            let none = || Error::System("no network interface is as NCCL_SOCKET_IFNAME says".to_owned());
            let (listener, address) = tcp::listen(interfaces::own_address().ok_or_else(none)?)?;
            Ok((closed_in_child(listener)?, address))
        };
        Ok(Self { nonce: random()?, listener: is_root.then(listen).transpose()? })
    }

    /// For a message.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let address = self.listener.as_ref().map(|(_, address)| address.to_string()).unwrap_or_default();
        [&self.nonce.to_le_bytes()[..], address.as_bytes()].concat()
    }
}

/// An offer as the other ranks hear it.
fn heard(bytes: &[u8]) -> Option<(u64, Option<SocketAddr>)> {
    let (nonce, address) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*nonce), std::str::from_utf8(address).ok()?.parse().ok()))
}

fn lost(rank: usize) -> Error {
    Error::Communication(format!("rank {rank} of the part says nothing of its place"))
}

/// Connects the first rank of a machine, of number `rank` in the part, to the part's rank 0, whose
/// offer is `root`.
///
/// # Errors
/// The system's, with the address.
pub(super) fn connect(key: Key, rank: usize, root: &[u8], patience: Duration) -> Result<RankLink> {
    let (nonce, address) = heard(root).ok_or_else(|| lost(0))?;
    let address = address.ok_or_else(|| lost(0))?;
    let connect = || -> io::Result<RankLink> {
        let link = RankLink::remote(closed_in_child(tcp::connect(address, patience)?)?, patience)?;
        let words = [rank as u64, key.proof("part", nonce, [rank as u64, 0])].map(u64::to_le_bytes);
        io::Write::write_all(&mut &link, words.as_flattened())?;
        Ok(link)
    };
    connect()
        .map_err(|error| Error::System(format!("no connection to {address} of another machine: {error}")))
}

/// Hears that rank 0 has the key, too.
///
/// # Errors
/// [`Error::Communication`] where it has not, or has ended.
pub(super) fn confirm(link: &RankLink, key: Key, rank: usize, own: &PartOffer) -> Result {
    let mut proof = [0; 8];
    io::Read::read_exact(&mut &*link, &mut proof)
        .map_err(|error| Error::Communication(format!("rank 0 of the part has ended: {error}")))?;
    if u64::from_le_bytes(proof) == key.proof("whole", own.nonce, [rank as u64, 0]) {
        return Ok(());
    }
    Err(Error::Communication("a stranger answers for rank 0 of the part".to_owned()))
}

/// Accepts the first ranks of the other machines, and proves to each that this is rank 0. `offers`
/// are those of the part's ranks.
///
/// # Errors
/// [`Error::Communication`] where one has ended.
pub(super) fn accept(
    own: &PartOffer,
    key: Key,
    roster: &Roster,
    offers: &[&[u8]],
    patience: Duration,
) -> Result<Vec<Spoke>> {
    let deadline = Instant::now() + SOON;
    let mut missing: Vec<_> =
        roster.leaders().into_iter().filter(|leader| *leader != roster.root()).collect();
    let (mut spokes, mut strangers) = (Vec::new(), Vec::new());
    let Some((listener, _)) = &own.listener else { return Ok(spokes) };
    while !missing.is_empty() {
        let Some((stream, rank)) = next(listener, &mut strangers, key, own.nonce, deadline)? else {
            return Err(Error::Communication(format!("ranks {missing:?} of the part have ended")));
        };
        let Some(at) = missing.iter().position(|leader| *leader == rank) else { continue };
        missing.swap_remove(at);
        let (nonce, _) = heard(offers[rank]).ok_or_else(|| lost(rank))?;
        let link = RankLink::remote(stream, patience)?;
        // If it has ended, the first round says so.
        let _ended =
            io::Write::write_all(&mut &link, &key.proof("whole", nonce, [rank as u64, 0]).to_le_bytes());
        spokes.push(Spoke { link, ranks: roster.members(rank) });
    }
    Ok(spokes)
}

/// A connection that has not shown the key yet.
#[derive(Debug)]
struct Stranger {
    stream: Descriptor,
    words: [u8; WORDS],
    count: usize,
}

impl Stranger {
    /// Reads the words that have come: its rank, if it has the key. `None`: more words are to come.
    ///
    /// # Errors
    /// It has ended, or has another key.
    fn hear(&mut self, key: Key, nonce: u64) -> io::Result<Option<usize>> {
        match rustix::net::recv(self.stream.get()?, &mut self.words[self.count..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok((bytes, _)) => self.count += bytes,
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if self.count < WORDS {
            return Ok(None);
        }
        let [rank, proof] = [0, 1].map(|at| u64::from_le_bytes(self.words.as_chunks::<8>().0[at]));
        let is_known = proof == key.proof("part", nonce, [rank, 0]);
        if is_known { Ok(Some(rank as usize)) } else { Err(ErrorKind::PermissionDenied.into()) }
    }
}

/// The next connection that has the key, and its rank. All connections are read side by side, so a
/// silent or slow one delays no other. `None` after the deadline.
fn next(
    listener: &Descriptor,
    strangers: &mut Vec<Stranger>,
    key: Key,
    nonce: u64,
    deadline: Instant,
) -> io::Result<Option<(Descriptor, usize)>> {
    loop {
        let sockets = strangers.iter().map(|stranger| &stranger.stream).chain([listener]);
        let polled = sockets.map(|socket| Ok(PollFd::from_borrowed_fd(socket.get()?, PollFlags::IN)));
        let mut polled = polled.collect::<io::Result<Vec<_>>>()?;
        match poll(&mut polled, Some(&left(deadline))) {
            Ok(0) => return Ok(None),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for at in (0..strangers.len()).rev() {
            match strangers[at].hear(key, nonce) {
                Ok(None) => {}
                Ok(Some(rank)) => return Ok(Some((strangers.swap_remove(at).stream, rank))),
                Err(_) => drop(strangers.swap_remove(at)),
            }
        }
        match accept_with(listener.get()?, SocketFlags::CLOEXEC) {
            Ok(stream) => {
                if strangers.len() == MOST {
                    strangers.remove(0);
                }
                let stream = closed_in_child(stream)?;
                strangers.push(Stranger { stream, words: [0; WORDS], count: 0 });
            }
            Err(Errno::WOULDBLOCK | Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (privilege boundary): connections of others keep the ranks of a part from each other.
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpStream};

    use super::super::forked::is_open_in_child;
    use super::*;

    #[test]
    fn silent_and_slow_connections_delay_no_rank() {
        let (listener, address) = tcp::listen(Ipv4Addr::LOCALHOST.into()).expect("a port");
        let listener = closed_in_child(listener).expect("a slot");
        let (key, nonce) = (Key::of(b"streams"), 7);
        let connect = || TcpStream::connect(address).expect("it listens");
        let silent: Vec<_> = (0..8).map(|_| connect()).collect();
        let mut slow = connect();
        slow.write_all(&[1; WORDS - 1]).expect("sent");
        let mut wrong = connect();
        wrong.write_all(&[1; WORDS]).expect("sent");
        let mut known = connect();
        let words = [3, key.proof("part", nonce, [3, 0])].map(u64::to_le_bytes);
        known.write_all(words.as_flattened()).expect("sent");
        let mut strangers = Vec::new();
        let begin = Instant::now();
        let found = next(&listener, &mut strangers, key, nonce, begin + SOON).expect("no error");
        assert_eq!(found.map(|(_, rank)| rank), Some(3));
        assert!(begin.elapsed() < SOON / 4, "{:?}", begin.elapsed());
        // The deadline holds, too.
        let none = next(&listener, &mut strangers, key, nonce, Instant::now()).expect("no error");
        assert!(none.is_none());
        drop((silent, slow, wrong));
        // Hazard (process lifecycle): a child holds the listener, or a connection, open.
        let open = strangers.iter().map(|stranger| &stranger.stream).chain([&listener]);
        assert!(!strangers.is_empty());
        for descriptor in open {
            assert!(!is_open_in_child(descriptor.get().expect("open")));
        }
    }

    #[test]
    fn a_forked_child_has_no_listener_of_a_part() {
        let offer = PartOffer::new(true).expect("a port");
        let (listener, _) = offer.listener.as_ref().expect("of rank 0");
        assert!(!is_open_in_child(listener.get().expect("open")));
    }
}
