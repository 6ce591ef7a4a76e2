//! The transformer.
//!
//! ```text
//! character + place ─┬─ norm ─ attention ─ + ─┬─ norm ─ dense ─ GELU ─ dense ─ + ─ … ─ norm ─ dense ─ scores
//!                    └─────────────────────┘  └──────────────────────────────┘
//! ```

mod parts;

use candle_core::{D, DType, Device, Tensor};
use candle_nn::{Module, VarBuilder, VarMap};
use meshwork_candle_ops as ops;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::Error;
use crate::corpus::{Batch, Corpus};
use crate::initial::seed_variables;
pub(crate) use parts::{Embedding, Head, Layer};

/// The sizes of a transformer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Size {
    pub(crate) layers: usize,
    width: usize,
    heads: usize,
    context: usize,
}

impl Size {
    /// `layers` layers, `width` numbers for a character, `heads` heads of attention, `context`
    /// characters that are looked back at.
    ///
    /// # Errors
    /// [`Error::Size`]
    pub fn new(layers: usize, width: usize, heads: usize, context: usize) -> Result<Self, Error> {
        let wrong = |problem| Error::Size {
            layers,
            width,
            heads,
            context,
            problem,
        };
        if [layers, width, heads, context].contains(&0) {
            return Err(wrong("each must be at least 1"));
        }
        if !width.is_multiple_of(heads) {
            return Err(wrong(
                "the heads share the width evenly; pass a --width that is a multiple of --heads",
            ));
        }
        if layers > MOST || width > MOST || context > MOST {
            return Err(wrong("each must be at most 4096"));
        }
        Ok(Self {
            layers,
            width,
            heads,
            context,
        })
    }

    /// Characters that are looked back at.
    #[must_use]
    pub fn context(self) -> usize {
        self.context
    }
}

/// A transformer over variables that live in the map it was made with.
#[derive(Debug)]
pub struct Model {
    size: Size,
    embedding: Embedding,
    layers: Vec<Layer>,
    head: Head,
}

impl Model {
    /// A transformer over new variables on `device` in `vars`, with initial values that depend on
    /// `seed` only.
    ///
    /// # Errors
    /// [`Error::Network`] for this and the other methods, if candle refuses an operation.
    pub fn seeded(
        vars: &VarMap,
        size: Size,
        characters: usize,
        seed: u64,
        device: &Device,
    ) -> Result<Self, Error> {
        let builder = VarBuilder::from_varmap(vars, DType::F32, device);
        let model = Self::over(&builder, size, characters)?;
        seed_variables(vars, seed)?;
        Ok(model)
    }

    /// The same over tensors that stand for its variables.
    ///
    /// # Errors
    /// [`Error::Network`]
    pub fn over(vars: &VarBuilder<'_>, size: Size, characters: usize) -> Result<Self, Error> {
        let layer = |index| Layer::new(vars, size, index);
        Ok(Self {
            size,
            embedding: Embedding::new(vars, size, characters)?,
            layers: (0..size.layers)
                .map(layer)
                .collect::<candle_core::Result<_>>()?,
            head: Head::new(vars, size, characters)?,
        })
    }

    /// The mean loss of `batch`, which must not be empty.
    ///
    /// # Errors
    /// [`Error::Network`]
    pub fn loss(&self, batch: &Batch) -> Result<Tensor, Error> {
        let scores = self.forward(&batch.inputs, batch.context)?;
        Ok(loss_of(&scores, batch)?)
    }

    /// The loss over the validation text: a sum over each `parts`th row from row `part` on, and how
    /// many rows that are. The sum over all parts, divided by all rows, is the mean.
    ///
    /// # Errors
    /// [`Error::Network`]
    pub fn validation_loss(
        &self,
        corpus: &Corpus,
        part: usize,
        parts: usize,
    ) -> Result<(f64, usize), Error> {
        let rows: Vec<usize> = (part..corpus.validation_rows())
            .step_by(parts.max(1))
            .collect();
        let mut sum = 0.0;
        for rows in rows.chunks(VALIDATION_ROWS) {
            let batch = corpus.validation_batch(rows.iter().copied());
            sum += f64::from(self.loss(&batch)?.to_scalar::<f32>()?) * rows.len() as f64;
        }
        Ok((sum, rows.len()))
    }

    /// As many characters as asked for, as the model goes on from the beginning of the validation
    /// text.
    ///
    /// # Errors
    /// [`Error::Network`]
    pub fn sample(&self, corpus: &Corpus, characters: usize, seed: u64) -> Result<String, Error> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut text = corpus.prompt().to_vec();
        let start = text.len();
        for _ in 0..characters {
            let seen = &text[text.len().saturating_sub(self.size.context)..];
            let scores = self.forward(seen, seen.len())?;
            let last = (scores.get(seen.len() - 1)? / TEMPERATURE)?;
            let weights = candle_nn::ops::softmax(&last, D::Minus1)?.to_vec1::<f32>()?;
            let mut rest = random.random::<f32>();
            let drawn = weights.iter().take_while(|&&weight| {
                rest -= weight;
                rest > 0.0
            });
            // Rounding may leave a rest behind the last character.
            let drawn = drawn.count().min(weights.len() - 1);
            text.push(u32::try_from(drawn).expect("characters are numbered by u32"));
        }
        Ok(corpus.decode(&text[start..]))
    }

    /// The scores of each character to follow: a row for each input.
    fn forward(&self, inputs: &[u32], context: usize) -> Result<Tensor, Error> {
        let mut hidden =
            self.embedding
                .forward(&numbers(inputs, context, self.embedding.device())?)?;
        for layer in &self.layers {
            hidden = layer.forward(&hidden)?;
        }
        Ok(self.head.forward(&hidden)?)
    }
}

/// The numbers of characters, a row of them for each row of text.
pub(crate) fn numbers(
    inputs: &[u32],
    context: usize,
    device: &Device,
) -> candle_core::Result<Tensor> {
    let rows = inputs.len() / context.max(1);
    Tensor::from_slice(inputs, (rows, context), device)
}

/// The mean loss of scores for the characters of a batch.
pub(crate) fn loss_of(scores: &Tensor, batch: &Batch) -> candle_core::Result<Tensor> {
    let targets = Tensor::new(batch.targets.as_slice(), scores.device())?;
    ops::cross_entropy(scores, &targets)
}

/// Beyond it are no models for one core, and products of sizes stay far from overflow.
const MOST: usize = 4096;

/// Small enough for the activations to stay in the cache.
const VALIDATION_ROWS: usize = 16;

/// Below 1 the text has fewer slips.
const TEMPERATURE: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus() -> Corpus {
        Corpus::from_text(
            &"the quick brown fox jumps over the lazy dog. ".repeat(60),
            8,
        )
        .unwrap()
    }

    #[test]
    fn the_default_model_has_the_parameters_of_its_sizes() {
        let vars = VarMap::new();
        let size = Size::new(3, 128, 4, 64).unwrap();
        Model::seeded(&vars, size, 100, 1, &Device::Cpu).unwrap();
        let count: usize = vars.all_vars().iter().map(|var| var.elem_count()).sum();
        let layer = 4 * 128 + 3 * 128 * 129 + 128 * 129 + 4 * 128 * 129 + 128 * 513;
        assert_eq!(
            count,
            100 * 128 + 64 * 128 + 3 * layer + 2 * 128 + 100 * 129
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_bits_and_a_guess_that_is_about_even() {
        let corpus = corpus();
        let size = Size::new(2, 16, 2, 8).unwrap();
        let loss = |seed| {
            let model = Model::seeded(
                &VarMap::new(),
                size,
                corpus.characters(),
                seed,
                &Device::Cpu,
            )
            .unwrap();
            let loss = model.loss(&corpus.batch(1, 0, 0..16)).unwrap();
            loss.to_scalar::<f32>().unwrap()
        };
        assert_eq!(loss(1).to_bits(), loss(1).to_bits());
        assert_ne!(loss(1), loss(2));
        assert!(
            (loss(1) - (corpus.characters() as f32).ln()).abs() < 1.0,
            "{}",
            loss(1)
        );
    }

    #[test]
    fn no_score_depends_on_what_follows() {
        let corpus = corpus();
        let size = Size::new(2, 16, 2, 8).unwrap();
        let model =
            Model::seeded(&VarMap::new(), size, corpus.characters(), 1, &Device::Cpu).unwrap();
        let scores = |text: &[u32]| {
            let scores = model.forward(text, 8).unwrap();
            scores.narrow(0, 0, 5).unwrap().to_vec2::<f32>().unwrap()
        };
        assert_eq!(
            scores(&[1, 2, 3, 4, 5, 6, 7, 8]),
            scores(&[1, 2, 3, 4, 5, 9, 9, 9])
        );
        assert_ne!(
            scores(&[1, 2, 3, 4, 5, 6, 7, 8]),
            scores(&[1, 2, 3, 4, 6, 6, 7, 8])
        );
    }

    #[test]
    fn parts_of_the_validation_add_up() {
        let corpus = corpus();
        let size = Size::new(1, 16, 2, 8).unwrap();
        let model =
            Model::seeded(&VarMap::new(), size, corpus.characters(), 1, &Device::Cpu).unwrap();
        let (whole, rows) = model.validation_loss(&corpus, 0, 1).unwrap();
        let parts: Vec<_> = (0..3)
            .map(|part| model.validation_loss(&corpus, part, 3).unwrap())
            .collect();
        assert_eq!(parts.iter().map(|part| part.1).sum::<usize>(), rows);
        let sum: f64 = parts.iter().map(|part| part.0).sum();
        assert!((sum - whole).abs() < 1e-5 * whole);
    }

    #[test]
    fn sizes_that_do_not_go_together_are_refused_with_the_remedy() {
        for (sizes, part) in [
            ([0, 8, 2, 8], "at least 1"),
            ([1, 9, 2, 8], "--width"),
            ([1, 8, 2, 5000], "at most 4096"),
        ] {
            let [layers, width, heads, context] = sizes;
            let error = Size::new(layers, width, heads, context).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
