//! Hazard (symbol interposition): pip has put the package where its program does not find it, or
//! another version's is started.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A prefix with the program in `bin`; removed at the end.
struct Prefix(PathBuf);

impl Prefix {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("wm-launcher-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("bin")).expect("a folder");
        for name in ["wmctl", "wmshim-run"] {
            // A link: writing a program while another test's process forks makes it busy.
            fs::hard_link(env!("CARGO_BIN_EXE_launcher"), folder.join("bin").join(name))
                .or_else(|_| {
                    fs::copy(env!("CARGO_BIN_EXE_launcher"), folder.join("bin").join(name)).map(drop)
                })
                .expect("a program");
        }
        Self(folder)
    }

    /// A package in this folder, of this version, which says where it is.
    fn package(&self, folder: &str, version: &str) -> &Self {
        let place = self.0.join(folder);
        let program = place.join("wmshim/bin/wmctl");
        fs::create_dir_all(program.parent().expect("a folder")).expect("a folder");
        fs::create_dir_all(place.join(format!("wmshim-{version}.dist-info"))).expect("a folder");
        fs::write(&program, format!("#!/bin/bash\necho \"{folder} $@\"\nexit 7\n")).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("its own");
        self
    }

    fn run(&self, name: &str) -> Output {
        Command::new(self.0.join("bin").join(name)).args(["a b", "c"]).output().expect("started")
    }

    /// What the program that was started says.
    fn says(&self) -> String {
        let output = self.run("wmctl");
        assert_eq!(output.status.code(), Some(7), "the code is the program's: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }
}

impl Drop for Prefix {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

const OWN: &str = env!("CARGO_PKG_VERSION");

#[test]
fn the_package_is_found_where_pip_puts_it() {
    let places = [
        "lib/python3.11/site-packages",
        "lib64/python3.9/site-packages",
        "lib/python3/dist-packages",
        "lib/python",
        ".",
    ];
    for (number, folder) in places.into_iter().enumerate() {
        let prefix = Prefix::new(&number.to_string());
        assert_eq!(prefix.package(folder, OWN).says(), format!("{folder} a b c\n"));
    }
}

#[test]
fn of_several_packages_the_one_of_this_version_is_taken() {
    let prefix = Prefix::new("several");
    prefix.package("lib/python3.11/site-packages", OWN).package("lib/python3.12/site-packages", "9.0");
    assert!(prefix.says().starts_with("lib/python3.11/"));
}

#[test]
fn without_a_package_it_says_what_to_do() {
    let prefix = Prefix::new("none");
    let output = prefix.run("wmshim-run");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1));
    assert!(said.starts_with("wmshim-run: no package wmshim in /") && said.contains("wheel"), "{said}");
}

/// `wmctl` tells its command line by its name.
#[test]
fn the_name_is_handed_on() {
    let prefix = Prefix::new("name");
    let place = Path::new("lib/python3.13/site-packages/wmshim/bin");
    fs::create_dir_all(prefix.0.join(place)).expect("a folder");
    std::os::unix::fs::symlink("/bin/cat", prefix.0.join(place).join("wmctl")).expect("a link");
    let program = prefix.0.join("bin/wmshim-run");
    let output = Command::new(&program).arg("/proc/self/cmdline").output().expect("started");
    let words: Vec<_> = output.stdout.split(|byte| *byte == 0).collect();
    assert_eq!(words[0], program.as_os_str().as_encoded_bytes());
}
