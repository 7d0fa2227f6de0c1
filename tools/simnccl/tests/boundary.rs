//! Hazard (API conformance): a function of the simulated NCCL gives another code than NCCL's, or
//! has an effect before its call.

mod common;

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use common::*;

/// `ncclConfig_t` as a program of NCCL 2.19 fills it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Given {
    size: usize,
    magic: u32,
    version: u32,
    blocking: i32,
    ctas: [i32; 3],
    name: *const u8,
    share: i32,
}

const UNDEFINED: i32 = i32::MIN;

fn given(blocking: i32) -> Given {
    let (ctas, name) = ([UNDEFINED; 3], std::ptr::null());
    let (size, magic, version) = (size_of::<Given>(), 0xcafe_beef, 21903);
    Given { size, magic, version, blocking, ctas, name, share: UNDEFINED }
}

fn init(rank: &Rank, config: &Given) -> (Code, Handle) {
    let mut communicator = Handle(0);
    let config: *const Given = config;
    let (size, number) = (rank.size as i32, rank.rank as i32);
    let place = &raw mut communicator;
    (nccl!(ncclCommInitRankConfig(place, size, rank.id, number, config.cast())), communicator)
}

#[test]
fn a_nonblocking_communicator_is_in_progress_until_all_ranks_have_come() {
    ranks(2, &[("SIMCUDA_SEED", "4")], |rank| {
        if rank.rank == 1 {
            std::thread::sleep(Duration::from_millis(200));
        }
        let (code, communicator) = init(rank, &given(0));
        assert_eq!(code, Code::IN_PROGRESS);
        let (stream, place) = (stream(), uploaded(&[rank.rank as u8; 64]));
        if rank.rank == 0 {
            assert_eq!(state(communicator), Code::IN_PROGRESS);
            assert_eq!(send(place, 32, 1, communicator, stream), Code::INVALID_ARGUMENT);
        }
        until("the other rank comes", || state(communicator) == Code::SUCCESS);
        ok!(ncclGroupStart());
        assert_eq!(send(place, 32, 1 - rank.rank, communicator, stream), Code::SUCCESS);
        assert_eq!(receive(place + 32, 32, 1 - rank.rank, communicator, stream), Code::SUCCESS);
        assert_eq!(nccl!(ncclGroupEnd()), Code::IN_PROGRESS, "a thread hands the group to the stream");
        until("the group is in the stream", || state(communicator) == Code::SUCCESS);
        synchronize(stream);
        assert_eq!(downloaded(place + 32, 32), [1 - rank.rank as u8; 32]);
        assert_eq!(nccl!(ncclCommFinalize(communicator)), Code::IN_PROGRESS);
        until("the communicator is finalized", || state(communicator) == Code::SUCCESS);
        assert_eq!(send(place, 32, 1 - rank.rank, communicator, stream), Code::INVALID_USAGE);
        ok!(ncclCommDestroy(communicator));
    });
}

#[test]
fn an_initialisation_without_the_other_ranks_ends_by_an_abort() {
    ranks(1, &[], |rank| {
        let (code, communicator) = init(&Rank { size: 2, ..*rank }, &given(0));
        assert_eq!(code, Code::IN_PROGRESS);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(state(communicator), Code::IN_PROGRESS, "NCCL has no timeout");
        abort(communicator, stream());
    });
}

#[test]
fn a_failed_initialisation_is_reported_by_the_call_or_by_the_state() {
    ranks(1, &[("SIMNCCL_FAIL", "init:1,init:2")], |rank| {
        let (code, communicator) = init(rank, &given(1));
        assert_eq!((code, communicator), (Code::SYSTEM, Handle(0)));
        let (code, communicator) = init(rank, &given(0));
        assert_eq!(code, Code::IN_PROGRESS);
        until("the initialisation fails", || state(communicator) == Code::SYSTEM);
        ok!(ncclCommAbort(communicator));
    });
}

#[test]
fn ranks_that_use_one_gpu_are_refused_unless_they_may() {
    for (allowed, expected) in [("0", Code::INVALID_USAGE), ("1", Code::SUCCESS)] {
        ranks(2, &[("NCCL_MULTI_RANK_GPU_ENABLE", allowed)], move |rank| {
            use_device(0);
            assert_eq!(init(rank, &given(1)).0, expected);
        });
    }
}

#[test]
fn ranks_that_differ_in_the_size_do_not_wait_for_ever() {
    ranks(2, &[], |rank| {
        let (code, _) = init(&Rank { size: 2 + rank.rank, ..*rank }, &given(1));
        assert_eq!(code, Code::REMOTE);
    });
}

#[test]
fn arguments_are_checked_as_by_nccl() {
    ranks(1, &[], |rank| {
        let mut place = Handle(0);
        let (out, id) = (&raw mut place, rank.id);
        let wrong = Code::INVALID_ARGUMENT;
        assert_eq!(nccl!(ncclGetUniqueId(std::ptr::null_mut())), wrong);
        assert_eq!(nccl!(ncclGetVersion(std::ptr::null_mut())), wrong);
        assert_eq!(nccl!(ncclCommInitRank(std::ptr::null_mut(), 1, id, 0)), wrong);
        for (size, number) in [(0, 0), (1, 1), (1, -1), (-1, 0)] {
            assert_eq!(nccl!(ncclCommInitRank(out, size, id, number)), wrong);
        }
        assert_eq!(nccl!(ncclCommInitRank(out, 1, UniqueId([7; 128]), 0)), wrong);
        for config in
            [Given { magic: 0, ..given(1) }, given(2), Given { ctas: [UNDEFINED, 8, 4], ..given(1) }]
        {
            assert_eq!(init(rank, &config).0, wrong);
        }
        let (communicator, stream, memory) = (rank.communicator(), stream(), allocate(64));
        assert_eq!(send(memory, 1, 1, communicator, stream), wrong);
        assert_eq!(receive(memory, 1, usize::MAX, communicator, stream), wrong);
        assert_eq!(send(memory, usize::MAX, 0, communicator, stream), wrong);
        let at = memory as *mut c_void;
        assert_eq!(nccl!(ncclSend(at, 1, 99, 0, communicator, stream)), wrong);
        assert_eq!(nccl!(ncclAllReduce(at, at, 1, 2, 9, communicator, stream)), wrong);
        assert_eq!(nccl!(ncclBroadcast(at, at, 1, 2, 1, communicator, stream)), wrong);
        assert_eq!(send(memory, 1, 0, Handle(0), stream), wrong);
        // A message to the rank itself needs its other half in the same group.
        assert_eq!(send(memory, 1, 0, communicator, stream), Code::INVALID_USAGE);
        // One refused call refuses its group: nothing of it begins.
        ok!(ncclGroupStart());
        assert_eq!(receive(memory, 1, 0, communicator, stream), Code::SUCCESS);
        assert_eq!(send(memory, 1, 5, communicator, stream), wrong);
        assert_eq!(nccl!(ncclGroupEnd()), wrong);
        assert!(is_idle(stream) && state(communicator) == Code::SUCCESS);
        facts(communicator);
        registers(communicator, at);
        ok!(ncclCommFinalize(communicator));
        ok!(ncclCommDestroy(communicator));
        assert_eq!(nccl!(ncclCommDestroy(communicator)), wrong);
    });
}

fn facts(communicator: Handle) {
    let (mut size, mut number, mut device) = (9, 9, 9);
    ok!(ncclCommCount(communicator, &raw mut size));
    ok!(ncclCommUserRank(communicator, &raw mut number));
    ok!(ncclCommCuDevice(communicator, &raw mut device));
    assert_eq!((size, number, device), (1, 0, 0));
    // SAFETY: a string of the library, with an end.
    let text = unsafe { CStr::from_ptr(ncclGetErrorString(Code::REMOTE)) };
    assert!(text.to_string_lossy().contains("remote process exited"));
}

fn registers(communicator: Handle, at: *mut c_void) {
    let mut handle = std::ptr::null_mut();
    ok!(ncclCommRegister(communicator, at, 64, &raw mut handle));
    ok!(ncclCommDeregister(communicator, handle));
    assert_eq!(nccl!(ncclCommDeregister(communicator, handle)), Code::INVALID_USAGE);
    ok!(ncclCommRegister(communicator, at, 0, &raw mut handle));
    ok!(ncclCommDeregister(communicator, std::ptr::null_mut()));
    let nowhere = nccl!(ncclCommRegister(communicator, std::ptr::null_mut(), 64, &raw mut handle));
    assert_eq!(nowhere, Code::INVALID_ARGUMENT);
    let mut memory = std::ptr::null_mut();
    ok!(ncclMemAlloc(&raw mut memory, 4096));
    ok!(ncclMemFree(memory));
}

#[test]
fn the_version_is_what_the_environment_says() {
    for (variables, expected) in [(&[][..], 21903), (&[("SIMNCCL_VERSION", "21803")][..], 21803)] {
        let child = in_child(|| {
            set(variables);
            let mut version = 0;
            ok!(ncclGetVersion(&raw mut version));
            assert_eq!(version, expected);
        });
        assert_eq!(child, 0);
    }
}

#[test]
fn a_setting_that_is_not_valid_fails_the_first_call_and_says_why() {
    let child = in_child(|| {
        set(&[("SIMNCCL_FAIL", "sent:1")]);
        let mut id = UniqueId([0; 128]);
        assert_eq!(nccl!(ncclGetUniqueId(&raw mut id)), Code::INVALID_USAGE);
        // SAFETY: a string of the library, with an end.
        let text = unsafe { CStr::from_ptr(ncclGetLastError(Handle(0))) };
        assert!(text.to_string_lossy().contains("SIMNCCL_FAIL=sent:1 is not valid"));
    });
    assert_eq!(child, 0);
}

/// Names of the header that the shared object must have.
const NAMES: [&CStr; 25] = [
    c"ncclAllGather",
    c"ncclAllReduce",
    c"ncclBroadcast",
    c"ncclCommAbort",
    c"ncclCommCount",
    c"ncclCommCuDevice",
    c"ncclCommDeregister",
    c"ncclCommDestroy",
    c"ncclCommFinalize",
    c"ncclCommGetAsyncError",
    c"ncclCommInitRank",
    c"ncclCommInitRankConfig",
    c"ncclCommRegister",
    c"ncclCommUserRank",
    c"ncclGetErrorString",
    c"ncclGetLastError",
    c"ncclGetUniqueId",
    c"ncclGetVersion",
    c"ncclGroupEnd",
    c"ncclGroupStart",
    c"ncclMemAlloc",
    c"ncclMemFree",
    c"ncclRecv",
    c"ncclSend",
    c"simnccl_counters",
];

#[test]
fn the_shared_object_has_its_names_and_starts_no_thread_by_itself() {
    let file = hazards::places::built("libsimnccl.so");
    let elf = hazards::elf::exports(&std::fs::read(&file).expect("the library"));
    let file = CString::new(file.as_os_str().as_bytes()).expect("no zero in it");
    let child = in_child(|| {
        let library = open(&file);
        for name in NAMES {
            assert!(elf.contains_key(name.to_str().expect("ASCII")), "{name:?} is exported");
        }
        assert!(elf.keys().all(|name| name.starts_with("nccl") || name.starts_with("simnccl_")), "{elf:?}");
        // SAFETY: a handle of the loader and a string with an end; the function has this type.
        let version = unsafe {
            let address = libc::dlsym(library, c"ncclGetVersion".as_ptr());
            assert!(!address.is_null());
            std::mem::transmute::<*mut c_void, extern "C" fn(&mut i32) -> Code>(address)
        };
        assert_eq!((version(&mut 0), threads()), (Code::SUCCESS, 1));
        // SAFETY: as above. The loader knows the library by NCCL's name too.
        let known = unsafe { libc::dlopen(c"libnccl.so.2".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        assert_eq!(known, library);
    });
    assert_eq!(child, 0);
}

fn open(file: &CStr) -> *mut c_void {
    // SAFETY: a string with an end.
    let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "{file:?} opens");
    library
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("this process").count()
}

fn set(variables: &[(&str, &str)]) {
    for (name, value) in variables {
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Runs a body in a process of its own, which has one thread. Returns its exit status.
fn in_child(body: impl FnOnce()) -> i32 {
    // SAFETY: the child runs the body and ends without a return.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err();
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    status_of(child)
}

#[test]
fn a_child_of_fork_has_none_of_its_parents_communicators() {
    ranks(1, &[], |rank| {
        let communicator = rank.communicator();
        let child = in_child(|| {
            let mut code = Code::SUCCESS;
            assert_eq!(nccl!(ncclCommGetAsyncError(communicator, &raw mut code)), Code::INVALID_USAGE);
            assert_eq!(nccl!(ncclCommAbort(communicator)), Code::INVALID_USAGE);
        });
        assert_eq!(child, 0);
        ok!(ncclCommDestroy(communicator));
    });
}

/// Hazard (process lifecycle): a thread of the library takes a signal of the program.
#[test]
fn threads_have_names_take_no_signal_and_end_with_their_communicator() {
    ranks(1, &[], |rank| {
        let communicator = rank.communicator();
        until("the root ends, and the communicator has one thread", || masks_of_threads().len() == 1);
        let masks = masks_of_threads();
        for signal in [libc::SIGINT, libc::SIGUSR1, libc::SIGCHLD] {
            assert!(masks.iter().all(|mask| mask >> (signal - 1) & 1 == 1), "{masks:x?}");
        }
        ok!(ncclCommDestroy(communicator));
        until("the thread ends", || masks_of_threads().is_empty());
    });
}

/// The blocked signals of each thread of the library.
fn masks_of_threads() -> Vec<u64> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this process");
    let status = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.expect("a thread").path().join("status")).unwrap_or_default()
    };
    let field = |text: &str, name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned()
    };
    let ours = tasks.map(status).filter(|text| field(text, "Name:").starts_with("simnccl-"));
    ours.map(|text| u64::from_str_radix(&field(&text, "SigBlk:"), 16).expect("a mask")).collect()
}

/// Hazard (resource leak): descriptors or threads of an ended communicator stay.
#[test]
fn an_ended_communicator_leaves_no_descriptor_and_no_thread() {
    ranks(1, &[], |_| {
        let descriptors = || std::fs::read_dir("/proc/self/fd").expect("this process").count();
        let (stream, place) = (stream(), allocate(64));
        let before = descriptors();
        for round in 0..20 {
            let (mut id, mut communicator) = (UniqueId([0; 128]), Handle(0));
            ok!(ncclGetUniqueId(&raw mut id));
            ok!(ncclCommInitRank(&raw mut communicator, 1, id, 0));
            ok!(ncclGroupStart());
            assert_eq!(send(place, 32, 0, communicator, stream), Code::SUCCESS);
            assert_eq!(receive(place + 32, 32, 0, communicator, stream), Code::SUCCESS);
            ok!(ncclGroupEnd());
            match round % 2 {
                0 => ok!(ncclCommDestroy(communicator)),
                _ => ok!(ncclCommAbort(communicator)),
            }
        }
        synchronize(stream);
        // The root of the test's own id still waits for ranks, as NCCL's does.
        until("all other threads end", || masks_of_threads().len() == 1);
        assert_eq!(descriptors(), before);
    });
}
