//! Memory calls: allocation, release, pools, physical memory, access of peers, and queries about
//! pointers.

pub(in crate::hooks) mod address_ranges;
mod adopted;
pub(in crate::hooks) mod allocate;
pub(in crate::hooks) mod attribute_set;
pub(in crate::hooks) mod granted;
pub(in crate::hooks) mod mem_info;
pub(in crate::hooks) mod passed_on;
pub(in crate::hooks) mod peer_access;
pub(in crate::hooks) mod physical;
pub(in crate::hooks) mod pointer;
pub(in crate::hooks) mod pool;
pub(in crate::hooks) mod reserved;
pub(in crate::hooks) mod sharing;
mod to_device;

pub(crate) use allocate::allocate_placed;
