//! The same question about PTX, which the driver compiles: its registers have types and names, and
//! its stores name their memory.
//!
//! The driver's compiler keeps what a text means, so that the verdict about the text holds for the
//! machine code, on each GPU.

mod flow;
mod lex;
mod opcodes;
mod operands;
mod origin;
mod parse;
mod steps;
mod syntax;

use std::collections::HashMap;

use crate::verdict::{CodeVerdict, Effects, Why};
use syntax::{Module, Obscure};

/// The verdict on each kernel of a text, in their order. `None`: the text is not understood as a
/// whole.
pub fn judge(text: &str) -> Option<Vec<(String, CodeVerdict)>> {
    let module = parse::module(&lex::tokens(text)?).ok()?;
    let numbers = numbers(&module);
    let steps = |function| steps::of(&module, &numbers, function);
    let functions: Vec<_> = module.functions.iter().map(steps).collect();
    let all = module.functions.iter().enumerate();
    let kernels = all.filter(|(_, function)| function.is_kernel && function.has_body);
    let judged =
        kernels.map(|(number, kernel)| (kernel.name.to_owned(), verdict(flow::effects(number, &functions))));
    Some(judged.collect())
}

/// The functions by name. A declaration and its definition have the same one.
fn numbers<'a>(module: &Module<'a>) -> HashMap<&'a str, usize> {
    let mut numbers = HashMap::new();
    for (number, function) in module.functions.iter().enumerate() {
        if function.has_body || !numbers.contains_key(function.name) {
            numbers.insert(function.name, number);
        }
    }
    numbers
}

fn verdict(effects: Result<Effects, Obscure>) -> CodeVerdict {
    match effects {
        Ok(effects) => CodeVerdict::Decided(effects),
        Err(Obscure(0)) => CodeVerdict::Undecided(Why::Bounds),
        Err(Obscure(line)) => CodeVerdict::Undecided(Why::Text { line: line as usize }),
    }
}
