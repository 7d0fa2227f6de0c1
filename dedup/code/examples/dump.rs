fn main() {
    for path in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&path).unwrap();
        let t = std::time::Instant::now();
        let all = wm_code::ptx::judge(&text);
        let t = t.elapsed();
        let mut und = 0;
        for (name, v) in &all {
            match v {
                wm_code::verdict::Verdict::Decided(e) => {
                    let f = |s: &wm_code::verdict::Source| {
                        format!(
                            "{:?}{}{}",
                            s.words.iter().collect::<Vec<_>>(),
                            if s.memory { "m" } else { "" },
                            if s.globals { "g" } else { "" }
                        )
                    };
                    if std::env::var("V").is_ok() {
                        println!(
                            "{name} stores {} reads {} escapes {:?}",
                            e.stores.iter().map(f).collect::<Vec<_>>().join(" "),
                            e.reads.iter().map(f).collect::<Vec<_>>().join(" "),
                            e.escapes.iter().collect::<Vec<_>>()
                        );
                    }
                }
                wm_code::verdict::Verdict::Undecided(w) => {
                    und += 1;
                    println!("{} {w:?}", &name[..name.len().min(60)]);
                    if let wm_code::verdict::Why::Text { line } = w {
                        println!("      {}", text.lines().nth(line - 1).unwrap());
                    }
                }
            }
        }
        println!("{path}: {} kernels, {und} undecided, {t:?}", all.len());
    }
}
