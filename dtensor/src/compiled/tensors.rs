//! What a compiled function takes and returns: `Tensors`, and values of the host among them.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use super::Erased;
use crate::{DTensor, Error, Scalar};

/// Tensors that a compiled function takes or returns: one, several in a tuple or a vector, or none;
/// and [`HostValue`]s among them.
pub trait Tensors: List + Sized {}

/// A value of the host that a compiled function takes, such as what an `if` in it looks at: each
/// value has a program of its own, as each shape has.
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

        /// The values that are no tensors.
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
}

impl<V: Any + Debug + PartialEq + Send + Sync> Fixed for V {
    fn is(&self, other: &dyn Fixed) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<V>() == Some(self)
    }
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

impl<L: List> List for Vec<L> {
    fn list(&self) -> Vec<Erased> {
        self.iter().flat_map(List::list).collect()
    }

    fn fixed(&self) -> Vec<Arc<dyn Fixed>> {
        self.iter().flat_map(List::fixed).collect()
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
