//! Tensors whose elements are of a type that is known at run time only.

use std::any::Any;
use std::sync::Arc;

use meshwork_accel::ElementType;
use meshwork_layout::ops::TensorLayout;

use super::{Recording, Trace};
use crate::{DTensor, Error, Scalar, bf16, f16};

/// A tensor of elements of any type.
pub(crate) type AnyTensor = Arc<dyn Tensor>;

/// What can be asked of a tensor without its type of elements.
pub(crate) trait Tensor: Any + Send + Sync {
    fn element(&self) -> ElementType;
    fn placement(&self) -> &TensorLayout;
    fn trace(&self) -> &Trace;
    /// The same tensor without its elements.
    fn emptied(&self) -> AnyTensor;
    /// The same tensor, recorded by nobody.
    fn untraced(&self) -> AnyTensor;
    /// The same tensor as a value of a recording.
    fn given(&self, recording: &Arc<Recording>) -> AnyTensor;
    /// The elements as floats of a type; none for a type that is no float.
    fn to_float(&self, element: ElementType) -> Result<Option<AnyTensor>, Error>;
    /// The elements as indices.
    fn to_indices(&self) -> Result<DTensor<i64>, Error>;
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
