//! Driver and devices as text.

use super::survey::ExaminedDriver;
use crate::human;
use crate::stats;
use crate::table::TextTable;

/// Driver and devices as tables.
pub(in crate::doctor) fn render(driver: &Option<ExaminedDriver>) -> String {
    let Some(driver) = driver else { return "Driver   none\n\n".to_owned() };
    let mut devices = TextTable::new(&[
        ">DEVICE", "NAME", ">MEMORY", "CC", "PCI", "NUMA", "VMM", "HOST", "FD", "POOLS", "RDMA",
    ]);
    let yes = |flag: bool| if flag { "yes" } else { "no" }.to_owned();
    for device in &driver.devices {
        devices.row([
            device.ordinal.to_string(),
            human::name(&device.name),
            human::bytes(device.total_bytes),
            device.compute_capability.clone(),
            device.pci.clone(),
            device.numa_node.map_or_else(|| "-".into(), |node| node.to_string()),
            yes(device.virtual_memory),
            yes(device.host_memory_in_ranges),
            yes(device.file_descriptors),
            yes(device.memory_pools),
            yes(device.rdma),
        ]);
    }
    let heading = format!("Driver   {} (CUDA {})", driver.path.display(), stats::cuda(driver.version));
    format!("{heading}\n\n{devices}\n{}", peers(driver))
}

fn peers(driver: &ExaminedDriver) -> String {
    if driver.devices.len() < 2 {
        return String::new();
    }
    let headings: Vec<_> = std::iter::once("PEERS".to_owned())
        .chain((0..driver.devices.len()).map(|ordinal| format!(">{ordinal}")))
        .collect();
    let mut table = TextTable::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for (from, row) in driver.peers.iter().enumerate() {
        let mark = |(to, can): (usize, &bool)| {
            if from == to {
                "."
            } else if *can {
                "yes"
            } else {
                "no"
            }
            .to_owned()
        };
        table.row(std::iter::once(from.to_string()).chain(row.iter().enumerate().map(mark)));
    }
    format!("{table}\n")
}
