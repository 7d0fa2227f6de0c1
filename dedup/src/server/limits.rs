//! What a broker takes on: as many chunks as it may have descriptors open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::broker::Limits;

/// Processes that share at a time.
const CLIENTS: usize = 256;

/// Descriptors that are no chunks': clients, observers, what is under way in one packet, the
/// broker's own.
const RESERVE: u64 = CLIENTS as u64 + 128;

/// Most chunks, where the system's limit is higher: 2 TiB of device memory.
const MOST_CHUNKS: u64 = 1 << 20;

/// Leases of all clients, of some tens of bytes each.
const LEASES: usize = 1 << 22;

/// Raises the limit on open files as far as it may be raised; what fits into it.
pub fn raise() -> Limits {
    let before = getrlimit(Resource::Nofile);
    // What is refused leaves the limit as it was.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, maximum: before.maximum });
    of(getrlimit(Resource::Nofile).current)
}

/// What fits into a limit on open files; `None`: there is none.
fn of(files: Option<u64>) -> Limits {
    let chunks = files.map_or(MOST_CHUNKS, |files| files.saturating_sub(RESERVE)).min(MOST_CHUNKS);
    Limits { clients: CLIENTS, chunks: chunks as usize, leases: LEASES, leases_of_one: LEASES / 4 }
}

#[cfg(test)]
mod tests {
    //! Hazard: chunks take the descriptors that connections need.
    use super::{MOST_CHUNKS, of};

    #[test]
    fn connections_have_descriptors_left() {
        assert_eq!(of(Some(100)).chunks, 0);
        assert_eq!(of(Some(1024)).chunks, 640);
        assert_eq!(of(None).chunks, MOST_CHUNKS as usize);
        assert!(of(Some(u64::MAX)).clients >= 200);
    }
}
