//! Hazard (symbol interposition): a program reaches the driver past the shim, or does not find its
//! own libraries.
//!
//! A row of the matrix that changes for the worse means programs whose memory is not served; one
//! that changes for the better must be written into the table, which the page
//! `docs/dev/interception.md` shows.

use hazards::matrix::{self, Bench, LAYOUTS, ROWS};
use hazards::places;

/// One test a row, in all layouts.
macro_rules! rows {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        /// A row without a test would be unproven.
        #[test]
        fn every_row_has_its_test() {
            let tested = [$(stringify!($name)),*];
            let rows: Vec<_> = ROWS.iter().map(|row| row.name).collect();
            assert_eq!(rows, tested);
        }
    };
}

rows! {
    now lazy_global deepbind noload noload_after unversioned absolute absolute_full after_absolute after_unversioned
    linked plugin plugin_deepbind plugin_asks deep_plugin_asks deep_plugin_asks_absolute
    linked_plugin_asks_absolute default_scope namespace namespace_absolute forked_child after_exec after_scrubbed_exec ctypes ctypes_unversioned ctypes_absolute
    ctypes_self
}

fn check(name: &str) {
    let row = ROWS.iter().find(|row| row.name == name).expect("a row of the matrix");
    let bench = Bench::new();
    let reached = LAYOUTS.map(|layout| bench.measure(row, layout));
    assert_eq!(reached, row.reached, "{}, {LAYOUTS:?}", row.way);
}

#[test]
fn the_page_shows_the_matrix() {
    let page = std::fs::read_to_string(places::workspace("docs/dev/interception.md"))
        .expect("docs/dev/interception.md");
    assert!(
        page.contains(&matrix::page()),
        "docs/dev/interception.md must hold this table:\n{}",
        matrix::page()
    );
}

/// The column of `wmctl run` above is measured with the variables that it should set; here the
/// command itself sets them.
#[test]
fn under_wmctl_run() {
    let bench = Bench::new();
    for row in
        ROWS.iter().filter(|row| ["unversioned", "absolute_full", "after_scrubbed_exec"].contains(&row.name))
    {
        assert_eq!(bench.measure_under_wmctl(row), row.reached[0], "{}", row.way);
    }
}

/// A wheel has only the file, and a plugin or a launcher must still not reach two libraries in one
/// program.
#[test]
fn under_wmctl_run_of_a_wheel() {
    let bench = Bench::new();
    for row in ROWS {
        assert_eq!(bench.measure_in_wheel(row), row.reached[0], "{}", row.way);
    }
}
