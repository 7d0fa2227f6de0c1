//! Decides which users, peers, folders and variables a process may trust. The library lives in
//! programs that it does not know, which may have more rights than their caller.
//!
//! * [`environment`]: the caller's variables, which a program with more rights than its caller
//!   ignores.
//! * [`user`]: whether a number belongs to one user.
//! * [`peer`]: the process and user at the other end of a socket.
//! * [`folder`]: the folders in which files are made, and those that are trusted.
//! * [`file`](mod@file): files that are read although any process of their user may have written
//!   them.
//! * [`incarnation`]: which process, and which program in it, has a number now.
//! * [`node`]: the file of root's with settings for all programs of a machine.

pub mod environment;
pub mod file;
pub mod folder;
pub mod incarnation;
pub mod node;
pub mod peer;
pub mod user;
