//! `wmshimd`: holds descriptors of memory that several processes of one user share, and lets go of
//! them when the last user goes.
//!
//! It has no CUDA context and no GPU memory. The library starts it when a process first needs it;
//! it ends when no process has shared anything for a minute. One a folder: a second one finds the
//! first and ends. Its standard output stays open until it listens, or has found that another one
//! does: its end tells the process that started it.

mod arguments;
mod lines;
mod system;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use wm_dedup::server::place::{self, Claimed};
use wm_dedup::server::{BrokerServer, ServerSettings, limits};

use arguments::{BrokerArguments, Wanted};

/// The interval between checks of the socket's file. A cleaner of `/tmp` removes it after days.
const CHECK: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    match arguments::parse(std::env::args_os().skip(1)) {
        Ok(Wanted::Broker(arguments)) => outcome(broker(&arguments)),
        Ok(Wanted::Text(text)) => {
            eprintln!("{text}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("wmshimd: {problem}");
            ExitCode::from(2)
        }
    }
}

fn outcome(result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wmshimd: {error}");
            ExitCode::FAILURE
        }
    }
}

fn broker(arguments: &BrokerArguments) -> io::Result<()> {
    let unknown = || {
        io::Error::other(
            "users without a number in this user namespace look alike, and this process is one of them",
        )
    };
    let user = wm_trust::user::own().ok_or_else(unknown)?;
    // Before anything is opened, and before the working folder changes.
    system::close_inherited();
    let folder = arguments.folder()?;
    // For good: standard output is to become the same, at a moment that a process which counts
    // descriptors can see.
    rustix::stdio::dup2_stdin(null()?)?;
    if arguments.foreground {
        lines::to_stderr();
    } else if !detach()? {
        return Ok(());
    }
    let Claimed::Won(place) = place::claim(&folder)? else {
        log::info!("another broker listens in {}", folder.display());
        return Ok(());
    };
    let (limits, ask_peer) = (limits::raise(), wm_trust::peer::identity as _);
    let settings = ServerSettings { idle: arguments.idle, check: CHECK, limits, user, ask_peer };
    let server = BrokerServer::listen(place, settings)?;
    log::info!("listens in {}, with room for {} chunks", folder.display(), limits.chunks);
    rustix::stdio::dup2_stdout(rustix::stdio::stdin())?;
    server.run()
}

/// Leaves the terminal and the folder of the process that started it. Returns false in the process
/// that ends, after it made the child that goes on.
fn detach() -> io::Result<bool> {
    if rustix::process::setsid().is_err() {
        // The first process of a group, as a shell starts it, cannot leave it.
        let itself = std::env::current_exe()?;
        std::process::Command::new(itself).args(std::env::args_os().skip(1)).spawn()?;
        return Ok(false);
    }
    rustix::process::chdir("/")?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    rustix::stdio::dup2_stderr(null()?)?;
    Ok(true)
}

fn null() -> io::Result<std::os::fd::OwnedFd> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    Ok(rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())?)
}
