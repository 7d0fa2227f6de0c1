//! What a client may ask, and the answers.
//!
//! A request is one line: `{"request":"stats"}`, or the bare word for people with `nc`. An answer is one line of
//! JSON. What we do not understand is answered with what we do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::Source;
use super::connection::{LINE_LIMIT, Line};
use super::dump::Dumps;

/// Largest answer that goes over the socket. What is larger is asked for as a dump.
const ANSWER_LIMIT: usize = 8 << 20;

const REQUESTS: [(&str, EndpointRequest); 5] = [
    ("stats", EndpointRequest::Stats),
    ("blocks", EndpointRequest::Blocks),
    ("config", EndpointRequest::Config),
    ("dump", EndpointRequest::Dump),
    ("final", EndpointRequest::Final),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndpointRequest {
    Stats,
    Blocks,
    Config,
    Dump,
    Final,
}

/// When to answer.
pub(super) enum Answer {
    /// This, now.
    Now(Vec<u8>),
    /// With [`final_statistics`], when the process exits.
    AtExit,
}

/// Understands a line.
///
/// # Errors
/// A sentence for the client.
pub(super) fn parse(line: &[u8]) -> Result<EndpointRequest, String> {
    let text = std::str::from_utf8(line).map_err(|_| "the request is not UTF-8".to_owned())?.trim();
    let word = if text.starts_with('{') { word_of(text)? } else { text.to_owned() };
    let known = REQUESTS.iter().find(|(name, _)| *name == word);
    known.map(|(_, request)| *request).ok_or_else(|| format!("unknown request {:?}", shortened(&word)))
}

fn word_of(text: &str) -> Result<String, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let word = value.get("request").and_then(Value::as_str);
    word.map(str::to_owned).ok_or_else(|| "no \"request\" in the object".to_owned())
}

fn shortened(word: &str) -> String {
    word.chars().take(40).collect()
}

/// The answer to a line, with its end. Never panics, whatever the source does.
pub(super) fn answer(line: &Line, source: &dyn Source, dumps: &mut Dumps) -> Answer {
    let asked = match line {
        Line::Request(line) => parse(line),
        Line::TooLong => Err(format!("the request is longer than {LINE_LIMIT} bytes")),
    };
    let value = match asked {
        Ok(EndpointRequest::Final) => return Answer::AtExit,
        Ok(request) => guarded(request, source, dumps),
        Err(problem) => refusal(&problem),
    };
    Answer::Now(encode(&value))
}

/// The statistics for clients that asked for `final`.
pub(super) fn final_statistics(source: &dyn Source) -> Vec<u8> {
    encode(&contained(|| Ok(source.audited())).unwrap_or_else(|problem| failure(&problem)))
}

/// For a client that cannot be kept waiting for the end.
pub(super) fn crowded() -> Vec<u8> {
    encode(&refusal("too many clients wait for the end of this process"))
}

fn guarded(request: EndpointRequest, source: &dyn Source, dumps: &mut Dumps) -> Value {
    let asked = || match request {
        EndpointRequest::Stats | EndpointRequest::Final => Ok(source.stats()),
        EndpointRequest::Blocks => Ok(source.blocks()),
        EndpointRequest::Config => Ok(source.config()),
        EndpointRequest::Dump => dumps
            .write(source)
            .map(|path| json!({ "schema": "wmshim-dumped/1", "path": path.display().to_string() })),
    };
    contained(asked).unwrap_or_else(|problem| failure(&problem))
}

/// What cannot be answered.
fn failure(problem: &str) -> Value {
    json!({ "schema": "wmshim-error/1", "error": problem })
}

/// Writes a dump, whatever the source does.
///
/// # Errors
/// A sentence that says what failed.
pub(super) fn dump(source: &dyn Source, dumps: &mut Dumps) -> Result<PathBuf, String> {
    contained(|| dumps.write(source))
}

/// Runs a question to the source. Its panic is an error like any other.
fn contained<T>(body: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err("internal failure while answering; the program goes on".into()))
}

fn refusal(problem: &str) -> Value {
    json!({ "schema": "wmshim-error/1", "error": problem, "valid": REQUESTS.map(|(name, _)| name) })
}

fn encode(value: &Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    if line.len() > ANSWER_LIMIT {
        line = refusal("the answer is too large for the socket; ask for a dump").to_string().into_bytes();
    }
    line.push(b'\n');
    line
}
