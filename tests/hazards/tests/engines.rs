//! Hazard (API conformance): an engine that passes addresses of tensors to other processes ends in
//! a program that runs bare, because the library gave PyTorch expandable segments.
//!
//! PyTorch and the engine are stand-ins with the parts that meet here: PyTorch's variables and
//! pieces, vLLM's guard and its way to a handle (`python/`).

use std::fs;
use std::os::unix::fs::PermissionsExt;

use hazards::{Host, Outcome, Scratch, c, driver, places};

/// A file's name and its text.
type File = (&'static str, &'static str);

/// Runs `words` in a folder with these files, where the stand-ins are in `engines`.
fn start(files: &[(&str, &str)], words: &[&str], variables: &[(&str, &str)]) -> Outcome {
    let scratch = Scratch::new();
    let write = |name: &str, text: &str| {
        let file = scratch.path().join(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(&file, text).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("a mode");
    };
    for name in ["torch.py", "vllm.py"] {
        let text = fs::read_to_string(places::source("python").join(name)).expect("a stand-in");
        write(&format!("engines/{name}"), &text);
    }
    for name in ["trl", "verl", "openrlhf"] {
        write(&format!("engines/{name}/__init__.py"), "import vllm\nGRPOTrainer = x = 1\n");
    }
    // A folder of packages that is found while Python runs, as those of an editor or a launcher.
    let folder = scratch.path().to_str().expect("a readable path").to_owned();
    write("hook/sitecustomize.py", &format!("import sys; sys.path.append({folder:?} + '/engines')"));
    write("engines/hidden.py", "import importlib\nimportlib.import_module('vl' + 'lm')\n");
    files.iter().for_each(|(name, text)| write(name, text));
    let core = c::library("piece", scratch.path().join("libc10_cuda.so"), &[shim()]);
    let enter = ["-c", "cd \"$0\" && exec \"$@\"", &folder];
    let host = Host::shimmed("bash", &scratch, &driver::simulated(&scratch)).args(enter).args(words);
    let host = host.env("CORE", core).env("SIMCUDA_MEMORY", "512MiB").env("PYTHONDONTWRITEBYTECODE", "1");
    let host = host.env("PYTHONPATH", format!("{folder}/hook"));
    variables
        .iter()
        .fold(host, |host, (name, value)| host.env(name, value.replace("{folder}", &folder)))
        .run()
}

fn shim() -> &'static str {
    Box::leak(places::shim().into_boxed_path()).to_str().expect("a readable path")
}

fn served(outcome: &Outcome) -> String {
    let told = outcome.expect_success();
    told.strip_prefix("served from ").unwrap_or_else(|| panic!("{told}{}", outcome.stderr)).to_owned()
}

/// The memory of PyTorch that the library chooses here.
fn automatic() -> String {
    served(&start(&[("a.py", "import hidden")], &["python3", "a.py"], &[]))
}

/// The nine ways in which users start an engine.
const STARTS: [(&[File], &[&str]); 9] = [
    (&[("train.py", "import vllm")], &["python3", "train.py"]),
    (&[("train.py", "from trl import GRPOTrainer")], &["python3", "train.py"]),
    (&[("train.py", "import verl")], &["python3", "train.py"]),
    (&[("train.py", "from openrlhf import x")], &["python3", "train.py"]),
    (&[("main.py", "import myserver"), ("myserver.py", "import vllm")], &["python3", "main.py"]),
    (&[("mod2.py", "import vllm")], &["python3", "-m", "mod2"]),
    (&[("exe2", "#!/usr/bin/env python3\nimport vllm")], &["./exe2"]),
    (&[("mod2.py", "import vllm")], &["python3", "mod2.py"]),
    (&[("server/__init__.py", ""), ("server/__main__.py", "import vllm")], &["python3", "-m", "server"]),
];

#[test]
fn an_engine_that_is_seen_finds_pytorchs_defaults() {
    for (files, words) in STARTS {
        assert_eq!(served(&start(files, words, &[])), "blocks", "{words:?}");
    }
}

/// The same programs, in which nothing that is read before the start names the engine.
#[test]
fn an_engine_that_is_not_seen_can_pass_addresses_on_all_the_same() {
    let automatic = automatic();
    for (files, words) in STARTS {
        let hide = |text: &str| match text.rsplit_once('\n') {
            _ if text == "import myserver" || text.is_empty() => text.to_owned(),
            Some((first, _)) => format!("{first}\nimport hidden"),
            None => "import hidden".to_owned(),
        };
        let texts: Vec<_> = files.iter().map(|(name, text)| (*name, hide(text))).collect();
        let files: Vec<_> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
        assert_eq!(served(&start(&files, words, &[])), automatic, "{words:?}");
    }
}

/// An engine in a folder of `PYTHONPATH`, or beside the program, is as good as an installed one.
#[test]
fn where_an_engine_lies_on_the_path_pytorch_keeps_its_defaults() {
    let hidden = ("train.py", "import hidden");
    let on_path = start(&[hidden], &["python3", "train.py"], &[("PYTHONPATH", "{folder}/engines")]);
    assert_eq!(served(&on_path), "blocks");
    let beside = ("engines/train.py", "import hidden");
    assert_eq!(served(&start(&[beside], &["python3", "engines/train.py"], &[])), "blocks");
}

/// The user's own choice has the bare driver's answers.
#[test]
fn segments_that_the_user_chose_have_no_handles() {
    let chosen = [("PYTORCH_ALLOC_CONF", "expandable_segments:True")];
    let outcome = start(&[("train.py", "import vllm")], &["python3", "train.py"], &chosen);
    assert!(
        outcome.stderr.contains("RuntimeError: cuIpcGetMemHandle: 1"),
        "{}{}",
        outcome.stdout,
        outcome.stderr
    );
}

/// Chosen by the library's setting, wherever this test runs. The guard is not asked.
#[test]
fn pieces_are_passed_on_also_from_the_host() {
    let code = "import os, vllm; os.environ.pop('PYTORCH_CUDA_ALLOC_CONF'); vllm.serve()";
    for memory in ["512MiB", "64MiB"] {
        let variables = [
            ("WMSHIM_TORCH_ALLOCATOR", "expandable"),
            ("SERVE", "off"),
            ("SIMCUDA_MEMORY", memory),
            ("WMSHIM_HEADROOM", "0"),
            ("WMSHIM_LOG", "error"),
        ];
        let outcome = start(&[], &["python3", "-c", code], &variables);
        assert_eq!(served(&outcome), "segments", "{memory}");
        assert_eq!(outcome.stderr, "");
    }
}
