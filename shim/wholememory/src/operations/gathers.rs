//! Gathers of one call over several tables, of which some may span islands.
//!
//! All ranks gather once from each table that spans islands, in one order: also a rank that needs
//! no row of it, and one that has failed. So an error before the last of these gathers is an error
//! of all ranks, and no rank waits for one that has returned.

use std::collections::VecDeque;

use wm_abi::CUstream;

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::operations::rows::{self, RowDirection};
use crate::operations::scratch::Workspace;
use crate::tensor::{Place, Tensor};

/// The gathers that a call has still to make.
#[derive(Debug)]
pub struct Gathers<'a> {
    left: VecDeque<&'a Tensor>,
    stream: CUstream,
}

impl<'a> Gathers<'a> {
    /// A gather from each of the tables that spans islands.
    pub fn of(tables: impl IntoIterator<Item = &'a Tensor>, stream: CUstream) -> Self {
        let spans =
            |table: &&Tensor| matches!(table.place(), Place::Memory(memory) if memory.span().is_some());
        Self { left: tables.into_iter().filter(spans).collect(), stream }
    }

    /// Makes the next one: row `numbers[i]` of its table becomes row `i` of packed memory.
    ///
    /// # Errors
    /// As of [`rows::copy`], the same at every rank.
    pub fn make(&mut self, numbers: &Tensor, packed: &Tensor, environment: &Environment) -> Result {
        let no_table = || Error::Logic("a gather from a table that spans no islands".to_owned());
        let table = self.left.pop_front().ok_or_else(no_table)?;
        let workspace = self.workspace(table, Some(environment))?;
        let gathered = rows::copy(RowDirection::Gather, table, numbers, packed, &workspace, 0);
        if gathered.is_err() {
            // All ranks have an error of this gather, and make no other one.
            self.left.clear();
        }
        gathered
    }

    /// Ends the call with its outcome. Other ranks hear of an error in the next gather.
    ///
    /// # Errors
    /// That of the call.
    pub fn end(mut self, outcome: Result) -> Result {
        match (outcome, self.left.pop_front()) {
            (Err(error), Some(table)) => {
                rows::refuse(RowDirection::Gather, table, error, &self.workspace(table, None)?)
            }
            (outcome, _) => outcome,
        }
    }

    fn workspace<'b>(
        &self,
        table: &'b Tensor,
        environment: Option<&'b Environment>,
    ) -> Result<Workspace<'b>> {
        Ok(Workspace { communicator: table.memory()?.communicator(), stream: self.stream, environment })
    }
}
