//! Meshes that creation ops use where none is named.

use std::cell::RefCell;
use std::marker::PhantomData;

use meshwork_core::Mesh;
use meshwork_layout::Layout;

use crate::{Context, DTensor, Error, Scalar};

thread_local! {
    static SCOPES: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

struct Entry {
    number: u64,
    context: Context,
    mesh: Mesh,
}

/// As long as it lives, this thread's default mesh is that of [`Context::default_mesh`]; then it is
/// the one before again, whether the scope ends by an error, a panic or not.
#[derive(Debug)]
#[must_use = "the mesh is the default for as long as this lives"]
pub struct MeshScope {
    number: u64,
    /// It has to end on the thread where it began.
    thread: PhantomData<*const ()>,
}

impl Drop for MeshScope {
    fn drop(&mut self) {
        // A thread that ends has no scopes any more.
        let _ = SCOPES.try_with(|scopes| {
            scopes
                .borrow_mut()
                .retain(|entry| entry.number != self.number);
        });
    }
}

impl Context {
    /// Makes a mesh this thread's default, in which [`zeros`], [`full`] and [`range`] make whole
    /// tensors on all devices. Scopes nest.
    ///
    /// ```
    /// use meshwork_core::{Client, CreateMesh};
    /// use meshwork_dtensor::{Context, Error, current_default_mesh, zeros};
    ///
    /// let context = Context::alone(Client::new("localhost", 0, 1)?.with_devices("CPU", 2)?);
    /// let mesh = context.create_mesh(CreateMesh::new())?;
    /// let scope = context.default_mesh(&mesh);
    /// assert!(zeros::<f32>(&[3])?.layout().is_fully_replicated());
    /// drop(scope);
    /// assert_eq!(current_default_mesh(), None);
    /// # Ok::<(), Error>(())
    /// ```
    #[doc(alias = "run_on")]
    pub fn default_mesh(&self, mesh: &Mesh) -> MeshScope {
        let number = SCOPES.with_borrow_mut(|scopes| {
            let number = scopes.last().map_or(0, |entry| entry.number + 1);
            scopes.push(Entry {
                number,
                context: self.clone(),
                mesh: mesh.clone(),
            });
            number
        });
        MeshScope {
            number,
            thread: PhantomData,
        }
    }

    /// Calls a function in the scope of a layout's mesh, and returns its result in that layout.
    ///
    /// # Errors
    /// Those of the function and of [`DTensor::relayout`].
    #[track_caller]
    pub fn call_with_layout<T: Scalar>(
        &self,
        layout: &Layout,
        function: impl FnOnce() -> Result<DTensor<T>, Error>,
    ) -> Result<DTensor<T>, Error> {
        let scope = self.default_mesh(layout.mesh());
        let made = function()?;
        drop(scope);
        made.relayout(layout)
    }
}

/// This thread's default mesh, if it has one.
#[must_use]
#[doc(alias = "get_default_mesh")]
pub fn current_default_mesh() -> Option<Mesh> {
    SCOPES.with_borrow(|scopes| Some(scopes.last()?.mesh.clone()))
}

/// A tensor of zeros, whole on all devices of the default mesh.
///
/// # Errors
/// [`Error::NoDefaultMesh`], and those of [`Context::full`].
#[track_caller]
pub fn zeros<T: Scalar>(shape: &[usize]) -> Result<DTensor<T>, Error> {
    full(shape, T::default())
}

/// A tensor of one element everywhere, whole on all devices of the default mesh.
///
/// # Errors
/// Those of [`zeros`].
#[track_caller]
#[doc(alias = "ones")]
pub fn full<T: Scalar>(shape: &[usize], element: T) -> Result<DTensor<T>, Error> {
    let (context, mesh) = current()?;
    context.full(shape, &Layout::replicated(&mesh, shape.len()), element)
}

/// The numbers from 0 up to one, which is left out, whole on all devices of the default mesh.
///
/// # Errors
/// Those of [`zeros`].
#[track_caller]
pub fn range<T: Scalar>(end: usize) -> Result<DTensor<T>, Error> {
    let (context, mesh) = current()?;
    context.from_fn(&[end], &Layout::replicated(&mesh, 1), |index| {
        T::from_index(index[0])
    })
}

fn current() -> Result<(Context, Mesh), Error> {
    let current = SCOPES.with_borrow(|scopes| {
        let entry = scopes.last()?;
        Some((entry.context.clone(), entry.mesh.clone()))
    });
    current.ok_or(Error::NoDefaultMesh)
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;
    use crate::testing::context;

    fn mesh(size: usize) -> Mesh {
        Mesh::new([("x", size)]).unwrap()
    }

    #[test]
    fn scopes_nest_and_end_in_any_order() {
        assert_eq!(current_default_mesh(), None);
        let first = context().default_mesh(&mesh(1));
        let second = context().default_mesh(&mesh(2));
        assert_eq!(current_default_mesh(), Some(mesh(2)));
        drop(first);
        assert_eq!(current_default_mesh(), Some(mesh(2)));
        drop(second);
        assert_eq!(current_default_mesh(), None);
        assert_eq!(zeros::<f32>(&[2]).unwrap_err(), Error::NoDefaultMesh);
    }

    #[test]
    fn a_scope_ends_with_an_error_and_with_a_panic() {
        let layout = Layout::replicated(&mesh(2), 1);
        let failed = context().call_with_layout(&layout, || Err::<DTensor<f32>, _>(Error::NotHere));
        assert_eq!(failed.unwrap_err(), Error::NotHere);
        assert_eq!(current_default_mesh(), None);
        let panicked = catch_unwind(|| {
            let _scope = context().default_mesh(&mesh(2));
            panic!("in the scope");
        });
        assert!(panicked.is_err());
        assert_eq!(current_default_mesh(), None);
    }

    #[test]
    fn what_is_made_in_a_scope_lies_as_asked() {
        let layout = Layout::batch_sharded(&mesh(2), "x", 1).unwrap();
        let made = context()
            .call_with_layout(&layout, || range::<i32>(4))
            .unwrap();
        assert_eq!(made.layout(), &layout);
        assert_eq!(made.unpack().unwrap()[1], ndarray::array![2, 3].into_dyn());
    }
}
