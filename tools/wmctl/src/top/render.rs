//! Programs and their copies as two tables.

use super::reading::{By, Change, CopyRate, DeviceUsage, ProcessReading};
use crate::human;
use crate::table::TextTable;

/// Both tables; a sentence where there is no program.
pub(super) fn table(change: &Change) -> String {
    if change.processes.is_empty() {
        return "no program under the shim runs now\n".to_owned();
    }
    let (memory, copies) = (memory(&change.processes), copies(&change.processes));
    if copies.is_empty() { memory.to_string() } else { format!("{memory}\n{copies}") }
}

/// What keys do, in one line.
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
