//! Which users, peers, folders and variables a process may trust. The library lives in programs
//! that it does not know, which may have more rights than their caller.
//!
//! * [`environment`]: the caller's words, of which a program with more rights than its caller takes
//!   none.
//! * [`user`]: whether a user's number tells that user from others.
//! * [`peer`]: which process and user are at the other end of a socket.
//! * [`folder`]: in which folders files are made, and which are believed.

pub mod environment;
pub mod folder;
pub mod peer;
pub mod user;
