//! Blocks read back from the files of a save, by the layout that asks for them.

use std::path::{Path, PathBuf};

use meshwork_accel::{ElementType, bf16};
use meshwork_checkpoint::tensors::{SavedTensors, TensorInfo};
use meshwork_checkpoint::{Generation, Series};
use meshwork_core::MeshRank;
use meshwork_layout::{Layout, Ranges};
use ndarray::ArrayD;

use super::stored::element_of;
use crate::exchange::from_bytes;
use crate::transfer_plan::region;
use crate::{Block, Error, Scalar};

/// A tensor in the files of one save.
pub(super) struct Reader<'a> {
    saved: SavedTensors<'a>,
    name: &'a str,
    info: TensorInfo,
    element: ElementType,
    /// The path of the index.
    index: PathBuf,
}

impl<'a> Reader<'a> {
    pub(super) fn open(
        series: &'a Series,
        generation: Generation,
        name: &'a str,
    ) -> Result<Self, Error> {
        let saved = SavedTensors::open(series, generation)?;
        let info = saved.tensor(name)?.clone();
        let index = series.index_path(generation);
        Ok(Self {
            element: element_of(info.dtype()).ok_or_else(|| other_form(&index))?,
            saved,
            name,
            info,
            index,
        })
    }

    /// The sizes of the axes of the whole tensor.
    pub(super) fn shape(&self) -> &[usize] {
        self.info.shape()
    }

    /// The blocks of some ranks.
    pub(super) fn blocks<T: Scalar>(
        &self,
        layout: &Layout,
        ranks: &[MeshRank],
    ) -> Result<Vec<Block<T>>, Error> {
        let block = |rank: &MeshRank| {
            let held = layout.shard(*rank, self.shape())?;
            Ok(self.block::<T>(&held)?.into_shared())
        };
        ranks.iter().map(block).collect()
    }

    /// The elements in these ranges.
    fn block<T: Scalar>(&self, held: &Ranges) -> Result<ArrayD<T>, Error> {
        let shape = region::sizes(held);
        let elements: usize = shape.iter().product();
        // As many as the files have, so that their bytes fit into memory too.
        let mut bytes = vec![0; elements * self.element.size()];
        self.saved.read(self.name, held, &mut bytes)?;
        let elements = match (self.element, T::TYPE) {
            (same, asked) if same == asked => from_bytes(&bytes),
            // Rounded ones are made wider.
            (ElementType::Bf16, ElementType::F32) => from_bytes::<bf16>(&bytes)
                .map(|rounded| rounded.iter().map(|x| T::from_f64(x.to_f64())).collect()),
            (found, expected) => {
                return Err(Error::SavedElement {
                    name: self.name.to_owned(),
                    found,
                    expected,
                });
            }
        };
        // Not every byte is a value of every type.
        let elements = elements.ok_or_else(|| other_form(&self.index))?;
        Ok(ArrayD::from_shape_vec(shape.to_vec(), elements).expect("as many as the shape has"))
    }
}

fn other_form(index: &Path) -> Error {
    let path = index.to_owned();
    meshwork_checkpoint::Error::TensorForm { path }.into()
}
