//! What the code of a kernel may do with the words of its parameters.

/// A set of words of a kernel's parameters. Word `n` is the eight bytes from `8 * n` on.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WordSet {
    /// Bit `n % 64` of element `n / 64` is word `n`. The last element is not zero, so that equal
    /// sets are equal values.
    bits: Vec<u64>,
}

impl WordSet {
    /// The set without a word.
    pub const fn new() -> WordSet {
        WordSet { bits: Vec::new() }
    }

    /// Adds a word; true if it is new.
    pub fn insert(&mut self, word: u32) -> bool {
        let (at, bit) = (word as usize / 64, 1 << (word % 64));
        if self.bits.len() <= at {
            self.bits.resize(at + 1, 0);
        }
        let new = self.bits[at] & bit == 0;
        self.bits[at] |= bit;
        new
    }

    /// Is the word in the set?
    pub fn contains(&self, word: u32) -> bool {
        self.bits.get(word as usize / 64).is_some_and(|bits| bits >> (word % 64) & 1 == 1)
    }

    /// Is there no word?
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    /// The number of words.
    pub fn len(&self) -> usize {
        self.bits.iter().map(|bits| bits.count_ones() as usize).sum()
    }

    /// The words in rising order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.bits.iter().enumerate().flat_map(|(at, &bits)| {
            (0..64u32).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| at as u32 * 64 + bit)
        })
    }

    /// Are all its words in the other set, too?
    pub fn is_subset(&self, other: &WordSet) -> bool {
        self.bits.len() <= other.bits.len()
            && self.bits.iter().zip(&other.bits).all(|(mine, theirs)| mine & !theirs == 0)
    }

    /// Adds all words of the other set.
    pub fn extend_from(&mut self, other: &WordSet) {
        if self.bits.len() < other.bits.len() {
            self.bits.resize(other.bits.len(), 0);
        }
        for (mine, theirs) in self.bits.iter_mut().zip(&other.bits) {
            *mine |= theirs;
        }
    }

    /// The words of both.
    #[must_use]
    pub fn union(&self, other: &WordSet) -> WordSet {
        let mut both = self.clone();
        both.extend_from(other);
        both
    }

    /// The words that are in each of the two.
    #[must_use]
    pub fn intersection(&self, other: &WordSet) -> WordSet {
        let mut bits: Vec<u64> =
            self.bits.iter().zip(&other.bits).map(|(mine, theirs)| mine & theirs).collect();
        while bits.last() == Some(&0) {
            bits.pop();
        }
        WordSet { bits }
    }
}

impl FromIterator<u32> for WordSet {
    fn from_iter<T: IntoIterator<Item = u32>>(words: T) -> WordSet {
        let mut set = WordSet::new();
        for word in words {
            set.insert(word);
        }
        set
    }
}

/// What an address may be computed from: the sum of a base and of offsets.
///
/// Without `memory`, each of `words` and `offsets` that holds an address of device memory at a
/// launch may be the base, or, with `globals`, a variable of the module.
///
/// With `memory`, something that the kernel loaded takes part. If, at a launch, exactly one of
/// `words` holds an address of device memory (or none does, and `globals`), and none of `offsets`
/// does, then that is the base and an index was loaded. Else the base may be a loaded pointer.
///
/// A source with nothing at all is no address of memory that a program has: a constant, or memory
/// of the block or the thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressSource {
    /// Words that are summands of the address.
    pub words: WordSet,
    /// Words that take part in another way: as factors, shifted, negated, masked.
    pub offsets: WordSet,
    /// Something loaded is a summand. A number of 2^32 or more that is written into the code counts
    /// as one: programs that make code for one launch write addresses into it.
    pub memory: bool,
    /// The address of a variable of the module is a summand.
    pub globals: bool,
}

/// What a kernel may do to memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// The addresses of stores, atomics, reductions, bulk and tensor stores, without duplicates. An
    /// address that is one of several alternatives has one source for each.
    pub stores: Vec<AddressSource>,
    /// The addresses of loads, in the same form.
    pub reads: Vec<AddressSource>,
    /// Words with a value that may be stored to memory, or leave the kernel in another way.
    pub escapes: WordSet,
}

/// What is known about a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeVerdict {
    /// The kernel does no more than this.
    Decided(Effects),
    /// The kernel may write everything that it can reach.
    Undecided(Why),
}

/// The reason that a kernel is undecided. Offsets are bytes in the section of its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// Code of an architecture that is not known.
    Architecture(u32),
    /// The image does not say where the parameters lie, or its parts contradict each other.
    Image,
    /// More code, blocks or steps than the bounds of the analysis.
    Bounds,
    /// An instruction that is not known: its lowest 12 bits.
    Opcode {
        /// The instruction, in bytes.
        offset: usize,
        /// Its lowest 12 bits.
        code: u16,
    },
    /// A known instruction in a form that is not known.
    Form {
        /// The instruction, in bytes.
        offset: usize,
        /// Its lowest 12 bits.
        code: u16,
    },
    /// A call of a function that is not known.
    Call {
        /// The instruction, in bytes.
        offset: usize,
    },
    /// A jump to an address that is not known.
    Jump {
        /// The instruction, in bytes.
        offset: usize,
    },
    /// A store to an address of unknown origin.
    Address {
        /// The instruction, in bytes.
        offset: usize,
    },
    /// PTX that is not understood: its line, from one on.
    Text {
        /// From one on.
        line: usize,
    },
}

impl Why {
    /// The reason without its place, which is the same for all kernels that share it.
    pub fn reason(&self) -> String {
        match self {
            Why::Architecture(sm) => format!("machine code of sm_{sm}"),
            Why::Image => "an image that is damaged or says too little".to_owned(),
            Why::Bounds => "more code than is judged".to_owned(),
            Why::Opcode { code, .. } => format!("instruction {code:#05x}"),
            Why::Form { code, .. } => format!("a form of instruction {code:#05x}"),
            Why::Call { .. } => "a call of unknown code".to_owned(),
            Why::Jump { .. } => "a jump to an unknown place".to_owned(),
            Why::Address { .. } => "a store to an unknown address".to_owned(),
            Why::Text { .. } => "PTX that is not understood".to_owned(),
        }
    }

    /// The place in the code, in bytes, or the line of a text.
    pub fn place(&self) -> Option<usize> {
        match *self {
            Why::Architecture(_) | Why::Image | Why::Bounds => None,
            Why::Opcode { offset, .. } | Why::Form { offset, .. } => Some(offset),
            Why::Call { offset } | Why::Jump { offset } | Why::Address { offset } => Some(offset),
            Why::Text { line } => Some(line),
        }
    }
}
