//! Hazard (API conformance): the library chooses a PyTorch allocator against the user's will, or
//! one with which a program cannot run.
//!
//! PyTorch reads its environment when it is imported, so the choice is made when Python starts, by
//! writing one variable. A value that the user set stays. The choice of `auto` depends on the
//! permissions of the kernel here: its table is tested beside the code (`share.rs` of wm-driver),
//! and here only that it is the same wherever it should be.

use std::path::Path;

use hazards::{Host, Scratch, c, driver};

const ASYNC: &str = "backend:cudaMallocAsync";
const EXPANDABLE: &str = "expandable_segments:True";

/// Prints the variables as a program sees them.
const SHOW: &str = "import os; \
    print(' '.join(os.environ[n] for n in ('PYTORCH_CUDA_ALLOC_CONF', 'PYTORCH_ALLOC_CONF') if n in os.environ) or 'untouched')";

/// The output of `program` with these arguments and variables.
fn shown(scratch: &Scratch, program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    // No driver is needed: nothing here makes a CUDA call.
    let host = Host::shimmed(program, scratch, Path::new("/nowhere")).args(arguments);
    let outcome = variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run();
    assert_eq!(outcome.stderr, "");
    outcome.expect_success().to_owned()
}

/// The output of Python with these variables.
fn python(variables: &[(&str, &str)]) -> String {
    shown(&Scratch::new(), "python3", &["-c", SHOW], variables)
}

/// The output of a script with this text.
fn script(text: &str) -> String {
    let scratch = Scratch::new();
    let file = scratch.file("train.py", format!("{SHOW}\n{text}\n"));
    shown(&scratch, "python3", &[file.to_str().expect("readable")], &[])
}

/// The choice of `auto` here.
fn automatic() -> String {
    let chosen = python(&[]);
    assert!([EXPANDABLE, "untouched"].contains(&&*chosen), "{chosen}");
    chosen
}

#[test]
fn a_script_gets_what_code_does() {
    assert_eq!(script("model = 1"), automatic());
    assert_eq!(python(&[("WMSHIM_TORCH_ALLOCATOR", "auto")]), automatic());
}

#[test]
fn what_the_user_set_stays() {
    assert_eq!(python(&[("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")]), "max_split_size_mb:64");
    assert_eq!(
        python(&[("PYTORCH_ALLOC_CONF", "pinned_use_background_threads:True")]),
        "pinned_use_background_threads:True"
    );
}

#[test]
fn the_users_word_about_the_allocator_is_followed() {
    for (word, value) in [("async", ASYNC), ("native", "backend:native"), ("expandable", EXPANDABLE)] {
        assert_eq!(python(&[("WMSHIM_TORCH_ALLOCATOR", word)]), value, "{word}");
    }
}

/// Hazard (silent degradation): a program that moves its memory packs it worse than one that does
/// not.
#[test]
fn where_memory_may_move_the_choice_is_the_same() {
    let chosen = |value| python(&[("WMSHIM_MIGRATE", value)]);
    assert_eq!(["on", "off", "perhaps"].map(chosen), [(); 3].map(|()| automatic()));
    let both = [("WMSHIM_MIGRATE", "on"), ("WMSHIM_TORCH_ALLOCATOR", "async")];
    assert_eq!(python(&both), ASYNC);
}

#[test]
fn without_the_memory_manager_nothing_is_chosen() {
    assert_eq!(python(&[("WMSHIM_STITCH", "off")]), "untouched");
    assert_eq!(python(&[("WMSHIM_DISABLE", "1")]), "untouched");
}

#[test]
fn a_program_that_is_not_python_is_not_touched() {
    let show = "echo ${PYTORCH_CUDA_ALLOC_CONF-untouched}";
    assert_eq!(shown(&Scratch::new(), "bash", &["-c", show], &[]), "untouched");
}

#[test]
fn a_server_that_passes_addresses_on_is_not_touched() {
    let scratch = Scratch::new();
    let package = scratch.folder("vllm");
    std::fs::write(package.join("__main__.py"), SHOW).expect("a module");
    let path = scratch.path().to_str().expect("readable").to_owned();
    assert_eq!(shown(&scratch, "python3", &["-m", "vllm"], &[("PYTHONPATH", &path)]), "untouched");
    assert_eq!(script("if 0:\n    from vllm import LLM"), "untouched");
}

#[test]
fn a_script_started_by_its_first_line_is_seen() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    for (text, expected) in [("", automatic()), ("if 0:\n    import vllm", "untouched".into())] {
        let file = scratch.file("train.py", format!("#!/usr/bin/env python3\n{SHOW}\n{text}\n"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("a mode");
        assert_eq!(shown(&scratch, file.to_str().expect("readable"), &[], &[]), expected);
    }
}

/// The output of a program in a folder of its own, with these files in it. `{show}` in them prints
/// the variables.
fn started(files: &[(&str, &str)], words: &[&str], path: Option<&str>) -> String {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    for (name, text) in files {
        let file = scratch.path().join(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(&file, text.replace("{show}", SHOW)).expect("a file");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    let path = scratch.path().join(path.unwrap_or("nowhere"));
    let path = path.to_str().expect("readable");
    // A shell enters the folder; the program that it starts is a process of its own.
    let start = ["cd \"$0\" && exec \"$@\"", scratch.path().to_str().expect("readable")];
    let words = [&["-c"][..], &start, words].concat();
    shown(&scratch, "bash", &words, &[("PYTHONPATH", path)])
}

const VLLM: (&str, &str) = ("mod2.py", "{show}\nif 0:\n    import vllm");

/// Hazard: vllm's and sglang's own guards read one variable, and PyTorch two: a program that runs
/// them ends where it shares a tensor.
#[test]
fn however_an_engine_comes_into_a_program_pytorch_keeps_its_defaults() {
    for text in [
        "import vllm",
        "from trl import GRPOTrainer",
        "import verl",
        "from openrlhf import x",
        "import os, sglang",
    ] {
        let text = format!("{{show}}\nif 0:\n    {text}");
        assert_eq!(started(&[("train.py", &text)], &["python3", "train.py"], None), "untouched", "{text}");
    }
    let server = ("myserver.py", "import vllm");
    let main = ("main.py", "{show}\nif 0:\n    import myserver");
    let exe = ("exe2", "#!/usr/bin/env python3\n{show}\nif 0:\n    import vllm");
    let package = [
        ("app/__init__.py", ""),
        ("app/__main__.py", "{show}\nif 0:\n    from .a import b"),
        ("app/a.py", "from .c.d import e"),
        ("app/c/d.py", "import lmdeploy"),
    ];
    for (files, words) in [
        (&[VLLM][..], &["python3", "mod2.py"][..]),
        (&[VLLM], &["python3", "-u", "-Xdev", "-W", "ignore", "mod2.py"]),
        (&[VLLM], &["python3", "-m", "mod2"]),
        (&[VLLM], &["python3", "-um", "mod2"]),
        (&[VLLM], &["python3", "-c", "import mod2"]),
        (&[exe], &["./exe2"]),
        (&[exe], &["python3", "exe2"]),
        (&[server, main], &["python3", "main.py"]),
        (&package, &["python3", "-m", "app"]),
        (&[("app/__main__.py", VLLM.1)], &["python3", "app"]),
    ] {
        assert_eq!(started(files, words, None), "untouched", "{words:?}");
    }
    // A library in another folder.
    let library = ("libraries/myserver/__init__.py", "from vllm import LLM");
    assert_eq!(started(&[library, main], &["python3", "main.py"], Some("libraries")), "untouched");
    let others = ("myserver.py", "import torch");
    assert_eq!(started(&[others, main], &["python3", "main.py"], None), automatic());
    assert_eq!(started(&[("train", "{show}\nvllm = 1")], &["python3", "train"], None), automatic());
}

/// Hazard: the same if an installed library, which is not read, imports the engine.
#[test]
fn where_an_engine_is_installed_pytorch_keeps_its_defaults() {
    let told = shown(
        &Scratch::new(),
        "python3",
        &["-c", "import sys; print(sys.executable, *sys.version_info[:2])"],
        &[],
    );
    let [python, major, minor] = told.split(' ').collect::<Vec<_>>()[..] else { panic!("{told}") };
    for (there, expected) in [
        ("vllm/__init__.py", "untouched"),
        ("sglang-0.5.dist-info/METADATA", "untouched"),
        ("other/__init__.py", &automatic()),
    ] {
        let scratch = Scratch::new();
        let packages = scratch.path().join(format!("venv/lib/python{major}.{minor}/site-packages"));
        let file = packages.join(there);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(&file, "").expect("a file");
        std::fs::write(scratch.path().join("venv/pyvenv.cfg"), "include-system-site-packages = false\n")
            .expect("a file");
        let binary = scratch.folder("venv/bin").join("python3");
        std::os::unix::fs::symlink(python, &binary).expect("a link");
        let file = scratch.file("train.py", format!("{SHOW}\n"));
        let binary = binary.to_str().expect("readable");
        assert_eq!(shown(&scratch, binary, &[file.to_str().expect("readable")], &[]), expected, "{there}");
    }
}

/// The output of a child of Python that runs this code.
fn child(code: &str, variables: &[(&str, &str)]) -> String {
    let start = "import os, subprocess, sys; subprocess.run([sys.executable, '-c', os.environ['CODE']])";
    let variables: Vec<_> = variables.iter().copied().chain([("CODE", code)]).collect();
    shown(&Scratch::new(), "python3", &["-c", start], &variables)
}

/// Hazard: the choice for one program counts as the user's setting in its child.
#[test]
fn a_choice_is_no_word_of_the_users_for_a_child() {
    let needs = format!("0 and __import__('x')\nif 0:\n    import vllm\n{SHOW}");
    assert_eq!(child(SHOW, &[]), automatic());
    assert_eq!(child(&needs, &[]), "untouched");
    assert_eq!(child(&needs, &[("PYTORCH_CUDA_ALLOC_CONF", ASYNC)]), ASYNC, "the user's word");
    let again = format!(
        "import subprocess, sys; os.environ['WMSHIM_TORCH_ALLOCATOR'] = 'auto'; \
        subprocess.run([sys.executable, '-c', {SHOW:?}])"
    );
    assert_eq!(child(&format!("import os; {again}"), &[("WMSHIM_TORCH_ALLOCATOR", "async")]), automatic());
}

#[test]
fn a_worker_of_pythons_own_follows_the_program_that_started_it() {
    let worker = format!("from multiprocessing.spawn import spawn_main; {SHOW}");
    assert_eq!(child(&worker, &[("WMSHIM_TORCH_ALLOCATOR", "async")]), ASYNC);
    assert_eq!(child(&worker, &[("WMSHIM_TORCH_ALLOCATOR", "auto"), ("WMSHIM_STITCH", "off")]), "untouched");
}

/// Stands in for PyTorch: it loads a library with the name of PyTorch's CUDA core, then uses the
/// driver as the arguments say.
const STAND_IN: &str = "import ctypes, os, subprocess, sys\n\
    core = ctypes.CDLL(os.environ['CORE'])\n\
    cuda, word = ctypes.CDLL('libcuda.so.1'), sys.argv[1]\n\
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()\n\
    assert cuda.cuInit(0) == 0\n\
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n\
    assert cuda.cuCtxSetCurrent(context) == 0\n\
    for _ in range(2 if word != 'look' else 0):\n\
    \x20   assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)) == 0\n\
    if word == 'parent': subprocess.run([sys.executable, __file__, 'child'], check=True)\n";

/// The shim's lines about the allocator while the stand-in runs.
fn announced(word: &str, variables: &[(&str, &str)]) -> usize {
    let scratch = Scratch::new();
    let core = c::library("plugin", scratch.path().join("libc10_cuda.so"), &[]);
    let script = scratch.file("train.py", STAND_IN);
    let host = Host::shimmed("python3", &scratch, &driver::simulated(&scratch)).args([&script]).args([word]);
    let host = variables.iter().fold(host.env("CORE", core), |host, (name, value)| host.env(name, value));
    let outcome = host.run();
    outcome.expect_success();
    outcome.log().iter().filter(|line| line.contains("PyTorch's allocator")).count()
}

#[test]
fn the_choice_is_said_once_where_memory_is_served_and_by_no_worker() {
    let [asynchronous, aloud] = [("WMSHIM_TORCH_ALLOCATOR", "async"), ("WMSHIM_LOG", "info")];
    assert_eq!(announced("train", &[asynchronous]), 1, "it lacks something");
    assert_eq!(announced("parent", &[asynchronous]), 1, "the child inherits the choice");
    assert_eq!(announced("look", &[asynchronous]), 0, "no memory was asked for");
    assert_eq!(announced("train", &[aloud]), 1);
    assert_eq!(announced("train", &[]), 0, "nothing is lacking");
    assert_eq!(announced("train", &[("PYTORCH_CUDA_ALLOC_CONF", "backend:native")]), 0, "the user's choice");
}
