//! Sparse optimizers: which there are, and their parameters.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::vocabulary::codes::OptimizerType;

/// The parameters of an optimizer: name and default.
fn defaults(kind: OptimizerType) -> &'static [(&'static str, f32)] {
    match kind {
        OptimizerType::Sgd => &[("weight_decay", 0.0)],
        OptimizerType::LazyAdam => {
            &[("weight_decay", 0.0), ("epsilon", 1e-8), ("beta1", 0.9), ("beta2", 0.999), ("adam_w", 0.0)]
        }
        OptimizerType::RmsProp => &[("weight_decay", 0.0), ("epsilon", 1e-8), ("alpha", 0.99)],
        OptimizerType::AdaGrad => &[("weight_decay", 0.0), ("epsilon", 1e-8)],
    }
}

/// An optimizer, which may train several embeddings.
#[derive(Debug)]
pub struct Optimizer {
    kind: OptimizerType,
    values: Mutex<Vec<f32>>,
}

impl Optimizer {
    /// One with its parameters at their defaults.
    pub fn new(kind: OptimizerType) -> Self {
        Self { kind, values: Mutex::new(defaults(kind).iter().map(|(_, value)| *value).collect()) }
    }

    /// Which it is.
    pub fn kind(&self) -> OptimizerType {
        self.kind
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// [`Error::Input`] for a name that it does not have; the text names those that it has.
    pub fn set(&self, name: &str, value: f32) -> Result {
        let at = defaults(self.kind).iter().position(|(known, _)| *known == name);
        let known = || defaults(self.kind).iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let at = at.ok_or_else(|| Error::Input(format!("{name} is no parameter; there are: {}", known())))?;
        self.values()[at] = value;
        Ok(())
    }

    /// A parameter's value.
    pub fn get(&self, name: &str) -> Option<f32> {
        let at = defaults(self.kind).iter().position(|(known, _)| *known == name)?;
        self.values().get(at).copied()
    }

    fn values(&self) -> MutexGuard<'_, Vec<f32>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a parameter that is taken and changes nothing, or another one.
    use super::*;

    #[test]
    fn parameters_are_those_of_the_optimizer() {
        let adam = Optimizer::new(OptimizerType::LazyAdam);
        assert_eq!(adam.get("beta2"), Some(0.999));
        adam.set("beta2", 0.5).expect("a parameter");
        assert_eq!((adam.get("beta1"), adam.get("beta2")), (Some(0.9), Some(0.5)));
        let error = adam.set("alpha", 1.0).expect_err("one of another optimizer");
        assert!(error.code() == 6 && error.to_string().contains("beta1"), "{error}");
        assert_eq!(Optimizer::new(OptimizerType::Sgd).get("epsilon"), None);
    }
}
