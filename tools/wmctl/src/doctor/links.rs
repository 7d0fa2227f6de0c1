//! The links between host and GPUs, drawn from an earlier measurement. The doctor itself measures
//! nothing.

use serde::Serialize;
use wm_driver::{Loader, search};
use wm_multipath::measured::{Topology, cache, picture};
use wm_multipath::{CopyDriver as _, TableDriver};

/// The known facts about the links.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Links {
    /// One device: nothing to relay through.
    Single,
    /// They are not measured yet.
    Unmeasured,
    /// The measured rates.
    Measured(Box<Topology>),
}

/// Looks the measurement up. `None` without a driver.
pub(super) fn examine() -> Option<Links> {
    let explicit = crate::shim::driver();
    let table = search::open(&Loader::system(), explicit.as_deref()).ok()?;
    let driver = TableDriver::new(Box::leak(Box::new(table)));
    driver.start().ok()?;
    let survey = driver.survey().ok()?;
    if survey.key.devices.len() < 2 {
        return Some(Links::Single);
    }
    let kept = cache::folder().and_then(|folder| cache::load(&folder, &survey.key));
    Some(kept.map_or(Links::Unmeasured, |topology| Links::Measured(Box::new(topology))))
}

/// The drawing, or how to get one.
pub(super) fn render(links: &Option<Links>) -> String {
    match links {
        None | Some(Links::Single) => String::new(),
        Some(Links::Unmeasured) => {
            "Links    not measured yet: `wmctl bench copy` does it, or the first large copy under WMSHIM_MULTIPATH\n\n"
                .to_owned()
        }
        Some(Links::Measured(topology)) => format!("Links\n{}\n", picture::draw(topology)),
    }
}
