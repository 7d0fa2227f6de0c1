//! The lines of the screen: a line a device, under it its programs as trees of processes, and the
//! tables of copies and of shared memory. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::column::{Column, Figures};
use super::history::{History, LENGTH, device_key};
use super::reading::{Change, DeviceUsage, ProcessReading};
use super::render;
use crate::screen;

/// A line of the list.
#[derive(Debug)]
pub(super) enum ScreenLine<'a> {
    Device(DeviceLine<'a>),
    Program(ProgramLine<'a>),
    Text(String),
}

/// What stays the same when lines move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LineKey {
    Device(String),
    Program(String, u32),
    Text(String),
}

/// A device, with the sum of its programs.
#[derive(Debug)]
pub(super) struct DeviceLine<'a> {
    pub(super) key: String,
    pub(super) device: &'a DeviceUsage,
    /// In use by everything on the device, if that is known.
    pub(super) used: Option<u64>,
    pub(super) sum: Figures,
    pub(super) programs: usize,
    pub(super) past: Vec<u64>,
}

/// A program on a device.
#[derive(Debug)]
pub(super) struct ProgramLine<'a> {
    pub(super) device: String,
    pub(super) process: &'a ProcessReading,
    /// None if it has none: it uses no device yet, or does not answer.
    pub(super) figures: Option<Figures>,
    /// Ancestors that are programs on this device.
    pub(super) depth: usize,
    /// Programs below it in its tree.
    pub(super) below: Vec<u32>,
    /// Those below are not shown, and their figures are in its own.
    pub(super) is_folded: bool,
}

impl ScreenLine<'_> {
    pub(super) fn key(&self) -> LineKey {
        match self {
            Self::Device(line) => LineKey::Device(line.key.clone()),
            Self::Program(line) => LineKey::Program(line.device.clone(), line.process.pid),
            Self::Text(text) => LineKey::Text(text.clone()),
        }
    }
}

/// What a person has chosen to see, and in which order.
#[derive(Debug)]
pub(super) struct ViewChoice {
    pub(super) sort: Column,
    pub(super) is_reversed: bool,
    /// Shown are programs with this text, in any case of letters.
    pub(super) filter: String,
    pub(super) folded: BTreeSet<u32>,
}

/// All lines, also those that the screen has no room for. Sentences are folded to its width.
pub(super) fn lines<'a>(
    change: &'a Change,
    history: &History,
    choice: &ViewChoice,
    width: usize,
) -> Vec<ScreenLine<'a>> {
    let incomplete =
        change.incomplete.iter().map(|sentence| screen::fold(sentence, width)).collect::<String>();
    if change.processes.is_empty() {
        let none = "no program under the shim runs now; start one with `wmctl run -- COMMAND`";
        return texts(&(screen::fold(none, width) + &incomplete));
    }
    let shown: Vec<_> = change.processes.iter().filter(|process| matches(process, &choice.filter)).collect();
    let mut lines = Vec::new();
    for (key, devices) in by_device(&change.processes) {
        let on_it = shown.iter().filter_map(|process| {
            let device = process.devices.iter().find(|device| device_key(process, device) == key)?;
            Some((*process, Some(Figures::of(device))))
        });
        let programs = tree(&key, on_it.collect(), choice);
        lines.push(ScreenLine::Device(DeviceLine {
            device: devices[0],
            used: change.used.get(&devices[0].gpu_uuid).copied(),
            sum: devices.iter().map(|device| Figures::of(device)).fold(Figures::default(), Figures::and),
            programs: devices.len(),
            past: history.last(&key, LENGTH),
            key,
        }));
        lines.extend(programs);
    }
    let without: Vec<_> = shown.iter().filter(|process| process.devices.is_empty()).collect();
    if !without.is_empty() {
        lines.push(ScreenLine::Text("without figures of a device".to_owned()));
        lines.extend(tree("", without.into_iter().map(|process| (*process, None)).collect(), choice));
    }
    lines.extend(texts(&incomplete));
    lines.extend(tables(&shown));
    lines
}

fn texts<'a>(text: &str) -> Vec<ScreenLine<'a>> {
    text.lines().map(|line| ScreenLine::Text(line.to_owned())).collect()
}

/// The tables that have rows, each behind an empty line.
fn tables<'a>(shown: &[&ProcessReading]) -> Vec<ScreenLine<'a>> {
    let tables = [render::copies(shown.iter().copied()), render::dedup(shown.iter().copied())];
    let mut lines = Vec::new();
    for table in tables.into_iter().filter(|table| !table.is_empty()) {
        lines.push(ScreenLine::Text(String::new()));
        lines.extend(texts(&table.to_string()));
    }
    lines
}

/// The devices in the order of their addresses, each as all of its programs tell it.
fn by_device(processes: &[ProcessReading]) -> Vec<(String, Vec<&DeviceUsage>)> {
    let mut devices: BTreeMap<(&str, String), Vec<&DeviceUsage>> = BTreeMap::new();
    for process in processes {
        for device in &process.devices {
            devices.entry((&device.pci, device_key(process, device))).or_default().push(device);
        }
    }
    devices.into_iter().map(|((_, key), devices)| (key, devices)).collect()
}

/// Has a program this text in a column of texts, or in its number?
fn matches(process: &ProcessReading, filter: &str) -> bool {
    let filter = filter.to_lowercase();
    let columns = [Column::Pid, Column::User, Column::Container, Column::Job, Column::Command];
    columns.into_iter().any(|column| column.text(process).to_lowercase().contains(&filter))
}

/// Programs of one device while they are put in order.
struct Tree<'a, 'b> {
    device: &'b str,
    programs: Vec<(&'a ProcessReading, Option<Figures>)>,
    /// The programs right below each.
    children: Vec<Vec<usize>>,
    choice: &'b ViewChoice,
}

/// The programs of one device: each below its nearest ancestor among them.
fn tree<'a>(
    device: &str,
    programs: Vec<(&'a ProcessReading, Option<Figures>)>,
    choice: &ViewChoice,
) -> Vec<ScreenLine<'a>> {
    let places: BTreeMap<u32, usize> =
        programs.iter().enumerate().map(|(at, (process, _))| (process.pid, at)).collect();
    let parent = |process: &ProcessReading| {
        // Processes were looked at one after the other, and may name each other; but an ancestor
        // has fewer ancestors, so there is no circle.
        let is_above = |pid: &u32| {
            let known = places.get(pid).map(|at| programs[*at].0);
            known.is_some_and(|parent| parent.ancestors.len() < process.ancestors.len())
        };
        process.ancestors.iter().find(|pid| is_above(pid)).map(|pid| places[pid])
    };
    let mut children = vec![Vec::new(); programs.len()];
    let mut roots = Vec::new();
    for (at, (process, _)) in programs.iter().enumerate() {
        parent(process).map_or(&mut roots, |parent| &mut children[parent]).push(at);
    }
    let tree = Tree { device, programs, children, choice };
    let mut lines = Vec::new();
    tree.show(roots, 0, &mut lines);
    lines.into_iter().map(ScreenLine::Program).collect()
}

impl<'a> Tree<'a, '_> {
    /// Adds these programs and those below them.
    fn show(&self, mut programs: Vec<usize>, depth: usize, lines: &mut Vec<ProgramLine<'a>>) {
        let sums: BTreeMap<usize, Figures> = programs.iter().map(|at| (*at, self.sum(*at))).collect();
        programs.sort_by(|one, other| {
            let of = |at: &usize| (self.programs[*at].0, sums[at]);
            let ((one, one_sum), (other, other_sum)) = (of(one), of(other));
            let order = self.choice.sort.order((one, &one_sum), (other, &other_sum));
            if self.choice.is_reversed { order.reverse() } else { order }
        });
        for at in programs {
            let (process, own) = self.programs[at];
            let below = self.below(at);
            let is_folded = !below.is_empty() && self.choice.folded.contains(&process.pid);
            let figures = if is_folded { own.map(|_| sums[&at]) } else { own };
            let device = self.device.to_owned();
            lines.push(ProgramLine { device, process, figures, depth, below, is_folded });
            if !is_folded {
                self.show(self.children[at].clone(), depth + 1, lines);
            }
        }
    }

    /// The figures of a program and of all below it.
    fn sum(&self, at: usize) -> Figures {
        let own = self.programs[at].1.unwrap_or_default();
        self.children[at].iter().map(|child| self.sum(*child)).fold(own, Figures::and)
    }

    fn below(&self, at: usize) -> Vec<u32> {
        let child = |child: &usize| [vec![self.programs[*child].0.pid], self.below(*child)].concat();
        self.children[at].iter().flat_map(child).collect()
    }
}
