//! Hazard (wrong report): Prometheus refuses a scrape for one program's name, waits for one
//! program, or reads a file that is half written.

mod support;

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Scratch, answers, stderr, stdout, wmctl};

fn exported(scratch: &Scratch, arguments: &[&str]) -> String {
    let output = wmctl(scratch).arg("export").args(arguments).output().expect("ran");
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

/// The series of a text: each name has its HELP and its TYPE once, before its series, which follow
/// each other.
fn series(text: &str) -> Vec<(&str, &str)> {
    let (mut seen, mut name, mut series) = (HashSet::new(), "", Vec::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            name = rest.split(' ').next().expect("a name");
            assert!(seen.insert(name), "{name} begins twice");
            assert!(rest.len() > name.len() + 1, "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            assert_eq!(rest, format!("{name} {kind}"));
        } else {
            let (labels, value) = line.rsplit_once(' ').expect("a value");
            assert!(value.parse::<u64>().is_ok(), "{line}");
            let labels = labels.strip_prefix(name).expect("a series of the family");
            series.push((name, labels));
        }
    }
    series
}

#[test]
fn figures_of_each_program_have_their_labels() {
    let scratch = Scratch::new("export");
    let mut answer = answers(41);
    answer["stats"]["devices"][0]["uuid"] = "GPU-8f3c".into();
    scratch.serve(41, &answer);
    let text = exported(&scratch, &[]);
    let live = series(&text).into_iter().filter(|(name, _)| *name == "wmshim_live_bytes").count();
    assert_eq!(live, 3, "{text}");
    for line in [
        "gpu_uuid=\"GPU-8f3c\",gpu=\"0\",tier=\"device\"} 139586437120",
        "pid=\"41\",path=\"direct\",direction=\"htod\"} 3145728",
        "pid=\"41\",reason=\"capture\"} 1",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    let document: Value = serde_json::from_str(&exported(&scratch, &["--json"])).expect("JSON");
    assert_eq!(document["schema"], "wmctl-export/1");
}

#[test]
fn a_hostile_name_costs_no_other_series() {
    let scratch = Scratch::new("export-name");
    let name = format!("a\"b\\c\nd}} 7\n{}", "x".repeat(250));
    // The number of no process, so that the program's own word is all there is.
    let (hostile, good) = (999_999_998, 999_999_999);
    let mut answer = answers(hostile);
    answer["stats"]["program"] = name.clone().into();
    scratch.serve(hostile, &answer);
    scratch.serve(good, &answers(good));
    let text = exported(&scratch, &[]);
    let escaped = name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let ups: Vec<_> = series(&text).into_iter().filter(|(name, _)| *name == "wmshim_up").collect();
    assert_eq!(ups.len(), 2, "{text}");
    assert!(ups.iter().any(|(_, labels)| labels.contains(&format!("program=\"{escaped}\""))), "{text}");
    assert!(ups.iter().any(|(_, labels)| labels.contains("program=\"python3\"")), "{text}");
}

#[test]
fn a_program_that_is_silent_is_down_and_the_others_are_there() {
    let scratch = Scratch::new("export-silent");
    scratch.serve(41, &answers(41));
    let _silent = UnixListener::bind(scratch.path().join("42.sock")).expect("bound");
    let begin = Instant::now();
    let text = exported(&scratch, &[]);
    assert!(begin.elapsed() < Duration::from_secs(5), "Prometheus gives up after ten seconds");
    let up = |pid: &str| {
        let line = text.lines().find(|line| line.starts_with("wmshim_up{") && line.contains(pid));
        line.expect("a line").rsplit(' ').next().expect("a value").to_owned()
    };
    assert_eq!((up("pid=\"41\""), up("pid=\"42\"")), ("1".to_owned(), "0".to_owned()));
    assert!(text.contains("wmshim_live_bytes{"), "{text}");
}

#[test]
fn the_file_of_the_collector_is_whole_and_alone() {
    let scratch = Scratch::new("export-file");
    scratch.serve(41, &answers(41));
    let folder = scratch.path().join("textfile");
    std::fs::create_dir(&folder).expect("a folder");
    let place = folder.to_str().expect("a readable path");
    for _ in 0..2 {
        exported(&scratch, &["--textfile", place]);
    }
    let names: Vec<_> =
        std::fs::read_dir(&folder).expect("it").map(|file| file.expect("it").file_name()).collect();
    assert_eq!(names, ["wmshim.prom"]);
    assert!(!series(&std::fs::read_to_string(folder.join("wmshim.prom")).expect("text")).is_empty());
    let missing = wmctl(&scratch).args(["export", "--textfile", "/nonexistent"]).output().expect("ran");
    assert!(stderr(&missing).contains("--collector.textfile.directory"), "{}", stderr(&missing));
}

/// The exporter, at a port that the system chose.
struct Exporter(Child, String);

impl Exporter {
    fn start(scratch: &Scratch) -> Self {
        let mut command = wmctl(scratch);
        let command = command.args(["export", "--listen", "127.0.0.1:0"]).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let address =
            line.trim().strip_prefix("wmctl: serving http://").and_then(|rest| rest.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        Self(child, address)
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.1).expect("it listens")
    }

    fn get(&self, path: &str) -> String {
        let mut stream = self.connect();
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        answer
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

#[test]
fn a_scrape_is_answered_beside_clients_that_say_nothing() {
    let scratch = Scratch::new("export-http");
    scratch.serve(41, &answers(41));
    let exporter = Exporter::start(&scratch);
    let _mute: Vec<TcpStream> = (0..8).map(|_| exporter.connect()).collect();
    let answer = exporter.get("/metrics");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("wmshim_live_bytes{"), "{body}");
    assert!(exporter.get("/").starts_with("HTTP/1.1 200 "));
    assert!(exporter.get("/other").starts_with("HTTP/1.1 404 "));
    let taken = wmctl(&scratch).args(["export", "--listen", &exporter.1]).output().expect("ran");
    assert!(stderr(&taken).contains("cannot be listened at"), "{}", stderr(&taken));
}

/// Hazard (source drift): the dashboard and the page ask for figures that there are none of.
#[test]
fn the_dashboard_and_the_page_name_figures_that_exist() {
    let scratch = Scratch::new("export-names");
    let mut answer = answers(41);
    answer["stats"]["devices"][0]["moves"] = json!({ "refused": [{ "reason": "pinned", "count": 1 }] });
    scratch.serve(41, &answer);
    let text = exported(&scratch, &[]);
    let names: HashSet<&str> = series(&text).into_iter().map(|(name, _)| name).collect();
    let page = include_str!("../../../docs/monitoring.md");
    let dashboard = include_str!("../../../examples/monitoring/dashboard.json");
    let _json: Value = serde_json::from_str(dashboard).expect("JSON");
    let is_name = |character: char| character.is_ascii_lowercase() || character == '_';
    for words in [page, dashboard] {
        let words = words.split(|character| !is_name(character)).filter(|word| word.starts_with("wmshim_"));
        words.for_each(|word| assert!(names.contains(word), "{word} is no family"));
    }
    names.iter().for_each(|name| assert!(page.contains(&format!("`{name}`")), "the page lacks {name}"));
}

/// Programs with equal labels are one series, whatever their number.
#[test]
fn two_hundred_programs_are_one_scrape() {
    let scratch = Scratch::new("export-many");
    for pid in 0..200 {
        scratch.serve(900_000_000 + pid, &json!({ "stats": answers(7)["stats"] }));
    }
    let text = exported(&scratch, &["--no-pid"]);
    assert!(text.contains("wmshim_up{program=\"python3\"} 200\n"), "{text}");
    assert_eq!(series(&exported(&scratch, &[])).iter().filter(|(name, _)| *name == "wmshim_up").count(), 200);
}
