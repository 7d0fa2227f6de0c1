//! A row of the table of cases, and the needs of a case.

use std::ffi::CStr;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::must;

/// A need of a case.
#[derive(Debug, Clone, Copy)]
pub enum Need {
    /// At least this many devices.
    Devices(i32),
    /// A function that older drivers do not export.
    Export(&'static CStr),
    /// No other case beside it: it counts or uses a device's free memory, or measures the time of a
    /// call.
    Alone,
}

/// One case.
#[derive(Debug)]
pub struct Row {
    /// Its area and name.
    pub name: &'static str,
    /// Its function.
    pub run: fn(&mut Case) -> Verdict,
    /// The fault in programs that it guards against.
    pub guards: &'static str,
    /// Its needs.
    pub needs: &'static [Need],
}

impl Row {
    /// Whether no other case may run beside it.
    pub fn is_alone(&self) -> bool {
        self.needs.iter().any(|need| matches!(need, Need::Alone))
    }

    /// The first need that is not met, in words.
    ///
    /// # Errors
    /// When the driver's answer is an error.
    pub fn unmet_need(&self, driver: &'static Driver) -> Verdict<Option<String>> {
        for need in self.needs {
            match need {
                Need::Devices(wanted) if device_count(driver)? < *wanted => {
                    return Ok(Some(format!("needs {wanted} devices")));
                }
                Need::Export(name) if driver.exported(name).is_null() => {
                    return Ok(Some(format!("needs a driver that exports {}", name.to_string_lossy())));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

fn device_count(driver: &'static Driver) -> Verdict<i32> {
    let mut count = 0;
    must!(driver, cuInit(0));
    must!(driver, cuDeviceGetCount(&mut count));
    Ok(count)
}
