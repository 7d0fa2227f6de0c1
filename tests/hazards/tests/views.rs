//! Hazard (wrong report): memory that a program makes itself, as PyTorch does, is in no view:
//! `wmctl` shows zeros, a recording is empty, and a refusal is not explained.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use hazards::{Host, Outcome, Scratch, c, driver, places};
use serde_json::Value;

const MIB: u64 = 1 << 20;
const PIECE: u64 = 20 * MIB;

/// The program with pieces on a device of 256 MiB, 32 MiB of which stay free.
struct Segments(Scratch, PathBuf, PathBuf);

impl Segments {
    fn new() -> Self {
        let scratch = Scratch::new();
        let (program, driver) = (c::cuda_program(&scratch, "seg"), driver::simulated(&scratch));
        Self(scratch, program, driver)
    }

    fn host(&self, arguments: &[&str], variables: &[(&str, &OsStr)]) -> Host {
        let host = Host::shimmed(&self.1, &self.0, &self.2).args(arguments).env("SIMCUDA_MEMORY", "256MiB");
        let host = host.env("WMSHIM_OVERFLOW_CREATED", "all").env("WMSHIM_HOST_LIMIT", "off");
        variables.iter().fold(host, |host, (name, value)| host.env(name, value))
    }

    fn run(&self, arguments: &[&str], variables: &[(&str, &OsStr)]) -> Outcome {
        self.host(arguments, variables).run()
    }

    fn wmctl(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(places::wmctl());
        command.args(arguments).env("WMSHIM_STATS_DIR", self.0.path().join("stats"));
        command.env_remove("SIMCUDA_MEMORY").output().expect("wmctl starts")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.wmctl(arguments);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    fn text(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.wmctl(arguments).stdout).expect("text")
    }
}

/// Waits until the program has its pieces; how many it got.
fn settled(child: &mut Child) -> u64 {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    line.trim().parse().expect("a number")
}

/// Its standard input ends, and then itself. All that it wrote on standard error.
fn ended(mut child: Child) -> String {
    drop(child.stdin.take());
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert!(child.wait().expect("it ends").success(), "{said}");
    said
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a readable path")
}

#[test]
fn figures_of_a_running_program_have_its_pieces() {
    let segments = Segments::new();
    let mut child = segments.host(&["20"], &[]).start();
    assert_eq!(settled(&mut child), 20);
    let top = segments.json(&["top", "--once", "--json", "--interval", "0.02"]);
    let device = &top["processes"][0]["devices"][0];
    assert_eq!((&device["live_bytes"], &device["host_bytes"]), (&230_686_720.into(), &188_743_680.into()));
    let stats = segments.text(&["stats"]);
    for tier in ["device  220.0 MiB  220.0 MiB  220.0 MiB", "host    180.0 MiB  180.0 MiB  180.0 MiB"] {
        assert!(stats.contains(tier), "{tier:?} is not in\n{stats}");
    }
    let pid = child.id().to_string();
    let blocks = segments.text(&["stats", &pid, "--blocks"]);
    assert!(blocks.contains("400.0 MiB  220.0 MiB       0 B  180.0 MiB  pieces"), "one range: {blocks}");
    assert!(blocks.ends_with("0 blocks, 0 B; 20 pieces, 400.0 MiB\n"), "{blocks}");
    let list = &segments.json(&["stats", &pid, "--blocks", "--json"])["processes"][0]["answer"]["devices"][0];
    let pieces = list["pieces"].as_array().expect("pieces");
    let first = pieces[0]["mappings"][0]["address"].as_u64().expect("an address");
    for (index, piece) in pieces.iter().enumerate() {
        let range = &piece["mappings"][0];
        assert_eq!(
            (&range["address"], &range["bytes"]),
            (&(first + index as u64 * PIECE).into(), &PIECE.into())
        );
    }
    ended(child);
}

/// A list of several programs has the same sums.
#[test]
fn figures_of_several_programs_have_them_too() {
    let segments = Segments::new();
    let mut children = [(); 2].map(|()| segments.host(&["3"], &[]).start());
    children.iter_mut().for_each(|child| assert_eq!(settled(child), 3));
    let list = segments.text(&["stats"]);
    assert_eq!(list.matches("60.0 MiB         60.0 MiB").count(), 2, "{list}");
    children.into_iter().for_each(|child| assert_eq!(ended(child), ""));
}

/// Hazard (wrong report): each of two programs calls its GPU the first, and they look like programs
/// of one GPU. Their job and their command line tell them apart, their arguments can be hidden.
#[test]
fn programs_of_two_gpus_are_told_apart() {
    let segments = Segments::new();
    let variables = |gpu: &'static str| {
        [("SIMCUDA_DEVICES", "2"), ("CUDA_VISIBLE_DEVICES", gpu), ("SLURM_JOB_ID", "4711")]
            .map(|(name, value)| (name, value.as_ref()))
    };
    let mut children = ["0", "1"].map(|gpu| segments.host(&["3"], &variables(gpu)).start());
    children.iter_mut().for_each(|child| assert_eq!(settled(child), 3));
    let top = segments.json(&["top", "--once", "--json", "--interval", "0.02"]);
    let mut devices: Vec<String> = Vec::new();
    for process in top["processes"].as_array().expect("programs") {
        let identity = &process["identity"];
        assert_eq!(
            (&identity["command"], &identity["slurm_job_id"]),
            (&serde_json::json!(["seg", "3"]), &"4711".into())
        );
        let device = &process["devices"][0];
        assert_eq!(device["ordinal"], 0, "each has one");
        devices.push(format!("{} {}", device["pci"], device["gpu_uuid"]));
    }
    devices.sort_unstable();
    assert_eq!(
        devices,
        [
            "\"0000:01:00.0\" \"GPU-73696d75-6c61-7465-642d-6770752d3030\"",
            "\"0000:02:00.0\" \"GPU-73696d75-6c61-7465-642d-6770752d3031\"",
        ]
    );
    let list = segments.text(&["stats", "--no-args"]);
    assert!(list.contains("JOB   COMMAND\n") && list.contains("4711  seg\n"), "{list}");
    children.into_iter().for_each(|child| assert_eq!(ended(child), ""));
}

#[test]
fn peaks_are_shown_after_the_end() {
    let segments = Segments::new();
    let mut command = Command::new(places::wmctl());
    command.args(["run", "-q", "--stats", "--"]).arg(&segments.1).args(["20", "end"]);
    command
        .env("WMSHIM_DRIVER", &segments.2)
        .env("SIMCUDA_MEMORY", "256MiB")
        .env("TMPDIR", segments.0.path());
    command.env("WMSHIM_OVERFLOW_CREATED", "all").env("WMSHIM_HOST_LIMIT", "off");
    let output = command.stdin(std::process::Stdio::null()).output().expect("wmctl starts");
    let said = String::from_utf8_lossy(&output.stderr);
    for tier in [
        "device   0 B       0 B  220.0 MiB      220.0 MiB",
        "host     0 B       0 B  180.0 MiB      180.0 MiB",
    ] {
        assert!(said.contains(tier), "{tier:?} is not in\n{said}");
    }
}

#[test]
fn a_refusal_is_one_line_and_is_counted() {
    let segments = Segments::new();
    let limits = [("WMSHIM_DEVICE_LIMIT", "100MiB".as_ref()), ("WMSHIM_OVERFLOW", "off".as_ref())];
    let mut child = segments.host(&["20"], &limits).start();
    assert_eq!(settled(&mut child), 5);
    let top = segments.json(&["top", "--once", "--json", "--interval", "0.02"]);
    assert_eq!(top["processes"][0]["devices"][0]["out_of_memory"], 1);
    let said = ended(child);
    assert_eq!((said.lines().count(), said.matches("out of memory").count()), (1, 1), "{said}");
    assert!(said.contains("20.0 MiB asked; device 100.0 MiB live of 100.0 MiB held"), "{said}");
    assert!(said.contains("the largest range that the program made itself has 100.0 MiB"), "{said}");
}

/// Hazard (wrong report): a block is refused because of pieces, and the line lacks them.
#[test]
fn a_refused_block_is_told_with_the_pieces_that_are_in_its_way() {
    let scratch = Scratch::new();
    let program = c::cuda_program(&scratch, "spilled");
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch)).args(["p40", "a20", "a20"]);
    let host = host.env("SIMCUDA_MEMORY", "64MiB").env("WMSHIM_HEADROOM", "0").env("WMSHIM_OVERFLOW", "off");
    let outcome = host.run();
    assert_eq!(outcome.expect_success(), "0\n0\n2");
    for words in ["device 60.0 MiB live of 60.0 MiB held", "the largest block has 20.0 MiB"] {
        assert!(outcome.stderr.contains(words), "{words:?} is not in {}", outcome.stderr);
    }
}

/// The figures of a replay that completes.
fn replayed(segments: &Segments, trace: &Path, arguments: &[&str]) -> Value {
    let all = [&["replay", "--json", "--trace", path(trace)][..], arguments].concat();
    let figures = segments.json(&all);
    assert_eq!(figures["completed"], true, "{figures}");
    figures
}

#[test]
fn a_recording_says_what_the_program_needs() {
    let segments = Segments::new();
    let trace = segments.0.path().join("t.gz");
    let outcome = segments.run(&["20"], &[("WMSHIM_TRACE", trace.as_os_str())]);
    assert_eq!(outcome.expect_success(), "20");
    let figures = replayed(&segments, &trace, &["--find-capacity"]);
    let capacity = figures["capacity_bytes"].as_u64().expect("a size");
    assert!(capacity.abs_diff(400 * MIB) <= PIECE, "{figures}");
    assert_eq!(figures["peak_live_bytes"], 400 * MIB, "{figures}");
    let limit = ["--device-memory", "220MiB", "--overflow", "host"];
    let figures = replayed(&segments, &trace, &limit);
    assert_eq!(
        (&figures["overflow_peak_bytes"], &figures["peak_reserved_bytes"]),
        (&(180 * MIB).into(), &(400 * MIB).into())
    );
    let all = ["replay", "--json", "--trace", path(&trace), "--device-memory", "390MiB"];
    let refusal = segments.json(&all)["refusal"].as_str().expect("a refusal").to_owned();
    assert!(refusal.contains("20.0 MiB asked; device 380.0 MiB live of 380.0 MiB held"), "{refusal}");
}

/// The program makes as much again as it gave up: what was given up is gone in the recording, too,
/// also where a call failed once.
#[test]
fn a_recording_has_each_end_whatever_the_driver_refuses() {
    let segments = Segments::new();
    let trace = segments.0.path().join("t.gz");
    for failing in ["", "cuMemUnmap:2", "cuMemUnmap:6", "cuMemRelease:2", "cuMemRelease:6", "cuMemRelease:9"]
    {
        let fail = ("SIMCUDA_FAIL", failing.as_ref());
        let variables = [("WMSHIM_TRACE", trace.as_os_str()), fail];
        let variables = if failing.is_empty() { &variables[..1] } else { &variables[..] };
        assert_eq!(segments.run(&["8", "end"], variables).expect_success(), "8", "{failing}");
        for periods in ["1", "3"] {
            let limit = ["--device-memory", "160MiB", "--periods", periods];
            assert_eq!(replayed(&segments, &trace, &limit)["peak_live_bytes"], 160 * MIB, "{failing}");
        }
    }
}

/// The driver's own pool is compared with the same pieces beside it.
#[test]
fn the_baseline_has_the_pieces_too() {
    let segments = Segments::new();
    let trace = segments.0.path().join("t.gz");
    segments.run(&["4", "end"], &[("WMSHIM_TRACE", trace.as_os_str())]).expect_success();
    let figures = replayed(&segments, &trace, &["--baseline", "async"]);
    let baseline = &figures["baseline"];
    assert_eq!(
        (&baseline["completed"], &baseline["peak_reserved_bytes"]),
        (&true.into(), &(80 * MIB).into())
    );
}
