//! The index of conformance: which cases ask about a function.

use crate::table::DriverFunction;
use crate::table::cells::CasesCell;

/// One row a function; a per-thread twin goes with the function that it is the twin of.
pub(super) fn entrypoints(functions: &[DriverFunction]) -> String {
    let row = |function: &DriverFunction| {
        let said = match &function.cases {
            CasesCell::Cases(cases) => format!("Said::Cases(&{cases:?})"),
            CasesCell::WhyNot(reason) => format!("Said::WhyNot({reason:?})"),
        };
        format!("    (\"{}\", {said}),\n", function.name)
    };
    let rows: String = functions.iter().filter(|function| !function.is_twin).map(row).collect();
    format!("pub(super) const ENTRY_POINTS: &[(&str, Said)] = &[\n{rows}];\n")
}
