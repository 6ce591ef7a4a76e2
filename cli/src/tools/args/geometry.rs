//! Meshes and shapes on the command line.

use std::num::ParseIntError;

use meshwork_core::Mesh;
use meshwork_layout::Shape;

/// Why an argument is no mesh or no shape.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GeometryError {
    #[error("{dim:?} has no size: write each dimension with its size, such as x=2,y=4")]
    NoSize { dim: String },
    #[error(
        "{text:?} is no size: sizes are whole numbers, such as x=2,y=4 for a mesh and 8,6 for a shape"
    )]
    Size {
        text: String,
        #[source]
        source: ParseIntError,
    },
    #[error(transparent)]
    Mesh(#[from] meshwork_core::Error),
}

/// Reads `x=2,y=4`; nothing is the mesh of one rank.
pub(crate) fn mesh(text: &str) -> Result<Mesh, GeometryError> {
    let dims = words(text).map(|dim| {
        let (name, number) = dim.split_once('=').ok_or_else(|| GeometryError::NoSize {
            dim: dim.to_owned(),
        })?;
        Ok((name, size(number)?))
    });
    Ok(Mesh::new(dims.collect::<Result<Vec<_>, GeometryError>>()?)?)
}

/// Reads `8,6`; nothing is the shape of a scalar.
pub(crate) fn shape(text: &str) -> Result<Shape, GeometryError> {
    words(text).map(size).collect()
}

fn size(text: &str) -> Result<usize, GeometryError> {
    text.parse().map_err(|source| GeometryError::Size {
        text: text.to_owned(),
        source,
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(move |_| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meshes_and_shapes_are_read_between_commas() {
        let grid = mesh("x=2,y=4").unwrap();
        assert!(grid.dim_names().map(AsRef::as_ref).eq(["x", "y"]));
        assert!(grid.shape().eq([2, 4]));
        assert_eq!(mesh("").unwrap().size(), 1);
        assert_eq!(shape("8,0,6").unwrap().as_slice(), [8, 0, 6]);
        assert_eq!(shape("").unwrap().len(), 0);
    }

    #[test]
    fn what_is_none_is_told_how_it_is_written() {
        let message = |text| mesh(text).unwrap_err().to_string();
        for text in ["x", "x2", "x=2,", "x=2,,y=2"] {
            assert!(message(text).contains("such as x=2,y=4"), "{text}");
        }
        for text in ["x=two", "x=-1", "x=", "x=2=3"] {
            assert!(message(text).contains("is no size"), "{text}");
        }
        for text in ["=2", "match=2", "x=0", "x=2,x=2"] {
            assert!(matches!(mesh(text), Err(GeometryError::Mesh(_))), "{text}");
        }
        for text in ["8,", "8x6", "-1"] {
            assert!(
                matches!(shape(text), Err(GeometryError::Size { .. })),
                "{text}"
            );
        }
    }
}
