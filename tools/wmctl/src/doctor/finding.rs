//! Findings of the doctor.

use serde::Serialize;

use crate::human;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// As it should be.
    Good,
    /// Works, with something missing or slower.
    Note,
    /// Does not work until it is changed.
    Blocks,
}

/// One finding, with its remedy.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) level: Severity,
    pub(crate) text: String,
    /// The remedy; absent where all is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl Finding {
    pub(crate) fn good(text: impl Into<String>) -> Self {
        Self { level: Severity::Good, text: text.into(), remedy: None }
    }

    pub(crate) fn note(text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Severity::Note, text: text.into(), remedy: Some(remedy.into()) }
    }

    pub(crate) fn blocks(text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Severity::Blocks, text: text.into(), remedy: Some(remedy.into()) }
    }
}

/// Findings as text: the good ones first, those that block last, beside the shell's next prompt.
pub(crate) fn render(findings: &[Finding]) -> String {
    let mut sorted: Vec<_> = findings.iter().collect();
    sorted.sort_by_key(|finding| finding.level);
    let lines: String = sorted.into_iter().map(line).collect();
    let blocking = findings.iter().filter(|finding| finding.level == Severity::Blocks).count();
    let verdict = match blocking {
        0 => "Ready: programs can run under wmshim here.".to_owned(),
        1 => "Not ready: 1 problem.".to_owned(),
        more => format!("Not ready: {more} problems."),
    };
    format!("Findings\n{lines}\n{verdict}\n")
}

fn line(finding: &Finding) -> String {
    let mark = match finding.level {
        Severity::Good => "ok    ",
        Severity::Note => "note  ",
        Severity::Blocks => "BLOCKS",
    };
    let remedy = finding
        .remedy
        .as_ref()
        .map_or_else(String::new, |remedy| format!("          -> {}\n", human::shown(remedy)));
    format!("  {mark}  {}\n{}", human::shown(&finding.text), remedy)
}
