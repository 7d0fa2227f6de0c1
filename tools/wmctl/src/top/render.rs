//! Programs, their copies and their shared memory, as tables.

use super::reading::{Change, CopyRate, DeviceUsage, ProcessReading};
use crate::client::Origins;
use crate::human;
use crate::table::TextTable;

/// All tables that have rows; a sentence where there is no program.
pub(super) fn table(change: &Change) -> String {
    let incomplete = change.incomplete.as_ref().map(|line| format!("{line}\n")).unwrap_or_default();
    if change.processes.is_empty() {
        return format!("no program under the shim runs now\n{incomplete}");
    }
    let mut text = format!("{}{incomplete}", memory(&change.processes));
    for table in [copies(&change.processes), dedup(&change.processes)] {
        if !table.is_empty() {
            text.push_str(&format!("\n{table}"));
        }
    }
    text
}

fn memory(processes: &[ProcessReading]) -> TextTable {
    let origins = Origins::of(processes.iter().map(|process| &process.identity));
    let headings =
        [">PID", "USER", ">GPU", ">LIVE", ">RESERVED", ">LIMIT", ">ON PEERS", ">ON HOST", ">OUT OF MEMORY"];
    let headings = headings.into_iter().chain(origins.headings()).chain(["COMMAND"]);
    let mut table = TextTable::new(&headings.collect::<Vec<_>>());
    for process in processes {
        let identity = &process.identity;
        let command = human::name(&identity.command_or(&process.program));
        let notes = [process.halt().map(human::word), process.arena()];
        let notes: String = notes.iter().flatten().map(|note| format!(" ({note})")).collect();
        let command = format!("{command}{notes}");
        let command = if process.detached { format!("{command} (detached)") } else { command };
        for device in &process.devices {
            table.row(
                row(process, device).into_iter().chain(origins.cells(identity)).chain([command.clone()]),
            );
        }
        if process.devices.is_empty() {
            let is_silent = !process.answers && !process.stopped;
            let command = if is_silent { format!("{command} (does not answer)") } else { command };
            let nothing = std::iter::repeat_n("-".to_owned(), 7);
            let cells = [process.pid.to_string(), user(process)].into_iter().chain(nothing);
            table.row(cells.chain(origins.cells(identity)).chain([command]));
        }
    }
    table
}

fn user(process: &ProcessReading) -> String {
    human::name(process.identity.user.as_deref().unwrap_or_default())
}

/// The device by its address, on which processes agree; by the process's own number where an older
/// library tells no address.
fn gpu(device: &DeviceUsage) -> String {
    let address = device.pci.strip_prefix("0000:").unwrap_or(&device.pci);
    if address.is_empty() { device.ordinal.to_string() } else { human::name(address) }
}

fn row(process: &ProcessReading, device: &DeviceUsage) -> [String; 9] {
    [
        process.pid.to_string(),
        user(process),
        gpu(device),
        human::bytes(device.live_bytes),
        human::bytes(device.reserved_bytes),
        human::bytes(device.limit_bytes),
        human::bytes(device.peer_bytes),
        human::bytes(device.host_bytes),
        human::count(device.out_of_memory),
    ]
}

/// The copies of programs, a row a path and direction.
pub(super) fn copies<'a>(processes: impl IntoIterator<Item = &'a ProcessReading>) -> TextTable {
    let mut table = TextTable::new(&[">PID", "COPIES OVER", "DIRECTION", ">GB/s"]);
    for process in processes {
        for CopyRate { path, direction, bytes_per_s, .. } in &process.copies {
            let rate = format!("{:.2}", bytes_per_s / 1e9);
            table.row([process.pid.to_string(), path.clone(), direction.clone(), rate]);
        }
    }
    table
}

/// The memory that programs share, of those that share any.
pub(super) fn dedup<'a>(processes: impl IntoIterator<Item = &'a ProcessReading>) -> TextTable {
    let mut table = TextTable::new(&[">PID", "DEDUP", ">CANDIDATES", ">SHARED", ">SAVED"]);
    for process in processes {
        if let Some(usage) = &process.dedup {
            let sizes = [usage.candidate_bytes, usage.shared_bytes, usage.saved_bytes].map(human::bytes);
            table.row([process.pid.to_string(), usage.mode.clone()].into_iter().chain(sizes));
        }
    }
    table
}
