//! The settings from the environment.
//!
//! A value that is not valid makes the first call fail, with a text for `ncclGetLastError`: a
//! misread setting would make a test pass that tests nothing.

use std::ffi::c_int;
use std::path::PathBuf;
use std::time::Duration;

use crate::faults::{Drop, Rule};

/// The values of the `SIMNCCL_*` variables, and of those of NCCL's that have an effect.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Seed of the delays.
    pub(crate) seed: u64,
    /// The longest delay of a message.
    pub(crate) delay: Duration,
    /// Operations that will fail.
    pub(crate) failures: Vec<Rule>,
    /// The number of messages after which a communicator's network drops everything.
    pub(crate) drop: Option<Drop>,
    /// The answer of `ncclGetVersion`.
    pub(crate) version: c_int,
    /// Print a line for each error?
    pub(crate) log: bool,
    /// The file to which each communicator appends its counts at its end.
    pub(crate) stats: Option<PathBuf>,
    /// `NCCL_SOCKET_IFNAME`.
    pub(crate) interfaces: String,
    /// `NCCL_HOSTID`: processes with one value are on one machine.
    pub(crate) host: Option<String>,
    /// `NCCL_MULTI_RANK_GPU_ENABLE`: may two ranks of a communicator use one GPU?
    pub(crate) shared_gpus: bool,
}

impl Settings {
    /// Reads each variable.
    ///
    /// # Errors
    /// A text about the variable whose value is not valid.
    pub(crate) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let number = |name: &str| value(&get, name, "a number", |text| text.parse::<u64>().ok());
        let switch =
            |name: &str| value(&get, name, "0 or 1", |text| ["0", "1"].iter().position(|it| *it == text));
        let rules = |text: &str| text.split(',').map(Rule::parse).collect::<Option<Vec<_>>>();
        Ok(Self {
            seed: number("SIMNCCL_SEED")?.unwrap_or_default(),
            delay: Duration::from_micros(number("SIMNCCL_DELAY_US")?.unwrap_or_default()),
            failures: value(&get, "SIMNCCL_FAIL", Rule::SYNTAX, rules)?.unwrap_or_default(),
            drop: value(&get, "SIMNCCL_DROP", Drop::SYNTAX, Drop::parse)?,
            version: value(&get, "SIMNCCL_VERSION", "a version such as 21903", |text| text.parse().ok())?
                .unwrap_or(VERSION),
            log: switch("SIMNCCL_LOG")? == Some(1),
            stats: get("SIMNCCL_STATS").filter(|text| !text.is_empty()).map(PathBuf::from),
            interfaces: get("NCCL_SOCKET_IFNAME").unwrap_or_default(),
            host: get("NCCL_HOSTID").filter(|text| !text.is_empty()),
            shared_gpus: switch("NCCL_MULTI_RANK_GPU_ENABLE")? == Some(1),
        })
    }
}

/// The oldest version that has every function of this library.
const VERSION: c_int = 21903;

/// One variable, parsed. Absent and empty are the same.
fn value<T>(
    get: &impl Fn(&str) -> Option<String>,
    name: &str,
    valid: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    let Some(text) = get(name).filter(|text| !text.trim().is_empty()) else { return Ok(None) };
    parse(text.trim()).map(Some).ok_or_else(|| format!("{name}={text} is not valid: it takes {valid}"))
}

#[cfg(test)]
mod tests {
    //! Hazard (vacuous test): a misread setting injects no fault.
    use super::*;

    fn read(name: &str, text: &str) -> Result<Settings, String> {
        Settings::read(|asked| (asked == name).then(|| text.to_owned()))
    }

    #[test]
    fn a_value_that_is_not_valid_is_an_error_that_names_it() {
        for (name, text) in [
            ("SIMNCCL_SEED", "x"),
            ("SIMNCCL_DELAY_US", "-1"),
            ("SIMNCCL_FAIL", "sent:1"),
            ("SIMNCCL_FAIL", "send:0"),
            ("SIMNCCL_FAIL", "send:1,recv"),
            ("SIMNCCL_DROP", "some"),
            ("SIMNCCL_DROP", "5@"),
            ("SIMNCCL_VERSION", "2.19"),
            ("SIMNCCL_LOG", "loud"),
            ("NCCL_MULTI_RANK_GPU_ENABLE", "yes"),
        ] {
            let error = read(name, text).expect_err(text);
            assert!(error.contains(name) && error.contains("it takes"), "{error}");
        }
    }

    #[test]
    fn absent_and_empty_values_are_the_defaults() {
        let settings = read("SIMNCCL_FAIL", "").expect("valid");
        assert!(settings.failures.is_empty() && settings.drop.is_none() && settings.delay.is_zero());
        assert!(settings.stats.is_none());
        assert_eq!(settings.version, 21903);
        assert_eq!(read("SIMNCCL_FAIL", "send:1,recv@2:3").expect("valid").failures.len(), 2);
    }
}
