//! A program that was asked, with its answer.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Value, json};

use crate::client::ProcessIdentity;

/// A program and its answer.
pub(super) struct AskedProgram {
    /// 0 for a socket that was named.
    pub(super) pid: u32,
    pub(super) socket: PathBuf,
    pub(super) identity: ProcessIdentity,
    pub(super) answer: Result<Value>,
}

impl AskedProgram {
    /// As JSON. Its number is its own word where the socket was named.
    pub(super) fn document(&self) -> Value {
        let Self { pid, socket, identity, answer } = self;
        let own = answer.as_ref().ok().and_then(|answer| answer.get("pid")?.as_u64());
        let pid = if *pid == 0 { own.unwrap_or(0) } else { (*pid).into() };
        let socket = socket.display().to_string();
        match answer {
            Ok(answer) => json!({ "pid": pid, "socket": socket, "identity": identity, "answer": answer }),
            Err(error) => {
                json!({ "pid": pid, "socket": socket, "identity": identity, "error": format!("{error:#}") })
            }
        }
    }
}
