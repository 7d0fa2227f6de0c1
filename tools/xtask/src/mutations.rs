//! `cargo xtask mutations`: breaks one rule of docs/dev/ordering.md at a time, and sees whether the
//! oracle finds it.
//!
//! Each patch of tools/oracle/mutations has the broken rule in its first line, and the oracle's
//! options in its second. It is applied to a copy of the tracked files, in the target folder; the
//! working tree is never touched. A patch that no longer applies is an error. Whether all do is
//! also a test of the oracle's.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::step;

/// Which mutations to try, and how hard.
#[derive(clap::Args)]
pub(crate) struct MutationsArguments {
    /// Only those that have one of these in their names
    names: Vec<String>,
    /// Programs that the oracle may draw for each
    #[arg(long, default_value_t = 3000)]
    programs: u64,
    /// Its first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Programs that run side by side
    #[arg(long, default_value_t = 2)]
    jobs: u64,
}

/// One rule, broken.
struct Mutation {
    name: String,
    patch: PathBuf,
    title: String,
    options: Vec<String>,
}

/// The result of one mutation.
struct MutationResult {
    title: String,
    options: String,
    programs: String,
    fault: String,
}

/// Tries each mutation, and shows a table. Fails if one was not found.
pub(crate) fn run(arguments: &MutationsArguments) -> Result<()> {
    let wanted = |mutation: &Mutation| {
        arguments.names.is_empty() || arguments.names.iter().any(|name| mutation.name.contains(name))
    };
    let mutations: Vec<Mutation> = mutations()?.into_iter().filter(wanted).collect();
    let build = step::cargo(&["build", "-p", "oracle", "-p", "simcuda", "-p", "wmshim"]);
    step::run("the oracle, its driver, and the library as it is", build)?;
    let bench = Bench::new()?;
    let mut rows = Vec::new();
    for mutation in &mutations {
        let row = bench.try_one(mutation, arguments).with_context(|| mutation.name.clone())?;
        println!("    {}: {} programs, {}", mutation.name, row.programs, row.fault);
        rows.push(row);
    }
    show(&rows);
    let missed = rows.iter().filter(|row| row.fault == NOTHING).count();
    if missed > 0 { bail!("{missed} of {} mutations were not found", rows.len()) } else { Ok(()) }
}

const NOTHING: &str = "not found";

fn mutations() -> Result<Vec<Mutation>> {
    let folder = crate::root().join("tools/oracle/mutations");
    let mut patches: Vec<PathBuf> = std::fs::read_dir(&folder)
        .with_context(|| folder.display().to_string())?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    patches.sort();
    patches.into_iter().map(read).collect()
}

fn read(patch: PathBuf) -> Result<Mutation> {
    let text = std::fs::read_to_string(&patch)?;
    let mut lines = text.lines();
    let title = lines.next().unwrap_or_default().trim_end_matches('.').to_owned();
    let options = lines.next().and_then(|line| line.strip_prefix("Options:"));
    let options = options.with_context(|| format!("{}: no line with options", patch.display()))?;
    let options = options.split_whitespace().map(str::to_owned).collect();
    let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Mutation { name, patch, title, options })
}

/// A copy of the sources, and its build.
struct Bench {
    tree: PathBuf,
    target: PathBuf,
    /// Where the oracle lies.
    built: PathBuf,
}

impl Bench {
    fn new() -> Result<Self> {
        let target = crate::target()?;
        let folder = target.join("mutations");
        let bench =
            Self { tree: folder.join("tree"), target: folder.join("target"), built: target.join("debug") };
        std::fs::create_dir_all(&bench.tree)?;
        let prefix = format!("--prefix={}/", bench.tree.display());
        step::run("a copy", step::command("git", &["checkout-index", "--all", "--force", &prefix]))?;
        Ok(bench)
    }

    fn try_one(&self, mutation: &Mutation, arguments: &MutationsArguments) -> Result<MutationResult> {
        self.apply(mutation, &[])?;
        let begin = Instant::now();
        let found = self.build().and_then(|()| self.oracle(mutation, arguments));
        self.apply(mutation, &["--reverse"])?;
        let found = found?;
        println!("==> {}: {:.0} s", mutation.name, begin.elapsed().as_secs_f64());
        let fault = found["failed"][0]["fault"].as_str();
        let kind = fault.and_then(|fault| fault.split(':').next()).unwrap_or(NOTHING);
        if fault.is_some() {
            self.is_right_unbroken(mutation, &found["failed"][0]["programs"])?;
        }
        Ok(MutationResult {
            title: mutation.title.clone(),
            options: mutation.options.join(" "),
            programs: found["programs"].to_string(),
            fault: kind.to_owned(),
        })
    }

    fn apply(&self, mutation: &Mutation, arguments: &[&str]) -> Result<()> {
        let mut git = Command::new("git");
        git.current_dir(&self.tree).arg("apply").args(arguments).arg(&mutation.patch);
        // The copy is no repository, and paths begin in it.
        git.env("GIT_CEILING_DIRECTORIES", self.tree.parent().unwrap_or(Path::new("/")));
        step::output(git).map(drop)
    }

    fn build(&self) -> Result<()> {
        let mut cargo = step::cargo(&["build", "--quiet", "--package", "wmshim", "--target-dir"]);
        cargo.arg(&self.target).current_dir(&self.tree).env("RUSTFLAGS", "-Awarnings");
        step::output(cargo).map(drop)
    }

    /// A failure counts as the mutation's only if the unbroken library passes the same programs.
    fn is_right_unbroken(&self, mutation: &Mutation, programs: &Value) -> Result<()> {
        let saved = self.tree.with_file_name("found.json");
        std::fs::write(&saved, programs.to_string())?;
        let mut command = self.command(&self.built, mutation);
        let output = command.arg("--program").arg(&saved).output()?;
        if !output.status.success() {
            bail!("the library as it is fails too: {}", saved.display());
        }
        Ok(())
    }

    /// The oracle, for a library in a folder.
    fn command(&self, library: &Path, mutation: &Mutation) -> Command {
        let mut command = Command::new(self.built.join("oracle"));
        command.args(["--json", "--no-shrink", "--simulated"]).arg(self.built.join("libsimcuda.so"));
        command.arg("--library").arg(library.join("libwmshim.so")).args(&mutation.options);
        command
    }

    fn oracle(&self, mutation: &Mutation, arguments: &MutationsArguments) -> Result<Value> {
        let mut command = self.command(&self.target.join("debug"), mutation);
        let numbers =
            [("--programs", arguments.programs), ("--seed", arguments.seed), ("--jobs", arguments.jobs)];
        numbers.iter().for_each(|(name, number)| {
            command.args([*name, &number.to_string()]);
        });
        let output = command.stderr(Stdio::null()).output()?;
        // 1 says that something was found.
        if !matches!(output.status.code(), Some(0 | 1)) {
            bail!("the oracle could not run: {}", output.status);
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// A table as docs/dev/testing.md has it.
fn show(rows: &[MutationResult]) {
    let wide = |cell: fn(&MutationResult) -> &str, least: usize| {
        rows.iter().map(|row| cell(row).len()).chain([least]).max().unwrap_or(least)
    };
    let (titles, options) = (wide(|row| &row.title, 8), wide(|row| &row.options, 7));
    println!("\n| {:titles$} | {:options$} | {:>8} | {:11} |", "mutation", "options", "programs", "fault");
    println!(
        "|{}|{}|{}|{}|",
        "-".repeat(titles + 2),
        "-".repeat(options + 2),
        "-".repeat(10),
        "-".repeat(13)
    );
    for MutationResult { title, options: given, programs, fault } in rows {
        println!("| {title:titles$} | {given:options$} | {programs:>8} | {fault:11} |");
    }
}
