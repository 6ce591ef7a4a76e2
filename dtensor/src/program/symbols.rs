//! Tensors without elements, for functions that are traced and not carried out.

use meshwork_accel::Vector;

use super::lower::block_sizes;
use crate::backend::Recorder;
use crate::record::{AnyTensor, Described, made_of};
use crate::{Apart, Context, Error};

/// Tensors that are described as these, on as many devices, which take note of what they are asked
/// and do nothing.
pub(crate) fn symbols(context: &Context, of: &[AnyTensor]) -> Result<Vec<AnyTensor>, Error> {
    let first = of.first().ok_or(Error::NotHere)?;
    let devices = context.devices_of(first.placement().layout().mesh());
    let devices = devices.filter(|devices| !devices.is_empty());
    let (recorder, backend) = Recorder::new(devices.ok_or(Error::NotHere)?, None);
    let shadow = context.recording(&backend);
    let symbol = |own: &AnyTensor| {
        let described = Described::of(own);
        let sizes = block_sizes(context, &described)?;
        let why = Apart::Uneven;
        let op = format!("an argument of {described}");
        let one = sizes
            .first()
            .filter(|one| sizes.iter().all(|own| own == *one));
        let one = one.ok_or(Error::NotOneGraph { op, why })?;
        let (element, len) = (described.element, one.iter().product());
        let blocks = recorder.input(&backend, Vector { element, len });
        made_of(&shadow, &described, sizes, blocks)
    };
    of.iter().map(symbol).collect()
}
