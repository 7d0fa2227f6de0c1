//! The command line of the suite: runs the cases, or compares the documents of two runs.
//!
//! Exit status: 0 when nothing failed or differed, 1 when something did, 2 when the command cannot
//! be carried out.
#![allow(clippy::print_stdout, reason = "a command line tool")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use conformance::cases::{self, Row};
use conformance::compare::{self, Accepted, Comparison};
use conformance::driver::{Driver, Lookup};
use conformance::fixture::process;
use conformance::report::{self, Document};
use conformance::runner::{self, Plan};

/// One suite of driver checks for the simulated driver, NVIDIA's, and either of them under the
/// shim.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The driver library: a path, or a name for the loader to search.
    #[arg(long, default_value = "libcuda.so.1")]
    driver: String,
    /// How functions are found.
    #[arg(long, value_enum, default_value = "exported")]
    lookup: Lookup,
    /// Only cases whose name contains this; may be repeated.
    #[arg(long)]
    filter: Vec<String>,
    /// Leave out cases whose name contains this; may be repeated.
    #[arg(long)]
    skip: Vec<String>,
    /// List the cases and what they guard, and run nothing.
    #[arg(long)]
    list: bool,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
    /// Print the answers that two machines share as one JSON document, and fail for nothing.
    #[arg(long)]
    observe: bool,
    /// Write the JSON document to this file besides.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Print the answers that differ between two documents.
    #[arg(long, num_args = 2, value_names = ["FIRST", "SECOND"])]
    compare: Option<Vec<PathBuf>>,
    /// With --compare: both documents were made on one machine, so its sizes and names must agree
    /// too.
    #[arg(long, requires = "compare")]
    same_machine: bool,
    /// With --compare: leave out the differences that this file lists as meant.
    #[arg(long, requires = "compare", value_name = "FILE")]
    accept: Option<PathBuf>,
    /// How many cases run at a time.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// The longest that one case may take, in seconds.
    #[arg(long, default_value_t = 60)]
    limit: u64,
    #[arg(long, hide = true)]
    case: Option<String>,
    #[arg(long, hide = true)]
    role: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match execute(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn execute(arguments: &Arguments) -> Result<bool> {
    if let Some(files) = &arguments.compare {
        return compare(&files[0], &files[1], arguments);
    }
    if let Some(name) = &arguments.case {
        return run_case(name, arguments);
    }
    if let Some(role) = &arguments.role {
        return play(role, arguments);
    }
    let rows = chosen(arguments);
    if rows.is_empty() {
        bail!("no case has such a name; --list shows all");
    }
    if arguments.list {
        rows.iter().for_each(|row| println!("{:<44} {}", row.name, row.guards));
        return Ok(true);
    }
    run(arguments, &rows)
}

fn chosen(arguments: &Arguments) -> Vec<&'static Row> {
    let named = |words: &[String], row: &Row| words.iter().any(|word| row.name.contains(&**word));
    let wanted = |row: &&Row| arguments.filter.is_empty() || named(&arguments.filter, row);
    cases::CASES.iter().filter(wanted).filter(|row| !named(&arguments.skip, row)).collect()
}

fn run(arguments: &Arguments, rows: &[&Row]) -> Result<bool> {
    // Opened here as well, so that a wrong path is one clear message and not a failure of every
    // case.
    Driver::open(&arguments.driver, arguments.lookup)?;
    let plan = Plan {
        program: std::env::current_exe().context("cannot find this program")?,
        driver: arguments.driver.clone(),
        lookup: arguments.lookup,
        limit: Duration::from_secs(arguments.limit),
        threads: arguments.threads,
    };
    let quiet = arguments.json || arguments.observe;
    let cases = runner::run(&plan, rows, |finished| {
        if !quiet {
            println!("{}", report::line(finished));
        }
    });
    if !quiet {
        println!("{}", report::summary(&cases));
    }
    let passed = arguments.observe || !report::any_failed(&cases);
    let document = Document { version: 1, driver: arguments.driver.clone(), cases };
    publish(arguments, document)?;
    Ok(passed)
}

fn publish(arguments: &Arguments, mut document: Document) -> Result<()> {
    if arguments.observe {
        document.make_portable();
    }
    let text = document.text()?;
    if let Some(file) = &arguments.save {
        fs::write(file, &text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if arguments.json || arguments.observe {
        print!("{text}");
    }
    Ok(())
}

fn run_case(name: &str, arguments: &Arguments) -> Result<bool> {
    let row = cases::CASES.iter().find(|row| row.name == name);
    let row = row.with_context(|| format!("there is no case {name:?}; --list shows all"))?;
    let driver = Driver::open(&arguments.driver, arguments.lookup)?;
    process::remember(&arguments.driver, arguments.lookup);
    let record = runner::run_here(row, driver, tell);
    tell(&record);
    Ok(true)
}

/// Standard output is line buffered: earlier answers have left the process before it can crash.
fn tell(what: &impl serde::Serialize) {
    println!("{}", serde_json::to_string(what).expect("records hold plain values"));
}

fn play(role: &str, arguments: &Arguments) -> Result<bool> {
    let driver = Driver::open(&arguments.driver, arguments.lookup)?;
    let role = cases::ROLES.iter().find(|known| known.name == role);
    process::play(role.context("there is no such role")?, driver)?;
    Ok(true)
}

fn compare(first: &Path, second: &Path, arguments: &Arguments) -> Result<bool> {
    let how = Comparison { machine: arguments.same_machine };
    let differences = compare::compare(&document(first)?, &document(second)?, how);
    let accepted = arguments.accept.as_deref().map_or_else(|| Ok(String::new()), read)?;
    let accepted = Accepted::parse(&accepted)?;
    for row in accepted.outdated(&differences) {
        eprintln!("conformance: no longer differs, and can leave the list: {row}");
    }
    let differences = accepted.remove_from(differences);
    println!("{}", compare::table(&differences));
    Ok(differences.is_empty())
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn document(file: &Path) -> Result<Document> {
    serde_json::from_str(&read(file)?)
        .with_context(|| format!("{} is not a document of this suite", file.display()))
}
