//! The limits of a broker: it holds as many chunks as it may have descriptors open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::broker::{CopyLimits, Limits};

/// Processes that share at a time.
const CLIENTS: usize = 256;

/// Descriptors that are neither chunks' nor segments': clients and the lives of their processes,
/// keepers of copies, observers, the descriptors of one packet under way, the broker's own.
const RESERVE: u64 = 3 * CLIENTS as u64 + 128;

/// The most chunks, if the system's limit is higher: 2 TiB of device memory.
const MOST_CHUNKS: u64 = 1 << 20;

/// The most segments of host memory: 2 TiB, if each has 256 MiB. If the system's limit is low, they
/// get an eighth of the descriptors.
const MOST_SEGMENTS: u64 = 1 << 13;

/// Names of copies: 2 TiB, if each has 2 MiB. Each costs some hundred bytes.
const NAMES: usize = 1 << 20;

/// Leases of all clients, of some tens of bytes each.
const LEASES: usize = 1 << 22;

/// Raises the limit on open files as far as possible. Returns the limits that fit into it.
pub fn raise() -> Limits {
    let before = getrlimit(Resource::Nofile);
    // If the system refuses, the limit is the old one.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, maximum: before.maximum });
    of(getrlimit(Resource::Nofile).current)
}

/// The limits that fit into a limit on open files; `None`: files are not limited.
fn of(files: Option<u64>) -> Limits {
    let room = files.map_or(u64::MAX, |files| files.saturating_sub(RESERVE));
    let segments = (room / 8).min(MOST_SEGMENTS);
    let chunks = (room - segments).min(MOST_CHUNKS);
    Limits {
        clients: CLIENTS,
        chunks: chunks as usize,
        leases: LEASES,
        leases_of_one: LEASES / 4,
        copies: copies(segments as usize),
    }
}

/// One keeper uses at most half of the segments: no process alone takes all of them.
fn copies(segments: usize) -> CopyLimits {
    CopyLimits { keepers: CLIENTS, segments, names: NAMES, segments_of_one: segments.div_ceil(2) }
}

#[cfg(test)]
mod tests {
    //! Hazard: chunks take the descriptors that connections need.
    use super::{MOST_CHUNKS, MOST_SEGMENTS, of};

    #[test]
    fn connections_have_descriptors_left() {
        assert_eq!(of(Some(100)).chunks, 0);
        assert_eq!((of(Some(1024)).chunks, of(Some(1024)).copies.segments), (112, 16));
        assert_eq!(of(None).chunks, MOST_CHUNKS as usize);
        assert_eq!(of(None).copies.segments, MOST_SEGMENTS as usize);
        assert!(of(Some(u64::MAX)).clients >= 200);
    }
}
