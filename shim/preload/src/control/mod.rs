//! Changes of the running process that an operator or the program itself asks for: another limit of
//! device memory, unused memory back to the driver, the library's features off ([`detach`]).
//!
//! Invariants: each request is one step of bounded time ([`STEP`]), and any number of them may be
//! made at once; a limit is in force for later allocations before anything moves; what cannot be
//! proven to be unused stays where it is, and the answer says how much, and why.

mod detach;
mod limit;
mod step;

use wm_schema as schema;

use crate::endpoint::ChangeRequest;
pub(crate) use step::StepCaller;

/// Makes one step of a change.
pub(crate) fn change(request: &ChangeRequest, caller: StepCaller) -> schema::ProcessChange {
    match request {
        ChangeRequest::Limit(request) => limit::limit(request, caller),
        ChangeRequest::Trim => limit::trim(),
        ChangeRequest::Detach => detach::detach(caller),
        ChangeRequest::Attach => detach::attach(),
    }
}
