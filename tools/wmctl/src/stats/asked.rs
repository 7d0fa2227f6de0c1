//! A program that was asked, or the black box of which was read.

use anyhow::Result;
use serde_json::{Value, json};
use wm_schema::black_box::RefusedRequest;

use crate::client::ProcessIdentity;
use crate::programs::FigurePlace;

/// A program and its answer.
pub(super) struct AskedProgram {
    /// 0 for a socket that was named.
    pub(super) pid: u32,
    pub(super) place: FigurePlace,
    pub(super) is_stopped: bool,
    pub(super) identity: ProcessIdentity,
    pub(super) answer: Result<Value>,
    /// Its last refused requests, the latest first, of one that has ended.
    pub(super) refused: Vec<RefusedRequest>,
}

impl AskedProgram {
    /// One with an identity that is still to be read.
    pub(super) fn new(pid: u32, place: FigurePlace, is_stopped: bool, answer: Result<Value>) -> Self {
        let (identity, refused) = (ProcessIdentity::default(), Vec::new());
        Self { pid, place, is_stopped, identity, answer, refused }
    }

    /// As JSON. Its number is its own word where the socket was named.
    pub(super) fn document(&self) -> Value {
        let own = self.answer.as_ref().ok().and_then(|answer| answer.get("pid")?.as_u64());
        let pid = if self.pid == 0 { own.unwrap_or(0) } else { self.pid.into() };
        let (from, place) = match &self.place {
            FigurePlace::BlackBox(path) => ("box", path),
            FigurePlace::Socket(path) => ("socket", path),
        };
        let mut document = json!({ "pid": pid, "stopped": self.is_stopped, "identity": self.identity });
        document[from] = json!(place.display().to_string());
        match &self.answer {
            Ok(answer) => document["answer"] = answer.clone(),
            Err(error) => document["error"] = json!(format!("{error:#}")),
        }
        if !self.refused.is_empty() {
            document["refused"] = self.refused.iter().map(refusal).collect();
        }
        document
    }
}

pub(crate) fn refusal(request: &RefusedRequest) -> Value {
    let RefusedRequest { at, ordinal, asked, held } = *request;
    json!({ "uptime_s": at.as_secs(), "ordinal": ordinal, "asked_bytes": asked, "held_bytes": held })
}
