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
