//! The node's file, `/etc/wmshim.toml`: root's settings for all programs of a machine.
//!
//! ```toml
//! [defaults]
//! overflow = "off"
//! [ceilings]
//! device_limit = "40GiB"
//! ```
//!
//! The form is a part of TOML: comments, sections, and pairs of a bare name and a text, a whole
//! number, `true` or `false`. What is read without a fault is TOML and means the same there. A
//! wrong line costs itself alone, because a typing error must not undo the ceilings of a node. A
//! library for TOML refuses a file as a whole, so this reader is our own (ADR 0041).
//!
//! The file counts if it is root's and no other user can write it. It is read once and never
//! followed through a link. Its path is fixed: a variable that named another file would undo the
//! ceilings.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

use crate::{file, user};

/// The node's file.
pub const PATH: &str = "/etc/wmshim.toml";

/// A longer file is not read.
const LONGEST: usize = 64 << 10;

/// What the file says.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct NodeFile {
    /// Values where a program sets none.
    pub defaults: Vec<NodeEntry>,
    /// The most that programs may set.
    pub ceilings: Vec<NodeEntry>,
    /// Lines that have no effect.
    pub faults: Vec<NodeFault>,
}

/// A name and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEntry {
    /// Where it is, from 1.
    pub line: usize,
    /// The setting, as in `device_limit`.
    pub name: String,
    /// The value as a variable has it.
    pub value: String,
}

/// Why a line, or the file, has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFault {
    /// The line, from 1; 0 for the file.
    pub line: usize,
    /// Completes "line 7 ...".
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Defaults,
    Ceilings,
    Unknown,
}

impl NodeFile {
    /// Reads a file. `None`: there is none.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let fault = |why: String| Self {
            faults: vec![NodeFault { line: 0, why: format!("{why}: it has no effect") }],
            ..Self::default()
        };
        let bytes = match open(path).and_then(|file| file::beginning(&file, LONGEST + 1)) {
            Ok(bytes) if bytes.len() > LONGEST => {
                return Some(fault(format!("is longer than {LONGEST} bytes")));
            }
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => return Some(fault(reason(&error))),
        };
        let parsed = String::from_utf8(bytes).map(|text| Self::parse(&text));
        Some(parsed.unwrap_or_else(|_| fault("is not text".to_owned())))
    }

    /// Reads the text of a file.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let (mut read, mut section, mut seen) = (Self::default(), None, Vec::new());
        for (line, text) in (1..).zip(text.lines()) {
            let outcome = match statement(text) {
                Ok(Statement::Nothing) => Ok(()),
                Ok(Statement::Header(name)) => {
                    section = Some(Section::named(name));
                    let is_new = !seen.contains(&name);
                    seen.push(name);
                    section_fault(name, section, is_new)
                }
                Ok(Statement::Pair(name, value)) => read.add(section, line, name, value),
                Err(why) => Err(why.to_owned()),
            };
            let Err(why) = outcome else { continue };
            // A text of several lines, which may look like pairs.
            if ["\"\"\"", "'''"].iter().any(|quotes| text.contains(quotes)) {
                let why = "begins a text of several lines, and the rest is not read".to_owned();
                read.faults.push(NodeFault { line, why });
                break;
            }
            read.faults.push(NodeFault { line, why });
        }
        read
    }

    /// The default of a setting, by its name in the file.
    #[must_use]
    pub fn default_of(&self, name: &str) -> Option<&str> {
        self.defaults.iter().find(|entry| entry.name == name).map(|entry| entry.value.as_str())
    }

    fn add(
        &mut self,
        section: Option<Section>,
        line: usize,
        name: &str,
        value: String,
    ) -> Result<(), String> {
        let entries = match section {
            Some(Section::Defaults) => &mut self.defaults,
            Some(Section::Ceilings) => &mut self.ceilings,
            Some(Section::Unknown) => return Err("stands in a section that is not known".to_owned()),
            None => return Err("stands before [defaults] and [ceilings]".to_owned()),
        };
        if let Some(earlier) = entries.iter().find(|entry| entry.name == name) {
            return Err(format!("says {name} again, after line {}", earlier.line));
        }
        entries.push(NodeEntry { line, name: name.to_owned(), value });
        Ok(())
    }
}

impl Section {
    fn named(name: &str) -> Self {
        match name {
            "defaults" => Self::Defaults,
            "ceilings" => Self::Ceilings,
            _ => Self::Unknown,
        }
    }
}

fn section_fault(name: &str, section: Option<Section>, is_new: bool) -> Result<(), String> {
    if section == Some(Section::Unknown) {
        return Err(format!("begins a section {name}; there are [defaults] and [ceilings]"));
    }
    if is_new { Ok(()) } else { Err(format!("begins {name} again")) }
}

/// A file of root's that no other user can write. In a user namespace root may have no number: the
/// file then belongs to *some* user without one, and lies in `/etc` because the namespace's owner
/// has put it there.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(CWD, path, flags, Mode::empty())?);
    let status = file.metadata()?;
    let is_roots = status.uid() == 0 || !user::is_one(status.uid());
    if status.is_file() && is_roots && status.mode() & 0o022 == 0 {
        return Ok(file);
    }
    Err(io::Error::other("is not a plain file of root's that no other user can write"))
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        None => error.to_string(),
        Some(libc::ELOOP) => "is a link".to_owned(),
        Some(_) => format!("cannot be read ({error})"),
    }
}

enum Statement<'a> {
    Nothing,
    Header(&'a str),
    Pair(&'a str, String),
}

const BLANK: [char; 2] = [' ', '\t'];

fn statement(line: &str) -> Result<Statement<'_>, &'static str> {
    if line.chars().any(|character| character.is_control() && character != '\t') {
        return Err("has a control character");
    }
    let line = line.trim_matches(BLANK);
    if line.is_empty() || line.starts_with('#') {
        return Ok(Statement::Nothing);
    }
    if let Some(rest) = line.strip_prefix('[') {
        let (name, rest) = rest.split_once(']').ok_or("has no ]")?;
        let name = name.trim_matches(BLANK);
        return if is_bare(name) && is_over(rest) {
            Ok(Statement::Header(name))
        } else {
            Err("is no section such as [defaults]")
        };
    }
    let (name, value) = line.split_once('=').ok_or("is no pair such as device_limit = \"40GiB\"")?;
    let name = name.trim_matches(BLANK);
    if !is_bare(name) {
        return Err("has no name of letters, digits, _ and - before the =");
    }
    let (value, rest) = value_of(value.trim_start_matches(BLANK))?;
    if is_over(rest) { Ok(Statement::Pair(name, value)) } else { Err("has more than a value after the =") }
}

fn is_bare(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Is the rest of a line a comment, or nothing?
fn is_over(rest: &str) -> bool {
    let rest = rest.trim_start_matches(BLANK);
    rest.is_empty() || rest.starts_with('#')
}

/// The value that a text begins with, and the text behind it.
fn value_of(text: &str) -> Result<(String, &str), &'static str> {
    if let Some(rest) = text.strip_prefix('\'') {
        let (value, rest) = rest.split_once('\'').ok_or("has no closing quote")?;
        return Ok((value.to_owned(), rest));
    }
    if let Some(rest) = text.strip_prefix('"') {
        return quoted(rest);
    }
    let end = text.find(|character: char| BLANK.contains(&character) || character == '#');
    let (word, rest) = text.split_at(end.unwrap_or(text.len()));
    let is_number = word == "0" || (!word.starts_with('0') && word.bytes().all(|byte| byte.is_ascii_digit()));
    // TOML's numbers end with those of 64 bits.
    let is_whole = is_number && word.parse::<i64>().is_ok();
    if is_whole || word == "true" || word == "false" {
        return Ok((word.to_owned(), rest));
    }
    Err("has a value that is no text in quotes, no whole number, not true and not false")
}

/// A text behind its opening quote.
fn quoted(text: &str) -> Result<(String, &str), &'static str> {
    let (mut value, mut rest) = (String::new(), text.chars());
    loop {
        match rest.next().ok_or("has no closing quote")? {
            '"' => return Ok((value, rest.as_str())),
            '\\' => value.push(match rest.next() {
                Some(plain @ ('"' | '\\')) => plain,
                Some('t') => '\t',
                _ => return Err("has a \\ before another character than \\, \" and t"),
            }),
            plain => value.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (error handling): a line is read as another one, or a wrong line ends a program, or
    //! undoes the others. Hazard (privilege boundary): another user's file counts.
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::process::{Command, Stdio};

    fn pairs(entries: &[NodeEntry]) -> Vec<(usize, &str, &str)> {
        entries.iter().map(|entry| (entry.line, entry.name.as_str(), entry.value.as_str())).collect()
    }

    const GOOD: &str = "# a node\n\n[defaults] # of all\n  overflow = \"host,peer\"   # both\nmigrate=true\n\
        dedup_proof = 64\r\nlog = 'info'\nbroker = \"/a \\\"b\\\\\\t#\"\n[ ceilings ]\ndevice_limit\t=\t\"40GiB\"\n";

    #[test]
    fn a_good_file_is_read_as_toml_reads_it() {
        let read = NodeFile::parse(GOOD);
        assert_eq!(read.faults, []);
        assert_eq!(
            pairs(&read.defaults),
            [
                (4, "overflow", "host,peer"),
                (5, "migrate", "true"),
                (6, "dedup_proof", "64"),
                (7, "log", "info"),
                (8, "broker", "/a \"b\\\t#"),
            ]
        );
        assert_eq!(pairs(&read.ceilings), [(10, "device_limit", "40GiB")]);
        assert_eq!((read.default_of("log"), read.default_of("device_limit")), (Some("info"), None));
    }

    #[test]
    fn a_wrong_line_costs_itself_alone() {
        let wrong = [
            "x",
            "= 1",
            "a b = 1",
            "a.b = 1",
            "\"a\" = 1",
            "a =",
            "a = 1 2",
            "a = b",
            "a = \"b",
            "a = 'b",
            "a = \"\\q\"",
            "a = \"\\",
            "a = 1.5",
            "a = 01",
            "a = +1",
            "a = [1]",
            "a = 99999999999999999999",
            "[defaults",
            "[a.b]",
            "[[defaults]]",
            "[]",
            "[defaults] x",
            "a = \"\u{7}\"",
            "# \u{7f}",
            "a\u{a0}= 1",
        ];
        for line in wrong {
            let read = NodeFile::parse(&format!("[defaults]\nlog = \"info\"\n{line}\ndedup = 'on'\n"));
            assert_eq!(read.faults.iter().map(|fault| fault.line).collect::<Vec<_>>(), [3], "{line}");
            assert_eq!(pairs(&read.defaults), [(2, "log", "info"), (4, "dedup", "on")], "{line}");
        }
    }

    #[test]
    fn what_stands_in_no_section_or_twice_has_no_effect() {
        let read = NodeFile::parse("a = 1\n[else]\nb = 2\n[defaults]\nc = 3\nc = 4\n[defaults]\nd = 5\n");
        assert_eq!(read.faults.iter().map(|fault| fault.line).collect::<Vec<_>>(), [1, 2, 3, 6, 7]);
        assert_eq!(pairs(&read.defaults), [(5, "c", "3"), (8, "d", "5")]);
    }

    #[test]
    fn lines_of_a_text_of_several_lines_are_not_taken_for_pairs() {
        for quotes in ["\"\"\"", "'''"] {
            let read =
                NodeFile::parse(&format!("[defaults]\na = {quotes}\nlog = \"off\"\n{quotes}\nb = 1\n"));
            assert_eq!(read.defaults, [], "{quotes}");
            assert_eq!(read.faults.iter().map(|fault| fault.line).collect::<Vec<_>>(), [2], "{quotes}");
            assert_eq!(NodeFile::parse(&format!("# {quotes}\n[defaults]\na = 1\n")).faults, []);
        }
    }

    /// Random texts of `count` parts that mean something.
    fn texts(count: usize) -> impl Iterator<Item = String> {
        const PARTS: [&str; 20] = [
            "[", "]", "=", "\"", "'", "\\", "#", "\n", "a", "é", " ", "\t", "\r\n", "0", "7", "true", "\\t",
            "\\\"", "\"\"", "'x'",
        ];
        let mut state = 1_u64;
        std::iter::repeat_with(move || {
            let mut part = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                PARTS[(state >> 33) as usize % PARTS.len()]
            };
            (0..count).map(|_| part()).collect()
        })
    }

    #[test]
    fn no_text_ends_the_reader() {
        for text in texts(12).take(20_000) {
            let read = NodeFile::parse(&text);
            assert!(read.faults.iter().all(|fault| fault.line > 0 && !fault.why.is_empty()), "{text:?}");
        }
    }

    /// Python's reader as the judge: a line for each text, of each pair's section, name and value.
    const JUDGE: &str = r"
import sys, tomllib
for text in sys.stdin.buffer.read().decode().split('\0'):
    try: pairs = [(s, n, v) for s, rest in tomllib.loads(text).items() for n, v in rest.items()]
    except tomllib.TOMLDecodeError as error: pairs = [('no TOML', str(error), text)]
    texts = ((s, n, v if isinstance(v, str) else repr(v).lower()) for s, n, v in pairs)
    print(*(f'{s} {n} {v.encode().hex()}' for s, n, v in texts), sep=';')
";

    /// Hazard: an operator's other tools read the file as another one.
    #[test]
    fn what_is_read_without_a_fault_is_toml_and_means_the_same() {
        let shown = |section: &str, entries: &[NodeEntry]| {
            let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
            let line = |entry: &NodeEntry| format!("{section} {} {}", entry.name, hex(&entry.value));
            entries.iter().map(line).collect::<Vec<_>>()
        };
        let pairs = texts(3).map(|value| format!("[defaults]\nb = {value}\n[ceilings]\nc=1"));
        let (mut given, mut expected) = (Vec::new(), Vec::new());
        for text in pairs.take(50_000).chain([GOOD.to_owned()]) {
            let read = NodeFile::parse(&text);
            if read.faults.is_empty() {
                expected.push(
                    [shown("defaults", &read.defaults), shown("ceilings", &read.ceilings)].concat().join(";"),
                );
                given.push(text);
            }
        }
        assert!(given.len() > 500, "{}", given.len());
        let mut judge = Command::new("python3");
        judge.args(["-c", JUDGE]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut judge = judge.spawn().expect("Python starts");
        let (mut input, all) = (judge.stdin.take().expect("a pipe"), given.join("\0"));
        let writer = std::thread::spawn(move || input.write_all(all.as_bytes()));
        let output = judge.wait_with_output().expect("it ends");
        let is_read = writer.join().expect("no panic").is_ok();
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("No module named 'tomllib'") {
            eprintln!("skipped: needs Python 3.11");
            return;
        }
        assert!(is_read && output.status.success(), "{said}");
        let judged = String::from_utf8(output.stdout).expect("text");
        assert_eq!(judged.lines().count(), given.len());
        for ((text, expected), judged) in given.iter().zip(expected).zip(judged.lines()) {
            assert_eq!(judged, expected, "{text:?}");
        }
    }

    #[test]
    fn only_a_plain_file_of_roots_counts() {
        let folder = std::env::temp_dir().join(format!("wm-trust-node-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (path, link) = (folder.join("file"), folder.join("link"));
        assert_eq!(NodeFile::read(&path), None);
        let fault = |path: &Path| {
            let read = NodeFile::read(path).expect("it is there");
            assert_eq!((read.defaults, read.faults.len()), (vec![], 1), "{path:?}");
            read.faults[0].why.clone()
        };
        fs::write(&path, GOOD).expect("written");
        symlink(&path, &link).expect("a link");
        assert!(fault(&link).starts_with("is a link"), "{}", fault(&link));
        assert!(fault(&folder).starts_with("is not a plain file"));
        if rustix::process::geteuid().is_root() {
            assert_eq!(NodeFile::read(&path), Some(NodeFile::parse(GOOD)));
            fs::write(&path, b"[defaults]\n\xff").expect("written");
            assert!(fault(&path).starts_with("is not text"));
            fs::write(&path, vec![b'#'; LONGEST + 1]).expect("written");
            assert!(fault(&path).starts_with("is longer"));
            fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).expect("its own");
            assert!(fault(&path).starts_with("is not a plain file"), "its group writes it");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("its own");
            chown(&path, Some(65_431), None).expect("root gives files away");
        }
        assert!(fault(&path).starts_with("is not a plain file"), "another user's");
        fs::remove_dir_all(&folder).expect("removed");
    }
}
