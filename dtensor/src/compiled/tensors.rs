use std::sync::Arc;

use super::Erased;
use crate::{DTensor, Error, Scalar};

/// Tensors that a compiled function takes or returns: one, several in a tuple, an array or a
/// vector, or none.
pub trait Tensors: List + Sized {}

pub(super) mod sealed {
    use super::{Erased, Error};

    #[expect(
        unnameable_types,
        reason = "a sealed trait is sealed by having no path"
    )]
    pub trait List: Sized {
        #[doc(hidden)]
        fn list(&self) -> Vec<Erased>;

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

impl<L: List> List for Vec<L> {
    fn list(&self) -> Vec<Erased> {
        self.iter().flat_map(List::list).collect()
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
