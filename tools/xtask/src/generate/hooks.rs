//! Files of the library: its exports, and the code before a call that a function's cells demand.

use std::fmt::Write as _;

use crate::table::DriverFunction;
use crate::table::cells::{StreamCell, WritesCell};

/// The exports of the preloaded library: one trampoline a function.
pub(super) fn trampolines(functions: &[DriverFunction]) -> String {
    let rows: String =
        functions.iter().enumerate().map(|(index, f)| format!("    {index} {},\n", f.name)).collect();
    format!("trampolines! {{\n{rows}}}\n")
}

/// `name(parameters): passage, [stream] => call() then call();` for each function that passes the
/// gate; `[stream], graph call() =>` for one that makes, changes or ends a graph, `context call()`
/// for one that makes a context, `keeps call()` for one from which on memory stays where it is.
pub(super) fn gated(functions: &[DriverFunction]) -> String {
    let row = |function: &DriverFunction| {
        let (passage, parameters) = (function.passage.as_ref()?, function.parameter_list()?);
        let stream = match &function.stream {
            StreamCell::Named(name) => name,
            StreamCell::None | StreamCell::Default => "",
        };
        let calls = match function.writes.as_ref()? {
            WritesCell::Nothing | WritesCell::Launch => String::new(),
            WritesCell::Calls { before, after: None } => format!(" {before}"),
            WritesCell::Calls { before, after: Some(after) } => format!(" {before} then {after}"),
        };
        let notes = [("graph", &function.graph), ("context", &function.context), ("keeps", &function.keeps)];
        let notes: String = notes
            .iter()
            .filter_map(|(word, call)| call.as_ref().map(|call| format!(", {word} {call}")))
            .collect();
        Some(format!("    {}({parameters}): {passage}, [{stream}]{notes} =>{calls};\n", function.name))
    };
    format!("gated! {{\n{}}}\n", functions.iter().filter_map(row).collect::<String>())
}

/// `name(parameters), stream => call();` for each function whose ranges are checked.
pub(super) fn bounded(functions: &[DriverFunction]) -> String {
    let row = |function: &DriverFunction| {
        let (bounds, parameters) = (function.bounds.as_ref()?, function.parameter_list()?);
        let stream = match &function.stream {
            StreamCell::Named(name) => name,
            StreamCell::Default => "default",
            StreamCell::None => "none",
        };
        Some(format!("    {}({parameters}), {stream} => {bounds};\n", function.name))
    };
    format!("bounded! {{\n{}}}\n", functions.iter().filter_map(row).collect::<String>())
}

/// The facts that the entry of a hooked function needs, as macros over its name.
pub(super) fn facts(functions: &[DriverFunction]) -> String {
    format!("{}\n{}", paces(functions), launches(functions))
}

fn paces(functions: &[DriverFunction]) -> String {
    let frequent = functions.iter().filter(|function| function.is_frequent);
    let arms: String = frequent.map(|f| format!("    ({}) => {{ Pace::Frequent }};\n", f.name)).collect();
    format!(
        "/// How often a program makes a call.\nmacro_rules! pace {{\n{arms}    ($other:ident) => {{ Pace::Usual }};\n}}\n"
    )
}

fn launches(functions: &[DriverFunction]) -> String {
    let (mut arms, mut indices) = (String::new(), String::new());
    for function in functions.iter().filter(|f| f.writes == Some(WritesCell::Launch)) {
        let default = if function.is_twin { "PerThread" } else { "Legacy" };
        let name = &function.name;
        let _ = writeln!(arms, "    ({name} $parameters:tt) => {{ observed!({default} $parameters) }};");
        let _ = writeln!(indices, "    <symbol::{name} as Symbol>::INDEX,");
    }
    let rules = format!("{arms}    ($other:ident $parameters:tt) => {{}};\n");
    format!("{OBSERVE}macro_rules! observe_launch {{\n{rules}}}\n\n{LAUNCHES}[\n{indices}];\n")
}

const OBSERVE: &str =
    "/// Shows a launch to those that have subscribed; nothing for a function that launches nothing.\n";

const LAUNCHES: &str = "/// The functions that launch kernels or graphs.\nconst LAUNCHES: &[usize] = &";
