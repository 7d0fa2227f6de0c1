//! The brokers of shared memory that listen in this user's folders, and their reports.
//!
//! No broker is started here. Each packet has a time limit; the folder is checked before its socket
//! is used, and the kernel tells which user listens.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use wm_dedup::client::{BrokerLink, LinkError, is_end};
use wm_dedup::protocol::{BrokerAnswer, BrokerReport, BrokerRequest, Role, SOCKET, VERSION};

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

/// The brokers in these folders, and the problems of the other folders. A missing folder and a
/// folder without a broker are no problems.
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

/// `None`: no process listens.
fn ask(door: &Path, shown: &Path, user: u32) -> Result<Option<FoundBroker>> {
    let link = match BrokerLink::connect(door, PATIENCE) {
        Ok(link) => link,
        Err(LinkError::Absent(_)) => return Ok(None),
        Err(LinkError::Address { error, .. } | LinkError::System { error, .. }) => {
            bail!("{}: {error}", shown.display())
        }
        Err(error) => bail!("{}: {error}", shown.display()),
    };
    let asked = question(&link, user).with_context(|| format!("no answer from {}", shown.display()));
    asked.map(|(pid, report)| Some(FoundBroker { socket: shown.to_owned(), pid, report }))
}

fn question(link: &BrokerLink, user: u32) -> Result<(u32, BrokerReport)> {
    let peer = exchange::peer(link.socket()?)?;
    if peer.user != user && peer.user != 0 {
        bail!("user {} listens there, which is another user's process; it was not asked", peer.user);
    }
    link.greet(Role::Observer).map_err(explain)?;
    let (answer, _) = link.ask(&BrokerRequest::Report, &[]).map_err(LinkError::Silent).map_err(explain)?;
    match answer {
        BrokerAnswer::Report(report) => Ok((if peer.pid == 0 { report.process } else { peer.pid }, report)),
        _ => bail!("it answered something else"),
    }
}

fn explain(error: LinkError) -> anyhow::Error {
    match error {
        LinkError::Version(version) => anyhow!(
            "it speaks version {version} of the protocol, this wmctl {VERSION}: use the wmctl of its installation"
        ),
        LinkError::Full => anyhow!("it has no room for one more connection"),
        LinkError::Silent(error) if error.kind() == ErrorKind::TimedOut => {
            anyhow!("the broker is silent: is it stopped?")
        }
        LinkError::Silent(error) if is_end(&error) => anyhow!("the broker is ending"),
        LinkError::Silent(error) => error.into(),
        error => error.into(),
    }
}
