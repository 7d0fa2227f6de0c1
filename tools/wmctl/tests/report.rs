//! Hazard (wrong report): a page that no browser shows, or a file that the page of another project
//! refuses. Hazard (API conformance): what the library writes is not what `wmctl` reads.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use hazards::places::built;
use serde_json::Value;
use support::{Scratch, stderr, stdout, wmctl};

/// Marks, 80 MiB on a device of 64, a refused request, a child with a mark of its own, and frees.
const PROGRAM: &str = r#"
import ctypes, os, sys, wmshim
import wmshim.demo as demo
wmshim.mark("step 0\nof \"two\" <b>")
driver = demo._driver()
demo._start(driver)
demo.BLOCK = 4 << 20
blocks = demo._hold(driver, 40 << 20)
wmshim.mark("step 1")
blocks += demo._hold(driver, 40 << 20)
assert driver.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1 << 45)) == 2
library = ctypes.CDLL(None)
assert library.wmshim_mark(None) == 1
child = os.fork()
if child == 0:
    wmshim.mark("of a child")
    os._exit(0)
os.waitpid(child, 0)
for address in blocks[::4]:
    assert driver.cuMemFree_v2(ctypes.c_uint64(address)) == 0
print(wmshim.report()._repr_html_() if "report" in sys.argv else "ready", flush=True)
if "wait" in sys.argv:
    sys.stdin.read()
"#;

fn program(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.args(["-B", "-c", PROGRAM]).args(arguments);
    command.env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("../python"));
    command.env("LD_PRELOAD", built("libwmshim.so")).env("WMSHIM_DRIVER", built("libsimcuda.so"));
    command.env("WMSHIM_LIB", built("libwmshim.so")).env("WMSHIM_LOG", "error");
    command.env("SIMCUDA_MEMORY", "64MiB").env("WMSHIM_HEADROOM", "0").env("WMSHIM_OVERFLOW", "host");
    command.env("WMSHIM_STATS_DIR", scratch.path());
    command
}

/// Starts the program, and waits until it holds its memory.
fn waiting(scratch: &Scratch) -> Child {
    let mut child = program(scratch, &["wait"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let mut lines = BufReader::new(child.stdout.as_mut().expect("piped")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line == "ready")), "it ended before");
    child
}

/// A recording of the program.
fn recording(scratch: &Scratch) -> PathBuf {
    let trace = scratch.path().join("t.gz");
    let run = program(scratch, &[]).env("WMSHIM_TRACE", &trace).output().expect("python3 starts");
    assert!(run.status.success(), "{}", stderr(&run));
    trace
}

fn report(scratch: &Scratch, arguments: &[&str]) -> Output {
    let output = wmctl(scratch).arg("report").args(arguments).output().expect("wmctl starts");
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    output
}

fn figures(scratch: &Scratch, source: &str) -> Value {
    serde_json::from_str(&stdout(&report(scratch, &[source, "--json"]))).expect("JSON")
}

fn events<'a>(figures: &'a Value, kind: &str) -> Vec<&'a str> {
    let events = figures["events"].as_array().expect("a list").iter();
    events.filter(|event| event["kind"] == kind).filter_map(|event| event["text"].as_str()).collect()
}

const MARKS: [&str; 2] = ["step 0 of \"two\" <b>", "step 1"];

#[test]
fn a_process_has_a_report_while_it_runs_and_after_it_was_killed() {
    let scratch = Scratch::new("report-process");
    let mut child = waiting(&scratch);
    let pid = child.id().to_string();
    let running = figures(&scratch, &pid);
    let ranges = running["ranges"].as_array().expect("a list");
    let held: u64 = ranges.iter().filter_map(|range| range["bytes"].as_u64()).sum();
    assert_eq!((ranges.len(), held), (15, 60 << 20), "{running:#}");
    assert!(ranges.iter().any(|range| range["elsewhere"].as_u64() > Some(0)), "{running:#}");
    let snapshot = scratch.path().join("s.pickle");
    report(&scratch, &[&pid, "--format", "memory_viz", "-o", snapshot.to_str().expect("UTF-8")]);
    assert_eq!(unpickled(&snapshot), "15 62914560 0 2");
    child.kill().and_then(|()| child.wait()).expect("killed");
    let dead = figures(&scratch, &pid);
    for figures in [&running, &dead] {
        assert_eq!(events(figures, "mark"), MARKS);
        assert_eq!((events(figures, "out_of_memory").len(), events(figures, "overflow").len()), (1, 1));
        let last = &figures["timeline"].as_array().expect("a list").last().expect("a point")["live"];
        let live = ["device", "peer", "host"].iter().filter_map(|tier| last[tier].as_u64()).sum::<u64>();
        assert_eq!(live, 60 << 20, "{figures:#}");
    }
    assert!(dead["source"].as_str().is_some_and(|said| said.contains("ended without an exit")), "{dead:#}");
    let missing = wmctl(&scratch).args(["report", &pid, "--format", "memory_viz", "-o", "-"]).output();
    assert!(stderr(&missing.expect("wmctl starts")).contains("no single blocks"));
}

#[test]
fn a_recording_becomes_a_page_a_snapshot_and_a_trace() {
    let scratch = Scratch::new("report-trace");
    let trace = recording(&scratch);
    let name = trace.to_str().expect("UTF-8");
    let figures = figures(&scratch, name);
    assert_eq!(events(&figures, "mark"), MARKS);
    assert_eq!((events(&figures, "out_of_memory").len(), events(&figures, "overflow").len()), (1, 1));
    let most = figures["timeline"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|point| ["device", "host"].map(|tier| point["live"][tier].as_u64().expect("bytes")));
    assert_eq!(most.max_by_key(|[device, host]| device + host), Some([64 << 20, 16 << 20]), "{figures:#}");
    let snapshot = scratch.path().join("s.pickle");
    report(&scratch, &[name, "--format", "memory_viz", "-o", snapshot.to_str().expect("UTF-8")]);
    assert_eq!(unpickled(&snapshot), "15 62914560 25 2");
    let perfetto = stdout(&report(&scratch, &[name, "--format", "perfetto"]));
    let perfetto: Value = serde_json::from_str(&perfetto).expect("JSON");
    let slices =
        perfetto["traceEvents"].as_array().expect("a list").iter().filter(|event| event["ph"] == "X");
    assert_eq!(slices.filter_map(|slice| slice["name"].as_str()).collect::<Vec<_>>(), MARKS);
    let same = wmctl(&scratch).args(["diff", "--json", name, name]).output().expect("wmctl starts");
    let same: Value = serde_json::from_str(&stdout(&same)).expect("JSON");
    assert_eq!((&same["holders"], &same["unfreed"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    assert_eq!(same["memory"][0]["after_bytes"], 80 << 20);
    opens_in_a_browser(&scratch, name);
}

/// Segments, their bytes, events and marks of a snapshot, as Python reads it. The sums are those
/// that PyTorch's own functions assert.
fn unpickled(snapshot: &Path) -> String {
    const READ: &str = "import pickle, sys\n\
        made = pickle.load(open(sys.argv[1], 'rb'))\n\
        for segment in made['segments']:\n\
        \x20   assert sum(block['size'] for block in segment['blocks']) == segment['total_size'], segment\n\
        total = sum(segment['total_size'] for segment in made['segments'])\n\
        entries = [entry for trace in made['device_traces'] for entry in trace]\n\
        assert all(type(entry['frames'][0]['line']) is int for entry in entries)\n\
        print(len(made['segments']), total, sum(entry['action'] in ('alloc', 'free_completed') for entry in entries), \
        len(made['external_annotations']))";
    let read = Command::new("python3").args(["-c", READ]).arg(snapshot).output().expect("python3 starts");
    assert!(read.status.success(), "{}", stderr(&read));
    stdout(&read).trim_end().to_owned()
}

/// What a person does with the keyboard, and what the page shows then.
const KEYS: &str = "<script>
const said = [];
const press = (target, key) => target.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
const timeline = document.getElementById('timeline'), now = document.getElementById('timeline-now');
for (const key of ['End', 'Home', 'n']) { press(timeline, key); said.push(now.textContent); }
const frames = [...document.querySelectorAll('#flame g')];
press(frames[0], 'ArrowDown'); said.push(document.activeElement === frames[1]);
press(frames[1], 'Enter'); press(frames[1], 'Escape');
said.push(frames.every((frame) => frame.style.display === ''));
said.push(document.getElementById('theme').hidden);
document.body.dataset.said = JSON.stringify(said);
</script></body>";

/// Without a network.
fn opens_in_a_browser(scratch: &Scratch, source: &str) {
    let page = scratch.path().join("r.html");
    report(scratch, &[source, "-o", page.to_str().expect("UTF-8")]);
    let pressed = fs::read_to_string(&page).expect("a page").replace("</body>", KEYS);
    fs::write(&page, pressed).expect("written");
    let mut browser = Command::new("chromium");
    browser.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--dump-dom",
    ]);
    browser.env("HOME", scratch.path()).arg(format!("file://{}", page.display()));
    let Ok(shown) = browser.output() else {
        return hazards::skip("needs chromium");
    };
    let shown = stdout(&shown);
    let said = shown.split_once("data-said=\"").and_then(|(_, said)| said.split_once('"'));
    let said = said.unwrap_or_else(|| panic!("the script has failed: {shown}")).0.replace("&quot;", "\"");
    let said: Vec<Value> = serde_json::from_str(&said).expect("JSON");
    assert!(said[0].as_str().is_some_and(|said| said.contains("12.0 MiB on the host")), "{said:?}");
    assert!(said[1] != said[0] && said[2] != said[1], "{said:?}");
    assert_eq!(said[3..], [true, true, false].map(Value::from), "{said:?}");
}

#[test]
fn a_notebook_shows_the_page_of_its_own_process() {
    let scratch = Scratch::new("report-notebook");
    let run = program(&scratch, &["report"]).output().expect("python3 starts");
    assert!(run.status.success(), "{}", stderr(&run));
    let said = stdout(&run);
    let (_, frame) = said.split_once("<iframe title=").expect("a frame");
    assert!(frame.contains("&lt;svg id=&quot;timeline&quot;"), "{frame}");
    assert!(frame.contains("step 1") && !frame.contains("<svg"), "the page is one attribute");
}

#[test]
fn what_is_no_source_is_told_with_what_would_be() {
    let scratch = Scratch::new("report-wrong");
    let file = scratch.path().join("x.json");
    for (content, words) in [
        ("{\"schema\":\"other/1\"}", "schema `other/1`"),
        ("{", "is no JSON"),
        ("plain", "not a gzip file"),
        ("wmshimbb", "layout 0"),
    ] {
        fs::write(&file, content).expect("written");
        let output =
            wmctl(&scratch).arg("report").arg(&file).args(["-o", "-"]).output().expect("wmctl starts");
        assert!(
            !output.status.success() && stderr(&output).contains(words),
            "{content}: {}",
            stderr(&output)
        );
    }
    let none = wmctl(&scratch).args(["report", "4000000", "-o", "-"]).output().expect("wmctl starts");
    assert!(stderr(&none).contains("there is no process 4000000"), "{}", stderr(&none));
}
