//! The columns of programs: their headings, figures, order by each, and which stay on a narrow
//! screen. Pure.

use std::cmp::Ordering;

use super::reading::{DeviceUsage, ProcessReading};
use crate::human;

/// A column, in the order on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Column {
    Pid,
    User,
    Live,
    Reserved,
    Limit,
    Peers,
    Host,
    OutOfMemory,
    Container,
    Job,
    Command,
}

/// All of them, in the order on the screen.
pub(super) const ALL: [Column; 11] = [
    Column::Pid,
    Column::User,
    Column::Live,
    Column::Reserved,
    Column::Limit,
    Column::Peers,
    Column::Host,
    Column::OutOfMemory,
    Column::Container,
    Column::Job,
    Column::Command,
];

/// The order in which columns get room. What ran out and what left the device is why a program is
/// looked at, so these two have room first.
const ROOM: [Column; 11] = [
    Column::OutOfMemory,
    Column::Host,
    Column::Pid,
    Column::Command,
    Column::Live,
    Column::User,
    Column::Reserved,
    Column::Container,
    Column::Job,
    Column::Peers,
    Column::Limit,
];

/// From this width on a command line is shown from its beginning, although it is cut.
const ROOM_FOR_ARGUMENTS: u16 = 32;

/// The memory of a program on a device, in bytes, or the sum over several programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) live: u64,
    pub(super) reserved: u64,
    pub(super) limit: u64,
    pub(super) peer: u64,
    pub(super) host: u64,
    pub(super) out_of_memory: u64,
}

impl Figures {
    pub(super) fn of(device: &DeviceUsage) -> Self {
        Self {
            live: device.live_bytes,
            reserved: device.reserved_bytes,
            limit: device.limit_bytes,
            peer: device.peer_bytes,
            host: device.host_bytes,
            out_of_memory: device.out_of_memory,
        }
    }

    /// Both together. A limit is that of one program: the larger one stays.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            live: self.live.saturating_add(other.live),
            reserved: self.reserved.saturating_add(other.reserved),
            limit: self.limit.max(other.limit),
            peer: self.peer.saturating_add(other.peer),
            host: self.host.saturating_add(other.host),
            out_of_memory: self.out_of_memory.saturating_add(other.out_of_memory),
        }
    }
}

impl Column {
    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::Pid => "PID",
            Self::User => "USER",
            Self::Live => "LIVE",
            Self::Reserved => "RESERVED",
            Self::Limit => "LIMIT",
            Self::Peers => "ON PEERS",
            Self::Host => "ON HOST",
            Self::OutOfMemory => "OUT OF MEMORY",
            Self::Container => "CONTAINER",
            Self::Job => "JOB",
            Self::Command => "COMMAND",
        }
    }

    /// The one that a key sorts by.
    pub(super) fn of_key(key: char) -> Option<Self> {
        Some(match key {
            'p' => Self::Pid,
            'u' => Self::User,
            'l' => Self::Live,
            'r' => Self::Reserved,
            'm' => Self::Limit,
            'e' => Self::Peers,
            'h' => Self::Host,
            'o' => Self::OutOfMemory,
            'c' => Self::Container,
            'b' => Self::Job,
            'n' => Self::Command,
            _ => return None,
        })
    }

    /// The column beside it, in a circle.
    pub(super) fn beside(self, step: isize) -> Self {
        let at = ALL.iter().position(|column| *column == self).unwrap_or(0) as isize;
        ALL[(at + step).rem_euclid(ALL.len() as isize) as usize]
    }

    /// Are its cells set to the right?
    pub(super) fn is_figure(self) -> bool {
        !matches!(self, Self::User | Self::Container | Self::Job | Self::Command)
    }

    /// The text of a figure; `None` of a column of texts.
    pub(super) fn figure(self, figures: &Figures) -> Option<String> {
        Some(match self {
            Self::OutOfMemory => human::count(figures.out_of_memory),
            _ => human::bytes(self.number(figures)?),
        })
    }

    fn number(self, figures: &Figures) -> Option<u64> {
        Some(match self {
            Self::Live => figures.live,
            Self::Reserved => figures.reserved,
            Self::Limit => figures.limit,
            Self::Peers => figures.peer,
            Self::Host => figures.host,
            Self::OutOfMemory => figures.out_of_memory,
            Self::Pid | Self::User | Self::Container | Self::Job | Self::Command => return None,
        })
    }

    /// The text of a process where there is so much room: of a command line that is cut early, the
    /// script says more than its interpreter.
    pub(super) fn text_within(self, process: &ProcessReading, room: u16) -> String {
        let text = self.text(process);
        if self != Self::Command || room >= ROOM_FOR_ARGUMENTS || text.chars().count() <= room.into() {
            return text;
        }
        human::word(&process.identity.program_or(&process.program))
    }

    /// The text of a process.
    pub(super) fn text(self, process: &ProcessReading) -> String {
        let identity = &process.identity;
        match self {
            Self::User => human::name(identity.user.as_deref().unwrap_or_default()),
            Self::Container => human::name(identity.container().unwrap_or_default()),
            Self::Job => human::name(identity.slurm_job_id.as_deref().unwrap_or_default()),
            Self::Command => human::word(&identity.command_or(&process.program)),
            _ => process.pid.to_string(),
        }
    }

    /// The order of two processes by this column: the largest figure first, texts and numbers of
    /// processes as they follow each other. Equal ones are in the order of their numbers.
    pub(super) fn order(
        self,
        one: (&ProcessReading, &Figures),
        other: (&ProcessReading, &Figures),
    ) -> Ordering {
        let order = match (self, self.number(one.1)) {
            (_, Some(number)) => self.number(other.1).cmp(&Some(number)),
            (Self::Pid, _) => Ordering::Equal,
            _ => self.text(one.0).cmp(&self.text(other.0)),
        };
        order.then(one.0.pid.cmp(&other.0.pid))
    }
}

/// Sorts programs by the sum over all devices of each.
pub(super) fn sort(processes: &mut [ProcessReading], by: Column) {
    let sum = |process: &ProcessReading| {
        process.devices.iter().map(Figures::of).fold(Figures::default(), Figures::and)
    };
    processes.sort_by(|one, other| by.order((one, &sum(one)), (other, &sum(other))));
}

/// A column that has room, and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlacedColumn {
    pub(super) column: Column,
    pub(super) left: u16,
    pub(super) width: u16,
}

/// Places columns on a screen. `wanted` is the widest cell of each; 0 leaves a column out. The
/// command gets what is left.
pub(super) fn place(screen: u16, wanted: impl Fn(Column) -> u16) -> Vec<PlacedColumn> {
    let gap = if screen < 60 { 1 } else { 2 };
    let least_command = (screen * 3 / 20).clamp(8, 40);
    let (mut room, mut chosen) = (i32::from(screen) + i32::from(gap), Vec::new());
    for column in ROOM {
        let width = if column == Column::Command { least_command } else { wanted(column) };
        let needed = i32::from(width + gap);
        // The columns that have room first are cut rather than left out.
        if width > 0 && (needed <= room || chosen.is_empty()) {
            room -= needed;
            chosen.push((column, width));
        }
    }
    let more = u16::try_from(room).unwrap_or(0);
    let mut left = 0;
    let mut placed = Vec::new();
    for column in ALL {
        let Some((_, width)) = chosen.iter().find(|(one, _)| *one == column) else { continue };
        let width = if column == Column::Command { width + more } else { *width };
        placed.push(PlacedColumn { column, left, width });
        left += width + gap;
    }
    placed
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a narrow screen loses the columns that a person looks for, or two
    //! columns overlap.
    use super::*;

    fn wanted(column: Column) -> u16 {
        (column.heading().len() as u16).max(if column.is_figure() { 9 } else { 4 })
    }

    #[test]
    fn narrow_screens_keep_what_ran_out_and_what_left_the_device() {
        for screen in 20..250 {
            let placed = place(screen, wanted);
            let end = placed.last().map(|last| last.left + last.width).expect("a column");
            assert!(end <= screen, "{screen}: {placed:?}");
            assert!(placed.windows(2).all(|pair| pair[0].left + pair[0].width < pair[1].left), "{placed:?}");
            let has = |column| placed.iter().any(|one| one.column == column);
            assert!(has(Column::OutOfMemory), "{screen}");
            assert!(screen < 23 || has(Column::Host), "{screen}");
            assert!(screen < 42 || (has(Column::Pid) && has(Column::Command)), "{screen}");
            assert_eq!(placed.len() == ALL.len(), screen >= 122, "{screen}");
        }
    }

    #[test]
    fn every_column_has_a_key_and_a_neighbour() {
        let keys: Vec<_> = ('a'..='z').filter_map(Column::of_key).collect();
        assert!(ALL.iter().all(|column| keys.contains(column)) && keys.len() == ALL.len());
        assert_eq!(Column::Pid.beside(-1), Column::Command);
        assert_eq!(Column::Command.beside(1), Column::Pid);
        assert!(ROOM.iter().all(|column| ALL.contains(column)));
    }
}
