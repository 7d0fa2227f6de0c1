//! Files of `wm-abi`: the driver's functions as types, their parameters, and the names to look them
//! up by.

use crate::table::DriverFunction;

/// `wm_abi::symbol`: one zero-sized type a function, and the array of names in the same order.
pub(super) fn symbols(functions: &[DriverFunction]) -> String {
    let mut text = String::new();
    for (index, function) in functions.iter().enumerate() {
        text += &match &function.parameter_list() {
            Some(parameters) => format!("symbol!({index}, {}, ({parameters}));\n", function.name),
            None => format!("undocumented!({index}, {});\n", function.name),
        };
    }
    let names: String = functions.iter().map(|f| format!("    c\"{}\",\n", f.name)).collect();
    text + &format!(
        "\n/// Every symbol's name; the position is its index.\npub const NAMES: [&CStr; {}] = [\n{names}];\n",
        functions.len()
    )
}

/// `wm_abi::with_parameters!`: the parameters of a function, for a macro that declares one of its
/// signature.
pub(super) fn parameters(functions: &[DriverFunction]) -> String {
    let arm = |function: &DriverFunction| {
        let parameters = function.parameter_list()?;
        Some(format!(
            "    ({} => $then:ident!($($with:tt)*)) => {{ $then!(({parameters}) $($with)*); }};\n",
            function.name
        ))
    };
    let arms: String = functions.iter().filter_map(arm).collect();
    format!("{PARAMETERS}macro_rules! with_parameters {{\n{arms}}}\n")
}

const PARAMETERS: &str = "\
/// `with_parameters!(cuMemFree_v2 => then!(more))` is `then!((dptr: CUdeviceptr) more)`.
///
/// The types are those of this crate and of `std::ffi`, by their plain names: the caller imports
/// them.
#[macro_export]
";

/// `wm_abi::symbol::LOOKUPS`: the question to `cuGetProcAddress` that gives a function.
pub(super) fn lookups(functions: &[DriverFunction]) -> String {
    let row = |function: &DriverFunction| match &function.lookup {
        Some((name, version)) => format!("    lookup!(\"{name}\", {version}, {}),\n", function.is_twin),
        None => "    None,\n".to_owned(),
    };
    let rows: String = functions.iter().map(row).collect();
    format!("{LOOKUPS}pub static LOOKUPS: [Option<ProcAddressName>; COUNT] = [\n{rows}];\n")
}

const LOOKUPS: &str = "\
/// What `cuGetProcAddress` is asked for to get each function, by its index; `None`: it does not
/// give the function.
";
