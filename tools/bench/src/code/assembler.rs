//! Texts of kernels, the machine code that NVIDIA's assembler makes of them, and the verdicts on
//! both.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, anyhow, ensure};
use drawn_kernels::{DrawnKernel, HEADER};
use wm_code::image::Cubin;
use wm_code::verdict::CodeVerdict;

/// The assembler, for one architecture.
pub(super) struct Assembler {
    program: PathBuf,
    architecture: i32,
    folder: PathBuf,
}

/// Kernels that were compiled together.
pub(super) struct Assembled {
    pub(super) cubin: Vec<u8>,
    of_text: HashMap<String, CodeVerdict>,
    of_code: HashMap<String, CodeVerdict>,
}

impl Assembler {
    pub(super) fn new(program: &Path, architecture: i32) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("bench-code-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self { program: program.to_owned(), architecture, folder })
    }

    pub(super) fn assemble(&self, kernels: &[DrawnKernel]) -> Result<Assembled> {
        let text =
            HEADER.to_owned() + &kernels.iter().map(|kernel| &*kernel.text).collect::<Vec<_>>().join("\n");
        let (from, to) = (self.folder.join("drawn.ptx"), self.folder.join("drawn.cubin"));
        std::fs::write(&from, &text)?;
        let mut command = Command::new(&self.program);
        command.arg(format!("-arch=sm_{}", self.architecture)).arg("-o").arg(&to).arg(&from);
        let output = command.output().with_context(|| {
            format!("{} is not there: --ptxas takes the path of NVIDIA's assembler", self.program.display())
        })?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let cubin = std::fs::read(&to)?;
        let parsed = Cubin::parse(&cubin).map_err(|why| anyhow!("the machine code: {why}"))?;
        let judged =
            |code: wm_code::kernel::KernelCode<'_>| (code.name.to_owned(), wm_code::flow::judge(&code));
        let of_code = parsed.kernels().filter_map(Result::ok).map(judged).collect();
        let of_text = wm_code::ptx::judge(&text).context("the text is no PTX")?;
        Ok(Assembled { of_text: of_text.into_iter().collect(), of_code, cubin })
    }
}

impl Drop for Assembler {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.folder);
    }
}

impl Assembled {
    /// The verdicts on a kernel, of its machine code and of its text.
    pub(super) fn verdicts(&self, name: &str) -> Result<[(&'static str, CodeVerdict); 2]> {
        let of = |all: &HashMap<String, CodeVerdict>| {
            all.get(name).cloned().context(format!("no verdict on {name}"))
        };
        Ok([("machine code", of(&self.of_code)?), ("text", of(&self.of_text)?)])
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (vacuous test): kernels are drawn of which nothing can be said.
    use drawn_kernels::{DrawnFor, Origin, draw};
    use wm_code::verdict::CodeVerdict;

    use super::*;

    #[test]
    fn most_texts_are_decided_and_name_what_is_stored_through() {
        let kernels: Vec<DrawnKernel> = (0..100).map(|seed| draw(seed, DrawnFor::Running)).collect();
        let text =
            HEADER.to_owned() + &kernels.iter().map(|kernel| &*kernel.text).collect::<Vec<_>>().join("\n");
        let verdicts: HashMap<_, _> = wm_code::ptx::judge(&text).expect("PTX").into_iter().collect();
        let mut decided = 0;
        for kernel in &kernels {
            let CodeVerdict::Decided(effects) = &verdicts[&kernel.name] else { continue };
            decided += 1;
            for origin in &kernel.stored {
                let Origin::Word(word) = origin else { continue };
                let names = |source: &wm_code::verdict::AddressSource| {
                    source.words.contains(*word) || source.offsets.contains(*word)
                };
                assert!(effects.stores.iter().any(names), "{}: {word}", kernel.name);
            }
        }
        assert!(decided > 50, "{decided} of 100");
    }
}
