//! The variables of a model, and a copy of their values.

use candle_core::{DType, Tensor, Var};
use candle_nn::VarMap;
use meshwork_strategy::{Fingerprint, FlatGradients, Snapshot, VariableSpec};

use crate::Error;
use crate::tensor::{read, with_values};

/// The variables of a model in the order of their names, and a copy of their values.
#[derive(Debug)]
pub(crate) struct Values {
    pub(crate) vars: Vec<Var>,
    pub(crate) flat: FlatGradients,
}

impl Values {
    /// With the values that they have.
    pub(crate) fn of(model: &VarMap) -> Result<Self, Error> {
        let named = by_name(model);
        let mut specs = Vec::with_capacity(named.len());
        for (name, var) in &named {
            if var.dtype() != DType::F32 {
                return Err(Error::ElementType {
                    name: name.clone(),
                    found: var.dtype(),
                });
            }
            specs.push(VariableSpec::new(name, var.dims())?);
        }
        let mut values = Self {
            vars: named.into_iter().map(|(_, var)| var).collect(),
            flat: FlatGradients::new(&specs, 0)?,
        };
        values.read()?;
        Ok(values)
    }

    pub(crate) fn specs(&self) -> &[VariableSpec] {
        self.flat.specs()
    }

    /// From the variables.
    pub(crate) fn read(&mut self) -> Result<(), Error> {
        for (index, var) in self.vars.iter().enumerate() {
            read(var.as_tensor(), self.flat.gradient_mut(index))?;
        }
        Ok(())
    }

    /// Of the variables as they are, where they are.
    pub(crate) fn fingerprint(&self) -> Result<Fingerprint, Error> {
        let mut copy = Fingerprint::new();
        for var in &self.vars {
            with_values(var.as_tensor(), |values| copy.add(values))?;
        }
        Ok(copy)
    }

    /// Adds what they are to a snapshot.
    pub(crate) fn save(&mut self, mut snapshot: Snapshot) -> Result<Snapshot, Error> {
        self.read()?;
        for (index, spec) in self.specs().iter().enumerate() {
            snapshot = snapshot.with_array(spec, self.flat.gradient(index))?;
        }
        Ok(snapshot)
    }

    /// To the variables, from a snapshot.
    pub(crate) fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        for index in 0..self.vars.len() {
            let values = snapshot.array(&self.specs()[index])?;
            self.flat.set(index, values)?;
        }
        self.write()
    }

    /// To the variables, instead of those that they have.
    pub(crate) fn adopt(&mut self, values: &[f32]) -> Result<(), Error> {
        self.flat.as_mut_slice().copy_from_slice(values);
        self.write()
    }

    /// To the variables.
    pub(crate) fn write(&self) -> Result<(), Error> {
        for (index, var) in self.vars.iter().enumerate() {
            let values = self.flat.gradient(index);
            var.set(&Tensor::from_slice(values, var.shape(), var.device())?)?;
        }
        Ok(())
    }
}

/// The variables of a model in the order of their names.
pub(crate) fn by_name(model: &VarMap) -> Vec<(String, Var)> {
    // A panic inside candle cannot leave a map of handles half changed.
    let vars = model
        .data()
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut named: Vec<_> = vars
        .iter()
        .map(|(name, var)| (name.clone(), var.clone()))
        .collect();
    named.sort_by(|(one, _), (other, _)| one.cmp(other));
    named
}
