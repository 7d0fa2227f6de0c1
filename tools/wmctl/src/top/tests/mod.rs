//! Screens of programs that exist here alone, and what is drawn of them.

mod lines;
mod picture;
mod screens;

use std::collections::BTreeMap;
use std::time::Instant;

use ratatui_core::backend::TestBackend;
use ratatui_core::buffer::Buffer;
use ratatui_core::terminal::{Frame, Terminal};
use serde_json::json;
use wm_schema::Stats;

use super::column::Column;
use super::draw::{self, Look};
use super::history::History;
use super::keys::TerminalKey;
use super::lines::lines;
use super::reading::{Change, ProgramFigures, Sample};
use super::view::ScreenView;
use crate::client::ProcessIdentity;

const GIB: u64 = 1 << 30;
const LOOK: Look = Look { has_colours: true, is_plain: false };

/// The programs of one machine: every fourth one is a worker of the one before it.
fn machine(count: u32) -> Change {
    let processes = (0..count).map(|number| (4000 + 11 * number, figures(number)));
    let mut change = Sample { at: Instant::now(), processes: processes.collect(), closed: None }.since(None);
    for (number, process) in (0..).zip(&mut change.processes) {
        process.identity = identity(number);
        process.ancestors = if number % 4 == 3 { vec![process.pid - 11, 900, 1] } else { vec![900, 1] };
    }
    change.used = BTreeMap::from([(uuid(0), 131 * GIB + GIB / 2)]);
    change
}

fn uuid(device: u32) -> String {
    format!("GPU-{device}")
}

/// Of nine programs the fifth is stopped and the eighth does not answer.
fn figures(number: u32) -> ProgramFigures {
    let answers = number % 100 != 7;
    ProgramFigures { is_stopped: number % 100 == 4, stats: answers.then(|| stats(number)) }
}

fn stats(number: u32) -> Stats {
    let device = number / 2 % 2;
    let [live, host] = [u64::from(number % 9) * 3 * GIB + GIB / 2, u64::from(number % 3) * 2 * GIB];
    let tier = |live: u64| json!({ "live_bytes": live, "reserved_bytes": live + live / 8 });
    serde_json::from_value(json!({
        "program": "python3.11",
        "devices": [{
            "ordinal": 0, "name": "NVIDIA H200", "uuid": uuid(device), "pci": format!("0000:{device}b:00.0"),
            "total_bytes": 140 * GIB, "limit_bytes": 140 * GIB,
            "tiers": { "device": tier(live), "peer": tier(0), "host": tier(host) },
            "counters": { "out_of_memory": if number % 9 == 5 { 1234 } else { 0 } },
        }],
    }))
    .expect("statistics")
}

fn identity(number: u32) -> ProcessIdentity {
    let command = match number % 3 {
        0 => "python3.11 train.py --config configs/llama-8b.yaml --batch 16 --resume",
        1 => "python3.11 -m serve --model Qwen3-32B --port 8000",
        _ => "solve input.dat",
    };
    let user = ["anna", "bela", "wissenschaft"][(number % 3) as usize];
    let command = command.split(' ').map(str::to_owned).collect();
    let slurm_job_id = (number % 5 == 1).then(|| (77_000 + number).to_string());
    ProcessIdentity { user: Some(user.to_owned()), command, slurm_job_id, ..ProcessIdentity::default() }
}

/// The last minute of a machine, as its readings were.
fn history(change: &Change) -> History {
    let mut history = History::default();
    for second in 0..40 {
        let mut earlier = change.clone();
        for device in earlier.processes.iter_mut().flat_map(|process| &mut process.devices) {
            device.held_bytes = device.held_bytes * (second % 20 + 1) / 20;
        }
        history.note(&earlier);
    }
    history
}

/// A screen of these programs after these keys.
fn screen(change: &Change, size: (u16, u16), keys: &[TerminalKey], look: Look) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("a screen");
    let (mut view, history) = (ScreenView::new(Column::Pid), history(change));
    for key in [None].into_iter().chain(keys.iter().copied().map(Some)) {
        key.map(|key| view.press(key));
        let lines = lines(change, &history, &view.choice, size.0.into());
        let draw = |frame: &mut Frame<'_>| {
            draw::draw(frame.buffer_mut(), &mut view, &lines, look);
        };
        terminal.draw(draw).expect("drawn");
    }
    terminal.backend().buffer().clone()
}

/// The text of a screen, without blanks at the ends of lines.
fn text(buffer: &Buffer) -> String {
    let row = |cells: &[ratatui_core::buffer::Cell]| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        format!("{}\n", line.trim_end())
    };
    buffer.content().chunks(buffer.area().width.into()).map(row).collect()
}

/// Letters as keys.
fn typed(text: &str) -> Vec<TerminalKey> {
    text.chars().map(TerminalKey::Char).collect()
}
