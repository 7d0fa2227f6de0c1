//! A model of several GPUs with asynchronous streams, and a program that copies on it.
pub(crate) mod model;
pub(crate) mod world;
