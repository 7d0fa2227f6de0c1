//! The parameters of a kernel through which its code stores, from its machine code or its PTX.
//!
//! Values go in and values come out: the crate opens no file, starts no thread and calls no driver.
//! The images may be hostile: any bytes give an answer, in bounded time and memory.
//!
//! | module | one idea |
//! |---|---|
//! | [`kernel`] | one kernel as its image has it |
//! | [`image`] | fat binaries, cubins and PTX, and the kernels in them |
//! | [`sass`] | machine code: what each instruction reads and writes |
//! | [`flow`] | where the addresses of a kernel's accesses come from |
//! | [`ptx`] | the verdicts on the kernels of a PTX text |
//! | [`verdict`] | what a kernel may do, as a value |
//! | [`results`] | the verdicts on the kernels of an image, and their bytes in a file |
//! | [`launch`] | what one launch may write, by the values of its parameters |

#![forbid(unsafe_code)]

pub mod flow;
pub mod image;
pub mod kernel;
pub mod launch;
pub mod ptx;
pub mod results;
pub mod sass;
pub mod verdict;
