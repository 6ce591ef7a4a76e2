//! Tensors whose elements are of a type that is known at run time only.

use std::any::Any;
use std::sync::Arc;

use meshwork_accel::ElementType;
use meshwork_layout::Shape;
use meshwork_layout::ops::TensorLayout;

use super::{Described, Recording, Trace};
use crate::backend::{Bound, DeviceBlocks, LocalDevices, Recorder};
use crate::blocks::Blocks;
use crate::{Context, DTensor, Error, Scalar, bf16, f16};

/// A tensor of elements of any type.
pub(crate) type AnyTensor = Arc<dyn Tensor>;

/// What can be asked of a tensor without its type of elements.
pub(crate) trait Tensor: Any + Send + Sync {
    fn element(&self) -> ElementType;
    fn placement(&self) -> &TensorLayout;
    fn trace(&self) -> &Trace;
    fn context(&self) -> &Context;
    /// The blocks on the devices of a site, where they are carried to if they are not there.
    fn at(&self, site: &LocalDevices) -> Result<DeviceBlocks, Error>;
    /// Checks that the elements that have to be indices are some.
    fn check_bound(&self, bound: &Bound) -> Result<(), Error>;
    /// Whether nobody else has its blocks.
    fn is_spare(&self) -> bool;
    /// The same tensor without its elements.
    fn emptied(&self) -> AnyTensor;
    /// The same tensor, recorded by nobody.
    fn untraced(&self) -> AnyTensor;
    /// The same tensor as a value of a recording.
    fn given(&self, recording: &Arc<Recording>) -> AnyTensor;
    /// The elements as floats of a type; none for a type that is no float.
    fn to_float(&self, element: ElementType) -> Result<Option<AnyTensor>, Error>;
    /// The elements as indices, which floats are known to be.
    fn to_indices(&self) -> Result<DTensor<i64>, Error>;
    /// The elements as indices, of which floats are checked to be some below the size of an axis.
    fn to_indices_below(&self, axis: usize, size: usize) -> Result<DTensor<i64>, Error>;
    /// Whether the elements are not 0.
    fn to_truths(&self) -> Result<DTensor<bool>, Error>;
    fn as_any(&self) -> &dyn Any;
}

impl<T: Scalar> Tensor for DTensor<T> {
    fn element(&self) -> ElementType {
        T::TYPE
    }

    fn placement(&self) -> &TensorLayout {
        self.placement()
    }

    fn trace(&self) -> &Trace {
        self.trace()
    }

    fn context(&self) -> &Context {
        self.context()
    }

    fn at(&self, site: &LocalDevices) -> Result<DeviceBlocks, Error> {
        self.blocks().at(site)
    }

    fn check_bound(&self, bound: &Bound) -> Result<(), Error> {
        let Bound { axis, size, .. } = *bound;
        let Some(part) = &bound.part else {
            return self.check_below(axis, size);
        };
        for block in self.unpack()?.iter() {
            // In a graph, a block in other sizes is the same value.
            let block = block.to_shape(part.whole()).map_err(|_| Error::NotKept)?;
            let cut = block.slice_each_axis(|own| part.part()[own.axis.index()].clone().into());
            self.check_each(cut.iter(), axis, size)?;
        }
        Ok(())
    }

    fn is_spare(&self) -> bool {
        Arc::strong_count(self.blocks()) == 1 && self.blocks().are_spare()
    }

    fn emptied(&self) -> AnyTensor {
        Arc::new(self.without_elements())
    }

    fn untraced(&self) -> AnyTensor {
        Arc::new(self.untraced())
    }

    fn given(&self, recording: &Arc<Recording>) -> AnyTensor {
        Arc::new(recording.give(self))
    }

    fn to_float(&self, element: ElementType) -> Result<Option<AnyTensor>, Error> {
        Ok(match element {
            ElementType::F16 => Some(Arc::new(self.cast::<f16>()?)),
            ElementType::Bf16 => Some(Arc::new(self.cast::<bf16>()?)),
            ElementType::F32 => Some(Arc::new(self.cast::<f32>()?)),
            ElementType::F64 => Some(Arc::new(self.cast::<f64>()?)),
            _ => None,
        })
    }

    fn to_indices(&self) -> Result<DTensor<i64>, Error> {
        match self.as_any().downcast_ref::<DTensor<i64>>() {
            Some(same) => Ok(same.clone()),
            None => self.cast(),
        }
    }

    fn to_indices_below(&self, axis: usize, size: usize) -> Result<DTensor<i64>, Error> {
        if !T::TYPE.is_float() {
            return self.to_indices();
        }
        let whole = self.reduce_partial()?;
        let bound = |blocks| Recorder::of(blocks).is_some_and(|own| own.bound(blocks, axis, size));
        // As whole numbers all of them would be indices.
        if !whole.blocks().stored().is_some_and(bound) {
            whole.untraced().check_below(axis, size)?;
        }
        whole.to_indices()
    }

    fn to_truths(&self) -> Result<DTensor<bool>, Error> {
        match self.as_any().downcast_ref::<DTensor<bool>>() {
            Some(same) => Ok(same.clone()),
            None => self.cast(),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl dyn Tensor {
    /// The tensor, if it has such elements.
    pub(crate) fn typed<T: Scalar>(&self) -> Option<&DTensor<T>> {
        self.as_any().downcast_ref()
    }
}

/// The tensor with its type of elements, which is that of another.
pub(crate) fn like<'a, T: Scalar>(
    _: &DTensor<T>,
    tensor: &'a AnyTensor,
) -> Result<&'a DTensor<T>, Error> {
    tensor.typed().ok_or(Error::NotKept)
}

/// A tensor that is described so, of blocks of these sizes on devices.
pub(crate) fn made_of(
    context: &Context,
    described: &Described,
    sizes: Vec<Shape>,
    blocks: DeviceBlocks,
) -> Result<AnyTensor, Error> {
    fn typed<T: Scalar>(
        context: &Context,
        placement: TensorLayout,
        sizes: Vec<Shape>,
        blocks: DeviceBlocks,
    ) -> Result<AnyTensor, Error> {
        let blocks = Blocks::there(context, sizes, blocks);
        Ok(Arc::new(DTensor::<T>::made(context, placement, blocks)?))
    }
    let make = match described.element {
        ElementType::Bool => typed::<bool>,
        ElementType::I8 => typed::<i8>,
        ElementType::I16 => typed::<i16>,
        ElementType::I32 => typed::<i32>,
        ElementType::I64 => typed::<i64>,
        ElementType::U8 => typed::<u8>,
        ElementType::U16 => typed::<u16>,
        ElementType::U32 => typed::<u32>,
        ElementType::U64 => typed::<u64>,
        ElementType::F16 => typed::<f16>,
        ElementType::Bf16 => typed::<bf16>,
        ElementType::F32 => typed::<f32>,
        ElementType::F64 => typed::<f64>,
        _ => return Err(Error::NotKept),
    };
    make(context, described.placement.clone(), sizes, blocks)
}

/// An expression with a tensor of floats, for whichever type of float it has; none for others.
macro_rules! with_float {
    ($tensor:expr, |$typed:ident| $body:expr) => {{
        let tensor: &dyn $crate::record::Tensor = $tensor;
        if let Some($typed) = tensor.typed::<f32>() {
            Some($body)
        } else if let Some($typed) = tensor.typed::<$crate::bf16>() {
            Some($body)
        } else if let Some($typed) = tensor.typed::<$crate::f16>() {
            Some($body)
        } else if let Some($typed) = tensor.typed::<f64>() {
            Some($body)
        } else {
            None
        }
    }};
}

pub(crate) use with_float;

/// The same for elements of any type.
macro_rules! with_scalar {
    ($tensor:expr, |$typed:ident| $body:expr) => {
        $crate::record::with_scalar!(
            $tensor, |$typed| $body,
            f32 i64 bool f64 i32 $crate::bf16 $crate::f16 u8 u32 u64 i8 i16 u16
        )
    };
    ($tensor:expr, |$typed:ident| $body:expr, $($element:ty)+) => {{
        let tensor: &dyn $crate::record::Tensor = $tensor;
        loop {
            $(
                if let Some($typed) = tensor.typed::<$element>() {
                    break Some($body);
                }
            )+
            break None;
        }
    }};
}

pub(crate) use with_scalar;

/// An expression with a tensor of indices or labels: floats, of which some may be none, stay as
/// they are, and others are `i64`.
macro_rules! with_indices {
    ($tensor:expr, |$indices:ident| $body:expr) => {{
        let tensor: &$crate::record::AnyTensor = $tensor;
        match $crate::record::with_float!(&**tensor, |$indices| $body) {
            Some(made) => made,
            None => {
                let $indices = &tensor.to_indices()?;
                $body
            }
        }
    }};
}

pub(crate) use with_indices;
