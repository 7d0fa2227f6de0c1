//! Programs as people read them.

use std::fmt;

use super::{Action, Node, Pool, Program, Shape, Step, Way};

fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.own { "own" } else { "default" };
        write!(f, "{whose} pool of device {}", self.device)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Action::*;
        let name = self.name();
        match self {
            Allocate { block, bytes, way } => {
                write!(f, "b{block} = {name}({}", size(*bytes))?;
                match way {
                    Way::Plain | Way::Pitch => f.write_str(")"),
                    Way::Mapped { parts } => write!(f, ", {parts} pieces)"),
                    Way::Async { stream } => write!(f, ", s{stream})"),
                    Way::From { pool, stream } => write!(f, ", {pool}, s{stream})"),
                }
            }
            Renew { block, how } => write!(f, "{how}(b{block})"),
            Free { block } => write!(f, "{name}(b{block})"),
            FreeIn { block, stream } => write!(f, "{name}(b{block}, s{stream})"),
            Stamp { block, stream, kernel } => {
                write!(f, "{} b{block} in s{stream}", if *kernel { "stamp" } else { "memset" })
            }
            Check { block, stream, kernel } => {
                write!(f, "{} b{block} in s{stream}", if *kernel { "check" } else { "copy out and check" })
            }
            Copy { from, to, stream } => write!(f, "copy b{from} to b{to} in s{stream}"),
            Spin { stream, microseconds } => write!(f, "keep s{stream} busy for {microseconds} us"),
            Close { gate, stream } => write!(f, "s{stream} waits for gate {gate}"),
            Open { gate } => write!(f, "the host opens gate {gate}"),
            Record { event, stream } => write!(f, "{name}(e{event}, s{stream})"),
            Wait { event, stream } => write!(f, "{name}(s{stream}, e{event})"),
            SyncStream { stream } => write!(f, "{name}(s{stream})"),
            SyncEvent { event } => write!(f, "{name}(e{event})"),
            SyncContext | Info => write!(f, "{name}()"),
            Aside(aside) => write!(f, "{aside}"),
            Idle { stream } => write!(f, "cuStreamQuery(s{stream}) until it is done"),
            Busy { stream } => write!(f, "cuStreamQuery(s{stream}), which is held"),
            Trim { pool } => write!(f, "{name}({pool}, 0)"),
            Capture { graph, stream, mode, nodes } => {
                write!(f, "g{graph} = capture of s{stream}, mode {mode}:")?;
                nodes.iter().try_for_each(|node| write!(f, " {node}"))
            }
            Build { graph, nodes } => {
                write!(f, "g{graph} = graph of")?;
                nodes.iter().try_for_each(|node| write!(f, " {node}"))
            }
            Retarget { graph, node, block, .. } => write!(f, "{name}(g{graph}, memset {node}, b{block})"),
            EndGraph { graph } => write!(f, "{name}(g{graph})"),
            Launch { graph, stream } => write!(f, "{name}(g{graph}, s{stream})"),
            Destroy { stream } => write!(f, "{name}(s{stream})"),
            Create { stream } => write!(f, "s{stream} = {name}()"),
            Note { stream } => write!(f, "{name}, in s{stream}"),
            Unlock { gate, stream } => write!(f, "{name} {gate}, in s{stream}"),
            Read { block, stream } => write!(f, "{name}(b{block}) in s{stream}, and check"),
            Fill { block, stream } | Set { block, stream } => write!(f, "{name}(b{block}) in s{stream}"),
            Move { from, to, stream } => write!(f, "{name}(b{from} to b{to}) in s{stream}"),
            Write { host, bytes, stream } => {
                write!(f, "{name} h{host}, {}", size(*bytes))?;
                stream.map_or(Ok(()), |stream| write!(f, ", in s{stream}"))
            }
            Look { host, stream } => {
                write!(f, "{name} h{host}")?;
                stream.map_or(Ok(()), |stream| write!(f, ", in s{stream}"))
            }
            Upload { host, block, stream, .. } => write!(f, "{name}: h{host} to b{block} in s{stream}"),
            Download { block, host, stream, .. } => write!(f, "{name}: b{block} to h{host} in s{stream}"),
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mark { block } => write!(f, "[stamp and check b{block}]"),
            Self::Fork { stream, here, there } => {
                write!(f, "[stamp and check b{here}, beside it b{there} in s{stream}]")
            }
            Self::Lend { stream, bytes } => {
                write!(f, "[allocate {}, stamp, check, free in s{stream}]", size(*bytes))
            }
            Self::Load { host, block } => write!(f, "[copy h{host} to b{block}]"),
            Self::Save { block, host } => write!(f, "[copy b{block} to h{host}]"),
            Self::Set { block } => write!(f, "[memset b{block}]"),
            Self::Copy { from, to } => write!(f, "[copy b{from} to b{to}]"),
            Self::Own { bytes } => write!(f, "[allocate {}, stamp, check, free]", size(*bytes)),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} in {:?}: {}", self.thread, self.current, self.action)?;
        if self.detached { f.write_str(", and goes on beside the others") } else { Ok(()) }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { threads, keep, internal, .. } = self.shape;
        writeln!(
            f,
            "seed {}, {threads} threads, pools keep memory: {keep}, make streams wait: {internal}",
            self.seed
        )?;
        for (number, stream) in self.shape.streams.iter().enumerate().filter(|(number, _)| self.uses(*number))
        {
            writeln!(f, "  s{number}: {:?} of {:?}", stream.kind, stream.context)?;
        }
        for (number, host) in self.shape.hosts.iter().enumerate() {
            writeln!(f, "  h{number}: {host:?}")?;
        }
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "  {number:>3}  {step}")?;
        }
        Ok(())
    }
}
