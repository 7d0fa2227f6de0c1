//! What all communicators of the process share: settings, driver, memory of the host.

use std::sync::OnceLock;

use crate::abi::{Code, Outcome};
use crate::driver::Driver;
use crate::report::{REPORT, error};
use crate::settings::Settings;
use crate::staging::Pool;

/// See the file's text.
#[derive(Debug)]
pub(crate) struct Process {
    settings: OnceLock<Result<Settings, String>>,
    driver: OnceLock<Outcome<Driver>>,
    /// Memory of the host for operations.
    pub(crate) pool: Pool,
}

/// The process's one instance.
pub(crate) static PROCESS: Process = Process::new();

impl Process {
    const fn new() -> Self {
        Self { settings: OnceLock::new(), driver: OnceLock::new(), pool: Pool::new() }
    }

    /// The settings, read at the first call.
    ///
    /// # Errors
    /// If a variable is not valid; the text of the error names it.
    pub(crate) fn settings(&self) -> Outcome<&Settings> {
        let read = || Settings::read(|name| std::env::var(name).ok()).inspect(|it| REPORT.log(it.log));
        self.settings.get_or_init(read).as_ref().map_err(|text| error(Code::INVALID_USAGE, text))
    }

    /// The process's driver.
    pub(crate) fn driver(&self) -> Outcome<&Driver> {
        self.driver.get_or_init(Driver::open).as_ref().map_err(|code| *code)
    }
}
