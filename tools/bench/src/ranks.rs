//! `bench ranks`: one process a GPU, all copying at once and one alone, plainly and over several
//! links.
//!
//! All at once, relays gain nothing and must cost nothing: every link has its own rank's bytes to
//! carry. Alone, a rank has all links. Ranks are children of this process; they copy by the shim's
//! own parts, publish the links that they use, as programs under the shim do, and compare the
//! bytes that arrive.
//!
//! A child reads lines: the topology, then one order after another: `check`, `room` (free device
//! memory), or such as `in,out shim 0.5`. It answers each with a line: the bytes that it copied or
//! found, and the seconds that took.

use std::io::{BufRead, BufReader, Lines, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, anyhow};
use serde::Serialize;
use serde_json::json;
use wm_abi::CUdevice;
use wm_multipath::measured::Topology;
use wm_multipath::{ClaimsPage, EngineSettings, HostMemory, LinkDirection};

use wmctl::bench::comparison::{CopyKind, median};
use wmctl::bench::machine::{self, Machine, seconds};
use wmctl::table::TextTable;
use wmctl::{human, output};

/// Arguments of `bench ranks`.
#[derive(Debug, clap::Args)]
pub(crate) struct RanksArguments {
    /// Size of each rank's copies, MiB
    #[arg(long, default_value_t = 1024)]
    mib: usize,
    /// Seconds of one measurement; its first round, in which ranks do not know of each other yet,
    /// is part of it
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Measurements of each kind, in turns; the median counts
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Be the rank of this GPU
    #[arg(long, hide = true)]
    rank: Option<CUdevice>,
}

/// Which ranks copy, and which way the even and the odd ones do.
struct Case {
    ranks: &'static str,
    alone: bool,
    ways: [&'static str; 2],
}

const CASES: [Case; 7] = [
    Case { ranks: "all at once", alone: false, ways: ["in", "in"] },
    Case { ranks: "all at once", alone: false, ways: ["out", "out"] },
    Case { ranks: "all at once", alone: false, ways: ["in", "out"] },
    Case { ranks: "all at once", alone: false, ways: ["in,out", "in,out"] },
    Case { ranks: "one alone", alone: true, ways: ["in", ""] },
    Case { ranks: "one alone", alone: true, ways: ["out", ""] },
    Case { ranks: "one alone", alone: true, ways: ["in,out", ""] },
];

impl Case {
    fn name(&self) -> String {
        let [even, odd] = self.ways;
        if self.alone || even == odd { even.to_owned() } else { format!("even {even}, odd {odd}") }
    }
}

/// One line of the result. Rates are bytes a second, of all ranks together.
#[derive(Debug, Serialize)]
struct RanksRow {
    ranks: &'static str,
    ways: String,
    plain: f64,
    multipath: f64,
    ratio: f64,
}

/// Measures and prints; or is one of the ranks.
///
/// # Errors
/// No driver, fewer than two devices, memory that is not to be had, or a rank that got wrong bytes.
pub(crate) fn ranks(arguments: &RanksArguments) -> Result<()> {
    if let Some(device) = arguments.rank {
        return rank(device, arguments.mib << 20);
    }
    eprintln!("measuring the links ...");
    let topology = machine::measure(None)?.topology;
    let count = topology.key.devices.len() as CUdevice;
    eprintln!("{count} ranks begin; each of {} measurements takes seconds ...", CASES.len());
    let mut ranks =
        (0..count).map(|device| Rank::start(device, arguments.mib, &topology)).collect::<Result<Vec<_>>>()?;
    let held = relaying(&mut ranks)?;
    // All are ready, and have compared the bytes that arrived, before any is measured.
    together(&mut ranks, |_| Some("check".to_owned()))?;
    let mut rows = Vec::new();
    for case in &CASES {
        let row = measure(&mut ranks, case, arguments)?;
        eprintln!("{} {}: {:.2} of plain", row.ranks, row.ways, row.ratio);
        rows.push(row);
    }
    together(&mut ranks, |_| Some("check".to_owned()))?;
    if arguments.json {
        return output::print_json(
            &json!({ "schema": "bench-ranks/1", "ranks": count, "relay_bytes": held, "rows": rows }),
        );
    }
    output::print(&format!(
        "{count} ranks, {} MiB each, GB/s of all together; a rank that relays takes {} of each sibling's memory\n\n{}",
        arguments.mib,
        held.map_or_else(|| "an unknown part".to_owned(), human::bytes),
        render(&rows)
    ))
}

/// Device memory that the first rank takes on the second one's GPU when it begins to relay. Unknown
/// if others free some meanwhile.
fn relaying(ranks: &mut [Rank]) -> Result<Option<u64>> {
    let only =
        |rank: usize, order: &'static str| move |number: usize| (number == rank).then(|| order.to_owned());
    let before = together(ranks, only(1, "room"))?;
    together(ranks, only(0, "check"))?;
    let after = together(ranks, only(1, "room"))?;
    Ok((before > after).then_some((before - after) as u64))
}

fn measure(ranks: &mut [Rank], case: &Case, arguments: &RanksArguments) -> Result<RanksRow> {
    let (mut plain, mut shared) = (Vec::new(), Vec::new());
    for _ in 0..arguments.repeat.max(1) {
        for (by, rates) in [("plain", &mut plain), ("shim", &mut shared)] {
            let order = |rank: usize| {
                let ways = case.ways[rank % 2];
                (rank == 0 || !case.alone).then(|| format!("{ways} {by} {}", arguments.seconds))
            };
            rates.push(together(ranks, order)?);
        }
    }
    let (plain, multipath) = (median(plain), median(shared));
    Ok(RanksRow { ranks: case.ranks, ways: case.name(), plain, multipath, ratio: multipath / plain })
}

/// Gives each rank its order, and sums up their rates. Bytes a second.
fn together(ranks: &mut [Rank], order: impl Fn(usize) -> Option<String>) -> Result<f64> {
    let mut busy = Vec::new();
    for (number, rank) in ranks.iter_mut().enumerate() {
        if let Some(order) = order(number) {
            writeln!(rank.orders, "{order}").with_context(|| format!("rank {number} has ended"))?;
            busy.push(rank);
        }
    }
    busy.into_iter().map(Rank::answer).sum()
}

fn render(rows: &[RanksRow]) -> String {
    let mut table = TextTable::new(&["RANKS", "WAY", ">PLAIN GB/s", ">SHIM GB/s", ">RATIO"]);
    for row in rows {
        table.row([
            row.ranks.to_owned(),
            row.ways.clone(),
            format!("{:.1}", row.plain / 1e9),
            format!("{:.1}", row.multipath / 1e9),
            format!("{:.2}", row.ratio),
        ]);
    }
    table.to_string()
}

/// A child that copies to and from one GPU. It ends when its orders do.
struct Rank {
    process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Rank {
    fn start(device: CUdevice, mib: usize, topology: &Topology) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["ranks", "--rank", &device.to_string(), "--mib", &mib.to_string()]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("a rank")?;
        let (orders, answers) = (process.stdin.take(), process.stdout.take());
        let (mut orders, answers) = orders.zip(answers).context("a rank without pipes")?;
        writeln!(orders, "{}", serde_json::to_string(topology)?)?;
        Ok(Self { process, orders, answers: BufReader::new(answers).lines() })
    }

    /// Its rate, bytes a second.
    fn answer(&mut self) -> Result<f64> {
        let line = self.answers.next().context("a rank ended early: its last line above says why")??;
        let numbers = line
            .split_once(' ')
            .and_then(|(bytes, time)| Some((bytes.parse::<f64>().ok()?, time.parse::<f64>().ok()?)));
        let (bytes, time) = numbers.ok_or_else(|| anyhow!("a rank answered {line:?}"))?;
        Ok(if time > 0.0 { bytes / time } else { 0.0 })
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The loop of a child.
fn rank(device: CUdevice, bytes: usize) -> Result<()> {
    let mut orders = stdin().lines();
    let topology: Topology = serde_json::from_str(&orders.next().context("no topology")??)?;
    let settings = EngineSettings {
        patience: 0,
        eager: true,
        prompt: true,
        page: ClaimsPage::of_user(),
        ..EngineSettings::default()
    };
    let mut machine = Machine::new(device, topology, settings, bytes)?;
    for order in orders {
        let order = order?;
        if order == "check" {
            machine.verify(HostMemory::Pinned, bytes.min(64 << 20))?;
            output::print("0 0\n")?;
        } else if order == "room" {
            output::print(&format!("{} 1\n", machine.room()?))?;
        } else {
            let (bytes, seconds) =
                carry_out(&machine, &order, bytes).with_context(|| format!("order {order:?}"))?;
            output::print(&format!("{bytes} {seconds}\n"))?;
        }
    }
    Ok(())
}

/// Copies for as long as it was told to. Bytes, and seconds.
fn carry_out(machine: &Machine, order: &str, bytes: usize) -> Result<(usize, f64)> {
    let [ways, by, limit] = order.split(' ').collect::<Vec<_>>()[..] else {
        return Err(anyhow!("three words"));
    };
    let way = |word: &str| if word == "in" { LinkDirection::In } else { LinkDirection::Out };
    let (ways, limit): (Vec<_>, f64) = (ways.split(',').map(way).collect(), limit.parse()?);
    let kind = CopyKind { name: "", memory: HostMemory::Pinned, waits: false };
    let mut count = 0;
    let mut spent = 0.0;
    while spent < limit {
        spent += seconds(machine.engine.driver(), || match by {
            "shim" => machine.shared(&machine.engine, &kind, &ways, bytes).map(|_| ()),
            _ => machine.plain(HostMemory::Pinned, &ways, bytes).map(|_| ()),
        })?;
        count += ways.len();
    }
    Ok((count * bytes, spent))
}
