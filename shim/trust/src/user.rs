//! Users, by their numbers.
//!
//! In a user namespace that does not map all users, the kernel shows all users without a number as
//! one, the *overflow user*. So that number is ambiguous: a file or a process with it may belong to
//! any user. A process with that number can tell only root from the other users.

use std::fs;

/// The kernel's number for users without one, unless the administrator has changed it.
const OVERFLOW: u32 = 65_534;

/// The map of a namespace in which every user has a number, such as the machine's first one.
const ALL: [u64; 3] = [0, 0, u32::MAX as u64];

/// The effective user, unless its number is ambiguous.
pub fn own() -> Option<u32> {
    Some(effective()).filter(|user| is_one(*user))
}

/// The effective user's number, ambiguous or not.
pub fn effective() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Is this the number of the effective user alone?
pub fn is_own(user: u32) -> bool {
    own() == Some(user)
}

/// Does a number stand for one user?
pub fn is_one(user: u32) -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let overflow = read("/proc/sys/kernel/overflowuid").trim().parse().unwrap_or(OVERFLOW);
    user != overflow || maps_all(&read("/proc/self/uid_map"))
}

/// Has every user a number? A map has a line for each range: its first number inside, its first
/// number outside, and the count.
fn maps_all(map: &str) -> bool {
    map.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>().is_ok_and(|words| words == ALL)
}

#[cfg(test)]
mod tests {
    //! Hazard (privilege boundary): a foreign user that the kernel reports under this user's number
    //! is trusted.
    use super::*;

    #[test]
    fn only_a_map_of_everybody_leaves_nobody_without_a_number() {
        assert!(maps_all("         0          0 4294967295\n"));
        for partial in ["", "0 1000 1\n", "0 0 65536\n", "0 1000 1\n1 100000 65536\n", "0 0 all\n"] {
            assert!(!maps_all(partial), "{partial}");
        }
    }

    #[test]
    fn a_user_with_a_number_is_known_by_it() {
        assert!(is_one(0) && is_one(1000));
        assert_eq!(is_own(effective()), is_one(effective()));
        assert!(!is_own(effective() ^ 1));
    }
}
