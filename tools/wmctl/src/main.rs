//! The program `wmctl`; the library of the same name holds its code.

use std::process::ExitCode;

fn main() -> ExitCode {
    wmctl::main()
}
