//! The figures: as JSON with fixed names, and as a table for people.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

use super::board::LinkTraffic;
use super::story::Story;
use crate::human;
use crate::table::TextTable;

/// One policy on one device.
#[derive(Debug, Clone, Serialize)]
pub(super) struct PolicyReport {
    pub(super) policy: &'static str,
    /// Over the link to the device: used from the host, and moved.
    pub(super) to_device_bytes: u64,
    /// Of these, used from the host.
    pub(super) remote_bytes: u64,
    /// Over the link to the host.
    pub(super) to_host_bytes: u64,
    /// Times that work had to end for moves.
    pub(super) stops: u64,
    /// Time of the busier direction.
    pub(super) seconds: f64,
    /// That over the optimum's; null where the optimum has none.
    pub(super) ratio: Option<f64>,
}

impl PolicyReport {
    pub(super) fn new(
        policy: &'static str,
        traffic: LinkTraffic,
        best: u64,
        gigabytes_per_second: f64,
    ) -> Self {
        let busier = traffic.busier();
        Self {
            policy,
            to_device_bytes: traffic.inbound(),
            remote_bytes: traffic.remote,
            to_host_bytes: traffic.leave,
            stops: traffic.stops,
            seconds: busier as f64 / (gigabytes_per_second * 1e9),
            ratio: match (busier, best) {
                (0, 0) => Some(1.0),
                (_, 0) => None,
                _ => Some(busier as f64 / best as f64),
            },
        }
    }
}

/// All policies on one device.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LimitReport {
    pub(super) device_limit_bytes: u64,
    /// The trace's peak over that.
    pub(super) peak_factor: f64,
    pub(super) policies: Vec<PolicyReport>,
}

pub(super) fn json(story: &Story, limits: &[LimitReport], gigabytes_per_second: f64) -> Result<Value> {
    Ok(json!({
        "schema": "wmctl-tiers/1",
        "peak_live_bytes": story.peak,
        "launches": story.launches,
        "unknown_launches": story.unknown,
        "link_gigabytes_per_second": gigabytes_per_second,
        "limits": serde_json::to_value(limits)?,
    }))
}

pub(super) fn table(story: &Story, limits: &[LimitReport], gigabytes_per_second: f64) -> String {
    let mut text = format!(
        "peak live {}, {} launches, {} of them unknown; link {gigabytes_per_second} GB/s a direction\n",
        human::bytes(story.peak),
        human::count(story.launches),
        human::count(story.unknown),
    );
    for limit in limits {
        let size = human::bytes(limit.device_limit_bytes);
        text.push_str(&format!("\ndevice of {size}, peak / device {:.2}\n", limit.peak_factor));
        text.push_str(&one(limit).to_string());
    }
    text
}

fn one(limit: &LimitReport) -> TextTable {
    let mut table = TextTable::new(&[
        "POLICY",
        ">TO DEVICE",
        ">NOT MOVED",
        ">TO HOST",
        ">STOPS",
        ">SECONDS",
        ">/ OPTIMUM",
    ]);
    for policy in &limit.policies {
        table.row([
            policy.policy.to_owned(),
            human::bytes(policy.to_device_bytes),
            human::bytes(policy.remote_bytes),
            human::bytes(policy.to_host_bytes),
            human::count(policy.stops),
            format!("{:.3}", policy.seconds),
            policy.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}")),
        ]);
    }
    table
}
