//! The preloaded library: trampolines, hooks, settings, statistics. Wiring only.
