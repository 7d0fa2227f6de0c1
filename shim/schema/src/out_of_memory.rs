//! The file of an out-of-memory: what the program held when it was refused memory.

use serde::{Deserialize, Serialize};

use crate::profile::PythonPlace;
use crate::stats::Tiers;

/// The file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutOfMemory {
    /// `wmshim-out-of-memory/1`.
    pub schema: String,
    /// The library's version.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// File name of its executable.
    pub program: String,
    /// When it was refused the memory, since 1970.
    pub unix_ms: u64,
    /// The device, as the process numbers it.
    pub device: i32,
    /// Bytes that it asked for.
    pub asked_bytes: u64,
    /// Memory of the device with which the program would have fitted up to here, this request
    /// included.
    pub would_be_enough_bytes: u64,
    /// What was in the way, as the log has it.
    pub reason: String,
    /// One for each device that the program has used for memory.
    pub devices: Vec<FullDevice>,
    /// `site` with a profile: bytes are estimates from samples. `range` without: each holder is a
    /// block, or a range of memory that the program made itself.
    pub holders_by: String,
    /// The largest, at most 50.
    pub holders: Vec<Holder>,
    /// Bytes of all other holders together.
    pub other_bytes: u64,
}

impl OutOfMemory {
    /// The version of this format.
    pub const SCHEMA: &'static str = "wmshim-out-of-memory/1";

    /// The beginning of the files' names.
    pub const FILE_PREFIX: &'static str = "out-of-memory-";

    /// The name of a process's file, which it may have several of.
    #[must_use]
    pub fn file_name(pid: u32, number: usize) -> String {
        format!("{}{pid}-{number}.json", Self::FILE_PREFIX)
    }

    /// The process in a file's name; `None` for other names.
    #[must_use]
    pub fn process_of(name: &str) -> Option<u32> {
        let (pid, number) = name.strip_prefix(Self::FILE_PREFIX)?.strip_suffix(".json")?.split_once('-')?;
        number.parse::<usize>().ok()?;
        pid.parse().ok()
    }
}

/// A device at that time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FullDevice {
    /// As the process numbers it.
    pub ordinal: i32,
    /// Its total memory.
    pub total_bytes: u64,
    /// Most device memory to hold.
    pub limit_bytes: u64,
    /// Device memory left free for the driver.
    pub headroom_bytes: u64,
    /// What the program holds, by tier.
    pub memory: Tiers,
}

/// One that holds memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Holder {
    /// The device, as the process numbers it.
    pub device: i32,
    /// Bytes that it holds.
    pub bytes: u64,
    /// Blocks or pieces that it holds.
    pub count: u64,
    /// `block` or `piece`.
    pub kind: String,
    /// First address; null for a call site.
    pub address: Option<u64>,
    /// The call site, the innermost frame first; empty without a profile.
    pub frames: Vec<HolderFrame>,
}

/// A place in code: a native one or one of Python.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HolderFrame {
    /// A place in machine code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native: Option<ObjectPlace>,
    /// A place in a Python program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python: Option<PythonPlace>,
}

/// A place in the machine code of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectPlace {
    /// The file; empty for code that is in none.
    pub path: String,
    /// The build id of the file, in hexadecimal digits; empty without one.
    pub build_id: String,
    /// Address in the file, of the call or right behind its beginning.
    pub offset: u64,
}
