//! `PerReplica`, the values of a worker's replicas, and the sealed trait `Reduce` of values that
//! can be reduced over replicas (scalars, vectors, arrays).

#[cfg(feature = "ndarray")]
use ndarray::ArrayD;
use smallvec::SmallVec;

use crate::{Error, Value};

/// One value for each replica of this worker.
#[derive(Clone, Debug, Eq, PartialEq)]
#[doc(alias = "DistributedValues")]
pub struct PerReplica<T>(SmallVec<[T; 1]>);

impl<T> PerReplica<T> {
    /// At least one value, in the order of the replicas.
    pub(crate) fn new(values: Vec<T>) -> Self {
        Self(SmallVec::from_vec(values))
    }

    /// The value of a worker's only replica, which takes no memory of its own.
    pub(crate) fn only(value: T) -> Self {
        Self(SmallVec::from_buf([value]))
    }

    /// The values of this worker's replicas, in order.
    #[doc(alias = "experimental_local_results")]
    pub fn local_results(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    /// The values of this worker's replicas, in order, to be changed.
    pub fn local_results_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.0.iter_mut()
    }

    /// The values of this worker's replicas, in order.
    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        self.0.into_vec()
    }

    /// The value of this worker's first replica, which often is its only one.
    #[must_use]
    pub fn into_first(mut self) -> T {
        self.0.swap_remove(0)
    }

    /// Applies `change` to each value.
    #[must_use]
    pub fn map<R>(&self, change: impl FnMut(&T) -> R) -> PerReplica<R> {
        PerReplica(self.0.iter().map(change).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.0
    }
}

/// Numbers that can be reduced over all replicas: a number, a vector or an array of any shape.
pub trait Reduce: Send + Sized + sealed::Sealed {
    /// The element type.
    type Element: Value;

    #[doc(hidden)]
    fn elements(&self) -> Vec<Self::Element>;

    #[doc(hidden)]
    fn replace(&mut self, elements: Vec<Self::Element>);

    #[doc(hidden)]
    fn dimensions(&self) -> Vec<usize>;
}

impl<T: Value> sealed::Sealed for T {}
impl<T: Value> Reduce for T {
    type Element = T;

    fn elements(&self) -> Vec<T> {
        vec![*self]
    }

    fn replace(&mut self, elements: Vec<T>) {
        if let [element] = elements[..] {
            *self = element;
        }
    }

    fn dimensions(&self) -> Vec<usize> {
        Vec::new()
    }
}

impl<T: Value> sealed::Sealed for Vec<T> {}
impl<T: Value> Reduce for Vec<T> {
    type Element = T;

    fn elements(&self) -> Self {
        self.clone()
    }

    fn replace(&mut self, elements: Self) {
        *self = elements;
    }

    fn dimensions(&self) -> Vec<usize> {
        vec![self.len()]
    }
}

#[cfg(feature = "ndarray")]
impl<T: Value> sealed::Sealed for ArrayD<T> {}
#[cfg(feature = "ndarray")]
impl<T: Value> Reduce for ArrayD<T> {
    type Element = T;

    fn elements(&self) -> Vec<T> {
        self.iter().copied().collect()
    }

    fn replace(&mut self, elements: Vec<T>) {
        self.iter_mut()
            .zip(elements)
            .for_each(|(own, element)| *own = element);
    }

    fn dimensions(&self) -> Vec<usize> {
        self.shape().to_vec()
    }
}

/// The values in one shape, as slices of a sum; [`Error::ShapesDiffer`] when they have several.
pub(crate) fn of_one_shape<V: Reduce>(values: &[V]) -> Result<Vec<Vec<V::Element>>, Error> {
    let first = values.first().map(V::dimensions).unwrap_or_default();
    for (replica, value) in values.iter().enumerate() {
        let found = value.dimensions();
        if found != first {
            return Err(Error::ShapesDiffer {
                replica,
                found,
                first,
            });
        }
    }
    Ok(values.iter().map(V::elements).collect())
}

mod sealed {
    #[expect(
        unnameable_types,
        reason = "a sealed trait is sealed by having no path"
    )]
    pub trait Sealed {}
}
