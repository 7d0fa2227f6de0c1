//! The requests of a client that change the process.
//!
//! The socket serves this process's user and root alone, and so are these. Each makes one step of
//! bounded time, because one thread serves all clients; the client asks again while the answer
//! says so.

use serde_json::Value;

/// The words, for the list of valid requests.
pub(super) const WORDS: [&str; 4] = ["limit", "trim", "detach", "attach"];

/// A change that a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeRequest {
    /// The limit of device memory.
    Limit(LimitRequest),
    /// Unused device memory goes to the driver.
    Trim,
    /// The library's features are turned off.
    Detach,
    /// They are on again.
    Attach,
}

/// A limit of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimitRequest {
    /// `None`: of all devices.
    pub(crate) device: Option<i32>,
    /// Bytes; `u64::MAX` lifts it. `None`: it stays as it is, and another step is made towards it.
    pub(crate) bytes: Option<u64>,
}

/// Why a request for a change is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ChangeError {
    #[error("\"bytes\" is a number of bytes or \"none\"")]
    Bytes,
    #[error("\"device\" is the ordinal of a device")]
    Device,
}

/// The change that a request asks for; `None` for other requests.
pub(super) fn parse(line: &[u8]) -> Option<Result<ChangeRequest, ChangeError>> {
    let text = std::str::from_utf8(line).ok()?.trim();
    let object: Value = if text.starts_with('{') { serde_json::from_str(text).ok()? } else { Value::Null };
    match object.get("request").and_then(Value::as_str).unwrap_or(text) {
        "limit" => Some(limit(&object).map(ChangeRequest::Limit)),
        "trim" => Some(Ok(ChangeRequest::Trim)),
        "detach" => Some(Ok(ChangeRequest::Detach)),
        "attach" => Some(Ok(ChangeRequest::Attach)),
        _ => None,
    }
}

fn limit(object: &Value) -> Result<LimitRequest, ChangeError> {
    let device = match object.get("device") {
        None | Some(Value::Null) => None,
        Some(device) => {
            Some(device.as_i64().and_then(|device| device.try_into().ok()).ok_or(ChangeError::Device)?)
        }
    };
    let bytes = match object.get("bytes") {
        None | Some(Value::Null) => None,
        Some(Value::String(word)) if word == "none" => Some(u64::MAX),
        Some(bytes) => Some(bytes.as_u64().ok_or(ChangeError::Bytes)?),
    };
    Ok(LimitRequest { device: device.filter(|device: &i32| *device >= 0), bytes })
}

#[cfg(test)]
mod tests {
    //! Hazard (out of memory): a request with a mistake in it limits a program to nothing.
    use super::*;

    fn asked(text: &str) -> Option<Result<ChangeRequest, ChangeError>> {
        parse(text.as_bytes())
    }

    #[test]
    fn a_limit_names_bytes_and_perhaps_a_device() {
        let limit = |device, bytes| Some(Ok(ChangeRequest::Limit(LimitRequest { device, bytes })));
        assert_eq!(asked(r#"{"request":"limit","bytes":0}"#), limit(None, Some(0)));
        assert_eq!(asked(r#"{"request":"limit","bytes":"none","device":1}"#), limit(Some(1), Some(u64::MAX)));
        assert_eq!(asked(r#"{"request":"limit"}"#), limit(None, None), "another step");
        assert_eq!(asked(" limit\r"), limit(None, None));
    }

    #[test]
    fn a_mistake_changes_nothing() {
        for bytes in ["-1", "1.5", "\"40GiB\"", "true", "[]"] {
            let text = format!(r#"{{"request":"limit","bytes":{bytes}}}"#);
            assert_eq!(asked(&text), Some(Err(ChangeError::Bytes)), "{bytes}");
        }
        assert_eq!(asked(r#"{"request":"limit","device":"gpu"}"#), Some(Err(ChangeError::Device)));
    }

    #[test]
    fn other_requests_are_none_of_these() {
        for word in WORDS {
            assert!(matches!(asked(word), Some(Ok(_))), "{word}");
        }
        for text in ["", "stats", r#"{"request":"stats"}"#, "{", r#"{"limit":1}"#, "limits"] {
            assert_eq!(asked(text), None, "{text:?}");
        }
        assert_eq!(parse(b"\xff"), None);
    }
}
