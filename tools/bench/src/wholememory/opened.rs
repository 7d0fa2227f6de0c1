//! The driver of this process, opened once.

use std::sync::OnceLock;

use anyhow::{Result, anyhow};
use wm_driver::api::Named;
use wm_driver::{Loader, Table, search};
use wmctl::shim;

/// The driver. A `libwholegraph.so` in this process that asks for `libcuda.so.1` gets the same one,
/// because it is open already.
///
/// # Errors
/// No driver, with the remedy.
pub(super) fn driver() -> Result<Named<'static>> {
    static TABLE: OnceLock<Table> = OnceLock::new();
    if let Some(table) = TABLE.get() {
        return Ok(Named(table));
    }
    let table = match shim::driver() {
        Some(path) => search::open(&Loader::system(), Some(&path)).map_err(|missing| anyhow!("{missing}"))?,
        None => {
            Table::of_process().map_err(|why| anyhow!("{why} WMSHIM_DRIVER=sim takes the simulated one"))?
        }
    };
    Ok(Named(TABLE.get_or_init(|| table)))
}
