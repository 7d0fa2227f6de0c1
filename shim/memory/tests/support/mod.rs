//! Parts that several test targets share: a model of a GPU, and a legal program that runs on it.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test target uses a part of it")]

pub mod model;
pub mod scene;
pub mod torch_cache;
pub mod world;
