//! Link settings that make the preloaded library answer for the driver.
//!
//! * SONAME `libcuda.so.1`: the loader then answers every later request for that name with us.
//! * RPATH `$ORIGIN` (not RUNPATH): lets us register the name `libcuda.so` through a sibling link.
//! * `nodelete`: trampolines stay valid whatever a host does with its handle.

fn main() {
    for argument in ["-soname,libcuda.so.1", "-rpath,$ORIGIN", "--disable-new-dtags", "-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
