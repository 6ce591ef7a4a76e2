//! Every element type with every op that it has, by every algorithm, over every transport.

use meshwork_accel::{Element, bf16, f16};

use super::*;

/// A type that holds small whole numbers exactly.
trait Small: Element {
    fn small(number: u8) -> Self;

    fn number(self) -> u8;
}

macro_rules! small {
    ($($number:ty),+) => {$(
        #[expect(clippy::allow_attributes, reason = "not every type has every lint")]
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
        impl Small for $number {
            fn small(number: u8) -> Self {
                number as Self
            }

            fn number(self) -> u8 {
                self as u8
            }
        }
    )+};
}

small!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);

macro_rules! half {
    ($($number:ty),+) => {$(
        impl Small for $number {
            fn small(number: u8) -> Self {
                Self::from_f32(number.into())
            }

            fn number(self) -> u8 {
                self.to_f32().number()
            }
        }
    )+};
}

half!(f16, bf16);

impl Small for bool {
    fn small(number: u8) -> Self {
        number % 2 == 1
    }

    fn number(self) -> u8 {
        self.into()
    }
}

/// Rank `rank`'s contribution, chosen so that means are whole and nothing leaves an `i8`.
fn contribution(rank: usize, at: usize) -> u8 {
    let number = at * 7 % 5 + rank;
    u8::try_from(number % 4).unwrap()
}

fn expected<T: Small>(op: ReduceOp, world: usize, at: usize) -> u8 {
    let values = (0..world).map(|rank| T::small(contribution(rank, at)).number());
    let sum: u8 = values.clone().sum();
    match op {
        ReduceOp::Sum => sum,
        ReduceOp::Product => values.product(),
        ReduceOp::Min => values.min().unwrap(),
        ReduceOp::Max => values.max().unwrap(),
        ReduceOp::Mean => sum / u8::try_from(world).unwrap(),
        ReduceOp::And => values.reduce(|a, b| a & b).unwrap(),
        ReduceOp::Or => values.reduce(|a, b| a | b).unwrap(),
        ReduceOp::Xor => values.reduce(|a, b| a ^ b).unwrap(),
        other => panic!("{other} has no oracle"),
    }
}

/// All vectors of any type, and a remainder; that lengths make no difference otherwise is shown
/// with one type.
const LEN: usize = 37;

fn every_op<T: Small>(group: &mut Group, how: &str) {
    let (me, world) = (group.rank().index(), group.world() as usize);
    for op in ReduceOp::ALL.into_iter().filter(|op| op.supports(T::TYPE)) {
        // A mean that is not whole is rounded by floats and cut by integers; other tests show it.
        let whole = |at: &usize| {
            let sum: usize = (0..world)
                .map(|rank| contribution(rank, *at) as usize)
                .sum();
            op != ReduceOp::Mean || sum.is_multiple_of(world)
        };
        let mut buffer: Vec<T> = (0..LEN).map(|at| T::small(contribution(me, at))).collect();
        group.all_reduce(&mut buffer, op).unwrap();
        for at in (0..LEN).filter(whole) {
            let (got, expected) = (buffer[at].number(), expected::<T>(op, world, at));
            assert_eq!(got, expected, "{op} of {} at {at} {how}", T::TYPE);
        }
    }
    let own: Vec<T> = (0..5).map(|at| T::small(contribution(me, at))).collect();
    let mut all = vec![T::default(); 5 * world];
    group.all_gather(&own, &mut all).unwrap();
    for (place, got) in all.iter().enumerate() {
        let expected = T::small(contribution(place / 5, place % 5));
        assert_eq!(*got, expected, "all_gather of {} {how}", T::TYPE);
    }
}

fn every_type(group: &mut Group, how: &str) {
    every_op::<bool>(group, how);
    every_op::<i8>(group, how);
    every_op::<i16>(group, how);
    every_op::<i32>(group, how);
    every_op::<i64>(group, how);
    every_op::<u8>(group, how);
    every_op::<u16>(group, how);
    every_op::<u32>(group, how);
    every_op::<u64>(group, how);
    every_op::<f16>(group, how);
    every_op::<bf16>(group, how);
    every_op::<f32>(group, how);
    every_op::<f64>(group, how);
}

#[test]
fn every_type_has_its_ops_by_every_algorithm_over_every_transport() {
    for over in Over::ALL {
        over.run(3, |mut group| {
            for communication in Communication::ALL {
                group.set_communication(communication);
                every_type(&mut group, &format!("by {communication:?} over {over:?}"));
            }
            group.leave().unwrap();
        });
    }
}
