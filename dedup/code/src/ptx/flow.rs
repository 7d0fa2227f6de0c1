//! The fixed point over a kernel and the functions that it calls.
//!
//! The order of statements does not matter here: a cell holds all that any statement puts into it.
//! That is more than the truth, never less, and little more, as compilers use a register once. So
//! branches need no attention, and neither do predicates.

use std::collections::{BTreeSet, HashMap};

use super::opcodes::How;
use super::origin::{Origin, Value};
use super::steps::{FlowStep, FunctionSteps, StepAction, StepOperand};
use super::syntax::{Obscure, StateSpace};
use crate::verdict::{AddressSource, Effects, WordSet};

/// Rounds over all statements. A value grows a few times only, so that a kernel takes three to
/// five.
const MOST_ROUNDS: u32 = 64;

/// What a kernel may do.
///
/// # Errors
/// The line of a statement that is not understood, or, as line 0, no fixed point in time.
pub(super) fn effects(
    kernel: usize,
    functions: &[Result<FunctionSteps, Obscure>],
) -> Result<Effects, Obscure> {
    let mut state = FlowState::of(kernel, functions)?;
    for _ in 0..MOST_ROUNDS {
        if !state.round() {
            return state.effects();
        }
    }
    Err(Obscure(0))
}

struct FlowState<'s> {
    /// The kernel and the functions that it reaches, each with its first cell.
    functions: Vec<(&'s FunctionSteps, usize)>,
    /// Places in `functions` by the number of a function.
    places: HashMap<usize, usize>,
    cells: Vec<Value>,
    local: Value,
    shared: Value,
}

impl<'s> FlowState<'s> {
    fn of(kernel: usize, all: &'s [Result<FunctionSteps, Obscure>]) -> Result<Self, Obscure> {
        let (mut functions, mut places, mut cells) = (Vec::new(), HashMap::new(), 0);
        let mut open = vec![kernel];
        while let Some(number) = open.pop() {
            if places.contains_key(&number) {
                continue;
            }
            let steps = all[number].as_ref().map_err(|obscure| *obscure)?;
            places.insert(number, functions.len());
            functions.push((steps, cells));
            cells += steps.cells;
            open.extend(steps.steps.iter().filter_map(|step| match step.action {
                StepAction::Call(called, _) => Some(called),
                _ => None,
            }));
        }
        let cells = vec![Value::default(); cells];
        Ok(Self { functions, places, cells, local: Value::default(), shared: Value::default() })
    }

    /// Takes each step once; true if a value grew.
    fn round(&mut self) -> bool {
        let mut grew = false;
        for at in 0..self.functions.len() {
            let (steps, first) = self.functions[at];
            for step in &steps.steps {
                grew |= self.take(step, first);
            }
        }
        grew
    }

    fn take(&mut self, step: &FlowStep, first: usize) -> bool {
        let mut grew = false;
        let result = match &step.action {
            StepAction::Compute(how, from) => self.computed(*how, from, first),
            StepAction::Load(space, address) => self.loaded(*space, &self.sum(address, first)),
            StepAction::Store(space, _, from) => {
                grew |= self.keep(*space, &self.any(from, first));
                return grew;
            }
            StepAction::Atomic(space, address, from) => {
                grew |= self.keep(*space, &self.any(from, first));
                self.loaded(*space, &self.sum(address, first))
            }
            StepAction::Fetch(_) => return self.shared.join(&Origin::memory().into()),
            StepAction::Call(called, from) => return self.call(step, *called, from, first),
            StepAction::Print(_) => Value::number(),
            StepAction::Allocate => Origin::globals().into(),
            StepAction::Flush(_) => return false,
        };
        step.to.iter().fold(grew, |grew, to| self.cells[first + to].join(&result) | grew)
    }

    /// Arguments go to the function's cells, its results come back.
    fn call(&mut self, step: &FlowStep, called: usize, from: &[StepOperand], first: usize) -> bool {
        let (steps, other) = self.functions[self.places[&called]];
        let mut grew = false;
        for (parameter, part) in steps.parameters.iter().zip(from) {
            let value = self.value(part, first);
            grew |= self.cells[other + parameter].join(&value);
        }
        for (to, result) in step.to.iter().zip(&steps.results) {
            let value = self.cells[other + result].clone();
            grew |= self.cells[first + to].join(&value);
        }
        grew
    }

    fn value(&self, part: &StepOperand, first: usize) -> Value {
        match part {
            StepOperand::Cell(cell) => self.cells[first + cell].clone(),
            StepOperand::Fixed(value) => value.clone(),
        }
    }

    fn any(&self, parts: &[StepOperand], first: usize) -> Value {
        parts.iter().fold(Value::default(), |any, part| any.or(&self.value(part, first)))
    }

    fn sum(&self, parts: &[StepOperand], first: usize) -> Value {
        parts.iter().fold(Value::number(), |sum, part| sum.plus(&self.value(part, first)))
    }

    fn computed(&self, how: How, from: &[StepOperand], first: usize) -> Value {
        let (last, others) = match from.split_last() {
            Some((last, others)) => (self.value(last, first), others),
            None => return Value::number(),
        };
        match how {
            How::Either => self.any(from, first),
            How::Sum => self.sum(from, first),
            How::Difference => self.sum(others, first).plus(&last.as_offset()),
            How::Product => self.sum(from, first).as_offset(),
            How::ProductAndSum => self.sum(others, first).as_offset().plus(&last),
        }
    }

    fn loaded(&self, space: Option<StateSpace>, address: &Value) -> Value {
        match space {
            Some(StateSpace::Global | StateSpace::Constant) => Origin::memory().into(),
            Some(StateSpace::Shared) => self.shared.clone(),
            Some(StateSpace::Local) => self.local.clone(),
            Some(StateSpace::Parameter) | None => self.loaded_anywhere(address),
        }
    }

    /// Through an address of any kind of memory.
    fn loaded_anywhere(&self, address: &Value) -> Value {
        let mut loaded = Value::default();
        for origin in address.origins() {
            if !origin.addresses.is_empty() {
                loaded.join(&Origin::words(origin.addresses.clone()).into());
            }
            if !origin.is_own() && (origin.addresses.is_empty() || origin.memory || origin.globals) {
                loaded.join(&Origin::memory().into());
            }
            if origin.is_own() || origin.own {
                loaded.join(&self.local.or(&self.shared));
            }
        }
        loaded
    }

    /// Keeps what is stored to memory of the block or the thread. A store to any kind of memory may
    /// be one.
    fn keep(&mut self, space: Option<StateSpace>, value: &Value) -> bool {
        let (is_local, is_shared) = (
            matches!(space, None | Some(StateSpace::Local)),
            matches!(space, None | Some(StateSpace::Shared)),
        );
        let grew = is_local && self.local.join(value);
        is_shared && self.shared.join(value) || grew
    }

    fn effects(&self) -> Result<Effects, Obscure> {
        let mut found = FoundEffects::default();
        for (steps, first) in &self.functions {
            for step in &steps.steps {
                self.add(&mut found, step, *first).ok_or(Obscure(step.line))?;
            }
        }
        Ok(found.effects())
    }

    /// Adds what a step does to memory that others have. `None`: that is not known.
    fn add(&self, found: &mut FoundEffects, step: &FlowStep, first: usize) -> Option<()> {
        match &step.action {
            StepAction::Store(space, address, from) | StepAction::Atomic(space, address, from) => {
                let data = self.any(from, first);
                found.store(*space, &self.sum(address, first), &data)?;
            }
            StepAction::Flush(address) => {
                found.store(Some(StateSpace::Global), &self.sum(address, first), &self.shared)?;
            }
            StepAction::Load(None | Some(StateSpace::Global), address) | StepAction::Fetch(address) => {
                found.reads.extend(self.sum(address, first).sources());
            }
            StepAction::Print(from) => {
                found.escapes.extend_from(&self.any(from, first).or(&self.local).words());
            }
            _ => {}
        }
        Some(())
    }
}

/// The effects, each once.
#[derive(Default)]
struct FoundEffects {
    stores: BTreeSet<AddressSource>,
    reads: BTreeSet<AddressSource>,
    escapes: WordSet,
}

impl FoundEffects {
    /// Adds a store, unless it goes to memory of the block or the thread. `None`: the address is
    /// never computed, or is none that a program stores to.
    fn store(&mut self, space: Option<StateSpace>, address: &Value, data: &Value) -> Option<()> {
        match space {
            Some(StateSpace::Shared | StateSpace::Local) => return Some(()),
            Some(StateSpace::Constant | StateSpace::Parameter) => return None,
            Some(StateSpace::Global) | None => {}
        }
        let is_parameter = |origin: &Origin| !origin.addresses.is_empty();
        let sources: Vec<_> = address.sources().collect();
        let is_nowhere = address.is_never() || space.is_some() && sources.is_empty();
        if is_nowhere || address.origins().iter().any(is_parameter) {
            return None;
        }
        if !sources.is_empty() {
            // What lies behind such an address would come back as something that was loaded.
            let is_own = |origin: &Origin| origin.own || is_parameter(origin);
            if data.origins().iter().any(is_own) {
                return None;
            }
            self.escapes.extend_from(&data.words());
        }
        self.stores.extend(sources);
        Some(())
    }

    fn effects(self) -> Effects {
        let Self { stores, reads, escapes } = self;
        Effects { stores: stores.into_iter().collect(), reads: reads.into_iter().collect(), escapes }
    }
}
