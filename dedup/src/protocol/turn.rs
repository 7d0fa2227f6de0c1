//! Reports and orders about turns, as bytes. Times are microseconds.

use std::time::Duration;

use super::bytes::{Malformed, PacketReader, PacketWriter};
use crate::turns::message::{GPUS, GpuUse, TurnOrder, TurnPhase, TurnReport, TurnTask};

const PHASES: [TurnPhase; 4] = [TurnPhase::Running, TurnPhase::Leaving, TurnPhase::Away, TurnPhase::Coming];

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn time(packet: &mut PacketReader<'_>) -> Result<Duration, Malformed> {
    packet.u64().map(Duration::from_micros)
}

pub(super) fn write_report(kind: u32, report: &TurnReport) -> Vec<u8> {
    let gpus = report.gpus.iter().take(GPUS);
    let packet = PacketWriter::new(kind, gpus.len()).u32(report.phase as u32);
    let packet = packet.u64(report.done).u64(report.giving).u64(report.ask);
    let packet = packet.u64(microseconds(report.idle)).u64(microseconds(report.moved)).u64(report.short);
    let packet = gpus.fold(packet, |packet, gpu| {
        packet.bytes(&gpu.gpu).u64(gpu.present).u64(gpu.missing).u64(gpu.free).u64(gpu.given)
    });
    packet.finish()
}

pub(super) fn read_report(packet: &mut PacketReader<'_>) -> Result<TurnReport, Malformed> {
    let count = packet.count(0..=GPUS)?;
    let phase = *PHASES.get(packet.u32()? as usize).ok_or(Malformed)?;
    Ok(TurnReport {
        phase,
        done: packet.u64()?,
        giving: packet.u64()?,
        ask: packet.u64()?,
        idle: time(packet)?,
        moved: time(packet)?,
        short: packet.u64()?,
        gpus: packet.entries(count, |packet| {
            Ok(GpuUse {
                gpu: packet.array()?,
                present: packet.u64()?,
                missing: packet.u64()?,
                free: packet.u64()?,
                given: packet.u64()?,
            })
        })?,
    })
}

pub(super) fn write_order(kind: u32, TurnOrder { number, task }: &TurnOrder) -> Vec<u8> {
    let packet = |task, count| PacketWriter::new(kind, count).u32(task).u64(*number);
    match task {
        TurnTask::Wait => packet(0, 0),
        TurnTask::Report => packet(1, 0),
        TurnTask::GiveWay { after, bytes } => {
            let bytes = bytes.iter().take(GPUS);
            let packet = packet(2, bytes.len()).u64(microseconds(*after));
            bytes.fold(packet, |packet, (gpu, bytes)| packet.bytes(gpu).u64(*bytes))
        }
        TurnTask::Stay => packet(3, 0),
        TurnTask::Come { ask, is_last } => packet(4, 0).u64(*ask).u32(u32::from(*is_last)),
    }
    .finish()
}

pub(super) fn read_order(packet: &mut PacketReader<'_>) -> Result<TurnOrder, Malformed> {
    let count = packet.count(0..=GPUS)?;
    let (task, number) = (packet.u32()?, packet.u64()?);
    let task = match (task, count) {
        (0, 0) => TurnTask::Wait,
        (1, 0) => TurnTask::Report,
        (2, _) => TurnTask::GiveWay {
            after: time(packet)?,
            bytes: packet.entries(count, |packet| Ok((packet.array()?, packet.u64()?)))?,
        },
        (3, 0) => TurnTask::Stay,
        (4, 0) => TurnTask::Come {
            ask: packet.u64()?,
            is_last: match packet.u32()? {
                0 => false,
                1 => true,
                _ => return Err(Malformed),
            },
        },
        _ => return Err(Malformed),
    };
    Ok(TurnOrder { number, task })
}
