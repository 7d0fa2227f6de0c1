//! The parameters of a kernel through which its code stores, from its machine code or its PTX.
//!
//! Values go in and values come out: the crate opens no file, starts no thread and calls no driver.
//! The images may be hostile: any bytes give an answer, in bounded time and memory.

#![forbid(unsafe_code)]

mod verdict;

pub use verdict::{Effects, Source, Verdict, Why, WordSet};
