//! Hazard (corrupt input): a message is decoded as another one, or bytes from an arbitrary process
//! end the process that reads them.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use wm_dedup::broker::{CopyPlace, LeaseNumber, SegmentNumber};
use wm_dedup::chunk::{ChunkName, CopyName, Fingerprint};
use wm_dedup::protocol::{
    BATCH, BrokerAnswer, BrokerReport, BrokerRequest, COPIES, ClientReport, DeviceReport, LONGEST, LookedUp,
    NOTES, Offered, RELEASES, REPORTED, Role,
};
use wm_dedup::turns::message::{GPUS, GpuUse, TurnOrder, TurnPhase, TurnReport, TurnTask};

fn name() -> impl Strategy<Value = ChunkName> {
    (any::<[u8; 16]>(), any::<u128>())
        .prop_map(|(device, bits)| ChunkName { device, fingerprint: Fingerprint(bits) })
}

fn lease() -> impl Strategy<Value = LeaseNumber> {
    (1..(1_u64 << 63) - 1).prop_map(LeaseNumber)
}

fn request() -> impl Strategy<Value = BrokerRequest> {
    let role = prop_oneof![Just(Role::User), Just(Role::Observer), Just(Role::Member), Just(Role::Keeper)];
    prop_oneof![
        (any::<u32>(), role).prop_map(|(version, role)| BrokerRequest::Hello { version, role }),
        (any::<bool>(), vec(name(), 1..=BATCH))
            .prop_map(|(again, names)| BrokerRequest::Offer { again, names }),
        (any::<bool>(), vec(name(), 1..=BATCH))
            .prop_map(|(again, names)| BrokerRequest::LookUp { again, names }),
        vec(lease(), 1..=RELEASES).prop_map(BrokerRequest::Release),
        Just(BrokerRequest::Report),
        (any::<bool>(), vec(name(), 0..=NOTES)).prop_map(|(anew, names)| BrokerRequest::Note { anew, names }),
        Just(BrokerRequest::Arrivals),
        Just(BrokerRequest::TakeBack),
        turn_report().prop_map(BrokerRequest::Turn),
        vec(copy_name(), 1..=COPIES).prop_map(BrokerRequest::FindCopies),
        vec((copy_name(), any::<u64>()), 1..=COPIES).prop_map(BrokerRequest::OfferCopies),
        vec(any::<u64>().prop_map(SegmentNumber), 1..=RELEASES).prop_map(BrokerRequest::ReleaseCopies),
    ]
}

fn copy_name() -> impl Strategy<Value = CopyName> {
    (any::<u128>(), any::<u64>()).prop_map(|(bits, bytes)| CopyName { fingerprint: Fingerprint(bits), bytes })
}

fn segment() -> impl Strategy<Value = SegmentNumber> {
    (1..=u64::MAX).prop_map(SegmentNumber)
}

fn copies_found() -> impl Strategy<Value = BrokerAnswer> {
    let place = (segment(), any::<u64>()).prop_map(|(segment, offset)| CopyPlace { segment, offset });
    (vec(proptest::option::of(place), 1..=COPIES), vec(segment(), 0..=BATCH))
        .prop_map(|(places, segments)| BrokerAnswer::CopiesFound { places, segments })
}

fn copies_offered() -> impl Strategy<Value = BrokerAnswer> {
    let weights = prop_oneof![Just(0.0), Just(0.02), Just(0.5)];
    let accepted = weights.prop_flat_map(|weight| vec(proptest::bool::weighted(weight), 1..=COPIES));
    (segment(), accepted).prop_map(|(segment, accepted)| BrokerAnswer::CopiesOffered {
        segment: accepted.contains(&true).then_some(segment),
        accepted,
    })
}

fn time() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(Duration::from_micros)
}

fn turn_report() -> impl Strategy<Value = TurnReport> {
    let gpu = (any::<[u8; 16]>(), any::<[u64; 4]>())
        .prop_map(|(gpu, [present, missing, free, given])| GpuUse { gpu, present, missing, free, given });
    let phase = prop_oneof![
        Just(TurnPhase::Running),
        Just(TurnPhase::Leaving),
        Just(TurnPhase::Away),
        Just(TurnPhase::Coming)
    ];
    (any::<[u64; 4]>(), phase, time(), time(), vec(gpu, 0..=GPUS)).prop_map(
        |([done, giving, ask, short], phase, idle, moved, gpus)| TurnReport {
            done,
            giving,
            ask,
            phase,
            idle,
            moved,
            short,
            gpus,
        },
    )
}

fn turn_order() -> impl Strategy<Value = TurnOrder> {
    let bytes = vec((any::<[u8; 16]>(), any::<u64>()), 0..=GPUS);
    let task = prop_oneof![
        Just(TurnTask::Wait),
        Just(TurnTask::Report),
        (time(), bytes).prop_map(|(after, bytes)| TurnTask::GiveWay { after, bytes }),
        Just(TurnTask::Stay),
        any::<(u64, bool)>().prop_map(|(ask, is_last)| TurnTask::Come { ask, is_last }),
    ];
    (any::<u64>(), task).prop_map(|(number, task)| TurnOrder { number, task })
}

fn report() -> impl Strategy<Value = BrokerReport> {
    let client = (any::<u32>(), any::<u64>()).prop_map(|(process, leases)| ClientReport { process, leases });
    let device = (any::<[u8; 16]>(), any::<u64>(), any::<u64>())
        .prop_map(|(device, chunks, leases)| DeviceReport { device, chunks, leases });
    let numbers = (any::<[u32; 3]>(), any::<u32>(), any::<[u64; 4]>());
    (numbers, vec(client, 0..=REPORTED / 2), vec(device, 0..=REPORTED / 2)).prop_map(
        |((release, process, [uptime, capacity, segments, copy_bytes]), clients, devices)| BrokerReport {
            release,
            process,
            uptime,
            capacity,
            segments,
            copy_bytes,
            clients,
            devices,
        },
    )
}

fn answer() -> impl Strategy<Value = BrokerAnswer> {
    let offered =
        prop_oneof![lease().prop_map(Offered::Accepted), Just(Offered::Present), Just(Offered::Full)];
    let found = prop_oneof![
        lease().prop_map(LookedUp::Chunk),
        Just(LookedUp::Wanted),
        lease().prop_map(LookedUp::Waiting),
        Just(LookedUp::Full)
    ];
    prop_oneof![
        any::<(u32, u32)>().prop_map(|(version, process)| BrokerAnswer::Hello { version, process }),
        vec(offered, 1..=BATCH).prop_map(BrokerAnswer::Offered),
        vec(found, 1..=BATCH).prop_map(BrokerAnswer::Found),
        (0..=RELEASES as u32).prop_map(BrokerAnswer::Released),
        report().prop_map(BrokerAnswer::Report),
        Just(BrokerAnswer::Refused),
        vec(any::<u32>(), 0..=NOTES).prop_map(BrokerAnswer::Noted),
        vec(name(), 0..=NOTES).prop_map(BrokerAnswer::Arrived),
        vec(lease(), 0..=RELEASES).prop_map(BrokerAnswer::TakenBack),
        turn_order().prop_map(BrokerAnswer::Turn),
        copies_found(),
        copies_offered(),
        (0..=RELEASES as u32).prop_map(BrokerAnswer::CopiesReleased),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_request_arrives_as_it_was_sent(request in request()) {
        let bytes = request.encode();
        prop_assert!(bytes.len() <= LONGEST);
        prop_assert_eq!(BrokerRequest::decode(&bytes), Ok(request));
    }

    #[test]
    fn an_answer_arrives_as_it_was_sent(answer in answer()) {
        let bytes = answer.encode();
        prop_assert!(bytes.len() <= LONGEST);
        prop_assert_eq!(BrokerAnswer::decode(&bytes), Ok(answer));
    }

    /// A packet that is understood is within the limits, and is encoded as the same bytes.
    #[test]
    fn any_bytes_are_a_packet_or_refused(bytes in vec(any::<u8>(), 0..256), kind in 0..14_u8, count in 0..40_u8) {
        let mut likely = vec![kind, 0, 0, 0, count, 0, 0, 0];
        likely.extend(&bytes);
        for bytes in [&bytes, &likely] {
            if let Ok(request) = BrokerRequest::decode(bytes) {
                prop_assert!(request.descriptors() <= BATCH);
                prop_assert_eq!(&request.encode(), bytes);
            }
            if let Ok(answer) = BrokerAnswer::decode(bytes) {
                prop_assert!(answer.descriptors() <= BATCH);
                prop_assert_eq!(&answer.encode(), bytes);
            }
        }
    }

    /// Half packets, and packets with something behind them.
    #[test]
    fn a_packet_of_another_length_is_refused(request in request(), answer in answer(), cut in 1..64_usize) {
        let shorter = |bytes: &[u8]| bytes[..bytes.len().saturating_sub(cut)].to_vec();
        let longer = |bytes: &[u8]| [bytes, &vec![0; cut]].concat();
        let (request, answer) = (request.encode(), answer.encode());
        prop_assert!(BrokerRequest::decode(&shorter(&request)).is_err());
        prop_assert!(BrokerRequest::decode(&longer(&request)).is_err());
        prop_assert!(BrokerAnswer::decode(&shorter(&answer)).is_err());
        prop_assert!(BrokerAnswer::decode(&longer(&answer)).is_err());
    }
}
