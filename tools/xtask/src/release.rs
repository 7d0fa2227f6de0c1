//! `cargo xtask release`: all files of a release, into a folder. Nothing is uploaded.
//!
//! | file | |
//! |---|---|
//! | `wmshim-VERSION-...whl` | the wheel |
//! | `wmshim-VERSION-linux-x86_64.tar.gz` | `dist/` with `install.sh`, for machines without Python |
//! | `wmshim-VERSION-symbols.tar.gz` | symbols, for a debugger |
//! | `wmshim-VERSION.cdx.json` | the crates in the binaries, as CycloneDX |
//! | `NOTES.md` | the version's section of CHANGELOG.md |
//! | `SHA256SUMS` | of all of these |
//!
//! The same `dist/` and commit give the same bytes: names are sorted, owners left out, times are
//! the commit's. Whether `dist/` itself is the same depends on its compilers and on the folder that
//! it was built in.

mod sbom;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{dist, step};

/// Parts of `dist/` that are not in the archive: the wheel, the symbols, developers' instruments.
const APART: [&str; 3] = ["python", "symbols", "dev"];
const INSTALLER: &str = "tools/xtask/release/install.sh";

/// Arguments of `cargo xtask release`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArguments {
    /// A filled dist folder; without it `make dist` comes first
    #[arg(long)]
    dist: Option<PathBuf>,
    /// The folder for the files of the release; it is emptied
    #[arg(long, default_value = "release")]
    out: PathBuf,
    /// The address of the repository, for the wheel's description and its links
    #[arg(long)]
    repository: Option<String>,
}

/// Makes the files.
pub(crate) fn run(arguments: &ReleaseArguments) -> Result<()> {
    let root = crate::root();
    let filled = match &arguments.dist {
        Some(folder) => folder.canonicalize().with_context(|| folder.display().to_string())?,
        None => {
            dist::run()?;
            root.join("dist")
        }
    };
    let out = root.join(&arguments.out);
    if fs::read_dir(&out).is_ok_and(|mut entries| entries.next().is_some())
        && !out.join("SHA256SUMS").is_file()
    {
        bail!(
            "{} has files and no SHA256SUMS, so it is no earlier release, and is not emptied",
            out.display()
        );
    }
    empty(&out)?;
    let release = Release { dist: filled, out, version: version(&root)?, time: time()? };
    release.wheel(arguments.repository.as_deref())?;
    step::perform("archives", || release.archives())?;
    step::perform("SBOM", || release.bill())?;
    step::perform("notes", || release.notes(&fs::read_to_string(root.join("CHANGELOG.md"))?))?;
    step::perform("checksums", || release.checksums())?;
    if arguments.repository.is_none() {
        println!("the wheel names no repository: give its address by --repository");
    }
    println!("in {}; nothing was uploaded", release.out.display());
    Ok(())
}

struct Release {
    dist: PathBuf,
    out: PathBuf,
    version: String,
    /// Seconds since 1970 that all files in archives have.
    time: u64,
}

impl Release {
    fn name(&self) -> String {
        format!("wmshim-{}", self.version)
    }

    /// Packed once more, because that of `dist/` names no repository.
    fn wheel(&self, repository: Option<&str>) -> Result<()> {
        let mut python = step::command("python3", &["tools/python/build_wheel.py"]);
        python.arg(&self.dist).arg("--out").arg(&self.out);
        if let Some(address) = repository {
            python.args(["--repository", address]);
        }
        step::run("wheel", python)
    }

    fn archives(&self) -> Result<()> {
        let stage = self.out.join(".stage");
        let (files, symbols) = (stage.join(self.name()), stage.join(format!("{}-symbols", self.name())));
        empty(&files)?;
        for entry in fs::read_dir(&self.dist)? {
            let name = entry?.file_name();
            if !APART.iter().any(|apart| name == *apart) {
                copy(&self.dist.join(&name), &files.join(&name))?;
            }
        }
        copy(&crate::root().join(INSTALLER), &files.join("install.sh"))?;
        self.pack(&stage, &self.name(), "-linux-x86_64")?;
        if self.dist.join("symbols").is_dir() {
            copy(&self.dist.join("symbols"), &symbols)?;
            self.pack(&stage, &format!("{}-symbols", self.name()), "")?;
        }
        fs::remove_dir_all(&stage).context("the stage stays")
    }

    fn pack(&self, stage: &Path, folder: &str, kind: &str) -> Result<()> {
        let owner = ["--owner=0", "--group=0", "--numeric-owner", "--mode=u+rw,go+r,go-w,a+X"];
        let mut tar = step::command("tar", &["--sort=name", "--format=ustar"]);
        tar.args(owner).arg(format!("--mtime=@{}", self.time)).args(["--use-compress-program", "gzip -n"]);
        tar.arg("-cf").arg(self.out.join(format!("{folder}{kind}.tar.gz"))).arg("-C").arg(stage).arg(folder);
        step::output(tar).map(drop)
    }

    fn bill(&self) -> Result<()> {
        let path = self.out.join(format!("{}.cdx.json", self.name()));
        fs::write(path, format!("{:#}\n", sbom::bill(&self.version, &dist::PACKAGES)?)).context("the SBOM")
    }

    fn notes(&self, changes: &str) -> Result<()> {
        fs::write(self.out.join("NOTES.md"), notes(changes, &self.version)?).context("the notes")
    }

    fn checksums(&self) -> Result<()> {
        let entries = fs::read_dir(&self.out)?.map(|entry| Ok(entry?.file_name()));
        let mut names = entries.collect::<Result<Vec<_>>>()?;
        names.sort();
        let mut sums = step::command("sha256sum", &["--"]);
        sums.args(names).current_dir(&self.out);
        fs::write(self.out.join("SHA256SUMS"), step::output(sums)?).context("the checksums")
    }
}

/// The section of a version, with its heading.
fn notes(changes: &str, version: &str) -> Result<String> {
    let section = changes.split("\n## ").skip(1).find(|section| {
        section
            .strip_prefix(version)
            .is_some_and(|rest| !rest.starts_with(|c: char| c == '.' || c.is_alphanumeric()))
    });
    let section = section.with_context(|| format!("CHANGELOG.md has no section {version}"))?;
    let (title, text) = section.split_once('\n').context("a section has a text")?;
    let Some(text) = Some(text.trim()).filter(|text| !text.is_empty()) else {
        bail!("the section {version} of CHANGELOG.md is empty");
    };
    let title = title.replace(", not released yet", "");
    Ok(format!("# wmshim {title}\n\n{text}\n"))
}

/// The workspace's version.
fn version(root: &Path) -> Result<String> {
    let text = fs::read_to_string(root.join("Cargo.toml"))?;
    let section = text.split_once("[workspace.package]\n").context("[workspace.package]")?.1;
    let line = section.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    Ok(line.context("the workspace's version")?.to_owned())
}

/// `SOURCE_DATE_EPOCH`, else the commit's time.
fn time() -> Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(set) => set,
        Err(_) => step::output(step::command("git", &["log", "-1", "--format=%ct"]))?,
    };
    text.trim().parse().with_context(|| format!("no time in seconds: {text}"))
}

fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())
}

/// A file, a link, or a folder with all in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.is_symlink() {
        return symlink(fs::read_link(from)?, to).with_context(|| to.display().to_string());
    }
    if !from.is_dir() {
        return fs::copy(from, to).map(drop).with_context(|| from.display().to_string());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        copy(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
