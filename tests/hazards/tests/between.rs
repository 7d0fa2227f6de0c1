//! Hazard (process crash): one call copies a mapped range that lies on two tiers, which ends the
//! process inside the driver, or devices that are no peers refuse the copy. The driver's own
//! memory has neither limit.

use hazards::{Host, Outcome, Scratch, c, driver};

/// Copies of consecutive bytes.
const FLAT: [&str; 16] = [
    "memcpy",
    "memcpy_ptds",
    "memcpy_async",
    "memcpy_async_null",
    "memcpy_async_ptsz",
    "dtod",
    "dtod_ptds",
    "dtod_async",
    "dtod_async_ptsz",
    "peer",
    "peer_ptds",
    "peer_async",
    "peer_async_ptsz",
    "attributes",
    "batch",
    "batch_v2",
];

/// Copies of rows and layers with gaps.
const SHAPED: [&str; 16] = [
    "2d",
    "2d_ptds",
    "2d_unaligned",
    "2d_async",
    "2d_async_ptsz",
    "3d",
    "3d_ptds",
    "3d_async",
    "3d_async_ptsz",
    "3d_peer",
    "3d_peer_ptds",
    "3d_peer_async",
    "3d_peer_async_ptsz",
    "3d_batch",
    "3d_batch_v2",
    "3d_attributes",
];

/// Copies between the host and the device that is not current.
const HOST: [&str; 8] =
    ["htod", "htod_async", "htod_any", "htod_any_async", "dtoh", "dtoh_async", "dtoh_any", "dtoh_any_async"];

/// Copies as nodes of graphs.
const GRAPHS: [&str; 5] = ["captured", "graph", "graph_any", "graph_shape", "graph_any_shape"];

/// Nodes that are changed to another block.
const CHANGES: [&str; 4] = ["set", "set_any", "set_ready", "set_ready_any"];

/// One block of 4 MiB a device: it does not fit on the device.
const MIXED: (&str, &str) = ("WMSHIM_DEVICE_LIMIT", "2MiB");
const NO_PEERS: (&str, &str) = ("SIMCUDA_PEERS", "0");

fn run(forms: &[&str], variables: &[(&str, &str)]) -> Vec<(String, Outcome)> {
    let scratch = Scratch::new();
    let (program, driver) = (c::cuda_program(&scratch, "between"), driver::simulated(&scratch));
    let outcome = |form: &&str| {
        let host = Host::shimmed(program.clone(), &scratch, &driver).args(form.split(' '));
        let host = host.env("SIMCUDA_DEVICES", "2").env("SIMCUDA_MEMORY", "256MiB");
        ((*form).to_owned(), variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run())
    };
    forms.iter().map(outcome).collect()
}

fn assert_right(forms: &[&str], variables: &[(&str, &str)]) {
    let wrong = |(form, outcome): (String, Outcome)| {
        let said = format!("{form}: {} {}{}", outcome.status, outcome.stdout, outcome.stderr);
        (!outcome.status.success()).then_some(said)
    };
    let wrong: Vec<_> = run(forms, variables).into_iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn flat_copies_are_cut_where_another_tier_begins() {
    assert_right(&FLAT, &[MIXED]);
}

#[test]
fn shaped_copies_are_cut_where_another_tier_begins() {
    assert_right(&SHAPED, &[MIXED]);
}

#[test]
fn copies_of_the_host_are_cut_where_another_tier_begins() {
    assert_right(&HOST, &[MIXED]);
}

/// The memory that the other process exports is on two tiers too, and this process did not make it.
#[test]
fn copies_of_opened_memory_are_cut_where_another_tier_begins() {
    assert_right(&["peer opened", "memcpy opened", "2d_async opened", "graph opened"], &[MIXED]);
}

#[test]
fn copies_in_graphs_are_cut_where_another_tier_begins() {
    assert_right(&GRAPHS, &[MIXED]);
}

#[test]
fn flat_copies_need_no_peers() {
    assert_right(&FLAT, &[NO_PEERS]);
}

#[test]
fn shaped_copies_need_no_peers() {
    assert_right(&SHAPED, &[NO_PEERS]);
}

#[test]
fn copies_of_the_host_need_no_peers() {
    assert_right(&HOST, &[NO_PEERS]);
}

/// Neither a captured copy nor a node works between contexts: the program gets the driver's answer,
/// and goes on.
#[test]
fn copies_in_graphs_are_refused_without_peers() {
    for variables in [&[NO_PEERS][..], &[MIXED, NO_PEERS]] {
        for (form, outcome) in run(&GRAPHS, variables) {
            let said = format!("{} {}{}", outcome.status, outcome.stdout, outcome.stderr);
            assert!(outcome.status.code() == Some(2) && outcome.stdout == format!("{form}: 1\n"), "{said}");
        }
    }
}

#[test]
fn copies_that_are_cut_need_no_peers() {
    assert_right(&["memcpy", "peer_async", "3d", "batch", "htod_async"], &[MIXED, NO_PEERS]);
}

#[test]
fn nodes_reach_the_other_device_without_peer_access() {
    assert_right(&GRAPHS, &[]);
}

#[test]
fn a_node_may_be_changed_to_another_block() {
    assert_right(&CHANGES, &[]);
}

/// A node cannot become several: the program gets an error for the change.
#[test]
fn a_node_is_not_changed_to_a_block_on_two_tiers() {
    let answers = [("set", 801), ("set_any", 801), ("set_ready", 1), ("set_ready_any", 1)];
    let limit = ("WMSHIM_DEVICE_LIMIT", "6MiB");
    for ((form, outcome), (_, code)) in run(&CHANGES, &[limit]).into_iter().zip(answers) {
        assert!(
            outcome.stdout.ends_with(&format!("{form}: {code}\n")),
            "{form}: {} {}{}",
            outcome.status,
            outcome.stdout,
            outcome.stderr
        );
    }
}

/// An assumption of the tests above.
#[test]
fn a_limit_puts_the_ends_of_blocks_on_the_host() {
    for (_, outcome) in run(&["memcpy stats"], &[MIXED]) {
        let line = outcome.stdout.lines().find_map(|line| line.strip_prefix("stats ")).expect("statistics");
        let stats: serde_json::Value = serde_json::from_str(line).expect("JSON");
        for device in stats["devices"].as_array().expect("a list") {
            let live = |tier: &str| device["tiers"][tier]["reserved_bytes"].as_u64().expect(tier);
            assert!((live("device"), live("host")) == (2 << 20, 2 << 20), "{device}");
        }
    }
}
