//! Hazard (process lifecycle): the library leaves a trace in a program that never calls CUDA.
//!
//! A preload reaches every child of a job: shells, compilers, workers. Until a process makes a CUDA
//! call it must be as without the shim: no thread, no descriptor, no driver, no line, no changed
//! signal, and hardly a longer start.

use hazards::{Host, Scratch, c, driver};

#[test]
fn bin_true_is_as_before() {
    let scratch = Scratch::new();
    let outcome = Host::shimmed("/bin/true", &scratch, &driver::small(&scratch)).run();
    assert_eq!((outcome.expect_success(), outcome.stderr.as_str()), ("", ""));
}

#[test]
fn a_shell_and_its_children_are_as_before() {
    let scratch = Scratch::new();
    let script = "echo one; (echo two); echo $(echo three) | cat; false; echo $?";
    let host = Host::shimmed("bash", &scratch, &driver::small(&scratch)).args(["-c", script]);
    let outcome = host.run();
    assert_eq!((outcome.expect_success(), outcome.stderr.as_str()), ("one\ntwo\nthree\n1", ""));
}

/// The output of `census` with and without the shim.
fn census(arguments: &[&str]) -> [String; 2] {
    let scratch = Scratch::new();
    let folder = driver::small(&scratch);
    let program = c::program(&scratch, "census", &[]);
    let bare = Host::bare(&program).args(arguments).env("LD_LIBRARY_PATH", &folder);
    let shimmed = Host::shimmed(&program, &scratch, &folder).args(arguments);
    [bare, shimmed].map(|host| {
        let outcome = host.env("HAZARD_DRIVER", driver::FULL_NAME).run();
        assert_eq!(outcome.stderr, "");
        outcome.expect_success().to_owned()
    })
}

#[test]
fn no_thread_no_descriptor_and_no_driver_before_a_call() {
    let [bare, shimmed] = census(&[]);
    assert!(bare.starts_with("threads 1\n") && bare.ends_with("driver 0"), "{bare}");
    assert_eq!(shimmed, bare);
}

#[test]
fn opening_the_library_is_no_call_yet() {
    let [bare, shimmed] = census(&["opened"]);
    assert!(bare.starts_with("threads 1\n") && bare.ends_with("driver 1"), "{bare}");
    assert_eq!(shimmed, bare.replace("driver 1", "driver 0"));
}

/// The processor time of so many children of `spawner` in microseconds, and how often they have
/// waited. Both are the same however loaded the machine is, which the time on the clock is not.
fn cost_of_children(spawner: Host, children: u32) -> [u32; 2] {
    let outcome = spawner.args([&children.to_string(), "/bin/true"]).run();
    let said = outcome.expect_success().split_whitespace().map(|number| number.parse().expect("a number"));
    let said: Vec<u32> = said.collect();
    assert_eq!(outcome.stderr, "");
    said.try_into().expect("two numbers")
}

/// The bound is for an unoptimised library; the release build adds a few tenths of a millisecond.
#[test]
fn thousands_of_short_children_start_nearly_as_fast() {
    const CHILDREN: u32 = 2_500;
    const SAMPLE: u32 = 1_000;
    let scratch = Scratch::new();
    let driver = driver::small(&scratch);
    let spawner = c::program(&scratch, "spawner", &[]);
    let [bare, bare_waits] = cost_of_children(Host::bare(&spawner), SAMPLE);
    let [shimmed, waits] = cost_of_children(Host::shimmed(&spawner, &scratch, &driver), CHILDREN);
    let added = (shimmed / CHILDREN).saturating_sub(bare / SAMPLE);
    assert!(added < 5_000, "each child takes {added} us more than {}", bare / SAMPLE);
    // A start that sleeps or waits for a lock takes no processor time.
    let allowed = bare_waits * CHILDREN / SAMPLE + CHILDREN / 2;
    assert!(waits < allowed, "{CHILDREN} children wait {waits} times, {SAMPLE} bare ones {bare_waits} times");
}

#[test]
fn errno_is_as_the_driver_leaves_it() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "errno_kept");
    let bare = Host::bare(&program).env("LD_LIBRARY_PATH", &driver).run();
    let shimmed = Host::shimmed(&program, &scratch, &driver).run();
    let changes = |outcome: &hazards::Outcome| -> Vec<String> {
        outcome.expect_success().lines().map(str::to_owned).collect()
    };
    let (bare, shimmed) = (changes(&bare), changes(&shimmed));
    let ours: Vec<_> = shimmed.iter().filter(|change| !bare.contains(change)).collect();
    assert!(ours.is_empty(), "errno changed by the shim: {ours:?}");
}

/// The output of `dispositions` under the shim, and without.
fn dispositions(arguments: &[&str], signal: Option<&str>) -> (String, String) {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "dispositions");
    let bare = Host::bare(&program).env("LD_LIBRARY_PATH", &driver).args(arguments).run();
    let shimmed = Host::shimmed(&program, &scratch, &driver).args(arguments);
    let shimmed = signal.into_iter().fold(shimmed, |host, name| host.env("WMSHIM_STATS_SIGNAL", name)).run();
    (shimmed.expect_success().to_owned(), bare.expect_success().to_owned())
}

#[test]
fn no_signal_is_taken() {
    let (shimmed, bare) = dispositions(&[], None);
    assert_eq!(shimmed, bare);
}

#[test]
fn the_signal_that_was_asked_for_is_taken_at_cuinit() {
    let (shimmed, bare) = dispositions(&[], Some("USR2"));
    let theirs: Vec<_> = bare.lines().collect();
    let ours: Vec<_> = shimmed.lines().filter(|line| !theirs.contains(line)).collect();
    assert_eq!(ours, ["cuInit: User defined signal 2 taken"]);
}

#[test]
fn a_signal_that_the_program_handles_stays_with_it() {
    let (shimmed, bare) = dispositions(&["handle"], Some("USR2"));
    assert_eq!(shimmed, bare);
    assert!(shimmed.contains("cuInit: User defined signal 2 mine"));
}

#[test]
fn a_signal_that_the_program_ignores_stays_ignored() {
    let (shimmed, bare) = dispositions(&["ignore"], Some("USR2"));
    assert_eq!(shimmed, bare);
    assert!(shimmed.contains("cuInit: User defined signal 2 ignored"));
}
