//! `FlatGradients`: gradients of all variables in one contiguous buffer. Buckets that are reduced
//! while others are computed are in `gradients`.

use std::ops::Range;

use crate::{Error, VariableSpec};

/// The gradients of all variables as one buffer, so that one operation reduces them all.
///
/// Variables are in the order in which they were given, which must be the same in all workers.
/// After them there is room for a few numbers that are to be reduced with them, such as the loss.
/// The memory is allocated once and reused in each step.
///
/// ```
/// use meshwork_strategy::{FlatGradients, VariableSpec};
///
/// let specs = [VariableSpec::new("w", &[2, 2])?, VariableSpec::new("b", &[2])?];
/// let mut gradients = FlatGradients::new(&specs, 1)?;
/// gradients.set(1, &[0.5, 0.25])?;
/// gradients.extra_mut()[0] = 2.3;
/// assert_eq!(gradients.as_mut_slice(), [0.0, 0.0, 0.0, 0.0, 0.5, 0.25, 2.3]);
/// # Ok::<(), meshwork_strategy::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[doc(alias = "flatten_dense_tensors")]
pub struct FlatGradients {
    specs: Vec<VariableSpec>,
    ranges: Vec<Range<usize>>,
    values: Vec<f32>,
}

impl FlatGradients {
    /// Room for one gradient of each variable, and for `extra` numbers; all zero.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for the variable that makes the whole larger than memory.
    pub fn new(specs: &[VariableSpec], extra: usize) -> Result<Self, Error> {
        let mut end = 0_usize;
        let mut ranges = Vec::with_capacity(specs.len());
        for spec in specs {
            let start = end;
            end = start
                .checked_add(spec.len())
                .filter(|end| {
                    end.checked_add(extra)
                        .is_some_and(|len| len <= isize::MAX as usize / size_of::<f32>())
                })
                .ok_or_else(|| Error::TooLarge {
                    name: spec.name().to_owned(),
                })?;
            ranges.push(start..end);
        }
        Ok(Self {
            specs: specs.to_vec(),
            ranges,
            values: vec![0.0; end + extra],
        })
    }

    /// The variables, in the order of their gradients.
    #[must_use]
    pub fn specs(&self) -> &[VariableSpec] {
        &self.specs
    }

    /// The gradient of variable number `index`.
    ///
    /// # Panics
    /// When there is no such variable.
    #[must_use]
    pub fn gradient(&self, index: usize) -> &[f32] {
        &self.values[self.ranges[index].clone()]
    }

    /// The gradient of variable number `index`, to be written.
    ///
    /// # Panics
    /// When there is no such variable.
    pub fn gradient_mut(&mut self, index: usize) -> &mut [f32] {
        &mut self.values[self.ranges[index].clone()]
    }

    /// Copies the gradient of variable number `index` in.
    ///
    /// # Errors
    /// [`Error::GradientLength`] when it has another length than the variable.
    ///
    /// # Panics
    /// When there is no such variable.
    pub fn set(&mut self, index: usize, gradient: &[f32]) -> Result<(), Error> {
        if gradient.len() != self.ranges[index].len() {
            let spec = self.specs[index].clone();
            return Err(Error::GradientLength {
                spec,
                found: gradient.len(),
            });
        }
        self.gradient_mut(index).copy_from_slice(gradient);
        Ok(())
    }

    /// The numbers after the gradients.
    #[must_use]
    pub fn extra(&self) -> &[f32] {
        &self.values[self.variables_end()..]
    }

    /// The numbers after the gradients, to be written.
    pub fn extra_mut(&mut self) -> &mut [f32] {
        let end = self.variables_end();
        &mut self.values[end..]
    }

    /// Everything, as it is reduced.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// Sets everything to zero: the part of a worker that has no samples in a step.
    pub fn clear(&mut self) {
        self.values.fill(0.0);
    }

    fn variables_end(&self) -> usize {
        self.ranges.last().map_or(0, |range| range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_tile_the_buffer_in_order() {
        let specs: Vec<_> = [2, 0, 3]
            .iter()
            .map(|len| VariableSpec::new(format!("v{len}"), &[*len]).unwrap())
            .collect();
        let mut flat = FlatGradients::new(&specs, 2).unwrap();
        for (index, spec) in specs.iter().enumerate() {
            flat.set(index, &vec![index as f32 + 1.0; spec.len()])
                .unwrap();
        }
        flat.extra_mut().copy_from_slice(&[8.0, 9.0]);
        assert_eq!(flat.as_mut_slice(), [1.0, 1.0, 3.0, 3.0, 3.0, 8.0, 9.0]);
        assert_eq!(flat.gradient(2), [3.0; 3]);
        flat.clear();
        assert_eq!(flat.extra(), [0.0, 0.0]);
    }

    #[test]
    fn a_gradient_of_another_length_is_refused_by_name() {
        let spec = VariableSpec::new("w", &[2, 2]).unwrap();
        let mut flat = FlatGradients::new(std::slice::from_ref(&spec), 0).unwrap();
        assert_eq!(
            flat.set(0, &[1.0]),
            Err(Error::GradientLength { spec, found: 1 })
        );
    }

    #[test]
    fn more_than_memory_is_refused_by_name() {
        let half = VariableSpec::new("half", &[isize::MAX as usize / 8]).unwrap();
        let third = VariableSpec::new("third", &[isize::MAX as usize / 8 + 2]).unwrap();
        let expected = Error::TooLarge {
            name: "third".to_owned(),
        };
        assert_eq!(FlatGradients::new(&[half, third], 0).err(), Some(expected));
    }
}
