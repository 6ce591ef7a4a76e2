//! What workers tell each other behind each batch: how it went, and the outputs for the chief.
//!
//! ```text
//!   samples u32 | state u8 | fields u32 | part u32 | batch u32 |
//!       each field: join u8, element u8, dimensions u8, sizes u64…, bytes
//! ```

use meshwork_strategy::Rank;

use super::fields::{Element, Field, Join};
use crate::Error;

/// How a worker's batch went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// More batches follow.
    More,
    /// It was the last of the epoch.
    Last,
    /// Somebody has asked this worker to stop.
    Stop,
}

/// Which batch of the epoch it is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Place {
    /// Of the data's parts.
    pub(super) part: usize,
    /// Of the part's batches.
    pub(super) batch: usize,
}

/// What a worker tells behind a batch.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// In the batch; 0 for a worker that has had all of its batches.
    pub(super) samples: u32,
    pub(super) state: State,
    /// `None` where there was none for it.
    pub(super) place: Option<Place>,
    pub(super) fields: Vec<Field>,
}

impl Place {
    /// Of a place, or of none.
    pub(super) fn to_bytes(place: Option<Self>) -> [u8; 8] {
        let number = |number: usize| u32::try_from(number).expect("an epoch has fewer batches");
        let Some(place) = place else {
            return NOWHERE;
        };
        let numbers = [place.part, place.batch].map(|of| number(of).to_le_bytes());
        std::array::from_fn(|byte| numbers[byte / 4][byte % 4])
    }

    pub(super) fn of_bytes(bytes: [u8; 8]) -> Option<Self> {
        let [a, b, c, d, rest @ ..] = bytes;
        let number = |bytes| u32::from_le_bytes(bytes) as usize;
        (bytes != NOWHERE).then(|| Self {
            part: number([a, b, c, d]),
            batch: number(rest),
        })
    }
}

impl Told {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.samples.to_le_bytes().to_vec();
        bytes.push(match self.state {
            State::More => 0,
            State::Last => 1,
            State::Stop => 2,
        });
        let fields = u32::try_from(self.fields.len()).expect("a program has few fields");
        bytes.extend(fields.to_le_bytes());
        bytes.extend(Place::to_bytes(self.place));
        for field in &self.fields {
            bytes.push(match field.join {
                Join::Mean => 0,
                Join::Rows => 1,
            });
            bytes.push(match field.element {
                Element::Float => 0,
                Element::Int => 1,
            });
            let dimensions = u8::try_from(field.shape.len()).expect("tensors have few dimensions");
            bytes.push(dimensions);
            for size in &field.shape {
                bytes.extend((*size as u64).to_le_bytes());
            }
            bytes.extend(&field.bytes);
        }
        bytes
    }

    /// What the worker `rank` has told.
    pub(super) fn parse(bytes: &[u8], rank: Rank) -> Result<Self, Error> {
        let mut reader = Reader { rest: bytes };
        reader.told().ok_or(Error::OutputForm { rank })
    }
}

/// A worker's own part, as a place in it, and the batches that it holds, of so many parts.
pub(super) fn parse_places(
    bytes: &[u8],
    parts: usize,
    rank: Rank,
) -> Result<(Option<usize>, Vec<Place>), Error> {
    let (places, rest) = bytes.as_chunks();
    let mut places = places.iter().map(|place| Place::of_bytes(*place));
    let own = places.next().map(|own| own.map(|own| own.part));
    let held: Option<Vec<Place>> = places.collect();
    match (own, held) {
        (Some(own), Some(held))
            if rest.is_empty()
                && own.is_none_or(|part| part < parts)
                && held.iter().all(|place| place.part < parts) =>
        {
            Ok((own, held))
        }
        (_, _) => Err(Error::OutputForm { rank }),
    }
}

const NOWHERE: [u8; 8] = [u8::MAX; 8];

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn told(&mut self) -> Option<Told> {
        let samples = u32::from_le_bytes(self.array()?);
        let state = match self.array::<1>()? {
            [0] => State::More,
            [1] => State::Last,
            [2] => State::Stop,
            [_] => return None,
        };
        let fields = u32::from_le_bytes(self.array()?);
        let place = Place::of_bytes(self.array()?);
        // Each is taken off the bytes that are there, so that a wrong number ends soon.
        let fields = (0..fields).map(|_| self.field()).collect::<Option<_>>()?;
        self.rest.is_empty().then_some(Told {
            samples,
            state,
            place,
            fields,
        })
    }

    fn field(&mut self) -> Option<Field> {
        let [join, element, dimensions] = self.array()?;
        let join = match join {
            0 => Join::Mean,
            1 => Join::Rows,
            _ => return None,
        };
        let element = match element {
            0 => Element::Float,
            1 => Element::Int,
            _ => return None,
        };
        let is_known = match join {
            Join::Mean => element == Element::Float,
            Join::Rows => dimensions > 0,
        };
        if !is_known {
            return None;
        }
        let size = |_| usize::try_from(self.number()?).ok();
        let shape: Vec<usize> = (0..dimensions).map(size).collect::<Option<_>>()?;
        // A size of 0 must not hide others that are too large.
        let mut sizes = shape.iter().map(|size| *size.max(&1));
        let most = sizes.try_fold(element.bytes(), usize::checked_mul)?;
        let len = if shape.contains(&0) { 0 } else { most };
        let bytes = self.take(len)?.to_vec();
        Some(Field {
            join,
            element,
            shape,
            bytes,
        })
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.array()?))
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*array)
    }

    fn take(&mut self, len: usize) -> Option<&[u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use burn_core::tensor::Device;

    use super::super::fields::Fields;
    use super::*;

    fn told() -> Told {
        let field = |join, element, shape: &[usize], bytes: &[u8]| Field {
            join,
            element,
            shape: shape.to_vec(),
            bytes: bytes.to_vec(),
        };
        Told {
            samples: 3,
            state: State::Last,
            place: Some(Place { part: 2, batch: 7 }),
            fields: vec![
                field(Join::Mean, Element::Float, &[1], &[1, 2, 3, 4]),
                field(Join::Rows, Element::Int, &[1, 1], &[9; 8]),
                field(Join::Rows, Element::Float, &[0, 7], &[]),
            ],
        }
    }

    #[test]
    fn places_are_read_back_and_none_of_parts_that_there_are_not() {
        let place = |part, batch| Some(Place { part, batch });
        let bytes = |places: &[Option<Place>]| -> Vec<u8> {
            places.iter().copied().flat_map(Place::to_bytes).collect()
        };
        let read = |places: &[Option<Place>]| parse_places(&bytes(places), 3, Rank::CHIEF);
        let (own, held) = read(&[place(2, 0), place(1, 7)]).unwrap();
        assert_eq!((own, held), (Some(2), vec![Place { part: 1, batch: 7 }]));
        assert_eq!(read(&[None]).unwrap(), (None, Vec::new()));
        for wrong in [&[][..], &[place(3, 0)], &[None, place(3, 0)], &[None, None]] {
            let error = read(wrong).unwrap_err();
            assert!(
                matches!(error, Error::OutputForm { rank: Rank::CHIEF }),
                "{error}"
            );
        }
        parse_places(&bytes(&[None])[..7], 3, Rank::CHIEF).unwrap_err();
        parse_places(&[bytes(&[None]), vec![0]].concat(), 3, Rank::CHIEF).unwrap_err();
    }

    #[test]
    fn what_was_told_is_read_back_and_nothing_that_is_cut_off_or_changed_in_kind() {
        let bytes = told().to_bytes();
        let read = Told::parse(&bytes, Rank::CHIEF).unwrap();
        assert_eq!(read.to_bytes(), bytes);
        assert_eq!((read.samples, read.state), (3, State::Last));
        assert_eq!(read.place, told().place);
        let nowhere = Told {
            place: None,
            ..told()
        };
        let read = Told::parse(&nowhere.to_bytes(), Rank::CHIEF).unwrap();
        assert_eq!(read.place, None);
        for end in 0..bytes.len() {
            let error = Told::parse(&bytes[..end], Rank::new(2)).unwrap_err();
            assert!(error.to_string().contains("rank 2"), "{error}");
        }
        let longer = [&bytes[..], &[0]].concat();
        Told::parse(&longer, Rank::CHIEF).unwrap_err();
        for kind in [4, 17, 18] {
            let mut changed = bytes.clone();
            changed[kind] = 7;
            Told::parse(&changed, Rank::CHIEF).unwrap_err();
        }
        let mut huge = bytes.clone();
        huge[20..28].fill(0xff);
        Told::parse(&huge, Rank::CHIEF).unwrap_err();
    }

    #[test]
    fn a_size_of_0_hides_none_that_is_too_large() {
        let of = |shape: [usize; 2]| {
            let shape = shape.to_vec();
            let (join, element, bytes) = (Join::Rows, Element::Float, Vec::new());
            let field = Field {
                join,
                element,
                shape,
                bytes,
            };
            let fields = vec![field];
            let told = Told { fields, ..told() };
            Told::parse(&told.to_bytes(), Rank::CHIEF)
        };
        for shape in [[1 << 63, 0], [0, usize::MAX], [usize::MAX / 4 + 1, 0]] {
            let error = of(shape).unwrap_err();
            assert!(matches!(error, Error::OutputForm { .. }), "{error}");
        }
        // As many rows as there can be, of several workers.
        let all = vec![of([usize::MAX / 4, 0]).unwrap(); 5];
        let error = Fields::join(all, &Device::flex()).unwrap_err();
        let of_rank = matches!(error, Error::OutputForm { rank } if rank == Rank::new(4));
        assert!(of_rank, "{error}");
    }
}
