//! `Snapshot`: the state of a training as one safetensors file with a hash of its content. Writing
//! it to disk, keeping the latest few and finding them again is in `checkpoint`.

mod outline;

use std::collections::{BTreeMap, HashMap};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use twox_hash::XxHash3_64;

use crate::{Cursor, Error, SnapshotDamage, VariableSpec};

/// The state of a training: the step, the position in the data, named arrays (the model, the state
/// of its optimizer), bytes in formats of other libraries, and named texts (the state of a
/// generator, settings).
///
/// As bytes it is a safetensors file, which other programs can read; texts and the hash of the
/// content are in its metadata.
///
/// ```
/// use meshwork_strategy::{Cursor, Snapshot, VariableSpec};
///
/// let weight = VariableSpec::new("weight", &[2])?;
/// let snapshot = Snapshot::new(120, Cursor::start())
///     .with_array(&weight, &[0.5, 0.25])?
///     .with_text("seed", "7");
/// let mut bytes = snapshot.to_bytes()?;
/// let read = Snapshot::from_bytes(&bytes)?;
/// assert_eq!((read.step(), read.array(&weight)?), (120, &[0.5, 0.25][..]));
///
/// *bytes.last_mut().unwrap() ^= 1;
/// assert!(Snapshot::from_bytes(&bytes).is_err());
/// # Ok::<(), meshwork_strategy::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    step: u64,
    cursor: Cursor,
    arrays: BTreeMap<String, (VariableSpec, Vec<f32>)>,
    blobs: BTreeMap<String, Vec<u8>>,
    texts: BTreeMap<String, String>,
}

impl Snapshot {
    /// After `step` steps, with the data used up to `cursor`.
    #[must_use]
    pub fn new(step: u64, cursor: Cursor) -> Self {
        Self {
            step,
            cursor,
            arrays: BTreeMap::new(),
            blobs: BTreeMap::new(),
            texts: BTreeMap::new(),
        }
    }

    /// Adds the values of a variable, row-major.
    ///
    /// # Errors
    /// [`Error::ValueCount`] when they do not fill its shape, [`Error::DuplicateVariable`].
    pub fn with_array(mut self, spec: &VariableSpec, values: &[f32]) -> Result<Self, Error> {
        if values.len() != spec.len() {
            return Err(Error::ValueCount {
                spec: spec.clone(),
                found: values.len(),
            });
        }
        let name = spec.name().to_owned();
        let entry = (spec.clone(), values.to_vec());
        if self.blobs.contains_key(&name) || self.arrays.insert(name.clone(), entry).is_some() {
            return Err(Error::DuplicateVariable { name });
        }
        Ok(self)
    }

    /// Adds bytes, such as a state that a library writes in a form of its own.
    ///
    /// # Errors
    /// [`Error::DuplicateVariable`]
    pub fn with_bytes(
        mut self,
        name: impl Into<String>,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<Self, Error> {
        let name = name.into();
        let is_taken = self.arrays.contains_key(&name);
        if is_taken || self.blobs.insert(name.clone(), bytes.into()).is_some() {
            return Err(Error::DuplicateVariable { name });
        }
        Ok(self)
    }

    /// Adds a text, in place of one of the same name.
    #[must_use]
    pub fn with_text(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.texts.insert(name.into(), text.into());
        self
    }

    /// How many steps had been made.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.step
    }

    /// How far the data had been used.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// The values of a variable, row-major.
    ///
    /// # Errors
    /// [`Error::NotInCheckpoint`] when there is none of this name and shape.
    pub fn array(&self, spec: &VariableSpec) -> Result<&[f32], Error> {
        let found = self.arrays.get(spec.name());
        match found {
            Some((own, values)) if own == spec => Ok(values),
            _ => Err(Error::NotInCheckpoint {
                spec: Box::new(spec.clone()),
                found: found.map(|(own, _)| own.shape().to_vec()),
            }),
        }
    }

    /// The bytes of this name.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.blobs.get(name).map(Vec::as_slice)
    }

    /// The text of this name.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }

    /// The bytes of a safetensors file.
    ///
    /// # Errors
    /// [`Error::CheckpointForm`] when the format cannot hold it.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        if self.arrays.contains_key(METADATA) || self.blobs.contains_key(METADATA) {
            return Err(Error::CheckpointForm);
        }
        let mut metadata: HashMap<String, String> = HashMap::new();
        metadata.insert(STEP.to_owned(), self.step.to_string());
        metadata.insert(CURSOR.to_owned(), self.cursor.to_string());
        metadata.insert(HASH.to_owned(), format!("{:016x}", self.hash()));
        for (name, text) in &self.texts {
            metadata.insert(format!("{TEXT}{name}"), text.clone());
        }
        let mut views = Vec::with_capacity(self.arrays.len() + self.blobs.len());
        for (name, (spec, values)) in &self.arrays {
            let bytes = bytemuck::cast_slice(values);
            let view = TensorView::new(Dtype::F32, spec.shape().to_vec(), bytes);
            views.push((name, view.map_err(|_| Error::CheckpointForm)?));
        }
        for (name, bytes) in &self.blobs {
            let view = TensorView::new(Dtype::U8, vec![bytes.len()], bytes);
            views.push((name, view.map_err(|_| Error::CheckpointForm)?));
        }
        safetensors::serialize(views, Some(metadata)).map_err(|_| Error::CheckpointForm)
    }

    /// The inverse of [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// [`SnapshotDamage`]
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SnapshotDamage> {
        let file = SafeTensors::deserialize(bytes).map_err(|_| SnapshotDamage::Format)?;
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|_| SnapshotDamage::Format)?;
        let metadata = header.metadata().clone().unwrap_or_default();
        let field = |field| metadata.get(field).ok_or(SnapshotDamage::Field { field });
        let step = field(STEP)?.parse();
        let cursor = field(CURSOR)?.parse();
        let stated = u64::from_str_radix(field(HASH)?, 16);
        let mut snapshot = Self::new(
            step.map_err(|_| SnapshotDamage::Field { field: STEP })?,
            cursor.map_err(|_| SnapshotDamage::Field { field: CURSOR })?,
        );
        for (name, text) in &metadata {
            if let Some(name) = name.strip_prefix(TEXT) {
                snapshot = snapshot.with_text(name, text);
            }
        }
        for (name, view) in file.iter() {
            if view.dtype() == Dtype::U8 {
                let bytes = view.data().to_vec();
                snapshot.blobs.insert(name.to_owned(), bytes);
                continue;
            }
            let spec = VariableSpec::new(name, view.shape()).map_err(|_| SnapshotDamage::Format)?;
            let numbers = view.data().chunks_exact(size_of::<f32>());
            if view.dtype() != Dtype::F32 {
                return Err(SnapshotDamage::Format);
            }
            // Bytes of a file lie at any address.
            let values = numbers.map(bytemuck::pod_read_unaligned).collect();
            snapshot.arrays.insert(name.to_owned(), (spec, values));
        }
        let stated = stated.map_err(|_| SnapshotDamage::Field { field: HASH })?;
        match snapshot.hash() {
            found if found == stated => Ok(snapshot),
            found => Err(SnapshotDamage::Hash { stated, found }),
        }
    }

    /// XXH3 of everything, in order, lengths included.
    fn hash(&self) -> u64 {
        let mut content = Vec::new();
        let mut put = |bytes: &[u8]| {
            content.extend((bytes.len() as u64).to_le_bytes());
            content.extend_from_slice(bytes);
        };
        put(&self.step.to_le_bytes());
        put(self.cursor.to_string().as_bytes());
        for (name, text) in &self.texts {
            put(name.as_bytes());
            put(text.as_bytes());
        }
        for (name, (spec, values)) in &self.arrays {
            put(name.as_bytes());
            for size in spec.shape() {
                put(&size.to_le_bytes());
            }
            let values: &[u8] = bytemuck::cast_slice(values);
            put(&XxHash3_64::oneshot(values).to_le_bytes());
        }
        for (name, bytes) in &self.blobs {
            put(name.as_bytes());
            put(&bytes.len().to_le_bytes());
            put(&XxHash3_64::oneshot(bytes).to_le_bytes());
        }
        XxHash3_64::oneshot(&content)
    }
}

const STEP: &str = "meshwork.step";
const CURSOR: &str = "meshwork.cursor";
const HASH: &str = "meshwork.hash";
const TEXT: &str = "text.";
/// The name that the format has for what is no tensor.
const METADATA: &str = "__metadata__";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn snapshot(arrays: &[(String, Vec<f32>)], text: &str) -> Snapshot {
        let start = Snapshot::new(7, Cursor::new(1, 2)).with_text("t", text);
        arrays.iter().fold(start, |snapshot, (name, values)| {
            let spec = VariableSpec::new(name, &[values.len()]).unwrap();
            snapshot.with_array(&spec, values).unwrap()
        })
    }

    proptest! {
        #[test]
        fn bytes_and_snapshot_are_inverse_and_any_other_byte_or_end_is_found(
            values in prop::collection::vec(-9.0_f32..9.0, 0..9), text in ".{0,9}",
            place in any::<prop::sample::Index>(), bit in 0_u32..8,
        ) {
            let written = snapshot(&[("a".to_owned(), values.clone()), ("b".to_owned(), vec![1.5])], &text)
                .with_bytes("c", text.as_bytes())
                .unwrap();
            let bytes = written.to_bytes().unwrap();
            prop_assert_eq!(Snapshot::from_bytes(&bytes), Ok(written.clone()));
            let place = place.index(bytes.len());
            prop_assert!(Snapshot::from_bytes(&bytes[..place]).is_err());
            let mut changed = bytes;
            changed[place] ^= 1 << bit;
            // A change that means the same, such as of a blank, is none.
            if let Ok(read) = Snapshot::from_bytes(&changed) {
                prop_assert_eq!(read, written);
            }
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Snapshot::from_bytes(&bytes);
        }
    }

    #[test]
    fn another_shape_or_name_is_refused_with_what_is_there() {
        let saved = snapshot(&[("w".to_owned(), vec![1.0; 6])], "");
        let other = VariableSpec::new("w", &[2, 3]).unwrap();
        let error = saved.array(&other).unwrap_err().to_string();
        assert!(
            error.contains("w [2, 3]") && error.contains("[6]"),
            "{error}"
        );
        let missing = VariableSpec::new("v", &[6]).unwrap();
        let error = saved.array(&missing).unwrap_err().to_string();
        assert!(
            error.contains("v [6]") && error.contains("nothing"),
            "{error}"
        );
    }

    #[test]
    fn a_name_is_taken_by_an_array_or_by_bytes() {
        let spec = VariableSpec::new("w", &[1]).unwrap();
        let taken = Err(Error::DuplicateVariable {
            name: "w".to_owned(),
        });
        let bytes = Snapshot::new(1, Cursor::start())
            .with_bytes("w", [7])
            .unwrap();
        assert_eq!(bytes.bytes("w"), Some(&[7][..]));
        assert_eq!(bytes.clone().with_bytes("w", [8]), taken);
        assert_eq!(bytes.with_array(&spec, &[1.0]), taken);
        let array = snapshot(&[("w".to_owned(), vec![1.0])], "");
        assert_eq!(array.bytes("w"), None);
        assert_eq!(array.with_bytes("w", [7]), taken);
    }

    #[test]
    fn what_could_not_be_read_is_not_written() {
        let none = Snapshot::new(1, Cursor::start());
        let spec = VariableSpec::new(METADATA, &[1]).unwrap();
        for taken in [
            none.clone().with_array(&spec, &[1.0]),
            none.clone().with_bytes(METADATA, [7]),
        ] {
            assert_eq!(taken.unwrap().to_bytes(), Err(Error::CheckpointForm));
        }
        // Texts have names of their own.
        let text = none.with_text(METADATA, "7");
        assert_eq!(Snapshot::from_bytes(&text.to_bytes().unwrap()), Ok(text));
    }

    #[test]
    fn numbers_that_are_none_come_back_with_their_bits() {
        let odd = [f32::NAN, -0.0, f32::INFINITY, f32::from_bits(0x7fc0_1234)];
        let bytes = snapshot(&[("w".to_owned(), odd.to_vec())], "")
            .to_bytes()
            .unwrap();
        let spec = VariableSpec::new("w", &[4]).unwrap();
        let read = Snapshot::from_bytes(&bytes).unwrap();
        let bits = |values: &[f32]| {
            values
                .iter()
                .map(|value| value.to_bits())
                .collect::<Vec<_>>()
        };
        assert_eq!(bits(read.array(&spec).unwrap()), bits(&odd));
    }
}
