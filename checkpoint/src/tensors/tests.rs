//! Any blocks of any tensor in any files, read by any region, against indices counted one by one;
//! and files that are damaged, lack blocks, have some twice, or were never of tensors.

use std::fs;
use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::{Error, Generation, Index, Series};

/// Elements of four bytes, each the number of its place in the whole tensor.
fn elements(shape: &[usize], region: &[Range<usize>]) -> Vec<u8> {
    let places = region
        .iter()
        .zip(shape)
        .fold(vec![0], |places, (range, size)| {
            let longer = |place: usize| range.clone().map(move |index| place * size + index);
            places.into_iter().flat_map(longer).collect()
        });
    let number = |place: usize| u32::try_from(place).unwrap().to_le_bytes();
    places.into_iter().flat_map(number).collect()
}

fn block(name: &str, region: &[Range<usize>]) -> Block {
    Block::new(name, region, Dtype::F32)
}

/// A file of these blocks of a tensor of this shape.
fn file(shape: &[usize], regions: &[Vec<Range<usize>>]) -> (Vec<u8>, usize) {
    let blocks: Vec<_> = regions.iter().map(|region| block("t", region)).collect();
    let mut file = BlockFile::new(&blocks, vec![7; 3]).unwrap();
    for region in regions {
        file.put(&elements(shape, region));
    }
    file.seal()
}

fn index(shape: &[usize]) -> TensorIndex {
    let mut index = TensorIndex::default();
    index
        .insert("t", TensorInfo::new(Dtype::F32, shape))
        .unwrap();
    index
}

/// Saves these files of a tensor.
fn save(series: &Series, shape: &[usize], files: &[Vec<Vec<Range<usize>>>]) -> Generation {
    let generation = series.begin().unwrap();
    let mut entries = Vec::new();
    for (number, regions) in files.iter().enumerate() {
        let (bytes, head) = file(shape, regions);
        let part = format!("{number}.safetensors");
        let written = series.write(generation, &part, &bytes, head).unwrap();
        entries.push(written.entry().clone());
    }
    let body = index(shape).with_step(3).to_bytes();
    series
        .finish(&Index::new(generation, entries, body).unwrap())
        .unwrap();
    generation
}

fn read(
    series: &Series,
    generation: Generation,
    region: &[Range<usize>],
) -> Result<Vec<u8>, Error> {
    let saved = SavedTensors::open(series, generation)?;
    let mut into = vec![0; 4 * region.iter().map(ExactSizeIterator::len).product::<usize>()];
    saved.read("t", region, &mut into)?;
    Ok(into)
}

/// A tensor, where each axis is cut, and a region of it.
fn cut() -> impl Strategy<Value = Vec<(usize, Vec<usize>, Range<usize>)>> {
    let axis = (1_usize..6).prop_flat_map(|size| {
        let cuts = prop::collection::btree_set(1..=size, 0..3);
        let region = (0..=size, 0..=size).prop_map(|(a, b)| a.min(b)..a.max(b));
        (
            Just(size),
            cuts.prop_map(|cuts| cuts.into_iter().collect()),
            region,
        )
    });
    prop::collection::vec(axis, 0..4)
}

/// The blocks of a tensor whose axes are cut so.
fn grid(axes: &[(usize, Vec<usize>, Range<usize>)]) -> Vec<Vec<Range<usize>>> {
    axes.iter().fold(vec![vec![]], |blocks, (size, cuts, _)| {
        let starts = std::iter::once(&0).chain(cuts);
        let ends = cuts.iter().chain(std::iter::once(size));
        let ranges: Vec<_> = starts.zip(ends).map(|(start, end)| *start..*end).collect();
        let longer = |block: Vec<Range<usize>>| {
            let ranges = ranges.clone().into_iter();
            ranges.map(move |range| [block.as_slice(), &[range]].concat())
        };
        blocks.into_iter().flat_map(longer).collect()
    })
}

proptest! {
    #[test]
    fn any_region_of_any_blocks_in_any_files_is_read(axes in cut(), files in 1_usize..4, last in 0_usize..9) {
        let shape: Vec<_> = axes.iter().map(|axis| axis.0).collect();
        let region: Vec<_> = axes.iter().map(|axis| axis.2.clone()).collect();
        let mut blocks = grid(&axes);
        let first = last % blocks.len();
        blocks.rotate_left(first);
        let mut all = vec![Vec::new(); files];
        for (number, block) in blocks.into_iter().enumerate() {
            all[number % files].push(block);
        }
        // In memory where that is: no disk loses power here.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let series = Series::new(folder.path(), "ck");
        let generation = save(&series, &shape, &all);
        prop_assert_eq!(read(&series, generation, &region), Ok(elements(&shape, &region)));
        // Without a block that has some of the elements.
        let needed = all.iter_mut().find_map(|file| {
            let at = file.iter().position(|block| block::common(block, &region).is_some());
            at.map(|at| file.remove(at))
        });
        let generation = save(&series, &shape, &all);
        let without = read(&series, generation, &region);
        match needed {
            // Files that are too short for a tensor are refused at once.
            Some(_) => prop_assert!(
                matches!(without, Err(Error::TensorHole { .. } | Error::TensorForm { .. })),
                "{without:?}"
            ),
            None => prop_assert_eq!(without, Ok(Vec::new())),
        }
    }
}

#[test]
fn files_are_safetensors_files_and_have_the_same_bytes_each_time() {
    let regions = [vec![0..2, 0..3], vec![2..4, 0..3]];
    let (bytes, head) = file(&[4, 3], &regions);
    assert_eq!(file(&[4, 3], &regions), (bytes.clone(), head));
    let read = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let second = read.tensor("t@2:4,0:3").unwrap();
    assert_eq!((second.dtype(), second.shape()), (Dtype::F32, &[2, 3][..]));
    assert_eq!(second.data(), elements(&[4, 3], &regions[1]));
    let (none, head) = file(&[4, 3], &[]);
    assert_eq!(none.len(), head);
    assert!(
        safetensors::SafeTensors::deserialize(&none)
            .unwrap()
            .is_empty()
    );
    assert!(
        block::stored(&none, head as u64, &index(&[4, 3]))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn blocks_are_told_in_the_order_of_their_indices() {
    let folder = tempfile::tempdir().unwrap();
    let series = Series::new(folder.path(), "ck");
    let regions: Vec<_> = (0..24).map(|row| vec![row..row + 1, 0..2]).collect();
    let mut mixed = regions.clone();
    mixed.rotate_left(7);
    let generation = save(&series, &[24, 2], &[mixed]);
    let entry = series.index(generation).unwrap().files()[0].clone();
    let saved = SavedTensors::open(&series, generation).unwrap();
    let found: Vec<_> = saved.blocks(&entry).map(Block::region).collect();
    assert_eq!(found, regions);
}

#[test]
fn a_generation_that_later_ones_have_replaced_is_said_to_be_removed() {
    let folder = tempfile::tempdir().unwrap();
    let series = Series::new(folder.path(), "ck");
    let [old, new] = [(); 2].map(|()| save(&series, &[2, 1], &[vec![vec![0..2, 0..1]]]));
    series.retain(std::num::NonZeroUsize::MIN, new).unwrap();
    let index = series.index_path(old);
    let gone = read(&series, old, &[0..2, 0..1]);
    assert_eq!(gone, Err(Error::Removed { index }));
}

#[test]
fn chunks_are_checked_only_where_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let series = Series::new(folder.path(), "ck");
    let shape = [3, CHUNK / 4 + 1];
    let whole = vec![0..shape[0], 0..shape[1]];
    let generation = save(&series, &shape, &[vec![whole.clone()]]);
    let path = series.path(generation, "0.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let first = [0..1, 1..shape[1]];
    assert_eq!(
        read(&series, generation, &first),
        Ok(elements(&shape, &first))
    );
    let index = series.index_path(generation);
    let block = block("t", &whole).to_string();
    let damaged = Error::BlockDamaged { path, block, index };
    assert_eq!(
        read(&series, generation, &[2..3, 0..shape[1]]),
        Err(damaged)
    );
}

#[test]
fn merged_tensors_are_one_file_for_any_reader() {
    let folder = tempfile::tempdir().unwrap();
    let series = Series::new(folder.path(), "ck");
    let generation = series.begin().unwrap();
    // More rows than are read at once, a scalar, one without elements, and elements of other sizes.
    let rows = [3 << 20, 1];
    let tensors: [(&str, Dtype, &[usize]); 4] = [
        ("small", Dtype::U8, &[3]),
        ("scalar", Dtype::F64, &[]),
        ("none", Dtype::F32, &[0, 2]),
        ("rows", Dtype::F32, &rows),
    ];
    let mut index = TensorIndex::default().with_step(7);
    let mut blocks = Vec::new();
    for (name, dtype, shape) in tensors {
        let info = TensorInfo::new(dtype, shape);
        blocks.push(Block::new(name, info.region(), dtype));
        index.insert(name, info).unwrap();
    }
    let mut file = BlockFile::new(&blocks, Vec::new()).unwrap();
    file.put(&[1, 2, 3]);
    file.put(&5.0_f64.to_le_bytes());
    let numbers = elements(&rows, &[0..rows[0], 0..1]);
    file.put(&numbers);
    let (bytes, head) = file.seal();
    let written = series
        .write(generation, "0.safetensors", &bytes, head)
        .unwrap();
    let files = [written.entry().clone()];
    series
        .finish(&Index::new(generation, files, index.to_bytes()).unwrap())
        .unwrap();

    let saved = SavedTensors::open(&series, generation).unwrap();
    let mut merged = Vec::new();
    let mut parts = 0;
    let append = |bytes: &[u8]| {
        merged.extend_from_slice(bytes);
        parts += 1;
        Ok::<_, Error>(())
    };
    saved.merge(append).unwrap();
    assert_eq!(parts, 1 + 1 + 1 + 2);
    let read = safetensors::SafeTensors::deserialize(&merged).unwrap();
    assert_eq!(read.len(), 4);
    assert_eq!(read.tensor("rows").unwrap().data(), numbers);
    assert_eq!(read.tensor("scalar").unwrap().data(), 5.0_f64.to_le_bytes());
    assert_eq!(read.tensor("small").unwrap().data(), [1, 2, 3]);
    assert_eq!(read.tensor("none").unwrap().shape(), [0, 2]);
    let (_, metadata) = safetensors::SafeTensors::read_metadata(&merged).unwrap();
    assert_eq!(metadata.metadata().as_ref().unwrap()["step"], "7");
}

#[test]
fn rows_without_elements_are_merged_at_once_however_many_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let series = Series::new(folder.path(), "ck");
    let generation = series.begin().unwrap();
    let body = br#"{"tensors":{"t":{"shape":[4611686018427387904,0],"element":"u8"}}}"#;
    let index = Index::new(generation, [], body.to_vec()).unwrap();
    series.finish(&index).unwrap();
    let saved = SavedTensors::open(&series, generation).unwrap();
    let mut merged = Vec::new();
    // Ends a merge that goes on behind the head.
    let head = |bytes: &[u8]| match merged.is_empty() {
        true => {
            merged.extend_from_slice(bytes);
            Ok(())
        }
        false => Err(Box::<dyn std::error::Error>::from("a part without bytes")),
    };
    saved.merge(head).unwrap();
    let read = safetensors::SafeTensors::deserialize(&merged).unwrap();
    assert_eq!(read.tensor("t").unwrap().shape(), [1 << 62, 0]);
}

#[test]
fn blocks_that_overlap_and_indices_of_something_else_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let series = Series::new(folder.path(), "ck");
    let generation = save(
        &series,
        &[4, 1],
        &[vec![vec![0..3, 0..1]], vec![vec![2..4, 0..1]]],
    );
    let path = series.path(generation, "1.safetensors");
    assert_eq!(
        read(&series, generation, &[0..4, 0..1]),
        Err(Error::TensorForm { path })
    );
    assert_eq!(
        read(&series, generation, &[0..2, 0..1]),
        Ok(elements(&[4, 1], &[0..2, 0..1]))
    );
    let generation = series.begin().unwrap();
    series
        .finish(&Index::new(generation, [], b"words".to_vec()).unwrap())
        .unwrap();
    let path = series.index_path(generation);
    assert_eq!(
        read(&series, generation, &[0..4, 0..1]),
        Err(Error::TensorForm { path })
    );
}

#[test]
fn names_come_once_and_are_whatever_they_are() {
    let mut all = index(&[2]);
    let name = "t".to_owned();
    let twice = all.insert("t", TensorInfo::new(Dtype::BF16, []));
    assert_eq!(twice, Err(Error::TensorTwice { name }));
    // A merged file would have two of that name.
    let name = "__metadata__".to_owned();
    let refused = all.insert(&name, TensorInfo::new(Dtype::BF16, []));
    assert_eq!(refused, Err(Error::TensorName { name }));
    let odd = "a@0:1 \" ö";
    all.insert(odd, TensorInfo::new(Dtype::F8_E4M3, []))
        .unwrap();
    assert_eq!(TensorIndex::from_bytes(&all.to_bytes()), Some(all.clone()));
    let scalar = Block::new(odd, [], Dtype::F8_E4M3);
    let mut file = BlockFile::new(std::slice::from_ref(&scalar), Vec::new()).unwrap();
    file.put(&[1]);
    let (bytes, head) = file.seal();
    let found = block::stored(&bytes[..head], bytes.len() as u64, &all).unwrap();
    assert_eq!(found[0].block, scalar);
}

#[test]
fn what_no_memory_has_is_refused() {
    for (dtype, size) in [(Dtype::F64, usize::MAX / 8), (Dtype::F4, 8)] {
        let block = Block::new("t", vec![0..size, 0..2], dtype);
        let error = BlockFile::new(std::slice::from_ref(&block), Vec::new()).unwrap_err();
        let block = block.to_string();
        assert_eq!(error, Error::BlockSize { block });
    }
    for shape in [&[usize::MAX, 2][..], &[1 << 32, 1 << 32], &[0, usize::MAX]] {
        assert!(
            !TensorInfo::new(Dtype::U8, shape).fits(u64::MAX),
            "{shape:?}"
        );
    }
}

#[test]
fn no_bytes_make_the_reader_panic() {
    let (mut head, length) = file(&[4, 2], &[vec![0..4, 0..2]]);
    head.truncate(length);
    for whole in [index(&[4, 2]).with_step(1).to_bytes(), head] {
        for place in 0..whole.len() {
            decode(&whole[..place]);
            for change in [0x01, 0x10, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[place] ^= change;
                decode(&changed);
            }
        }
    }
}

#[test]
fn the_corpus_is_read_or_refused() {
    crate::replay::replay("tensors", decode);
}
