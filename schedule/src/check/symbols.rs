//! Expressions over the ranks' contributions, each stored once: equal ids are equal expressions.

use std::collections::HashMap;

use meshwork_accel::balanced_split;

use super::Order;

/// An expression.
pub(super) type Symbol = usize;

pub(super) struct Symbols {
    world: usize,
    /// Who contributes to each symbol, as a bit set over ranks; the first `world` are the leaves.
    contributors: Vec<Vec<u64>>,
    /// Each symbol with nothing rounded in between.
    unrounded: Vec<Symbol>,
    sums: HashMap<(Symbol, Symbol), Symbol>,
    rounded: HashMap<Symbol, Symbol>,
    /// The balanced tree over the contributions of all ranks.
    balanced: Option<Symbol>,
}

impl Symbols {
    /// One symbol per rank: its contribution.
    pub(super) fn new(world: usize) -> Self {
        let mut symbols = Self {
            world,
            contributors: (0..world).map(|rank| set_of(world, rank)).collect(),
            unrounded: (0..world).collect(),
            sums: HashMap::new(),
            rounded: HashMap::new(),
            balanced: None,
        };
        let leaves: Vec<Symbol> = (0..world).collect();
        symbols.balanced = symbols.tree(&leaves);
        symbols
    }

    /// The balanced tree over these operands, rounded; `None` when a rank contributes to several.
    pub(super) fn fold(&mut self, operands: &[Symbol]) -> Option<Symbol> {
        let total = self.tree(operands)?;
        Some(self.round(total))
    }

    /// How a reduction of all contributions was made.
    pub(super) fn order(&mut self, symbol: Symbol) -> Order {
        let Some(balanced) = self.balanced else {
            return Order::Any;
        };
        if symbol == self.round(balanced) {
            Order::BalancedAtOnce
        } else if self.unrounded[symbol] == balanced {
            Order::Balanced
        } else {
            Order::Any
        }
    }

    /// Whether every rank contributes.
    pub(super) fn is_complete(&self, symbol: Symbol) -> bool {
        let ones = self.contributors[symbol]
            .iter()
            .map(|bits| bits.count_ones());
        ones.sum::<u32>() as usize == self.world
    }

    fn tree(&mut self, operands: &[Symbol]) -> Option<Symbol> {
        match balanced_split(operands.len()) {
            None => operands.first().copied(),
            Some(split) => {
                let left = self.tree(&operands[..split])?;
                let right = self.tree(&operands[split..])?;
                self.sum(left, right)
            }
        }
    }

    fn sum(&mut self, left: Symbol, right: Symbol) -> Option<Symbol> {
        // Every op commutes bit for bit, so the order of the two operands is no difference.
        let key = (left.min(right), left.max(right));
        if let Some(known) = self.sums.get(&key) {
            return Some(*known);
        }
        let (a, b) = (&self.contributors[left], &self.contributors[right]);
        if a.iter().zip(b).any(|(a, b)| a & b != 0) {
            return None;
        }
        let union = a.iter().zip(b).map(|(a, b)| a | b).collect();
        let plain = (self.unrounded[left], self.unrounded[right]);
        let unrounded = if plain == (left, right) {
            None
        } else {
            Some(self.sum(plain.0, plain.1)?)
        };
        let new = self.add(union, unrounded);
        self.sums.insert(key, new);
        Some(new)
    }

    fn round(&mut self, symbol: Symbol) -> Symbol {
        if symbol < self.world {
            return symbol;
        }
        if let Some(known) = self.rounded.get(&symbol) {
            return *known;
        }
        let new = self.add(
            self.contributors[symbol].clone(),
            Some(self.unrounded[symbol]),
        );
        self.rounded.insert(symbol, new);
        new
    }

    fn add(&mut self, contributors: Vec<u64>, unrounded: Option<Symbol>) -> Symbol {
        let new = self.contributors.len();
        self.contributors.push(contributors);
        self.unrounded.push(unrounded.unwrap_or(new));
        new
    }
}

/// A set of one, among as many as there are ranks.
pub(super) fn set_of(world: usize, rank: usize) -> Vec<u64> {
    let mut bits = vec![0; world.div_ceil(64)];
    bits[rank / 64] |= 1 << (rank % 64);
    bits
}
