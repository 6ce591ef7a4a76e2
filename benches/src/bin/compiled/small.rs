//! A step of next to nothing, with as many variables as the network for pictures has: what a call
//! costs besides computing.

use meshwork_core::Mesh;
use meshwork_dtensor::{Context, DTensor, DVariable, Error, Variable, VariableSet};
use meshwork_layout::Layout;

pub(crate) struct Small(Vec<DVariable<f32>>);

impl Small {
    pub(crate) fn new(context: &Context, mesh: &Mesh) -> Result<Self, Error> {
        let layout = Layout::replicated(mesh, 1);
        let variables = (0..8).map(|_| Ok(DVariable::new(context.zeros(&[16], &layout)?)));
        Ok(Self(variables.collect::<Result<_, Error>>()?))
    }

    /// Adds to each variable; the sum of all elements of one.
    pub(crate) fn step(&mut self, by: &DTensor<f32>) -> Result<DTensor<f32>, Error> {
        self.0.iter_mut().try_for_each(|own| own.assign_add(by))?;
        self.0[0].value().sum_all()
    }
}

pub(crate) fn input(context: &Context, mesh: &Mesh) -> Result<DTensor<f32>, Error> {
    context.full(&[16], &Layout::replicated(mesh, 1), 1e-6)
}

impl VariableSet for Small {
    fn visit(&mut self, visit: &mut dyn FnMut(&mut dyn Variable)) {
        self.0.visit(visit);
    }
}
