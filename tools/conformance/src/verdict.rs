//! The return type of a case's function, and of everything that it calls.

/// The reason why a case ended early.
#[derive(Debug, thiserror::Error)]
pub enum Halt {
    /// It cannot be completed.
    #[error("{0}")]
    Failed(String),
    /// This driver or machine lacks a need of the case.
    #[error("skipped: {0}")]
    Skipped(String),
}

/// The result of cases and fixtures.
pub type Verdict<T = ()> = Result<T, Halt>;
