//! The text of the last error, for `ncclGetLastError`, and the lines of `SIMNCCL_LOG`.

use std::ffi::{CStr, CString};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::abi::{Code, Outcome};

/// The process's report of errors. A text stays allocated, because callers hold pointers to it.
#[derive(Debug)]
pub(crate) struct Report {
    last: Mutex<&'static CStr>,
    /// Is a line printed for each error?
    logs: AtomicBool,
}

/// The process's one instance.
pub(crate) static REPORT: Report = Report::new();

impl Report {
    const fn new() -> Self {
        Self { last: Mutex::new(c""), logs: AtomicBool::new(false) }
    }

    /// The last error's text.
    pub(crate) fn text(&self) -> &'static CStr {
        *crate::lock(&self.last)
    }

    /// Prints lines from here on, or does not.
    pub(crate) fn log(&self, wanted: bool) {
        self.logs.store(wanted, Ordering::Relaxed);
    }

    fn put(&self, text: &str) {
        let mut last = crate::lock(&self.last);
        if last.to_bytes() != text.as_bytes() {
            *last = CString::new(text).map_or(c"", |text| Box::leak(text.into_boxed_c_str()));
        }
    }
}

/// Notes the reason of an error, and gives the error back.
pub(crate) fn error(code: Code, text: &str) -> Code {
    REPORT.put(text);
    line(text);
    code
}

/// Appends a line to a file, in one write: processes that share the file do not mix their lines.
///
/// # Errors
/// `ncclSystemError`, if the file cannot be written.
pub(crate) fn append(file: &Path, line: &str) -> Outcome {
    let open = OpenOptions::new().create(true).append(true).open(file);
    let written = open.and_then(|mut open| open.write_all(format!("{line}\n").as_bytes()));
    written.map_err(|reason| error(Code::SYSTEM, &format!("SIMNCCL_STATS={}: {reason}", file.display())))
}

/// A line on standard error, if `SIMNCCL_LOG` asks for them.
#[allow(clippy::print_stderr, reason = "SIMNCCL_LOG asks for it")]
pub(crate) fn line(text: &str) {
    if REPORT.logs.load(Ordering::Relaxed) {
        let line = format!("simnccl[{}]: {text}\n", std::process::id());
        eprint!("{line}");
    }
}
