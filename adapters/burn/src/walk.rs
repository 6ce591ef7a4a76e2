//! Walks through a module: burn shows parameters one by one, each with its own number of
//! dimensions.

use std::collections::BTreeMap;

use burn_core::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn_core::tensor::{DType, Tensor, TensorData};

use crate::Error;

/// A visitor of each parameter, in the order in which the module declares them.
pub(crate) trait Each {
    fn each<const D: usize>(&mut self, param: &Param<Tensor<D>>, path: &Path) -> Result<(), Error>;
}

/// Where a parameter is in its module: the names of fields, and places in lists, joined by dots.
/// Keeps its memory from walk to walk.
#[derive(Debug, Default)]
pub(crate) struct Path {
    text: String,
    /// How long the text was before each name.
    ends: Vec<usize>,
}

/// Where a parameter's values are among all, and where its gradient is among those of parameters
/// that are trained.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) index: usize,
    pub(crate) trained: Option<usize>,
}

/// What is known of the parameters of a module, and room for a walk through it.
#[cfg(feature = "cuda")]
pub(crate) struct Known<'a> {
    pub(crate) places: &'a BTreeMap<ParamId, Place>,
    pub(crate) path: &'a mut Path,
}

/// Shows all parameters of `module` to `each`, up to the first error.
pub(crate) fn walk<M: Module>(
    module: &M,
    path: &mut Path,
    each: &mut impl Each,
) -> Result<(), Error> {
    path.clear();
    let mut walk = Walk {
        path,
        each,
        ended: Ok(()),
    };
    module.visit(&mut walk);
    walk.ended
}

/// Makes the last update of running statistics their value. burn keeps it aside, beside what walks
/// see and write, until the next one: it would come after what is written, too.
pub(crate) fn settle<M: Module>(module: &M) {
    drop(module.valid());
}

/// The module with other values in the parameters that have a place, and the ids that `renamed`
/// gives them.
pub(crate) fn with_values<M: Module>(
    module: M,
    places: &BTreeMap<ParamId, Place>,
    values: &[&[f32]],
    renamed: &[ParamId],
) -> M {
    settle(&module);
    module.map(&mut Write {
        places,
        values,
        renamed,
    })
}

impl Path {
    pub(crate) fn text(&self) -> String {
        self.text.clone()
    }

    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    fn enter(&mut self, name: &str) {
        self.ends.push(self.text.len());
        if !self.text.is_empty() {
            self.text.push('.');
        }
        self.text.push_str(name);
    }

    fn leave(&mut self) {
        let end = self.ends.pop().expect("what is left was entered");
        self.text.truncate(end);
    }
}

struct Walk<'a, E> {
    path: &'a mut Path,
    each: &'a mut E,
    ended: Result<(), Error>,
}

impl<E: Each> ModuleVisitor for Walk<'_, E> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.ended.is_ok() {
            self.ended = self.each.each(param, self.path);
        }
    }

    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.leave();
    }
}

struct Write<'a> {
    places: &'a BTreeMap<ParamId, Place>,
    values: &'a [&'a [f32]],
    renamed: &'a [ParamId],
}

impl ModuleMapper for Write<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(place) = self.places.get(&param.id) else {
            return param;
        };
        let values = self.values[place.index].to_vec();
        let mut param = param.map(|old| {
            let data = TensorData::new(values, old.shape());
            let new = Tensor::from_data(data, (&old.device(), DType::F32));
            if old.is_require_grad() {
                new.require_grad()
            } else {
                new
            }
        });
        param.id = self.renamed[place.index];
        param
    }
}
