//! Einsum equations: parsing, the implicit result, printing. Ellipses are refused, as TensorFlow
//! has no layout rule for them; the rule for einsums is in `ops/rules/contract`.

use std::fmt::{self, Display};
use std::str::FromStr;

use super::OpError;

/// The equation of an einsum, such as `bij,jk->bik`: a letter for each axis of each operand, and
/// for each axis of the result.
///
/// Spaces do not count. Without an arrow the result has the letters that occur once, in the order
/// of the alphabet, capitals first.
///
/// ```
/// use meshwork_layout::ops::{Equation, OpError};
///
/// let product: Equation = "ij, jk".parse()?;
/// assert_eq!(product.to_string(), "ij,jk->ik");
/// # Ok::<(), OpError>(())
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Equation {
    operands: Vec<Vec<char>>,
    result: Vec<char>,
}

impl Equation {
    /// The letters of each operand.
    pub fn operands(&self) -> impl ExactSizeIterator<Item = &[char]> {
        self.operands.iter().map(Vec::as_slice)
    }

    /// The letters of the result.
    #[must_use]
    pub fn result(&self) -> &[char] {
        &self.result
    }

    /// An equation whose letters are known to be right.
    pub(super) fn of(operands: Vec<Vec<char>>, result: Vec<char>) -> Self {
        Self { operands, result }
    }
}

/// Inverse of its [`Display`].
///
/// # Errors
/// [`OpError::EinsumEllipsis`], [`OpError::EinsumLabel`], [`OpError::EinsumResult`].
impl FromStr for Equation {
    type Err = OpError;

    fn from_str(text: &str) -> Result<Self, OpError> {
        let equation = || text.to_owned();
        if text.contains("...") {
            return Err(OpError::EinsumEllipsis {
                equation: equation(),
            });
        }
        let (operands, result) = match text.split_once("->") {
            Some((operands, result)) => (operands, Some(labels(result, text)?)),
            None => (text, None),
        };
        let operands = operands.split(',').map(|part| labels(part, text));
        let operands = operands.collect::<Result<Vec<_>, _>>()?;
        let result = result.unwrap_or_else(|| labels_used_once(&operands));
        for (place, label) in result.iter().enumerate() {
            if !operands.iter().flatten().any(|known| known == label)
                || result[..place].contains(label)
            {
                return Err(OpError::EinsumResult {
                    equation: equation(),
                    label: *label,
                });
            }
        }
        Ok(Self { operands, result })
    }
}

impl Display for Equation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, labels) in self.operands.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{}", String::from_iter(labels))?;
        }
        write!(f, "->{}", String::from_iter(&self.result))
    }
}

fn labels(part: &str, equation: &str) -> Result<Vec<char>, OpError> {
    let labels: Vec<char> = part.chars().filter(|&c| c != ' ').collect();
    match labels.iter().find(|label| !label.is_ascii_alphabetic()) {
        Some(&label) => Err(OpError::EinsumLabel {
            equation: equation.to_owned(),
            label,
        }),
        None => Ok(labels),
    }
}

fn labels_used_once(operands: &[Vec<char>]) -> Vec<char> {
    let all: Vec<char> = operands.concat();
    let once = |label: &char| all.iter().filter(|other| *other == label).count() == 1;
    let mut labels: Vec<char> = all.iter().copied().filter(once).collect();
    labels.sort_unstable();
    labels
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, shown: &str) {
        assert_eq!(text.parse::<Equation>().unwrap().to_string(), shown);
    }

    #[test]
    fn an_equation_without_an_arrow_keeps_the_letters_that_occur_once() {
        check("ij,jk", "ij,jk->ik");
        check("ba", "ba->ab");
        check("ii", "ii->");
        check("aB,ca", "aB,ca->Bc");
        check("i,i", "i,i->");
    }

    #[test]
    fn spaces_do_not_count_and_axes_may_be_missing() {
        check(" b i j , j k -> b i k", "bij,jk->bik");
        check("i,->i", "i,->i");
        check("->", "->");
    }

    #[test]
    fn letters_are_letters_and_results_are_made_of_operands() {
        let refused = |text: &str| text.parse::<Equation>().unwrap_err();
        let equation = |text: &str| text.to_owned();
        assert_eq!(
            refused("...ij,jk->...ik"),
            OpError::EinsumEllipsis {
                equation: equation("...ij,jk->...ik")
            }
        );
        for (text, label) in [("i1->i", '1'), ("i->j>i", '>'), ("i.j->i", '.')] {
            let equation = equation(text);
            assert_eq!(refused(text), OpError::EinsumLabel { equation, label });
        }
        for (text, label) in [("ij->ik", 'k'), ("ij->jj", 'j')] {
            let equation = equation(text);
            assert_eq!(refused(text), OpError::EinsumResult { equation, label });
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-cA-C ,.>-]{0,12}|.{0,12}") {
            if let Ok(equation) = text.parse::<Equation>() {
                prop_assert_eq!(equation.to_string().parse(), Ok(equation));
            }
        }
    }
}
