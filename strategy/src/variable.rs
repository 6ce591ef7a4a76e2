//! `VariableSpec`, `MirroredVariable`, and `Scope`, in which workers create variables: names and
//! shapes are compared with the chief's, then its values are broadcast. Variables with a copy per
//! replica are in `distributed_variable`.

use std::collections::BTreeSet;
use std::fmt::{self, Display};

use meshwork_collectives::{Element, Group, Rank};

use crate::Error;

/// Name and shape of a variable: what all workers must agree on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VariableSpec {
    name: String,
    shape: Vec<usize>,
    len: usize,
}

impl VariableSpec {
    /// A variable of this name and shape, row-major; an empty shape is a scalar.
    ///
    /// # Errors
    /// [`Error::TooLarge`]
    pub fn new(name: impl Into<String>, shape: &[usize]) -> Result<Self, Error> {
        let name = name.into();
        let bytes = shape
            .iter()
            .try_fold(size_of::<f32>(), |bytes, size| bytes.checked_mul(*size));
        match bytes {
            Some(bytes) if isize::try_from(bytes).is_ok() => Ok(Self {
                name,
                shape: shape.to_vec(),
                len: bytes / size_of::<f32>(),
            }),
            _ => Err(Error::TooLarge { name }),
        }
    }

    /// Its name, unique in its model.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its dimensions, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How many values it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none, because a dimension is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The shape as messages show it, such as `[784, 10]`.
    pub(crate) fn dims(&self) -> impl Display {
        format!("{:?}", self.shape)
    }
}

impl Display for VariableSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.dims())
    }
}

/// A variable of which every worker holds a copy, made equal when it was created.
///
/// It stays equal if every worker changes it by the same values, such as gradients that were
/// reduced; [`verify_replicas`](crate::MultiWorkerMirroredStrategy::verify_replicas) checks that.
#[derive(Clone, Debug, PartialEq)]
#[doc(alias = "Variable")]
pub struct MirroredVariable {
    spec: VariableSpec,
    values: Vec<f32>,
}

impl MirroredVariable {
    /// Its name and shape.
    #[must_use]
    pub fn spec(&self) -> &VariableSpec {
        &self.spec
    }

    /// This worker's copy, row-major.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// This worker's copy, to be changed in the same way on every worker.
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }
}

/// Where variables are created, so that all workers begin with rank 0's values.
///
/// Every worker must create the same variables in the same order.
#[derive(Debug)]
pub struct Scope<'a> {
    group: &'a mut Group,
    /// What variables of arrays have as many copies as.
    #[cfg_attr(not(feature = "ndarray"), expect(dead_code, reason = "none is there"))]
    local_replicas: usize,
    names: BTreeSet<String>,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(group: &'a mut Group, local_replicas: usize) -> Self {
        Self {
            group,
            local_replicas,
            names: BTreeSet::new(),
        }
    }

    #[cfg(feature = "ndarray")]
    pub(crate) fn local_replicas(&self) -> usize {
        self.local_replicas
    }

    /// Creates a variable. Rank 0's `initial` values, row-major, replace those of all others.
    ///
    /// # Errors
    /// [`Error::ValueCount`], and those of [`mirror`](Self::mirror).
    #[track_caller]
    pub fn variable(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
        initial: Vec<f32>,
    ) -> Result<MirroredVariable, Error> {
        let spec = VariableSpec::new(name, shape)?;
        if spec.len() != initial.len() {
            return Err(Error::ValueCount {
                found: initial.len(),
                spec,
            });
        }
        let mut values = initial;
        self.mirror(std::slice::from_ref(&spec), &mut values)?;
        Ok(MirroredVariable { spec, values })
    }

    /// Makes the variables of a model library equal: `values` holds those of all `specs` one after
    /// the other, and is replaced by rank 0's.
    ///
    /// # Errors
    /// [`Error::DuplicateVariable`], [`Error::ValueCount`] for the last variable when `values` has
    /// another length than all together, [`Error::VariablesDiffer`], which ends the group on every
    /// worker, and [`Error::Group`].
    #[track_caller]
    pub fn mirror<T: Element>(
        &mut self,
        specs: &[VariableSpec],
        values: &mut [T],
    ) -> Result<(), Error> {
        for spec in specs {
            if !self.names.insert(spec.name().to_owned()) {
                return Err(Error::DuplicateVariable {
                    name: spec.name().to_owned(),
                });
            }
        }
        let others: usize = specs.iter().rev().skip(1).map(VariableSpec::len).sum();
        if let Some(last) = specs.last()
            && values.len().checked_sub(others) != Some(last.len())
        {
            let found = values.len().saturating_sub(others);
            return Err(Error::ValueCount {
                spec: last.clone(),
                found,
            });
        }
        self.agree_on(specs)?;
        Ok(self.group.broadcast(values, Rank::CHIEF)?)
    }

    /// Compares names and shapes with the chief's, and leaves all values as they are: for variables
    /// that were made equal before, or will be.
    ///
    /// # Errors
    /// [`Error::VariablesDiffer`], which ends the group, and [`Error::Group`].
    #[track_caller]
    pub fn compare(&mut self, specs: &[VariableSpec]) -> Result<(), Error> {
        self.agree_on(specs)
    }

    /// Compares the names and shapes with the chief's.
    #[track_caller]
    fn agree_on(&mut self, specs: &[VariableSpec]) -> Result<(), Error> {
        let mine = encode(specs);
        let mut length = [mine.len() as u64];
        self.group.broadcast(&mut length, Rank::CHIEF)?;
        // The chief is trusted with the length of its own model's description; one that is too
        // long for this machine is another one than the chief's, which the broadcast refuses.
        let mut chiefs = vec![0; usize::try_from(length[0]).unwrap_or(0)];
        if self.group.rank() == Rank::CHIEF {
            chiefs.copy_from_slice(&mine);
        }
        self.group.broadcast(&mut chiefs, Rank::CHIEF)?;
        if chiefs == mine {
            return Ok(());
        }
        let error = difference(specs, &decode(&chiefs), self.group.rank());
        self.group.abort(error.to_string());
        Err(error)
    }
}

/// The first place in which this worker's model differs from the chief's.
fn difference(mine: &[VariableSpec], chiefs: &[VariableSpec], rank: Rank) -> Error {
    let index = mine
        .iter()
        .zip(chiefs)
        .take_while(|(mine, chiefs)| mine == chiefs)
        .count();
    let at = |specs: &[VariableSpec]| specs.get(index).cloned().map(Box::new);
    Error::VariablesDiffer {
        index,
        rank,
        mine: at(mine),
        chiefs: at(chiefs),
    }
}

/// Each spec as the length of its name, the name, its rank and its sizes; all numbers are 8 bytes.
fn encode(specs: &[VariableSpec]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for spec in specs {
        bytes.extend((spec.name.len() as u64).to_le_bytes());
        bytes.extend_from_slice(spec.name.as_bytes());
        bytes.extend((spec.shape.len() as u64).to_le_bytes());
        for size in &spec.shape {
            bytes.extend((*size as u64).to_le_bytes());
        }
    }
    bytes
}

/// Inverse of [`encode`]; stops at what cannot be read, as these bytes come from another process.
fn decode(mut bytes: &[u8]) -> Vec<VariableSpec> {
    let mut specs = Vec::new();
    while let Some(spec) = next_spec(&mut bytes) {
        specs.push(spec);
    }
    specs
}

fn next_spec(bytes: &mut &[u8]) -> Option<VariableSpec> {
    let name = usize::try_from(next_number(bytes)?).ok()?;
    let (name, rest) = bytes.split_at_checked(name)?;
    *bytes = rest;
    let dimensions = next_number(bytes)?;
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        shape.push(usize::try_from(next_number(bytes)?).ok()?);
    }
    VariableSpec::new(String::from_utf8_lossy(name), &shape).ok()
}

fn next_number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec(name: &str, shape: &[usize]) -> VariableSpec {
        VariableSpec::new(name, shape).unwrap()
    }

    #[test]
    fn sizes_multiply_and_overflow_is_refused() {
        assert_eq!(spec("w", &[784, 10]).len(), 7840);
        assert_eq!(spec("scalar", &[]).len(), 1);
        assert!(spec("none", &[3, 0]).is_empty());
        for shape in [&[usize::MAX, 2][..], &[usize::MAX / 4], &[1 << 62]] {
            let expected = Error::TooLarge {
                name: "w".to_owned(),
            };
            assert_eq!(VariableSpec::new("w", shape), Err(expected));
        }
    }

    #[test]
    fn the_first_difference_is_named_with_both_shapes() {
        let mine = [spec("a", &[2]), spec("b", &[3, 4])];
        let chiefs = [spec("a", &[2]), spec("b", &[3, 5]), spec("c", &[1])];
        let error = difference(&mine, &chiefs, Rank::new(2));
        assert_eq!(
            error.to_string(),
            "variable number 1 is b of shape [3, 4] on rank 2 but b of shape [3, 5] on rank 0: \
             build the same model, with the same sizes, in every worker"
        );
        let shorter = difference(&mine, &mine[..1], Rank::new(1)).to_string();
        assert!(
            shorter.contains("b of shape [3, 4] on rank 1 but missing on rank 0"),
            "{shorter}"
        );
    }

    proptest! {
        #[test]
        fn encode_and_decode_are_inverse(specs in prop::collection::vec((".{0,9}", prop::collection::vec(0_usize..9, 0..4)), 0..5)) {
            let specs: Vec<_> = specs.iter().map(|(name, shape)| spec(name, shape)).collect();
            prop_assert_eq!(decode(&encode(&specs)), specs);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..99)) {
            decode(&bytes);
        }
    }
}
