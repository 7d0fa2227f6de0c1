//! The requests of a client, and the answers.
//!
//! A request is one line: `{"request":"stats"}`, `{"request":"pause","deadline_s":5}`, or the bare
//! word for people with `nc`. An answer is one line of JSON. A line that is no request is answered
//! with the list of requests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::Source;
use super::changes::{self, ChangeError};
use super::connection::{LINE_LIMIT, Line};
use super::dump::{DumpError, Dumps};

/// Largest answer that goes over the socket. The client gets a larger one as a dump.
const ANSWER_LIMIT: usize = 8 << 20;

/// Longest deadline that a client may give for a pause.
const LONGEST: Duration = Duration::from_secs(3600);

const REQUESTS: [(&str, EndpointRequest); 11] = [
    ("stats", EndpointRequest::Stats),
    ("blocks", EndpointRequest::Blocks),
    ("config", EndpointRequest::Config),
    ("dump", EndpointRequest::Dump),
    ("final", EndpointRequest::Final),
    ("pause", EndpointRequest::Pause(PauseRequest { deadline: None, place: None })),
    ("pause_prepare", EndpointRequest::PausePrepare),
    ("pause_deep", EndpointRequest::PauseDeep),
    ("pause_restored", EndpointRequest::PauseRestored),
    ("resume", EndpointRequest::Resume),
    ("pause_state", EndpointRequest::PauseState),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EndpointRequest {
    Stats,
    Blocks,
    Config,
    Dump,
    Final,
    Pause(PauseRequest),
    PausePrepare,
    PauseDeep,
    PauseRestored,
    Resume,
    PauseState,
}

/// A client's pause.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PauseRequest {
    /// The time that work may take to end.
    pub(crate) deadline: Option<Duration>,
    /// Where memory goes; `None`: to pinned memory of the host.
    pub(crate) place: Option<RequestedPlace>,
}

/// A place for the memory of a paused process, as a client names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestedPlace {
    /// A folder, as the process finds it.
    Folder(PathBuf),
    /// Memory of the host that is not pinned.
    Memory,
}

/// When to answer.
pub(super) enum Answer {
    /// This, now.
    Now(Vec<u8>),
    /// With [`final_statistics`], when the process exits.
    AtExit,
}

/// Why a line is no request. The client is told, together with the requests that are valid.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    #[error("the request is not UTF-8")]
    NotText,
    #[error("not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    #[error("no \"request\" in the object")]
    NoRequest,
    #[error("unknown request {0:?}")]
    Unknown(String),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error("\"to\" is \"memory\", or an absolute path of a folder")]
    Folder,
    #[error("the request is longer than {LINE_LIMIT} bytes")]
    TooLong,
    #[error("too many clients wait for the end of this process")]
    TooManyWait,
    #[error("the answer is too large for the socket; ask for a dump")]
    TooLarge,
}

/// Why a valid request has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerError {
    #[error(transparent)]
    Dump(#[from] DumpError),
    #[error("internal failure while answering; the program goes on")]
    Panicked,
}

/// The request of a line.
pub(super) fn parse(line: &[u8]) -> Result<EndpointRequest, RequestError> {
    let text = std::str::from_utf8(line).map_err(|_| RequestError::NotText)?.trim();
    let value = if text.starts_with('{') { serde_json::from_str(text)? } else { json!({ "request": text }) };
    let word = value.get("request").and_then(Value::as_str).ok_or(RequestError::NoRequest)?;
    let known = REQUESTS.into_iter().find(|(name, _)| *name == word).map(|(_, request)| request);
    match known.ok_or_else(|| RequestError::Unknown(shortened(word)))? {
        EndpointRequest::Pause(_) => Ok(EndpointRequest::Pause(pause_of(&value)?)),
        request => Ok(request),
    }
}

/// `deadline_s` and `to` of a request. A relative folder is one of the process's own, which the
/// client does not know.
fn pause_of(request: &Value) -> Result<PauseRequest, RequestError> {
    let place = match request.get("to") {
        None | Some(Value::Null) => None,
        Some(Value::String(folder)) if folder.starts_with('/') => Some(RequestedPlace::Folder(folder.into())),
        Some(Value::String(memory)) if memory == "memory" => Some(RequestedPlace::Memory),
        Some(_) => return Err(RequestError::Folder),
    };
    Ok(PauseRequest { deadline: deadline_of(request), place })
}

/// `deadline_s` of a request.
fn deadline_of(request: &Value) -> Option<Duration> {
    let seconds = request.get("deadline_s").and_then(Value::as_f64)?;
    Duration::try_from_secs_f64(seconds).ok().map(|deadline| deadline.min(LONGEST))
}

fn shortened(word: &str) -> String {
    word.chars().take(40).collect()
}

/// The answer to a line, with its end. Never panics, whatever the source does.
pub(super) fn answer(line: &Line, source: &dyn Source, dumps: &mut Dumps) -> Answer {
    let change = if let Line::Request(line) = line { changes::parse(line) } else { None };
    if let Some(change) = change {
        return Answer::Now(encode(&match change {
            Ok(change) => {
                contained(|| Ok(source.change(&change))).unwrap_or_else(|problem| failure(&problem))
            }
            Err(problem) => refusal(&problem.into()),
        }));
    }
    let asked = match line {
        Line::Request(line) => parse(line),
        Line::TooLong => Err(RequestError::TooLong),
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

/// The answer to a client that asks for the final statistics while too many others wait for them.
pub(super) fn crowded() -> Vec<u8> {
    encode(&refusal(&RequestError::TooManyWait))
}

fn guarded(request: EndpointRequest, source: &dyn Source, dumps: &mut Dumps) -> Value {
    let asked = || match request {
        EndpointRequest::Stats | EndpointRequest::Final => Ok(source.stats()),
        EndpointRequest::Blocks => Ok(source.blocks()),
        EndpointRequest::Config => Ok(source.config()),
        EndpointRequest::Pause(pause) => Ok(source.pause(pause)),
        EndpointRequest::PausePrepare => Ok(source.pause_prepare()),
        EndpointRequest::PauseDeep => Ok(source.pause_deep()),
        EndpointRequest::PauseRestored => Ok(source.pause_restored()),
        EndpointRequest::Resume => Ok(source.resume()),
        EndpointRequest::PauseState => Ok(source.pause_state()),
        EndpointRequest::Dump => {
            let path = dumps.write(source)?.display().to_string();
            Ok(json!({ "schema": "wmshim-dumped/1", "path": path }))
        }
    };
    contained(asked).unwrap_or_else(|problem| failure(&problem))
}

fn failure(problem: &AnswerError) -> Value {
    json!({ "schema": "wmshim-error/1", "error": problem.to_string() })
}

/// Writes a dump. Never panics, even if the source does.
pub(super) fn dump(source: &dyn Source, dumps: &mut Dumps) -> Result<PathBuf, AnswerError> {
    contained(|| Ok(dumps.write(source)?))
}

/// Runs a question to the source. Its panic is an error like any other.
fn contained<T>(body: impl FnOnce() -> Result<T, AnswerError>) -> Result<T, AnswerError> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(AnswerError::Panicked))
}

fn refusal(problem: &RequestError) -> Value {
    let valid: Vec<&str> = REQUESTS.iter().map(|(name, _)| *name).chain(changes::WORDS).collect();
    json!({ "schema": "wmshim-error/1", "error": problem.to_string(), "valid": valid })
}

fn encode(value: &Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    if line.len() > ANSWER_LIMIT {
        line = refusal(&RequestError::TooLarge).to_string().into_bytes();
    }
    line.push(b'\n');
    line
}
