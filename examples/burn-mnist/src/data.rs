//! The MNIST files, and batches of tensors out of them.

use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Device, Int, Tensor, TensorData};
use flate2::Crc;
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
) -> Result<Vec<Digit>, Error> {
    let images = folder.join(format!("{part}-images-idx3-ubyte.gz"));
    let labels = folder.join(format!("{part}-labels-idx1-ubyte.gz"));
    let pixels = contents(&images, &[0, 0, 8, 3], &[SIDE, SIDE])?;
    let classes = contents(&labels, &[0, 0, 8, 1], &[])?;
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
    Ok(digits.take(most).collect())
}

/// What tells these digits from others.
pub(crate) fn text(digits: &[Digit]) -> String {
    let mut checksum = Crc::new();
    for digit in digits {
        checksum.update(&digit.pixels);
        checksum.update(&[digit.class]);
    }
    format!(
        "{} images with checksum {:08x}",
        digits.len(),
        checksum.sum()
    )
}

/// The items of an IDX file, each of these sizes, or a byte if there are none.
fn contents(path: &Path, magic: &[u8; 4], sizes: &[usize]) -> Result<Vec<u8>, Error> {
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
    let items = items(&bytes, magic, sizes).map_err(invalid)?;
    Ok(items.to_vec())
}

/// What is behind the header, which says how many items there are, and their sizes.
fn items<'a>(file: &'a [u8], magic: &[u8; 4], sizes: &[usize]) -> Result<&'a [u8], String> {
    let cut_off = || "it is cut off".to_owned();
    let rest = file.strip_prefix(magic).ok_or("it is no such IDX file")?;
    let (count, rest) = rest.split_first_chunk().ok_or_else(cut_off)?;
    let count = u32::from_be_bytes(*count);
    let header = rest.split_at_checked(4 * sizes.len());
    let (found, items) = header.ok_or_else(cut_off)?;
    let found = found.as_chunks().0.iter();
    let found: Vec<usize> = found
        .map(|size| u32::from_be_bytes(*size) as usize)
        .collect();
    if found != sizes {
        let [found, needed] = [&found[..], sizes].map(by);
        return Err(format!("it has images of {found}, and {needed} are needed"));
    }
    if count == 0 {
        return Err("it has no items".to_owned());
    }
    let size: usize = sizes.iter().product();
    match items.len() as u64 == u64::from(count) * size as u64 {
        true => Ok(items),
        false => Err("it has more or fewer items than its header says".to_owned()),
    }
}

/// Sizes as one says them.
fn by(sizes: &[usize]) -> String {
    let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
    sizes.join(" by ")
}

fn normalised(pixel: u8) -> f32 {
    (f32::from(pixel) / 255.0 - MEAN) / DEVIATION
}

/// Rows and columns of an image.
const SIDE: usize = 28;

/// Mean and standard deviation of all pixels of the training set.
const MEAN: f32 = 0.1307;
const DEVIATION: f32 = 0.3081;
