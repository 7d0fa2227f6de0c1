//! The unique id, by which ranks find each other: the place where it was made, and random bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 31 | random bytes |
//! | 32 to 39 | `wmshimID` |
//! | 40 to 47 | the version of the ranks' messages, 0 |
//! | 48 to 63 | the machine's boot |
//! | 64 to 79 | the network namespace: its number and device |
//! | 80 to 127 | TCP addresses of a listener: 0, for there is none yet |
//!
//! A zero stands for what is not known, and is not compared.

use std::os::linux::fs::MetadataExt;

use crate::error::{Error, Result};
use crate::exchange::{Key, VERSION};

/// Bytes of a unique id.
pub const UNIQUE_ID_BYTES: usize = 128;

const MAGIC: &[u8; 8] = b"wmshimID";

/// Where a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RankOrigin {
    boot: [u8; 16],
    /// Number and device.
    network: [u64; 2],
}

impl RankOrigin {
    fn own() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = u128::from_str_radix(&boot.trim().replace('-', ""), 16).unwrap_or_default();
        let network = std::fs::metadata("/proc/self/ns/net");
        let network = network.map_or([0; 2], |network| [network.st_ino(), network.st_dev()]);
        Self { boot: boot.to_be_bytes(), network }
    }

    /// Can a rank here meet those of another place?
    fn reaches(self, other: Self) -> Result {
        let differ = |own: &[u8], other: &[u8]| {
            own != other && own.iter().any(|byte| *byte != 0) && other.iter().any(|byte| *byte != 0)
        };
        if differ(&self.boot, &other.boot) {
            return Err(Error::Communication(format!(
                "this rank is on another machine (boot {:032x}) than the process that made the unique id (boot \
                 {:032x}): start all ranks of a communicator on one machine",
                u128::from_be_bytes(self.boot),
                u128::from_be_bytes(other.boot)
            )));
        }
        if self.network != other.network && self.network[0] != 0 && other.network[0] != 0 {
            return Err(Error::Communication(format!(
                "this rank is in another network namespace (net:[{}]) than the process that made the unique id \
                 (net:[{}]), as in another container: start all ranks in one container, or let the containers share \
                 one network (docker run --network container:NAME, Kubernetes hostNetwork: true)",
                self.network[0], other.network[0]
            )));
        }
        Ok(())
    }

    fn bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.boot);
        bytes[16..24].copy_from_slice(&self.network[0].to_le_bytes());
        bytes[24..].copy_from_slice(&self.network[1].to_le_bytes());
        bytes
    }

    fn of(bytes: &[u8; 32]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let network = [2, 3].map(|at| u64::from_le_bytes(words[at]));
        let mut boot = [0; 16];
        boot.copy_from_slice(&bytes[..16]);
        Self { boot, network }
    }
}

/// A unique id, known only to the ranks that receive it.
///
/// # Errors
/// The system's.
pub fn unique_id() -> Result<[u8; UNIQUE_ID_BYTES]> {
    let mut id = [0; UNIQUE_ID_BYTES];
    id[32..40].copy_from_slice(MAGIC);
    id[40..44].copy_from_slice(&VERSION.to_le_bytes());
    id[48..80].copy_from_slice(&RankOrigin::own().bytes());
    rustix::rand::getrandom(&mut id[..32], rustix::rand::GetRandomFlags::empty())?;
    Ok(id)
}

/// The key of the ranks that have an id, at a rank that can meet them.
///
/// # Errors
/// [`Error::Input`] for an id of another library; [`Error::Communication`] where the rank is in
/// another place.
pub(super) fn key(id: &[u8; UNIQUE_ID_BYTES], size: usize) -> Result<Key> {
    let (magic, rest) = id[32..].split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
    let version = rest.first_chunk().map_or(0, |version| u32::from_le_bytes(*version));
    if magic != MAGIC || version != VERSION {
        return Err(Error::Input(
            "the unique id is of another library or version: make it by this library, and let all ranks load the same"
                .to_owned(),
        ));
    }
    // A rank alone meets no other.
    if size > 1 {
        let place = id[48..].first_chunk().map(RankOrigin::of);
        place.map_or(Ok(()), |place| RankOrigin::own().reaches(place))?;
    }
    Ok(Key::of(id))
}

#[cfg(test)]
mod tests {
    //! Hazard (deadlock): a rank that waits for ranks which it cannot reach.
    use super::*;

    #[test]
    fn an_id_of_here_is_reached() {
        let id = unique_id().expect("random bytes");
        assert!(key(&id, 2).is_ok());
        assert_ne!(id, unique_id().expect("random bytes"));
        assert_eq!(RankOrigin::of(&RankOrigin::own().bytes()), RankOrigin::own());
    }

    #[test]
    fn an_id_of_another_machine_or_network_is_refused_with_the_reason() {
        let id = unique_id().expect("random bytes");
        for (at, reason) in [(48, "another machine"), (64, "another network namespace")] {
            let mut elsewhere = id;
            elsewhere[at] ^= 1;
            let error = key(&elsewhere, 2).expect_err("elsewhere");
            assert!(error.code() == 5 && error.to_string().contains(reason), "{error}");
            assert!(key(&elsewhere, 1).is_ok(), "a rank alone");
        }
    }

    #[test]
    fn an_unknown_place_is_not_compared() {
        let mut id = unique_id().expect("random bytes");
        id[48..80].fill(0);
        assert!(key(&id, 2).is_ok());
    }

    #[test]
    fn an_id_of_another_library_is_refused() {
        assert_eq!(key(&[7; UNIQUE_ID_BYTES], 2).map_err(|error| error.code()), Err(6));
    }
}
