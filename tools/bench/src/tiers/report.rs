//! The figures: as JSON with fixed names, and as a table for people.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

use super::board::LinkTraffic;
use super::story::Story;
use wmctl::human;
use wmctl::table::TextTable;

/// The costs of traffic.
#[derive(Debug, Clone, Copy)]
pub(super) struct TierCosts {
    /// Of the link, in each direction.
    pub(super) gigabytes_per_second: f64,
    /// Of a stop besides its bytes.
    pub(super) stop_microseconds: f64,
}

impl TierCosts {
    /// Of the busier direction.
    pub(super) fn link_seconds(self, traffic: LinkTraffic) -> f64 {
        traffic.busier() as f64 / (self.gigabytes_per_second * 1e9)
    }

    /// And of the stops.
    pub(super) fn seconds(self, traffic: LinkTraffic) -> f64 {
        self.link_seconds(traffic) + traffic.stops as f64 * self.stop_microseconds / 1e6
    }
}

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
    /// Time of the busier direction, and of the stops.
    pub(super) seconds: f64,
    /// That over the optimum's, and over that of the best feasible; null where that has none.
    pub(super) ratio: Option<f64>,
    pub(super) ratio_to_feasible: Option<f64>,
}

impl PolicyReport {
    /// `bests` are seconds of the optimum and of the best feasible.
    pub(super) fn new(policy: &'static str, traffic: LinkTraffic, bests: [f64; 2], costs: TierCosts) -> Self {
        let seconds = costs.seconds(traffic);
        let over = |best: f64| match (seconds > 0.0, best > 0.0) {
            (false, false) => Some(1.0),
            (true, false) => None,
            (_, true) => Some(seconds / best),
        };
        let [ratio, ratio_to_feasible] = bests.map(over);
        Self {
            policy,
            to_device_bytes: traffic.inbound(),
            remote_bytes: traffic.remote,
            to_host_bytes: traffic.leave,
            stops: traffic.stops,
            seconds,
            ratio,
            ratio_to_feasible,
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

pub(super) fn json(story: &Story, limits: &[LimitReport], costs: TierCosts) -> Result<Value> {
    Ok(json!({
        "schema": "bench-tiers/1",
        "peak_live_bytes": story.peak,
        "launches": story.launches,
        "unknown_launches": story.unknown,
        "link_gigabytes_per_second": costs.gigabytes_per_second,
        "stop_microseconds": costs.stop_microseconds,
        "limits": serde_json::to_value(limits)?,
    }))
}

pub(super) fn table(story: &Story, limits: &[LimitReport], costs: TierCosts) -> String {
    let mut text = format!(
        "peak live {}, {} launches, {} of them unknown; link {} GB/s a direction, a stop {} µs\n",
        human::bytes(story.peak),
        human::count(story.launches),
        human::count(story.unknown),
        costs.gigabytes_per_second,
        costs.stop_microseconds,
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
        ">/ FEASIBLE",
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
            shown(policy.ratio_to_feasible),
            shown(policy.ratio),
        ]);
    }
    table
}

fn shown(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"))
}
