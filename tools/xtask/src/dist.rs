//! `cargo xtask dist`: fills `dist/` with the shipped files, and checks that they run on the
//! promised systems.
//!
//! The promise is glibc 2.31 or newer and nothing else on the target. Zig's linker, driven by
//! cargo-zigbuild, links against that glibc on any build machine; [`elf`] reads the
//! finished files and refuses one that asks for more. Relative links are used within a folder, so
//! that `dist/` can be moved as a whole.
//!
//! `dev/` has the programs that only developers run on a GPU machine. It is not in the wheel.
//!
//! The shipped files are stripped; a debugger finds the symbols in `symbols/`, which a user need
//! not have.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{elf, exports, pages, step, toolbox};

/// The oldest glibc that is served: Debian 11, Ubuntu 20.04, RHEL 9.
const GLIBC: elf::Glibc = (2, 31);
const TARGET: &str = concat!("x86_64", "-unknown-linux-gnu");

/// The build products and their places in `dist/`.
const BUILT: [(&str, &str); 14] = [
    ("libwmshim.so", "lib/libwmshim.so"),
    ("libwmshim.so", "dropin/libcuda.so.1"),
    ("libwholegraph.so", "wholegraph/libwholegraph.so"),
    ("libsimcuda.so", "sim/libcuda.so.1"),
    ("libsimnccl.so", "sim/libnccl.so.2"),
    ("wmctl", "bin/wmctl"),
    ("wmshimd", "bin/wmshimd"),
    ("launcher", "python/launcher"),
    ("conformance", "bin/conformance"),
    ("demo", "bin/demo"),
    ("stress", "bin/stress"),
    ("oracle", "bin/oracle"),
    ("bench", "dev/bench"),
    ("wholememory-suite", "dev/wholememory-suite"),
];

/// The packages of these products.
pub(crate) const PACKAGES: [&str; 13] = [
    "wmshim",
    "wholegraph",
    "simcuda",
    "simnccl",
    "wmctl",
    "wm-dedup",
    "launcher",
    "conformance",
    "demo",
    "stress",
    "oracle",
    "bench",
    "wholememory-suite",
];

/// Links beside the library. The shim opens `libcuda.so` in its own folder once, so that the loader
/// knows it by that name too: the link must lead to the same inode.
const LINKS: [(&str, &str); 2] = [("lib/libcuda.so", "libwmshim.so"), ("dropin/libcuda.so", "libcuda.so.1")];

/// Where shells look for completions, below `share/`.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/wmctl"),
    ("zsh", "zsh/site-functions/_wmctl"),
    ("fish", "fish/vendor_completions.d/wmctl.fish"),
];

/// Folders of headers, whose files go to `include/`.
const HEADERS: [&str; 2] = ["shim/preload/include", "shim/wholegraph/include"];

/// Builds and fills `dist/`.
pub(crate) fn run() -> Result<()> {
    let dist = crate::root().join("dist");
    let built = build()?;
    step::perform("fill dist", || fill(&dist, &built))?;
    step::perform("symbols apart", || BUILT.iter().try_for_each(|(_, name)| strip(&dist, name)))?;
    step::perform("headers", || headers(&dist))?;
    step::perform("pages", || pages::ship(&crate::root(), &dist))?;
    step::perform("command line", || command_line(&dist))?;
    wheel(&dist)?;
    step::perform("check dist", || check(&dist))?;
    report(&dist)
}

/// Compiles every package that ships, and says in which folder the results are.
fn build() -> Result<PathBuf> {
    let target = format!("{TARGET}.{}.{}", GLIBC.0, GLIBC.1);
    let mut zigbuild = toolbox::pinned("zigbuild", &["--release", "--target", &target])?;
    zigbuild.args(PACKAGES.iter().flat_map(|name| ["--package", name]));
    step::run("build", zigbuild)?;
    Ok(crate::target()?.join(TARGET).join("release"))
}

fn fill(dist: &Path, built: &Path) -> Result<()> {
    if dist.exists() {
        fs::remove_dir_all(dist).context("cannot empty dist/")?;
    }
    for (from, to) in BUILT {
        copy(&built.join(from), &dist.join(to))?;
    }
    for (link, target) in LINKS {
        symlink(target, dist.join(link)).with_context(|| link.to_owned())?;
    }
    Ok(())
}

/// Takes a file's symbols out of it, into a file of their own that it names.
fn strip(dist: &Path, name: &str) -> Result<()> {
    let (file, symbols) = (dist.join(name), dist.join("symbols").join(format!("{name}.debug")));
    fs::create_dir_all(symbols.parent().context("a file of symbols is in a folder")?)?;
    let run = |arguments: &[&str], paths: &[&Path]| {
        let mut objcopy = step::command("objcopy", arguments);
        objcopy.args(paths);
        step::output(objcopy).context("objcopy is needed, of the binutils that come with gcc").map(drop)
    };
    run(&["--only-keep-debug"], &[&file, &symbols])?;
    run(&["--strip-all"], &[&file])?;
    run(&[&format!("--add-gnu-debuglink={}", symbols.display())], &[&file])
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file of dist/ is in a folder")?)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// The C interface of programs that opt in, and that of WholeMemory.
fn headers(dist: &Path) -> Result<()> {
    for folder in HEADERS {
        let source = crate::root().join(folder);
        for file in files(&source).context(folder)? {
            copy(&file, &dist.join("include").join(file.strip_prefix(&source)?))?;
        }
    }
    Ok(())
}

/// Completions and man pages of `wmctl`, by itself.
fn command_line(dist: &Path) -> Result<()> {
    let wmctl = |arguments: &[&str]| step::output(step::command(dist.join("bin/wmctl"), arguments));
    for (shell, file) in COMPLETIONS {
        let file = dist.join("share").join(file);
        fs::create_dir_all(file.parent().context("a file of dist/ is in a folder")?)?;
        fs::write(&file, wmctl(&["completions", shell])?).with_context(|| file.display().to_string())?;
    }
    let pages = dist.join("share/man/man1");
    wmctl(&["man", pages.to_str().context("a readable path")?]).map(drop)
}

/// The Python wheel carries the finished library, so it is packed last.
fn wheel(dist: &Path) -> Result<()> {
    let mut python = step::command("python3", &["tools/python/build_wheel.py"]);
    python.arg(dist).arg("--out").arg(dist.join("python"));
    step::run("wheel", python)
}

fn check(dist: &Path) -> Result<()> {
    for (_, name) in BUILT {
        let demands = elf::Demands::read(&dist.join(name))?;
        demands.meet(GLIBC).with_context(|| name.to_owned())?;
        // The name that a library answers for.
        let soname = soname(name);
        if name.contains(".so") && demands.soname.as_deref() != Some(soname) {
            bail!("{name}: SONAME is {:?} and must be {soname}", demands.soname);
        }
        if demands.has_symbols {
            bail!("{name}: its symbols are still in it");
        }
        if name.starts_with("lib/") && !demands.search.iter().any(|path| path == "$ORIGIN") {
            bail!("{name}: RPATH is {:?} and must hold $ORIGIN", demands.search);
        }
    }
    exports::check(&dist.join("lib/libwmshim.so"))
}

/// The SONAME that a shipped library must have.
fn soname(name: &str) -> &'static str {
    match name {
        "wholegraph/libwholegraph.so" => "libwholegraph.so",
        "sim/libnccl.so.2" => "libnccl.so.2",
        _ => "libcuda.so.1",
    }
}

/// Prints each file's size and its requirements of the machine.
fn report(dist: &Path) -> Result<()> {
    println!();
    for file in files(dist)? {
        let name = file.strip_prefix(dist)?.display().to_string();
        println!("dist/{name:<62} {}", describe(&file)?);
    }
    Ok(())
}

fn describe(file: &Path) -> Result<String> {
    if file.is_symlink() {
        return Ok(format!("{:>8}  -> {}", "link", fs::read_link(file)?.display()));
    }
    let size = format!("{:>4.1} MiB", fs::metadata(file)?.len() as f64 / f64::from(1 << 20));
    let demands = elf::Demands::read(file).unwrap_or_default();
    Ok(match demands.glibc {
        Some((major, minor)) => format!("{size}  glibc {major}.{minor}; {}", demands.needed.join(" ")),
        None => size,
    })
}

/// Every file below `folder`, sorted, links included and not followed.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    //! Hazard (source drift): a page tells of a header that is not shipped.
    use super::*;

    #[test]
    fn headers_of_both_libraries_ship() {
        let dist = std::env::temp_dir().join(format!("wm-headers-{}-dist", std::process::id()));
        headers(&dist).unwrap();
        let shipped = files(&dist.join("include")).unwrap();
        fs::remove_dir_all(&dist).unwrap();
        let names: Vec<_> = shipped.iter().filter_map(|path| path.strip_prefix(&dist).ok()).collect();
        for name in ["wmshim.h", "wholememory/wholememory.h", "wholememory/device_reference.cuh"] {
            assert!(names.contains(&Path::new("include").join(name).as_path()), "{name}: {names:?}");
        }
    }
}
