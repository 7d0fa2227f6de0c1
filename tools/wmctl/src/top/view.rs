//! What a person has moved and chosen at the terminal, and what each key does. Pure.

use std::collections::BTreeSet;

use super::column::Column;
use super::keys::TerminalKey;
use super::lines::{LineKey, ScreenLine, ViewChoice};

/// What a key leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyOutcome {
    Stay,
    End,
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct ScreenView {
    pub(super) choice: ViewChoice,
    /// The filter is being typed.
    pub(super) is_typing: bool,
    /// The help is shown, from this line on.
    pub(super) help: Option<usize>,
    /// The line that is marked.
    pub(super) cursor: usize,
    /// The first line that is shown.
    pub(super) first: usize,
    /// Lines that the screen has room for.
    height: usize,
    /// The marked line, once it was moved: it is followed.
    marked: Option<LineKey>,
    /// All lines' keys, and the trees that can be folded.
    keys: Vec<LineKey>,
    trees: BTreeSet<u32>,
}

impl ScreenView {
    pub(super) fn new(sort: Column) -> Self {
        let (filter, folded) = (String::new(), BTreeSet::new());
        Self {
            choice: ViewChoice { sort, is_reversed: false, filter, folded },
            is_typing: false,
            help: None,
            cursor: 0,
            first: 0,
            height: 1,
            marked: None,
            keys: Vec::new(),
            trees: BTreeSet::new(),
        }
    }

    /// Takes the lines that are to be shown, and the room for them.
    pub(super) fn fit(&mut self, lines: &[ScreenLine<'_>], height: usize) {
        self.height = height.max(1);
        self.keys = lines.iter().map(ScreenLine::key).collect();
        let tree = |line: &ScreenLine<'_>| match line {
            ScreenLine::Program(line) if !line.below.is_empty() => Some(line.process.pid),
            _ => None,
        };
        self.trees = lines.iter().filter_map(tree).collect();
        let followed = self.marked.as_ref().and_then(|marked| self.keys.iter().position(|key| key == marked));
        self.cursor = followed.unwrap_or(self.cursor);
        self.keep_in_sight();
    }

    fn keep_in_sight(&mut self) {
        let count = self.keys.len();
        self.cursor = self.cursor.min(count.saturating_sub(1));
        let last_first = count.saturating_sub(self.height);
        let least = (self.cursor + 1).saturating_sub(self.height);
        self.first = self.first.clamp(least, self.cursor.max(least)).min(last_first);
    }

    fn move_to(&mut self, line: usize) {
        self.cursor = line;
        self.keep_in_sight();
        self.marked = self.keys.get(self.cursor).cloned();
    }

    /// Does what a key stands for.
    pub(super) fn press(&mut self, key: TerminalKey) -> KeyOutcome {
        if self.is_typing {
            self.type_in(key);
        } else if key == TerminalKey::Char('q') {
            return KeyOutcome::End;
        } else if let Some(first) = self.help {
            self.help = self.scrolled(first, key);
        } else {
            self.command(key);
        }
        KeyOutcome::Stay
    }

    /// The help's first line after a key. Keys that move nothing close it.
    fn scrolled(&self, first: usize, key: TerminalKey) -> Option<usize> {
        Some(match key {
            TerminalKey::Up | TerminalKey::Char('k') => first.saturating_sub(1),
            TerminalKey::Down | TerminalKey::Char('j') => first + 1,
            TerminalKey::PageUp | TerminalKey::Home => first.saturating_sub(self.height),
            TerminalKey::PageDown | TerminalKey::End => first + self.height,
            _ => return None,
        })
    }

    fn type_in(&mut self, key: TerminalKey) {
        match key {
            TerminalKey::Char(character) => self.choice.filter.push(character),
            TerminalKey::Backspace if self.choice.filter.is_empty() => self.is_typing = false,
            TerminalKey::Backspace => drop(self.choice.filter.pop()),
            TerminalKey::Enter => self.is_typing = false,
            TerminalKey::Escape => {
                self.choice.filter.clear();
                self.is_typing = false;
            }
            _ => {}
        }
    }

    fn command(&mut self, key: TerminalKey) {
        let (page, last) = (self.height.saturating_sub(1).max(1), self.keys.len().saturating_sub(1));
        match key {
            TerminalKey::Up | TerminalKey::Char('k') => self.move_to(self.cursor.saturating_sub(1)),
            TerminalKey::Down | TerminalKey::Char('j') => self.move_to(self.cursor + 1),
            TerminalKey::PageUp => self.move_to(self.cursor.saturating_sub(page)),
            TerminalKey::PageDown => self.move_to(self.cursor + page),
            TerminalKey::Home | TerminalKey::Char('g') => self.move_to(0),
            TerminalKey::End | TerminalKey::Char('G') => self.move_to(last),
            TerminalKey::Char('?') => self.help = Some(0),
            TerminalKey::Char('/') => self.is_typing = true,
            TerminalKey::Escape => self.choice.filter.clear(),
            TerminalKey::Char('<') => self.sort_by(self.choice.sort.beside(-1)),
            TerminalKey::Char('>') => self.sort_by(self.choice.sort.beside(1)),
            TerminalKey::Char('f') => self.fold_all(),
            TerminalKey::Left | TerminalKey::Right | TerminalKey::Enter | TerminalKey::Char(' ') => {
                self.fold(key)
            }
            TerminalKey::Char(letter) => {
                if let Some(column) = Column::of_key(letter) {
                    self.sort_by(column);
                }
            }
            TerminalKey::Backspace => {}
        }
    }

    /// The same column again turns the order round.
    fn sort_by(&mut self, column: Column) {
        self.choice.is_reversed = column == self.choice.sort && !self.choice.is_reversed;
        self.choice.sort = column;
    }

    fn fold(&mut self, key: TerminalKey) {
        let Some(LineKey::Program(_, pid)) = self.keys.get(self.cursor) else { return };
        let folds = match key {
            TerminalKey::Left => true,
            TerminalKey::Right => false,
            _ => !self.choice.folded.contains(pid),
        };
        if folds && self.trees.contains(pid) {
            self.choice.folded.insert(*pid);
        } else {
            self.choice.folded.remove(pid);
        }
    }

    /// Folds all trees, or unfolds all if one is folded.
    fn fold_all(&mut self) {
        let was_folded = !self.choice.folded.is_empty();
        self.choice.folded.clear();
        if !was_folded {
            self.choice.folded.extend(&self.trees);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a key scrolls out of the list, or a program that was marked is
    //! another one in the next reading.
    use super::*;

    fn texts<'a>(names: impl IntoIterator<Item = usize>) -> Vec<ScreenLine<'a>> {
        names.into_iter().map(|name| ScreenLine::Text(name.to_string())).collect()
    }

    fn view(count: usize, height: usize) -> ScreenView {
        let mut view = ScreenView::new(Column::Pid);
        view.fit(&texts(0..count), height);
        view
    }

    fn press(view: &mut ScreenView, keys: &[TerminalKey]) {
        for key in keys {
            assert_eq!(view.press(*key), KeyOutcome::Stay);
        }
    }

    #[test]
    fn no_key_leaves_the_list() {
        use TerminalKey::{Char, Down, End, Home, PageDown, PageUp, Up};
        let mut random = fastrand::Rng::with_seed(7);
        let mut view = view(20, 5);
        for _ in 0..5000 {
            let keys = [Up, Down, PageUp, PageDown, Home, End, Char('j'), Char('k'), Char('g'), Char('G')];
            press(&mut view, &[keys[random.usize(..keys.len())]]);
            if random.u8(..10) == 0 {
                view.fit(&texts(0..random.usize(..30)), random.usize(..9));
            }
            let count = view.keys.len();
            assert!(view.cursor < count.max(1) && view.first <= view.cursor);
            assert!(view.cursor < view.first + view.height, "{view:?}");
            assert!(view.first + view.height <= count.max(view.height), "no empty lines below: {view:?}");
        }
    }

    #[test]
    fn a_line_that_was_marked_is_followed() {
        let mut view = view(9, 4);
        press(&mut view, &[TerminalKey::Down, TerminalKey::Down]);
        view.fit(&texts((0..9).rev()), 4);
        assert_eq!((view.cursor, view.first), (6, 3));
        view.fit(&texts(5..9), 4);
        assert_eq!(view.cursor, 3, "it is gone: the line in its place");
        press(&mut view, &[TerminalKey::PageDown, TerminalKey::PageUp]);
        assert_eq!((view.cursor, view.first), (0, 0));
    }

    #[test]
    fn the_same_column_again_turns_the_order_round() {
        let mut view = view(3, 3);
        press(&mut view, &[TerminalKey::Char('l')]);
        assert_eq!((view.choice.sort, view.choice.is_reversed), (Column::Live, false));
        press(&mut view, &[TerminalKey::Char('l')]);
        assert!(view.choice.is_reversed);
        press(&mut view, &[TerminalKey::Char('>')]);
        assert_eq!((view.choice.sort, view.choice.is_reversed), (Column::Reserved, false));
        press(&mut view, &[TerminalKey::Char('<'), TerminalKey::Char('p'), TerminalKey::Char('x')]);
        assert_eq!(view.choice.sort, Column::Pid);
    }

    #[test]
    fn a_filter_takes_letters_that_are_keys_elsewhere() {
        let mut view = view(3, 3);
        press(&mut view, &"/qjl".chars().map(TerminalKey::Char).collect::<Vec<_>>());
        press(&mut view, &[TerminalKey::Backspace, TerminalKey::Up, TerminalKey::Enter]);
        assert_eq!(
            (view.choice.filter.as_str(), view.is_typing, view.choice.sort),
            ("qj", false, Column::Pid)
        );
        press(&mut view, &[TerminalKey::Escape]);
        assert_eq!(view.choice.filter, "");
        press(
            &mut view,
            &[
                TerminalKey::Char('/'),
                TerminalKey::Char('x'),
                TerminalKey::Escape,
                TerminalKey::Char('?'),
                TerminalKey::Char('l'),
            ],
        );
        assert!(view.help.is_none() && !view.is_typing && view.choice.filter.is_empty());
        assert_eq!((view.choice.sort, view.press(TerminalKey::Char('q'))), (Column::Pid, KeyOutcome::End));
    }
}
