//! Data files, plain and gzipped, IDX and CIFAR-10: formats told apart by their contents, every
//! truncation, wrong magic numbers, header lengths that lie, and error messages that name the file
//! and the remedy.

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

/// Loads a folder with these files.
fn load<const N: usize>(files: [(&str, &[u8]); N]) -> Result<Dataset, Error> {
    let folder = TempDir::new().unwrap();
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    Dataset::load(folder.path(), Split::Train)
}

/// Records of CIFAR-10 with these labels, whose red pixels are 1, green 2 and blue 3, plus 10 times
/// the label.
fn records(labels: &[u8]) -> Vec<u8> {
    let record = |&label: &u8| {
        let channel = |channel: u8| [channel + 10 * label; 1024];
        let pixels = (1..=3).flat_map(channel);
        std::iter::once(label).chain(pixels).collect::<Vec<_>>()
    };
    labels.iter().flat_map(record).collect()
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
    assert_eq!(plain.pixels, packed.pixels);
    assert_eq!(plain.labels, packed.labels);
    assert_eq!(plain.checksum(), packed.checksum());
    assert_eq!(
        (plain.len(), plain.shape().to_string()),
        (3, "1x2x2".to_owned())
    );
    // The name says nothing, and what else lies there is passed over.
    let renamed = load([
        ("train.of-mine", &gzipped(&three_images())),
        ("train.zzz.gz", &three_labels()),
        ("README.md", b"not data"),
    ]);
    assert_eq!(renamed.unwrap().checksum(), plain.checksum());
}

#[test]
fn of_a_file_and_its_compressed_form_one_is_read() {
    let name = format!("{IMAGES}.gz");
    let other = [header(0x0803, &[3, 2, 2]), vec![5; 12]].concat();
    let loaded = load([
        (IMAGES, &other),
        (&name, &gzipped(&three_images())),
        (LABELS, &three_labels()),
    ]);
    assert_eq!(loaded.unwrap().pixels, three_images()[16..]);
}

#[test]
fn records_of_several_files_are_one_data_set() {
    let data = load([
        ("data_batch_2.bin", &records(&[9])),
        ("data_batch_1.bin.gz", &gzipped(&records(&[0, 4]))),
        ("data_batch_1 (1).bin", &records(&[0, 4])),
        ("data_batch_2.bin.1", &records(&[9])),
        ("test_batch.bin", &records(&[7])),
        ("batches.meta.txt", b"airplane"),
    ])
    .unwrap();
    assert_eq!(
        (data.len(), data.shape().to_string()),
        (3, "3x32x32".to_owned())
    );
    let batch = data.gather(&[2, 1]);
    assert_eq!(batch.labels, [9, 4]);
    for (image, label) in batch.pixels.chunks_exact(3072).zip([9, 4]) {
        for (channel, plane) in image.chunks_exact(1024).enumerate() {
            let byte = u8::try_from(channel + 1 + 10 * label).unwrap();
            assert_eq!(plane, [CIFAR[channel].normalised(byte); 1024]);
        }
    }
    // One that begins as an IDX file of images does.
    let mut likely = records(&[0]);
    likely[..4].copy_from_slice(&[0, 0, 8, 3]);
    assert_eq!(load([("data_batch_1", &likely)]).unwrap().len(), 1);
}

#[test]
fn a_copy_of_the_file_of_tests_is_passed_over() {
    let folder = TempDir::new().unwrap();
    for name in ["test_batch.bin", "test_batch (1).bin", "test_batch.bin.1"] {
        fs::write(folder.path().join(name), records(&[7])).unwrap();
    }
    let data = Dataset::load(folder.path(), Split::Test).unwrap();
    assert_eq!(data.len(), 1);
}

#[test]
fn a_cut_of_records_is_truncation_with_both_numbers() {
    let name = "data_batch_1.bin";
    let whole = records(&[1, 2]);
    for (len, whole_len) in [
        (0, 3073),
        (1, 3073),
        (3072, 3073),
        (3074, 6146),
        (6145, 6146),
    ] {
        let error = load([(name, &whole[..len])]).unwrap_err();
        check_message(&error, name, &[&format!("{len} of {whole_len} bytes")]);
    }
    // A compressed file that ends with a record lacks its checksum.
    let packed = gzipped(&whole);
    let packed_name = "data_batch_1.bin.gz";
    let error = load([(packed_name, &packed[..packed.len() - 3])]).unwrap_err();
    check_message(&error, packed_name, &["cannot read", "fetch it again"]);
    let wrong = load([(name, &records(&[3, 10]))]).unwrap_err();
    check_message(&wrong, name, &["label 10", "sample 1", "above 9"]);
}

#[test]
fn files_that_are_no_data_set_together_are_counted() {
    let (images, labels, both) = (three_images(), three_labels(), records(&[1]));
    let check = |error: Error, counts: &str| check_message(&error, "training data", &[counts]);
    check(
        load([(IMAGES, &images)]).unwrap_err(),
        "files of images 1, of labels 0, of CIFAR-10 records 0",
    );
    check(
        load([(IMAGES, &labels), (LABELS, &labels)]).unwrap_err(),
        "files of images 0, of labels 2",
    );
    check(
        load([(IMAGES, &images), (LABELS, &labels), ("train.bin", &both)]).unwrap_err(),
        "files of images 1, of labels 1, of CIFAR-10 records 1",
    );
}

#[test]
fn a_checksum_tells_pixels_and_labels() {
    let sum = |images: &[u8], labels: &[u8]| {
        load([(IMAGES, images), (LABELS, labels)])
            .unwrap()
            .checksum()
    };
    let own = sum(&three_images(), &three_labels());
    for place in 16..28 {
        let mut other = three_images();
        other[place] ^= 1;
        assert_ne!(sum(&other, &three_labels()), own);
    }
    let swapped = [header(0x0801, &[3]), vec![8, 7, 9]].concat();
    assert_ne!(sum(&three_images(), &swapped), own);
    assert_eq!(sum(&three_images(), &three_labels()), own);
}

#[test]
fn gather_keeps_the_order_of_its_indices() {
    let data = load([(IMAGES, &three_images()), (LABELS, &three_labels())]).unwrap();
    let batch = data.gather(&[2, 0, 2]);
    assert_eq!(batch.labels, [9, 7, 9]);
    let expected: Vec<f32> = [2u8, 0, 2]
        .iter()
        .flat_map(|&b| [MNIST[0].normalised(b); 4])
        .collect();
    assert_eq!(batch.pixels, expected);
    assert!(data.gather(&[]).pixels.is_empty());
}

#[test]
fn black_and_white_lie_around_zero() {
    assert!((MNIST[0].normalised(0) - -0.424_213).abs() < 1e-5);
    assert!((MNIST[0].normalised(255) - 2.821_487).abs() < 1e-5);
}

#[test]
fn the_files_beside_this_program_are_sound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let train = Dataset::load(&folder, Split::Train).unwrap();
    let test = Dataset::load(&folder, Split::Test).unwrap();
    assert_eq!((train.len(), test.len()), (8_000, 2_000));
    assert_eq!(
        [train.shape(), test.shape()].map(|shape| shape.to_string()),
        ["1x28x28"; 2]
    );
    assert!((0..10).all(|digit| train.labels.contains(&digit)));
}

#[test]
fn a_missing_folder_and_an_empty_one_are_named_with_the_flag_to_pass() {
    let error = Dataset::load(Path::new("nowhere"), Split::Test).unwrap_err();
    check_message(&error, "nowhere", &["cannot read", "--data DIR"]);
    let empty = TempDir::new().unwrap();
    let error = Dataset::load(empty.path(), Split::Test).unwrap_err();
    assert!(matches!(&error, Error::DataMissing { .. }), "{error:?}");
    let folder = empty.path().to_str().unwrap();
    check_message(&error, folder, &["no file of test data", "--data DIR"]);
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
fn a_file_of_another_format_is_told_from_a_damaged_one() {
    let name = format!("{IMAGES}.gz");
    let error = load([(&name, b"<html>"), (LABELS, &three_labels())]).unwrap_err();
    assert!(
        matches!(
            &error,
            Error::DataMagic {
                found: 0x3c68_746d,
                len: 6,
                ..
            }
        ),
        "{error:?}"
    );
    check_message(
        &error,
        &name,
        &["0x3c68746d", "0x00000803", "fetch it again"],
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
        let announced = match len {
            0..4 => 4,
            4..16 => 16,
            _ => 28,
        };
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
        assert!(
            matches!(&error, Error::DataTruncated { .. } | Error::DataRead { .. }),
            "{len}: {error:?}"
        );
        check_message(&error, &name, &["fetch it again"]);
    }
}

#[test]
fn bytes_after_the_last_element_are_refused() {
    let error = label_error(&[three_labels(), vec![0]].concat());
    assert!(
        matches!(
            &error,
            Error::DataTooLong {
                found: 12,
                expected: 11,
                ..
            }
        ),
        "{error:?}"
    );
    check_message(&error, LABELS, &["12 bytes", "announces 11"]);
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
