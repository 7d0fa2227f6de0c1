//! The reasons why a process has no broker, as sentences for the log.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::protocol::VERSION;

/// Why a connection to the broker of a folder is impossible.
#[derive(Debug, Error)]
pub enum LinkError {
    /// No process listens there, or one that is just ending.
    #[error("no process listens at {}", .0.display())]
    Absent(PathBuf),
    /// The path is no address of a socket.
    #[error("{}: {error}", path.display())]
    Address {
        /// Where the broker would listen.
        path: PathBuf,
        /// The system's.
        error: io::Error,
    },
    /// The system refuses the connection.
    #[error("{}: {error}", path.display())]
    System {
        /// Where the broker listens.
        path: PathBuf,
        /// The system's.
        error: io::Error,
    },
    /// The listener runs as a user that must not get descriptors of memory.
    #[error("{}: another user's process listens there", .0.display())]
    Foreign(PathBuf),
    /// The broker is of an installation with another protocol.
    #[error(
        "the broker that runs speaks version {0} of the protocol, not {VERSION}: it is of another \
         installation, and ends a minute after its last program"
    )]
    Version(u32),
    /// The broker has no room for one more client.
    #[error("the broker serves as many programs as it can")]
    Full,
    /// The broker does not answer, because it is stopped, for example.
    #[error("the broker does not answer: {0}")]
    Silent(io::Error),
}

/// Why a broker cannot be started from this process.
#[derive(Debug, Error)]
pub enum StartError {
    /// There is no program to start.
    #[error("there is no wmshimd beside the library; set WMSHIM_BROKER to its path")]
    NotInstalled,
    /// The broker would become a child of this process when its parent ends.
    #[error("this process adopts orphans, and would see the broker end: start wmshimd before it")]
    Subreaper,
    /// The system refuses to execute it.
    #[error("{} cannot be started: {error}", program.display())]
    Failed {
        /// The broker's program.
        program: PathBuf,
        /// The system's.
        error: io::Error,
    },
}

/// Why a process has no broker.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// No connection.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// No broker, and none can be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A broker was started and does not listen yet: a busy machine may take longer.
    #[error("the broker was started, and no process listens in {}", .0.display())]
    NotListening(PathBuf),
}

impl ConnectError {
    /// Is another attempt of this process useless?
    pub fn is_final(&self) -> bool {
        match self {
            Self::Link(link) => {
                matches!(link, LinkError::Address { .. } | LinkError::Foreign(_) | LinkError::Version(_))
            }
            Self::Start(_) => true,
            Self::NotListening(_) => false,
        }
    }
}
