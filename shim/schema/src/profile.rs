//! The lines of a recording of `WMSHIM_PROFILE`: sampled allocations, each with the code that made
//! it.
//!
//! The file is gzip; unpacked it has one JSON object a line, and its one key says what the line is.
//! A number is defined in a line before it is used. Lists of frames begin with the innermost one.

use serde::{Deserialize, Serialize};

/// A line of the recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileLine {
    /// The first line.
    Profile(ProfileHeader),
    /// A loaded object.
    Module(ProfileModule),
    /// A place in code.
    Frame(ProfileFrame),
    /// A stack of places.
    Site(ProfileSite),
    /// An allocation that was sampled.
    Allocated(SampledAllocation),
    /// A sampled allocation is gone.
    Freed(SampledFree),
    /// The program was refused memory.
    OutOfMemory(ProfileRefusal),
    /// The program said where it is.
    Mark(ProfileMark),
}

/// The recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileHeader {
    /// `wmshim-profile/1`.
    pub schema: String,
    /// The library's version.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// File name of its executable.
    pub program: String,
    /// Mean of the bytes from one sample to the next.
    pub interval_bytes: u64,
    /// When it began, since 1970.
    pub began_unix_ms: u64,
    /// The version of Python of which frames are read, such as `3.11`; null without any.
    pub python: Option<String>,
}

impl ProfileHeader {
    /// The version of this format.
    pub const SCHEMA: &'static str = "wmshim-profile/1";

    /// The beginning of every recording.
    pub const BEGINNING: &'static str = "{\"profile\":{\"schema\":\"wmshim-profile/";
}

/// A loaded object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileModule {
    /// Its number.
    pub id: u32,
    /// Its file.
    pub path: String,
    /// The build id of the file, in hexadecimal digits; empty without one.
    pub build_id: String,
    /// The difference between its addresses in the process and in the file.
    pub base: u64,
}

/// A place in code: a native one or one of Python.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileFrame {
    /// Its number.
    pub id: u32,
    /// A place in machine code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native: Option<NativePlace>,
    /// A place in a Python program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python: Option<PythonPlace>,
}

/// A place in machine code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct NativePlace {
    /// Number of the module; null for code that is in none.
    pub module: Option<u32>,
    /// Address in the module's file, of the call or right behind its beginning; without a module
    /// the address in the process.
    pub offset: u64,
}

/// A line of a Python program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PythonPlace {
    /// Qualified name of the function; before Python 3.11 its plain name.
    pub function: String,
    /// The file that it was compiled from.
    pub file: String,
    /// The line that it executes; 0 if that is not known.
    pub line: u32,
}

/// A stack: the places from the driver's call outwards.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileSite {
    /// Its number.
    pub id: u32,
    /// Numbers of its frames, the innermost first.
    pub frames: Vec<u32>,
    /// Whether outer frames are left out.
    pub is_cut: bool,
}

/// An allocation that was sampled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SampledAllocation {
    /// Time since the recording began.
    pub ms: u64,
    /// Its number, which no other has.
    pub number: u64,
    /// Number of the site.
    pub site: u32,
    /// The device, as the process numbers it.
    pub device: i32,
    /// Its size.
    pub bytes: u64,
    /// Bytes that it stands for: its size over the probability that it was sampled. Sums of them
    /// are estimates without bias.
    pub weight_bytes: u64,
    /// `block`, or `piece` for memory that the program made itself with `cuMemCreate`.
    pub kind: String,
}

/// A sampled allocation is gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SampledFree {
    /// Time since the recording began.
    pub ms: u64,
    /// Number of the allocation.
    pub number: u64,
}

/// The program was refused memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileRefusal {
    /// Time since the recording began.
    pub ms: u64,
    /// The device, as the process numbers it.
    pub device: i32,
    /// Bytes that it asked for.
    pub asked_bytes: u64,
}

/// The program said where it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileMark {
    /// Time since the recording began.
    pub ms: u64,
    /// Its words.
    pub text: String,
}
