//! Hazard (source drift): a page is in no table of contents, so no reader finds it; a word that
//! users search for is on no page.

use std::collections::BTreeSet;
use std::path::Path;

const SUMMARY: &str = "docs/SUMMARY.md";

/// Pages of the repository that are no chapters: the table itself, and forms of the forge.
fn is_chapter(path: &str) -> bool {
    // `cargo xtask book` puts the decisions below their list.
    path.ends_with(".md")
        && path != SUMMARY
        && !path.starts_with(".github/")
        && (!path.starts_with("docs/adr/") || path == "docs/adr/README.md")
}

/// The chapters of the table of contents, as paths from the root.
fn listed() -> Vec<String> {
    let text = architecture::text(Path::new(SUMMARY)).expect(SUMMARY);
    let targets =
        text.lines().filter_map(|line| Some(line.strip_suffix(')')?.split_once("](")?.1.to_owned()));
    targets
        .map(|target| target.strip_prefix("../").map_or_else(|| format!("docs/{target}"), str::to_owned))
        .collect()
}

#[test]
fn each_page_is_one_chapter_of_the_book() {
    let files = architecture::files();
    let pages: BTreeSet<String> =
        files.iter().map(|path| path.display().to_string()).filter(|path| is_chapter(path)).collect();
    let listed = listed();
    let chapters: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(chapters.len(), listed.len(), "a page is a chapter twice: {listed:?}");
    let lacks: Vec<_> = pages.difference(&chapters).collect();
    let absent: Vec<_> = chapters.difference(&pages).collect();
    assert!(
        pages.len() > 25 && lacks.is_empty() && absent.is_empty(),
        "{SUMMARY} lacks {lacks:?}, and has {absent:?}"
    );
}

/// The words that people search for.
const WORDS: [&str; 36] = [
    "oversubscription",
    "overcommit",
    "defrag",
    "swap",
    "offload",
    "unified memory",
    "fragmentation",
    "OOM",
    "CUDA out of memory",
    "Jupyter",
    "notebook",
    "Colab",
    "torchrun",
    "accelerate",
    "DeepSpeed",
    "FSDP",
    "Docker",
    "podman",
    "Apptainer",
    "Kubernetes",
    "pod's",
    "Helm",
    "Slurm",
    "srun",
    "mpirun",
    "Prometheus",
    "Grafana",
    "CDI",
    "vLLM",
    "Ollama",
    "llama.cpp",
    "ComfyUI",
    "WSL",
    "systemd",
    "checkpoint",
    "pip install",
];

#[test]
fn the_words_that_people_search_for_are_in_the_book() {
    let chapters = listed();
    let chapters =
        chapters.iter().filter(|path| !path.starts_with("docs/adr") && !path.ends_with("CHANGELOG.md"));
    let text: String = chapters.filter_map(|path| architecture::text(Path::new(path))).collect();
    let absent: Vec<_> = WORDS.iter().filter(|word| !text.contains(*word)).collect();
    assert!(absent.is_empty(), "on no page: {absent:?}");
}
