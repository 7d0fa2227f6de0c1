//! Gives the library NCCL's SONAME.

fn main() {
    // -Bsymbolic: a call inside the library never reaches another NCCL of the process. The library
    // stays mapped, because its threads run its code.
    for argument in ["-Wl,-soname,libnccl.so.2", "-Wl,-Bsymbolic", "-Wl,-z,nodelete"] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
