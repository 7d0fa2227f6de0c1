//! The key that only ranks of one communicator have. It gives the name at which a leader listens,
//! and the proofs by which both ends of a connection show that they have it.

use std::hash::Hasher;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::time::Duration;

use siphasher::sip::SipHasher24;

/// How long a connection may take to prove its key, and rank 0 to answer.
pub(super) const GREETING: Duration = Duration::from_secs(10);

/// The key that ranks of one exchange have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u64; 2]);

impl Key {
    /// The key in a unique id: any bytes that are random.
    pub fn of(bytes: &[u8]) -> Self {
        Self([digest([0x77_6d, 1], bytes), digest([0x77_6d, 2], bytes)])
    }

    /// The key of a part of the ranks.
    #[must_use]
    pub fn of_part(self, number: u64, color: i64) -> Self {
        let text = [number.to_le_bytes(), color.to_le_bytes()].concat();
        Self([digest(self.0, &text), digest([self.0[1], self.0[0]], &text)])
    }

    /// A number that is the communicator's everywhere and tells nothing of the key.
    pub fn id(self) -> u64 {
        self.proof("id", 0, [0, 0])
    }

    /// The name at which the leader of a machine's ranks listens. Names of machines that ranks
    /// only say they are on (`WMSHIM_WHOLEMEMORY_NODE`) keep them apart.
    pub(super) fn address(self, node: &str) -> io::Result<SocketAddr> {
        self.name(&format!("name {node}"), 0)
    }

    /// A name for a purpose. One name tells nothing of another.
    pub(super) fn name(self, role: &str, number: usize) -> io::Result<SocketAddr> {
        let name = self.proof(role, 0, [number as u64, 0]);
        SocketAddr::from_abstract_name(format!("wmshim-wholememory-{name:016x}"))
    }

    pub(super) fn proof(self, role: &str, nonce: u64, said: [u64; 2]) -> u64 {
        let [nonce, first, second] = [nonce, said[0], said[1]].map(u64::to_le_bytes);
        digest(self.0, &[role.as_bytes(), &nonce, &first, &second].concat())
    }
}

fn digest(key: [u64; 2], bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(key[0], key[1]);
    hasher.write(bytes);
    hasher.finish()
}

/// A nonce.
pub(super) fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes))
}
