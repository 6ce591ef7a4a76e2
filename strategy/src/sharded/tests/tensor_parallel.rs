//! A network of two layers, cut by columns and then by rows, trains as it does in one process:
//! parts of parts among 2 × 2 and 2 × 2 × 2 workers, norms, and files.

use meshwork_collectives::ReduceOp;
use meshwork_core::Mesh;

use super::*;
use crate::ShardGroupError;

const INPUTS: usize = 3;
/// Not the same number on each of two workers.
const HIDDEN: usize = 7;
const OUTPUTS: usize = 2;
/// Samples of each worker that has some of its own.
const BATCH: usize = 4;
const STEPS: usize = 4;

fn layers() -> Vec<UnitSpec> {
    let spec = |name: &str, shape: &[usize]| VariableSpec::new(name, shape).unwrap();
    let up = [
        spec("up.weight", &[INPUTS, HIDDEN]),
        spec("up.bias", &[HIDDEN]),
    ];
    let down = [
        spec("down.weight", &[HIDDEN, OUTPUTS]),
        spec("down.bias", &[OUTPUTS]),
    ];
    let up = UnitSpec::new("up", up).with_cut("up.weight", 1);
    let up = up.and_then(|up| up.with_cut("up.bias", 0));
    let down = UnitSpec::new("down", down).with_cut("down.weight", 0);
    vec![up.unwrap(), down.unwrap()]
}

/// Rows of numbers, one after the other.
#[derive(Clone, Debug)]
struct Matrix {
    values: Vec<f32>,
    columns: usize,
}

impl Matrix {
    fn of(values: &[f32], columns: usize) -> Self {
        let values = values.to_vec();
        Self { values, columns }
    }

    fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.columns)
    }

    fn transposed(&self) -> Self {
        let columns = 0..self.columns;
        let of = |column: usize| self.rows().map(move |row| row[column]);
        let columns_now = self.rows().len();
        let values = columns.flat_map(of).collect();
        Self {
            values,
            columns: columns_now,
        }
    }

    fn times(&self, other: &Self) -> Self {
        let other = other.transposed();
        let product = |row: &[f32], column: &[f32]| -> f32 {
            row.iter().zip(column).map(|(one, other)| one * other).sum()
        };
        let rows = self.rows();
        let of = |row| other.rows().map(move |column| product(row, column));
        let values = rows.flat_map(of).collect();
        let columns = other.rows().len();
        Self { values, columns }
    }

    fn plus(mut self, bias: &[f32]) -> Self {
        for row in self.values.chunks_exact_mut(bias.len()) {
            row.iter_mut()
                .zip(bias)
                .for_each(|(value, bias)| *value += bias);
        }
        self
    }

    fn sums(&self) -> Vec<f32> {
        self.transposed()
            .rows()
            .map(|column| column.iter().sum())
            .collect()
    }
}

/// One of the workers.
struct Worker {
    strategy: MultiWorkerMirroredStrategy,
    tensor: Option<Group>,
    model: ShardedModel<AdamW>,
}

fn sharding(shard: Shard) -> Sharding {
    let two = ShardGroup::Workers(NonZeroU32::new(2).unwrap());
    Sharding::new(shard).with_group(two).with_max_norm(0.5)
}

impl Worker {
    fn new(
        mut strategy: MultiWorkerMirroredStrategy,
        tensor: Option<Group>,
        sharding: Sharding,
    ) -> Self {
        let (units, optimizer) = (layers(), AdamW::new(0.02));
        let model = ShardedModel::new(&mut strategy, sharding, &units, optimizer, initial);
        Self {
            strategy,
            tensor,
            model: model.unwrap(),
        }
    }

    fn on(strategy: MultiWorkerMirroredStrategy, mesh: &Mesh, shard: Shard) -> Self {
        let (strategy, tensor) = strategy.split_along(mesh, "tensor").unwrap();
        let sharding = match mesh.contains_dim("replica") {
            true => sharding(shard),
            false => Sharding::new(shard).with_max_norm(0.5),
        };
        Self::new(strategy, Some(tensor), sharding)
    }

    /// A step with samples of its own; the loss of all of them, and the norm.
    fn step(&mut self, step: usize, batch: usize) -> (f32, f64) {
        let first = self.strategy.rank().index() * batch;
        let number = |at: usize| ((at * 13 + step * 7) as f32 * 0.37).sin();
        let samples = first * INPUTS..(first + batch) * INPUTS;
        let inputs = Matrix::of(&samples.map(number).collect::<Vec<_>>(), INPUTS);
        let (model, tensor) = (&mut self.model, &mut self.tensor);
        let stepped = self.strategy.run(|replica| {
            let hidden = model.forward(replica, 0, |up| {
                let own = up[1].len();
                let hidden = inputs.times(&Matrix::of(&up[0], own)).plus(&up[1]);
                let values = hidden.values.iter().map(|value| value.max(0.0)).collect();
                Matrix { values, ..hidden }
            })?;
            let mut outputs = model.forward(replica, 1, |down| {
                let mut outputs = hidden.times(&Matrix::of(&down[0], OUTPUTS));
                if let Some(tensor) = tensor {
                    let summed = tensor.all_reduce(&mut outputs.values, ReduceOp::Sum);
                    summed.unwrap();
                }
                outputs.plus(&down[1])
            })?;
            let count = outputs.values.len() as f32;
            let mut loss = [0.0];
            for output in &mut outputs.values {
                let distance = *output - 0.75;
                loss[0] += distance * distance / count;
                *output = 2.0 * distance / count;
            }
            let slopes = model.backward(replica, 1, |down, gradients| {
                let weight = hidden.transposed().times(&outputs);
                gradients[0].copy_from_slice(&weight.values);
                gradients[1].copy_from_slice(&outputs.sums());
                let mut slopes = outputs.times(&Matrix::of(&down[0], OUTPUTS).transposed());
                for (slope, hidden) in slopes.values.iter_mut().zip(&hidden.values) {
                    *slope *= f32::from(u8::from(*hidden > 0.0));
                }
                slopes
            })?;
            model.backward(replica, 0, |_, gradients| {
                let weight = inputs.transposed().times(&slopes);
                gradients[0].copy_from_slice(&weight.values);
                gradients[1].copy_from_slice(&slopes.sums());
            })?;
            let norm = model.step(replica)?.expect("it is limited");
            replica.all_reduce(crate::ReplicaReduceOp::Mean, &mut loss)?;
            Ok::<_, Error>((loss[0], norm))
        });
        stepped.unwrap().into_first()
    }

    fn steps(&mut self, steps: Range<usize>, batch: usize) -> Vec<(f32, f64)> {
        steps.map(|at| self.step(at, batch)).collect()
    }

    fn save(&mut self, checkpoints: &ShardedCheckpoints) {
        save_whole(&mut self.strategy, &mut self.model, checkpoints);
    }

    fn load(&mut self, checkpoints: &ShardedCheckpoints) {
        let model = &mut self.model;
        let loaded = self
            .strategy
            .run(|replica| model.load(replica, checkpoints));
        assert_eq!(loaded.unwrap().into_first(), Some(STEPS as u64));
    }
}

fn alone() -> Worker {
    let strategy = MultiWorkerMirroredStrategy::alone().unwrap();
    let sharding = Sharding::new(Shard::Nothing).with_max_norm(0.5);
    Worker::new(strategy, None, sharding)
}

/// Sums are made in another order.
#[track_caller]
fn are_close(found: &[(f32, f64)], expected: &[(f32, f64)], context: &str) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let loss = (found.0 - expected.0).abs();
        let norm = (found.1 - expected.1).abs();
        assert!(
            loss < 1e-5 && norm < 1e-5,
            "{context}: {found:?} {expected:?}"
        );
    }
}

#[test]
fn two_layers_cut_by_columns_and_rows_train_as_in_one_process_and_so_do_their_files() {
    let meshes = [
        Mesh::new([("shard", 2), ("tensor", 2)]).unwrap(),
        Mesh::new([("tensor", 2), ("shard", 2)]).unwrap(),
        Mesh::new([("replica", 2), ("shard", 2), ("tensor", 2)]).unwrap(),
        Mesh::new([("shard", 1), ("tensor", 3)]).unwrap(),
    ];
    for (mesh, shard) in meshes
        .iter()
        .flat_map(|mesh| KINDS.map(|kind| (mesh, kind)))
    {
        let context = format!("{mesh:?} {shard:?}");
        let workers = mesh.size();
        let readers = workers / mesh.dim_size("tensor").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = ShardedCheckpoints::new(folder.path());
        let found = each(u32::try_from(workers).unwrap(), |strategy| {
            let mut worker = Worker::on(strategy, mesh, shard);
            let steps = worker.steps(0..STEPS, BATCH);
            worker.save(&checkpoints);
            worker.strategy.leave().unwrap();
            steps
        });
        assert!(found.iter().all(|steps| *steps == found[0]), "{context}");
        let mut one = alone();
        let expected = one.steps(0..STEPS, BATCH * readers);
        assert!(expected.iter().any(|(_, norm)| *norm > 0.5));
        are_close(&found[0], &expected, &context);
        // Files have the whole, for one process, and of one.
        let mut other = alone();
        other.load(&checkpoints);
        let more = one.steps(STEPS..STEPS + 2, BATCH * readers);
        are_close(
            &other.steps(STEPS..STEPS + 2, BATCH * readers),
            &more,
            &context,
        );
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = ShardedCheckpoints::new(folder.path());
        let mut saved = alone();
        saved.steps(0..STEPS, BATCH * readers);
        saved.save(&checkpoints);
        let loaded = each(u32::try_from(workers).unwrap(), |strategy| {
            let mut worker = Worker::on(strategy, mesh, shard);
            worker.load(&checkpoints);
            let steps = worker.steps(STEPS..STEPS + 2, BATCH);
            worker.strategy.leave().unwrap();
            steps
        });
        are_close(&loaded[0], &more, &context);
    }
}

#[test]
fn meshes_and_cuts_that_do_not_fit_are_refused_by_name() {
    let mesh = Mesh::new([("shard", 3), ("tensor", 2)]).unwrap();
    let errors = each(4, |strategy| {
        strategy.split_along(&mesh, "tensor").unwrap_err()
    });
    let expected = ShardGroupError::MeshDiffers {
        size: 6,
        workers: 4,
    };
    assert!(
        errors
            .iter()
            .all(|error| *error == Error::ShardGroup(expected.clone()))
    );
    let mesh = Mesh::new([("shard", 2), ("tensor", 2)]).unwrap();
    let errors = each(4, |strategy| {
        let (split, _tensor) = strategy.split_along(&mesh, "tensor").unwrap();
        let mesh = Mesh::new([("shard", 2)]).unwrap();
        split.split_along(&mesh, "shard").unwrap_err()
    });
    assert_eq!(
        errors,
        [const { Error::ShardGroup(ShardGroupError::SplitTwice) }; 4]
    );
    let spec = VariableSpec::new("w", &[4]).unwrap();
    for (parameter, axis) in [("w", 1), ("v", 0)] {
        let cut = UnitSpec::new("unit", [spec.clone()]).with_cut(parameter, axis);
        let (unit, parameter) = ("unit".to_owned(), parameter.to_owned());
        let expected = ShardGroupError::NotCut {
            unit,
            parameter,
            axis,
        };
        assert_eq!(cut.unwrap_err(), Error::ShardGroup(expected));
    }
    let mesh = Mesh::new([("tensor", 2)]).unwrap();
    let errors = each(2, |strategy| {
        let axis = strategy.rank().index();
        let (mut strategy, _tensor) = strategy.split_along(&mesh, "tensor").unwrap();
        let spec = VariableSpec::new("w", &[4, 4]).unwrap();
        let unit = UnitSpec::new("unit", [spec]).with_cut("w", axis).unwrap();
        let sharding = Sharding::new(Shard::Nothing);
        let made = ShardedModel::new(&mut strategy, sharding, &[unit], Sgd::new(0.1), initial);
        made.unwrap_err()
    });
    for error in errors {
        assert_eq!(error.rank_at_fault(), Some(Rank::new(1)), "{error}");
        assert!(error.to_string().contains("along the mesh"), "{error}");
    }
}

#[test]
fn workers_of_a_replica_that_shard_in_different_ways_are_named() {
    let mesh = Mesh::new([("tensor", 2)]).unwrap();
    let errors = each(2, |strategy| {
        let norm = [1.0, 0.5][strategy.rank().index()];
        let (mut strategy, _tensor) = strategy.split_along(&mesh, "tensor").unwrap();
        let sharding = Sharding::new(Shard::Nothing).with_max_norm(norm);
        let units = layers();
        let made = ShardedModel::new(&mut strategy, sharding, &units, Sgd::new(0.1), initial);
        made.unwrap_err()
    });
    for error in errors {
        assert_eq!(error.rank_at_fault(), Some(Rank::new(1)), "{error}");
        assert!(error.to_string().contains("largest norm"), "{error}");
    }
}
