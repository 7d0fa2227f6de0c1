//! The node's file (`wm_trust::node`) as settings: defaults where a program sets none, and the most
//! that it may set.
//!
//! A ceiling is no isolation: `env -u LD_PRELOAD` leaves the library out, and the ceilings with it.

use std::ffi::{OsStr, OsString};

use wm_trust::node::{self, NodeEntry, NodeFile};

use super::table::{KNOWN, Read, SettingText, Settings, printable, understands};
use super::unknown::{complaint, is_known};
use super::values::{Size, allowance, limit};

/// A setting that may have a ceiling.
struct CeilingRow {
    variable: &'static str,
    read: Read<Option<Size>>,
    field: fn(&mut Settings) -> &mut Option<Size>,
}

/// The amounts of memory that programs of a node take from each other.
const BOUNDED: [CeilingRow; 3] = [
    CeilingRow { variable: "WMSHIM_DEVICE_LIMIT", read: limit, field: |settings| &mut settings.device_limit },
    CeilingRow { variable: "WMSHIM_HOST_LIMIT", read: allowance, field: |settings| &mut settings.host_limit },
    CeilingRow { variable: "WMSHIM_PEER_LIMIT", read: allowance, field: |settings| &mut settings.peer_limit },
];

/// The file's lines that count, each with its setting's variable, and the others.
#[derive(Debug, Default)]
pub(super) struct NodeSettings {
    pub(super) is_there: bool,
    defaults: Vec<(&'static str, OsString)>,
    ceilings: Vec<Ceiling>,
    /// Lines without effect, each as a sentence.
    pub(super) faults: Vec<String>,
}

/// A setting that a ceiling has changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct BoundSetting {
    pub(super) variable: &'static str,
    /// It was above the ceiling. Otherwise that depends on the device: one is a share.
    pub(super) is_above: bool,
}

#[derive(Debug)]
struct Ceiling {
    variable: &'static str,
    size: Size,
    text: String,
    line: usize,
}

impl NodeSettings {
    /// Judges the lines of a file.
    pub(super) fn of(file: NodeFile) -> Self {
        let mut node = Self { is_there: true, ..Self::default() };
        let mut faults: Vec<_> = file.faults.into_iter().map(|fault| (fault.line, fault.why)).collect();
        for entry in file.defaults {
            match default(&entry) {
                Ok(default) => node.defaults.push(default),
                Err(why) => faults.push((entry.line, why)),
            }
        }
        for entry in file.ceilings {
            match ceiling(&entry) {
                Ok(ceiling) => node.ceilings.push(ceiling),
                Err(why) => faults.push((entry.line, why)),
            }
        }
        faults.sort();
        let place = |line| if line == 0 { String::new() } else { format!(" line {line}") };
        node.faults =
            faults.into_iter().map(|(line, why)| format!("{}{} {why}", node::PATH, place(line))).collect();
        node
    }

    /// The text of a variable's default.
    pub(super) fn default_of(&self, variable: &str) -> Option<&OsStr> {
        self.defaults.iter().find(|(name, _)| *name == variable).map(|(_, text)| text.as_os_str())
    }

    /// Bounds the settings by the ceilings. Returns those that are bounded.
    pub(super) fn bound(&self, settings: &mut Settings) -> Vec<BoundSetting> {
        let bound = |row: &CeilingRow| {
            let ceiling = self.ceiling(row.variable)?;
            let field = (row.field)(settings);
            let before = *field;
            let bound = before.map_or(ceiling.size, |size| size.least(ceiling.size));
            *field = Some(bound);
            let is_above = bound == ceiling.size;
            (before != Some(bound)).then_some(BoundSetting { variable: row.variable, is_above })
        };
        BOUNDED.iter().filter_map(bound).collect()
    }

    /// The ceiling of a variable.
    fn ceiling(&self, variable: &str) -> Option<&Ceiling> {
        self.ceilings.iter().find(|ceiling| ceiling.variable == variable)
    }

    /// The ceiling of a variable as a size.
    pub(super) fn most(&self, variable: &str) -> Option<Size> {
        self.ceiling(variable).map(|ceiling| ceiling.size)
    }

    /// What the file says of a variable's value.
    pub(super) fn bound_sentence(&self, variable: &str, value: &str) -> Option<String> {
        let Ceiling { text, line, .. } = self.ceiling(variable)?;
        Some(format!("{variable}={value}: line {line} of {} allows {text} at most", node::PATH))
    }

    /// One line about all faults.
    pub(super) fn fault_line(&self) -> Option<String> {
        let first = self.faults.first()?;
        Some(match self.faults.len() {
            1 => format!("{first} (`wmctl doctor`)"),
            count => format!("{first}; {} more lines have no effect (`wmctl doctor`)", count - 1),
        })
    }
}

fn default(entry: &NodeEntry) -> Result<(&'static str, OsString), String> {
    let row = row(entry)?;
    let text = OsString::from(&entry.value);
    if !text.is_empty() && understands(row.variable, &text) {
        return Ok((row.variable, text));
    }
    Err(format!("has no value of {}: {}; valid: {}", entry.name, printable(&text), row.values))
}

fn ceiling(entry: &NodeEntry) -> Result<Ceiling, String> {
    let row = row(entry)?;
    let Some(bounded) = BOUNDED.iter().find(|bounded| bounded.variable == row.variable) else {
        let names = BOUNDED.map(|bounded| bounded.variable.trim_start_matches(PREFIX).to_lowercase());
        return Err(format!("has a ceiling for {}; there are ceilings for {}", entry.name, names.join(", ")));
    };
    let size = (bounded.read)(OsStr::new(&entry.value)).ok().flatten();
    let size = size.ok_or_else(|| {
        let text = printable(OsStr::new(&entry.value));
        format!("has no ceiling of {}: {text}; valid: a size with its unit, or a share", entry.name)
    })?;
    Ok(Ceiling { variable: row.variable, size, text: entry.value.clone(), line: entry.line })
}

const PREFIX: &str = "WMSHIM_";

/// The row of a name as the file has it.
fn row(entry: &NodeEntry) -> Result<&'static SettingText, String> {
    let is_lower = !entry.name.bytes().any(|byte| byte.is_ascii_uppercase());
    let variable = format!("{PREFIX}{}", entry.name.to_ascii_uppercase());
    match KNOWN.iter().find(|row| is_lower && row.variable == variable) {
        Some(row) => Ok(row),
        None if is_known(&variable) => {
            Err(format!("has the name {}; write {}", entry.name, entry.name.to_lowercase()))
        }
        None => Err(format!("has no setting: {}", complaint(&variable))),
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (error handling): a ceiling is lost by a typing error elsewhere, or a program passes
    //! it. Hazard: a program without the file is changed.
    use super::*;
    use crate::settings::Migrate;

    fn read(file: &str, variables: &[(&str, &str)]) -> (Settings, Vec<String>) {
        let node = NodeSettings::of(NodeFile::parse(file));
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(*v));
        let judged = Settings::of(&find, &node);
        (judged.settings, [judged.problems, judged.bounds, node.faults].concat())
    }

    #[test]
    fn a_default_of_the_node_counts_where_no_variable_does() {
        let file = "[defaults]\nmigrate = true\nhost_limit = \"25%\"\ndedup_share = \"2%\"\n";
        let (settings, lines) = read(file, &[]);
        assert_eq!(lines, [""; 0]);
        assert!(settings.migrate == Migrate::On && settings.dedup_share == 0.02);
        assert_eq!(settings.host_limit, Some(Size::Share(0.25)));
        let (settings, lines) = read(file, &[("WMSHIM_MIGRATE", "off"), ("WMSHIM_DEDUP_SHARE", "none")]);
        assert!(settings.migrate == Migrate::Off && settings.dedup_share == 0.02);
        assert!(lines.len() == 1 && lines[0].ends_with("default: 2%"), "{lines:?}");
    }

    #[test]
    fn a_ceiling_bounds_every_source() {
        const GIB: u64 = 1 << 30;
        let file = "[ceilings]\ndevice_limit = \"40GiB\"\nhost_limit = \"0\"\npeer_limit = \"10%\"\n";
        let (settings, lines) = read(file, &[]);
        assert_eq!(lines, [""; 0]);
        assert_eq!(settings.device_limit, Some(Size::Bytes(40 * GIB)), "the built-in one is no limit");
        assert_eq!(settings.host_limit.map(|size| size.of(GIB)), Some(0));
        for (value, in_80, in_20) in [("80GiB", 40, 20), ("off", 40, 40), ("8GiB", 8, 8), ("50%", 40, 10)] {
            let (settings, lines) = read(file, &[("WMSHIM_DEVICE_LIMIT", value)]);
            let limit =
                |total| settings.device_limit.expect("a limit").of(total * GIB).min(total * GIB) / GIB;
            assert_eq!((limit(80), limit(20)), (in_80, in_20.min(20)), "{value}");
            assert_eq!(lines.len(), usize::from(["80GiB", "off"].contains(&value)), "{lines:?}");
        }
        let (settings, _) = read(&format!("[defaults]\ndevice_limit='90%'\n{file}"), &[]);
        assert_eq!(settings.device_limit, Some(Size::Least(40 * GIB, 0.9)));
    }

    #[test]
    fn lines_without_effect_are_named_and_cost_themselves_alone() {
        let file = "[defaults]\ndevice_limt = '1GiB'\nMIGRATE = true\nlog = 'loud'\ntrace = ''\nlib = '/x'\n\
            [ceilings]\nmigrate = false\nhost_limit = 48\nhost_limit = 'off'\ndevice_limit = '1GiB'\n";
        let (settings, lines) = read(file, &[]);
        assert_eq!(settings.device_limit, Some(Size::Bytes(1 << 30)));
        let expected = [
            ("line 2 ", "did you mean WMSHIM_DEVICE_LIMIT"),
            ("line 3 ", "write migrate"),
            ("line 4 ", "valid: error, warn"),
            ("line 5 ", "valid: a path"),
            ("line 6 ", "is not a setting"),
            ("line 8 ", "there are ceilings for device_limit, host_limit, peer_limit"),
            ("line 9 ", "no ceiling of host_limit: 48"),
            ("line 10 ", "again, after line 9"),
        ];
        assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        for (line, (place, words)) in lines.iter().zip(expected) {
            assert!(line.contains(place) && line.contains(words), "{line}");
        }
    }

    #[test]
    fn every_setting_may_have_a_default() {
        for row in KNOWN {
            let name = row.variable.trim_start_matches(PREFIX).to_lowercase();
            let word = row.values.split([',', ';', ' ']).next().expect("a word");
            let value = match word {
                "a" => ["64MiB", "5%", "7", "/x"]
                    .into_iter()
                    .find(|text| understands(row.variable, OsStr::new(text))),
                word => Some(word),
            };
            let file = format!("[defaults]\n{name} = \"{}\"\n", value.expect("a value of the row"));
            let node = NodeSettings::of(NodeFile::parse(&file));
            assert!(node.faults.is_empty() && node.default_of(row.variable).is_some(), "{file}: {node:?}");
        }
    }

    #[test]
    fn all_faults_are_one_line() {
        let faults = |file: &str| NodeSettings::of(NodeFile::parse(file)).fault_line();
        assert_eq!(faults("[defaults]\n"), None);
        assert!(
            faults("x\n").is_some_and(|line| line.contains("toml line 1 ") && !line.contains("more lines"))
        );
        assert!(faults("x\ny\nz\n").is_some_and(|line| line.contains("; 2 more lines")));
    }
}
