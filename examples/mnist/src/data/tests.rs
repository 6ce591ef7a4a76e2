//! The IDX parser, plain and gzipped: every truncation, wrong magic numbers, header lengths that
//! lie, and error messages that name the file and the remedy.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::*;

const IMAGES: &str = "train-images-idx3-ubyte";
const LABELS: &str = "train-labels-idx1-ubyte";

/// Three images of 2 by 2 pixels: 0 0 0 0, 1 1 1 1, 2 2 2 2.
fn three_images() -> Vec<u8> {
    let mut bytes = header(0x0803, &[3, 2, 2]);
    bytes.extend([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
    bytes
}

fn three_labels() -> Vec<u8> {
    [header(0x0801, &[3]), vec![7, 8, 9]].concat()
}

fn header(magic: u32, dims: &[u32]) -> Vec<u8> {
    std::iter::once(&magic)
        .chain(dims)
        .flat_map(|word| word.to_be_bytes())
        .collect()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Loads a folder with these two files; a name ends in `.gz` where the content is to be taken as
/// such.
fn load(files: [(&str, &[u8]); 2]) -> Result<Dataset, Error> {
    let folder = TempDir::new().unwrap();
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    Dataset::load(folder.path(), Split::Train)
}

/// The error for an image file with this content beside sound labels.
#[track_caller]
fn image_error(bytes: &[u8]) -> Error {
    load([(IMAGES, bytes), (LABELS, &three_labels())]).unwrap_err()
}

/// The same for a label file beside sound images.
#[track_caller]
fn label_error(bytes: &[u8]) -> Error {
    load([(IMAGES, &three_images()), (LABELS, bytes)]).unwrap_err()
}

/// Every message is one line, names the file, and tells what to do.
#[track_caller]
fn check_message(error: &Error, file: &str, parts: &[&str]) {
    let line = crate::error::one_line(error);
    assert!(!line.contains('\n') && !line.ends_with('.'), "{line}");
    for part in parts.iter().chain([&file]) {
        assert!(line.contains(part), "`{part}` not in `{line}`");
    }
}

#[test]
fn plain_and_compressed_files_hold_the_same_samples() {
    let plain = load([(IMAGES, &three_images()), (LABELS, &three_labels())]).unwrap();
    let (images, labels) = (format!("{IMAGES}.gz"), format!("{LABELS}.gz"));
    let packed = load([
        (&images, &gzipped(&three_images())),
        (&labels, &gzipped(&three_labels())),
    ])
    .unwrap();
    assert_eq!(plain.images, packed.images);
    assert_eq!(plain.labels, packed.labels);
    assert_eq!((plain.len(), plain.rows, plain.cols), (3, 2, 2));
}

#[test]
fn gather_keeps_the_order_of_its_indices() {
    let data = load([(IMAGES, &three_images()), (LABELS, &three_labels())]).unwrap();
    let batch = data.gather(&[2, 0, 2]);
    assert_eq!(batch.labels, [9, 7, 9]);
    let expected: Vec<f32> = [2u8, 0, 2]
        .iter()
        .flat_map(|&b| [normalised(b); 4])
        .collect();
    assert_eq!(batch.pixels, expected);
    assert!(data.gather(&[]).pixels.is_empty());
}

#[test]
fn black_and_white_lie_around_zero() {
    assert!((normalised(0) - -0.424_213).abs() < 1e-5);
    assert!((normalised(255) - 2.821_487).abs() < 1e-5);
}

#[test]
fn the_files_beside_this_program_are_sound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let train = Dataset::load(&folder, Split::Train).unwrap();
    let test = Dataset::load(&folder, Split::Test).unwrap();
    assert_eq!((train.len(), test.len()), (8_000, 2_000));
    train.require_side(28).unwrap();
    test.require_side(28).unwrap();
    assert!((0..10).all(|digit| train.labels.contains(&digit)));
}

#[test]
fn a_missing_file_is_named_with_the_flag_to_pass() {
    let error = Dataset::load(Path::new("nowhere"), Split::Test).unwrap_err();
    assert!(matches!(&error, Error::DataMissing { .. }), "{error:?}");
    check_message(&error, "t10k-images-idx3-ubyte", &["nowhere", "--data DIR"]);
}

#[test]
fn a_folder_in_place_of_a_file_is_a_read_error() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join(IMAGES)).unwrap();
    let error = Dataset::load(folder.path(), Split::Train).unwrap_err();
    assert!(matches!(&error, Error::DataRead { .. }), "{error:?}");
    check_message(&error, IMAGES, &["cannot read"]);
}

#[test]
fn a_gz_file_that_is_not_gzip_is_told_from_a_damaged_one() {
    let name = format!("{IMAGES}.gz");
    let error = load([(&name, b"<html>"), (LABELS, &three_labels())]).unwrap_err();
    assert!(
        matches!(&error, Error::DataNotGzip { found, .. } if found == b"<h"),
        "{error:?}"
    );
    check_message(&error, &name, &["[3c, 68]", "[1f, 8b]", "fetch it again"]);
    let empty = load([(&name, b""), (LABELS, &three_labels())]).unwrap_err();
    assert!(
        matches!(&empty, Error::DataNotGzip { found, .. } if found.is_empty()),
        "{empty:?}"
    );
    let mut damaged = gzipped(&three_images());
    let checksum = damaged.len() - 8;
    damaged[checksum] ^= 1;
    let error = load([(&name, &damaged), (LABELS, &three_labels())]).unwrap_err();
    assert!(matches!(&error, Error::DataRead { .. }), "{error:?}");
    check_message(
        &error,
        &name,
        &["cannot read", "fetch it again", "checksum"],
    );
}

#[test]
fn every_cut_of_a_plain_file_is_truncation_with_both_numbers() {
    let whole = three_images();
    for len in 0..whole.len() {
        let error = image_error(&whole[..len]);
        let announced = if len < 16 { 16 } else { 28 };
        assert!(
            matches!(&error, Error::DataTruncated { found, expected, .. }
                if *found == len as u64 && *expected == announced),
            "{len}: {error:?}"
        );
    }
    check_message(
        &image_error(&whole[..20]),
        IMAGES,
        &["20 of 28 bytes", "fetch it again"],
    );
}

#[test]
fn every_cut_of_a_compressed_file_is_an_error() {
    let name = format!("{LABELS}.gz");
    let whole = gzipped(&three_labels());
    for len in 0..whole.len() {
        let error = load([(IMAGES, &three_images()), (&name, &whole[..len])]).unwrap_err();
        let expected = matches!(
            &error,
            Error::DataNotGzip { .. } | Error::DataTruncated { .. }
        ) || len >= 2;
        assert!(expected, "{len}: {error:?}");
        check_message(&error, &name, &[]);
    }
}

#[test]
fn exchanged_files_are_a_wrong_magic_number() {
    let error = image_error(&three_labels());
    assert!(
        matches!(
            &error,
            Error::DataMagic {
                found: 0x0801,
                expected: 0x0803,
                ..
            }
        ),
        "{error:?}"
    );
    check_message(&error, IMAGES, &["0x00000801", "0x00000803", "exchanged"]);
    assert!(matches!(
        label_error(&three_images()),
        Error::DataMagic { .. }
    ));
}

#[test]
fn bytes_after_the_last_element_are_refused() {
    let error = label_error(&[three_labels(), vec![0]].concat());
    assert!(
        matches!(&error, Error::DataTooLong { expected: 11, .. }),
        "{error:?}"
    );
    check_message(&error, LABELS, &["11 bytes"]);
}

#[test]
fn lengths_in_a_header_are_not_believed() {
    let huge = image_error(&header(0x0803, &[u32::MAX, 1, 1]));
    assert!(
        matches!(&huge, Error::DataTruncated { found: 16, .. }),
        "{huge:?}"
    );
    let overflowing = image_error(&header(0x0803, &[u32::MAX; 3]));
    assert!(
        matches!(&overflowing, Error::DataDimensions { .. }),
        "{overflowing:?}"
    );
    let none = image_error(&header(0x0803, &[0, 28, 28]));
    check_message(&none, IMAGES, &["[0, 28, 28]", "at least 1"]);
}

#[test]
fn image_and_label_counts_have_to_agree() {
    let error = label_error(&[header(0x0801, &[2]), vec![1, 2]].concat());
    assert!(
        matches!(
            &error,
            Error::DataCount {
                images: 3,
                labels: 2,
                ..
            }
        ),
        "{error:?}"
    );
    check_message(&error, IMAGES, &[LABELS, "3 images", "2 labels"]);
}

#[test]
fn a_label_above_nine_is_named_with_its_place() {
    let error = label_error(&[header(0x0801, &[3]), vec![1, 10, 2]].concat());
    assert!(
        matches!(
            &error,
            Error::DataLabel {
                index: 1,
                label: 10,
                ..
            }
        ),
        "{error:?}"
    );
    check_message(&error, LABELS, &["label 10", "sample 1", "above 9"]);
}

#[test]
fn images_of_another_size_are_refused_by_name() {
    let data = load([(IMAGES, &three_images()), (LABELS, &three_labels())]).unwrap();
    data.require_side(2).unwrap();
    let error = data.require_side(28).unwrap_err();
    check_message(&error, IMAGES, &["2x2", "28x28"]);
}
