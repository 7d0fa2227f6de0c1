//! The unique id, by which ranks find each other: the place where it was made, and random bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 31 | random bytes |
//! | 32 to 39 | `wmshimID` |
//! | 40 to 47 | the version of the ranks' messages, 0 |
//! | 48 to 63 | the machine's boot |
//! | 64 to 79 | the network namespace: its number and device |
//! | 80 to 99 | where ranks of other machines connect: 4 or 6, 0, the port, the address |
//! | 100 to 127 | 0 |
//!
//! A zero stands for what is not known, and is not compared.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::linux::fs::MetadataExt;

use crate::error::{Error, Result};
use crate::exchange::{self, Invitation, Key, VERSION};

/// Bytes of a unique id.
pub const UNIQUE_ID_BYTES: usize = 128;

const MAGIC: &[u8; 8] = b"wmshimID";
/// The first byte of the place, and of the door.
const PLACE: usize = 48;
const DOOR: usize = 80;

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
        let network = std::fs::metadata("/proc/thread-self/ns/net");
        let network = network.map_or([0; 2], |network| [network.st_ino(), network.st_dev()]);
        Self { boot: boot.to_be_bytes(), network }
    }

    /// Why a rank here may not reach the Unix names of another place.
    fn differs(self, other: Self) -> Option<String> {
        let differ = |own: &[u8], other: &[u8]| {
            own != other && own.iter().any(|byte| *byte != 0) && other.iter().any(|byte| *byte != 0)
        };
        if differ(&self.boot, &other.boot) {
            return Some(format!(
                "this rank is on another machine (boot {:032x}) than the process that made the unique id (boot \
                 {:032x})",
                u128::from_be_bytes(self.boot),
                u128::from_be_bytes(other.boot)
            ));
        }
        let differ = self.network != other.network && self.network[0] != 0 && other.network[0] != 0;
        differ.then(|| {
            format!(
                "this rank is in another network namespace (net:[{}]) than the process that made the unique id \
                 (net:[{}]), as in another container",
                self.network[0], other.network[0]
            )
        })
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

fn door_bytes(door: SocketAddr) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[2..4].copy_from_slice(&door.port().to_le_bytes());
    match door.ip() {
        IpAddr::V4(address) => {
            bytes[0] = 4;
            bytes[4..8].copy_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            bytes[0] = 6;
            bytes[4..].copy_from_slice(&address.octets());
        }
    }
    bytes
}

fn door_of(bytes: &[u8; 20]) -> Option<SocketAddr> {
    let ([family, 0, low, high], address) = bytes.split_first_chunk()? else { return None };
    let address: IpAddr = match family {
        4 => Ipv4Addr::from(*address.first_chunk::<4>()?).into(),
        6 => Ipv6Addr::from(*address.first_chunk::<16>()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(address, u16::from_le_bytes([*low, *high])))
}

/// A unique id, known only to the ranks that receive it. Ranks of other machines connect to this
/// process, until a rank of this machine has come.
///
/// # Errors
/// The system's.
pub fn unique_id() -> Result<[u8; UNIQUE_ID_BYTES]> {
    let mut id = [0; UNIQUE_ID_BYTES];
    id[32..40].copy_from_slice(MAGIC);
    id[40..44].copy_from_slice(&VERSION.to_le_bytes());
    id[PLACE..DOOR].copy_from_slice(&RankOrigin::own().bytes());
    rustix::rand::getrandom(&mut id[..32], rustix::rand::GetRandomFlags::empty())?;
    match exchange::own_address() {
        Some(address) => {
            let opened = exchange::listen(address).and_then(|(listener, door)| {
                name_door(&mut id, door, |key| exchange::keep_door(key, listener))
            });
            if let Err(error) = opened {
                log::warn!("wholememory: ranks of other machines cannot come: {error}");
            }
        }
        None => log::info!(
            "wholememory: ranks of other machines cannot come: no network interface is as NCCL_SOCKET_IFNAME and \
             NCCL_SOCKET_FAMILY say"
        ),
    }
    Ok(id)
}

/// Writes the door into the id, and keeps the door for the key that the id then gives. If the door
/// is not kept, the id names none.
///
/// # Errors
/// That of `keep`.
fn name_door(
    id: &mut [u8; UNIQUE_ID_BYTES],
    door: SocketAddr,
    keep: impl FnOnce(Key) -> io::Result<()>,
) -> io::Result<()> {
    id[DOOR..DOOR + 20].copy_from_slice(&door_bytes(door));
    keep(Key::of(id)).inspect_err(|_| id[DOOR..].fill(0))
}

/// What a rank with an id knows of the meeting. `node` is the machine that it says it is on.
///
/// # Errors
/// [`Error::Input`] for an id of another library; [`Error::Communication`] where the rank is in
/// another place, and the id does not say how to reach its own.
pub(super) fn invitation(
    id: &[u8; UNIQUE_ID_BYTES],
    (rank, size): (usize, usize),
    node: String,
) -> Result<Invitation> {
    let (magic, rest) = id[32..].split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
    let version = rest.first_chunk().map_or(0, |version| u32::from_le_bytes(*version));
    let other = || {
        Error::Input(
            "the unique id is of another library or version: make it by this library, and let all ranks load the same"
                .to_owned(),
        )
    };
    if magic != MAGIC {
        return Err(other());
    }
    let door = id[DOOR..].first_chunk().and_then(door_of);
    let place = id[PLACE..].first_chunk().map(RankOrigin::of);
    let differs = place.and_then(|place| RankOrigin::own().differs(place));
    let invitation = Invitation { key: Key::of(id), node, door, is_home: differs.is_none() };
    if version != VERSION {
        exchange::turn_away(&invitation, rank, size, VERSION);
        return Err(other());
    }
    // A rank alone meets no other.
    if let (Some(reason), None) = (&differs, door)
        && size > 1
    {
        return Err(Error::Communication(format!(
            "{reason}, which found no network interface for other machines: name one by NCCL_SOCKET_IFNAME there"
        )));
    }
    Ok(invitation)
}

#[cfg(test)]
mod tests {
    //! Hazard (deadlock): a rank that waits for ranks which it cannot reach.
    use super::*;

    fn here(id: &[u8; UNIQUE_ID_BYTES], size: usize) -> Result<Invitation> {
        invitation(id, (size - 1, size), String::new())
    }

    #[test]
    fn an_id_of_here_is_reached() {
        let id = unique_id().expect("random bytes");
        let invitation = here(&id, 2).expect("an id of here");
        assert!(invitation.is_home && invitation.door.is_some_and(|door| door.port() > 0), "{invitation:?}");
        assert_ne!(id, unique_id().expect("random bytes"));
        assert_eq!(RankOrigin::of(&RankOrigin::own().bytes()), RankOrigin::own());
    }

    #[test]
    fn an_id_of_another_machine_or_network_is_reached_through_its_door() {
        let id = unique_id().expect("random bytes");
        for (at, reason) in [(PLACE, "another machine"), (PLACE + 16, "another network namespace")] {
            let mut elsewhere = id;
            elsewhere[at] ^= 1;
            assert!(here(&elsewhere, 2).is_ok_and(|invitation| !invitation.is_home), "{reason}");
            elsewhere[DOOR..].fill(0);
            let error = here(&elsewhere, 2).expect_err("elsewhere");
            assert!(error.code() == 5 && error.to_string().contains(reason), "{error}");
            assert!(here(&elsewhere, 1).is_ok(), "a rank alone");
        }
    }

    /// Ranks elsewhere would call a closed port, and ranks here would look for its keeper.
    #[test]
    fn an_id_names_no_door_that_is_not_kept() {
        let door = "192.0.2.7:4000".parse().expect("an address");
        let mut id = [0; UNIQUE_ID_BYTES];
        name_door(&mut id, door, |_| Err(io::ErrorKind::AddrInUse.into())).expect_err("not kept");
        assert_eq!(id[DOOR..].first_chunk().and_then(door_of), None);
        let mut key = None;
        name_door(&mut id, door, |known| {
            key = Some(known);
            Ok(())
        })
        .expect("kept");
        assert_eq!((id[DOOR..].first_chunk().and_then(door_of), key), (Some(door), Some(Key::of(&id))));
    }

    #[test]
    fn an_unknown_place_is_not_compared() {
        let mut id = unique_id().expect("random bytes");
        id[PLACE..DOOR].fill(0);
        assert!(here(&id, 2).is_ok_and(|invitation| invitation.is_home));
    }

    #[test]
    fn an_id_of_another_library_is_refused() {
        assert_eq!(here(&[7; UNIQUE_ID_BYTES], 2).map_err(|error| error.code()).map(drop), Err(6));
    }

    #[test]
    fn a_door_is_read_as_it_was_written() {
        for door in ["192.0.2.7:4000", "[2001:db8::7]:65535", "127.0.0.1:1"] {
            let door: SocketAddr = door.parse().expect("an address");
            assert_eq!(door_of(&door_bytes(door)), Some(door));
        }
        assert_eq!(door_of(&[0; 20]), None);
    }
}
