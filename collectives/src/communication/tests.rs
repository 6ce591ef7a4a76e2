use super::*;

const SIZES: [usize; 5] = [0, 1 << 10, 64 << 10, 1 << 20, 64 << 20];

fn placements() -> Vec<Hosts> {
    vec![
        Hosts::apart(1),
        Hosts::apart(2),
        Hosts::apart(5),
        Hosts::apart(16),
        Hosts::of([0, 0, 0, 0]),
        Hosts::of((0..16).map(|rank| rank / 4)),
        Hosts::of([0, 0, 0, 1, 1, 2]),
    ]
}

#[test]
fn a_round_costs_its_latency_its_messages_and_its_bytes() {
    let link = LinkCost {
        latency: 100.0,
        per_message: 10.0,
        per_byte: 1.0,
        crowding: 0.25,
    };
    let model = CostModel::new(link, link);
    let hosts = Hosts::apart(4);
    let seconds = |algorithm| model.seconds(Collective::AllReduce, algorithm, &hosts, 400);
    let near = |algorithm, expected: f64| {
        // Reducing takes next to nothing beside links this slow.
        let found = seconds(algorithm);
        assert!(
            (found - expected).abs() < 1e-3,
            "{algorithm}: {found}, not {expected}"
        );
    };
    near(Algorithm::Ring, 6.0 * (100.0 + 10.0 + 100.0));
    near(Algorithm::Tree, 4.0 * (100.0 + 10.0 + 400.0));
    near(Algorithm::Direct, 2.0 * (100.0 + 30.0 + 300.0 * 1.5));
    near(Algorithm::OneShot, 100.0 + 30.0 + 1200.0 * 1.5);
    near(Algorithm::Halving, 4.0 * 110.0 + 2.0 * (200.0 + 100.0));
}

#[test]
fn the_first_of_the_table_is_chosen_and_every_algorithm_is_in_it() {
    for hosts in placements() {
        let choices = Choices::new(&hosts, CostModel::new(LinkCost::MEMORY, LinkCost::QUIC));
        for collective in [
            Collective::AllReduce,
            Collective::Broadcast { root: Rank::CHIEF },
            Collective::AllToAll,
        ] {
            for bytes in SIZES {
                let table = choices.explain(collective, bytes);
                assert_eq!(table.len(), Algorithm::ALL.len());
                assert!(table.is_sorted_by(|a, b| a.seconds <= b.seconds));
                let chosen = choices.choose(
                    Communication::Auto,
                    collective,
                    (None, ElementType::U8, bytes),
                );
                assert_eq!(chosen, table[0].algorithm);
            }
        }
    }
}

#[test]
fn hosts_with_several_ranks_are_worth_a_hierarchy() {
    let hosts = Hosts::of((0..16).map(|rank| rank / 4));
    let choices = Choices::new(&hosts, CostModel::new(LinkCost::MEMORY, LinkCost::QUIC));
    let table = choices.explain(Collective::AllReduce, 64 << 20);
    let place = |wanted| table.iter().position(|line| line.algorithm == wanted);
    // Not halving: it exchanges the largest parts with the nearest ranks, a hierarchy of its own.
    for flat in [
        Algorithm::Ring,
        Algorithm::Tree,
        Algorithm::OneShot,
        Algorithm::Direct,
    ] {
        assert!(place(Algorithm::Hierarchical) < place(flat), "{flat}");
    }
}

#[test]
fn a_reproducible_choice_always_reproduces() {
    for hosts in placements() {
        let choices = Choices::new(&hosts, CostModel::QUIC);
        for collective in [
            Collective::AllReduce,
            Collective::Reduce { root: Rank::new(0) },
        ] {
            for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max] {
                for element in ElementType::ALL {
                    for bytes in SIZES {
                        let buffer = (Some(op), element, bytes);
                        let how = Communication::Reproducible;
                        let chosen = choices.choose(how, collective, buffer);
                        let order = chosen.order(collective, &hosts);
                        assert!(order.reproduces(op, element), "{chosen}: {op} of {element}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_fixed_choice_is_kept_at_every_size() {
    let choices = Choices::new(&Hosts::apart(4), CostModel::QUIC);
    for communication in Communication::ALL {
        let Some(algorithm) = communication.algorithm() else {
            continue;
        };
        for bytes in SIZES {
            let chosen = choices.choose(
                communication,
                Collective::AllReduce,
                (None, ElementType::U8, bytes),
            );
            assert_eq!(chosen, algorithm);
        }
    }
}
