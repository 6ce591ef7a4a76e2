//! What a compiled function takes and returns: `Tensors`, and values of the host among them.

use std::any::Any;
use std::fmt::{self, Debug};
use std::sync::Arc;

use super::Erased;
use crate::{DTensor, Error, Scalar, bf16, f16};

/// Tensors that a compiled function takes or returns: one, several in a tuple or a vector, or none;
/// and [`HostValue`]s among them.
pub trait Tensors: List + Sized {}

/// A value of the host that a compiled function takes, such as what an `if` in it looks at: each
/// value has a program of its own, as each shape has. A float is compared by its bits, any other
/// value by `==`.
///
/// ```
/// # use meshwork_core::{Client, Mesh};
/// # use meshwork_dtensor::{Context, DTensor, Error, HostValue, compile};
/// # use meshwork_layout::Layout;
/// # let context = Context::alone(Client::new("localhost", 0, 1)?);
/// # let layout = Layout::replicated(&Mesh::new([("x", 2)])?, 1);
/// type Given = (DTensor<f32>, HostValue<bool>);
/// let mut step = compile(|(): &mut (), (x, doubled): &Given| match doubled.0 {
///     true => x.scale(2.0),
///     false => Ok::<_, Error>(x.clone()),
/// });
/// let x = context.full(&[3], &layout, 1.0)?;
/// let mut first = |doubled| {
///     let made = step.call(&mut (), &(x.clone(), HostValue(doubled))).unwrap();
///     made.to_host().unwrap()[0]
/// };
/// assert_eq!([true, false, true].map(&mut first), [2.0, 1.0, 2.0]);
/// assert_eq!(step.traces(), 2);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias = "static_argnums")]
pub struct HostValue<V>(pub V);

pub(super) mod sealed {
    use std::sync::Arc;

    use super::{Erased, Error, Fixed};

    #[expect(
        unnameable_types,
        reason = "a sealed trait is sealed by having no path"
    )]
    pub trait List: Sized {
        #[doc(hidden)]
        fn list(&self) -> Vec<Erased>;

        /// The values that are no tensors, and the lengths of vectors.
        #[doc(hidden)]
        fn fixed(&self) -> Vec<Arc<dyn Fixed>> {
            Vec::new()
        }

        /// Others of the same types, in their place.
        #[doc(hidden)]
        fn replaced(&self, by: &mut dyn Iterator<Item = Erased>) -> Result<Self, Error>;

        /// The same without their elements.
        #[doc(hidden)]
        fn without_elements(&self) -> Self;
    }
}

use sealed::List;

impl<T: Scalar> List for DTensor<T> {
    fn list(&self) -> Vec<Erased> {
        vec![Erased(Arc::new(self.clone()))]
    }

    fn replaced(&self, by: &mut dyn Iterator<Item = Erased>) -> Result<Self, Error> {
        let next = by.next().ok_or(Error::NotKept)?;
        next.0.typed().cloned().ok_or(Error::NotKept)
    }

    fn without_elements(&self) -> Self {
        self.without_elements()
    }
}

impl<T: Scalar> Tensors for DTensor<T> {}

/// A value of any type that is compared with others.
#[expect(unnameable_types, reason = "as of the list that has it")]
pub trait Fixed: Any + Debug + Send + Sync {
    /// Whether the other is of the same type and equal.
    fn is(&self, other: &dyn Fixed) -> bool;

    /// How long a vector is; none for a value of the host.
    fn length(&self) -> Option<usize>;
}

impl<V: Any + Debug + PartialEq + Send + Sync> Fixed for V {
    fn is(&self, other: &dyn Fixed) -> bool {
        let other: &dyn Any = other;
        let other = other.downcast_ref::<V>();
        other.is_some_and(|other| match (bits(self), bits(other)) {
            (Some(own), Some(other)) => own == other,
            _ => self == other,
        })
    }

    fn length(&self) -> Option<usize> {
        let own: &dyn Any = self;
        own.downcast_ref().map(|length: &Length| length.0)
    }
}

/// Whether two lists have equal values.
pub(super) fn are_equal(own: &[Arc<dyn Fixed>], other: &[Arc<dyn Fixed>]) -> bool {
    let mut both = own.iter().zip(other).map(|(own, other)| (&**own, &**other));
    own.len() == other.len() && both.all(|(own, other)| own.is(other))
}

/// The bits of a float: zeros of both signs are equal, and what is no number is not even itself.
fn bits(value: &dyn Any) -> Option<u64> {
    let bits = value.downcast_ref().map(|own: &f64| own.to_bits());
    let bits = bits.or_else(|| Some(value.downcast_ref::<f32>()?.to_bits().into()));
    let bits = bits.or_else(|| Some(value.downcast_ref::<f16>()?.to_bits().into()));
    bits.or_else(|| Some(value.downcast_ref::<bf16>()?.to_bits().into()))
}

impl<V: Any + Clone + Debug + PartialEq + Send + Sync> List for HostValue<V> {
    fn list(&self) -> Vec<Erased> {
        Vec::new()
    }

    fn fixed(&self) -> Vec<Arc<dyn Fixed>> {
        vec![Arc::new(self.0.clone())]
    }

    fn replaced(&self, _: &mut dyn Iterator<Item = Erased>) -> Result<Self, Error> {
        Ok(self.clone())
    }

    fn without_elements(&self) -> Self {
        self.clone()
    }
}

impl<V: Any + Clone + Debug + PartialEq + Send + Sync> Tensors for HostValue<V> {}

/// How long a vector is: programs differ by how tensors are grouped, too.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) struct Length(pub(super) usize);

impl Debug for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of {}", self.0)
    }
}

impl<L: List> List for Vec<L> {
    fn list(&self) -> Vec<Erased> {
        self.iter().flat_map(List::list).collect()
    }

    fn fixed(&self) -> Vec<Arc<dyn Fixed>> {
        let length: Arc<dyn Fixed> = Arc::new(Length(self.len()));
        let own = self.iter().flat_map(List::fixed);
        std::iter::once(length).chain(own).collect()
    }

    fn replaced(&self, by: &mut dyn Iterator<Item = Erased>) -> Result<Self, Error> {
        self.iter().map(|own| own.replaced(by)).collect()
    }

    fn without_elements(&self) -> Self {
        self.iter().map(List::without_elements).collect()
    }
}

impl<L: Tensors> Tensors for Vec<L> {}

macro_rules! tuples {
    ($(($($name:ident)*);)+) => {$(
        impl<$($name: List),*> List for ($($name,)*) {
            #[allow(non_snake_case, reason = "each is called as its type")]
            fn list(&self) -> Vec<Erased> {
                let ($($name,)*) = self;
                let lists: Vec<Vec<Erased>> = vec![$($name.list()),*];
                lists.concat()
            }

            #[allow(non_snake_case, reason = "as above")]
            fn fixed(&self) -> Vec<Arc<dyn Fixed>> {
                let ($($name,)*) = self;
                let lists: Vec<Vec<Arc<dyn Fixed>>> = vec![$($name.fixed()),*];
                lists.concat()
            }

            #[allow(non_snake_case, unused_variables, clippy::unused_unit, reason = "as above")]
            fn replaced(&self, by: &mut dyn Iterator<Item = Erased>) -> Result<Self, Error> {
                let ($($name,)*) = self;
                Ok(($($name.replaced(by)?,)*))
            }

            #[allow(non_snake_case, clippy::unused_unit, reason = "as above")]
            fn without_elements(&self) -> Self {
                let ($($name,)*) = self;
                ($($name.without_elements(),)*)
            }
        }

        impl<$($name: Tensors),*> Tensors for ($($name,)*) {}
    )+};
}

tuples! {
    ();
    (A);
    (A B);
    (A B C);
    (A B C D);
}
