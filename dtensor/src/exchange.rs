//! Exchanges carried out: parts of blocks copied here, and sent to other clients in one all-to-all.

use meshwork_accel::ReduceOp;
use meshwork_layout::{Ranges, Reduction, Shape};
use ndarray::{ArcArray, ArrayD, ArrayViewD, IxDyn};

use crate::context::Context;
use crate::error::Subject;
use crate::route::{Exchange, Form, Part, Route, Source, Target};
use crate::{Error, Scalar};

/// A block of a tensor on one device.
pub type Block<T> = ArcArray<T, IxDyn>;

/// Carries a route out on the blocks of this client, and returns those of the target.
#[track_caller]
pub(crate) fn run<T: Scalar>(
    context: &Context,
    route: &Route,
    blocks: &[Block<T>],
) -> Result<Vec<Block<T>>, Error> {
    let mut held = blocks.to_vec();
    for (number, exchange) in route.exchanges.iter().enumerate() {
        let received = match exchange.crosses {
            true => send_and_receive(context, (route, number), exchange, &held)?,
            false => Vec::new(),
        };
        let targets = exchange.targets.iter();
        let taken = targets.map(|target| taken(exchange, target, &held, &received));
        held = taken.collect::<Result<_, Error>>()?;
    }
    Ok(route
        .places
        .iter()
        .map(|&place| held[place].clone())
        .collect())
}

/// What the parcels from each client hold.
type Parcels<T> = Vec<Vec<Vec<T>>>;

/// Gives all clients their parcels in one go, each behind a number for what is being done.
#[track_caller]
fn send_and_receive<T: Scalar>(
    context: &Context,
    (route, number): (&Route, usize),
    exchange: &Exchange,
    held: &[Block<T>],
) -> Result<Parcels<T>, Error> {
    let own = context.index() as usize;
    let title = format!("step {number} of {} of {}", route.title, T::TYPE);
    let mark = context.mark(&title);
    let mark_for = |client| if client == own { &[][..] } else { &mark[..] };
    let (bytes, sent) = packed(exchange, held, mark_for);
    let received = exchange.received.iter().enumerate();
    let lengths = received.map(|(client, parcels)| {
        let elements: usize = parcels.iter().map(count).sum();
        mark_for(client).len() + elements * size_of::<T>()
    });
    let lengths: Vec<usize> = lengths.collect();
    let mut arrived = vec![0_u8; lengths.iter().sum()];
    context.with_group(|group| {
        group.all_to_all_uneven((&bytes, &sent), (&mut arrived, &lengths))?;
        Ok(())
    })?;
    context.count_sent(bytes.len() - mark.len() * (sent.len() - 1));
    let mut rest = arrived.as_slice();
    let mut all = Vec::new();
    for (client, parcels) in exchange.received.iter().enumerate() {
        let (head, behind) = rest.split_at(mark_for(client).len());
        if head != mark_for(client) {
            return Err(differing(context, client, title));
        }
        let (own, behind) = behind.split_at(lengths[client] - head.len());
        rest = behind;
        all.push(unpacked(own, parcels, client)?);
    }
    Ok(all)
}

/// What goes to all clients, one behind the other, and how many bytes go to each.
fn packed<'a, T: Scalar>(
    exchange: &Exchange,
    held: &[Block<T>],
    mark_for: impl Fn(usize) -> &'a [u8],
) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::new();
    let mut sent = Vec::new();
    for (client, parcels) in exchange.sent.iter().enumerate() {
        let before = bytes.len();
        bytes.extend_from_slice(mark_for(client));
        for (place, ranges) in parcels {
            let part = elements(exchange.form, &held[*place], ranges);
            bytes.extend_from_slice(bytemuck::cast_slice(&part));
        }
        sent.push(bytes.len() - before);
    }
    (bytes, sent)
}

/// The parcels that a client has sent, which are as long as these bytes.
fn unpacked<T: Scalar>(
    mut bytes: &[u8],
    parcels: &[Shape],
    client: usize,
) -> Result<Vec<Vec<T>>, Error> {
    let element = T::TYPE;
    let parcel = |shape: &Shape| {
        let (parcel, behind) = bytes.split_at(count(shape) * size_of::<T>());
        bytes = behind;
        from_bytes(parcel).ok_or(Error::Garbled { client, element })
    };
    parcels.iter().map(parcel).collect()
}

fn count(shape: &Shape) -> usize {
    shape.iter().product()
}

/// Another client does something else: all are told.
fn differing(context: &Context, client: usize, title: String) -> Error {
    let error = Error::ProgramsDiffer {
        subject: Subject::Program,
        client,
        own: context.index(),
        title,
    };
    context.abort(&error);
    error
}

/// Elements from bytes that may lie anywhere; none if some are no element.
pub(crate) fn from_bytes<T: Scalar>(bytes: &[u8]) -> Option<Vec<T>> {
    let mut elements = vec![T::default(); bytes.len() / size_of::<T>()];
    match T::bytes_mut(&mut elements) {
        Some(memory) => memory.copy_from_slice(bytes),
        // Only bytes have values that are none of their type, and they lie right anywhere.
        None => elements.copy_from_slice(bytemuck::checked::try_cast_slice(bytes).ok()?),
    }
    Some(elements)
}

/// The new block of one rank.
fn taken<T: Scalar>(
    exchange: &Exchange,
    target: &Target,
    held: &[Block<T>],
    received: &Parcels<T>,
) -> Result<Block<T>, Error> {
    if let Some(block) = unchanged(exchange, target, held) {
        return Ok(block);
    }
    let fill = target.reduction.map_or_else(T::default, T::neutral);
    let terms = target.terms.iter().map(|term| {
        let shape = match exchange.form {
            Form::Elements => vec![target.shape.iter().product()],
            Form::Boxes => target.shape.to_vec(),
        };
        let mut block = ArrayD::from_elem(shape, fill);
        for part in term {
            put(exchange.form, &mut block, part, (held, received));
        }
        block
    });
    let mut terms: Vec<ArrayD<T>> = terms.collect();
    let block = match (terms.len(), target.reduction) {
        (1, _) | (_, None) => terms.swap_remove(0),
        (_, Some(reduction)) => folded(&terms, reduction)?,
    };
    Ok(reshaped(block, &target.shape))
}

/// The block of a rank here that is to be one block here as it is.
fn unchanged<T: Scalar>(
    exchange: &Exchange,
    target: &Target,
    held: &[Block<T>],
) -> Option<Block<T>> {
    let [term] = target.terms.as_slice() else {
        return None;
    };
    let [
        Part {
            source: Source::Here(place, ranges),
            ..
        },
    ] = term.as_slice()
    else {
        return None;
    };
    let block = &held[*place];
    let whole = block.shape() == target.shape.as_slice()
        && ranges
            .iter()
            .zip(block.shape())
            .all(|(range, size)| *range == (0..*size));
    (whole && exchange.form == Form::Boxes).then(|| block.clone())
}

fn put<T: Scalar>(
    form: Form,
    block: &mut ArrayD<T>,
    part: &Part,
    (held, received): (&[Block<T>], &Parcels<T>),
) {
    let mut target = block.slice_each_axis_mut(|axis| slice(&part.target[axis.axis.index()]));
    match &part.source {
        Source::Here(place, ranges) if form == Form::Boxes => {
            target.assign(&view(&held[*place], ranges));
        }
        Source::Here(place, ranges) => {
            let elements = elements(form, &held[*place], ranges);
            fill_from(target.iter_mut(), &elements);
        }
        Source::There(client, number) => {
            fill_from(target.iter_mut(), &received[*client][*number]);
        }
    }
}

fn fill_from<'a, T: Scalar>(target: impl Iterator<Item = &'a mut T>, elements: &[T]) {
    for (target, element) in target.zip(elements) {
        *target = *element;
    }
}

/// The elements of a part of a block, row-major.
fn elements<T: Scalar>(form: Form, block: &Block<T>, ranges: &Ranges) -> Vec<T> {
    match (form, block.as_slice()) {
        (Form::Elements, Some(all)) => all[ranges[0].clone()].to_vec(),
        (Form::Elements, None) => {
            let range = &ranges[0];
            block
                .iter()
                .skip(range.start)
                .take(range.len())
                .copied()
                .collect()
        }
        (Form::Boxes, _) => view(block, ranges).iter().copied().collect(),
    }
}

fn view<'a, T>(block: &'a Block<T>, ranges: &Ranges) -> ArrayViewD<'a, T> {
    block.slice_each_axis(|axis| slice(&ranges[axis.axis.index()]))
}

fn slice(range: &std::ops::Range<usize>) -> ndarray::Slice {
    ndarray::Slice::from(range.clone())
}

/// The reduction of terms, in the order of a balanced tree over them.
fn folded<T: Scalar>(terms: &[ArrayD<T>], reduction: Reduction) -> Result<ArrayD<T>, Error> {
    let mut sum = ArrayD::from_elem(terms[0].raw_dim(), T::default());
    let sources: Vec<&[T]> = terms.iter().filter_map(|term| term.as_slice()).collect();
    if let Some(into) = sum.as_slice_mut() {
        meshwork_accel::Reduction::<T>::new(reduce_op(reduction))?.fold(into, &sources)?;
    }
    Ok(sum)
}

fn reduce_op(reduction: Reduction) -> ReduceOp {
    match reduction {
        Reduction::Product => ReduceOp::Product,
        Reduction::Min => ReduceOp::Min,
        Reduction::Max => ReduceOp::Max,
        _ => ReduceOp::Sum,
    }
}

/// The same elements in another shape; a block has as many as its shape says.
fn reshaped<T: Scalar>(block: ArrayD<T>, shape: &[usize]) -> Block<T> {
    if block.shape() == shape {
        return block.into_shared();
    }
    let reshaped = block.into_shape_with_order(shape);
    reshaped
        .expect("a target has as many elements as its shape says")
        .into_shared()
}
