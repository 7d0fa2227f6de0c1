//! `wmctl dedup`: the broker of memory that processes of this user share: its clients, and the
//! bytes saved.

use anyhow::Result;
use serde_json::{Value, json};
use wm_dedup::protocol::{BrokerReport, ClientReport, DeviceReport};

use crate::client::FoundBroker;
use crate::table::TextTable;
use crate::{client, human, output};

/// Arguments of `wmctl dedup`.
#[derive(Debug, clap::Args)]
pub(crate) struct DedupArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Shows the broker. That there is none is an answer, too.
///
/// # Errors
/// Only those of printing: a broker that does not answer is said.
pub(crate) fn dedup(arguments: &DedupArguments) -> Result<()> {
    let (brokers, problems) = client::brokers();
    if arguments.json {
        let brokers: Vec<_> = brokers.iter().map(document).collect();
        let report = json!({ "schema": "wmctl-dedup/1", "brokers": brokers, "problems": problems });
        return output::print_json(&report);
    }
    problems.iter().for_each(|problem| eprintln!("wmctl: {}", human::shown(problem)));
    if brokers.is_empty() {
        let places = human::paths(&client::directories());
        let text = format!(
            "no broker listens in {places}; the first program that shares memory starts one, and it ends a minute after the last\n"
        );
        return output::print(&text);
    }
    output::print(&brokers.iter().map(text).collect::<Vec<_>>().join("\n"))
}

fn document(broker: &FoundBroker) -> Value {
    let report = &broker.report;
    let client = |client: &ClientReport| json!({ "pid": client.process, "leases": client.leases });
    json!({
        "socket": broker.socket.display().to_string(),
        "version": version(broker),
        "pid": broker.pid,
        "uptime_s": report.uptime,
        "capacity_chunks": report.capacity,
        "copy_segments": report.segments,
        "copy_bytes": report.copy_bytes,
        "clients": report.clients.iter().map(client).collect::<Vec<_>>(),
        "devices": report.devices.iter().map(device).collect::<Vec<_>>(),
    })
}

fn device(device: &DeviceReport) -> Value {
    json!({
        "uuid": uuid(&device.device),
        "chunks": device.chunks,
        "leases": device.leases,
        "held_bytes": device.held_bytes(),
        "saved_bytes": device.saved_bytes(),
    })
}

fn text(broker: &FoundBroker) -> String {
    let (report, mut text) = (&broker.report, heading(broker));
    text.push_str(&copies(report));
    let mut devices = TextTable::new(&["DEVICE", ">CHUNKS", ">USES", ">HELD ONCE", ">SAVED"]);
    for device in &report.devices {
        let (held, saved) = (human::bytes(device.held_bytes()), human::bytes(device.saved_bytes()));
        devices.row([
            uuid(&device.device),
            human::count(device.chunks),
            human::count(device.leases),
            held,
            saved,
        ]);
    }
    let mut clients = TextTable::new(&[">PID", ">USES"]);
    for client in &report.clients {
        let pid = if client.process == 0 { "elsewhere".to_owned() } else { client.process.to_string() };
        clients.row([pid, human::count(client.leases)]);
    }
    for table in [devices, clients].into_iter().filter(|table| !table.is_empty()) {
        text.push_str(&format!("\n{table}"));
    }
    text
}

/// Common copies in host memory, if there are any.
fn copies(report: &BrokerReport) -> String {
    match report.segments {
        0 => String::new(),
        segments => format!(
            "common copies of paused programs in host memory: {} (segments: {})\n",
            human::bytes(report.copy_bytes),
            human::count(segments),
        ),
    }
}

fn heading(broker: &FoundBroker) -> String {
    let report = &broker.report;
    let chunks: u64 = report.devices.iter().map(|device| device.chunks).fold(0, u64::saturating_add);
    format!(
        "wmshimd {} (process {}), up {}, {}: {} programs, {} of at most {} chunks\n",
        version(broker),
        broker.pid,
        human::duration(report.uptime as f64),
        human::shown(&broker.socket.display().to_string()),
        report.clients.len(),
        human::count(chunks),
        human::count(report.capacity),
    )
}

fn version(broker: &FoundBroker) -> String {
    broker.report.release.map(|number| number.to_string()).join(".")
}

/// As `nvidia-smi -L` writes it.
fn uuid(device: &[u8; 16]) -> String {
    let digits: String = device.iter().map(|byte| format!("{byte:02x}")).collect();
    let [a, b, c, d, e] = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| &digits[range]);
    format!("GPU-{a}-{b}-{c}-{d}-{e}")
}
