//! The address at which other ranks reach this process: that of the interface which
//! `NCCL_SOCKET_IFNAME` names, else of the first interface that is up, else loopback.

use std::net::{IpAddr, Ipv4Addr};

/// An interface that is up, with an address of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Interface {
    name: String,
    address: IpAddr,
    loopback: bool,
}

/// The address to listen at. `wanted` is the value of `NCCL_SOCKET_IFNAME`.
///
/// # Errors
/// A text, if no interface has such a name.
pub(crate) fn own(wanted: &str) -> Result<IpAddr, String> {
    let found = interfaces();
    let names = || found.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
    choose(&found, wanted)
        .ok_or_else(|| format!("NCCL_SOCKET_IFNAME={wanted}: no such interface is up, of {}", names()))
}

/// NCCL's syntax: prefixes with commas; `=` in front asks for whole names, `^` for the others.
fn choose(found: &[Interface], wanted: &str) -> Option<IpAddr> {
    let (others, names) = wanted.strip_prefix('^').map_or((false, wanted), |rest| (true, rest));
    let (whole, names) = names.strip_prefix('=').map_or((false, names), |rest| (true, rest));
    let names: Vec<&str> = names.split(',').filter(|name| !name.is_empty()).collect();
    let is_named = |it: &&Interface| {
        names.iter().any(|name| if whole { it.name == *name } else { it.name.starts_with(name) })
    };
    if names.is_empty() || others {
        let plain = |it: &&Interface| !it.loopback && !it.name.starts_with("docker") && !is_named(it);
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        return Some(found.iter().find(plain).map_or(loopback, |it| it.address));
    }
    found.iter().find(is_named).map(|it| it.address)
}

/// The interfaces that are up and have an address, those with IPv4 first.
fn interfaces() -> Vec<Interface> {
    let mut first = std::ptr::null_mut();
    // SAFETY: an out-pointer to a live local; null stays there on failure.
    unsafe { libc::getifaddrs(&raw mut first) };
    let mut found = Vec::new();
    let mut next: *const libc::ifaddrs = first;
    // SAFETY: the list is ours until it is freed, and each entry leads to the next or is null.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: an entry of the list.
        found.extend(unsafe { interface(entry) });
        next = entry.ifa_next;
    }
    if !first.is_null() {
        // SAFETY: the list of the call above, once.
        unsafe { libc::freeifaddrs(first) };
    }
    found.sort_by_key(|it| it.address.is_ipv6());
    found
}

/// # Safety
/// An entry of `getifaddrs`' list.
unsafe fn interface(entry: &libc::ifaddrs) -> Option<Interface> {
    if entry.ifa_flags & libc::IFF_UP as u32 == 0 || entry.ifa_addr.is_null() {
        return None;
    }
    // SAFETY: not null; its family says which structure it is. The name is a string of the list.
    let (address, name) = unsafe {
        let address: IpAddr = match i32::from((*entry.ifa_addr).sa_family) {
            libc::AF_INET => {
                let v4 = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into()
            }
            libc::AF_INET6 => {
                let v6 = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                std::net::Ipv6Addr::from(v6.sin6_addr.s6_addr).into()
            }
            _ => return None,
        };
        (address, std::ffi::CStr::from_ptr(entry.ifa_name).to_string_lossy().into_owned())
    };
    // An address of one link only needs a scope, which the unique id does not carry.
    let usable = match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => !v6.is_unicast_link_local(),
    };
    let loopback = entry.ifa_flags & libc::IFF_LOOPBACK as u32 != 0;
    usable.then_some(Interface { name, address, loopback })
}

#[cfg(test)]
mod tests {
    //! Hazard (API conformance): ranks listen at an address that the others do not reach.
    use super::*;

    fn machine() -> Vec<Interface> {
        let names = ["lo", "docker0", "eth0", "eth1", "ib0"];
        let address = |at: u8| IpAddr::V4(Ipv4Addr::new(10, 0, 0, at));
        let entry = |(at, name): (usize, &&str)| Interface {
            name: (*name).to_owned(),
            address: address(at as u8),
            loopback: at == 0,
        };
        names.iter().enumerate().map(entry).collect()
    }

    fn last_byte(wanted: &str) -> Option<u8> {
        choose(&machine(), wanted).map(|address| match address {
            IpAddr::V4(v4) => v4.octets()[3],
            IpAddr::V6(_) => 255,
        })
    }

    #[test]
    fn the_variable_names_prefixes_whole_names_or_others() {
        assert_eq!(last_byte(""), Some(2));
        assert_eq!(last_byte("ib"), Some(4));
        assert_eq!(last_byte("nothing,eth1"), Some(3));
        assert_eq!(last_byte("=eth"), None);
        assert_eq!(last_byte("=eth1"), Some(3));
        assert_eq!(last_byte("^eth0,eth1"), Some(4));
        assert_eq!(last_byte("lo"), Some(0));
        assert_eq!(last_byte("nothing"), None);
    }

    #[test]
    fn a_machine_without_a_network_uses_loopback() {
        assert_eq!(choose(&machine()[..1], ""), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert_eq!(choose(&[], "^eth"), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert!(own("").is_ok());
    }
}
