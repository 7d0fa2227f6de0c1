//! A check of settings before a program starts: the lines that the library would log of an
//! environment.
//!
//! `wmctl run` asks before it starts a program, and `wmctl doctor` asks about the shell it runs in,
//! so that neither knows a setting by itself.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};
use wm_trust::environment;
use wm_trust::node::PATH;

use super::node::NodeSettings;
use super::table::{KNOWN, set, understands};
use super::unknown::strangers;
use super::{Judged, Settings, of_node};

/// The problems of the settings among these variables, `NAME=VALUE` each, with a null pointer at
/// the end; null stands for the variables of this process. A JSON text that the caller frees with
/// `free`; null without memory for it.
///
/// # Safety
/// `listed` is null, or an array of C strings that ends with a null pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn wmshim_check_settings(listed: *const *const c_char) -> *mut c_char {
    // SAFETY: the caller's promise.
    let variables = unsafe { variables(listed) };
    let text = CString::new(report(&variables, of_node()).to_string()).unwrap_or_default();
    // SAFETY: a NUL-terminated string; `strdup` gives memory of the C allocator, which the caller
    // can free.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// # Safety
/// As of [`wmshim_check_settings`].
unsafe fn variables(mut listed: *const *const c_char) -> HashMap<OsString, OsString> {
    if listed.is_null() {
        return environment::all().collect();
    }
    let mut variables = HashMap::new();
    // SAFETY: the array ends with a null pointer, and nothing behind it is read.
    while let Some(pair) = unsafe { (*listed).as_ref() } {
        // SAFETY: a C string, as the caller promised.
        let pair = unsafe { CStr::from_ptr(pair) }.to_bytes();
        if let Some(end) = pair.iter().position(|byte| *byte == b'=') {
            let [name, value] =
                [&pair[..end], &pair[end + 1..]].map(|part| OsStr::from_bytes(part).to_owned());
            variables.insert(name, value);
        }
        // SAFETY: not the end yet.
        listed = unsafe { listed.add(1) };
    }
    variables
}

fn report(variables: &HashMap<OsString, OsString>, node: &NodeSettings) -> Value {
    let find = |name: &str| variables.get(OsStr::new(name)).cloned();
    let Judged { settings, mut problems, bounds, bounded } = Settings::of(&find, node);
    let names = variables.keys().filter_map(|name| name.to_str().map(str::to_owned));
    let mut strange = strangers(names);
    strange.sort();
    problems.append(&mut strange);
    let origin = |variable: &str| match set(&find, variable) {
        _ if bounded.iter().any(|bound| bound.variable == variable) => "ceiling",
        Some(text) if understands(variable, &text) => "variable",
        _ if node.default_of(variable).is_some() => "node",
        _ => "default",
    };
    let origins: BTreeMap<_, _> = KNOWN.iter().map(|row| (row.variable, origin(row.variable))).collect();
    json!({
        "schema": "wmshim-settings/1",
        "problems": problems,
        "bounds": bounds,
        "settings": settings.describe(),
        "origins": origins,
        "node": { "path": node.is_there.then_some(PATH), "faults": node.faults },
    })
}

#[cfg(test)]
mod tests {
    //! Hazard (error handling): a program starts with a setting that its author did not mean.
    use super::*;

    #[test]
    fn what_would_be_said_is_told_beforehand() {
        let variables =
            [("WMSHIM_DEVICE_LIMIT", "48"), ("WMSHIM_FOO", "1"), ("WMSHIM_STITCH", "off"), ("HOME", "/")];
        let answer = report(
            &variables.map(|(name, value)| (name.into(), value.into())).into(),
            &NodeSettings::default(),
        );
        let problems = answer["problems"].as_array().expect("a list");
        assert_eq!(problems.len(), 2, "{answer}");
        assert!(
            problems[0].as_str().is_some_and(|line| line.contains("WMSHIM_DEVICE_LIMIT=48 ")),
            "{answer}"
        );
        assert_eq!(
            (&answer["settings"]["WMSHIM_STITCH"], &answer["settings"]["WMSHIM_DEVICE_LIMIT"]),
            (&json!("off"), &Value::Null)
        );
    }

    #[test]
    fn the_origin_of_each_value_is_told() {
        let file = "[defaults]\nmigrate = true\nlog = 'info'\nx = 1\n[ceilings]\ndevice_limit = '1GiB'\n";
        let node = NodeSettings::of(wm_trust::node::NodeFile::parse(file));
        let variables = [("WMSHIM_DEVICE_LIMIT", "2GiB"), ("WMSHIM_LOG", "off"), ("WMSHIM_STITCH", "x")];
        let answer = report(&variables.map(|(name, value)| (name.into(), value.into())).into(), &node);
        let told = ["DEVICE_LIMIT", "LOG", "MIGRATE", "STITCH"]
            .map(|name| answer["origins"][format!("WMSHIM_{name}")].as_str());
        assert_eq!(told, [Some("ceiling"), Some("variable"), Some("node"), Some("default")]);
        let counts = ["problems", "bounds"].map(|list| answer[list].as_array().map(Vec::len));
        assert_eq!(
            (counts, answer["settings"]["WMSHIM_DEVICE_LIMIT"].as_str()),
            ([Some(1); 2], Some("1GiB"))
        );
        assert_eq!(answer["node"]["faults"].as_array().map(Vec::len), Some(1), "{answer}");
    }

    #[test]
    fn an_array_of_the_c_kind_is_read_to_its_end() {
        let pairs = [c"WMSHIM_STITCH=maybe".as_ptr(), c"no pair".as_ptr(), std::ptr::null()];
        // SAFETY: C strings and a null pointer at the end.
        let variables = unsafe { variables(pairs.as_ptr()) };
        assert_eq!(variables, HashMap::from([("WMSHIM_STITCH".into(), "maybe".into())]));
    }
}
