//! Programs, their copies and their shared memory, as tables.

use super::reading::{By, Change, CopyRate, DeviceUsage, ProcessReading};
use crate::human;
use crate::table::TextTable;

/// All tables that have rows; a sentence where there is no program.
pub(super) fn table(change: &Change) -> String {
    if change.processes.is_empty() {
        return "no program under the shim runs now\n".to_owned();
    }
    let mut text = memory(&change.processes).to_string();
    for table in [copies(&change.processes), dedup(&change.processes)] {
        if !table.is_empty() {
            text.push_str(&format!("\n{table}"));
        }
    }
    text
}

/// The keys and their effects, in one line.
pub(super) fn legend(sort: By) -> String {
    format!("by {}; keys: p PID, l live, r reserved, h on host, o out of memory; q ends\n", sort.name())
}

fn memory(processes: &[ProcessReading]) -> TextTable {
    let mut table = TextTable::new(&[
        ">PID",
        "PROGRAM",
        ">GPU",
        ">LIVE",
        ">RESERVED",
        ">LIMIT",
        ">ON PEERS",
        ">ON HOST",
        ">OUT OF MEMORY",
    ]);
    for process in processes {
        for device in &process.devices {
            table.row(row(process, device));
        }
        if process.devices.is_empty() {
            let program =
                if process.answers { human::name(&process.program) } else { "does not answer".to_owned() };
            let nothing = std::iter::repeat_n("-".to_owned(), 7);
            table.row([process.pid.to_string(), program].into_iter().chain(nothing));
        }
    }
    table
}

fn row(process: &ProcessReading, device: &DeviceUsage) -> [String; 9] {
    [
        process.pid.to_string(),
        human::name(&process.program),
        device.ordinal.to_string(),
        human::bytes(device.live_bytes),
        human::bytes(device.reserved_bytes),
        human::bytes(device.limit_bytes),
        human::bytes(device.peer_bytes),
        human::bytes(device.host_bytes),
        human::count(device.out_of_memory),
    ]
}

fn copies(processes: &[ProcessReading]) -> TextTable {
    let mut table = TextTable::new(&[">PID", "COPIES OVER", "DIRECTION", ">GB/s"]);
    for process in processes {
        for CopyRate { path, direction, bytes_per_s, .. } in &process.copies {
            let rate = format!("{:.2}", bytes_per_s / 1e9);
            table.row([process.pid.to_string(), path.clone(), direction.clone(), rate]);
        }
    }
    table
}

fn dedup(processes: &[ProcessReading]) -> TextTable {
    let mut table = TextTable::new(&[">PID", "DEDUP", ">CANDIDATES", ">SHARED", ">SAVED"]);
    for process in processes {
        if let Some(usage) = &process.dedup {
            let sizes = [usage.candidate_bytes, usage.shared_bytes, usage.saved_bytes].map(human::bytes);
            table.row([process.pid.to_string(), usage.mode.clone()].into_iter().chain(sizes));
        }
    }
    table
}
