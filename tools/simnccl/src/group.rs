//! Groups of calls: nothing begins before the end of the outermost one.
//!
//! Each thread has its own group. A call outside of a group is a group of one.

use std::cell::RefCell;
use std::sync::Arc;

use wm_abi::CUstream;

use crate::abi::{Code, Handle, Outcome};
use crate::communicator::Communicator;
use crate::operation::Operation;
use crate::registry::REGISTRY;
use crate::report::error;

/// A call that a group holds.
#[derive(Debug)]
pub(crate) enum Call {
    /// A new communicator begins to meet the other ranks.
    Start(Handle, Arc<Communicator>),
    /// An operation in a stream.
    Operate(Arc<Communicator>, Operation, CUstream),
}

impl Call {
    fn communicator(&self) -> &Arc<Communicator> {
        match self {
            Self::Start(_, communicator) | Self::Operate(communicator, ..) => communicator,
        }
    }
}

#[derive(Debug, Default)]
struct Group {
    depth: u32,
    error: Option<Code>,
    calls: Vec<Call>,
}

thread_local! {
    static GROUP: RefCell<Group> = const { RefCell::new(Group { depth: 0, error: None, calls: Vec::new() }) };
}

pub(crate) fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// Ends a group. The end of the outermost one begins its calls, unless one of them was refused.
pub(crate) fn end() -> Outcome {
    let whole = GROUP.with_borrow_mut(|group| match group.depth {
        0 => Err(error(Code::INVALID_USAGE, "ncclGroupEnd: not in a group call.")),
        1 => Ok(Some(std::mem::take(group))),
        _ => {
            group.depth -= 1;
            Ok(None)
        }
    })?;
    whole.map_or(Ok(()), Group::run)
}

/// Adds a call, or the error by which it was refused, to the group.
pub(crate) fn add(call: Outcome<Call>) -> Outcome {
    start();
    let added = GROUP.with_borrow_mut(|group| group.add(call).inspect_err(|code| group.refuse(*code)));
    let ended = end();
    added.and(ended)
}

impl Group {
    fn add(&mut self, call: Outcome<Call>) -> Outcome {
        let call = call?;
        let other = self.calls.first().map(|first| first.communicator().blocking);
        if other.is_some_and(|blocking| blocking != call.communicator().blocking) {
            let text = "Blocking and nonblocking communicators are not allowed in the same group.";
            return Err(error(Code::INVALID_ARGUMENT, text));
        }
        self.calls.push(call);
        Ok(())
    }

    fn refuse(&mut self, code: Code) {
        self.error.get_or_insert(code);
    }

    fn run(self) -> Outcome {
        if let Some(code) = self.error {
            self.calls.iter().for_each(Call::withdraw);
            return Err(code);
        }
        let blocking = self.calls.first().is_none_or(|call| call.communicator().blocking);
        let begun = self.begin(blocking);
        let met = self.calls.iter().map(|call| call.wait(blocking)).fold(Ok(()), Outcome::and);
        begun.and(met)?;
        if blocking { Ok(()) } else { Err(Code::IN_PROGRESS) }
    }

    /// Begins every call, also behind one that fails. The operations of one communicator begin
    /// together.
    fn begin(&self, blocking: bool) -> Outcome {
        let mut outcome = Ok(());
        for (at, call) in self.calls.iter().enumerate() {
            let communicator = call.communicator();
            let is_same = |other: &Call| Arc::ptr_eq(other.communicator(), communicator);
            let began = match call {
                Call::Start(..) => communicator.start(),
                Call::Operate(..) if self.calls[..at].iter().any(is_same) => Ok(()),
                Call::Operate(..) => self.operate(communicator, blocking),
            };
            outcome = outcome.and(began);
        }
        outcome
    }

    fn operate(&self, communicator: &Arc<Communicator>, blocking: bool) -> Outcome {
        let (mut operations, mut streams) = (Vec::new(), Vec::new());
        for call in &self.calls {
            if let Call::Operate(other, operation, stream) = call
                && Arc::ptr_eq(other, communicator)
            {
                operations.push(*operation);
                if !streams.contains(stream) {
                    streams.push(*stream);
                }
            }
        }
        match blocking {
            true => communicator.launch(&operations, &streams),
            false => communicator.launch_later(operations, streams),
        }
    }
}

impl Call {
    /// Waits until a new communicator is complete. One that fails is removed.
    fn wait(&self, blocking: bool) -> Outcome {
        match self {
            Self::Start(_, communicator) if blocking => {
                communicator.state().wait_initialised().inspect_err(|_| self.withdraw())
            }
            _ => Ok(()),
        }
    }

    fn withdraw(&self) {
        if let Self::Start(handle, communicator) = self {
            // The error that led here is the one to report.
            let _ = REGISTRY.remove(*handle);
            communicator.state().stop(std::time::Duration::ZERO);
        }
    }
}
