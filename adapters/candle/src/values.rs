//! The variables of a model, and a copy of their values.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

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
    pub(crate) aliases: Vec<Alias>,
}

/// The variables of a model, each once, and the names that they have beside.
pub(crate) struct Named {
    /// In the order of their names; one that has several is named by the first.
    pub(crate) vars: Vec<(String, Var)>,
    pub(crate) aliases: Vec<Alias>,
}

/// Another name of a variable, such as of weights that two layers share.
#[derive(Debug)]
pub(crate) struct Alias {
    name: String,
    /// The name that it goes by.
    first: String,
}

impl Values {
    /// With the values that they have.
    pub(crate) fn of(model: &VarMap) -> Result<Self, Error> {
        let Named { vars, aliases } = named(model);
        let mut specs = Vec::with_capacity(vars.len());
        for (name, var) in &vars {
            if var.dtype() != DType::F32 {
                return Err(Error::ElementType {
                    name: name.clone(),
                    found: var.dtype(),
                });
            }
            specs.push(VariableSpec::new(name, var.dims())?);
        }
        let mut values = Self {
            vars: vars.into_iter().map(|(_, var)| var).collect(),
            flat: FlatGradients::new(&specs, 0)?,
            aliases,
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

/// The variables of a model in the order of their names, each once.
pub(crate) fn by_name(model: &VarMap) -> Vec<(String, Var)> {
    named(model).vars
}

/// The same, with the other names.
pub(crate) fn named(model: &VarMap) -> Named {
    // A panic inside candle cannot leave a map of handles half changed.
    let vars = model
        .data()
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut all: Vec<_> = vars
        .iter()
        .map(|(name, var)| (name.clone(), var.clone()))
        .collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    let (mut vars, mut aliases) = (Vec::new(), Vec::new());
    let mut firsts = HashMap::new();
    for (name, var) in all {
        match firsts.entry(var.id()) {
            Entry::Occupied(first) => {
                let first = String::clone(first.get());
                aliases.push(Alias { name, first });
            }
            Entry::Vacant(first) => {
                first.insert(name.clone());
                vars.push((name, var));
            }
        }
    }
    Named { vars, aliases }
}

/// Gives each further name of a variable the same tensor as its first one.
pub(crate) fn share(tensors: &mut HashMap<String, Tensor>, aliases: &[Alias]) {
    for Alias { name, first } in aliases {
        if let Some(tensor) = tensors.get(first).cloned() {
            tensors.insert(name.clone(), tensor);
        }
    }
}
