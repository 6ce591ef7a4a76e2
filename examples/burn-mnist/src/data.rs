//! The MNIST files, and batches of tensors out of them.

use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::tensor::{Device, Int, Tensor, TensorData};
use flate2::read::MultiGzDecoder;

use crate::Error;

/// Digits, 0 to 9.
pub(crate) const CLASSES: usize = 10;

/// An image of 28 × 28 pixels, row-major, and the digit that it shows.
#[derive(Clone, Debug)]
pub(crate) struct Digit {
    pixels: Vec<u8>,
    class: u8,
}

/// A batch of images `[batch, row, column]` and their digits `[batch]`.
#[derive(Clone, Debug)]
pub(crate) struct Digits {
    pub(crate) images: Tensor<3>,
    pub(crate) classes: Tensor<1, Int>,
}

#[derive(Clone, Debug)]
pub(crate) struct DigitBatcher;

impl Batcher<Digit, Digits> for DigitBatcher {
    fn batch(&self, items: Vec<Digit>, device: &Device) -> Digits {
        let count = items.len();
        let pixels = items.iter().flat_map(|digit| &digit.pixels);
        let images = pixels.map(|pixel| normalised(*pixel)).collect();
        let classes = items.iter().map(|digit| i64::from(digit.class)).collect();
        Digits {
            images: Tensor::from_data(TensorData::new(images, [count, SIDE, SIDE]), device),
            classes: Tensor::from_data(TensorData::new(classes, [count]), device),
        }
    }
}

/// Reads one part of MNIST, `train` or `t10k`, from `folder`, or so many images of it.
pub(crate) fn load(
    folder: &Path,
    part: &str,
    limit: Option<NonZeroUsize>,
) -> Result<InMemDataset<Digit>, Error> {
    let images = folder.join(format!("{part}-images-idx3-ubyte.gz"));
    let labels = folder.join(format!("{part}-labels-idx1-ubyte.gz"));
    let pixels = contents(&images, &[0, 0, 8, 3], SIDE * SIDE)?;
    let classes = contents(&labels, &[0, 0, 8, 1], 1)?;
    let (found, needed) = (classes.len(), pixels.len() / (SIDE * SIDE));
    if found != needed {
        return Err(Error::Labels {
            path: labels,
            found,
            needed,
        });
    }
    let wrong = |class: &u8| usize::from(*class) >= CLASSES;
    if let Some(index) = classes.iter().position(wrong) {
        return Err(Error::Label {
            path: labels,
            index,
            label: classes[index],
        });
    }
    let pixels = pixels.chunks_exact(SIDE * SIDE);
    let digits = pixels.zip(classes).map(|(pixels, class)| Digit {
        pixels: pixels.to_vec(),
        class,
    });
    let most = limit.map_or(needed, NonZeroUsize::get);
    Ok(InMemDataset::new(digits.take(most).collect()))
}

/// What is behind the header of an IDX file, which says how many items of `size` bytes there are.
fn contents(path: &Path, magic: &[u8; 4], size: usize) -> Result<Vec<u8>, Error> {
    let read = |source| Error::Data {
        path: PathBuf::from(path),
        source,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(read)?;
    MultiGzDecoder::new(file)
        .read_to_end(&mut bytes)
        .map_err(read)?;
    let invalid = |what| read(io::Error::new(io::ErrorKind::InvalidData, what));
    let rest = bytes
        .strip_prefix(magic)
        .ok_or_else(|| invalid("it is no such IDX file"))?;
    let (count, rest) = rest
        .split_first_chunk()
        .ok_or_else(|| invalid("it is cut off"))?;
    let sizes = if size == 1 { 0 } else { 8 };
    let items = rest.get(sizes..).ok_or_else(|| invalid("it is cut off"))?;
    let needed = u64::from(u32::from_be_bytes(*count)) * size as u64;
    match items.len() as u64 == needed {
        true => Ok(items.to_vec()),
        false => Err(invalid("it has more or fewer items than its header says")),
    }
}

fn normalised(pixel: u8) -> f32 {
    (f32::from(pixel) / 255.0 - MEAN) / DEVIATION
}

/// Rows and columns of an image.
const SIDE: usize = 28;

/// Mean and standard deviation of all pixels of the training set.
const MEAN: f32 = 0.1307;
const DEVIATION: f32 = 0.3081;
