//! Addresses of device faults, from the kernel's log.
//!
//! NVIDIA's kernel module writes one line for an access that no mapping serves (Xid 31), with the
//! page's address; the driver library does not pass it on. Reading the log needs a right that
//! containers and many users lack: then there is nothing here, and nothing is said.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

/// Longest record that the kernel hands out.
const RECORD: usize = 8192;

/// Records that are read: more than the kernel's buffer holds at its usual size.
const RECORDS: usize = 1 << 16;

/// Addresses of faults since the machine started, the last one at the end. Other processes' are
/// among them.
pub(super) fn faults() -> Vec<u64> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let Ok(mut log) = OpenOptions::new().read(true).custom_flags(flags).open("/dev/kmsg") else {
        return Vec::new();
    };
    let (mut found, mut record) = (Vec::new(), vec![0; RECORD]);
    for _ in 0..RECORDS {
        match log.read(&mut record) {
            Ok(length) => found.extend(fault(&String::from_utf8_lossy(&record[..length]))),
            // The kernel overwrote the record that was to be read next.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    found
}

/// The address in a record, if it tells of a fault: `... Xid (PCI:0000:18:00): 31, ... faulted @
/// 0x7f2b_c2000000. ...`
fn fault(record: &str) -> Option<u64> {
    let (_, text) = record.split_once("Xid (")?;
    let (_, text) = text.split_once("): 31,")?;
    let (_, text) = text.split_once("faulted @ 0x")?;
    let digits = text.split(|c: char| !c.is_ascii_hexdigit() && c != '_').next()?;
    u64::from_str_radix(&digits.replace('_', ""), 16).ok()
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a block is reported because of another process's log line.
    use super::*;

    #[test]
    fn the_modules_notation_is_read() {
        let record = "4,1203,86400123,-;NVRM: Xid (PCI:0000:18:00): 31, pid=4711, name=python, Ch 00000008, \
            intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_4 faulted @ 0x7f2b_c2000000. Fault is of type \
            FAULT_PDE ACCESS_TYPE_VIRT_WRITE";
        assert_eq!(fault(record), Some(0x7f2b_c200_0000));
    }

    #[test]
    fn other_lines_are_not() {
        for record in [
            "",
            "6,1,1,-;usb 1-1: new device",
            "4,1,1,-;NVRM: Xid (PCI:0000:18:00): 13, pid=1, Graphics Exception: faulted @ 0x1000",
            "4,1,1,-;NVRM: Xid (PCI:0000:18:00): 31, pid=1, no address",
        ] {
            assert_eq!(fault(record), None, "{record}");
        }
    }
}
