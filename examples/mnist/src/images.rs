//! Both parts of a data set, which fit each other and the networks.

use std::path::Path;

use crate::data::{Dataset, Split};
use crate::error::Error;
use crate::model::LEAST_SIDE;

/// The images to learn from and those to be measured on.
#[derive(Debug)]
pub(crate) struct Images {
    pub(crate) train: Dataset,
    pub(crate) test: Dataset,
}

impl Images {
    /// Reads both parts of a data set from `folder`.
    ///
    /// # Errors
    ///
    /// As [`Dataset::load`], [`Error::DataShapes`] for parts of images of two sizes, and
    /// [`Error::DataImageSize`] for images that are too small.
    pub(crate) fn load(folder: &Path) -> Result<Self, Error> {
        let train = Dataset::load(folder, Split::Train)?;
        let test = Dataset::load(folder, Split::Test)?;
        let (shape, other) = (train.shape(), test.shape());
        if shape != other {
            return Err(Error::DataShapes {
                folder: folder.to_owned(),
                train: shape,
                test: other,
            });
        }
        if shape.rows.min(shape.cols) < LEAST_SIDE {
            return Err(Error::DataImageSize {
                folder: folder.to_owned(),
                shape,
                least: LEAST_SIDE,
            });
        }
        Ok(Self { train, test })
    }

    /// Number of training images.
    pub(crate) fn train_len(&self) -> usize {
        self.train.len()
    }

    /// What tells them from other images.
    pub(crate) fn text(&self) -> String {
        let (train, test) = (&self.train, &self.test);
        format!(
            "{} training and {} test images of {} with checksums {:08x} and {:08x}",
            train.len(),
            test.len(),
            train.shape(),
            train.checksum(),
            test.checksum()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Why a folder is refused with a training and a test image of these sizes, black ones.
    fn refused(train: [u8; 2], test: [u8; 2]) -> String {
        let folder = tempfile::tempdir().unwrap();
        for (name, [rows, cols]) in [("train", train), ("t10k", test)] {
            let write = |what: &str, bytes: Vec<u8>| {
                fs::write(folder.path().join(format!("{name}-{what}")), bytes).unwrap();
            };
            let mut images = vec![0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, rows, 0, 0, 0, cols];
            images.resize(16 + usize::from(rows) * usize::from(cols), 0);
            write("images", images);
            write("labels", vec![0, 0, 8, 1, 0, 0, 0, 1, 7]);
        }
        Images::load(folder.path()).unwrap_err().to_string()
    }

    #[test]
    fn parts_of_two_sizes_and_small_images_are_refused_with_their_sizes() {
        let error = refused([28, 28], [28, 20]);
        assert!(
            error.contains("1x28x28") && error.contains("1x28x20"),
            "{error}"
        );
        let error = refused([15, 28], [15, 28]);
        assert!(
            error.contains("1x15x28") && error.contains("16x16"),
            "{error}"
        );
    }
}
