//! Hazard (vacuous test): memory that two processes share is not the same memory, or the simulated
//! driver survives `fork`.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use common::*;

/// Runs a function in a child made by `fork`. Its result is the child's exit status.
fn in_child(body: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child runs the body and leaves without returning.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(101);
        // SAFETY: leaves at once: no destructors of the parent's threads.
        unsafe { libc::_exit(status) };
    }
    child
}

fn status_of(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

#[test]
fn a_child_of_an_initialised_process_has_no_driver() {
    start(&[]);
    let child = in_child(|| {
        let (mut count, mut address) = (0, 0);
        fails!(NOT_INITIALIZED, cuDeviceGetCount(&raw mut count));
        fails!(NOT_INITIALIZED, cuMemAlloc_v2(&raw mut address, 16));
        fails!(NOT_INITIALIZED, cuInit(0));
        fails!(NOT_INITIALIZED, cuTexRefCreate());
        ok!(cuDriverGetVersion(&raw mut count));
        0
    });
    assert_eq!(status_of(child), 0);
    let mut count = 0;
    ok!(cuDeviceGetCount(&raw mut count));
}

#[test]
fn a_child_that_comes_before_init_works() {
    let child = in_child(|| {
        start(&[]);
        upload(allocate(16), &[1, 2]);
        ok!(cuCtxSynchronize());
        0
    });
    assert_eq!(status_of(child), 0);
    start(&[]);
}

/// Hazard (vacuous test): a process that is locked goes on, or a step is taken out of order.
#[test]
fn a_process_that_is_locked_makes_no_call_and_the_states_follow_each_other() {
    let folder = std::env::temp_dir().join(format!("simcuda-checkpoints-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let place = folder.to_str().expect("a readable path");
    let (mut ours, theirs) = UnixStream::pair().expect("sockets");
    let child = in_child(|| {
        start(&[("SIMCUDA_CHECKPOINTS", place)]);
        let mut theirs = theirs;
        let mut word = [0];
        // Each byte that comes is answered after a call.
        while theirs.read_exact(&mut word).is_ok() && word[0] != 0 {
            ok!(cuCtxSynchronize());
            theirs.write_all(&word).expect("the parent listens");
        }
        0
    });
    start(&[("SIMCUDA_CHECKPOINTS", place)]);
    let answered = |ours: &mut UnixStream| {
        let mut word = [0];
        ours.read_exact(&mut word).is_ok()
    };
    let state = || {
        let mut state = 9;
        ok!(cuCheckpointProcessGetState(child, &raw mut state));
        state
    };
    ours.write_all(&[1]).expect("the child listens");
    assert!(answered(&mut ours), "it has a driver now");
    let null = std::ptr::null_mut();
    fails!(ILLEGAL_STATE, cuCheckpointProcessCheckpoint(child, null));
    fails!(ILLEGAL_STATE, cuCheckpointProcessUnlock(child, null));
    fails!(INVALID_VALUE, cuCheckpointProcessLock(-1, null));
    ok!(cuCheckpointProcessLock(child, null));
    fails!(ILLEGAL_STATE, cuCheckpointProcessLock(child, null));
    fails!(ILLEGAL_STATE, cuCheckpointProcessRestore(child, null));
    ok!(cuCheckpointProcessCheckpoint(child, null));
    assert_eq!(state(), CU_PROCESS_STATE_CHECKPOINTED);
    ours.write_all(&[1]).expect("the child listens");
    // What does not come cannot be waited for; the call takes microseconds where it is made.
    ours.set_read_timeout(Some(std::time::Duration::from_millis(200))).expect("a limit");
    assert!(!answered(&mut ours), "its call waits");
    ours.set_read_timeout(None).expect("no limit");
    fails!(ILLEGAL_STATE, cuCheckpointProcessUnlock(child, null));
    ok!(cuCheckpointProcessRestore(child, null));
    ok!(cuCheckpointProcessUnlock(child, null));
    assert_eq!(state(), CU_PROCESS_STATE_RUNNING);
    assert!(answered(&mut ours), "its call goes on");
    ours.write_all(&[0]).expect("the child listens");
    assert_eq!(status_of(child), 0);
    fails!(INVALID_VALUE, cuCheckpointProcessLock(child, null));
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

/// Sends one descriptor with one byte.
fn send_descriptor(socket: &UnixStream, descriptor: i32) {
    pass_descriptor(socket, Some(descriptor));
}

fn receive_descriptor(socket: &UnixStream) -> i32 {
    pass_descriptor(socket, None)
}

fn pass_descriptor(socket: &UnixStream, send: Option<i32>) -> i32 {
    use std::os::fd::AsRawFd;
    let (mut byte, mut control) = ([7_u8], [0_u64; 4]);
    let mut data = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: a message with one byte and room for one descriptor.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut data, 1);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as usize;
        if let Some(descriptor) = send {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(header).cast::<i32>().write_unaligned(descriptor);
            assert_eq!(libc::sendmsg(socket.as_raw_fd(), &raw const message, 0), 1);
            return descriptor;
        }
        assert_eq!(libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0), 1);
        libc::CMSG_DATA(libc::CMSG_FIRSTHDR(&raw const message)).cast::<i32>().read_unaligned()
    }
}

#[test]
fn a_descriptor_carries_memory_to_another_process() {
    let (here, there) = UnixStream::pair().unwrap();
    let child = in_child(|| {
        start(&[]);
        let descriptor = receive_descriptor(&there);
        let (mut handle, range) = (0, reserve(UNIT));
        ok!(cuMemImportFromShareableHandle(
            &raw mut handle,
            descriptor as usize as *mut _,
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        ));
        ok!(cuMemMap(range, UNIT, 0, handle, 0));
        assert_eq!(
            access(range, UNIT, CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
            CUresult::SUCCESS
        );
        assert_eq!(download(range, 2), [31, 32]);
        upload(range + 4, &[33]);
        (&there).write_all(&[1]).unwrap();
        0
    });
    start(&[]);
    let (range, handle) =
        (reserve(UNIT), create(UNIT, CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    ok!(cuMemMap(range, UNIT, 0, handle, 0));
    assert_eq!(
        access(range, UNIT, CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
        CUresult::SUCCESS
    );
    upload(range, &[31, 32]);
    let mut descriptor = -1;
    ok!(cuMemExportToShareableHandle(
        (&raw mut descriptor).cast(),
        handle,
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        0
    ));
    send_descriptor(&here, descriptor);
    (&here).read_exact(&mut [0]).unwrap();
    assert_eq!(status_of(child), 0);
    assert_eq!(download(range, 2), [31, 33]);
}

#[test]
fn only_what_was_made_to_be_shared_is() {
    start(&[]);
    let (handle, mut descriptor) = (create(UNIT, CU_MEM_LOCATION_TYPE_DEVICE, 0), -1);
    let place = (&raw mut descriptor).cast();
    fails!(
        INVALID_VALUE,
        cuMemExportToShareableHandle(place, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)
    );
    let mut imported = 0;
    let input = std::ptr::null_mut();
    fails!(
        INVALID_VALUE,
        cuMemImportFromShareableHandle(&raw mut imported, input, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    );
}

#[test]
fn a_plain_block_opens_in_another_process() {
    let (here, there) = UnixStream::pair().unwrap();
    let child = in_child(|| {
        start(&[]);
        let mut ticket = CUipcMemHandle { reserved: [0; 64] };
        (&there).read_exact(&mut ticket.reserved).unwrap();
        let (mut first, mut second) = (0, 0);
        ok!(cuIpcOpenMemHandle_v2(&raw mut first, ticket, 1));
        ok!(cuIpcOpenMemHandle_v2(&raw mut second, ticket, 1));
        assert_eq!((first, download(first, 2)), (second, vec![51, 52]));
        assert_eq!(fill(first, 1, 53, CUstream::NULL), CUresult::SUCCESS);
        ok!(cuCtxSynchronize());
        fails!(INVALID_VALUE, cuMemFree_v2(first));
        ok!(cuIpcCloseMemHandle(first));
        assert_eq!(download(first, 1), [53]);
        ok!(cuIpcCloseMemHandle(first));
        fails!(INVALID_VALUE, cuIpcCloseMemHandle(first));
        ticket.reserved[0] = 0;
        fails!(INVALID_VALUE, cuIpcOpenMemHandle_v2(&raw mut first, ticket, 1));
        0
    });
    start(&[]);
    let (block, mut ticket) = (allocate(5000), CUipcMemHandle { reserved: [0; 64] });
    upload(block, &[51, 52]);
    ok!(cuIpcGetMemHandle(&raw mut ticket, block + 8));
    let mut own = 0;
    fails!(INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&raw mut own, ticket, 1));
    (&here).write_all(&ticket.reserved).unwrap();
    assert_eq!(status_of(child), 0);
    assert_eq!(download(block, 2), [53, 52]);
}

/// The program's own exit handler, which was registered first and so runs last, checks the result
/// of a call.
extern "C" fn late() {
    let mut count = 0;
    // SAFETY: an out-pointer to a live local; `_exit` ends the process at once.
    unsafe { libc::_exit(i32::from(cuDeviceGetCount(&raw mut count) == CUresult::DEINITIALIZED)) };
}

/// Hazard: an exit during a driver call succeeds here and crashes on NVIDIA's.
#[test]
fn after_the_drivers_exit_handler_there_is_no_driver() {
    let child = in_child(|| {
        // SAFETY: a handler that stays valid; then the process ends, with all its handlers.
        unsafe { libc::atexit(late) };
        start(&[]);
        // SAFETY: ends the process, with all its handlers.
        unsafe { libc::exit(3) }
    });
    assert_eq!(status_of(child), 1);
}

/// Ends the process while another thread waits for a stream that is never released.
fn exit_beside_a_call(variable: &[(&str, &str)]) -> i32 {
    let child = in_child(|| {
        let context = start(variable);
        let stream = stream(CU_STREAM_NON_BLOCKING);
        let flag = allocate(4);
        ok!(cuMemsetD32_v2(flag, 0, 1));
        ok!(cuStreamWaitValue32_v2(stream, flag, 1, 1));
        let (here, there) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            ok!(cuCtxSetCurrent(context));
            here.send(()).expect("heard");
            ok!(cuStreamSynchronize(stream));
        });
        there.recv().expect("it is about to call");
        std::thread::sleep(std::time::Duration::from_millis(200));
        // SAFETY: ends the process, with all its handlers.
        unsafe { libc::exit(3) }
    });
    status_of(child)
}

#[test]
fn a_thread_inside_a_call_crashes_at_the_end_where_that_is_wanted() {
    assert_eq!(exit_beside_a_call(&[]), 3);
    assert_eq!(exit_beside_a_call(&[("SIMCUDA_EXIT", "crash")]), -libc::SIGSEGV);
}

/// Hazard: processes with one ledger do not compete for memory, or the memory of a killed one is
/// lost.
#[test]
fn processes_with_one_ledger_compete_and_what_a_killed_one_held_is_free() {
    let path = std::env::temp_dir().join(format!("simcuda-shared-{}", std::process::id()));
    let shared = path.to_str().expect("a readable path").to_owned();
    let settings = [("SIMCUDA_MEMORY", "64MiB"), ("SIMCUDA_SHARED", &shared)];
    let (mut here, mut there) = UnixStream::pair().expect("a pair");
    let child = in_child(|| {
        start(&settings);
        allocate(48 << 20);
        there.write_all(&[1]).expect("heard");
        loop {
            std::thread::park();
        }
    });
    drop(there);
    here.read_exact(&mut [0]).expect("it has its memory");
    start(&settings);
    let mut address = 0;
    fails!(OUT_OF_MEMORY, cuMemAlloc_v2(&raw mut address, 32 << 20));
    assert_eq!(free_memory(), 16 << 20);
    // SAFETY: our own child.
    unsafe { libc::kill(child, libc::SIGKILL) };
    assert_eq!(status_of(child), -libc::SIGKILL);
    assert_eq!(free_memory(), 64 << 20);
    ok!(cuMemAlloc_v2(&raw mut address, 64 << 20));
    ok!(cuMemFree_v2(address));
    assert_eq!(free_memory(), 64 << 20);
    std::fs::remove_file(path).expect("ours");
}
