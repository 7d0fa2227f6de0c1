//! A slice on the heap that is made, all of it, when the first of its values is wanted. Its values
//! never move.

use std::sync::OnceLock;

#[derive(Debug)]
pub(super) struct LazySlice<T>(OnceLock<Box<[T]>>);

impl<T> Default for LazySlice<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<T> LazySlice<T> {
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
