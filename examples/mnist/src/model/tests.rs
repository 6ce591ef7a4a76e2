//! Networks on images of both data sets: seeds, guesses before training, and gradients.

use std::path::Path;

use super::*;
use crate::data::{Colours, Dataset, Split};

const KINDS: [Kind; 3] = [Kind::Cnn, Kind::Mlp, Kind::Resnet];

fn training_images() -> Dataset {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    Dataset::load(&folder, Split::Train).unwrap()
}

fn seeded(kind: Kind, images: ImageShape, seed: u64) -> (VarMap, Model) {
    let vars = VarMap::new();
    let model = Model::seeded(kind, images, &vars, seed).unwrap();
    (vars, model)
}

fn loss(kind: Kind, seed: u64, indices: &[usize]) -> f32 {
    let images = training_images();
    let (_, model) = seeded(kind, images.shape(), seed);
    let loss = model.loss(images.gather(indices), 1.0).unwrap();
    loss.to_scalar().unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bits() {
    for kind in KINDS {
        let bits = |seed| loss(kind, seed, &[1, 2, 3]).to_bits();
        assert_eq!(bits(1), bits(1));
        assert_ne!(bits(1), bits(2));
    }
}

#[test]
fn an_untrained_network_guesses_about_evenly() {
    let batch: Vec<usize> = (0..64).collect();
    let images = training_images();
    for kind in KINDS {
        let loss = loss(kind, 1, &batch);
        assert!((loss - 10_f32.ln()).abs() < 1.0, "{kind}: {loss}");
        let (_, model) = seeded(kind, images.shape(), 1);
        assert!(model.count_correct(images.gather(&batch)).unwrap() < 32.0);
    }
}

#[test]
fn every_network_takes_images_of_every_size_and_colour() {
    for (colours, rows, cols) in [
        (Colours::Rgb, 32, 32),
        (Colours::Grey, LEAST_SIDE, LEAST_SIDE),
        (Colours::Rgb, 17, 30),
    ] {
        let shape = ImageShape {
            colours,
            rows,
            cols,
        };
        let batch = Batch {
            pixels: (0..3 * shape.len()).map(|at| (at as f32).sin()).collect(),
            labels: vec![0, 9, 4],
            shape,
        };
        for kind in KINDS {
            let (vars, model) = seeded(kind, shape, 1);
            let batch = Batch {
                pixels: batch.pixels.clone(),
                labels: batch.labels.clone(),
                shape,
            };
            let gradients = model.loss(batch, 1.0).unwrap().backward().unwrap();
            for (name, var) in vars.data().lock().unwrap().iter() {
                let gradient = gradients.get(var).unwrap().sqr().unwrap();
                let norm: f32 = gradient.sum_all().unwrap().to_scalar().unwrap();
                assert!(norm > 0.0 && norm.is_finite(), "{kind} {name}: {norm}");
            }
        }
    }
}
