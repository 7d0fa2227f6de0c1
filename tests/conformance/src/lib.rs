//! One suite for the simulated and the real driver.
