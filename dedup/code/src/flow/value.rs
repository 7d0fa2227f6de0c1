//! Where the bits of a register may come from.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::hash::Quick;

/// Words of the parameters, or [`GLOBAL`], in rising order.
type Set = Vec<u16>;

/// Stands among the words for the address of a variable of the module.
pub(super) const GLOBAL: u16 = u16::MAX;

/// From here to [`GLOBAL`]: stand among the words for places in the code, to which a function
/// returns.
/// As an address in memory they are numbers.
pub(super) const PLACES: u16 = 1 << 15;

const LAST_PLACE: u16 = GLOBAL - 1;

/// How many alternatives of one kind are kept apart.
const ALTERNATIVES: usize = 4;

/// What is known about 32 bits: they are one of several alternatives, each the sum of words and of
/// offsets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct RegisterValue {
    /// The words that take part in any way, in any alternative.
    pub(super) words: Set,
    /// Those of them that take part other than as a summand: as a factor, shifted, negated.
    pub(super) offsets: Set,
    /// For each alternative, one of these has no more summands, and the same flag: something that
    /// was loaded from memory takes part.
    pub(super) least: Vec<(Set, bool)>,
    /// A small number that stands in the code may take part. As the upper half of an address it
    /// makes one that was written into the code.
    pub(super) literal: bool,
    /// The place of the block's, the thread's or the parameters' memory among generic addresses may
    /// take part.
    pub(super) window: bool,
    /// It is the lower half of the address of this byte of the constants.
    pub(super) constant: Option<u32>,
    /// The bits may come from anywhere.
    pub(super) unknown: bool,
    /// A number that stands in the code, but not zero, may be all of it.
    pub(super) coded: bool,
}

/// A value by its number in [`Values`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Id(u32);

/// Bits that no address comes from: constants, special registers, results of comparisons.
pub(super) const NUMBER: Id = Id(0);
/// Bits that were loaded from memory.
pub(super) const MEMORY: Id = Id(1);
/// The address of a variable of the module.
pub(super) const VARIABLE: Id = Id(2);
/// Bits from anywhere.
pub(super) const UNKNOWN: Id = Id(3);

/// A small number that stands in the code, but not zero.
pub(super) const LITERAL: Id = Id(4);

/// The place of other memory among generic addresses.
pub(super) const WINDOW: Id = Id(5);

/// A large number that stands in the code.
pub(super) const CODED: Id = Id(6);

type Pairs = HashMap<(Id, Id), Id, BuildHasherDefault<Quick>>;

/// All values of an analysis, each once, with the results of operations on them.
#[derive(Debug)]
pub(super) struct Values {
    all: Vec<RegisterValue>,
    ids: HashMap<RegisterValue, Id>,
    joined: Pairs,
    added: Pairs,
    offsets: HashMap<Id, Id, BuildHasherDefault<Quick>>,
}

impl Values {
    pub(super) fn new() -> Values {
        let mut values = Values {
            all: Vec::new(),
            ids: HashMap::new(),
            joined: Pairs::default(),
            added: Pairs::default(),
            offsets: HashMap::default(),
        };
        let plain = vec![(Set::new(), false)];
        let number = RegisterValue { least: plain.clone(), ..RegisterValue::default() };
        let memory = RegisterValue { least: vec![(Set::new(), true)], ..RegisterValue::default() };
        for (value, id) in [
            (number.clone(), NUMBER),
            (memory, MEMORY),
            (RegisterValue::summand(GLOBAL), VARIABLE),
            (RegisterValue { unknown: true, coded: true, ..number.clone() }, UNKNOWN),
            (RegisterValue { literal: true, coded: true, ..number.clone() }, LITERAL),
            (RegisterValue { window: true, ..number.clone() }, WINDOW),
            (RegisterValue { coded: true, ..number }, CODED),
        ] {
            let made = values.id(value);
            debug_assert_eq!(made, id);
        }
        values
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, id: Id) -> &RegisterValue {
        &self.all[id.0 as usize]
    }

    /// The value of a word of the parameters.
    pub(super) fn word(&mut self, word: u16) -> Id {
        self.id(RegisterValue::summand(word))
    }

    /// The lower half of the address of a byte of the constants.
    pub(super) fn constants_memory(&mut self, constant: u32) -> Id {
        let least = vec![(Set::new(), false)];
        self.id(RegisterValue { window: true, constant: Some(constant), least, ..RegisterValue::default() })
    }

    /// The value of one of these words, it is not known which. A number has four bytes; eight bytes
    /// may be an address, and as a summand they are one.
    pub(super) fn any_of(&mut self, words: std::ops::Range<u16>, may_be_address: bool) -> Id {
        // The first word stands for any of them.
        let summands = if may_be_address { words.clone().take(1).collect() } else { Set::new() };
        let least = vec![(summands, false)];
        self.id(RegisterValue {
            words: words.clone().collect(),
            offsets: words.collect(),
            least,
            ..RegisterValue::default()
        })
    }

    /// A value that is one of two.
    pub(super) fn join(&mut self, one: Id, other: Id) -> Id {
        self.pair(one, other, |values| &mut values.joined, RegisterValue::join)
    }

    /// The sum of two values.
    pub(super) fn add(&mut self, one: Id, other: Id) -> Id {
        match (one, other) {
            (NUMBER, id) | (id, NUMBER) => id,
            _ => self.pair(one, other, |values| &mut values.added, RegisterValue::add),
        }
    }

    /// The value as a factor, or changed in a way that leaves no address.
    pub(super) fn offset(&mut self, id: Id) -> Id {
        if id <= MEMORY {
            return id;
        }
        if let Some(&known) = self.offsets.get(&id) {
            return known;
        }
        let made = self.id(self.get(id).offset());
        self.offsets.insert(id, made);
        made
    }

    /// The product of two values. By a number that stands in the code an index becomes one of
    /// bytes, and the index may be the distance of two addresses. By any other number no distance
    /// is multiplied: the product is no part of an address.
    pub(super) fn product(&mut self, one: Id, other: Id) -> Id {
        let [one_coded, other_coded] = [one, other].map(|id| self.get(id).coded);
        let [one, other] = [(one, other_coded), (other, one_coded)]
            .map(|(id, by_coded)| if by_coded { self.offset(id) } else { self.wordless(id) });
        let product = self.add(one, other);
        self.computed(product)
    }

    /// The value as the result of arithmetic: a sum or a product of numbers that stand in the code
    /// would stand there itself.
    pub(super) fn computed(&mut self, id: Id) -> Id {
        if !self.get(id).coded || self.get(id).unknown {
            return id;
        }
        let made = RegisterValue { coded: false, ..self.get(id).clone() };
        self.id(made)
    }

    /// The value as an offset without the words that it is made of.
    fn wordless(&mut self, id: Id) -> Id {
        let offset = self.offset(id);
        let value = self.get(offset);
        if value.words.is_empty() {
            return offset;
        }
        let made = RegisterValue { words: Set::new(), offsets: Set::new(), ..value.clone() };
        self.id(made)
    }

    fn pair(
        &mut self,
        one: Id,
        other: Id,
        known: fn(&mut Values) -> &mut Pairs,
        make: fn(&RegisterValue, &RegisterValue) -> RegisterValue,
    ) -> Id {
        let key = (one.min(other), one.max(other));
        if let Some(&id) = known(self).get(&key) {
            return id;
        }
        let made = self.id(make(self.get(key.0), self.get(key.1)));
        known(self).insert(key, made);
        made
    }

    fn id(&mut self, value: RegisterValue) -> Id {
        if let Some(&id) = self.ids.get(&value) {
            return id;
        }
        let id = Id(self.all.len() as u32);
        self.all.push(value.clone());
        self.ids.insert(value, id);
        id
    }
}

impl RegisterValue {
    fn summand(word: u16) -> RegisterValue {
        let least = vec![(vec![word], false)];
        RegisterValue { words: vec![word], least, ..RegisterValue::default() }
    }

    fn join(&self, other: &RegisterValue) -> RegisterValue {
        let least = self.least.iter().chain(&other.least).cloned().collect();
        let constant = self.constant.filter(|_| self.constant == other.constant);
        let coded = self.coded || other.coded;
        RegisterValue { constant, coded, ..self.both(other, least) }
    }

    fn add(&self, other: &RegisterValue) -> RegisterValue {
        let mut least = Vec::new();
        for (words, memory) in &self.least {
            for (others, also) in &other.least {
                least.push((union(words, others), memory | also));
            }
        }
        self.both(other, least)
    }

    fn offset(&self) -> RegisterValue {
        let least = self.least.iter().map(|(_, memory)| (Set::new(), *memory)).collect();
        let words = self.words.clone();
        let (least, unknown) = (fewest(least), self.unknown);
        RegisterValue {
            offsets: words.clone(),
            words,
            least,
            literal: self.literal,
            window: self.window,
            constant: None,
            unknown,
            coded: self.coded,
        }
    }

    fn both(&self, other: &RegisterValue, least: Vec<(Set, bool)>) -> RegisterValue {
        RegisterValue {
            words: union(&self.words, &other.words),
            offsets: union(&self.offsets, &other.offsets),
            least: fewest(least),
            literal: self.literal | other.literal,
            window: self.window | other.window,
            constant: None,
            unknown: self.unknown | other.unknown,
            coded: false,
        }
    }

    /// Each alternative has an address of the program's memory among its summands, or was loaded.
    /// In an address of other memory a word is an index.
    pub(super) fn has_base(&self) -> bool {
        let is_base = |word: &u16| *word < PLACES || *word == GLOBAL;
        !self.unknown
            && !self.window
            && self.least.iter().all(|(words, memory)| *memory || words.iter().any(is_base))
    }

    /// The places in the code that this is one of; empty, if it may be something else.
    pub(super) fn places(&self) -> &[u16] {
        let place = |word: &u16| (PLACES..GLOBAL).contains(word);
        let certain = !self.unknown
            && self.offsets.is_empty()
            && self.words.iter().all(place)
            && self.least.iter().all(|(words, memory)| !memory && words.len() == 1);
        if certain { &self.words } else { &[] }
    }
}

fn union(one: &Set, other: &Set) -> Set {
    let mut both: Set = one.iter().chain(other).copied().collect();
    both.sort_unstable();
    both.dedup();
    both
}

fn is_subset(one: &Set, other: &Set) -> bool {
    one.iter().all(|word| other.binary_search(word).is_ok())
}

/// The alternatives without those that have more summands than another; and if there are many, the
/// summands that they have in common.
fn fewest(least: Vec<(Set, bool)>) -> Vec<(Set, bool)> {
    let mut kept = Vec::new();
    for memory in [false, true] {
        let mut sets: Vec<Set> =
            least.iter().filter(|one| one.1 == memory).map(|one| one.0.clone()).collect();
        sets.sort_by(|one, other| one.len().cmp(&other.len()).then_with(|| one.cmp(other)));
        let mut smallest: Vec<Set> = Vec::new();
        for set in sets {
            if !smallest.iter().any(|smaller| is_subset(smaller, &set)) {
                smallest.push(set);
            }
        }
        // Places to return to are never many, and all of them must be known.
        let places = smallest.iter().all(|set| matches!(set[..], [PLACES..=LAST_PLACE]));
        if smallest.len() > ALTERNATIVES && !places {
            let common = |set: Set, other: &Set| {
                set.into_iter().filter(|word| other.binary_search(word).is_ok()).collect()
            };
            smallest = vec![smallest[1..].iter().fold(smallest[0].clone(), common)];
        }
        kept.extend(smallest.into_iter().map(|set| (set, memory)));
    }
    kept
}
