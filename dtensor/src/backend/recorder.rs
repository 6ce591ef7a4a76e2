//! A backend that takes note of what is asked of it, and does nothing: its buffers are numbers of
//! values. What it has been asked becomes a graph, if that was the same of all devices.
//!
//! ```text
//!     device 0:  %2 = product %0 %1     %3 = cut 0..2 of %2
//!     device 1:  %2 = product %0 %1     %3 = cut 2..4 of %2      one graph: cut is for each device
//! ```

use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meshwork_accel::{
    Arrangement, Device, DeviceId, ElementType, Error as Refusal, Graph, GraphOp, Pairwise,
    PerDevice, Pointwise, ProductShape, ReduceOp, Region, StridedSlice, Vector,
};

use super::typed::{Answer, Arithmetic, Memory, Raw, Shaping};
use super::{Backend, BackendResult, DeviceBlock, DeviceBlocks, Parts, Whole};

mod bounds;

pub(crate) use bounds::Bound;

/// Notes for each device.
pub(crate) struct Recorder {
    devices: Vec<DeviceId>,
    /// Whose arithmetic it has; none where all floats are computed with.
    like: Option<Backend>,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    /// By device, in order.
    asked: Vec<Vec<Note>>,
    /// Whether somebody wanted to see elements.
    looked: bool,
    bounds: Vec<Bound>,
}

/// A value on one device.
#[derive(Clone, PartialEq)]
struct Note {
    /// None for an input.
    op: Option<GraphOp>,
    operands: Vec<usize>,
    vector: Vector,
}

/// The buffer of one device: a value by its number.
#[derive(Clone, Copy)]
struct Symbol {
    place: usize,
    number: usize,
    vector: Vector,
}

/// Why what was asked is no graph.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Unlike {
    /// Devices are asked for different things, as of shards of different sizes.
    Devices,
    /// Elements are looked at on the host.
    Looked,
}

impl Recorder {
    /// One for these devices, with the arithmetic of a backend, and as which it is known.
    pub(crate) fn new(devices: Vec<DeviceId>, like: Option<Backend>) -> (Arc<Self>, Backend) {
        let described = match &like {
            Some(like) => like.devices().to_vec(),
            None => devices.iter().map(|id| Device::new(*id, "none")).collect(),
        };
        let recorder = Arc::new(Self {
            notes: Mutex::new(Notes {
                asked: vec![Vec::new(); devices.len()],
                looked: false,
                bounds: Vec::new(),
            }),
            devices,
            like,
        });
        let backend = Backend(Arc::new(Parts {
            devices: described,
            memory: Arc::<Self>::clone(&recorder),
            arithmetic: Some(Arc::<Self>::clone(&recorder)),
            shaping: Some(Arc::<Self>::clone(&recorder)),
            recorder: Some(Arc::clone(&recorder)),
            links: None,
            graphs: None,
            refused: 0.into(),
            tally: super::TransferStats::default(),
        }));
        (recorder, backend)
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        let notes = self.notes();
        notes.asked.iter().map(Vec::len).fold(0, usize::max)
    }

    /// Whether all was the same of all devices from this number on, and nobody looked at elements.
    pub(crate) fn settle(&self, from: usize) -> Result<(), Unlike> {
        let notes = self.notes();
        match (notes.looked, notes.are_alike(from)) {
            (true, _) => Err(Unlike::Looked),
            (false, false) => Err(Unlike::Devices),
            (false, true) => Ok(()),
        }
    }

    /// Forgets all from this number on.
    pub(crate) fn forget(&self, from: usize) {
        let mut notes = self.notes();
        notes
            .asked
            .iter_mut()
            .for_each(|asked| asked.truncate(from));
        notes.looked = false;
        notes.bounds.clear();
    }

    /// The one that blocks are values of; none for others.
    pub(crate) fn of(blocks: &DeviceBlocks) -> Option<&Arc<Self>> {
        blocks.first()?.backend.recorder()
    }

    /// A value that is given, on each device.
    pub(crate) fn input(&self, backend: &Backend, vector: Vector) -> DeviceBlocks {
        let mut notes = self.notes();
        let blocks = notes.asked.iter_mut().enumerate().map(|(place, asked)| {
            asked.push(Note {
                op: None,
                operands: Vec::new(),
                vector,
            });
            let number = asked.len() - 1;
            let symbol = Symbol {
                place,
                number,
                vector,
            };
            keep(backend, symbol)
        });
        blocks.collect()
    }

    /// What all devices do with values of theirs, one of each operand for each device; none where
    /// the graph has no such op of such values.
    pub(crate) fn together(
        &self,
        backend: &Backend,
        op: &GraphOp,
        operands: &[&DeviceBlocks],
    ) -> Option<DeviceBlocks> {
        let places = 0..self.devices.len();
        let made = places.map(|place| {
            let own = operands.iter().map(|blocks| blocks.get(place));
            let own: Option<Vec<&Arc<DeviceBlock>>> = own.collect();
            let own: Vec<&Raw> = own?.into_iter().map(|block| &block.raw).collect();
            let made = self.note(place, op.clone(), &own)?.ok()?;
            Some(backend.keep(made, 0))
        });
        made.collect()
    }

    /// The number of a value, if it is one and the same on all devices.
    pub(crate) fn number(&self, blocks: &DeviceBlocks) -> Option<usize> {
        let mut numbers = blocks.iter().enumerate().map(|(place, block)| {
            let symbol = symbol(&block.raw)?;
            (symbol.place == place).then_some(symbol.number)
        });
        let first = numbers.next()??;
        numbers.all(|number| number == Some(first)).then_some(first)
    }

    /// The nodes from the beginning, in their order: none for an input, whose place among inputs
    /// the caller knows.
    pub(crate) fn nodes(&self) -> Vec<Recorded> {
        let notes = self.notes();
        let count = notes.asked.first().map_or(0, Vec::len);
        let nodes = (0..count).map(|number| Recorded {
            op: notes.merged(number).flatten(),
            operands: notes.asked[0][number].operands.clone(),
            vector: notes.asked[0][number].vector,
        });
        nodes.collect()
    }

    /// Notes an op of one device, which may be another than those of its operands only by mistake.
    fn note(&self, place: usize, op: GraphOp, of: &[&Raw]) -> Answer {
        let of = of.iter().map(|raw| symbol(raw));
        let of: Vec<Symbol> = of.collect::<Option<_>>()?;
        if of.iter().any(|own| own.place != place) {
            return None;
        }
        let vectors = of.iter().map(|own| own.vector).collect();
        let mut alone = Graph::new(self.devices.len(), vectors);
        let operands: Vec<usize> = (0..of.len()).collect();
        let made = match &op {
            // That there is one, the whole graph says.
            GraphOp::LoopResult(own) => own.vector,
            other => match alone.add(other.clone(), &operands, "") {
                Ok(made) => alone.vector(made),
                Err(error) => return Some(Err(error)),
            },
        };
        let mut notes = self.notes();
        let asked = &mut notes.asked[place];
        asked.push(Note {
            op: Some(op),
            operands: of.iter().map(|own| own.number).collect(),
            vector: made,
        });
        let number = asked.len() - 1;
        Some(Ok(Box::new(Symbol {
            place,
            number,
            vector: made,
        })))
    }

    /// The same of a device that its operands say.
    fn beside(&self, op: GraphOp, of: &[&Raw]) -> Answer {
        let place = symbol(of.first()?)?.place;
        self.note(place, op, of)
    }

    fn place(&self, device: DeviceId) -> Option<usize> {
        self.devices.iter().position(|own| *own == device)
    }

    /// A value of one element everywhere.
    fn filled(&self, place: usize, element: &[u8], vector: Vector) -> Answer {
        let bytes = PerDevice::all(element.to_vec());
        let one = self.note(place, GraphOp::Constant(vector.element, bytes), &[])?;
        let wide = Arrangement::new(&[1], &[0], &[vector.len]);
        match (one, wide) {
            (Ok(one), Ok(wide)) => self.note(place, GraphOp::Arrange(wide), &[&one]),
            (Err(error), _) | (_, Err(error)) => Some(Err(error)),
        }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        // Each change is one step.
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A value of a graph before it is one.
pub(crate) struct Recorded {
    pub(crate) op: Option<GraphOp>,
    pub(crate) operands: Vec<usize>,
    pub(crate) vector: Vector,
}

impl Notes {
    fn are_alike(&self, from: usize) -> bool {
        let most = self.asked.iter().map(Vec::len).fold(from, usize::max);
        let is_as_long = self.asked.iter().all(|asked| asked.len() == most);
        is_as_long && (from..most).all(|number| self.merged(number).is_some())
    }

    /// What all devices do as this number; none if that differs.
    fn merged(&self, number: usize) -> Option<Option<GraphOp>> {
        let notes = self.asked.iter().map(|asked| asked.get(number));
        let notes: Vec<&Note> = notes.collect::<Option<_>>()?;
        let first = notes.first()?;
        let is_alike =
            |note: &&Note| note.operands == first.operands && note.vector == first.vector;
        if !notes.iter().all(is_alike) {
            return None;
        }
        if notes.iter().all(|note| note.op == first.op) {
            return Some(first.op.clone());
        }
        let ops: Vec<&GraphOp> = notes
            .iter()
            .map(|note| note.op.as_ref())
            .collect::<Option<_>>()?;
        GraphOp::joined(&ops).map(Some)
    }
}

fn symbol(raw: &Raw) -> Option<Symbol> {
    raw.downcast_ref().copied()
}

fn keep(backend: &Backend, symbol: Symbol) -> Arc<DeviceBlock> {
    backend.keep(Box::new(symbol), 0)
}

impl Memory for Recorder {
    fn upload(&self, device: DeviceId, element: ElementType, bytes: &[u8]) -> Result<Raw, Refusal> {
        let available = self.devices.len();
        let unknown = Refusal::UnknownDevice { device, available };
        let bytes = PerDevice::all(bytes.to_vec());
        let place = self.place(device).ok_or_else(|| unknown.clone())?;
        let made = self.note(place, GraphOp::Constant(element, bytes), &[]);
        made.unwrap_or(Err(unknown))
    }

    fn zeros(&self, device: DeviceId, element: ElementType, len: usize) -> Result<Raw, Refusal> {
        let available = self.devices.len();
        let unknown = Refusal::UnknownDevice { device, available };
        let place = self.place(device).ok_or_else(|| unknown.clone())?;
        let zero = vec![0; element.size()];
        let made = self.filled(place, &zero, Vector { element, len });
        made.unwrap_or(Err(unknown))
    }

    fn download(&self, _: &Raw) -> Result<Box<dyn Any>, Refusal> {
        self.notes().looked = true;
        let operation = "looking at elements of a program";
        Err(Refusal::Unsupported { operation })
    }

    fn device(&self, of: &Raw) -> DeviceId {
        let place = symbol(of).map_or(0, |symbol| symbol.place);
        self.devices[place]
    }

    fn span(&self, device: DeviceId, from: &Raw, range: Range<usize>) -> Answer {
        let own = symbol(from)?;
        let is_whole = self.place(device) == Some(own.place) && range == (0..own.vector.len);
        is_whole.then(|| Ok(Box::new(own) as Raw))
    }

    fn reduced(&self, _: ReduceOp, _: &[&Raw]) -> Answer {
        None
    }
}

impl Arithmetic for Recorder {
    fn computes(&self, element: ElementType) -> bool {
        match &self.like {
            Some(like) => like.computes(element),
            None => element.is_float(),
        }
    }

    fn pointwise(&self, op: Pointwise, of: &Raw) -> Answer {
        self.beside(GraphOp::Pointwise(op), &[of])
    }

    fn pairwise(&self, op: Pairwise, of: [&Raw; 2]) -> Answer {
        self.beside(GraphOp::Pairwise(op), &of)
    }

    fn product(&self, shape: ProductShape, of: [&Raw; 2]) -> Answer {
        self.beside(GraphOp::Product(shape), &of)
    }

    fn convert(&self, of: &Raw, to: ElementType) -> Answer {
        self.beside(GraphOp::Convert(to), &[of])
    }

    fn select(&self, condition: &Raw, [yes, no]: [&Raw; 2]) -> Answer {
        self.beside(GraphOp::Select, &[condition, yes, no])
    }
}

impl Shaping for Recorder {
    fn cut(&self, from: &Raw, part: &Region) -> Answer {
        self.beside(GraphOp::Cut(PerDevice::all(part.clone())), &[from])
    }

    fn arrange(&self, from: &Raw, to: &Arrangement) -> Answer {
        self.beside(GraphOp::Arrange(to.clone()), &[from])
    }

    fn fold(&self, op: ReduceOp, sizes: [usize; 3], from: &Raw) -> Answer {
        self.beside(GraphOp::Fold(op, sizes), &[from])
    }

    fn scan(&self, op: ReduceOp, sizes: [usize; 3], from: &Raw) -> Answer {
        self.beside(GraphOp::Scan(op, sizes), &[from])
    }

    fn arg_reduce(&self, op: ReduceOp, sizes: [usize; 3], from: &Raw) -> Answer {
        self.beside(GraphOp::ArgReduce(op, sizes), &[from])
    }

    fn step(&self, from: &Raw, by: &StridedSlice) -> Answer {
        self.beside(GraphOp::Step(by.clone()), &[from])
    }

    fn take(&self, from: &Raw, sizes: [usize; 3], indices: &Raw) -> Answer {
        self.beside(GraphOp::Take(sizes), &[from, indices])
    }

    fn one_hot(&self, indices: &Raw, classes: Range<usize>, element: ElementType) -> Answer {
        let op = GraphOp::OneHot(PerDevice::all(classes), element);
        self.beside(op, &[indices])
    }

    fn assemble(
        &self,
        whole: Whole<'_>,
        parts: &mut dyn Iterator<Item = (&Raw, &Region)>,
    ) -> Answer {
        let Whole { element, len, .. } = whole;
        let zero = vec![0; element.size()];
        let fill = whole.fill.unwrap_or(&zero);
        let place = self.place(whole.device)?;
        let mut made = self.filled(place, fill, Vector { element, len })?;
        for (part, region) in parts {
            let into = match made {
                Ok(into) => into,
                Err(error) => return Some(Err(error)),
            };
            let paste = GraphOp::Paste(PerDevice::all(region.clone()));
            made = self.note(place, paste, &[&into, part])?;
        }
        Some(made)
    }
}

impl Backend {
    /// Where it takes note of what is asked of it; none for one that carries it out.
    pub(crate) fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.0.recorder.as_ref()
    }

    /// An op that devices have in graphs only, on the device of its operands; none where it is to
    /// be carried out.
    pub(crate) fn in_graph(&self, op: GraphOp, of: &[&DeviceBlock]) -> BackendResult {
        self.by(self.recorder(), 0, |recorder| {
            let of = of.iter().map(|block| self.own(block));
            recorder.beside(op, &of.collect::<Option<Vec<_>>>()?)
        })
    }
}
