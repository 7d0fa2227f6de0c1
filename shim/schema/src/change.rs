//! The answer to requests that change a process: `limit`, `trim`, `detach` and `attach`.

use serde::{Deserialize, Serialize};

/// The answer to a request that changes the process. A request makes one step of bounded time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessChange {
    /// `wmshim-change/1`.
    pub schema: String,
    /// The process.
    pub pid: u32,
    /// Are the library's features off?
    pub detached: bool,
    /// Another step may do more: the client asks again.
    pub goes_on: bool,
    /// What the step did, for each device that the program has used for memory.
    pub devices: Vec<DeviceChange>,
    /// After `detach`: what of the library goes on, and why.
    pub remains: Vec<String>,
}

impl ProcessChange {
    /// The version of this answer.
    pub const SCHEMA: &'static str = "wmshim-change/1";
}

/// What a step did on a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceChange {
    /// The device, as the process numbers it.
    pub ordinal: i32,
    /// Its identity, as NVIDIA's tools write it; empty where the driver does not tell.
    pub uuid: String,
    /// Most device memory to hold now; null if there is no limit.
    pub limit_bytes: Option<u64>,
    /// What that comes from: `none`, `asked`, `WMSHIM_DEVICE_LIMIT`, the node's file, `dmem.max` or
    /// `dmem.min`.
    pub limit_source: String,
    /// Device memory that is held now, used or idle.
    pub held_bytes: u64,
    /// The part of it beyond the limit.
    pub beyond_bytes: u64,
    /// Memory on the host and on other devices.
    pub elsewhere_bytes: u64,
    /// Bytes that left the device in this step.
    pub out_bytes: u64,
    /// Bytes that came to it in this step.
    pub back_bytes: u64,
    /// Bytes that went to the driver in this step.
    pub given_bytes: u64,
    /// Bytes that stay where they are, by reason, as far as this step has tried.
    pub stays: Vec<StayingBytes>,
}

/// Memory that stays where it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StayingBytes {
    /// In words.
    pub reason: String,
    /// How much.
    pub bytes: u64,
}
