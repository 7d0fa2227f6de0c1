//! The file that a program leaves at an out-of-memory, for people and for programs.

use anyhow::Result;
use serde_json::{Value, json};
use wm_schema::{FullDevice, Holder, OutOfMemory};

use super::holders::{NamedFrame, place, share};
use super::symbols::Symbols;
use crate::table::TextTable;
use crate::{human, output};

/// The content of a file, if it is such a file.
pub(super) fn parse(content: &[u8]) -> Option<OutOfMemory> {
    let file: OutOfMemory = serde_json::from_slice(content).ok()?;
    (file.schema == OutOfMemory::SCHEMA).then_some(file)
}

/// Prints it, with so many holders.
///
/// # Errors
/// Those of printing.
pub(super) fn print(file: &OutOfMemory, most: usize, as_json: bool) -> Result<()> {
    let mut symbols = Symbols::default();
    if as_json {
        return output::print_json(&with_names(file, &mut symbols)?);
    }
    output::print(&text(file, most, &mut symbols))
}

fn names(holder: &Holder, symbols: &mut Symbols) -> Vec<NamedFrame> {
    holder.frames.iter().map(|frame| NamedFrame::of(frame, symbols)).collect()
}

/// The file as it is, with the names of the frames.
fn with_names(file: &OutOfMemory, symbols: &mut Symbols) -> Result<Value> {
    let mut value = serde_json::to_value(file)?;
    for (holder, shown) in file.holders.iter().zip(value["holders"].as_array_mut().into_iter().flatten()) {
        shown["frames"] = json!(names(holder, symbols));
    }
    value["schema"] = "wmctl-out-of-memory/1".into();
    Ok(value)
}

fn text(file: &OutOfMemory, most: usize, symbols: &mut Symbols) -> String {
    let held: u64 =
        file.holders.iter().map(|holder| holder.bytes).sum::<u64>().saturating_add(file.other_bytes);
    let mut holders = TextTable::new(&[">BYTES", ">SHARE", ">COUNT", ">DEVICE", "KIND", "WHERE"]);
    for holder in file.holders.iter().take(most) {
        let place = match holder.address {
            Some(address) => format!("{address:#x}"),
            None if file.holders_by == "site" => place(&names(holder, symbols)),
            None => "mapped nowhere".to_owned(),
        };
        holders.row([
            human::bytes(holder.bytes),
            share(holder.bytes, held),
            holder.count.to_string(),
            holder.device.to_string(),
            holder.kind.clone(),
            place,
        ]);
    }
    let mut devices = TextTable::new(&[">DEVICE", ">ON IT", ">ON PEERS", ">ON HOST", ">LIMIT", ">TOTAL"]);
    for FullDevice { ordinal, total_bytes, limit_bytes, memory, .. } in &file.devices {
        let bytes = [memory.device, memory.peer, memory.host].map(|tier| human::bytes(tier.live_bytes));
        let [device, peer, host] = bytes;
        let [limit, total] = [limit_bytes, total_bytes].map(|bytes| human::bytes(*bytes));
        devices.row([ordinal.to_string(), device, peer, host, limit, total]);
    }
    format!(
        "{} ({}) asked for {} of device {}, which is full. {} of it would have been enough up to here.\n{}\n\n{devices}\n\
         {holders}",
        human::name(&file.program),
        file.pid,
        human::bytes(file.asked_bytes),
        file.device,
        human::bytes(file.would_be_enough_bytes),
        human::word(&file.reason),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_named_by_their_addresses() {
        let holder = Holder {
            bytes: 3 << 20,
            count: 2,
            kind: "piece".into(),
            address: Some(0x7000),
            ..Holder::default()
        };
        let unmapped = Holder { bytes: 1 << 20, count: 1, kind: "piece".into(), ..Holder::default() };
        let file = OutOfMemory {
            schema: OutOfMemory::SCHEMA.to_owned(),
            program: "train".into(),
            pid: 7,
            asked_bytes: 1 << 30,
            would_be_enough_bytes: 2 << 30,
            devices: vec![FullDevice::default()],
            holders_by: "range".into(),
            holders: vec![holder, unmapped],
            ..OutOfMemory::default()
        };
        let content = serde_json::to_vec(&file).expect("JSON");
        let read = parse(&content).expect("such a file");
        let text = text(&read, 20, &mut Symbols::default());
        assert!(
            text.contains("asked for 1.0 GiB of device 0") && text.contains("2.0 GiB of it would"),
            "{text}"
        );
        assert!(
            text.contains("75.0 %") && text.contains("0x7000") && text.contains("mapped nowhere"),
            "{text}"
        );
        assert!(parse(b"{}").is_none() && parse(b"\x1f\x8b").is_none());
    }
}
