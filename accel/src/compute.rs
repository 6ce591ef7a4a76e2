//! Arithmetic on the values of tensors, for backends that have it.

use std::fmt::{self, Display};

use crate::{Accelerator, DeviceBuffer, ElementType, Error};

/// An op on each element by itself. Every backend that has one has all, so new ones are felt there.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Pointwise {
    /// The other sign.
    Negate,
    /// Itself if it is positive, else zero.
    Relu,
    /// The exponential function.
    Exp,
    /// The natural logarithm.
    Ln,
}

impl Pointwise {
    /// Every op.
    pub const ALL: [Self; 4] = [Self::Negate, Self::Relu, Self::Exp, Self::Ln];
}

impl Display for Pointwise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Negate => "negate",
            Self::Relu => "relu",
            Self::Exp => "exp",
            Self::Ln => "ln",
        })
    }
}

/// An op on the elements at one place of two buffers.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Pairwise {
    /// The sum.
    Add,
    /// The first less the second.
    Subtract,
    /// The product.
    Multiply,
    /// The first by the second.
    Divide,
}

impl Pairwise {
    /// Every op.
    pub const ALL: [Self; 4] = [Self::Add, Self::Subtract, Self::Multiply, Self::Divide];
}

impl Display for Pairwise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "add",
            Self::Subtract => "subtract",
            Self::Multiply => "multiply",
            Self::Divide => "divide",
        })
    }
}

/// Element-wise arithmetic on floats.
///
/// Unlike reductions, results may differ between backends in the last places, and NaN in its bits.
/// The methods that a backend need not have say [`Error::Unsupported`] where it does not.
pub trait Elementwise: Accelerator {
    /// Whether it has arithmetic of such elements, as far as it knows before it is asked for some.
    fn computes(&self, element: ElementType) -> bool {
        element.is_float()
    }

    /// Replaces each of `values` by `op` of it.
    ///
    /// # Errors
    /// [`Error::UnsupportedElement`] for types that are no floats, or a float that the backend does
    /// not compute with; all compute with `f32`.
    fn pointwise(&self, op: Pointwise, values: &mut Self::Buffer) -> Result<(), Error>;

    /// Replaces each element of `into` by `op` of it and the same element of `by`.
    ///
    /// # Shapes
    /// Both buffers hold the same number of elements of the same type on the same device.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], [`Error::ElementMismatch`], [`Error::LengthMismatch`],
    /// [`Error::UnsupportedElement`].
    fn pairwise(
        &self,
        op: Pairwise,
        into: &mut Self::Buffer,
        by: &Self::Buffer,
    ) -> Result<(), Error>;

    /// Replaces each of `values` by itself times `by`; 16-bit floats are multiplied as `f32`, and
    /// rounded once.
    ///
    /// # Errors
    /// Those of [`pairwise`](Self::pairwise), and for floats other than `f32` those of
    /// [`convert`](Self::convert).
    fn scale(&self, values: &mut Self::Buffer, by: f32) -> Result<(), Error> {
        let (len, element) = (values.len(), values.element_type());
        let mut factors = self.allocate(values.device(), ElementType::F32, len)?;
        self.fill(&mut factors, 0..len, by)?;
        if matches!(element, ElementType::F16 | ElementType::Bf16) {
            let wide = self.convert(values, ElementType::F32)?;
            self.pairwise(Pairwise::Multiply, &mut factors, &wide)?;
            let products = self.convert(&factors, element)?;
            return self.copy(&products, 0..len, values, 0);
        }
        if element != ElementType::F32 {
            factors = self.convert(&factors, element)?;
        }
        self.pairwise(Pairwise::Multiply, values, &factors)
    }

    /// A new buffer on the same device: the elements as those of another type, as
    /// [`convert_slice`](crate::convert_slice) has them; of any type, not of floats only.
    ///
    /// # Errors
    /// [`Error::UnsupportedElement`], [`Error::Unsupported`], and those of
    /// [`allocate`](Accelerator::allocate).
    fn convert(&self, from: &Self::Buffer, to: ElementType) -> Result<Self::Buffer, Error> {
        let _ = (from, to);
        let operation = "a conversion of elements";
        Err(Error::Unsupported { operation })
    }

    /// A new buffer on the same device: the elements of `yes` where those of `condition` are not 0,
    /// and of `no` elsewhere. All of them may be of any type, not floats only; NaN is not 0.
    ///
    /// # Shapes
    /// All hold the same number of elements on the same device, `yes` and `no` those of one type.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], [`Error::ElementMismatch`], [`Error::LengthMismatch`],
    /// [`Error::UnsupportedElement`], [`Error::Unsupported`], and those of
    /// [`allocate`](Accelerator::allocate).
    fn select(
        &self,
        condition: &Self::Buffer,
        yes: &Self::Buffer,
        no: &Self::Buffer,
    ) -> Result<Self::Buffer, Error> {
        let _ = (condition, yes, no);
        let operation = "a choice by conditions";
        Err(Error::Unsupported { operation })
    }
}

/// The sizes of a matrix product, or of a stack of them, whose elements can all be counted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ProductShape {
    depth: usize,
    rows: usize,
    inner: usize,
    columns: usize,
}

impl ProductShape {
    /// The product of a matrix of `rows` by `inner` elements and one of `inner` by `columns`.
    ///
    /// ```
    /// use meshwork_accel::ProductShape;
    ///
    /// let shape = ProductShape::new(2, 3, 4)?;
    /// assert_eq!([shape.left(), shape.right(), shape.product()], [6, 12, 8]);
    /// assert!(ProductShape::new(usize::MAX, 1, 2).is_err());
    /// # Ok::<(), meshwork_accel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ShapeTooLarge`].
    pub fn new(rows: usize, inner: usize, columns: usize) -> Result<Self, Error> {
        Self::stacked(1, [rows, inner, columns])
    }

    /// A batch of matrix products of one shape, of `rows`, `inner` and `columns`. On either side,
    /// and in the product, matrices follow one another.
    ///
    /// ```
    /// use meshwork_accel::ProductShape;
    ///
    /// let shape = ProductShape::stacked(5, [2, 3, 4])?;
    /// assert_eq!([shape.left(), shape.right(), shape.product()], [30, 60, 40]);
    /// # Ok::<(), meshwork_accel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ShapeTooLarge`].
    pub fn stacked(depth: usize, [rows, inner, columns]: [usize; 3]) -> Result<Self, Error> {
        for (rows, columns) in [(rows, inner), (inner, columns), (rows, columns)] {
            let elements = rows.checked_mul(columns).and_then(|n| n.checked_mul(depth));
            if elements.is_none() {
                return Err(Error::ShapeTooLarge { rows, columns });
            }
        }
        Ok(Self {
            depth,
            rows,
            inner,
            columns,
        })
    }

    /// Products in the stack.
    #[must_use]
    pub const fn depth(self) -> usize {
        self.depth
    }

    /// Rows of the left matrix and of the product.
    #[must_use]
    pub const fn rows(self) -> usize {
        self.rows
    }

    /// Columns of the left matrix and rows of the right one.
    #[must_use]
    pub const fn inner(self) -> usize {
        self.inner
    }

    /// Columns of the right matrix and of the product.
    #[must_use]
    pub const fn columns(self) -> usize {
        self.columns
    }

    /// Elements of all left matrices.
    #[must_use]
    pub const fn left(self) -> usize {
        self.depth * self.rows * self.inner
    }

    /// Elements of all right matrices.
    #[must_use]
    pub const fn right(self) -> usize {
        self.depth * self.inner * self.columns
    }

    /// Elements of all products.
    #[must_use]
    pub const fn product(self) -> usize {
        self.depth * self.rows * self.columns
    }
}

/// Products of row-major matrices of floats, and of batches of them.
///
/// In which order terms are added is the backend's choice, so the last places may differ.
pub trait Matmul: Accelerator {
    /// Replaces `into` by the products of the matrices of `left` and `right`.
    ///
    /// # Shapes
    /// The buffers hold as many elements as `shape` says, of the same type on the same device.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], [`Error::ElementMismatch`], [`Error::LengthMismatch`] (of a
    /// buffer and what it should hold), [`Error::UnsupportedElement`] for types that are no floats,
    /// or a float that the backend does not compute with; all compute with `f32`.
    fn matmul(
        &self,
        shape: ProductShape,
        left: &Self::Buffer,
        right: &Self::Buffer,
        into: &mut Self::Buffer,
    ) -> Result<(), Error>;
}
