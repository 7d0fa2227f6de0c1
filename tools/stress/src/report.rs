//! The report of a run: progress lines on standard error, a table or a JSON document at its end.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::Options;
use crate::driver::{Failure, Result};
use crate::world::World;

/// One line: how far the run is.
pub(crate) fn progress(world: &World, elapsed: Duration) {
    let (sum, seconds) = (world.tally.sum(), elapsed.as_secs_f64());
    let held: Vec<String> =
        world.places.iter().map(|place| (place.budget.held() >> 20).to_string()).collect();
    eprintln!(
        "stress: {seconds:.0} s, {sum} operations ({:.0} a second), {} MiB held, {} refused",
        sum as f64 / seconds,
        held.join(" + "),
        world.tally.refused()
    );
}

/// The end of the run.
pub(crate) fn summary(options: &Options, world: &World, elapsed: Duration, outcome: &Result) {
    if options.json {
        println!("{}", document(options, world, elapsed, outcome));
        return;
    }
    let names: Vec<String> =
        world.places.iter().map(|place| place.name(&world.driver).unwrap_or_default()).collect();
    let (sum, seconds) = (world.tally.sum(), elapsed.as_secs_f64());
    println!(
        "{}: {} threads, {} streams, seed {}",
        names.join(", "),
        options.threads,
        options.streams,
        options.seed
    );
    world.tally.rows().for_each(|(name, count)| println!("  {name:<12}{count:>12}"));
    println!("{sum} operations in {seconds:.1} s; {} allocations refused", world.tally.refused());
    println!("{}", verdict(world, outcome));
}

fn verdict(world: &World, outcome: &Result) -> String {
    let checked: u64 = world.places.iter().map(|place| place.findings().bytes).sum();
    match outcome {
        Ok(()) => format!(
            "{:.1} GiB checked, every mark its owner's, all freed",
            checked as f64 / f64::from(1 << 30)
        ),
        Err(_) => "FAILED".into(),
    }
}

fn document(options: &Options, world: &World, elapsed: Duration, outcome: &Result) -> Value {
    let counts: Map<_, _> = world.tally.rows().map(|(name, count)| (name.to_owned(), count.into())).collect();
    let devices = world.places.iter().map(|place| {
        let findings = place.findings();
        json!({
            "ordinal": place.ordinal, "capacity_bytes": place.budget.capacity, "most_held_bytes": place.budget.most(),
            "checked_bytes": findings.bytes, "wrong_words": findings.wrong,
        })
    });
    json!({
        "schema": "stress/1",
        "seed": options.seed, "threads": options.threads, "streams": options.streams,
        "seconds": elapsed.as_secs_f64(), "operations": world.tally.sum(), "refused": world.tally.refused(),
        "counts": counts, "devices": devices.collect::<Vec<_>>(),
        "failure": outcome.as_ref().err().map(Failure::to_string),
    })
}
