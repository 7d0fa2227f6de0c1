//! The brokers of memory that processes share: who listens in this user's folders, and what they tell.
//!
//! Nothing is started here. One deadline holds for each packet; the folder is looked at before it is believed, and the kernel says
//! who listens.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
use wm_dedup::protocol::{self, BrokerAnswer, BrokerReport, BrokerRequest, Role, SOCKET, VERSION};

use super::exchange;
use super::folder::{Folder, Unusable};

/// For each packet.
const PATIENCE: Duration = Duration::from_secs(5);

/// A broker that answers.
#[derive(Debug)]
pub(crate) struct FoundBroker {
    pub(crate) socket: PathBuf,
    /// Its process as it is seen from here; where it is not, as it sees itself.
    pub(crate) pid: u32,
    pub(crate) report: BrokerReport,
}

/// The brokers in these folders, and what is wrong with the others: missing folders and folders without a broker are not.
pub(super) fn find(folders: &[PathBuf], user: u32) -> (Vec<FoundBroker>, Vec<String>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for path in folders {
        match Folder::private(None, path, Some(user)) {
            Ok(folder) => match ask(&folder.inside(SOCKET), &path.join(SOCKET), user) {
                Ok(broker) => found.extend(broker),
                Err(error) => problems.push(format!("{error:#}")),
            },
            Err(Unusable::Missing) => {}
            Err(Unusable::Refused(problem)) => problems.push(problem),
        }
    }
    (found, problems)
}

/// `None`: nobody listens.
fn ask(door: &Path, shown: &Path, user: u32) -> Result<Option<FoundBroker>> {
    let socket = match enter(door) {
        Ok(socket) => socket,
        Err(Errno::NOENT | Errno::CONNREFUSED) => return Ok(None),
        Err(error) => bail!("{}: {}", shown.display(), std::io::Error::from(error)),
    };
    let asked = question(socket, user).with_context(|| format!("no answer from {}", shown.display()));
    asked.map(|(pid, report)| Some(FoundBroker { socket: shown.to_owned(), pid, report }))
}

fn enter(door: &Path) -> Result<OwnedFd, Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    for timeout in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
        sockopt::set_socket_timeout(&socket, timeout, Some(PATIENCE))?;
    }
    connect(&socket, &SocketAddrUnix::new(door)?)?;
    Ok(socket)
}

fn question(socket: OwnedFd, user: u32) -> Result<(u32, BrokerReport)> {
    let peer = exchange::peer(socket.as_fd())?;
    if peer.user != user && peer.user != 0 {
        bail!("user {} listens there, who is not to be believed; it was not asked", peer.user);
    }
    match say(&socket, &BrokerRequest::Hello { version: VERSION, role: Role::Observer })? {
        BrokerAnswer::Hello { version: VERSION, .. } => {}
        BrokerAnswer::Hello { version, .. } => {
            bail!(
                "it speaks version {version} of the protocol, this wmctl {VERSION}: use the wmctl of its installation"
            )
        }
        _ => bail!("it has no room for one more connection"),
    }
    match say(&socket, &BrokerRequest::Report)? {
        BrokerAnswer::Report(report) => Ok((if peer.pid == 0 { report.process } else { peer.pid }, report)),
        _ => bail!("it answered something else"),
    }
}

fn say(socket: &OwnedFd, request: &BrokerRequest) -> Result<BrokerAnswer> {
    let packet = protocol::send(socket.as_fd(), &request.encode(), &[])
        .and_then(|()| protocol::receive(socket.as_fd()));
    let packet = packet.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => anyhow::anyhow!("the broker is silent: is it stopped?"),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => anyhow::anyhow!("the broker is ending"),
        _ => error.into(),
    })?;
    Ok(BrokerAnswer::decode(&packet.bytes)?)
}
