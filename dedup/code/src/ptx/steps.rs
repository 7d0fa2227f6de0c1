//! A function's statements with their names resolved: each value has a cell, and each step says
//! which cells it changes.

use std::collections::HashMap;

use super::opcodes::{How, OpcodeClass, class};
use super::origin::{Origin, Value};
use super::parse::size_of;
use super::syntax::{Module, Obscure, PtxFunction, PtxOperand, PtxStatement, StateSpace};
use crate::verdict::WordSet;

/// A source of a step.
#[derive(Debug, Clone)]
pub(super) enum StepOperand {
    /// The value of a cell of the function.
    Cell(usize),
    /// The same in each launch.
    Fixed(Value),
}

/// What a statement does.
#[derive(Debug)]
pub(super) enum StepAction {
    /// Computes a value of others.
    Compute(How, Vec<StepOperand>),
    /// Loads from the sum of parts.
    Load(Option<StateSpace>, Vec<StepOperand>),
    /// Stores the values to the sum of parts.
    Store(Option<StateSpace>, Vec<StepOperand>, Vec<StepOperand>),
    /// Does both.
    Atomic(Option<StateSpace>, Vec<StepOperand>, Vec<StepOperand>),
    /// Loads into shared memory.
    Fetch(Vec<StepOperand>),
    /// Stores what is in shared memory.
    Flush(Vec<StepOperand>),
    /// Calls a function of the text with these arguments.
    Call(usize, Vec<StepOperand>),
    /// Calls one of the driver's functions, which reads its arguments.
    Print(Vec<StepOperand>),
    /// The same, and it gives memory of the device's heap.
    Allocate,
}

/// One step, its line, and the cells that take its results.
#[derive(Debug)]
pub(super) struct FlowStep {
    pub(super) line: u32,
    pub(super) to: Vec<usize>,
    pub(super) action: StepAction,
}

/// A function as steps over so many cells.
#[derive(Debug, Default)]
pub(super) struct FunctionSteps {
    pub(super) cells: usize,
    /// The cells of its parameters and of its results. Those of a kernel have none.
    pub(super) parameters: Vec<usize>,
    pub(super) results: Vec<usize>,
    pub(super) steps: Vec<FlowStep>,
}

/// The steps of a function.
///
/// # Errors
/// The line of a statement that is not understood.
pub(super) fn of(
    module: &Module,
    numbers: &HashMap<&str, usize>,
    function: &PtxFunction,
) -> Result<FunctionSteps, Obscure> {
    if let Some(obscure) = function.obscure {
        return Err(obscure);
    }
    let mut names = NameResolver { module, numbers, function, cells: HashMap::new() };
    let mut steps = FunctionSteps::default();
    if !function.is_kernel {
        steps.parameters = function.parameters.iter().map(|parameter| names.cell(parameter.name)).collect();
        steps.results = function.results.iter().map(|name| names.cell(name)).collect();
    }
    for statement in &function.statements {
        let step = names.step(statement).ok_or(Obscure(statement.line))?;
        steps.steps.extend(step);
    }
    steps.cells = names.cells.len();
    Ok(steps)
}

struct NameResolver<'m, 'a> {
    module: &'m Module<'a>,
    /// The functions of the module by name.
    numbers: &'m HashMap<&'a str, usize>,
    function: &'m PtxFunction<'a>,
    cells: HashMap<&'a str, usize>,
}

impl<'a> NameResolver<'_, 'a> {
    fn cell(&mut self, name: &'a str) -> usize {
        let next = self.cells.len();
        *self.cells.entry(name).or_insert(next)
    }

    /// `None`: it is not understood. `Some(None)`: it does nothing that matters.
    fn step(&mut self, statement: &PtxStatement<'a>) -> Option<Option<FlowStep>> {
        let class = class(&statement.opcode)?;
        let (to, action) = match class {
            OpcodeClass::Nothing => return Some(None),
            OpcodeClass::Call => self.call(&statement.operands)?,
            OpcodeClass::Store(space) => self.store(space, &statement.operands)?,
            OpcodeClass::Fetch => (Vec::new(), StepAction::Fetch(self.address(statement.operands.get(1)?)?)),
            OpcodeClass::Flush => (Vec::new(), StepAction::Flush(self.address(statement.operands.first()?)?)),
            _ => match self.result(class, statement)? {
                Some(found) => found,
                None => return Some(None),
            },
        };
        Some(Some(FlowStep { line: statement.line, to, action }))
    }

    /// Of an instruction with a result in front.
    fn result(
        &mut self,
        class: OpcodeClass,
        statement: &PtxStatement<'a>,
    ) -> Option<Option<(Vec<usize>, StepAction)>> {
        let (result, from) = statement.operands.split_first()?;
        if matches!(result, PtxOperand::Address(..)) {
            // A barrier in shared memory, without a result.
            return (class == OpcodeClass::Number).then_some(None);
        }
        let to = self.results(result)?;
        let fixed = |value: Value| StepAction::Compute(How::Either, vec![StepOperand::Fixed(value)]);
        let action = match class {
            OpcodeClass::Number => fixed(Value::number()),
            OpcodeClass::Own => fixed(Origin::own().into()),
            OpcodeClass::Loaded => fixed(Origin::memory().into()),
            OpcodeClass::Address => {
                let own = StepOperand::Fixed(Origin::own().into());
                let parts = self.parts(from)?;
                StepAction::Compute(How::Sum, parts.into_iter().chain([own]).collect())
            }
            OpcodeClass::Compute(how) => StepAction::Compute(how, self.parts(from)?),
            OpcodeClass::Load(Some(StateSpace::Parameter)) => {
                self.parameter(&statement.opcode, from.first()?)?
            }
            OpcodeClass::Load(space) => StepAction::Load(space, self.address(from.first()?)?),
            OpcodeClass::Atomic(space) => {
                StepAction::Atomic(space, self.address(from.first()?)?, self.parts(&from[1..])?)
            }
            _ => return None,
        };
        Some(Some((to, action)))
    }

    fn store(
        &mut self,
        space: Option<StateSpace>,
        operands: &[PtxOperand<'a>],
    ) -> Option<(Vec<usize>, StepAction)> {
        let (address, from) = operands.split_first()?;
        let from = self.parts(from)?;
        if space == Some(StateSpace::Parameter) {
            // An argument of a call that follows.
            let PtxOperand::Address(names, _) = address else { return None };
            let [PtxOperand::Name(name)] = names[..] else { return None };
            return Some((vec![self.argument(name)?], StepAction::Compute(How::Either, from)));
        }
        Some((Vec::new(), StepAction::Store(space, self.address(address)?, from)))
    }

    /// The cell of a variable that passes an argument or a result.
    fn argument(&mut self, name: &'a str) -> Option<usize> {
        let function = self.function;
        let is_passed = function.parameters.iter().any(|parameter| parameter.name == name);
        let is_ours = function.variables.get(name) == Some(&StateSpace::Parameter)
            || function.results.contains(&name)
            || is_passed && !function.is_kernel;
        is_ours.then(|| self.cell(name))
    }

    /// A load of a parameter: words at a place that is known, or all of a kernel's parameter.
    fn parameter(&mut self, opcode: &[&str], from: &PtxOperand<'a>) -> Option<StepAction> {
        let PtxOperand::Address(names, added) = from else { return None };
        let [PtxOperand::Name(name)] = names[..] else { return None };
        if let Some(cell) = self.argument(name) {
            return Some(StepAction::Compute(How::Either, vec![StepOperand::Cell(cell)]));
        }
        let Some(parameter) = self.passed(name) else {
            return Some(StepAction::Load(Some(StateSpace::Parameter), self.address(from)?));
        };
        let begin = u32::try_from(*added).ok().and_then(|added| parameter.offset.checked_add(added))?;
        let words = words(begin, loaded_bytes(opcode)?)?;
        Some(StepAction::Compute(How::Either, vec![StepOperand::Fixed(Origin::words(words).into())]))
    }

    /// The parameter of the kernel with this name.
    fn passed(&self, name: &str) -> Option<super::syntax::PtxParameter<'a>> {
        let all = &self.function.parameters;
        all.iter().find(|parameter| self.function.is_kernel && parameter.name == name).copied()
    }

    /// `call (results), name, (arguments)`; results and arguments may be missing.
    fn call(&mut self, operands: &[PtxOperand<'a>]) -> Option<(Vec<usize>, StepAction)> {
        let (results, rest) = match operands.split_first()? {
            (PtxOperand::List(results), rest) => (results.as_slice(), rest),
            _ => (&[][..], operands),
        };
        let (name, arguments) = match rest {
            [PtxOperand::Name(name)] => (*name, &[][..]),
            [PtxOperand::Name(name), PtxOperand::List(arguments)] => (*name, arguments.as_slice()),
            _ => return None,
        };
        let number = *self.numbers.get(name)?;
        let called = &self.module.functions[number];
        let mut to = Vec::new();
        for result in results {
            to.extend(self.results(result)?);
        }
        // One part for each argument: a variable has a cell, a register another.
        let mut parts = Vec::new();
        for argument in arguments {
            match &self.parts(std::slice::from_ref(argument))?[..] {
                [part] => parts.push(part.clone()),
                _ => return None,
            }
        }
        let action = match name {
            _ if called.has_body
                && called.parameters.len() == parts.len()
                && called.results.len() == to.len() =>
            {
                StepAction::Call(number, parts)
            }
            _ if called.has_body => return None,
            "vprintf" | "__assertfail" | "free" => StepAction::Print(parts),
            "malloc" => StepAction::Allocate,
            _ => return None,
        };
        Some((to, action))
    }

    /// The cells of registers that take a result.
    fn results(&mut self, operand: &PtxOperand<'a>) -> Option<Vec<usize>> {
        match operand {
            PtxOperand::Name("_") => Some(Vec::new()),
            PtxOperand::Name(name) => match self.part(name)? {
                StepOperand::Cell(cell) => Some(vec![cell]),
                StepOperand::Fixed(_) => None,
            },
            PtxOperand::List(list) => {
                let cells: Option<Vec<_>> = list.iter().map(|operand| self.results(operand)).collect();
                cells.map(|cells| cells.concat())
            }
            _ => None,
        }
    }

    fn parts(&mut self, operands: &[PtxOperand<'a>]) -> Option<Vec<StepOperand>> {
        let mut parts = Vec::new();
        for operand in operands {
            match operand {
                PtxOperand::Name(name) => parts.push(self.part(name)?),
                PtxOperand::Number(number) => parts.push(StepOperand::Fixed(constant(*number))),
                PtxOperand::List(list) => parts.extend(self.parts(list)?),
                PtxOperand::Address(..) => return None,
            }
        }
        Some(parts)
    }

    /// The parts of the sum between brackets.
    fn address(&mut self, operand: &PtxOperand<'a>) -> Option<Vec<StepOperand>> {
        let PtxOperand::Address(parts, added) = operand else { return None };
        let mut parts = self.parts(parts)?;
        parts.push(StepOperand::Fixed(constant(*added as u64)));
        Some(parts)
    }

    fn part(&mut self, name: &'a str) -> Option<StepOperand> {
        let first = name.split('.').next().unwrap_or(name);
        if let Some(special) = special(first) {
            return Some(StepOperand::Fixed(special));
        }
        if first.starts_with('%') || self.function.registers.contains(&first) {
            return Some(StepOperand::Cell(self.cell(first)));
        }
        if let Some(cell) = self.argument(name) {
            return Some(StepOperand::Cell(cell));
        }
        if let Some(parameter) = self.passed(name) {
            let addresses = words(parameter.offset, parameter.bytes)?;
            return Some(StepOperand::Fixed(Origin { addresses, ..Origin::default() }.into()));
        }
        let space = self.function.variables.get(name).or(self.module.variables.get(name));
        let value = match space {
            Some(StateSpace::Shared | StateSpace::Local) => Origin::own().into(),
            Some(StateSpace::Global | StateSpace::Constant) => Origin::globals().into(),
            Some(StateSpace::Parameter) => return None,
            None if self.numbers.contains_key(name) || name == "WARP_SZ" => Value::number(),
            None => return None,
        };
        Some(StepOperand::Fixed(value))
    }
}

/// The words at so many bytes of the parameters.
fn words(begin: u32, bytes: u32) -> Option<WordSet> {
    /// No kernel has more bytes of parameters.
    const MOST: u32 = 1 << 16;
    let end = begin.checked_add(bytes).filter(|end| *end <= MOST)?;
    Some((begin / 8..end.div_ceil(8)).collect())
}

/// All bytes that a load reads: its type, times the length of its vector.
fn loaded_bytes(opcode: &[&str]) -> Option<u32> {
    let size = opcode.iter().find_map(|word| size_of(word))?;
    let vector = opcode.iter().find_map(|word| word.strip_prefix('v')?.parse::<u32>().ok());
    size.checked_mul(vector.unwrap_or(1))
}

/// A number that is written into the code. Programs that make code for one launch write addresses
/// into it, which are as good as loaded ones.
fn constant(number: u64) -> Value {
    let is_like_an_address = (1 << 32..1 << 57).contains(&number);
    if is_like_an_address { Origin::memory().into() } else { Value::number() }
}

/// The registers that the GPU sets. Those of the environment belong to the driver.
fn special(name: &str) -> Option<Value> {
    const NUMBERS: [&str; 24] = [
        "%tid",
        "%ntid",
        "%laneid",
        "%warpid",
        "%nwarpid",
        "%ctaid",
        "%nctaid",
        "%smid",
        "%nsmid",
        "%gridid",
        "%is_explicit_cluster",
        "%clusterid",
        "%nclusterid",
        "%cluster_ctaid",
        "%cluster_nctaid",
        "%cluster_ctarank",
        "%cluster_nctarank",
        "%clock",
        "%clock_hi",
        "%clock64",
        "%total_smem_size",
        "%aggr_smem_size",
        "%dynamic_smem_size",
        "%current_graph_exec",
    ];
    let is_number = NUMBERS.contains(&name)
        || ["%lanemask_", "%pm", "%globaltimer"].iter().any(|prefix| name.starts_with(prefix));
    match name {
        _ if is_number => Some(Value::number()),
        _ if name.starts_with("%reserved_smem") => Some(Origin::own().into()),
        _ if name.starts_with("%envreg") => Some(Origin::memory().into()),
        _ => None,
    }
}
