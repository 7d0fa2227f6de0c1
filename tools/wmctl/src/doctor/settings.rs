//! The settings of programs that start from this shell: what each will be, and which of the three
//! sources says so.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::finding::Finding;
use crate::human;
use crate::shim::JudgedSettings;

const HOST_LIMIT: &str = "WMSHIM_HOST_LIMIT";

/// Settings that are not the built-in ones.
#[derive(Debug, Default, Serialize)]
pub(super) struct EffectiveSettings {
    /// The node's file; `None`: there is none.
    node: Option<PathBuf>,
    settings: BTreeMap<String, EffectiveValue>,
    #[serde(skip)]
    host_limit: Option<String>,
    #[serde(skip)]
    device_limit: Option<String>,
}

#[derive(Debug, Serialize)]
struct EffectiveValue {
    value: Option<String>,
    /// `variable`, `node` or `ceiling`.
    origin: String,
}

/// Reads the library's judgement.
pub(super) fn examine(judged: JudgedSettings, findings: &mut Vec<Finding>) -> EffectiveSettings {
    // The library would use the default; `wmctl run` starts nothing.
    findings.extend(judged.problems.into_iter().map(|problem| {
        Finding::blocks(problem, "correct the variable, or unset it: `wmctl run` starts no program with it")
    }));
    findings.extend(judged.bounds.into_iter().map(|bound| {
        Finding::note(bound, "ask for less, or unset the variable: the ceiling is in force either way")
    }));
    findings.extend(judged.node.faults.into_iter().map(|fault| {
        Finding::note(fault, "correct the file as root: what is wrong in it has no effect, the rest has")
    }));
    let mut values = judged.settings;
    // Without the library's answer: the built-in default.
    let host_limit = values.get(HOST_LIMIT).map_or_else(|| Some("50%".to_owned()), Clone::clone);
    let device_limit = values.get("WMSHIM_DEVICE_LIMIT").cloned().flatten();
    let told = judged.origins.into_iter().filter(|(_, origin)| origin != "default");
    let settings = told.map(|(variable, origin)| {
        let value = values.remove(&variable).flatten();
        (variable, EffectiveValue { value, origin })
    });
    EffectiveSettings { settings: settings.collect(), node: judged.node.path, host_limit, device_limit }
}

impl EffectiveSettings {
    /// The value of WMSHIM_HOST_LIMIT; `None`: there is no limit.
    pub(super) fn host_limit(&self) -> Option<&str> {
        self.host_limit.as_deref()
    }

    /// The value of WMSHIM_DEVICE_LIMIT; `None`: there is no limit.
    pub(super) fn device_limit(&self) -> Option<&str> {
        self.device_limit.as_deref()
    }

    /// One line for each, and one for the file.
    pub(super) fn render(&self) -> String {
        let file = match &self.node {
            Some(path) => format!("node's file {}", path.display()),
            None => "no node's file".to_owned(),
        };
        let line = |(variable, EffectiveValue { value, origin }): (&String, &EffectiveValue)| {
            let value = value.as_deref().unwrap_or("none");
            format!("         {variable}={} ({origin})\n", human::shown(value))
        };
        let lines: String = self.settings.iter().map(line).collect();
        format!("Settings {file}, {} not as built in\n{lines}", self.settings.len())
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): an operator's file is without effect, and the doctor passes it.
    use super::*;

    #[test]
    fn faults_and_bounds_are_notes_and_what_is_built_in_is_left_out() {
        let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let mut judged = JudgedSettings {
            problems: text(&["WMSHIM_LOG=x is not understood"]),
            bounds: text(&["WMSHIM_DEVICE_LIMIT=2GiB: line 2 of the file allows 1GiB at most"]),
            ..JudgedSettings::default()
        };
        judged.node.faults = text(&["line 7 is no pair"]);
        for (name, value, origin) in
            [("A", Some("1GiB"), "ceiling"), ("B", None, "node"), ("C", None, "default")]
        {
            judged.settings.insert(name.to_owned(), value.map(str::to_owned));
            judged.origins.insert(name.to_owned(), origin.to_owned());
        }
        let mut findings = Vec::new();
        let shown = examine(judged, &mut findings).render();
        assert_eq!(
            shown,
            "Settings no node's file, 2 not as built in\n         A=1GiB (ceiling)\n         B=none (node)\n"
        );
        let levels: Vec<_> = findings.iter().map(|finding| serde_json::json!(finding.level)).collect();
        assert_eq!(levels, ["blocks", "note", "note"]);
    }
}
