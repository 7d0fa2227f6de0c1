//! Starts the ranks of a scenario, as threads of this process or as processes, and collects their
//! results.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Instant;

use wm_driver::Table;

use crate::Arguments;
use crate::api::{Library, UniqueId};
use crate::rank::{Rank, Verdict};
use crate::scenarios::{ALL, Scenario};

/// The scenarios that have the name and fit the ranks.
pub(crate) fn chosen(arguments: &Arguments) -> Vec<&'static Scenario> {
    let named = ALL.iter().filter(|scenario| scenario.name.contains(&arguments.filter));
    named.filter(|scenario| scenario.fits(arguments)).collect()
}

/// Plays every selected scenario.
pub(crate) fn play_all(arguments: &Arguments) -> Verdict {
    let chosen = chosen(arguments);
    let mut failed = Vec::new();
    for scenario in &chosen {
        let start = Instant::now();
        let found = if arguments.threads {
            as_threads(arguments, scenario)
        } else {
            as_processes(arguments, scenario)
        };
        match found {
            Ok(()) => println!("{:<40} ok {:>8.1} s", scenario.name, start.elapsed().as_secs_f64()),
            Err(reason) => {
                println!("{:<40} FAILED\n{reason}", scenario.name);
                failed.push(scenario.name);
            }
        }
    }
    println!("{} scenarios, {} failed; {} ranks", chosen.len(), failed.len(), arguments.ranks);
    match (chosen.is_empty(), failed.is_empty()) {
        (true, _) => Err("no scenario has such a name and fits these ranks".to_owned()),
        (_, true) => Ok(()),
        _ => Err(format!("failed: {}", failed.join(", "))),
    }
}

/// Plays one rank of a scenario in this process.
pub(crate) fn be_a_rank(arguments: &Arguments, words: &[String]) -> Verdict {
    let [name, id, number] = words else { return Err("three words are needed".to_owned()) };
    let scenario = ALL.iter().find(|scenario| scenario.name == name).ok_or("no such scenario")?;
    let number = number.parse().map_err(|error| format!("{number}: {error}"))?;
    let bytes = (0..128).map(|at| u8::from_str_radix(id.get(at * 2..at * 2 + 2).unwrap_or("-"), 16));
    let bytes = bytes.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    let id = UniqueId(bytes.try_into().map_err(|_| "an id of the wrong length")?);
    play(arguments, scenario, id, number)
}

fn play(arguments: &Arguments, scenario: &Scenario, id: UniqueId, number: usize) -> Verdict {
    let driver = driver(arguments.driver.as_deref())?;
    let library = Library::open(&arguments.library)?;
    let rank = Rank::begin(library, driver, id, number, (arguments.ranks, arguments.islands))?;
    (scenario.play)(&rank)?;
    if scenario.ends_early { Ok(()) } else { rank.end() }
}

/// The driver that the library under test will also find.
fn driver(path: Option<&Path>) -> Verdict<&'static Table> {
    static DRIVER: OnceLock<Result<Table, String>> = OnceLock::new();
    let open = || {
        if let Some(path) = path {
            let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())
                .map_err(|_| "a path with a NUL")?;
            // SAFETY: a terminated path. Later requests for this library's name return it.
            let opened = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
            if opened.is_null() {
                return Err(format!("cannot open {}", path.display()));
            }
        }
        Table::of_process().map_err(|error| error.to_string())
    };
    DRIVER.get_or_init(open).as_ref().map_err(Clone::clone)
}

fn unique_id(arguments: &Arguments) -> Verdict<UniqueId> {
    let mut id = UniqueId([0; 128]);
    // SAFETY: the place is a live local.
    let code = unsafe { (Library::open(&arguments.library)?.wholememory_create_unique_id)(&mut id) };
    if code == 0 { Ok(id) } else { Err(format!("wholememory_create_unique_id gave {code}")) }
}

fn told(found: Vec<(usize, Verdict)>) -> Verdict {
    let wrong = found
        .into_iter()
        .filter_map(|(rank, verdict)| verdict.err().map(|reason| format!("    rank {rank}: {reason}")));
    let wrong: Vec<_> = wrong.collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

fn as_threads(arguments: &Arguments, scenario: &'static Scenario) -> Verdict {
    let id = unique_id(arguments)?;
    let found = thread::scope(|scope| {
        let start = |rank| (rank, scope.spawn(move || play(arguments, scenario, id, rank)));
        let threads: Vec<_> = (0..arguments.ranks).map(start).collect();
        let join = |(rank, thread): (usize, thread::ScopedJoinHandle<'_, Verdict>)| {
            (rank, thread.join().unwrap_or_else(|_| Err("panicked".to_owned())))
        };
        threads.into_iter().map(join).collect()
    });
    told(found)
}

fn as_processes(arguments: &Arguments, scenario: &Scenario) -> Verdict {
    let id: String = unique_id(arguments)?.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let start = |rank: usize| -> Verdict<Child> {
        let (program, island) =
            (std::env::current_exe().map_err(|error| error.to_string())?, rank % arguments.islands);
        let mut command = match &arguments.enter {
            None => Command::new(program),
            Some(enter) => {
                let mut command = Command::new("env");
                command.args(enter.replace("{}", &island.to_string()).split_whitespace()).arg(program);
                command
            }
        };
        command.arg("--library").arg(&arguments.library).arg("--ranks").arg(arguments.ranks.to_string());
        if let Some(driver) = &arguments.driver {
            command.arg("--driver").arg(driver);
        }
        if let Some(fault) = arguments.fault.as_ref().filter(|fault| fault.rank == rank) {
            command.env("SIMCUDA_FAIL", &fault.rule);
        }
        if arguments.islands > 1 {
            command.arg("--islands").arg(arguments.islands.to_string());
            if arguments.enter.is_none() {
                command.env("WMSHIM_WHOLEMEMORY_NODE", format!("island {island}"));
            }
        }
        command.args(["--rank", scenario.name, &id, &rank.to_string()]);
        command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(|error| error.to_string())
    };
    let children = (0..arguments.ranks).map(start).collect::<Verdict<Vec<_>>>()?;
    let wait = |(rank, child): (usize, Child)| {
        let outcome = match child.wait_with_output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => {
                Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
            }
            Err(error) => Err(error.to_string()),
        };
        (rank, outcome)
    };
    told(children.into_iter().enumerate().map(wait).collect())
}
