//! `AnyLayout`: everything that TensorFlow's `Layout` can be (a layout, an open pattern, a single
//! device, empty), and conversions to `Layout` and `LayoutPattern`. Parsing and printing are in
//! `text`, protobuf in `proto`.

use meshwork_core::{AnyMesh, Error as MeshError, SingleDevice};

use crate::{Error, Layout, LayoutPattern};

/// TensorFlow's layout type: the layout of tensors on a mesh, on one device alone, or empty.
///
/// Its text and protobuf forms are TensorFlow's, byte for byte: [`parse`](Self::parse) is inverse
/// to [`Display`](std::fmt::Display), [`decode`](Self::decode) to [`encode`](Self::encode).
///
/// ```text
/// sharding_specs:x,unsharded, mesh:…             each spec and a comma; also match and any
/// parted:x,unsharded, mesh:…                     of the type LayoutType::Parted
/// maximal:true, mesh:/job:…/task:…/device:…      one device alone
/// empty_layout                                   none
/// ```
///
/// Layouts that TensorFlow does not have have no protobuf form, and a text form that TensorFlow
/// refuses. Several mesh dimensions on one tensor dimension are separated by `|`; partial ones and
/// their reduction come after the specs:
///
/// ```text
/// sharding_specs:x|y,unsharded, partial:sum:z, mesh:…
/// ```
///
/// ```
/// use meshwork_layout::{AnyLayout, Error, Layout};
///
/// let text = "sharding_specs:x,unsharded, mesh:m|x=2,y=2|0,1,2,3||";
/// let layout = AnyLayout::parse(text)?;
/// assert_eq!(layout.to_string(), text);
/// assert_eq!(AnyLayout::decode(&layout.encode()?)?, layout);
/// assert_eq!(Layout::try_from(layout)?.copies(), 2);
/// assert_eq!(AnyLayout::parse("empty_layout")?, AnyLayout::Empty);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are patterns, and the others short-lived"
)]
pub enum AnyLayout {
    /// No layout: it is not known yet.
    #[default]
    Empty,
    /// Whole tensors, of any rank, on one device alone.
    SingleDevice(SingleDevice),
    /// A layout on a mesh, in which tensor dimensions may be left open.
    Pattern(LayoutPattern),
}

impl AnyLayout {
    /// The layout of tensors on this single device.
    ///
    /// # Errors
    /// [`Error::Mesh`] for a text that names no device.
    pub fn from_device(device: impl Into<String>) -> Result<Self, Error> {
        Ok(Self::SingleDevice(SingleDevice::new(device)?))
    }

    /// The layout of tensors on the one device of this mesh.
    ///
    /// # Errors
    /// [`Error::NotOneDevice`] for a mesh of another kind.
    pub fn from_single_device_mesh(mesh: &AnyMesh) -> Result<Self, Error> {
        let device = mesh.single_device().ok_or(Error::NotOneDevice)?;
        Ok(Self::SingleDevice(device.clone()))
    }

    /// The mesh, device or empty mesh that it is for.
    #[must_use]
    pub fn mesh(&self) -> AnyMesh {
        match self {
            Self::Empty => AnyMesh::Empty,
            Self::SingleDevice(device) => AnyMesh::SingleDevice(device.clone()),
            Self::Pattern(pattern) => pattern.mesh().clone().into(),
        }
    }
}

impl From<Layout> for AnyLayout {
    fn from(layout: Layout) -> Self {
        Self::Pattern(layout.into())
    }
}

impl From<LayoutPattern> for AnyLayout {
    fn from(pattern: LayoutPattern) -> Self {
        Self::Pattern(pattern)
    }
}

/// Fails by [`Error::EmptyLayout`], and by [`Error::Mesh`] for one device alone.
impl TryFrom<AnyLayout> for LayoutPattern {
    type Error = Error;

    fn try_from(any: AnyLayout) -> Result<Self, Error> {
        match any {
            AnyLayout::Pattern(pattern) => Ok(pattern),
            AnyLayout::Empty => Err(Error::EmptyLayout),
            AnyLayout::SingleDevice(device) => Err(Error::Mesh(MeshError::OnlyOneDevice {
                device: device.to_string(),
            })),
        }
    }
}

/// Fails as the conversion into [`LayoutPattern`], and by [`Error::OpenSpec`].
impl TryFrom<AnyLayout> for Layout {
    type Error = Error;

    fn try_from(any: AnyLayout) -> Result<Self, Error> {
        LayoutPattern::try_from(any)?.try_into()
    }
}
