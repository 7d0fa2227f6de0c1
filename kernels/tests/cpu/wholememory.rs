//! Hazard: a row of the wrong rank's memory, or bytes beside the row that was asked for. Every
//! kernel of the image is held against plain Rust over tables in one to eight chunks, some of them
//! empty, at every alignment.

mod graph;
mod islands;
mod support;

mod cache;
mod claims;
mod converted;
mod divide;
mod gradients;
mod optimizers;
mod random;
mod repeats;
mod rows;
mod sampling;
mod small;
mod sort;
mod types;
mod unique;
