//! The topology as text: one line a device under its uplink, and the machine's total rate.

use std::fmt::Write as _;

use crate::topology::Topology;
use crate::topology::rates::Rates;
use crate::vocabulary::copy::LinkDirection;

/// A drawing of the links, GB/s in and out.
pub fn draw(topology: &Topology) -> String {
    let (into, out) = (&topology.into, &topology.out);
    let mut text = String::from("host memory\n");
    let uplinks = into.uplinks();
    for (number, uplink) in uplinks.iter().enumerate() {
        let last = number + 1 == uplinks.len();
        branch(&mut text, topology, uplink, last);
    }
    let _ = writeln!(text, "all links at once: {} in, {} out (GB/s)", gb(into.all), gb(out.all));
    for direction in [LinkDirection::In, LinkDirection::Out] {
        let _ = writeln!(text, "{}", chosen(topology, direction));
    }
    text
}

fn branch(text: &mut String, topology: &Topology, uplink: &[usize], last: bool) {
    let (knot, trunk) = if last { ("└", " ") } else { ("├", "│") };
    let shared = shared(&topology.into, uplink);
    let _ = writeln!(text, "{knot}─ uplink{shared}");
    for (position, device) in uplink.iter().enumerate() {
        let knot = if position + 1 == uplink.len() { "└" } else { "├" };
        let _ = writeln!(text, "{trunk}  {knot}─ {}", line(topology, *device));
    }
}

fn shared(into: &Rates, uplink: &[usize]) -> String {
    match uplink {
        [one, other, ..] => format!(", shared: {} in for two", gb(into.together[*one][*other])),
        _ => String::new(),
    }
}

fn line(topology: &Topology, device: usize) -> String {
    let identity = &topology.key.devices[device];
    let numa = identity.numa.map_or_else(String::new, |node| format!("  NUMA {node}"));
    let rates = match (topology.into.alone[device], topology.out.alone[device]) {
        (into, _) if into <= 0.0 => "not measured".to_owned(),
        (into, out) => format!("{} in  {} out", gb(into), gb(out)),
    };
    format!("GPU {device}  {}  {rates}{numa}  reaches {}", identity.pci, reached(topology, device))
}

fn reached(topology: &Topology, device: usize) -> String {
    let row = topology.reach[device].iter().enumerate().filter(|(other, can)| *other != device && **can);
    let others: Vec<_> = row.map(|(other, _)| other.to_string()).collect();
    if others.is_empty() { "none".to_owned() } else { others.join(" ") }
}

/// The paths that a copy of the first device takes on an idle machine.
fn chosen(topology: &Topology, direction: LinkDirection) -> String {
    let all: Vec<_> = (0..topology.key.devices.len() as i32).collect();
    let paths = topology.paths(0, direction, &all);
    let name = if direction == LinkDirection::In { "to" } else { "from" };
    let parts: Vec<_> = paths.iter().map(|path| format!("{} at {}", path.device, gb(path.rate))).collect();
    let from = match topology.threshold(&paths, direction) {
        usize::MAX => "never cut up".to_owned(),
        bytes => format!("cut up from {} MiB", bytes.div_ceil(1 << 20)),
    };
    format!("a copy {name} GPU 0 uses links {}; {from}", parts.join(", "))
}

fn gb(rate: f64) -> String {
    format!("{:.1}", rate / 1e9)
}
