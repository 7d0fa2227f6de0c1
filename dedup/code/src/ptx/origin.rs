//! Where a value may come from: the lattice of the analysis.
//!
//! A value is a set of alternatives. Each is a sum: one of its parts is an address, or none is, and
//! the others are offsets. Alternatives stay apart, since a pointer that was loaded and one that
//! was passed are two addresses, while a pointer that was passed and an index that was loaded are
//! one.

use crate::verdict::{AddressSource, WordSet};

/// More alternatives are put together into one that is [loose](Origin::loose).
const MOST: usize = 8;

/// One alternative. Without any part it is a number that the kernel made, such as an index.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin {
    /// Words of the kernel's parameters that are summands.
    pub(super) words: WordSet,
    /// Words that take part in another way: as factors, shifted, taken away.
    pub(super) offsets: WordSet,
    /// Words of the kernel's parameters of which this is the address.
    pub(super) addresses: WordSet,
    /// What the kernel loaded.
    pub(super) memory: bool,
    /// The address of a variable of the module, or of the device's heap.
    pub(super) globals: bool,
    /// The address of memory of the block or the thread.
    pub(super) own: bool,
    /// The parts were alternatives, so that each of them may be the address.
    pub(super) loose: bool,
}

impl Origin {
    /// Something that was loaded.
    pub(super) fn memory() -> Self {
        Self { memory: true, ..Self::default() }
    }

    /// An address of a variable.
    pub(super) fn globals() -> Self {
        Self { globals: true, ..Self::default() }
    }

    /// An address of shared or local memory.
    pub(super) fn own() -> Self {
        Self { own: true, ..Self::default() }
    }

    /// Values of parameters.
    pub(super) fn words(words: WordSet) -> Self {
        Self { words, ..Self::default() }
    }

    /// Is it no address of memory that others have?
    pub(super) fn is_own(&self) -> bool {
        let has_words = [&self.words, &self.offsets, &self.addresses].iter().any(|words| !words.is_empty());
        !has_words && !self.memory && !self.globals
    }

    /// The same as a factor, or taken away.
    fn as_offset(&self) -> Self {
        Self { words: WordSet::new(), offsets: self.offsets.union(&self.words), ..self.clone() }
    }

    fn with(&self, other: &Self) -> Self {
        Self {
            words: self.words.union(&other.words),
            offsets: self.offsets.union(&other.offsets),
            addresses: self.addresses.union(&other.addresses),
            memory: self.memory | other.memory,
            globals: self.globals | other.globals,
            own: self.own | other.own,
            loose: self.loose | other.loose,
        }
    }

    /// The sources of an address with this origin.
    fn sources(&self) -> Vec<AddressSource> {
        let whole = AddressSource {
            words: self.words.clone(),
            offsets: self.offsets.clone(),
            memory: self.memory,
            globals: self.globals,
        };
        let loaded = AddressSource { memory: true, ..AddressSource::default() };
        let passed = AddressSource { memory: false, ..whole.clone() };
        let all = if self.loose && self.memory { vec![passed, loaded] } else { vec![whole] };
        all.into_iter().filter(|source| *source != AddressSource::default()).collect()
    }
}

/// A set of alternatives. Without any it is a value that is never computed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Value(Vec<Origin>);

impl Value {
    /// A number that the kernel made.
    pub(super) fn number() -> Self {
        Origin::default().into()
    }

    pub(super) fn is_never(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn origins(&self) -> &[Origin] {
        &self.0
    }

    /// Adds another's alternatives; true if one is new.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        let before = self.0.clone();
        for origin in &other.0 {
            if let Err(at) = self.0.binary_search(origin) {
                self.0.insert(at, origin.clone());
            }
        }
        self.bound();
        self.0 != before
    }

    /// One or the other.
    pub(super) fn or(&self, other: &Self) -> Self {
        let mut either = self.clone();
        either.join(other);
        either
    }

    /// The sum: each alternative of one with each of the other.
    pub(super) fn plus(&self, other: &Self) -> Self {
        let sums = self.0.iter().flat_map(|one| other.0.iter().map(move |other| one.with(other)));
        sums.map(Self::from).fold(Self::default(), |all, sum| all.or(&sum))
    }

    /// The same as a factor, or taken away from another value. Of two addresses and one that is
    /// taken away each of the two may be the address in the sum.
    pub(super) fn as_offset(&self) -> Self {
        let offsets = self.0.iter().map(Origin::as_offset).map(Self::from);
        offsets.fold(Self::default(), |all, offset| all.or(&offset))
    }

    /// All words of parameters in it.
    pub(super) fn words(&self) -> WordSet {
        self.0.iter().fold(WordSet::new(), |words, origin| words.union(&origin.words).union(&origin.offsets))
    }

    /// The sources of an address with this value.
    pub(super) fn sources(&self) -> impl Iterator<Item = AddressSource> {
        self.0.iter().flat_map(Origin::sources)
    }

    fn bound(&mut self) {
        if self.0.len() > MOST || self.0.iter().any(|origin| origin.loose) {
            let all = self.0.iter().fold(Origin::default(), |all, origin| all.with(origin));
            self.0 = vec![Origin { loose: true, ..all }];
        }
    }
}

impl From<Origin> for Value {
    fn from(origin: Origin) -> Self {
        Self(vec![origin])
    }
}
