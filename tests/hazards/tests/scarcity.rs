//! Guards against unused memory of ours that stands in the way of memory which is the driver's to give.

use hazards::{Host, Scratch, c, driver};

#[test]
fn a_pool_of_the_programs_own_gets_what_we_do_not_use() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "own_pool");
    // More than is given back at once, so that all of it must be.
    let host = Host::shimmed(program, &scratch, &driver).env("SIMCUDA_MEMORY", "1GiB");
    assert_eq!(host.run().expect_success(), "0");
}
