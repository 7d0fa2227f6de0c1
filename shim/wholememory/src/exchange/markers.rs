//! Names that tell a late rank how the meeting ended.
//!
//! A marker is a datagram socket that is bound to an abstract name, which only ranks with the key
//! can compute, and to which nothing is sent. Its existence is the message. It ends with its owner.

use std::collections::VecDeque;
use std::os::unix::net::UnixDatagram;
use std::sync::Mutex;

use wm_sockets::descriptor::Descriptor;

use super::forked::closed_in_child;
use super::key::Key;

/// How many failed meetings a process remembers.
const MOST: usize = 16;

/// Meetings that failed at a rank of this process.
static FAILED: Mutex<VecDeque<Marker>> = Mutex::new(VecDeque::new());

const FAILED_ROLE: &str = "failed";
const MET_ROLE: &str = "met";

/// A name that exists.
#[derive(Debug)]
pub(super) struct Marker {
    _socket: Descriptor,
}

fn bind(key: Key, role: &str, number: usize) -> Option<Marker> {
    let socket = UnixDatagram::bind_addr(&key.name(role, number).ok()?).ok()?;
    Some(Marker { _socket: closed_in_child(socket).ok()? })
}

fn exists(key: Key, role: &str, number: usize) -> bool {
    let probe = || UnixDatagram::unbound()?.connect_addr(&key.name(role, number)?);
    probe().is_ok()
}

/// The meeting has failed: a rank that comes later is told at once, while this process lives.
pub(super) fn mark_failed(key: Key) {
    let Some(marker) = bind(key, FAILED_ROLE, 0) else { return };
    // A child of a fork may find the lock held for ever.
    if let Ok(mut failed) = FAILED.try_lock() {
        failed.push_back(marker);
        if failed.len() > MOST {
            failed.pop_front();
        }
    }
}

/// Has the meeting failed at another rank?
pub(super) fn has_failed(key: Key) -> bool {
    exists(key, FAILED_ROLE, 0)
}

/// Marks that so many ranks have met, as long as the result lives.
pub(super) fn mark_met(key: Key, size: usize) -> Option<Marker> {
    bind(key, MET_ROLE, size)
}

/// The number of ranks that have met without this one: a meeting of `rank` ranks or fewer.
pub(super) fn met_without(key: Key, rank: usize) -> Option<usize> {
    (1..=rank).find(|size| exists(key, MET_ROLE, *size))
}
