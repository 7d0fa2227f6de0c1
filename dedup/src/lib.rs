//! The same bytes are stored once on a GPU: what decides, without a driver.
//!
//! | module | one idea |
//! |---|---|
//! | [`chunk`] | the unit that is shared, and its name |

#![forbid(unsafe_code)]

pub mod chunk;
