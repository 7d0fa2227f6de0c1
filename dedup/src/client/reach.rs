//! The way to the user's broker, which is started if there is none.

use std::time::Duration;

use wm_trust::peer::is_trusted;

use super::error::{ConnectError, LinkError, StartError};
use super::home::BrokerHome;
use super::link::{BrokerLink, is_end};
use crate::protocol::{Role, SOCKET};

/// Attempts to start a broker before it is tried again later.
const ATTEMPTS: usize = 3;

/// The time limit of one request. A broker answers in microseconds, unless it is stopped.
const PATIENCE: Duration = Duration::from_secs(1);

/// Starts the broker of a folder, and waits until it, or another one, listens.
pub type StartBroker = fn(&BrokerHome) -> Result<(), StartError>;

/// Connects, and starts a broker if no process listens. The broker's process is that as it sees it
/// itself.
///
/// # Errors
/// There is no broker now.
pub(super) fn reach(
    home: &BrokerHome,
    start: StartBroker,
    role: Role,
) -> Result<(BrokerLink, u32), ConnectError> {
    for _ in 0..ATTEMPTS {
        match open(home, role) {
            Err(LinkError::Absent(_)) => start(home)?,
            outcome => return outcome.map_err(ConnectError::from),
        }
    }
    Err(ConnectError::NotListening(home.folder.clone()))
}

/// The listener must run as our user or as root, because it gets descriptors of memory.
fn open(home: &BrokerHome, role: Role) -> Result<(BrokerLink, u32), LinkError> {
    let path = home.folder.join(SOCKET);
    let link = BrokerLink::connect(&path, PATIENCE)?;
    if !link.socket().is_ok_and(is_trusted) {
        return Err(LinkError::Foreign(path));
    }
    match link.greet(role) {
        Ok(process) => Ok((link, process)),
        // It was just ending.
        Err(LinkError::Silent(error)) if is_end(&error) => Err(LinkError::Absent(path)),
        Err(error) => Err(error),
    }
}
