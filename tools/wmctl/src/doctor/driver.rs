//! The driver and its devices, asked through the same table that the shim uses.
//!
//! Only questions that need no context: the doctor takes no GPU memory and disturbs no program.

mod findings;
mod render;
mod survey;

use wm_driver::{Loader, search};

use super::finding::Finding;
pub(super) use render::render;
pub(super) use survey::ExaminedDriver;
use survey::survey;

/// Opens the driver and asks it. `None` with a finding that says why.
pub(super) fn examine(findings: &mut Vec<Finding>) -> Option<ExaminedDriver> {
    let explicit = crate::shim::driver();
    let table = match search::open(&Loader::system(), explicit.as_deref()) {
        Ok(table) => table,
        Err(missing) => {
            findings.push(findings::not_found(&missing));
            return None;
        }
    };
    match survey(&table) {
        Ok(driver) => {
            findings::judge(&driver, findings);
            Some(driver)
        }
        Err(error) => {
            findings.push(findings::unusable(table.path(), error));
            None
        }
    }
}
