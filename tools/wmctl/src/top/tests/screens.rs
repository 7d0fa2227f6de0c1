//! Hazard (wrong report): a screen loses the figures that matter, or lines of it run into each
//! other. The screens as they are drawn lie in `screens`.

use std::path::{Path, PathBuf};

use ratatui_core::style::{Color, Modifier};

use super::*;

/// Set: the files are written, and not compared.
const WRITE: &str = "WMCTL_WRITE_SCREENS";

/// Compares a text with a file of this crate or of the pages.
pub(super) fn compare(path: &str, text: &str) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os(WRITE).is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(&path, text).expect("written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, kept, "{} is another; {WRITE}=1 cargo test -p wmctl top:: writes it", path.display());
}

#[test]
fn screens_of_all_sizes_are_as_they_were() {
    for (width, height) in [(40, 6), (80, 24), (200, 50)] {
        for count in [0, 9, 200] {
            let drawn = text(&screen(&machine(count), (width, height), &[], LOOK));
            compare(&format!("src/top/screens/{width}x{height}-{count}.txt"), &drawn);
        }
    }
}

#[test]
fn keys_lead_to_screens_that_are_as_they_were() {
    let change = machine(9);
    let scrolled = [TerminalKey::Char('o'), TerminalKey::Down, TerminalKey::PageDown, TerminalKey::PageDown];
    for (name, size, keys) in [
        ("sorted-and-scrolled", (80, 9), scrolled.to_vec()),
        ("filtered", (80, 12), [typed("/solve"), vec![TerminalKey::Enter]].concat()),
        ("typing", (80, 12), typed("/4066")),
        ("folded", (80, 14), typed("f")),
        ("help", (80, 24), typed("?")),
        ("help-scrolled", (40, 6), [typed("?"), vec![TerminalKey::PageDown]].concat()),
    ] {
        compare(&format!("src/top/screens/{name}.txt"), &text(&screen(&change, size, &keys, LOOK)));
    }
}

#[test]
fn no_size_is_too_small() {
    let change = machine(9);
    for width in (1..60).step_by(4) {
        for height in 1..7 {
            let keys = [
                TerminalKey::Down,
                TerminalKey::End,
                TerminalKey::Char('?'),
                TerminalKey::Down,
                TerminalKey::Escape,
                TerminalKey::Char('/'),
                TerminalKey::Char('ä'),
            ];
            screen(&change, (width, height), &keys, LOOK);
        }
    }
}

#[test]
fn names_of_programs_move_no_cursor_and_wide_letters_keep_to_their_column() {
    let mut change = machine(1);
    change.processes[0].identity.user = Some("\x1b[31m用户".to_owned());
    change.processes[0].identity.command = vec!["训练\t\u{202e}x".repeat(9)];
    let drawn = text(&screen(&change, (80, 5), &[], LOOK));
    assert!(!drawn.contains(['\x1b', '\t', '\u{202e}']), "{drawn}");
    assert!(drawn.lines().all(|line| line.chars().count() <= 80), "{drawn}");
    let figure = drawn.lines().find_map(|line| line.find("512.0 MiB"));
    assert_eq!(figure.map(|at| drawn.lines().nth(2).expect("a row")[..at].contains("\\x1b[31m")), Some(true));
}

#[test]
fn colours_and_letters_beyond_ascii_are_left_out_where_they_are_not_wanted() {
    let change = machine(9);
    let colour = |look| {
        let drawn = screen(&change, (80, 24), &[], look);
        drawn.content().iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(colour(LOOK) && !colour(Look { has_colours: false, ..LOOK }));
    let marked = screen(&change, (80, 24), &[TerminalKey::Down], Look { has_colours: false, ..LOOK });
    let reversed =
        |row: u16| marked.cell((0, row)).is_some_and(|cell| cell.modifier.contains(Modifier::REVERSED));
    assert!(reversed(2) && !reversed(1), "the marked line shows without colours");
    let mut named = machine(9);
    named.processes[0].identity.user = Some("jürgen".to_owned());
    let plain = Look { is_plain: true, ..LOOK };
    let drawn = text(&screen(&named, (80, 24), &[], plain));
    assert!(drawn.is_ascii() && drawn.contains("j?rgen") && drawn.contains("`-"), "{drawn}");
}

#[test]
fn what_stays_the_same_is_not_sent_again() {
    let (before, mut change) = (machine(200), machine(200));
    change.processes[0].devices[0].host_bytes = 3 * GIB;
    let [before, after] = [&before, &change].map(|change| screen(change, (200, 50), &[], LOOK));
    let sent = before.diff(&after);
    assert!((1..30).contains(&sent.len()), "{} cells", sent.len());
}

#[test]
fn a_stopped_and_a_silent_program_say_so() {
    for width in [40, 80] {
        let drawn = text(&screen(&machine(9), (width, 24), &[], LOOK));
        let line =
            |pid: &str| drawn.lines().find(|line| line.trim_start().starts_with(pid)).expect(pid).to_owned();
        assert!(line("4044").contains(" stopped"), "{drawn}");
        assert!(line("4077").contains("does not"), "{drawn}");
    }
}

#[test]
fn the_users_variables_choose_the_look() {
    let look = |set: &[(&str, &str)]| {
        let variable =
            |name: &str| set.iter().find(|(one, _)| *one == name).map(|(_, value)| (*value).to_owned());
        let Look { has_colours, is_plain } = Look::of(&variable);
        (has_colours, is_plain)
    };
    assert_eq!(look(&[("TERM", "xterm"), ("LANG", "de_DE.UTF-8")]), (true, false));
    assert_eq!(look(&[("TERM", "xterm"), ("LANG", "de_DE.UTF-8"), ("LC_ALL", "C")]), (true, true));
    assert_eq!(look(&[("TERM", "xterm"), ("LC_CTYPE", "C.utf8"), ("NO_COLOR", "1")]), (false, false));
    assert_eq!(look(&[("TERM", "dumb"), ("LANG", "C.UTF-8")]), (false, false));
    assert_eq!(look(&[]), (false, true));
}
