//! Draws the screen into a buffer of cells. Pure; of the buffer only what changed is sent to the
//! terminal.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Position, Rect};
use ratatui_core::style::{Color, Modifier, Style};

use super::column::{self, Column, PlacedColumn};
use super::history;
use super::lines::{DeviceLine, ProgramLine, ScreenLine};
use super::view::ScreenView;
use crate::{human, screen};

/// What the terminal can show.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) has_colours: bool,
    /// ASCII only.
    pub(super) is_plain: bool,
}

/// Widest name of a user, a container or a job.
const WIDEST: u16 = 16;
/// Fewest bars that say something.
const LEAST_BARS: usize = 8;

const HELP: &str = "\
Up Down j k: one line
PageUp PageDown: one page
Home End g G: the first line, the last line
p u l r m e h o n: sort by PID, user, live, reserved, limit, on peers, on host, out of memory, command; the same key \
again turns the order round
c b: sort by container, by job
< >: sort by the column before, by the next one
/: show only programs with a text in user, command, PID, container or job; Enter keeps it, Escape removes it
Space Enter Left Right: fold a tree of processes, or unfold it
f: fold all trees, or unfold all
q Ctrl-C: end

The line of a device has the memory in use by everything on it (all), where NVIDIA's library tells it; what programs \
under wmshim hold there, on peers and on the host; and what these held in the last minute, as bars.";

/// Draws everything. Returns where the terminal's cursor belongs, if anywhere.
pub(super) fn draw(
    buffer: &mut Buffer,
    view: &mut ScreenView,
    lines: &[ScreenLine<'_>],
    look: Look,
) -> Option<Position> {
    let screen = *buffer.area();
    let height = screen.height.saturating_sub(2);
    view.fit(lines, height.into());
    let cursor = if let Some(first) = view.help {
        view.help = Some(help(buffer, first));
        None
    } else {
        list(buffer, view, lines, look);
        status(buffer, view, lines)
    };
    if look.is_plain {
        for cell in buffer.content.iter_mut().filter(|cell| !cell.symbol().is_ascii()) {
            cell.set_symbol("?");
        }
    }
    cursor
}

/// Draws the help from a line on, or as late as it still fills the screen. Returns that line.
fn help(buffer: &mut Buffer, first: usize) -> usize {
    let screen = *buffer.area();
    let last = screen.height.saturating_sub(1);
    let text: String = HELP.lines().map(|line| screen::fold(line, screen.width.into())).collect();
    let first = first.min(text.lines().count().saturating_sub(last.into()));
    for (row, line) in (0..last).zip(text.lines().skip(first)) {
        buffer.set_stringn(0, row, line, screen.width.into(), Style::new());
    }
    let keys = "Up Down: more  any other key: back";
    buffer.set_stringn(0, last, keys, screen.width.into(), Style::new().add_modifier(Modifier::BOLD));
    first
}

fn list(buffer: &mut Buffer, view: &ScreenView, lines: &[ScreenLine<'_>], look: Look) {
    let screen = *buffer.area();
    let columns = column::place(screen.width, |column| wanted(column, lines));
    headings(buffer, &columns, view, look);
    let shown = lines.iter().enumerate().skip(view.first).take(screen.height.saturating_sub(2).into());
    for ((number, line), row) in shown.zip(1..) {
        match line {
            ScreenLine::Device(line) => device(buffer, row, line, look),
            ScreenLine::Program(line) => program(buffer, row, line, &columns, look),
            ScreenLine::Text(text) => {
                buffer.set_stringn(0, row, text, screen.width.into(), Style::new());
            }
        }
        if number == view.cursor {
            let whole = Rect { x: 0, y: row, width: screen.width, height: 1 };
            buffer.set_style(whole, Style::new().add_modifier(Modifier::REVERSED));
        }
    }
}

fn headings(buffer: &mut Buffer, columns: &[PlacedColumn], view: &ScreenView, look: Look) {
    for placed in columns {
        let style = Style::new().add_modifier(Modifier::BOLD);
        let is_sorted = placed.column == view.choice.sort;
        let style = if is_sorted { style.add_modifier(Modifier::UNDERLINED) } else { style };
        let style = if is_sorted { look.colour(style, Color::Green) } else { style };
        cell(buffer, 0, placed, placed.column.heading(), style);
    }
}

/// Writes a text into its column: figures to the right, all of it cut at the column's end.
fn cell(buffer: &mut Buffer, row: u16, placed: &PlacedColumn, text: &str, style: Style) {
    let length = u16::try_from(text.chars().count()).unwrap_or(u16::MAX);
    let indent = if placed.column.is_figure() { placed.width.saturating_sub(length) } else { 0 };
    let room = (placed.width - indent).min(buffer.area().width.saturating_sub(placed.left + indent));
    buffer.set_stringn(placed.left + indent, row, text, room.into(), style);
}

/// The widest text of a column; 0 if the column has nothing to say.
fn wanted(column: Column, lines: &[ScreenLine<'_>]) -> u16 {
    let cells = lines.iter().filter_map(|line| match line {
        ScreenLine::Program(line) => Some(text(column, line)),
        _ => None,
    });
    let widest = cells.map(|text| if text == "-" { 0 } else { text.chars().count() }).max().unwrap_or(0);
    let widest = u16::try_from(widest).unwrap_or(u16::MAX);
    let heading = column.heading().len() as u16;
    match column {
        Column::Container | Column::Job if widest == 0 => 0,
        Column::Container | Column::Job | Column::User => widest.min(WIDEST).max(heading),
        _ => widest.max(heading),
    }
}

fn text(column: Column, line: &ProgramLine<'_>) -> String {
    let is_text = matches!(column, Column::Pid) || !column.is_figure();
    if is_text {
        return column.text(line.process);
    }
    line.figures.as_ref().and_then(|figures| column.figure(figures)).unwrap_or_else(|| "-".to_owned())
}

fn program(buffer: &mut Buffer, row: u16, line: &ProgramLine<'_>, columns: &[PlacedColumn], look: Look) {
    for placed in columns {
        let text = match placed.column {
            Column::Command => command(line, placed.width, look),
            column => text(column, line),
        };
        cell(buffer, row, placed, &text, style(placed.column, line, look));
    }
}

/// The command behind its place in the tree and its state.
fn command(line: &ProgramLine<'_>, width: u16, look: Look) -> String {
    let branch = match (line.depth, look.is_plain) {
        (0, _) => String::new(),
        (depth, false) => format!("{}└ ", "  ".repeat(depth - 1)),
        (depth, true) => format!("{}`-", "  ".repeat(depth - 1)),
    };
    let folded = if line.is_folded { format!("[+{}] ", line.below.len()) } else { String::new() };
    let state = match line.process.halt() {
        Some(halt) => format!("{}: ", human::word(halt)),
        None if !line.process.answers => "does not answer: ".to_owned(),
        None if line.process.detached => "detached: ".to_owned(),
        None => line.process.arena().map(|arena| format!("{arena}: ")).unwrap_or_default(),
    };
    let before = format!("{branch}{folded}{state}");
    let room = width.saturating_sub(u16::try_from(before.chars().count()).unwrap_or(u16::MAX));
    format!("{before}{}", Column::Command.text_within(line.process, room))
}

fn style(column: Column, line: &ProgramLine<'_>, look: Look) -> Style {
    let figures = line.figures.unwrap_or_default();
    match column {
        Column::OutOfMemory if figures.out_of_memory > 0 => {
            look.colour(Style::new().add_modifier(Modifier::BOLD), Color::Red)
        }
        Column::Host if figures.host > 0 => look.colour(Style::new(), Color::Yellow),
        _ if line.process.halt().is_some() => Style::new().add_modifier(Modifier::DIM),
        _ => Style::new(),
    }
}

impl Look {
    /// As the user's variables say.
    pub(super) fn of_environment() -> Self {
        Self::of(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// `variable`: one that is set to something.
    pub(super) fn of(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable).unwrap_or_default();
        let is_utf8 = ["utf-8", "utf8"].iter().any(|name| locale.to_lowercase().contains(name));
        let has_colours =
            variable("NO_COLOR").is_none() && variable("TERM").is_some_and(|name| name != "dumb");
        Self { has_colours, is_plain: !is_utf8 }
    }

    fn colour(self, style: Style, colour: Color) -> Style {
        if self.has_colours { style.fg(colour) } else { style }
    }
}

/// A device: those parts for which there is room, the most important first, in the order of a
/// sentence.
fn device(buffer: &mut Buffer, row: u16, line: &DeviceLine<'_>, look: Look) {
    let width = usize::from(buffer.area().width);
    let gap = if width < 60 { 1 } else { 2 };
    let host = Some(format!("on host {}", human::bytes(line.sum.host))).filter(|_| line.sum.host > 0);
    let peers = Some(format!("on peers {}", human::bytes(line.sum.peer))).filter(|_| line.sum.peer > 0);
    let programs = Some(format!("{} {}", several(line.programs, "program"), human::bytes(line.sum.reserved)));
    let name = Some(human::name(&line.device.name)).filter(|name| name != "-");
    // Each part with its rank.
    let parts =
        [(0, Some(address(line))), (5, name), (2, Some(of_all(line))), (3, programs), (4, peers), (1, host)];
    let mut ranked: Vec<_> = (0..parts.len()).filter(|at| parts[*at].1.is_some()).collect();
    ranked.sort_by_key(|at| parts[*at].0);
    let (mut room, mut chosen) = (width + gap, Vec::new());
    for at in ranked {
        let length = parts[at].1.as_ref().map_or(0, |text| text.chars().count()) + gap;
        // Bars come before the name.
        let kept = if parts[at].0 == 5 { LEAST_BARS + gap } else { 0 };
        if length + kept <= room || chosen.is_empty() {
            room = room.saturating_sub(length);
            chosen.push(at);
        }
    }
    chosen.sort_unstable();
    let mut texts: Vec<&str> = chosen.iter().filter_map(|at| parts[*at].1.as_deref()).collect();
    let past = &line.past[line.past.len().saturating_sub(room.saturating_sub(gap))..];
    let bars = history::bars(past, line.device.total_bytes, look.is_plain);
    if room >= LEAST_BARS + gap {
        texts.push(&bars);
    }
    let style = look.colour(Style::new().add_modifier(Modifier::BOLD), Color::Cyan);
    buffer.set_stringn(0, row, texts.join(&" ".repeat(gap)), width, style);
}

/// The address by which `nvidia-smi` names the device; the process's own number where an older
/// library tells none.
fn address(line: &DeviceLine<'_>) -> String {
    let address = line.device.pci.strip_prefix("0000:").unwrap_or(&line.device.pci);
    if address.is_empty() { format!("GPU {}", line.device.ordinal) } else { human::name(address) }
}

/// The memory in use by everything of what the device has, in one unit.
fn of_all(line: &DeviceLine<'_>) -> String {
    let total = human::bytes(line.device.total_bytes);
    let Some(used) = line.used else { return format!("of {total}") };
    let unit = total.rsplit(' ').next().unwrap_or_default();
    let bytes = match unit {
        "TiB" => 1_u64 << 40,
        "GiB" => 1 << 30,
        "MiB" => 1 << 20,
        "KiB" => 1 << 10,
        _ => 1,
    };
    format!("all {:.1}/{total}", used as f64 / bytes as f64)
}

/// The last line: what is shown, by what it is sorted, and where help is.
fn status(buffer: &mut Buffer, view: &ScreenView, lines: &[ScreenLine<'_>]) -> Option<Position> {
    let screen = *buffer.area();
    let row = screen.height.saturating_sub(1);
    let style = Style::new().add_modifier(Modifier::BOLD);
    if view.is_typing {
        let text = format!("/{}", human::shown(&view.choice.filter));
        let (end, _) = buffer.set_stringn(0, row, &text, screen.width.into(), style);
        return Some(Position::new(end.min(screen.width.saturating_sub(1)), row));
    }
    let room = usize::from(screen.height.saturating_sub(2));
    let last = (view.first + room).min(lines.len());
    let reversed = if view.choice.is_reversed { ", reversed" } else { "" };
    let parts = [
        Some("? help  q end".to_owned()),
        Some(format!("{}-{last}/{}", (view.first + 1).min(last), lines.len())).filter(|_| lines.len() > room),
        Some(format!("only /{}", human::shortened(&view.choice.filter, 20)))
            .filter(|_| !view.choice.filter.is_empty()),
        Some(format!("by {}{reversed}", view.choice.sort.heading())),
        Some(counted(lines)),
    ];
    buffer.set_stringn(
        0,
        row,
        parts.into_iter().flatten().collect::<Vec<_>>().join("  "),
        screen.width.into(),
        style,
    );
    None
}

fn counted(lines: &[ScreenLine<'_>]) -> String {
    let devices = lines.iter().filter(|line| matches!(line, ScreenLine::Device(_))).count();
    let mut pids = Vec::new();
    for line in lines {
        if let ScreenLine::Program(line) = line {
            pids.push(line.process.pid);
            pids.extend(&line.below);
        }
    }
    pids.sort_unstable();
    pids.dedup();
    format!("{} on {}", several(pids.len(), "program"), several(devices, "device"))
}

fn several(count: usize, name: &str) -> String {
    if count == 1 { format!("1 {name}") } else { format!("{count} {name}s") }
}
