//! The answer to `config`: the settings in force.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The answer to `config`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// `wmshim-config/2`.
    pub schema: String,
    /// The process.
    pub pid: u32,
    /// The library's file; null where it is not known.
    pub library: Option<String>,
    /// Each variable with its value as it could be set again (`48GiB`, `off`), or null if it is not
    /// set and has no fixed default.
    pub settings: BTreeMap<String, Option<String>>,
    /// The limits that follow from them, for each device that the program has used for memory.
    pub devices: Vec<DeviceBudget>,
}

impl Config {
    /// The version of this answer.
    pub const SCHEMA: &'static str = "wmshim-config/2";
}

/// The limits that follow from the settings, for a device; null if there is no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceBudget {
    /// The device, as the process numbers it.
    pub ordinal: i32,
    /// Most device memory to hold.
    pub device_limit_bytes: Option<u64>,
    /// Device memory left free for the driver.
    pub headroom_bytes: u64,
    /// Idle memory that stays with the process after a `cuMemFree`.
    pub keep_idle_bytes: u64,
    /// Most host memory to hold for this device.
    pub host_limit_bytes: Option<u64>,
    /// Most memory of each other device.
    pub peer_limit_bytes: Option<u64>,
}
