//! Floats as indices and as labels: in a program some are none too.

use meshwork_layout::Layout;
use ndarray::array;

use crate::testing::{context, mesh};
use crate::{DTensor, Error, compile};

/// Two rows, and what chooses of them.
type Given = (DTensor<f32>, DTensor<f32>);

fn given(chosen: [f32; 2]) -> Given {
    let context = context();
    let rows = context.copy_to_mesh(array![[1.0, 2.0], [3.0, 5.0]], &whole(2));
    let chosen = context.copy_to_mesh(array![chosen[0], chosen[1]], &whole(1));
    (rows.unwrap(), chosen.unwrap())
}

fn whole(rank: usize) -> Layout {
    Layout::replicated(&mesh(), rank)
}

type Taking = fn(&Given) -> Result<DTensor<f32>, Error>;

#[test]
fn floats_that_are_no_index_are_refused_by_each_call_alike() {
    let functions: [Taking; 2] = [
        |(rows, chosen)| rows.gather(chosen, 0),
        |(rows, chosen)| rows.embedding(chosen),
    ];
    for function in functions {
        let mut step = compile(|(): &mut (), given: &Given| function(given));
        step.call(&mut (), &given([0.0, 1.0])).unwrap();
        for none in [1.7, -0.5, f32::NAN] {
            let given = given([1.0, none]);
            let expected = function(&given).unwrap_err().to_string();
            let refused = step.call(&mut (), &given).unwrap_err().to_string();
            assert_eq!(refused, expected);
            assert!(expected.starts_with("index "), "{expected}");
        }
        assert_eq!(step.traces(), 1);
    }
}

#[test]
fn labels_that_are_no_class_cost_nothing_in_each_call_and_are_in_no_row() {
    let mut step = compile(|(): &mut (), (logits, labels): &Given| {
        let (losses, slope) = logits.sparse_cross_entropy(labels)?;
        Ok::<_, Error>(vec![losses, slope, labels.one_hot(2)?])
    });
    for _ in 0..2 {
        let made = step.call(&mut (), &given([f32::NAN, 1.5])).unwrap();
        for made in made {
            let made = made.to_host().unwrap();
            assert!(made.iter().all(|own| *own == 0.0), "{made}");
        }
    }
}
