//! The key of an exporting process, and the names and tags that are derived from it.
//!
//! The key is random, stands in every handle that the process issues, and nowhere else. A process
//! with a handle can find the exporter's socket, whose name is derived from the key, and each side
//! proves to the other that it knows the key: by a tag over numbers that both have just made up. So
//! neither can be replayed, and an eavesdropper learns nothing.
//!
//! Tags are SipHash-2-4 of 128 bits, a pseudo-random function of a 128-bit key.

use std::fmt;
use std::io;

use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};
use siphasher::sip128::{Hash128, SipHasher24};

/// A number that was made up for one exchange.
pub(super) type Nonce = [u64; 2];

/// The purpose of a tag. A tag for one purpose is of no use for another.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    /// The name of the socket.
    Name,
    /// The exporter's proof.
    Exporter,
    /// The importer's proof, and the allocation that it asks for.
    Importer,
}

/// The key of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ExporterKey(pub(super) [u8; 16]);

impl fmt::Debug for ExporterKey {
    /// A key belongs in no log.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(..)")
    }
}

impl ExporterKey {
    pub(super) fn random() -> io::Result<Self> {
        random().map(Self)
    }

    /// Public: the name of the process's socket.
    pub(super) fn name(&self) -> String {
        let [high, low] = self.tag(Purpose::Name, &[]);
        format!("{high:016x}{low:016x}")
    }

    pub(super) fn tag(&self, purpose: Purpose, words: &[u64]) -> [u64; 2] {
        let words = [purpose as u64].into_iter().chain(words.iter().copied());
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let Hash128 { h1, h2 } = SipHasher24::new_with_key(&self.0).hash(&bytes);
        [h1, h2]
    }

    /// Is this the tag? Takes the same time for every wrong one.
    pub(super) fn verify(&self, purpose: Purpose, words: &[u64], tag: [u64; 2]) -> bool {
        let hash = |[h1, h2]: [u64; 2]| Hash128 { h1, h2 };
        hash(self.tag(purpose, words)) == hash(tag)
    }
}

pub(super) fn nonce() -> io::Result<Nonce> {
    let bytes = u128::from_le_bytes(random()?);
    Ok([bytes as u64, (bytes >> 64) as u64])
}

fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let written = retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))?;
    if written == bytes.len() { Ok(bytes) } else { Err(io::Error::other("the system has no random numbers")) }
}

#[cfg(test)]
mod tests {
    //! Hazard (privilege boundary): a tag that fits where it must not, or that differs between two
    //! builds of the library.
    use super::*;

    const KEY: ExporterKey = ExporterKey([7; 16]);

    #[test]
    fn a_tag_is_of_one_key_one_purpose_and_one_message() {
        let tag = KEY.tag(Purpose::Exporter, &[1, 2]);
        assert!(KEY.verify(Purpose::Exporter, &[1, 2], tag));
        assert!(!KEY.verify(Purpose::Importer, &[1, 2], tag));
        assert!(!KEY.verify(Purpose::Exporter, &[1, 3], tag));
        assert!(!ExporterKey([8; 16]).verify(Purpose::Exporter, &[1, 2], tag));
    }

    #[test]
    fn the_construction_is_siphash_2_4_of_128_bits() {
        let key: [u8; 16] = std::array::from_fn(|position| position as u8);
        let Hash128 { h1, h2 } = SipHasher24::new_with_key(&key).hash(&[]);
        // First vector of the reference implementation's `vectors_sip128`.
        let vector = 0xa381_7f04_ba25_a8e6_6df6_7214_c755_0293_u128.to_be_bytes();
        assert_eq!([h1.to_le_bytes(), h2.to_le_bytes()].concat(), vector);
    }

    #[test]
    fn a_name_tells_no_key_and_a_key_is_not_printed() {
        assert_eq!(KEY.name().len(), 32);
        assert!(!KEY.name().contains("07070707"));
        assert_eq!(format!("{KEY:?}"), "Key(..)");
        assert_ne!(
            ExporterKey::random().expect("random").name(),
            ExporterKey::random().expect("random").name()
        );
    }
}
