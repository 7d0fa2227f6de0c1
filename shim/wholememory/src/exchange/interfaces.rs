//! The address at which ranks of other machines reach this one.
//!
//! The interface is chosen as NCCL chooses it: `NCCL_SOCKET_IFNAME` lists prefixes of names
//! (`eth,ib`), whole names after `=`, and names to avoid after `^`; `NCCL_SOCKET_FAMILY` is
//! `AF_INET` or `AF_INET6`. Without a choice it is the first interface that is up and neither
//! loopback nor Docker's, then Docker's, then loopback.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wm_trust::environment;

/// One address of an interface that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Interface {
    name: String,
    address: IpAddr,
}

/// Which interfaces are wanted.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct InterfaceChoice {
    names: Vec<String>,
    is_exact: bool,
    avoids: bool,
    /// `AF_INET6`, and not `AF_INET`.
    wants_v6: Option<bool>,
}

impl InterfaceChoice {
    fn of(names: Option<&str>, family: Option<&str>) -> Self {
        let names = names.unwrap_or_default().trim();
        let (avoids, names) = names.strip_prefix('^').map_or((false, names), |rest| (true, rest));
        let (is_exact, names) = names.strip_prefix('=').map_or((false, names), |rest| (true, rest));
        let names = names.split(',').filter_map(|name| name.split(':').next());
        let names = names.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let wants_v6 = match family.map(str::trim) {
            Some("AF_INET") => Some(false),
            Some("AF_INET6") => Some(true),
            _ => None,
        };
        Self { names, is_exact, avoids, wants_v6 }
    }

    fn names(&self, interface: &Interface) -> bool {
        let is_it = |name: &String| match self.is_exact {
            true => interface.name == *name,
            false => interface.name.starts_with(name),
        };
        self.names.iter().any(is_it)
    }

    fn allows(&self, interface: &Interface) -> bool {
        let is_wanted = self.names.is_empty() || self.names(interface) != self.avoids;
        is_wanted && self.wants_v6.is_none_or(|wants| wants == interface.address.is_ipv6())
    }

    /// The best first: by kind of interface where no name is wanted, then in the system's order,
    /// IPv4 before IPv6.
    fn rank(&self, interface: &Interface) -> (u8, bool) {
        let kind = match interface {
            _ if !self.names.is_empty() && !self.avoids => 0,
            Interface { address, .. } if address.is_loopback() => 2,
            Interface { name, .. } => u8::from(name.starts_with("docker")),
        };
        (kind, interface.address.is_ipv6())
    }

    fn best(&self, mut interfaces: Vec<Interface>) -> Option<IpAddr> {
        interfaces.retain(|interface| self.allows(interface));
        interfaces.sort_by_key(|interface| self.rank(interface));
        interfaces.first().map(|interface| interface.address)
    }
}

/// This machine's address for ranks of other machines. `None` where no interface is as the
/// variables say.
pub fn own_address() -> Option<IpAddr> {
    let [names, family] = ["NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY"].map(environment::text);
    InterfaceChoice::of(names.as_deref(), family.as_deref()).best(all())
}

/// All addresses that other machines could use: no link-local ones, which need an interface's
/// number at the other end.
fn all() -> Vec<Interface> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the place is a live local; the list is freed below, after its last use.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let (mut found, mut next) = (Vec::new(), first);
    // SAFETY: each entry is valid until the list is freed, and the last one has no next.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        let is_up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
        // SAFETY: the entry's own address, or null.
        if let Some(address) = unsafe { address(entry.ifa_addr) }.filter(|_| is_up) {
            // SAFETY: the entry's name is a terminated string.
            let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
            found.push(Interface { name: name.to_string_lossy().into_owned(), address });
        }
    }
    // SAFETY: the list that the call above has made.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// # Safety
/// The place is null, or has an address of the family that it says.
unsafe fn address(place: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as the caller promises.
    let family = unsafe { place.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: an IPv4 address, as its family says.
            let address = unsafe { place.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an IPv6 address, as its family says.
            let address = unsafe { place.cast::<libc::sockaddr_in6>().read_unaligned() };
            let address = Ipv6Addr::from(address.sin6_addr.s6_addr);
            (!address.is_unicast_link_local()).then_some(address.into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (error handling): ranks are told an address that other machines do not reach.
    use super::*;

    fn machine() -> Vec<Interface> {
        let all = [
            ("lo", "127.0.0.1"),
            ("lo", "::1"),
            ("docker0", "172.17.0.1"),
            ("eth0", "fd00::2"),
            ("eth0", "192.0.2.2"),
            ("eth1", "198.51.100.2"),
            ("ib0", "203.0.113.2"),
        ];
        let interface = |(name, address): (&str, &str)| Interface {
            name: name.to_owned(),
            address: address.parse().expect("an address"),
        };
        all.map(interface).into()
    }

    fn chosen(names: Option<&str>, family: Option<&str>) -> Option<String> {
        InterfaceChoice::of(names, family).best(machine()).map(|address| address.to_string())
    }

    #[test]
    fn the_variables_mean_what_they_mean_to_nccl() {
        for (names, family, wanted) in [
            (None, None, Some("192.0.2.2")),
            (None, Some("AF_INET6"), Some("fd00::2")),
            (Some("eth1"), None, Some("198.51.100.2")),
            (Some("ib,eth"), None, Some("192.0.2.2")),
            (Some("eth"), Some("AF_INET6"), Some("fd00::2")),
            (Some("=eth"), None, None),
            (Some("=ib0"), None, Some("203.0.113.2")),
            (Some("^eth"), None, Some("203.0.113.2")),
            (Some("^=eth0"), None, Some("198.51.100.2")),
            (Some("^eth,ib"), None, Some("172.17.0.1")),
            (Some("^eth,ib,docker"), None, Some("127.0.0.1")),
            (Some("lo"), None, Some("127.0.0.1")),
            (Some("eth1:4000"), None, Some("198.51.100.2")),
            (Some("none"), None, None),
        ] {
            assert_eq!(chosen(names, family).as_deref(), wanted, "{names:?} {family:?}");
        }
    }

    #[test]
    fn this_machine_has_loopback_at_least() {
        assert!(all().iter().any(|interface| interface.address.is_loopback()), "{:?}", all());
    }
}
