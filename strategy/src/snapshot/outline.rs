//! A snapshot without its numbers and bytes: what a newcomer makes room from, before it gets them.

use super::Snapshot;
use crate::{Cursor, VariableSpec};

const WORD: usize = size_of::<u64>();

impl Snapshot {
    /// Everything but what [`arrays_mut`](Self::arrays_mut) has: equal bytes for equal snapshots.
    pub(crate) fn outline(&self) -> Vec<u8> {
        let mut outline = Vec::new();
        put_number(&mut outline, self.step);
        put_text(&mut outline, &self.cursor.to_string());
        put_number(&mut outline, self.texts.len() as u64);
        for (name, text) in &self.texts {
            put_text(&mut outline, name);
            put_text(&mut outline, text);
        }
        put_number(&mut outline, self.arrays.len() as u64);
        for (name, (spec, _)) in &self.arrays {
            put_text(&mut outline, name);
            put_number(&mut outline, spec.shape().len() as u64);
            for size in spec.shape() {
                put_number(&mut outline, *size as u64);
            }
        }
        put_number(&mut outline, self.blobs.len() as u64);
        for (name, bytes) in &self.blobs {
            put_text(&mut outline, name);
            put_number(&mut outline, bytes.len() as u64);
        }
        outline
    }

    /// A snapshot of this outline with zeros for so many bytes; `None` if it has another number of
    /// them, or this is no outline.
    pub(crate) fn of_outline(outline: &[u8], bytes: usize) -> Option<Self> {
        let mut rest = outline;
        let (step, cursor) = (number(&mut rest)?, text(&mut rest)?);
        let mut snapshot = Self::new(step, cursor.parse::<Cursor>().ok()?);
        for _ in 0..number(&mut rest)? {
            let (name, text) = (text(&mut rest)?, text(&mut rest)?);
            snapshot.texts.insert(name.to_owned(), text.to_owned());
        }
        let mut specs = Vec::new();
        for _ in 0..number(&mut rest)? {
            let (name, dimensions) = (text(&mut rest)?, number(&mut rest)?);
            let shape: Option<Vec<usize>> = (0..dimensions)
                .map(|_| usize::try_from(number(&mut rest)?).ok())
                .collect();
            specs.push(VariableSpec::new(name, &shape?).ok()?);
        }
        let mut lengths = Vec::new();
        for _ in 0..number(&mut rest)? {
            let name = text(&mut rest)?;
            lengths.push((name, usize::try_from(number(&mut rest)?).ok()?));
        }
        // Before memory is taken for them.
        let needed = (specs
            .iter()
            .map(|spec| spec.len().checked_mul(size_of::<f32>())))
        .chain(lengths.iter().map(|(_, len)| Some(*len)))
        .try_fold(0_usize, |sum, len| sum.checked_add(len?))?;
        (rest.is_empty() && needed == bytes).then_some(())?;
        for spec in specs {
            let values = vec![0.0; spec.len()];
            snapshot
                .arrays
                .insert(spec.name().to_owned(), (spec, values));
        }
        for (name, len) in lengths {
            snapshot.blobs.insert(name.to_owned(), vec![0; len]);
        }
        Some(snapshot)
    }

    /// Bytes of all numbers, and all others, in the order of their names.
    pub(crate) fn arrays_mut(&mut self) -> Vec<&mut [u8]> {
        let arrays = self.arrays.values_mut();
        let numbers = arrays.map(|(_, values)| bytemuck::cast_slice_mut(values.as_mut_slice()));
        let blobs = self.blobs.values_mut().map(Vec::as_mut_slice);
        numbers.chain(blobs).collect()
    }
}

fn put_number(outline: &mut Vec<u8>, number: u64) {
    outline.extend(number.to_le_bytes());
}

fn put_text(outline: &mut Vec<u8>, text: &str) {
    put_number(outline, text.len() as u64);
    outline.extend(text.bytes());
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (number, behind) = rest.split_first_chunk::<WORD>()?;
    *rest = behind;
    Some(u64::from_le_bytes(*number))
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let len = usize::try_from(number(rest)?).ok()?;
    let (text, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn snapshot(step: u64, arrays: &[Vec<f32>], blobs: &[Vec<u8>], texts: &[String]) -> Snapshot {
        let mut snapshot = Snapshot::new(step, Cursor::new(step, 7));
        for (name, values) in arrays.iter().enumerate() {
            let spec = VariableSpec::new(format!("a{name}"), &[1, values.len()]).unwrap();
            snapshot = snapshot.with_array(&spec, values).unwrap();
        }
        for (name, bytes) in blobs.iter().enumerate() {
            snapshot = snapshot
                .with_bytes(format!("b{name}"), bytes.as_slice())
                .unwrap();
        }
        for (name, text) in texts.iter().enumerate() {
            snapshot = snapshot.with_text(format!("t{name}"), text);
        }
        snapshot
    }

    proptest! {
        #[test]
        fn an_outline_and_the_bytes_of_all_arrays_make_the_snapshot_again(
            step in any::<u64>(),
            arrays in prop::collection::vec(prop::collection::vec(-9.0_f32..9.0, 0..5), 0..4),
            blobs in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 0..4),
            texts in prop::collection::vec(".{0,5}", 0..4),
            place in any::<prop::sample::Index>(),
        ) {
            let mut written = snapshot(step, &arrays, &blobs, &texts);
            let outline = written.outline();
            let bytes = written.arrays_mut().concat();
            let mut read = Snapshot::of_outline(&outline, bytes.len()).unwrap();
            prop_assert_eq!(read.outline(), outline.clone());
            let mut rest = bytes.as_slice();
            for array in read.arrays_mut() {
                let (own, behind) = rest.split_at(array.len());
                array.copy_from_slice(own);
                rest = behind;
            }
            prop_assert!(rest.is_empty());
            prop_assert_eq!(read, written);
            prop_assert_eq!(Snapshot::of_outline(&outline, bytes.len() + 1), None);
            let shorter = &outline[..place.index(outline.len())];
            prop_assert_eq!(Snapshot::of_outline(shorter, bytes.len()), None);
        }

        #[test]
        fn no_bytes_make_the_reader_panic_or_take_memory(
            bytes in prop::collection::vec(any::<u8>(), 0..99),
            words in prop::collection::vec(0_u64..4, 0..12),
        ) {
            prop_assert!(Snapshot::of_outline(&bytes, usize::MAX).is_none());
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let _ = Snapshot::of_outline(&bytes, 0);
        }
    }
}
