//! Things in a row, made when the first of them is wanted: all at once, on the heap, and none ever moves.

use std::sync::OnceLock;

#[derive(Debug)]
pub(super) struct Row<T>(OnceLock<Box<[T]>>);

impl<T> Default for Row<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<T> Row<T> {
    pub(super) fn get(&self, index: usize) -> Option<&T> {
        self.0.get()?.get(index)
    }

    /// `None` beyond its length, which is the same at each call.
    pub(super) fn make(&self, length: usize, index: usize) -> Option<&T>
    where
        T: Default,
    {
        self.make_all(length).get(index)
    }

    /// All of them.
    pub(super) fn make_all(&self, length: usize) -> &[T]
    where
        T: Default,
    {
        self.0.get_or_init(|| (0..length).map(|_| T::default()).collect())
    }
}
