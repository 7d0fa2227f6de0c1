//! What a program may change of itself: `wmshim_limit`, `wmshim_trim`, `wmshim_detach` and
//! `wmshim_attach` of wmshim.h, as `wmctl` changes it from outside.
//!
//! The calling thread is the program's: its other calls are not held up until the GPU is idle.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use wm_abi::CUresult;

use crate::advice::{is_ready, safely};
use crate::control::{self, StepCaller};
use crate::endpoint::{ChangeRequest, LimitRequest};

/// How long a call waits for the GPU. wmshim.h says so.
const PATIENCE: Duration = Duration::from_secs(2);

/// `int wmshim_limit(size_t bytes)`.
#[unsafe(no_mangle)]
extern "C" fn wmshim_limit(bytes: usize) -> c_int {
    safely(|| limit(bytes as u64)).0.cast_signed()
}

fn limit(bytes: u64) -> Result<(), CUresult> {
    is_ready()?;
    let until = Instant::now() + PATIENCE;
    let mut wish = Some(bytes);
    loop {
        let change = ChangeRequest::Limit(LimitRequest { device: None, bytes: wish.take() });
        let made = control::change(&change, StepCaller::Program);
        if made.devices.iter().all(|device| device.beyond_bytes == 0) && !made.goes_on {
            return Ok(());
        }
        if !made.goes_on {
            return Err(CUresult::NOT_PERMITTED);
        }
        if Instant::now() >= until {
            return Err(CUresult::NOT_READY);
        }
    }
}

/// `int wmshim_trim(void)`.
#[unsafe(no_mangle)]
extern "C" fn wmshim_trim() -> c_int {
    safely(|| make(&ChangeRequest::Trim)).0.cast_signed()
}

/// `int wmshim_detach(void)`.
#[unsafe(no_mangle)]
extern "C" fn wmshim_detach() -> c_int {
    safely(|| make(&ChangeRequest::Detach)).0.cast_signed()
}

/// `int wmshim_attach(void)`.
#[unsafe(no_mangle)]
extern "C" fn wmshim_attach() -> c_int {
    safely(|| make(&ChangeRequest::Attach)).0.cast_signed()
}

/// Makes a change, for as long as another step may do more.
fn make(change: &ChangeRequest) -> Result<(), CUresult> {
    is_ready()?;
    let until = Instant::now() + PATIENCE;
    while control::change(change, StepCaller::Program).goes_on {
        if Instant::now() >= until {
            return Err(CUresult::NOT_READY);
        }
    }
    Ok(())
}
