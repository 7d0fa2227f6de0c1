//! `wmctl code`: what the kernels of a library, a cubin or a PTX text store through, as their code
//! says.

mod survey;

use std::path::PathBuf;

use anyhow::{Context, Result};
use cpp_demangle::Symbol;
use serde_json::{Value, json};
use wm_code::verdict::{AddressSource, CodeVerdict, Effects, WordSet};

use crate::table::TextTable;
use crate::{human, output};
use survey::{CodeSurvey, CodeVariant, JudgedKernel, Share};

/// Arguments of `wmctl code`.
#[derive(Debug, clap::Args)]
pub(crate) struct CodeArguments {
    /// Programs, libraries, fat binaries, cubins or PTX texts
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Only code for this architecture, such as 90
    #[arg(long, value_name = "NUMBER")]
    sm: Option<u32>,
    /// Show each kernel
    #[arg(long)]
    kernels: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Longest name of a kernel in a table, in characters.
const NAME: usize = 60;

/// Judges the kernels of files.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn code(arguments: &CodeArguments) -> Result<()> {
    let mut documents = Vec::new();
    for path in &arguments.files {
        let file = std::fs::read(path).with_context(|| path.display().to_string())?;
        let survey = survey::of(&file, arguments.sm);
        let name = path.display().to_string();
        if arguments.json {
            documents.push(document(&name, &survey, arguments.kernels));
        } else {
            output::print(&text(&name, &survey, arguments.kernels))?;
        }
    }
    match arguments.json {
        true => output::print_json(&json!({ "schema": "wmctl-code/1", "files": documents })),
        false => Ok(()),
    }
}

fn text(name: &str, survey: &CodeSurvey, with_kernels: bool) -> String {
    let mut text = format!("{}\n", human::shown(name));
    if survey.found.is_empty() {
        text.push_str("no kernels\n");
    }
    if with_kernels {
        text.push_str(&format!("{}\n", kernels(&survey.found)));
    }
    for table in [shares(survey), reasons(survey)].into_iter().filter(|table| !table.is_empty()) {
        text.push_str(&format!("{table}\n"));
    }
    for (error, count) in &survey.unread {
        text.push_str(&format!("{} parts are not read: {error}\n", human::count(*count)));
    }
    text
}

fn kernels(found: &[JudgedKernel]) -> TextTable {
    let mut table = TextTable::new(&["CODE", "KERNEL", "STORES THROUGH", "STORES THE VALUES OF"]);
    for JudgedKernel { form, name, verdict } in found {
        let [stores, escapes] = match verdict {
            CodeVerdict::Decided(Effects { stores, escapes, .. }) => {
                let sources: Vec<_> = stores.iter().map(source).collect();
                let stores = if sources.is_empty() { "nothing".to_owned() } else { sources.join(" or ") };
                [stores, offsets(&escapes.iter().collect::<Vec<_>>())]
            }
            CodeVerdict::Undecided(why) => {
                let place = why.place().map(|place| format!(" at {place}")).unwrap_or_default();
                [format!("unknown: {}{place}", why.reason()), "unknown".to_owned()]
            }
        };
        table.row([form.to_string(), human::shortened(&demangled(name), NAME), stores, escapes]);
    }
    table
}

impl std::fmt::Display for CodeVariant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.is_text, self.sm) {
            (true, 0) => f.write_str("PTX"),
            (true, sm) => write!(f, "PTX {sm}"),
            (false, sm) => write!(f, "sm_{sm}"),
        }
    }
}

/// The parts of an address: bytes of the parameters, and what is not passed.
fn source(source: &AddressSource) -> String {
    let mut parts: Vec<_> = source.words.iter().map(|word| (8 * word).to_string()).collect();
    parts.extend(source.offsets.iter().map(|word| format!("({})", 8 * word)));
    parts.extend(source.globals.then(|| "variable".to_owned()));
    parts.extend(source.memory.then(|| "loaded".to_owned()));
    parts.join("+")
}

fn offsets(words: &[u32]) -> String {
    words.iter().map(|word| (8 * word).to_string()).collect::<Vec<_>>().join(" ")
}

fn demangled(name: &str) -> String {
    Symbol::new(name).ok().and_then(|symbol| symbol.demangle().ok()).unwrap_or_else(|| name.to_owned())
}

fn shares(survey: &CodeSurvey) -> TextTable {
    let headings = ["CODE", ">KERNELS", ">BY CODE", ">BY VALUES", ">BY LOADED POINTERS", ">UNKNOWN", ">TIME"];
    let mut table = TextTable::new(&headings);
    for (form, share) in &survey.shares {
        let Share { kernels, by_code, by_values, by_pointers, unknown, seconds } = share;
        let part = |count: &u64| {
            format!("{} ({:.0} %)", human::count(*count), 100.0 * *count as f64 / *kernels as f64)
        };
        table.row([
            form.to_string(),
            human::count(*kernels),
            part(by_code),
            part(by_values),
            part(by_pointers),
            part(unknown),
            human::nanoseconds(1e9 * *seconds),
        ]);
    }
    table
}

fn reasons(survey: &CodeSurvey) -> TextTable {
    let mut table = TextTable::new(&[">KERNELS", "UNKNOWN BECAUSE OF"]);
    let mut reasons: Vec<_> = survey.reasons.iter().collect();
    reasons.sort_by_key(|(reason, count)| (std::cmp::Reverse(**count), (*reason).clone()));
    reasons.into_iter().for_each(|(reason, count)| table.row([human::count(*count), reason.clone()]));
    table
}

fn document(name: &str, survey: &CodeSurvey, with_kernels: bool) -> Value {
    let shares = survey.shares.iter().map(|(form, share)| {
        json!({
            "ptx": form.is_text,
            "sm": form.sm,
            "kernels": share.kernels,
            "by_code": share.by_code,
            "by_values": share.by_values,
            "by_loaded_pointers": share.by_pointers,
            "unknown": share.unknown,
            "seconds": share.seconds,
        })
    });
    let mut document = json!({
        "file": name,
        "architectures": shares.collect::<Vec<_>>(),
        "unknown_because_of": survey.reasons,
        "unread": survey.unread,
    });
    if with_kernels {
        document["kernels"] = survey.found.iter().map(kernel).collect();
    }
    document
}

fn kernel(JudgedKernel { form: CodeVariant { is_text, sm }, name, verdict }: &JudgedKernel) -> Value {
    let sources = |sources: &[AddressSource]| sources.iter().map(source_document).collect::<Vec<_>>();
    match verdict {
        CodeVerdict::Decided(Effects { stores, reads, escapes }) => json!({
            "ptx": is_text,
            "sm": sm,
            "name": name,
            "stores": sources(stores),
            "reads": sources(reads),
            "escapes": escapes.iter().map(|word| 8 * word).collect::<Vec<_>>(),
        }),
        CodeVerdict::Undecided(why) => {
            json!({ "ptx": is_text, "sm": sm, "name": name, "unknown": why.reason(), "place": why.place() })
        }
    }
}

fn source_document(source: &AddressSource) -> Value {
    let bytes = |words: &WordSet| words.iter().map(|word| 8 * word).collect::<Vec<_>>();
    json!({
        "bases": bytes(&source.words),
        "offsets": bytes(&source.offsets),
        "loaded": source.memory,
        "variable": source.globals,
    })
}
