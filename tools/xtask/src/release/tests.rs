//! Hazard (source drift): a release differs from one time to the next, or its list lacks a crate.
//! Hazard (resource leak): the installer leaves files, or touches files that are not its own.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use super::*;

/// A folder of this test's own with a stand-in for `dist/`.
struct Bench(PathBuf);

impl Bench {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("wm-release-{}-{name}", std::process::id()));
        empty(&folder.join("dist")).unwrap();
        let bench = Self(folder);
        bench.put("lib/libwmshim.so", "library", 0o644);
        bench.put("bin/wmctl", "#!/bin/sh\necho \"${0##*/} of $(readlink -f \"$0\")\"\n", 0o755);
        for name in ["include/wmshim.h", "docs/a page.md", "share/man/man1/wmctl.1", "symbols/a.debug"] {
            bench.put(name, name, 0o644);
        }
        bench.put("dev/bench", "not for users", 0o755);
        symlink("libwmshim.so", bench.0.join("dist/lib/libcuda.so")).unwrap();
        bench
    }

    fn put(&self, name: &str, text: &str, mode: u32) {
        let path = self.0.join("dist").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn release(&self, out: &str) -> Release {
        let out = self.0.join(out);
        empty(&out).unwrap();
        Release { dist: self.0.join("dist"), out, version: "0.1.0".to_owned(), time: 1_700_000_000 }
    }

    /// The unpacked archive.
    fn unpacked(&self) -> PathBuf {
        let release = self.release("one");
        release.archives().unwrap();
        let archive = release.out.join("wmshim-0.1.0-linux-x86_64.tar.gz");
        let unpack = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&self.0).status();
        assert!(unpack.unwrap().success());
        self.0.join("wmshim-0.1.0")
    }

    /// All files of a folder.
    fn files(&self, folder: &str) -> Vec<String> {
        let list =
            Command::new("find").arg(".").args(["!", "-type", "d"]).current_dir(self.0.join(folder)).output();
        let text = String::from_utf8(list.unwrap().stdout).unwrap();
        let mut files: Vec<_> = text.lines().map(|line| line[2..].to_owned()).collect();
        files.sort();
        files
    }

    fn installer(&self, script: &Path, words: &[&str]) -> Output {
        Command::new("sh")
            .arg(script)
            .args(words)
            .current_dir(&self.0)
            .env("TMPDIR", &self.0)
            .output()
            .unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_same_files_give_the_same_archives_with_their_checksums() {
    let bench = Bench::new("same");
    let make = |out| {
        let release = bench.release(out);
        release.archives().unwrap();
        release.notes("# Changes\n\n## 0.1.0, not released yet\n\n- It is.\n").unwrap();
        release.checksums().unwrap();
        fs::read_to_string(release.out.join("SHA256SUMS")).unwrap()
    };
    let first = make("one");
    // A file that is read again, later, by another user's hands.
    bench.put("include/wmshim.h", "include/wmshim.h", 0o640);
    assert_eq!(first, make("two"));
    let names: Vec<_> = first.lines().filter_map(|line| line.split("  ").nth(1)).collect();
    assert_eq!(names, ["NOTES.md", "wmshim-0.1.0-linux-x86_64.tar.gz", "wmshim-0.1.0-symbols.tar.gz"]);
    let check =
        Command::new("sha256sum").args(["-c", "SHA256SUMS"]).current_dir(bench.0.join("two")).output();
    assert!(check.unwrap().status.success());
}

#[test]
fn what_was_installed_is_removed_and_nothing_else() {
    let bench = Bench::new("install");
    let archive = bench.unpacked();
    let script = archive.join("install.sh");
    fs::create_dir_all(bench.0.join("a place/bin")).unwrap();
    fs::write(bench.0.join("a place/bin/theirs"), "theirs").unwrap();
    let installed = bench.installer(&script, &["a place"]);
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    let own = "lib/wmshim/";
    let files = bench.files("a place");
    assert!(
        files.contains(&format!("{own}docs/a page.md")) && files.contains(&"bin/wmctl".to_owned()),
        "{files:?}"
    );
    assert!(!files.iter().any(|file| file.contains("symbols") || file.contains("bench")), "{files:?}");
    let started = Command::new(bench.0.join("a place/bin/wmshim-run")).output().unwrap();
    let place = bench.0.canonicalize().unwrap().join("a place/lib/wmshim/bin/wmctl");
    assert_eq!(String::from_utf8(started.stdout).unwrap(), format!("wmshim-run of {}\n", place.display()));

    // The next version has a file less.
    fs::remove_file(archive.join("docs/a page.md")).unwrap();
    assert!(bench.installer(&script, &["a place"]).status.success());
    assert!(!bench.files("a place").contains(&format!("{own}docs/a page.md")));

    // Files that the user made or changed stay.
    fs::write(bench.0.join("a place/lib/wmshim/include/wmshim.h"), "changed").unwrap();
    fs::write(bench.0.join("a place/share/man/theirs"), "theirs").unwrap();
    let removed =
        bench.installer(&bench.0.join("a place/lib/wmshim/install.sh"), &["--uninstall", "a place"]);
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    let stays = ["bin/theirs", "lib/wmshim/include/wmshim.h", "share/man/theirs"];
    assert_eq!(bench.files("a place"), stays);
    assert!(!bench.0.join("a place/lib/wmshim/bin").exists(), "an empty folder of ours is removed");
}

#[test]
fn a_file_of_others_is_in_the_way_and_stays() {
    let bench = Bench::new("foreign");
    let script = bench.unpacked().join("install.sh");
    fs::create_dir_all(bench.0.join("prefix/bin")).unwrap();
    fs::write(bench.0.join("prefix/bin/wmctl"), "another program").unwrap();
    let refused = bench.installer(&script, &["prefix"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("prefix/bin/wmctl is not wmshim's"), "{said}");
    assert_eq!(bench.files("prefix"), ["bin/wmctl"]);
    let refused = bench.installer(&script, &["--uninstall", "prefix"]);
    assert!(!refused.status.success() && bench.files("prefix") == ["bin/wmctl"]);
    assert!(!bench.installer(&script, &[]).status.success());
}

#[test]
fn the_bill_has_what_is_linked_and_no_tool_of_the_tests() {
    let bill = sbom::bill("0.1.0", &dist::PACKAGES).unwrap();
    let components = bill["components"].as_array().unwrap();
    let names: Vec<_> = components.iter().filter_map(|it| it["name"].as_str()).collect();
    for name in ["wmshim", "wm-memory", "serde_json", "libc", "clap", "rust-std"] {
        assert!(names.contains(&name), "{name} is missing: {names:?}");
    }
    for name in ["hazards", "proptest", "cc", "xtask"] {
        assert!(!names.contains(&name), "{name} is in no binary");
    }
    for component in components.iter().filter(|it| it["purl"].is_string()) {
        assert_eq!(component["hashes"][0]["content"].as_str().map(str::len), Some(64), "{component}");
        assert!(component["licenses"][0]["expression"].is_string(), "{component}");
    }
    let known: Vec<_> = components.iter().map(|it| &it["bom-ref"]).collect();
    for edge in bill["dependencies"].as_array().unwrap() {
        let unknown: Vec<_> =
            edge["dependsOn"].as_array().unwrap().iter().filter(|it| !known.contains(it)).collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", edge["ref"]);
    }
}

#[test]
fn notes_are_the_versions_own_section() {
    let changes = "# Changes\n\n## 0.10.0\n\n- Later.\n\n## 0.1.0, not released yet\n\n- First.\n- Second.\n\n## 0.0.9\n\n- Old.\n";
    assert_eq!(notes(changes, "0.1.0").unwrap(), "# wmshim 0.1.0\n\n- First.\n- Second.\n");
    assert!(notes(changes, "0.1").is_err() && notes("## 1.0\n\n", "1.0").is_err());
    notes(
        &fs::read_to_string(crate::root().join("CHANGELOG.md")).unwrap(),
        &version(&crate::root()).unwrap(),
    )
    .unwrap();
}
