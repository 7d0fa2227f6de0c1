//! The program that a command line names: by its process id, or by its name.

use anyhow::{Context, Result, bail};

use crate::client::{IdentityReader, ProcessIdentity};
use crate::{human, programs};

/// The process of a program that was named by its number, its file or its script.
///
/// # Errors
/// No program of that name runs, or several do.
pub(crate) fn find(named: &str) -> Result<u32> {
    if let Ok(pid) = named.parse() {
        return Ok(pid);
    }
    let running = programs::Finder::default().find().running;
    let mut identities = IdentityReader::new(false);
    let named_so = |pid: &u32| is_named(&identities.of(*pid), named);
    let pids: Vec<u32> = running.iter().map(|program| program.pid).filter(named_so).collect();
    match &pids[..] {
        [pid] => Ok(*pid),
        [] => bail!("no program under the shim is named {}; `wmctl stats` lists them", human::shown(named)),
        _ => {
            let list: Vec<String> = pids.iter().map(u32::to_string).collect();
            bail!(
                "{} programs are named {}; give one of {}",
                pids.len(),
                human::shown(named),
                list.join(", ")
            )
        }
    }
}

/// The name of the program's file, or of an interpreter's script or module.
fn is_named(identity: &ProcessIdentity, name: &str) -> bool {
    identity.command.first().is_some_and(|first| first == name) || identity.program_or("") == name
}

/// A size of a command line with its unit, or 0: a forgotten unit would make 48 GiB 48 bytes.
///
/// # Errors
/// Text that is no such size.
pub(crate) fn size(text: &str) -> Result<u64> {
    const VALID: &str = "give a size with its unit, such as 40GiB";
    if text.trim() == "0" {
        return Ok(0);
    }
    let has_unit = wm_schema::size::Quantity::split(text).is_some_and(|quantity| !quantity.unit.is_empty());
    wm_schema::size::parse(text).filter(|_| has_unit).context(VALID)
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): the wrong program is changed, or by the wrong amount.
    use super::*;

    #[test]
    fn a_program_is_named_by_its_file_or_its_script() {
        let words = ["python3", "/home/a/train.py", "--lr"].map(str::to_owned);
        let identity = ProcessIdentity { command: words.to_vec(), ..ProcessIdentity::default() };
        let names = ["python3", "train.py", "train", "--lr", ""];
        assert_eq!(names.map(|name| is_named(&identity, name)), [true, true, false, false, false]);
        assert!(!is_named(&ProcessIdentity::default(), "x"), "nothing is known of it");
    }

    #[test]
    fn a_size_has_a_unit() {
        assert_eq!((size("40GiB").ok(), size("1.5 gib").ok()), (Some(40 << 30), Some(3 << 29)));
        assert_eq!((size("0").ok(), size("0GiB").ok()), (Some(0), None));
        for text in ["48", "", "GiB", "-1GiB", "a lot", "1e99GiB"] {
            assert!(size(text).is_err(), "{text:?}");
        }
    }
}
