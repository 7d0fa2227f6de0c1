//! Hazard (privilege boundary): another user prepared the socket's folder: links, loose modes,
//! stale files, living owners.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use super::{Client, Fake, Scratch, serve};
use crate::endpoint::socket::{self, BindError};
use wm_sockets::private_folder;

fn problem<T>(bound: Result<T, BindError>) -> String {
    bound.err().expect("refused").to_string()
}

#[test]
fn a_fresh_directory_is_private() {
    let scratch = Scratch::new("fresh");
    let mode = fs::metadata(scratch.path()).expect("metadata").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let path = serve(&scratch, Fake::default());
    assert_eq!(fs::metadata(path).expect("metadata").permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_linked_directory_is_refused() {
    let scratch = Scratch::new("link");
    let link = scratch.path().join("link");
    symlink(scratch.path(), &link).expect("a link");
    let problem = private_folder::directory(Some(&link)).expect_err("must be refused").to_string();
    assert!(problem.contains("is a symbolic link"), "{problem}");
    assert!(problem.contains("set WMSHIM_STATS_DIR"), "{problem}");
}

#[test]
fn a_directory_that_others_can_write_and_a_file_are_refused() {
    let scratch = Scratch::new("loose");
    let loose = scratch.path().join("loose");
    fs::create_dir(&loose).expect("a directory");
    fs::set_permissions(&loose, Permissions::from_mode(0o777)).expect("loosened");
    assert!(
        private_folder::directory(Some(&loose))
            .expect_err("must be refused")
            .to_string()
            .contains("can be written by others")
    );
    let file = scratch.path().join("file");
    fs::write(&file, "").expect("a file");
    assert!(
        private_folder::directory(Some(&file))
            .expect_err("must be refused")
            .to_string()
            .contains("is not a directory")
    );
}

#[test]
fn the_stale_socket_of_a_dead_process_is_replaced() {
    let scratch = Scratch::new("stale");
    drop(UnixListener::bind(scratch.path().join("test.sock")).expect("bound"));
    let mut client = Client::connect(&serve(&scratch, Fake::default()));
    assert_eq!(client.ask("stats")["asked"], 1);
}

#[test]
fn a_socket_in_use_is_left_alone() {
    let scratch = Scratch::new("used");
    let taken = scratch.path().join("taken.sock");
    let _owner = UnixListener::bind(&taken).expect("bound");
    let bound = socket::bind(Some(&taken), scratch.path()).expect("falls back to the directory");
    assert_eq!(bound.file.path(), scratch.path().join(format!("{}.sock", std::process::id())));
    let problem = socket::bind(None, scratch.path()).err().expect("that one is alive too");
    assert!(matches!(problem, BindError::Taken(_)), "{problem}");
}

#[test]
fn a_file_in_the_way_is_not_overwritten() {
    let scratch = Scratch::new("file");
    let path = scratch.path().join("precious.sock");
    fs::write(&path, "data").expect("a file");
    assert!(problem(socket::bind(Some(&path), scratch.path())).contains("no socket is in the way"));
    assert_eq!(fs::read_to_string(&path).expect("the file"), "data");
}

/// Only the temporary name is removed: files and sockets of any other name stay, and the socket
/// comes up beside them.
#[test]
fn nothing_is_removed_for_the_temporary_name() {
    let scratch = Scratch::new("temporary");
    let path = scratch.path().join(format!("data.{}", std::process::id()));
    fs::write(&path, "data").expect("a file");
    let other = scratch.path().join(format!(".data.{}", std::process::id()));
    drop(UnixListener::bind(&other).expect("a socket"));
    let bound = socket::bind(Some(&scratch.path().join("data.sock")), scratch.path());
    let mut left: Vec<_> =
        fs::read_dir(scratch.path()).expect("the folder").flatten().map(|it| it.path()).collect();
    left.sort();
    let expected = [other, path.clone(), scratch.path().join("data.sock")];
    assert!(bound.is_ok() && left == expected, "{left:?}");
    assert_eq!(fs::read_to_string(&path).expect("the file"), "data");
}

#[test]
fn a_path_too_long_for_a_socket_is_a_clear_problem() {
    let scratch = Scratch::new("length");
    let path = scratch.path().join("x".repeat(120));
    let problem = problem(socket::bind(Some(&path), scratch.path()));
    assert!(problem.contains("set WMSHIM_STATS_DIR to a short path"), "{problem}");
}

#[test]
fn only_our_own_socket_file_is_removed() {
    let scratch = Scratch::new("removal");
    let bound = socket::bind(None, scratch.path()).expect("bound");
    let path = bound.file.path().to_owned();
    fs::remove_file(&path).expect("gone");
    fs::write(&path, "somebody else's").expect("a file");
    bound.file.remove();
    assert!(path.exists());
}
