//! What one allocation costs on each path, without a driver: bookkeeping alone.

fn main() {
    divan::main();
}
