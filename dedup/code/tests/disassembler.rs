//! Hazard (wrong result): an instruction is decoded in another way than the GPU does it.
//!
//! Each instruction of real images, decoded here and by the vendor's disassembler.
//!
//! Needs `TEST_NVDISASM`, the path of the disassembler, and either `TEST_CUBINS`, a
//! folder of cubins, or `TEST_PTXAS`, the assembler, which compiles the library's own
//! kernels for each architecture. Without them the test skips itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use hazards::Scratch;

use wm_code::image::Cubin;
use wm_code::sass::{self, Fields, File, MachineInstruction, Operand, Registers};

/// Registers by file: `false` for those of a thread.
type Used = BTreeSet<(bool, usize)>;

#[test]
fn the_disassembler_sees_the_same_registers() {
    let scratch = Scratch::new();
    let Some((tool, files)) = given(scratch.path()) else {
        return hazards::skip("needs nvdisasm, and ptxas or cubins");
    };
    for file in &files {
        let mut counts = Counts::default();
        compare(&tool, file, &mut counts);
        counts.print();
        assert!(counts.wrong.is_empty(), "{}: {} forms differ", file.display(), counts.wrong.len());
        assert!(counts.instructions > 0, "{}: nothing is compared", file.display());
    }
}

fn given(scratch: &Path) -> Option<(PathBuf, Vec<PathBuf>)> {
    let path = |name| std::env::var_os(name).map(PathBuf::from);
    let tool = path("TEST_NVDISASM")?;
    if let Some(folder) = path("TEST_CUBINS") {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
        files.sort();
        return Some((tool, files));
    }
    let assembler = path("TEST_PTXAS")?;
    let compiled = |image: &wm_kernels::Image, sm: u32| {
        let (text, file) = (scratch.join("kernels.ptx"), scratch.join(format!("{}.{sm}", image.name)));
        std::fs::write(&text, image.ptx.trim_end_matches('\0')).unwrap();
        let command =
            Command::new(&assembler).args([&format!("-arch=sm_{sm}"), "-o"]).arg(&file).arg(&text).output();
        let made = command.unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        file
    };
    // The largest image takes most of the time, so it is compiled once.
    let architectures = |name| if name == "wholememory" { &[90][..] } else { &[80, 90, 100] };
    let each = |image: &&wm_kernels::Image| {
        architectures(image.name).iter().map(|sm| compiled(image, *sm)).collect::<Vec<_>>()
    };
    Some((tool, wm_kernels::IMAGES.iter().flat_map(each).collect()))
}

#[derive(Default)]
struct Counts {
    instructions: usize,
    unknown: BTreeMap<String, usize>,
    wrong: BTreeMap<String, (usize, String)>,
}

impl Counts {
    fn print(&self) {
        eprintln!("{} instructions", self.instructions);
        let unknown: usize = self.unknown.values().sum();
        eprintln!("{unknown} not decoded");
        let mut rows: Vec<_> = self.unknown.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.1));
        for (form, count) in rows.iter().take(60) {
            eprintln!("  unknown {count:8} {form}");
        }
        let mut rows: Vec<_> = self.wrong.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.1.0));
        for (form, (count, example)) in rows.iter().take(80) {
            eprintln!("  wrong {count:8} {form}: {example}");
        }
    }
}

fn compare(tool: &Path, file: &Path, counts: &mut Counts) {
    let bytes = std::fs::read(file).unwrap();
    let Ok(cubin) = Cubin::parse(&bytes) else { return };
    let kernels: Vec<_> = cubin.kernels().flatten().collect();
    let texts: HashMap<&str, (&[u8], u32)> =
        kernels.iter().map(|kernel| (kernel.name, (kernel.text, kernel.sm))).collect();
    let output = Command::new(tool).args(["-plr", "-lrm", "narrow", "-c"]).arg(file).output().unwrap();
    let output = String::from_utf8_lossy(&output.stdout);
    let mut section = None;
    let mut columns = Columns::default();
    let (mut labels, mut jumps) = (HashMap::new(), Vec::new());
    let mut waiting: Vec<&str> = Vec::new();
    for line in output.lines() {
        if let Some(name) = line.strip_prefix("\t.section\t.text.") {
            check_jumps(&labels, &jumps, counts);
            labels.clear();
            jumps.clear();
            section = texts.get(name.split(",\"").next().unwrap());
            columns = Columns::default();
        } else if line.starts_with("\t.section\t") {
            section = None;
        }
        columns.read(line);
        if let Some(label) = line.split("//").next().unwrap().trim().strip_suffix(':') {
            waiting.push(label);
        }
        let Some(&(text, sm)) = section else { continue };
        let Some((at, words)) = instruction(line) else { continue };
        for label in waiting.drain(..) {
            labels.insert(label.to_owned(), at as i64);
        }
        counts.instructions += 1;
        let fields = Fields::at(text, at).unwrap();
        let form = || format!("{:03x} {}", fields.code(), words.split(' ').next().unwrap());
        match sass::decode(fields, sm) {
            Err(_) => *counts.unknown.entry(form()).or_default() += 1,
            Ok(decoded) => {
                let ours = (written(&decoded), read(&decoded));
                let theirs = columns.used(line);
                if constant(&decoded) != printed(words) {
                    let example = format!("{words} ours {:x?}", constant(&decoded));
                    let name = format!("constant of {}", form());
                    counts.wrong.entry(name).or_insert((0, example)).0 += 1;
                }
                let predicates = columns.predicates(line);
                if predicates & !sass::predicates_written(&decoded) != 0 {
                    let example = format!("{words} theirs {predicates:#x}");
                    counts.wrong.entry(format!("predicate of {}", form())).or_insert((0, example)).0 += 1;
                }
                if !same(&ours, &theirs, decoded.action) {
                    let example = format!("{words} ours {ours:?} theirs {theirs:?}");
                    counts.wrong.entry(form()).or_insert((0, example)).0 += 1;
                }
                if let Some(label) = words.split("`(").nth(1).and_then(|rest| rest.split(')').next()) {
                    let target = match sass::flow(&decoded, at, sm) {
                        sass::Flow::To { target, .. }
                        | sass::Flow::Call { target }
                        | sass::Flow::Fork { target, .. } => Some(target),
                        _ => None,
                    };
                    if let Some(target) = target {
                        jumps.push((label.to_owned(), target, words.to_owned()));
                    }
                }
            }
        }
    }
    check_jumps(&labels, &jumps, counts);
}

fn check_jumps(labels: &HashMap<String, i64>, jumps: &[(String, i64, String)], counts: &mut Counts) {
    for (label, target, words) in jumps {
        if labels.get(label).is_some_and(|at| at != target) {
            let example = format!("{words} ours {target:#x} theirs {:#x}", labels[label]);
            let name = format!("target of {}", words.split(' ').next().unwrap());
            counts.wrong.entry(name).or_insert((0, example)).0 += 1;
        }
    }
}

fn same(ours: &(Used, Used), theirs: &(Used, Used), action: sass::Action) -> bool {
    // The sources of a number do not matter.
    let reads = matches!(
        action,
        sass::Action::Number | sass::Action::Nothing | sass::Action::TensorLoad | sass::Action::TensorStore
    ) || ours.1 == theirs.1;
    action == sass::Action::Jump || ours.0 == theirs.0 && reads
}

fn written(instruction: &MachineInstruction) -> Used {
    set(instruction.destination).collect()
}

fn read(instruction: &MachineInstruction) -> Used {
    let sources = instruction.sources.iter().filter_map(|source| match source {
        Operand::Registers(registers, _) => Some(*registers),
        Operand::Constant { index, .. } => Some(*index),
        _ => None,
    });
    sources.chain(instruction.address).chain(instruction.others).flat_map(set).collect()
}

/// The bank and the first byte of the constants that the instruction uses.
fn constant(instruction: &MachineInstruction) -> Option<(u32, u32)> {
    instruction.sources.iter().find_map(|source| match *source {
        Operand::Constant { bank, offset, .. } => Some((u32::from(bank), offset)),
        _ => None,
    })
}

/// The same from the text: `c[0x0][0x28]`, `c[0x3][R4+0x10]`, `c[0x4][R2]`.
fn printed(words: &str) -> Option<(u32, u32)> {
    let number = |text: &str| u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok();
    let (bank, rest) =
        [" c[", "-c[", "~c["].iter().find_map(|sign| words.split_once(*sign))?.1.split_once(']')?;
    let place = rest.trim_start().strip_prefix('[')?.split(']').next()?;
    let offset = place.rsplit('+').next()?;
    Some((number(bank)?, number(offset).unwrap_or(0)))
}

fn set(registers: Registers) -> impl Iterator<Item = (bool, usize)> {
    registers.iter().map(move |at| (registers.file == File::Uniform, at))
}

/// The place and the text of the instruction in a line.
fn instruction(line: &str) -> Option<(usize, &str)> {
    let rest = line.trim_start().strip_prefix("/*")?;
    let (at, rest) = rest.split_once("*/")?;
    let words = rest.split("//").next()?.trim().trim_matches(['{', '}', ';', ' ']);
    let words = if words.starts_with('@') { words.split_once(' ')?.1.trim() } else { words };
    Some((usize::from_str_radix(at, 16).ok()?, words))
}

/// Which column of the life ranges is which register.
#[derive(Default)]
struct Columns {
    titles: Vec<(usize, usize, String)>,
    digits: BTreeMap<usize, usize>,
    done: bool,
}

impl Columns {
    fn read(&mut self, line: &str) {
        let Some(start) = line.find("// |") else {
            return;
        };
        if self.done || line[..start].trim() != "" {
            self.done = !self.titles.is_empty();
            return;
        }
        let bytes = line.as_bytes();
        if line.contains("GPR") || line.contains("PRED") {
            let mut from = start + 3;
            for part in line[start + 4..].split('|') {
                self.titles.push((from, from + part.len() + 1, part.trim().to_owned()));
                from += part.len() + 1;
            }
            return;
        }
        for (at, byte) in bytes.iter().enumerate().skip(start + 4) {
            if byte.is_ascii_digit() {
                let digit = usize::from(byte - b'0');
                let number = self.digits.entry(at).or_insert(0);
                *number = *number * 10 + digit;
            }
        }
    }

    /// The marks of a line: the title above each, the number and the mark.
    fn marks<'a>(&'a self, line: &'a str) -> impl Iterator<Item = (&'a str, usize, u8)> + 'a {
        let start = line.find("// |").map_or(line.len(), |start| start + 4);
        let marks =
            line.bytes().enumerate().skip(start).filter(|(_, byte)| matches!(byte, b'^' | b'x' | b'v'));
        marks.filter_map(|(at, byte)| {
            let (_, _, title) = self.titles.iter().find(|(from, to, _)| (*from..*to).contains(&at))?;
            Some((title.as_str(), *self.digits.get(&at)?, byte))
        })
    }

    /// The predicates of a thread that the line says are written, as bits.
    fn predicates(&self, line: &str) -> u8 {
        let written = self.marks(line).filter(|(title, _, mark)| *title == "PRED" && *mark != b'v');
        written.fold(0, |all, (_, number, _)| all | 1 << number)
    }

    /// The registers that the line says are written and read.
    fn used(&self, line: &str) -> (Used, Used) {
        let (mut written, mut read) = (Used::new(), Used::new());
        for (title, number, mark) in self.marks(line) {
            let uniform = match title {
                "GPR" => false,
                "UGPR" => true,
                _ => continue,
            };
            if mark != b'v' {
                written.insert((uniform, number));
            }
            if mark != b'^' {
                read.insert((uniform, number));
            }
        }
        (written, read)
    }
}
