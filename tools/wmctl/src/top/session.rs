//! The screen: a thread reads the programs, and this one draws them and obeys keys. So a program or
//! a directory server that does not answer delays neither.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Stdout};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ratatui_core::layout::Rect;
use ratatui_core::terminal::Terminal as CellTerminal;
use ratatui_termion::TermionBackend;

use super::column::Column;
use super::draw::{self, Look};
use super::history::{History, PastUse};
use super::lines;
use super::reader::ProgramReader;
use super::reading::Change;
use super::terminal::{self, Terminal};
use super::used::UsedMemory;
use super::view::{KeyOutcome, ScreenView};
use crate::client;

/// Bytes of a frame that are written at once.
const FRAME: usize = 1 << 16;

/// The least time for an answer, also where readings follow each other sooner.
const LEAST_PATIENCE: Duration = Duration::from_millis(500);

type ScreenTerminal = CellTerminal<TermionBackend<BufWriter<Stdout>>>;

/// What the thread tells.
#[derive(Debug)]
enum NewReading {
    First(Change, PastUse),
    Next(Change),
}

/// The state of the screen.
struct Session {
    cells: ScreenTerminal,
    view: ScreenView,
    history: History,
    last: Option<Change>,
    step: u64,
}

/// Shows the screen until a key ends it.
///
/// # Errors
/// The terminal's.
pub(super) fn run(
    terminal: &Terminal,
    hides_arguments: bool,
    sort: Column,
    interval: Duration,
) -> Result<()> {
    // A program that does not answer must not delay the next reading.
    let patience = interval.mul_f64(0.8).clamp(LEAST_PATIENCE, client::PATIENCE);
    let told = begin(ProgramReader::new(hides_arguments, patience), interval)?;
    let cells = CellTerminal::new(TermionBackend::new(BufWriter::with_capacity(FRAME, io::stdout())))?;
    let step = interval.as_secs().max(1);
    let mut session =
        Session { cells, view: ScreenView::new(sort), history: History::default(), last: None, step };
    let look = Look::of_environment();
    loop {
        session.take_all(&told)?;
        if terminal.was_stopped() {
            let size = session.cells.size()?;
            session.cells.resize(Rect::new(0, 0, size.width, size.height))?;
        }
        session.draw(look)?;
        let Some(keys) = terminal.wait() else { return Ok(()) };
        if keys.into_iter().any(|key| session.view.press(key) == KeyOutcome::End) {
            return Ok(());
        }
    }
}

impl Session {
    fn take_all(&mut self, told: &Receiver<NewReading>) -> Result<()> {
        loop {
            match told.try_recv() {
                Ok(reading) => self.take(reading),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => bail!("the programs are not read any more"),
            }
        }
    }

    fn take(&mut self, told: NewReading) {
        let change = match told {
            NewReading::First(change, past) => {
                self.history.begin(&change, &past, self.step);
                change
            }
            NewReading::Next(change) => change,
        };
        self.history.note(&change);
        self.last = Some(change);
    }

    /// Draws what changed since the last time. Before the first reading there is nothing to draw.
    fn draw(&mut self, look: Look) -> io::Result<()> {
        let Some(change) = &self.last else { return Ok(()) };
        self.cells.draw(|frame| {
            let lines = lines::lines(change, &self.history, &self.view.choice, frame.area().width.into());
            if let Some(cursor) = draw::draw(frame.buffer_mut(), &mut self.view, &lines, look) {
                frame.set_cursor_position(cursor);
            }
        })?;
        Ok(())
    }
}

/// Starts the thread.
fn begin(reader: ProgramReader, interval: Duration) -> io::Result<Receiver<NewReading>> {
    let (sender, told) = mpsc::channel();
    let readings = thread::Builder::new().name("readings".to_owned());
    let body = move || {
        // The sender is gone before the other thread looks for it.
        let _wakes = WakeAtEnd;
        let sender = sender;
        read(reader, interval, &sender);
    };
    terminal::starting(|| readings.spawn(body))?;
    Ok(told)
}

/// A thread that panics must not leave the other one waiting.
struct WakeAtEnd;

impl Drop for WakeAtEnd {
    fn drop(&mut self) {
        terminal::wake();
    }
}

/// Reads at each interval, until nothing listens. A reading that takes longer than that is followed
/// by the next one at once.
fn read(mut reader: ProgramReader, interval: Duration, sender: &Sender<NewReading>) {
    let mut due = Instant::now();
    let (change, past) = reader.first();
    let mut told = NewReading::First(change, past);
    // To ask NVIDIA's library may take a second where no program keeps the driver awake.
    let mut used = None;
    while sender.send(told).is_ok() {
        terminal::wake();
        let used = used.get_or_insert_with(UsedMemory::open);
        due = (due + interval).max(Instant::now());
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut change = reader.next();
        if let Some(used) = used {
            let devices = change.processes.iter().flat_map(|process| &process.devices);
            let uuids: BTreeSet<&str> = devices.map(|device| device.gpu_uuid.as_str()).collect();
            change.used = used.of(uuids.into_iter());
        }
        told = NewReading::Next(change);
    }
}
