//! Who may import whom.
