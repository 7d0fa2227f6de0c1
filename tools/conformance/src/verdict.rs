//! How a case's function, and everything that it calls, returns.

/// Why a case ended early.
#[derive(Debug, thiserror::Error)]
pub enum Halt {
    /// It cannot be completed.
    #[error("{0}")]
    Failed(String),
    /// This driver or machine lacks what it needs.
    #[error("skipped: {0}")]
    Skipped(String),
}

/// What cases and fixtures return.
pub type Verdict<T = ()> = Result<T, Halt>;
