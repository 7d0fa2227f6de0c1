//! What each rank says at the begin of an operation over islands: which operation it is, whether
//! the rank can take part, and how many rows it has for each island. Pure.
//!
//! All ranks read the records of all, so they come to the same verdict.

use crate::error::{Error, Result};

/// Words before the counts.
pub const HEADER_WORDS: usize = 8;
/// The word of the header that ranks need not say alike: how many numbers were claimed in the
/// island.
const CLAIMED: usize = 7;

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOperation {
    /// Rows come from their islands.
    Gather = 1,
    /// Rows go there.
    Scatter = 2,
}

/// What all ranks must say alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallHeader {
    /// How many operations there were before.
    pub sequence: u64,
    /// The operation.
    pub operation: RowOperation,
    /// The memory's number.
    pub memory: u64,
    /// The code of the type in which elements are sent.
    pub wire_type: u64,
    /// Bytes of a row that is sent.
    pub row_bytes: u64,
    /// Where in the table's row it begins, bytes.
    pub offset: u64,
}

impl CallHeader {
    fn words(self) -> [u64; 6] {
        let Self { sequence, operation, memory, wire_type, row_bytes, offset } = self;
        [sequence, operation as u64, memory, wire_type, row_bytes, offset]
    }
}

/// Words of a record for so many islands.
pub fn words(islands: usize) -> usize {
    HEADER_WORDS + islands
}

/// The first words of a rank's record, which has claimed rows for so many numbers. The counts
/// behind them are not looked at where the rank has an error.
pub fn header(own: Result<(CallHeader, u64), &Error>) -> [u64; HEADER_WORDS] {
    let mut words = [0; HEADER_WORDS];
    match own {
        Ok((call, claimed)) => {
            words[1..CLAIMED].copy_from_slice(&call.words());
            words[CLAIMED] = claimed;
        }
        Err(error) => words[0] = error.code().into(),
    }
    words
}

/// How many rows each rank has for each island: `counts[rank][island]`. `records` are those of all
/// ranks, by rank, each for `islands` islands.
///
/// # Errors
/// That of the first rank that has one; [`Error::Logic`] where ranks make different calls.
pub fn judge(records: &[u64], islands: usize) -> Result<Vec<Vec<u64>>> {
    let records: Vec<_> = records.chunks_exact(words(islands)).collect();
    if let Some((rank, record)) = records.iter().enumerate().find(|(_, record)| record[0] != 0) {
        return Err(Error::of_rank(rank, record[0] as u32));
    }
    let first = records.first().map(|record| &record[..CLAIMED]);
    match records.iter().position(|record| Some(&record[..CLAIMED]) != first) {
        Some(rank) => Err(Error::Logic(format!(
            "rank 0 and rank {rank} make different calls: over memory that spans islands all ranks gather, or all \
             scatter, the same columns of one table in the same types"
        ))),
        None => Ok(records.iter().map(|record| record[HEADER_WORDS..].to_vec()).collect()),
    }
}

/// For how many numbers each rank has claimed rows in its island; 0 for one that has not.
pub fn claimed(records: &[u64], islands: usize) -> Vec<u64> {
    records.chunks_exact(words(islands)).map(|record| record[CLAIMED]).collect()
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): one rank goes on with a call that another one does not make.
    use super::*;

    fn call() -> CallHeader {
        CallHeader {
            sequence: 7,
            operation: RowOperation::Gather,
            memory: 2,
            wire_type: 1,
            row_bytes: 512,
            offset: 0,
        }
    }

    fn records(own: &[Result<CallHeader, &Error>]) -> Vec<u64> {
        let counts = |rank: u64| [10 * rank, 10 * rank + 1];
        let header = |own: Result<CallHeader, &Error>, rank| header(own.map(|call| (call, 100 + rank)));
        own.iter()
            .zip(0..)
            .flat_map(|(own, rank)| header(*own, rank).into_iter().chain(counts(rank)))
            .collect()
    }

    #[test]
    fn equal_calls_give_the_counts_of_each_rank() {
        let found = judge(&records(&[Ok(call()), Ok(call()), Ok(call())]), 2);
        assert_eq!(found.ok(), Some(vec![vec![0, 1], vec![10, 11], vec![20, 21]]));
        assert_eq!(claimed(&records(&[Ok(call()); 3]), 2), [100, 101, 102]);
    }

    #[test]
    fn any_difference_is_found_wherever_it_is() {
        let other = [
            CallHeader { sequence: 8, ..call() },
            CallHeader { operation: RowOperation::Scatter, ..call() },
            CallHeader { memory: 3, ..call() },
            CallHeader { wire_type: 2, ..call() },
            CallHeader { row_bytes: 500, ..call() },
            CallHeader { offset: 4, ..call() },
        ];
        for other in other {
            for at in 0..3 {
                let mut calls = [Ok(call()); 3];
                calls[at] = Ok(other);
                let error = judge(&records(&calls), 2).map_err(|error| error.code());
                assert_eq!(error, Err(3), "{other:?} at {at}");
            }
        }
    }

    #[test]
    fn an_error_of_one_rank_is_that_of_all_before_any_difference() {
        let error = Error::Memory("none".to_owned());
        let other = CallHeader { memory: 3, ..call() };
        let found = judge(&records(&[Ok(other), Ok(call()), Err(&error)]), 2);
        assert_eq!(found.map_err(|error| error.to_string()), Err("out of memory: rank 2 failed".to_owned()));
    }
}
