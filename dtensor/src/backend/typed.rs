//! What backends do with buffers whose type only they know.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use meshwork_accel::{
    Accelerator, Arrange, Arrangement, DeviceBuffer, DeviceId, Element, ElementTask, ElementType,
    Elementwise, Error, Fold, Matmul, NativeCollectives, Pairwise, Pointwise, ProductShape,
    ReduceOp, Region, StridedSlice, balanced_split,
};

/// A buffer of an accelerator.
pub(super) type Raw = Box<dyn Any + Send + Sync>;

/// The result of an operation on buffers; `None` where they are not of this kind of accelerator.
pub(super) type Answer = Option<Result<Raw, Error>>;

/// Memory operations, which every accelerator has.
pub(super) trait Memory: Send + Sync {
    /// A new buffer of these elements, of which there are whole ones.
    fn upload(&self, device: DeviceId, element: ElementType, bytes: &[u8]) -> Result<Raw, Error>;

    /// A new buffer of `len` zeros.
    fn zeros(&self, device: DeviceId, element: ElementType, len: usize) -> Result<Raw, Error>;

    /// All elements of a buffer, as a `Vec` of them.
    fn download(&self, from: &Raw) -> Result<Box<dyn Any>, Error>;

    /// Where a buffer is.
    fn device(&self, of: &Raw) -> DeviceId;

    /// Some elements of a buffer, on any device.
    fn span(&self, device: DeviceId, from: &Raw, range: Range<usize>) -> Answer;

    /// The op of buffers on one device, as a balanced tree over them, with the bits that the host
    /// has.
    fn reduced(&self, op: ReduceOp, terms: &[&Raw]) -> Answer;
}

/// Operations that compute new buffers from the elements of others, which stay as they are.
pub(super) trait Arithmetic: Send + Sync {
    fn computes(&self, element: ElementType) -> bool;

    fn pointwise(&self, op: Pointwise, of: &Raw) -> Answer;

    fn pairwise(&self, op: Pairwise, of: [&Raw; 2]) -> Answer;

    fn product(&self, shape: ProductShape, of: [&Raw; 2]) -> Answer;

    fn convert(&self, of: &Raw, to: ElementType) -> Answer;

    fn select(&self, condition: &Raw, ends: [&Raw; 2]) -> Answer;
}

/// Operations that rearrange elements, or reduce them along an axis.
pub(super) trait Shaping: Send + Sync {
    fn cut(&self, from: &Raw, part: &Region) -> Answer;

    fn arrange(&self, from: &Raw, to: &Arrangement) -> Answer;

    fn fold(&self, op: ReduceOp, sizes: [usize; 3], from: &Raw) -> Answer;

    fn scan(&self, op: ReduceOp, sizes: [usize; 3], from: &Raw) -> Answer;

    fn arg_reduce(&self, op: ReduceOp, sizes: [usize; 3], from: &Raw) -> Answer;

    fn step(&self, from: &Raw, by: &StridedSlice) -> Answer;

    fn take(&self, from: &Raw, sizes: [usize; 3], indices: &Raw) -> Answer;

    fn one_hot(&self, indices: &Raw, classes: Range<usize>, element: ElementType) -> Answer;

    /// A whole on this device of boxes on it; what none of them covers are elements of these bytes.
    fn assemble(
        &self,
        whole: Whole<'_>,
        parts: &mut dyn Iterator<Item = (&Raw, &Region)>,
    ) -> Answer;
}

/// Collectives among the devices of this process.
pub(super) trait Links: Send + Sync {
    /// The op of all buffers, on each of their devices.
    fn all_reduced(&self, op: ReduceOp, terms: &[&Raw]) -> Option<Result<Vec<Raw>, Error>>;
}

/// A buffer that is assembled from parts.
#[derive(Clone, Copy)]
pub(crate) struct Whole<'a> {
    pub(crate) device: DeviceId,
    pub(crate) element: ElementType,
    pub(crate) len: usize,
    /// An element, in bytes; zero where there are none.
    pub(crate) fill: Option<&'a [u8]>,
}

/// An accelerator that knows its buffers again.
pub(super) struct Typed<A>(pub(super) Arc<A>);

/// A buffer that is kept together with the backend that has made it.
fn own<A: Accelerator<Buffer: Sync> + 'static>(buffer: &Raw) -> &A::Buffer {
    buffer
        .downcast_ref()
        .expect("a buffer goes only to the backend beside which it is stored")
}

impl<A: Accelerator<Buffer: Sync> + 'static> Memory for Typed<A> {
    fn upload(&self, device: DeviceId, element: ElementType, bytes: &[u8]) -> Result<Raw, Error> {
        let accelerator = &*self.0;
        element.run(Upload {
            accelerator,
            device,
            bytes,
        })
    }

    fn zeros(&self, device: DeviceId, element: ElementType, len: usize) -> Result<Raw, Error> {
        raw(self.0.allocate(device, element, len))
    }

    fn download(&self, from: &Raw) -> Result<Box<dyn Any>, Error> {
        let accelerator = &*self.0;
        let from = own::<A>(from);
        from.element_type().run(Download { accelerator, from })
    }

    fn device(&self, of: &Raw) -> DeviceId {
        own::<A>(of).device()
    }

    fn span(&self, device: DeviceId, from: &Raw, range: Range<usize>) -> Answer {
        let from = from.downcast_ref::<A::Buffer>()?;
        let made = self.0.allocate(device, from.element_type(), range.len());
        Some(made.and_then(|mut into| {
            self.0.copy(from, range, &mut into, 0)?;
            Ok(Box::new(into) as Raw)
        }))
    }

    fn reduced(&self, op: ReduceOp, terms: &[&Raw]) -> Answer {
        let terms = terms.iter().map(|term| term.downcast_ref::<A::Buffer>());
        let terms: Vec<&A::Buffer> = terms.collect::<Option<_>>()?;
        Some(match self.tree(op, &terms) {
            Ok(Some(reduced)) => Ok(Box::new(reduced)),
            Ok(None) => Err(Error::NoSources { op }),
            Err(error) => Err(error),
        })
    }
}

impl<A: Arrange<Buffer: Sync> + Fold + 'static> Shaping for Typed<A> {
    fn cut(&self, from: &Raw, part: &Region) -> Answer {
        Some(raw(self.0.cut(from.downcast_ref()?, part)))
    }

    fn arrange(&self, from: &Raw, to: &Arrangement) -> Answer {
        Some(raw(self.0.arrange(from.downcast_ref()?, to)))
    }

    fn fold(&self, op: ReduceOp, sizes: [usize; 3], from: &Raw) -> Answer {
        Some(raw(self.0.fold(op, sizes, from.downcast_ref()?)))
    }

    fn scan(&self, op: ReduceOp, sizes: [usize; 3], from: &Raw) -> Answer {
        Some(raw(self.0.scan(op, sizes, from.downcast_ref()?)))
    }

    fn arg_reduce(&self, op: ReduceOp, sizes: [usize; 3], from: &Raw) -> Answer {
        Some(raw(self.0.arg_reduce(op, sizes, from.downcast_ref()?)))
    }

    fn step(&self, from: &Raw, by: &StridedSlice) -> Answer {
        Some(raw(self.0.step(from.downcast_ref()?, by)))
    }

    fn take(&self, from: &Raw, sizes: [usize; 3], indices: &Raw) -> Answer {
        let (from, indices) = (from.downcast_ref()?, indices.downcast_ref()?);
        Some(raw(self.0.take(from, sizes, indices)))
    }

    fn one_hot(&self, indices: &Raw, classes: Range<usize>, element: ElementType) -> Answer {
        let indices = indices.downcast_ref()?;
        Some(raw(self.0.one_hot(indices, classes, element)))
    }

    fn assemble(
        &self,
        whole: Whole<'_>,
        parts: &mut dyn Iterator<Item = (&Raw, &Region)>,
    ) -> Answer {
        let known = parts.map(|(part, region)| Some((part.downcast_ref::<A::Buffer>()?, region)));
        let known: Vec<(&A::Buffer, &Region)> = known.collect::<Option<_>>()?;
        Some(raw(self.assembled(whole, &known)))
    }
}

impl<A: NativeCollectives<Buffer: Sync> + 'static> Links for Typed<A> {
    fn all_reduced(&self, op: ReduceOp, terms: &[&Raw]) -> Option<Result<Vec<Raw>, Error>> {
        let terms = terms.iter().map(|term| term.downcast_ref::<A::Buffer>());
        let terms: Vec<&A::Buffer> = terms.collect::<Option<_>>()?;
        let made = terms.iter().map(|term| self.0.duplicate(term));
        let made: Result<Vec<A::Buffer>, Error> = made.collect();
        Some(made.and_then(|mut made| {
            let mut all: Vec<&mut A::Buffer> = made.iter_mut().collect();
            self.0.all_reduce(op, &mut all)?;
            Ok(made.into_iter().map(|made| Box::new(made) as Raw).collect())
        }))
    }
}

impl<A: Arrange<Buffer: Sync> + 'static> Typed<A> {
    fn assembled(
        &self,
        whole: Whole<'_>,
        parts: &[(&A::Buffer, &Region)],
    ) -> Result<A::Buffer, Error> {
        let mut into = self.0.allocate(whole.device, whole.element, whole.len)?;
        if let Some(element) = whole.fill {
            let accelerator = &*self.0;
            whole.element.run(Fill {
                accelerator,
                element,
                into: &mut into,
            })?;
        }
        for (part, region) in parts {
            self.0.paste(part, &mut into, region)?;
        }
        Ok(into)
    }
}

impl<A: Elementwise<Buffer: Sync> + Matmul + 'static> Arithmetic for Typed<A> {
    fn computes(&self, element: ElementType) -> bool {
        self.0.computes(element)
    }

    fn pointwise(&self, op: Pointwise, of: &Raw) -> Answer {
        let of = of.downcast_ref::<A::Buffer>()?;
        Some(self.changed(of, |values| self.0.pointwise(op, values)))
    }

    fn pairwise(&self, op: Pairwise, [left, right]: [&Raw; 2]) -> Answer {
        let left = left.downcast_ref::<A::Buffer>()?;
        let right = right.downcast_ref::<A::Buffer>()?;
        Some(self.changed(left, |into| self.0.pairwise(op, into, right)))
    }

    fn product(&self, shape: ProductShape, [left, right]: [&Raw; 2]) -> Answer {
        let left = left.downcast_ref::<A::Buffer>()?;
        let right = right.downcast_ref::<A::Buffer>()?;
        let made = self
            .0
            .allocate(left.device(), left.element_type(), shape.product());
        Some(made.and_then(|mut into| {
            self.0.matmul(shape, left, right, &mut into)?;
            Ok(Box::new(into) as Raw)
        }))
    }

    fn convert(&self, of: &Raw, to: ElementType) -> Answer {
        Some(raw(self.0.convert(of.downcast_ref()?, to)))
    }

    fn select(&self, condition: &Raw, [yes, no]: [&Raw; 2]) -> Answer {
        let condition = condition.downcast_ref()?;
        let (yes, no) = (yes.downcast_ref()?, no.downcast_ref()?);
        Some(raw(self.0.select(condition, yes, no)))
    }
}

fn raw<B: Any + Send + Sync>(made: Result<B, Error>) -> Result<Raw, Error> {
    made.map(|made| Box::new(made) as Raw)
}

impl<A: Accelerator<Buffer: Sync> + 'static> Typed<A> {
    /// A changed duplicate.
    fn changed(
        &self,
        of: &A::Buffer,
        change: impl FnOnce(&mut A::Buffer) -> Result<(), Error>,
    ) -> Result<Raw, Error> {
        let mut made = self.0.duplicate(of)?;
        change(&mut made)?;
        Ok(Box::new(made))
    }
}

impl<A: Accelerator<Buffer: Sync> + 'static> Typed<A> {
    /// As the host does, see [`Reduction::fold`](meshwork_accel::Reduction::fold).
    fn tree(&self, op: ReduceOp, terms: &[&A::Buffer]) -> Result<Option<A::Buffer>, Error> {
        let Some(middle) = balanced_split(terms.len()) else {
            return terms.first().map(|only| self.0.duplicate(only)).transpose();
        };
        let (left, right) = terms.split_at(middle);
        let Some(mut into) = self.tree(op, left)? else {
            return Ok(None);
        };
        match right {
            [only] => self.0.reduce(op, &mut into, only)?,
            _ => {
                if let Some(by) = self.tree(op, right)? {
                    self.0.reduce(op, &mut into, &by)?;
                }
            }
        }
        Ok(Some(into))
    }
}

struct Fill<'a, A: Accelerator> {
    accelerator: &'a A,
    element: &'a [u8],
    into: &'a mut A::Buffer,
}

impl<A: Accelerator> ElementTask for Fill<'_, A> {
    type Output = Result<(), Error>;

    fn run<T: Element>(self) -> Result<(), Error> {
        let len = self.into.len();
        match bytemuck::checked::try_pod_read_unaligned(self.element) {
            Ok(value) => self.accelerator.fill::<T>(self.into, 0..len, value),
            // They were an element of this very type before.
            Err(_) => Ok(()),
        }
    }
}

struct Upload<'a, A> {
    accelerator: &'a A,
    device: DeviceId,
    bytes: &'a [u8],
}

impl<A: Accelerator<Buffer: Sync> + 'static> ElementTask for Upload<'_, A> {
    type Output = Result<Raw, Error>;

    fn run<T: Element>(self) -> Result<Raw, Error> {
        // They were elements of this very type before.
        let elements: &[T] = bytemuck::checked::cast_slice(self.bytes);
        raw(self.accelerator.allocate_from(self.device, elements))
    }
}

struct Download<'a, A: Accelerator> {
    accelerator: &'a A,
    from: &'a A::Buffer,
}

impl<A: Accelerator> ElementTask for Download<'_, A> {
    type Output = Result<Box<dyn Any>, Error>;

    fn run<T: Element>(self) -> Result<Box<dyn Any>, Error> {
        let mut elements = vec![T::default(); self.from.len()];
        self.accelerator.download(self.from, 0, &mut elements)?;
        Ok(Box::new(elements))
    }
}
