//! Connections that have not shown yet that they belong here.
//!
//! Every process on the machine can read a Unix name and connect, and every machine of the network
//! can connect to a TCP port. Unix connections of other users are closed before anything is read
//! from them. All other connections are read at the same time, so that a silent one delays no
//! other. There is room for [`MOST`] Unix connections and for as many over TCP: if more of a kind
//! arrive, the one of this kind that has been silent longest is closed, and a rank that was only
//! busy connects again. So strangers of the network take no place of the machine's own ranks.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with};
use wm_sockets::descriptor::Descriptor;
use wm_trust::peer::may_be_own;

use super::forked::closed_in_child;
use super::key::{GREETING, Key, random};
use super::terms::Terms;
use crate::error::Result;

/// Connections of a kind that wait for their first words: more than ranks of a machine, and few
/// enough to leave descriptors to the program.
const MOST: usize = 128;
/// The rank, its nonce, its terms, its proof.
const ANSWER: usize = 32;

/// A connection to a process that has the key.
#[derive(Debug)]
pub(super) struct KnownGuest {
    pub(super) rank: usize,
    pub(super) terms: Terms,
    pub(super) socket: Descriptor,
    /// It came over TCP.
    pub(super) is_remote: bool,
}

/// One that has been sent a nonce.
#[derive(Debug)]
struct Guest {
    socket: Descriptor,
    is_remote: bool,
    nonce: u64,
    answer: [u8; ANSWER],
    heard: usize,
    until: Instant,
}

/// All of them, each kind with the oldest first.
#[derive(Debug, Default)]
pub(super) struct Guests {
    local: VecDeque<Guest>,
    remote: VecDeque<Guest>,
}

impl Guests {
    fn all(&self) -> impl Iterator<Item = &Guest> {
        self.local.iter().chain(&self.remote)
    }

    fn of_kind(&mut self, is_remote: bool) -> &mut VecDeque<Guest> {
        if is_remote { &mut self.remote } else { &mut self.local }
    }

    /// When the one that has been silent longest is sent away.
    pub(super) fn until(&self) -> Option<Instant> {
        self.all().map(|guest| guest.until).min()
    }

    /// The descriptors to poll for their words.
    pub(super) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        let open = self.all().filter_map(|guest| guest.socket.get().ok());
        open.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN))
    }

    /// Lets in those that have connected, and sends away those that were silent for too long.
    pub(super) fn admit(&mut self, listener: BorrowedFd<'_>, is_remote: bool) -> Result<()> {
        let now = Instant::now();
        self.of_kind(is_remote).retain(|guest| guest.until > now);
        // More than have room could be sent away before they were heard.
        for _ in 0..MOST / 2 {
            match accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(socket) => self.greet(socket, is_remote),
                Err(Errno::WOULDBLOCK) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) if !self.give_up_one() => return Err(error.into()),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// No descriptors are left: one that is silent gives its own, a stranger of the network first.
    fn give_up_one(&mut self) -> bool {
        self.remote.pop_front().or_else(|| self.local.pop_front()).is_some()
    }

    fn greet(&mut self, socket: OwnedFd, is_remote: bool) {
        if !is_remote && !may_be_own(socket.as_fd()) {
            return;
        }
        let guests = self.of_kind(is_remote);
        guests.extend(Guest::new(socket, is_remote));
        if guests.len() > MOST {
            guests.pop_front();
        }
    }

    /// Those that have proved to be ranks. Each is told `own` terms. One that does not have the key
    /// is sent away.
    pub(super) fn known(&mut self, key: Key, own: Terms) -> Vec<KnownGuest> {
        let mut known = Vec::new();
        let Self { local, remote } = std::mem::take(self);
        for mut guest in local.into_iter().chain(remote) {
            match guest.hear().and_then(|is_whole| is_whole.then(|| guest.rank(key, own)).transpose()) {
                Ok(None) => self.of_kind(guest.is_remote).push_back(guest),
                Ok(Some((rank, terms))) => {
                    let Guest { socket, is_remote, .. } = guest;
                    known.push(KnownGuest { rank, terms, socket, is_remote });
                }
                Err(_) => {}
            }
        }
        known
    }
}

impl Guest {
    fn new(socket: OwnedFd, is_remote: bool) -> io::Result<Self> {
        let (nonce, until) = (random()?, Instant::now() + GREETING);
        rustix::io::ioctl_fionbio(&socket, true)?;
        let socket = closed_in_child(socket)?;
        let guest = Self { socket, is_remote, nonce, answer: [0; ANSWER], heard: 0, until };
        guest.say(&nonce.to_le_bytes())?;
        Ok(guest)
    }

    /// There is room for few bytes in a socket that is new.
    fn say(&self, bytes: &[u8]) -> io::Result<()> {
        let sent = rustix::net::send(self.socket.get()?, bytes, SendFlags::NOSIGNAL)?;
        if sent == bytes.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
    }

    /// Reads the bytes that have arrived. Returns whether the answer is complete.
    fn hear(&mut self) -> io::Result<bool> {
        let room = &mut self.answer[self.heard..];
        match rustix::net::recv(self.socket.get()?, room, RecvFlags::empty()) {
            Ok((0, _)) => Err(ErrorKind::UnexpectedEof.into()),
            Ok((bytes, _)) => {
                self.heard += bytes;
                Ok(self.heard == ANSWER)
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Its rank and terms, if it has the key; then it is told that this process has it, too.
    fn rank(&self, key: Key, own: Terms) -> io::Result<(usize, Terms)> {
        let (words, _) = self.answer.as_chunks::<8>();
        let [rank, theirs, terms, proof] = [0, 1, 2, 3].map(|at| u64::from_le_bytes(words[at]));
        if proof != key.proof("rank", self.nonce, [rank, terms]) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let words = [own.word(), key.proof("hub", theirs, [rank, own.word()])];
        self.say(&words.map(u64::to_le_bytes).concat())?;
        Ok((usize::try_from(rank).map_err(io::Error::other)?, Terms::of_word(terms)))
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (privilege boundary): strangers of the network keep this machine's ranks out.
    use std::net::{Ipv4Addr, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::super::forked::is_open_in_child;
    use super::super::greeting::Caller;
    use super::super::tcp;
    use super::*;

    #[test]
    fn a_flood_of_the_network_takes_no_place_of_a_local_rank() {
        let (key, own) = (Key::of(&random().expect("random bytes").to_le_bytes()), Terms::new(2));
        let name = key.address("guests").expect("an abstract name");
        let here = UnixListener::bind_addr(&name).expect("a name");
        here.set_nonblocking(true).expect("a socket");
        let (door, address) = tcp::listen(Ipv4Addr::LOCALHOST.into()).expect("a port");
        let mut guests = Guests::default();
        let socket = UnixStream::connect_addr(&name).expect("it listens");
        let mut rank = Caller::new(socket.into(), 1, own).expect("a slot");
        guests.admit(here.as_fd(), false).expect("admitted");
        let mut strangers = Vec::new();
        while strangers.len() <= 2 * MOST {
            strangers.push(TcpStream::connect(address).expect("it listens"));
            guests.admit(door.as_fd(), true).expect("admitted");
        }
        assert_eq!(rank.go_on(key).expect("a nonce"), None);
        assert_eq!(guests.known(key, own).iter().map(|guest| guest.rank).collect::<Vec<_>>(), [1]);
        assert_eq!(rank.go_on(key).expect("a proof"), Some(own));
    }

    /// Hazard (process lifecycle): a child holds a stranger's connection open.
    #[test]
    fn a_forked_child_has_no_guest() {
        let (listener, address) = tcp::listen(Ipv4Addr::LOCALHOST.into()).expect("a port");
        let mut guests = Guests::default();
        let _stranger = TcpStream::connect(address).expect("it listens");
        while guests.all().next().is_none() {
            guests.admit(listener.as_fd(), true).expect("admitted");
        }
        let guest = guests.all().next().expect("one");
        assert!(!is_open_in_child(guest.socket.get().expect("open")));
    }
}
