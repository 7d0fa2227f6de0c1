//! How far uses of a tensor reached while it lived, so that its first use in the next period
//! reaches as far.
//!
//! The first use of a new tensor cannot be told from one of a smaller tensor with the same address,
//! where both sizes are among the launch's numbers. A later use can: no other tensor was named in
//! between that divides this one. So what a later use shows is noted for each kernel that used the
//! tensor: in a program that repeats itself the same kernel writes as large a tensor there again.

use smallvec::SmallVec;

/// Kernels that are remembered of an address.
const KERNELS: usize = 4;

/// How far the tensors at one address were used.
#[derive(Debug, Clone, Default)]
pub(super) struct TensorLife {
    /// The end of the farthest use of the tensor that lives there; 0: none is known.
    reached: u64,
    kernels: SmallVec<[KernelReach; 2]>,
}

/// The end of the last tensor that a kernel used there.
#[derive(Debug, Clone, Copy)]
struct KernelReach {
    kernel: u64,
    end: u64,
    /// That tensor lives.
    lives: bool,
}

impl TensorLife {
    /// Another tensor begins at `border`, if there is one: where it divides the one that was here,
    /// that is gone.
    pub(super) fn meet(&mut self, border: Option<u64>) {
        if border.is_some_and(|border| border < self.reached) {
            self.reached = 0;
            self.kernels.iter_mut().for_each(|reach| reach.lives = false);
        }
    }

    /// The end of the tensor that a kernel used here last.
    pub(super) fn end_by(&self, kernel: u64) -> Option<u64> {
        self.kernels.iter().find(|reach| reach.kernel == kernel).map(|reach| reach.end)
    }

    /// A kernel uses the tensor up to `end`.
    pub(super) fn note(&mut self, kernel: u64, end: u64) {
        self.reached = self.reached.max(end);
        match self.kernels.iter_mut().find(|reach| reach.kernel == kernel) {
            Some(reach) => reach.lives = true,
            None => self.add(kernel),
        }
        let alive = self.kernels.iter_mut().filter(|reach| reach.lives);
        alive.for_each(|reach| reach.end = self.reached);
    }

    /// Of too many kernels one is forgotten, an earlier tensor's if there is one.
    fn add(&mut self, kernel: u64) {
        if self.kernels.len() == KERNELS {
            let gone = self.kernels.iter().position(|reach| !reach.lives).unwrap_or(0);
            self.kernels.remove(gone);
        }
        self.kernels.push(KernelReach { kernel, end: 0, lives: true });
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (thrashing): a half of a tensor comes before its kernel, which reads the other half
    //! from the host.
    use super::*;

    #[test]
    fn what_a_later_use_shows_is_known_at_the_first_one_of_the_next_tensor() {
        let mut life = TensorLife::default();
        life.note(1, 50);
        life.note(2, 90);
        assert_eq!([1, 2, 3].map(|kernel| life.end_by(kernel)), [Some(90), Some(90), None]);
        life.meet(Some(90));
        life.note(3, 60);
        assert_eq!(life.end_by(3), Some(90), "it lives on");
        life.meet(Some(70));
        life.note(3, 30);
        assert_eq!([1, 2, 3].map(|kernel| life.end_by(kernel)), [Some(90), Some(90), Some(30)]);
        life.note(1, 40);
        assert_eq!([1, 2, 3].map(|kernel| life.end_by(kernel)), [Some(40), Some(90), Some(40)]);
    }

    /// Hazard (resource leak): an address at which ever new kernels begin.
    #[test]
    fn few_kernels_are_remembered_and_those_of_the_living_tensor_first() {
        let mut life = TensorLife::default();
        (0..3).for_each(|kernel| life.note(kernel, 50));
        life.meet(Some(10));
        (3..6).for_each(|kernel| life.note(kernel, 20));
        assert_eq!(life.kernels.len(), KERNELS);
        assert_eq!([2, 3, 4, 5].map(|kernel| life.end_by(kernel)), [Some(50), Some(20), Some(20), Some(20)]);
        (6..9).for_each(|kernel| life.note(kernel, 20));
        assert_eq!([5, 6, 7, 8].map(|kernel| life.end_by(kernel)), [Some(20); 4]);
    }
}
