//! Opens a CUDA driver by path, calls it, and puts its memory calls behind one trait.
