//! Runs programs under wmshim and looks inside them.
fn main() {}
