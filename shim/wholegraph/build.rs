//! The library answers for `libwholegraph.so`, under whatever path it is opened, and stays when its
//! handle is closed: others have its functions' addresses.

fn main() {
    for argument in ["-soname,libwholegraph.so", "-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
