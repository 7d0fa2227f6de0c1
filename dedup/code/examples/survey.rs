//! How many kernels of some cubins are decided, why others are not, and the time it takes.
//! `survey [-v] CUBIN...`

use std::collections::BTreeMap;
use std::time::Instant;

use wm_code::image::Cubin;
use wm_code::verdict::{CodeVerdict as Verdict, Why};

fn main() {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let verbose = files.iter().any(|file| file == "-v");
    let (mut reasons, mut decided, mut all) = (BTreeMap::<String, usize>::new(), 0, 0);
    let (mut bytes, mut spent, mut plain) = (0, std::time::Duration::ZERO, 0);
    let mut slow = Vec::new();
    for file in files.iter().filter(|file| *file != "-v") {
        let Ok(image) = std::fs::read(file) else { continue };
        let Ok(cubin) = Cubin::parse(&image) else { continue };
        for kernel in cubin.kernels() {
            all += 1;
            let Ok(kernel) = kernel else {
                *reasons.entry("image".into()).or_default() += 1;
                continue;
            };
            bytes += kernel.text.len();
            let start = Instant::now();
            let verdict = wm_code::flow::judge(&kernel);
            let took = start.elapsed();
            spent += took;
            slow.push((took, kernel.text.len() / 16, kernel.name.to_owned()));
            if verbose {
                println!("{file} {} {verdict:?}", kernel.name);
            }
            match verdict {
                Verdict::Decided(effects) => {
                    decided += 1;
                    plain += usize::from(!effects.stores.iter().any(|source| source.memory));
                }
                Verdict::Undecided(why) => {
                    let reason = match why {
                        Why::Opcode { code, .. } => format!("opcode {code:03x}"),
                        Why::Form { code, .. } => format!("form {code:03x}"),
                        why => format!("{why:?}").split(' ').next().unwrap_or_default().to_owned(),
                    };
                    *reasons.entry(reason).or_default() += 1;
                }
            }
        }
    }
    slow.sort();
    println!("{decided} of {all} decided, {plain} without memory; {bytes} bytes in {spent:?}");
    for (took, size, name) in slow.iter().rev().take(4) {
        println!("  {took:?} {size} {name}");
    }
    for (reason, count) in reasons {
        println!("{count:6} {reason}");
    }
}
