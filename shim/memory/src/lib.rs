//! Decides where blocks live: address map, stitching allocator, tiers and budgets.
