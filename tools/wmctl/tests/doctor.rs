//! Hazard (wrong report): `wmctl doctor` passes an unfit machine, reports a finding without a
//! remedy, or returns an exit code that scripts cannot rely on.

mod support;

use hazards::places;
use serde_json::Value;
use support::{Scratch, installation_in, marked_library, stderr, stdout, wmctl};

fn diagnose(scratch: &Scratch, variables: &[(&str, &str)]) -> (Option<i32>, Value) {
    let mut command = wmctl(scratch);
    command.args(["doctor", "--json"]).envs(variables.iter().copied());
    let output = command.output().expect("ran");
    let report = serde_json::from_slice(&output.stdout);
    (output.status.code(), report.unwrap_or_else(|error| panic!("{error}: {}", stderr(&output))))
}

#[test]
fn without_a_driver_it_names_every_place_and_a_remedy_and_fails() {
    let scratch = Scratch::new("none");
    let missing = scratch.path().join("libcuda.so.1");
    let missing = missing.to_str().expect("UTF-8");
    let (code, report) = diagnose(&scratch, &[("WMSHIM_DRIVER", missing)]);
    assert_eq!((code, &report["fit"], &report["driver"]), (Some(1), &Value::Bool(false), &Value::Null));
    let findings = report["findings"].as_array().expect("findings");
    let blocking =
        findings.iter().find(|finding| finding["text"].as_str().expect("text").contains("no CUDA driver"));
    assert_eq!(blocking.expect("is said")["level"], "blocks");
    assert!(blocking.expect("is said")["text"].as_str().expect("text").contains(missing));
    let text = stdout(&wmctl(&scratch).arg("doctor").env("WMSHIM_DRIVER", missing).output().expect("ran"));
    assert!(text.contains("BLOCKS  no CUDA driver") && text.contains("Not ready: "), "{text}");
}

#[test]
fn every_finding_that_is_not_good_has_a_remedy() {
    let scratch = Scratch::new("remedies");
    let (_, report) = diagnose(&scratch, &[]);
    for finding in report["findings"].as_array().expect("findings") {
        assert_eq!(finding["level"] != "good", finding["remedy"].is_string(), "{finding}");
    }
}

#[test]
fn a_library_that_is_no_driver_is_told_from_one() {
    let scratch = Scratch::new("impostor");
    let (code, report) = diagnose(&scratch, &[("WMSHIM_DRIVER", "/bin/sh")]);
    assert_eq!((code, &report["driver"]), (Some(1), &Value::Null));
}

#[test]
fn a_damaged_installation_is_found() {
    let scratch = Scratch::new("damaged");
    let library = scratch.path().join("libwmshim.so");
    marked_library(&scratch, &library, "int nowhere(void); int wmshim_broken(void) { return nowhere(); }\n");
    let (_, report) = diagnose(&scratch, &[("WMSHIM_LIB", library.to_str().expect("UTF-8"))]);
    let findings = report["findings"].to_string();
    assert!(findings.contains("cannot be loaded"), "{findings}");
}

#[test]
fn a_simulated_machine_is_fit() {
    let scratch = Scratch::new("fit");
    let (driver, _library) = (places::simulated_driver(), places::shim());
    let variables = [("WMSHIM_DRIVER", driver.to_str().expect("UTF-8")), ("SIMCUDA_DEVICES", "2")];
    let (code, report) = diagnose(&scratch, &variables);
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(report["driver"]["devices"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["driver"]["devices"][1]["virtual_memory"], true);
    assert_eq!(report["installation"]["missing_exports"].as_array().map(Vec::len), Some(0));
}

fn texts(report: &Value) -> Vec<&str> {
    report["findings"].as_array().expect("findings").iter().filter_map(|it| it["text"].as_str()).collect()
}

/// The doctor reports complaints that this shell's programs would report at their start.
#[test]
fn this_shells_settings_are_judged_and_devices_are_not_repeated() {
    let scratch = Scratch::new("shell");
    places::simulated_driver();
    places::shim();
    let shell = [
        ("WMSHIM_DRIVER", "sim"),
        ("SIMCUDA_DEVICES", "8"),
        ("SIMCUDA_MPS", "1"),
        ("WMSHIM_STITCH", "maybe"),
        ("WMSHIM_FOO", "1"),
    ];
    let (code, report) = diagnose(&scratch, &shell);
    assert_eq!(code, Some(1), "{report:#}");
    let texts = texts(&report);
    let count = |part: &str| texts.iter().filter(|text| text.contains(part)).count();
    assert_eq!((count("WMSHIM_STITCH=maybe"), count("WMSHIM_FOO is not a setting")), (1, 1), "{texts:#?}");
    assert_eq!(
        (count("RDMA into"), count("devices 0, 1, 2, 3, 4, 5, 6, 7 shared through MPS")),
        (1, 1),
        "{texts:#?}"
    );
}

/// The wheel's layout, and a path that the loader would cut: the doctor prints the names that
/// programs get, and reports the names that they do not get.
#[test]
fn the_names_of_the_library_are_told() {
    let scratch = Scratch::new("named");
    let library = installation_in(&scratch, &scratch.path().join("my wheel"), false);
    let library = library.to_str().expect("UTF-8").to_owned();
    let (_, report) = diagnose(&scratch, &[("WMSHIM_LIB", &library)]);
    let preload = report["installation"]["preload"].as_str().expect("a path").to_owned();
    assert!(!preload.contains(' ') && report["installation"]["dropin"].is_string(), "{report:#}");
    let nowhere = scratch.path().join("no such folder/of mine");
    let nowhere = nowhere.to_str().expect("UTF-8");
    let (code, report) = diagnose(
        &scratch,
        &[("WMSHIM_LIB", &library), ("XDG_CACHE_HOME", nowhere), ("WMSHIM_STATS_DIR", nowhere)],
    );
    assert!(
        code == Some(1) && texts(&report).iter().any(|text| text.contains("cannot be preloaded")),
        "{report:#}"
    );
}

#[test]
fn paths_are_those_that_run_sets() {
    let scratch = Scratch::new("paths");
    let library = installation_in(&scratch, &scratch.path().join("plain"), true);
    let ask = |option: &str| {
        let output =
            wmctl(&scratch).env("WMSHIM_LIB", &library).args(["paths", option]).output().expect("ran");
        stdout(&output).trim_end().to_owned()
    };
    assert_eq!(ask("--preload"), library.display().to_string());
    assert_eq!(ask("--dropin"), scratch.path().join("plain/dropin").display().to_string());
    let report: Value = serde_json::from_str(&ask("--json")).expect("JSON");
    assert_eq!((&report["schema"], &report["dropin"]), (&"wmctl-paths/1".into(), &ask("--dropin").into()));
}
