//! The kernels' source, compiled for the host by the C compiler, against the reductions of
//! `meshwork_accel`: bit for bit.

#[path = "support/cc.rs"]
mod cc;
#[path = "kernels/oracle.rs"]
mod oracle;

use std::num::NonZeroU32;

use bytemuck::checked;
use meshwork_accel::{Element, ElementTask, ElementType, ReduceOp, Reduction};
use oracle::{Oracle, Request};

/// Numbers that nothing is known of.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn bytes(&mut self, element: ElementType, count: usize) -> Vec<u8> {
        let bytes = (0..count).flat_map(|_| {
            let random = self.next();
            let edge = usize::from(random.to_le_bytes()[1]) % EDGES.len();
            let special = EDGES[edge];
            // Half of the elements are numbers at which something changes.
            let bits = if random & 1 == 0 {
                special
            } else {
                self.next()
            };
            let bits = if element == ElementType::Bool {
                bits & 1
            } else {
                bits
            };
            // Edges are those of 64 bits; shorter types have theirs at the upper end.
            let shift = if random & 1 == 0 {
                8 - element.size()
            } else {
                0
            };
            let shift = if element == ElementType::Bool {
                0
            } else {
                shift
            };
            bits.to_le_bytes()[shift..shift + element.size()].to_vec()
        });
        bytes.collect()
    }
}

/// Zeros, ones, infinities, NaN with and without payload, subnormals and largest numbers of `f64`;
/// their upper halves are the same of nearly all other types.
const EDGES: [u64; 20] = [
    0,
    1 << 63,
    1,
    0x8000_0000_0000_0001,
    u64::MAX,
    i64::MAX as u64,
    0x3FF0_0000_0000_0000,
    0xBFF0_0000_0000_0000,
    0x7FF0_0000_0000_0000,
    0xFFF0_0000_0000_0000,
    0x7FF8_0000_0000_0000,
    0xFFF8_0000_0000_0001,
    0x7F80_0000_0000_0000,
    0xFF80_0000_0000_0000,
    0x7C00_0000_0000_0000,
    0xFC01_0000_0000_0000,
    0x7FEF_FFFF_FFFF_FFFF,
    0x0010_0000_0000_0000,
    0x000F_FFFF_FFFF_FFFF,
    0x0001_0000_0000_0000,
];

fn pairs() -> impl Iterator<Item = (ReduceOp, ElementType)> {
    let pairs = ReduceOp::ALL
        .into_iter()
        .flat_map(|op| ElementType::ALL.map(|element| (op, element)));
    pairs.filter(|(op, element)| op.supports(*element))
}

/// Those that two buffers at a time are combined by, without all others.
fn steps() -> impl Iterator<Item = (ReduceOp, ElementType)> {
    pairs().filter(|(op, _)| *op != ReduceOp::Mean)
}

/// What the host makes of the same bytes.
struct Host<'a> {
    op: ReduceOp,
    sources: &'a [Vec<u8>],
}

impl ElementTask for Host<'_> {
    type Output = Vec<u8>;

    fn run<T: Element>(self) -> Vec<u8> {
        let reduction = Reduction::<T>::new(self.op).expect("the pair is supported");
        let sources: Vec<Vec<T>> = self.sources.iter().map(|bytes| elements(bytes)).collect();
        let sources: Vec<&[T]> = sources.iter().map(Vec::as_slice).collect();
        let mut into = sources[0].to_vec();
        reduction
            .complete(&mut into, &sources)
            .expect("equal lengths");
        bytemuck::cast_slice(&into).to_vec()
    }
}

fn elements<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes
        .chunks_exact(size_of::<T>())
        .map(checked::pod_read_unaligned)
        .collect()
}

#[track_caller]
fn check(oracle: &mut Oracle, request: Request<'_>, element: ElementType, expected: &[u8]) {
    let name = request.name.clone();
    let result = oracle.ask(request);
    let size = element.size();
    let wrong = result
        .chunks(size)
        .zip(expected.chunks(size))
        .position(|(a, b)| a != b);
    if let Some(at) = wrong {
        let at = at * size..(at + 1) * size;
        panic!(
            "{name}: {:02x?} for {:02x?}",
            &result[at.clone()],
            &expected[at]
        );
    }
    assert_eq!(result.len(), expected.len());
}

#[test]
fn two_buffers_reduce_to_the_bits_of_the_host() {
    let (mut oracle, mut random) = (Oracle::start(), Random(1));
    for (op, element) in steps() {
        for count in [1, 15, 16, 17, 333, 20_000] {
            for shift in [0, 1] {
                let sources = [random.bytes(element, count), random.bytes(element, count)];
                let expected = element.run(Host {
                    op,
                    sources: &sources,
                });
                let name = format!("mw_reduce_{op}_{element}");
                let request = Request {
                    shift,
                    ..Request::new(name, element, &sources)
                };
                check(&mut oracle, request, element, &expected);
            }
        }
    }
}

#[test]
fn all_pairs_of_short_elements_reduce_to_the_bits_of_the_host() {
    let mut oracle = Oracle::start();
    for (op, element) in steps().filter(|(_, element)| element.size() <= 2) {
        // All values of one byte with each other; of two bytes, with some near a power of two.
        let size = element.size();
        let all: Vec<u16> = match element {
            ElementType::Bool => vec![0, 1],
            _ if size == 1 => (0..256).collect(),
            _ => (0..=u16::MAX).collect(),
        };
        let others: Vec<u16> = match size {
            1 => all.clone(),
            _ => (0..16)
                .step_by(5)
                .flat_map(|bit| [1_u16 << bit, (1 << bit) - 1, !(1 << bit)])
                .collect(),
        };
        let bytes = |value: &u16| value.to_le_bytes()[..size].to_vec();
        let ones: Vec<u8> = all.iter().flat_map(bytes).collect();
        for other in others {
            let sources = [ones.clone(), bytes(&other).repeat(all.len())];
            let expected = element.run(Host {
                op,
                sources: &sources,
            });
            let request = Request::new(format!("mw_reduce_{op}_{element}"), element, &sources);
            check(&mut oracle, request, element, &expected);
        }
    }
}

#[test]
fn many_buffers_fold_to_the_bits_of_the_host() {
    let (mut oracle, mut random) = (Oracle::start(), Random(2));
    for (op, element) in pairs() {
        for places in 1..=32 {
            let sources: Vec<_> = (0..places).map(|_| random.bytes(element, 50)).collect();
            let expected = element.run(Host {
                op,
                sources: &sources,
            });
            let request = Request::new(format!("mw_fold_{op}_{element}"), element, &sources);
            check(&mut oracle, request, element, &expected);
        }
    }
}

struct Divided<'a>(&'a [u8], NonZeroU32);

impl ElementTask for Divided<'_> {
    type Output = Vec<u8>;

    fn run<T: Element>(self) -> Vec<u8> {
        let mean = Reduction::<T>::new(ReduceOp::Mean).expect("numbers have a mean");
        let mut values = elements::<T>(self.0);
        mean.finish(&mut values, self.1);
        bytemuck::cast_slice(&values).to_vec()
    }
}

#[test]
fn division_gives_the_bits_of_the_host() {
    let (mut oracle, mut random) = (Oracle::start(), Random(3));
    let numbers = ElementType::ALL
        .into_iter()
        .filter(|element| *element != ElementType::Bool);
    for element in numbers {
        for by in [1, 2, 3, 7, 32, u32::MAX] {
            let values = [random.bytes(element, 3000)];
            let expected = element.run(Divided(&values[0], NonZeroU32::new(by).expect("not 0")));
            let name = format!("mw_divide_{element}");
            let request = Request {
                value: by.into(),
                ..Request::new(name, element, &values)
            };
            check(&mut oracle, request, element, &expected);
        }
    }
}

#[test]
fn filling_sets_every_element_and_takes_the_lowest_bytes() {
    let mut oracle = Oracle::start();
    let widths = [
        ElementType::U8,
        ElementType::F16,
        ElementType::F32,
        ElementType::F64,
    ];
    for element in widths {
        let (size, value) = (element.size(), 0x8877_6655_4433_2211_u64);
        let values = [vec![0; 100 * size]];
        let request = Request {
            value,
            ..Request::new(format!("mw_fill_{size}"), element, &values)
        };
        check(
            &mut oracle,
            request,
            element,
            &value.to_le_bytes()[..size].repeat(100),
        );
    }
}
