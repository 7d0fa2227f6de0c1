//! Address space in large windows, so that "is this address ours?" needs no lock.
//!
//! Extents are cut from windows that are reserved from the driver a terabyte at a time. Address
//! space costs nothing until it is mapped; if a limit forbids that (`ulimit -v`), a window is
//! smaller. A few atomics tell whether an address lies in a window: every free and every pointer
//! query of a program needs that.
//!
//! A window that was returned to the driver is requested again at its old addresses: code that
//! knows blocks by their address has tables for those already, and for a program that resets its
//! device again and again the tables would grow without bound. The address is a wish, and the
//! driver may choose another.
//!
//! If a late access to a released range is to fault, windows *roam*: ranges are taken one behind
//! the other through the whole window before any is reused, and windows stay.
//!
//! Invariants: a range in use is in exactly one window, and disjoint from all others in use; the
//! lock covers bookkeeping only, never a driver call; a window without a range in use is returned
//! to the driver. A range with a mapping is not accepted back, as the driver would not free such a
//! reservation: another thread may be about to unmap it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use wm_abi::CUresult;

use crate::gpu::Result;
use crate::lock::lock;

/// Preferred size of a window.
const WINDOW: u64 = 1 << 40;

/// More windows than a process can use: the address space holds 128 of the preferred size.
const MOST: usize = 64;

#[derive(Debug)]
struct Window {
    base: u64,
    bytes: u64,
    /// Free ranges: start and size, neighbours merged.
    free: BTreeMap<u64, u64>,
    /// End of the last range that was taken.
    last: u64,
}

/// A window's bounds, for readers without the lock. Both 0: no window.
#[derive(Debug, Default)]
struct Bounds {
    base: AtomicU64,
    end: AtomicU64,
}

/// The windows of one device. Boxed: a program's first allocation may come from a thread with
/// little stack.
#[derive(Debug)]
pub(crate) struct Windows {
    bounds: Box<[Bounds]>,
    /// First addresses of mappings.
    mapped: Mutex<BTreeSet<u64>>,
    roams: AtomicBool,
    list: Mutex<Box<[Option<Window>]>>,
    /// Bounds of windows that were returned, the latest one last; at most [`MOST`].
    gone: Mutex<Vec<(u64, u64)>>,
}

impl Window {
    fn new(base: u64, bytes: u64) -> Self {
        Self { base, bytes, free: BTreeMap::from([(base, bytes)]), last: base }
    }

    fn holds(&self, address: u64) -> bool {
        (self.base..self.base + self.bytes).contains(&address)
    }

    /// The first free range that is large enough, cut at its start. A roaming window searches
    /// behind the last range first.
    fn take(&mut self, bytes: u64, roams: bool) -> Option<u64> {
        let behind = if roams { self.find(self.last, bytes) } else { None };
        let (start, from, size) = behind.or_else(|| self.find(self.base, bytes))?;
        self.free.remove(&start);
        let end = from + bytes;
        if from > start {
            self.free.insert(start, from - start);
        }
        if start + size > end {
            self.free.insert(end, start + size - end);
        }
        self.last = end;
        Some(from)
    }

    /// A free range with room for `bytes` from `least` on: its start, the first address with that
    /// room, and its size.
    fn find(&self, least: u64, bytes: u64) -> Option<(u64, u64, u64)> {
        let first = self.free.range(..=least).next_back().map_or(least, |(start, _)| *start);
        let placed = self.free.range(first..).map(|(start, size)| (*start, (*start).max(least), *size));
        placed.into_iter().find(|(start, from, size)| from + bytes <= start + size)
    }

    fn put_back(&mut self, mut start: u64, mut bytes: u64) {
        if let Some(after) = self.free.remove(&(start + bytes)) {
            bytes += after;
        }
        if let Some((before, size)) =
            self.free.range(..start).next_back().map(|(start, size)| (*start, *size))
            && before + size == start
        {
            self.free.remove(&before);
            (start, bytes) = (before, size + bytes);
        }
        self.free.insert(start, bytes);
    }

    fn is_unused(&self) -> bool {
        self.free.get(&self.base) == Some(&self.bytes)
    }
}

impl Default for Windows {
    fn default() -> Self {
        Self {
            bounds: (0..MOST).map(|_| Bounds::default()).collect(),
            mapped: Mutex::default(),
            roams: AtomicBool::new(false),
            list: Mutex::new((0..MOST).map(|_| None).collect()),
            gone: Mutex::default(),
        }
    }
}

impl Windows {
    /// Is the address in a window? Wait-free.
    pub(crate) fn contain(&self, address: u64) -> bool {
        let inside = |bounds: &Bounds| {
            address < bounds.end.load(Ordering::Acquire) && address >= bounds.base.load(Ordering::Acquire)
        };
        self.bounds.iter().take_while(|bounds| bounds.end.load(Ordering::Acquire) != 0).any(inside)
    }

    /// From now on ranges are reused as late as possible.
    pub(crate) fn roam(&self) {
        self.roams.store(true, Ordering::Relaxed);
    }

    fn roams(&self) -> bool {
        self.roams.load(Ordering::Relaxed)
    }

    /// A range of `bytes`, from an existing window or from a new one. `reserve` makes a window from
    /// a size and a wished address (0 for none).
    ///
    /// # Errors
    /// Those of `reserve`, after it failed for a window of just this size.
    pub(crate) fn take(&self, bytes: u64, reserve: impl Fn(u64, u64) -> Result<u64>) -> Result<u64> {
        let roams = self.roams();
        if let Some(address) = self.lock().iter_mut().flatten().find_map(|window| window.take(bytes, roams)) {
            return Ok(address);
        }
        let (base, size) = match self.make_again(bytes, &reserve) {
            Some(window) => window,
            None => make(bytes, |size| reserve(size, 0))?,
        };
        let mut window = Window::new(base, size);
        let address = window.take(bytes, roams).unwrap_or(base);
        self.add(window);
        Ok(address)
    }

    /// Reserves the window that was returned last, or one like it elsewhere; `None` if it is too
    /// small or cannot be reserved.
    fn make_again(&self, bytes: u64, reserve: impl Fn(u64, u64) -> Result<u64>) -> Option<(u64, u64)> {
        let (base, size) = self.gone().pop_if(|(_, size)| *size >= bytes)?;
        reserve(size, base).ok().map(|base| (base, size))
    }

    fn gone(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        lock(&self.gone)
    }

    fn note_gone(&self, window: (u64, u64)) {
        let mut gone = self.gone();
        if gone.len() == MOST {
            gone.remove(0);
        }
        gone.push(window);
    }

    /// A mapping was made at `address`.
    pub(crate) fn note_mapped(&self, address: u64) {
        self.mapped().insert(address);
    }

    /// Every mapping in a range is gone.
    pub(crate) fn note_unmapped(&self, address: u64, bytes: u64) {
        let mut mapped = self.mapped();
        let gone: Vec<u64> = mapped.range(address..address + bytes).copied().collect();
        for address in gone {
            mapped.remove(&address);
        }
    }

    fn mapped(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        lock(&self.mapped)
    }

    /// Takes a range back. If its window is then unused, the window is removed and returned, for
    /// the caller to give to the driver.
    ///
    /// # Errors
    /// `INVALID_VALUE`, as from the driver, while the range has a mapping.
    pub(crate) fn put_back(&self, address: u64, bytes: u64) -> Result<Option<(u64, u64)>> {
        if self.mapped().range(address..address + bytes).next().is_some() {
            return Err(CUresult::INVALID_VALUE);
        }
        let unused = self.give_up(address, bytes);
        unused.into_iter().for_each(|window| self.note_gone(window));
        Ok(unused)
    }

    fn give_up(&self, address: u64, bytes: u64) -> Option<(u64, u64)> {
        let mut list = self.lock();
        let slot =
            list.iter().position(|window| window.as_ref().is_some_and(|window| window.holds(address)))?;
        let window = list[slot].as_mut()?;
        window.put_back(address, bytes);
        let unused = (window.is_unused() && !self.roams()).then_some((window.base, window.bytes));
        if unused.is_some() {
            list[slot] = None;
            // An empty range, not the end of the list: readers still find the windows behind this
            // one.
            self.publish(slot, u64::MAX, u64::MAX);
        }
        unused
    }

    fn add(&self, window: Window) {
        let mut list = self.lock();
        // If every slot is in use, the window is not remembered: its range works, and queries about
        // it go to the driver.
        if let Some(slot) = list.iter().position(Option::is_none) {
            self.publish(slot, window.base, window.base + window.bytes);
            list[slot] = Some(window);
        }
    }

    fn publish(&self, slot: usize, base: u64, end: u64) {
        self.bounds[slot].base.store(base, Ordering::Release);
        self.bounds[slot].end.store(end, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Box<[Option<Window>]>> {
        lock(&self.list)
    }
}

/// Reserves a window of the preferred size or, if that fails, of half the size, down to `bytes`.
fn make(bytes: u64, reserve: impl Fn(u64) -> Result<u64>) -> Result<(u64, u64)> {
    let mut size = WINDOW.max(bytes);
    loop {
        match reserve(size) {
            Ok(base) => return Ok((base, size)),
            Err(code) if size == bytes => return Err(code),
            Err(_) => size = (size / 2).max(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: two extents at one address, or an address of ours counts as the driver's.
    use std::cell::Cell;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn numbered() -> impl Fn(u64, u64) -> Result<u64> {
        let next = Cell::new(WINDOW);
        move |bytes, wish| Ok(if wish == 0 { next.replace(next.get() + bytes) } else { wish })
    }

    #[test]
    fn ranges_are_disjoint_contained_and_merge_again() {
        let (windows, reserve) = (Windows::default(), numbered());
        let ranges: Vec<_> =
            (1..20).map(|n| (windows.take(n * 2 * MIB, &reserve).expect("room"), n * 2 * MIB)).collect();
        for (i, (a, size)) in ranges.iter().enumerate() {
            assert!(windows.contain(*a) && windows.contain(a + size - 1));
            assert!(ranges[i + 1..].iter().all(|(b, other)| a + size <= *b || b + other <= *a));
        }
        let last = ranges
            .iter()
            .rev()
            .map(|(a, size)| windows.put_back(*a, *size).expect("nothing is mapped"))
            .last()
            .flatten();
        assert_eq!(last, Some((WINDOW, WINDOW)));
        assert!(!windows.contain(ranges[0].0));
    }

    /// Hazard (use after free): a pointer to a freed block reads and writes the next one.
    #[test]
    fn a_range_comes_again_only_after_the_whole_window() {
        let (windows, reserve) = (Windows::default(), numbered());
        windows.roam();
        let mut before = 0;
        for _ in 0..WINDOW / (256 << 30) {
            let range = windows.take(256 << 30, &reserve).expect("room");
            assert!(range > before);
            assert_eq!(windows.put_back(range, 256 << 30), Ok(None));
            before = range;
        }
        let held = windows.take(2 * MIB, &reserve).expect("room");
        assert_eq!(held, WINDOW, "from the start again");
        let next = windows.take(WINDOW - 2 * MIB, &reserve).expect("the rest of the window");
        assert_eq!(next, WINDOW + 2 * MIB);
    }

    #[test]
    fn a_window_is_as_small_as_a_limit_makes_it() {
        let windows = Windows::default();
        let limited = |bytes, _| if bytes > 100 * MIB { Err(CUresult::OUT_OF_MEMORY) } else { Ok(WINDOW) };
        assert!(windows.take(64 * MIB, limited).is_ok());
        assert_eq!(windows.take(128 * MIB, limited), Err(CUresult::OUT_OF_MEMORY));
    }

    #[test]
    fn a_range_with_a_mapping_stays_out() {
        let (windows, reserve) = (Windows::default(), numbered());
        let range = windows.take(8 * MIB, &reserve).expect("room");
        windows.note_mapped(range + 2 * MIB);
        assert_eq!(windows.put_back(range, 8 * MIB), Err(CUresult::INVALID_VALUE));
        assert_ne!(windows.take(8 * MIB, &reserve), Ok(range));
        windows.note_unmapped(range, 8 * MIB);
        assert_eq!(windows.put_back(range, 8 * MIB), Ok(None));
    }

    /// Hazard (resource leak): tables for ever new addresses, in a program that frees all memory
    /// and allocates again.
    #[test]
    fn a_window_that_left_comes_again_where_it_was() {
        let (windows, reserve) = (Windows::default(), numbered());
        let first = windows.take(2 * MIB, &reserve).expect("room");
        for _ in 0..3 {
            assert!(windows.put_back(first, 2 * MIB).expect("nothing is mapped").is_some());
            assert_eq!(windows.take(2 * MIB, &reserve), Ok(first));
        }
        assert!(windows.put_back(first, 2 * MIB).expect("nothing is mapped").is_some());
        assert_ne!(windows.take(2 * WINDOW, &reserve), Ok(first), "it is too small");
        let refuses = |bytes, wish| if wish == 0 { reserve(bytes, 0) } else { Err(CUresult::INVALID_VALUE) };
        assert!(windows.take(2 * MIB, refuses).is_ok_and(|address| address != first));
    }

    #[test]
    fn a_window_that_left_does_not_hide_the_next() {
        let (windows, reserve) = (Windows::default(), numbered());
        let first = windows.take(WINDOW, &reserve).expect("room");
        let second = windows.take(WINDOW, &reserve).expect("room");
        assert!(windows.put_back(first, WINDOW).expect("nothing is mapped").is_some());
        assert!(windows.contain(second) && !windows.contain(first));
        let third = windows.take(WINDOW, &reserve).expect("room");
        assert!(windows.contain(second) && windows.contain(third));
    }
}
