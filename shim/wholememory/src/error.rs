//! Errors, and their codes in the C API.

use std::io;

use wm_abi::CUresult;
use wm_driver::api::Failed;

/// Result of an operation.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// The reason why an operation was not carried out. The text names the remedy.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// An argument that no call of this kind can have, or that the object does not allow.
    #[error("invalid input: {0}")]
    Input(String),
    /// An argument out of its range.
    #[error("invalid value: {0}")]
    Value(String),
    /// A call at a time when it must not be made.
    #[error("logic: {0}")]
    Logic(String),
    /// The CUDA driver refused a call.
    #[error("CUDA: {0}")]
    Cuda(String),
    /// Another rank failed, ended, or made another call; or was not heard of in time.
    #[error("communication: {0}")]
    Communication(String),
    /// No memory, on this rank or on another.
    #[error("out of memory: {0}")]
    Memory(String),
    /// An operation that this machine, or this kind of memory, does not support.
    #[error("not supported: {0}")]
    NotSupported(String),
    /// An operation that this library does not implement yet.
    #[error("not implemented: {0}")]
    NotImplemented(&'static str),
    /// The operating system refused a call.
    #[error("system: {0}")]
    System(String),
}

impl Error {
    /// The code of the C API (`wholememory_error_code_t`).
    pub fn code(&self) -> u32 {
        match self {
            Self::NotImplemented(_) => 2,
            Self::Logic(_) => 3,
            Self::Cuda(_) => 4,
            Self::Communication(_) => 5,
            Self::Input(_) => 6,
            Self::Value(_) => 7,
            Self::Memory(_) => 8,
            Self::NotSupported(_) => 9,
            Self::System(_) => 10,
        }
    }

    /// The reason without the kind of error.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::NotImplemented(text) => text,
            Self::Logic(text)
            | Self::Cuda(text)
            | Self::Communication(text)
            | Self::Input(text)
            | Self::Value(text)
            | Self::Memory(text)
            | Self::NotSupported(text)
            | Self::System(text) => text,
        }
    }

    /// An error that another rank has reported by its code, for this one.
    pub(crate) fn of_rank(rank: usize, code: u32) -> Self {
        Self::of_code(code, format!("rank {rank} failed"))
    }

    /// Is it one of [`Error::of_rank`], whose reason another rank has?
    pub(crate) fn is_of_rank(&self) -> bool {
        let number = self.reason().strip_prefix("rank ").and_then(|rest| rest.strip_suffix(" failed"));
        number.is_some_and(|number| number.parse::<usize>().is_ok())
    }

    /// The error of a code.
    pub(crate) fn of_code(code: u32, text: String) -> Self {
        match code {
            3 => Self::Logic(text),
            4 => Self::Cuda(text),
            5 => Self::Communication(text),
            6 => Self::Input(text),
            7 => Self::Value(text),
            8 => Self::Memory(text),
            9 => Self::NotSupported(text),
            _ => Self::System(text),
        }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        let text = failed.to_string();
        match failed.code {
            CUresult::OUT_OF_MEMORY => Self::Memory(text),
            CUresult::NOT_SUPPORTED => Self::NotSupported(text),
            _ => Self::Cuda(text),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::OutOfMemory => Self::Memory(error.to_string()),
            _ => Self::System(error.to_string()),
        }
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}

/// `Ok` if a condition holds, else an invalid input with a reason.
pub(crate) fn require(holds: bool, reason: &str) -> Result {
    if holds { Ok(()) } else { Err(Error::Input(reason.to_owned())) }
}
