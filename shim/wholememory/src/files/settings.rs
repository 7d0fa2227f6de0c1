//! How files are read, as the environment says: the names and meanings are libwholegraph's.

/// How this rank reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadSettings {
    /// Bytes that a thread reads before it copies them.
    pub buffer: u64,
    /// Threads, the calling one among them.
    pub threads: usize,
    /// Whether reads go past the kernel's cache of files, where the file system can do that.
    pub direct: bool,
}

const BUFFER: &str = "WG_LOAD_BUFFER_SIZE_MB";
const THREADS: &str = "WG_LOAD_THREADS_PER_RANK";
const DIRECT: &str = "WG_LOAD_USE_DIRECTIO";

/// Upper bounds of the environment's values: a larger value is a mistake.
const MOST_MEBIBYTES: u64 = 1 << 20;
const MOST_THREADS: u64 = 256;

impl ReadSettings {
    /// The environment's current settings. A bad value is warned about, and not used.
    pub fn of_environment() -> Self {
        Self::of(|name| wm_trust::environment::variable(name).map(|text| text.to_string_lossy().into_owned()))
    }

    fn of(text: impl Fn(&str) -> Option<String>) -> Self {
        let buffer = number(BUFFER, text(BUFFER), 16, MOST_MEBIBYTES) << 20;
        let threads = number(THREADS, text(THREADS), 1, MOST_THREADS) as usize;
        Self { buffer, threads, direct: text(DIRECT).is_some_and(|text| is_on(&text)) }
    }
}

fn number(name: &str, text: Option<String>, default: u64, most: u64) -> u64 {
    let Some(text) = text else { return default };
    match text.trim().parse() {
        Ok(number) if (1..=most).contains(&number) => number,
        _ => {
            log::warn!("{name}={text}: not a number from 1 to {most}; {default} is used");
            default
        }
    }
}

/// Whether a text means yes; each other text means no.
fn is_on(text: &str) -> bool {
    ["1", "true", "on", "yes"].contains(&text.trim().to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    //! Hazard: a mistyped value that stops a load, or makes it one byte at a time.
    use super::*;

    fn read(buffer: &str, threads: &str) -> ReadSettings {
        ReadSettings::of(|name| Some(if name == BUFFER { buffer } else { threads }.to_owned()))
    }

    #[test]
    fn bad_values_are_not_used() {
        let default = ReadSettings { buffer: 16 << 20, threads: 1, direct: false };
        assert_eq!(ReadSettings::of(|_| None), default);
        for bad in ["", "0", "-1", "many", "1.5", "99999999999999999999", "1048577"] {
            assert_eq!(read(bad, bad), default, "{bad}");
        }
        assert_eq!(read(" 2", "7"), ReadSettings { buffer: 2 << 20, threads: 7, direct: false });
    }

    #[test]
    fn direct_reads_are_asked_for() {
        let direct = |text: &str| ReadSettings::of(|name| (name == DIRECT).then(|| text.to_owned())).direct;
        assert!(["1", "TRUE", "on", " yes"].into_iter().all(direct));
        assert!(!["", "0", "off", "no", "2"].into_iter().any(direct));
    }
}
