//! What an interposer must survive, one test a hazard.
