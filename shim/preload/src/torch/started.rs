//! Which program a Python process is about to run, and whether that is one which PyTorch's defaults
//! are left to.
//!
//! Nothing has run yet, so the files are read: the started program, by Python's own rules for its
//! command line, and the modules that it imports from the folders beside it and from `PYTHONPATH`,
//! directly or through others. Installed packages are too many to be read. There it counts that an
//! engine which passes addresses of tensors between processes is installed at all: a library that
//! is imported may start it.
//!
//! A guess is allowed to be wrong: it costs memory that is packed less well, and no program. If the
//! engine is not seen, handles of PyTorch's segments are served (`hooks/memory/sharing.rs`).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use wm_trust::environment;

/// Programs for which PyTorch's defaults stay, by a component of the command's first words, or by
/// an imported module.
const PROGRAMS: &[(&str, &str)] = &[
    ("vllm", "vllm passes addresses of tensors between processes"),
    ("sglang", "sglang passes addresses of tensors between processes"),
    ("ray", "ray passes tensors between processes"),
    ("lmdeploy", "lmdeploy passes addresses of tensors between processes"),
    ("trl", "trl runs vllm in its processes"),
    ("verl", "verl runs vllm or sglang in its processes"),
    ("openrlhf", "openrlhf runs vllm beside its processes"),
];

/// Those of them that are seldom installed and not run.
const ENGINES: &[&str] = &["vllm", "sglang", "lmdeploy"];

const INSTALLED: &str = "an engine that passes addresses of tensors between processes is installed";

/// A file is read no further than this, and no more files than this are.
const LARGEST_FILE: u64 = 1 << 20;
const MOST_FILES: usize = 200;

/// The code that Python was told to run.
#[derive(Debug, PartialEq, Eq)]
enum StartedCode<'a> {
    Text(&'a str),
    Module(&'a str),
    File(&'a str),
}

/// Why PyTorch's defaults are left to this program; `None`: it is none of those.
pub(super) fn reason(command: &[String]) -> Option<&'static str> {
    let named = named(command);
    let is_there = || is_any_on_path(command) || is_any_installed(command);
    named.or_else(|| imported(command)).or_else(|| is_there().then_some(INSTALLED))
}

/// The text of the code that Python was told to run.
pub(super) fn text(command: &[String]) -> String {
    match started(command) {
        Some(StartedCode::Text(text)) => text.to_owned(),
        Some(StartedCode::File(file)) => read(&main_of(Path::new(file))).unwrap_or_default(),
        _ => String::new(),
    }
}

/// The reason of the first row whose program is started: `vllm serve`, `python -m vllm...`,
/// `.../bin/sglang`.
fn named(command: &[String]) -> Option<&'static str> {
    let words: Vec<_> = command.iter().take(3).flat_map(|word| word.split(['/', '.'])).collect();
    PROGRAMS.iter().find(|(name, _)| words.contains(name)).map(|(_, reason)| *reason)
}

/// By Python's command line: options, then the code to run.
fn started(command: &[String]) -> Option<StartedCode<'_>> {
    let mut words = command.iter().skip(1).map(String::as_str);
    while let Some(word) = words.next() {
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            return Some(StartedCode::File(word));
        };
        if letters.starts_with('-') {
            if letters == "-check-hash-based-pycs" {
                words.next();
            }
            continue;
        }
        // Letters of flags in a row, of which the last one may have a value, here or in the next
        // word.
        let Some(at) = letters.find(['c', 'm', 'W', 'X']) else { continue };
        let value = Some(&letters[at + 1..]).filter(|rest| !rest.is_empty()).or_else(|| words.next())?;
        match &letters[at..=at] {
            "c" => return Some(StartedCode::Text(value)),
            "m" => return Some(StartedCode::Module(value)),
            _ => {}
        }
    }
    None
}

/// The reason of the first row that the started code imports, directly or through its modules.
fn imported(command: &[String]) -> Option<&'static str> {
    let mut search = ModuleSearch::new(command);
    match started(command) {
        Some(StartedCode::Text(text)) => search.scan(text, Path::new(".")),
        Some(StartedCode::Module(module)) => {
            search.queue_module(module);
            search.queue_module(&format!("{module}.__main__"));
            None
        }
        Some(StartedCode::File(file)) => {
            search.queue.push(main_of(Path::new(file)));
            None
        }
        None => None,
    }
    .or_else(|| {
        // A launcher's script: `python -m torch.distributed.run train.py`.
        search.queue.extend(command.iter().skip(1).find(|word| word.ends_with(".py")).map(PathBuf::from));
        search.run()
    })
}

/// Files that are to be read, and the folders in which Python looks for modules that are not
/// installed.
struct ModuleSearch {
    folders: Vec<PathBuf>,
    queue: Vec<PathBuf>,
    seen: HashSet<PathBuf>,
}

impl ModuleSearch {
    fn new(command: &[String]) -> Self {
        Self { folders: search_path(command), queue: Vec::new(), seen: HashSet::new() }
    }

    fn run(&mut self) -> Option<&'static str> {
        while let Some(file) = self.queue.pop() {
            if self.seen.len() >= MOST_FILES || !self.seen.insert(file.clone()) {
                continue;
            }
            let found = read(&file).and_then(|text| self.scan(&text, &folder_of(&file)));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The reason of the first row that a text imports. The modules that it imports from folders
    /// that are searched are queued.
    fn scan(&mut self, text: &str, here: &Path) -> Option<&'static str> {
        for module in imports(text) {
            let top = module.split('.').next();
            if let Some((_, reason)) = PROGRAMS.iter().find(|(name, _)| Some(*name) == top) {
                return Some(reason);
            }
            match module.strip_prefix('.') {
                Some(relative) => self.queue_relative(here, relative),
                None => self.queue_module(&module),
            }
        }
        None
    }

    fn queue_module(&mut self, module: &str) {
        for folder in self.folders.clone() {
            self.queue_in(&folder, module);
        }
    }

    /// `relative` is the text behind the first dot; each further dot is one folder up.
    fn queue_relative(&mut self, here: &Path, relative: &str) {
        let name = relative.trim_start_matches('.');
        let folder = here.ancestors().nth(relative.len() - name.len());
        folder.into_iter().for_each(|folder| self.queue_in(folder, name));
    }

    /// A module, and the packages that it is in.
    fn queue_in(&mut self, folder: &Path, module: &str) {
        let mut place = folder.to_path_buf();
        for name in module.split('.').filter(|name| !name.is_empty()) {
            place.push(name);
            let files = [place.with_extension("py"), place.join("__init__.py")];
            let there: Vec<_> = files.into_iter().filter(|file| file.is_file()).collect();
            if there.is_empty() && !place.is_dir() {
                return;
            }
            self.queue.extend(there);
        }
    }
}

/// The modules that a text's statements import, wherever they stand: `a.b`, `.a` for one beside it.
/// Of `from a import b` both `a` and `a.b`, for either may be one.
fn imports(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for statement in text.lines().flat_map(|line| line.split([';', ':'])).map(str::trim_start) {
        if let Some(list) = statement.strip_prefix("import ") {
            found.extend(names(list).map(str::to_owned));
        } else if let Some((from, list)) =
            statement.strip_prefix("from ").and_then(|rest| rest.split_once(" import"))
        {
            let (from, dot) = (from.trim(), if from.trim().ends_with('.') { "" } else { "." });
            found.push(from.to_owned());
            found.extend(names(list).map(|name| format!("{from}{dot}{name}")));
        }
    }
    found
}

/// The names in a list such as `a.b as c, d`.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter_map(|part| {
        let part = part.trim_matches(|letter: char| letter.is_whitespace() || "()\\".contains(letter));
        part.split_whitespace().next()
    })
}

/// The folders in which Python looks before those of installed packages: that of the program, and
/// `PYTHONPATH`.
fn search_path(command: &[String]) -> Vec<PathBuf> {
    let own = match started(command) {
        Some(StartedCode::File(file)) => Some(folder_of(&main_of(Path::new(file)))),
        Some(_) => Some(".".into()),
        None => None,
    };
    let path = environment::variable("PYTHONPATH").unwrap_or_default();
    let named = std::env::split_paths(&path).filter(|folder| !folder.as_os_str().is_empty());
    own.into_iter().chain(named).collect()
}

/// Is one of the engines in these folders?
fn is_any_on_path(command: &[String]) -> bool {
    search_path(command).iter().any(|folder| has_engine(folder))
}

/// Is one of the engines installed for this interpreter?
fn is_any_installed(command: &[String]) -> bool {
    let started = command.first().and_then(|program| located(program)).unwrap_or_default();
    let real = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    packages(&started, &real).iter().any(|folder| has_engine(folder))
}

/// A folder has a package, or the notes of an installation that is elsewhere: `vllm`,
/// `vllm-0.11.dist-info`, `vllm.egg-link`.
fn has_engine(folder: &Path) -> bool {
    let is_engine = |name: &OsStr| {
        let name = name.to_string_lossy();
        let rests = ENGINES.iter().filter_map(|engine| name.strip_prefix(engine));
        rests.into_iter().any(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
    };
    std::fs::read_dir(folder)
        .is_ok_and(|entries| entries.flatten().any(|entry| is_engine(&entry.file_name())))
}

/// Where packages are installed for an interpreter that was started by one name and is another
/// file.
fn packages(started: &Path, real: &Path) -> Vec<PathBuf> {
    let prefix = |program: &Path| program.parent().and_then(Path::parent).map(Path::to_path_buf);
    let environment = prefix(started).and_then(|folder| Some((read(&folder.join("pyvenv.cfg"))?, folder)));
    let is_alone = |(settings, _): &(String, PathBuf)| {
        !settings.lines().any(|line| line.replace(' ', "") == "include-system-site-packages=true")
    };
    let mut prefixes = Vec::new();
    if !environment.as_ref().is_some_and(is_alone) {
        prefixes.extend(prefix(real));
        prefixes.push("/usr/local".into());
        prefixes.extend(environment::variable("HOME").map(|home| Path::new(&home).join(".local")));
    }
    prefixes.extend(environment.map(|(_, folder)| folder));
    let version = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    prefixes.iter().flat_map(|prefix| in_prefix(prefix, &version)).collect()
}

/// `version` is the interpreter's name, `python3.12`; one without a version may have any.
fn in_prefix(prefix: &Path, version: &str) -> Vec<PathBuf> {
    let fits = |name: &str| {
        let is_python = name.starts_with("python") || name.starts_with("pypy");
        is_python && (!version.contains('.') || name == version || name == "python3")
    };
    let libraries = ["lib", "lib64"].into_iter().filter_map(|name| std::fs::read_dir(prefix.join(name)).ok());
    let folders = libraries
        .flat_map(|entries| entries.flatten())
        .filter(|entry| fits(&entry.file_name().to_string_lossy()));
    folders.flat_map(|entry| ["site-packages", "dist-packages"].map(|name| entry.path().join(name))).collect()
}

/// The file of a program, as a shell finds it.
fn located(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(program.into());
    }
    let path = environment::variable("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// A folder is run by its `__main__.py`.
fn main_of(file: &Path) -> PathBuf {
    if file.is_dir() { file.join("__main__.py") } else { file.to_path_buf() }
}

fn folder_of(file: &Path) -> PathBuf {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_path_buf()
}

fn read(file: &Path) -> Option<String> {
    let is_small = std::fs::metadata(file).is_ok_and(|it| it.is_file() && it.len() <= LARGEST_FILE);
    let text = is_small.then(|| std::fs::read(file).ok()).flatten()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    //! Hazard (API conformance): a program that ran before does not run with the back end chosen
    //! for it.
    use super::*;

    fn command(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn every_row_is_recognised_however_it_is_started() {
        for (name, reason) in PROGRAMS {
            for line in [vec!["python3", "-m", name], vec!["python", &format!("/opt/bin/{name}"), "serve"]] {
                assert_eq!(named(&command(&line)), Some(*reason), "{line:?}");
            }
        }
        assert_eq!(named(&command(&["python3", "train.py", "--ray"])), None);
    }

    #[test]
    fn every_row_is_recognised_where_it_is_imported() {
        let found = |text: &str| ModuleSearch::new(&[]).scan(text, Path::new("/nowhere"));
        for (name, reason) in PROGRAMS {
            for line in [
                format!("import {name}"),
                format!("    from {name}.x import y"),
                format!("import {name}.x as z"),
                format!("import os, {name}"),
                format!("try: import {name}"),
                format!("x = 2; from {name} import (y,"),
            ] {
                assert_eq!(found(&format!("x = 1\n{line}\n")), Some(*reason), "{line}");
            }
        }
        assert_eq!(
            found("import torch\n# import vllm\nimport rays\nvllm = 'from ray'\nfrom .ray import x\n"),
            None
        );
    }

    #[test]
    fn what_is_started_is_found_behind_any_options() {
        for (words, expected) in [
            (&["-u", "x.py", "-m", "y"][..], StartedCode::File("x.py")),
            (&["-W", "ignore", "-Xdev", "./tool", "-c"], StartedCode::File("./tool")),
            (&["-um", "package.module", "x.py"], StartedCode::Module("package.module")),
            (&["-Im", "m"], StartedCode::Module("m")),
            (&["-ucimport x", "y"], StartedCode::Text("import x")),
            (&["--check-hash-based-pycs", "never", "-c", "1"], StartedCode::Text("1")),
        ] {
            let words = [&["python3"][..], words].concat();
            assert_eq!(started(&command(&words)), Some(expected), "{words:?}");
        }
        assert_eq!(started(&command(&["python3", "-i"])), None);
    }

    #[test]
    fn of_an_import_all_that_may_be_a_module_is_named() {
        let text = "import a.b as c, d\nfrom e.f import g, h as i\nfrom . import j\nfrom ..k import (l)\n";
        let expected = ["a.b", "d", "e.f", "e.f.g", "e.f.h", ".", ".j", "..k", "..k.l"];
        assert_eq!(imports(text), expected);
    }
}
