//! Host lists, held against a slow reading of Slurm's rule.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(list: &str, expected: &[&str]) {
    let expected = expected.iter().map(|&host| host.to_owned()).collect();
    assert_eq!(hosts(list), Ok(expected), "{list}");
}

#[track_caller]
fn check_refused(list: &str, problem: &HostListProblem) {
    assert_eq!(hosts(list).as_ref(), Err(problem), "{list}");
}

#[test]
fn items_are_separated_by_commas_and_blanks_and_may_be_empty() {
    check("", &[]);
    check(" ,\t", &[]);
    check("b,a", &["b", "a"]);
    check(",a,, b\nc,", &["a", "b", "c"]);
    check("a[1-2] b", &["a1", "a2", "b"]);
}

#[test]
fn ranges_take_their_width_from_the_left() {
    check("n[8-11]", &["n8", "n9", "n10", "n11"]);
    check("n[08-10]", &["n08", "n09", "n10"]);
    check("n[9-010]", &["n9", "n10"]);
    check("n[3,1,1-2]", &["n3", "n1", "n1", "n2"]);
    check("[01,1]", &["01", "1"]);
    check("n[18446744073709551615]", &["n18446744073709551615"]);
}

#[test]
fn of_several_brackets_the_last_varies_fastest_and_then_the_first() {
    check("r[1-2]n[3-4]", &["r1n3", "r1n4", "r2n3", "r2n4"]);
    let of_three = [
        "a1b3c5", "a1b3c6", "a2b3c5", "a2b3c6", "a1b4c5", "a1b4c6", "a2b4c5", "a2b4c6",
    ];
    check("a[1-2]b[3-4]c[5-6]", &of_three);
}

#[test]
fn what_is_no_list_is_refused_with_its_place() {
    let range = |range: &str| HostListProblem::Range {
        range: range.into(),
    };
    for wrong in [
        "", "-", "1-", "-3", "3-1", "1--2", "1-2-3", " 1", "+1", "a", "1:2", "0x1", "１",
    ] {
        check_refused(&format!("n[{wrong}]"), &range(wrong));
        check_refused(&format!("m,n[1,{wrong}]"), &range(wrong));
    }
    check_refused("n[18446744073709551616]", &range("18446744073709551616"));
    check_refused("n[1-2", &HostListProblem::Unclosed);
    check_refused("n]", &HostListProblem::Unopened { at: 2 });
    check_refused("n[[1]]", &HostListProblem::Nested { at: 3 });
    let text = "-ib".to_owned();
    check_refused("n[1-2]-ib,m", &HostListProblem::AfterBracket { text });
}

#[test]
fn lists_have_a_limit_that_costs_no_memory_to_find() {
    let range = "0-65536".to_owned();
    check_refused("n[0-65536]", &HostListProblem::LongRange { range });
    assert_eq!(hosts("n[1-65536]").map(|hosts| hosts.len()), Ok(65_536));
    let product = "n".to_owned() + &"[1-65536]".repeat(6);
    check_refused(&product, &HostListProblem::TooManyHosts);
    assert_eq!(
        hosts("n[0-1][1-65536]").map(|hosts| hosts.len()),
        Ok(MOST_HOSTS)
    );
    check_refused("n[0-1][1-65536],m", &HostListProblem::TooManyHosts);
}

#[test]
fn a_number_has_a_limit_of_digits() {
    let (most, more) = ("0".repeat(255), "0".repeat(256));
    check(&format!("n[{most}]"), &[&format!("n{most}")]);
    let ranges = [
        more.clone(),
        format!("0-{more}"),
        format!("{more}-1"),
        "0".repeat(70_000),
    ];
    for range in ranges {
        let list = format!("n[{range}]");
        assert_eq!(hosts(&list), Err(HostListProblem::Range { range }));
    }
}

#[test]
fn too_many_hosts_are_refused_before_what_follows_is_read() {
    check_refused(
        "n[0-65535,0-65535,0-65535,x]",
        &HostListProblem::TooManyHosts,
    );
    check_refused("n[0-65535][0-1][0-1][x]", &HostListProblem::TooManyHosts);
    check_refused("n[1-65536],m[0-65535,0][x]", &HostListProblem::TooManyHosts);
}

/// One bracket as values with the text that stands for them.
fn any_bracket() -> impl Strategy<Value = (String, Vec<String>)> {
    let range = (0_u64..30, 0_u64..4, 1_usize..4).prop_map(|(low, more, width)| {
        let values = (low..=low + more).map(|number| format!("{number:0width$}"));
        (
            format!("{low:0width$}-{}", low + more),
            values.collect::<Vec<_>>(),
        )
    });
    proptest::collection::vec(range, 1..3).prop_map(|ranges| {
        let (texts, values): (Vec<_>, Vec<_>) = ranges.into_iter().unzip();
        (format!("[{}]", texts.join(",")), values.concat())
    })
}

/// All hosts, by taking the choices apart from a running number: the last bracket is its lowest
/// digit, the first the next one.
fn naive(brackets: &[(String, Vec<String>)]) -> Vec<String> {
    let total: usize = brackets.iter().map(|(_, values)| values.len()).product();
    let nth = |mut number: usize| {
        let mut texts = vec![String::new(); brackets.len()];
        let last = brackets.len() - 1;
        for place in std::iter::once(last).chain(0..last) {
            let values = &brackets[place].1;
            texts[place] = format!("p{}", values[number % values.len()]);
            number /= values.len();
        }
        texts.concat()
    };
    (0..total).map(nth).collect()
}

proptest! {
    #[test]
    fn brackets_are_the_product_of_their_values(
        brackets in proptest::collection::vec(any_bracket(), 1..4),
    ) {
        let list: String = brackets.iter().map(|(text, _)| format!("p{text}")).collect();
        prop_assert_eq!(hosts(&list), Ok(naive(&brackets)));
    }

    #[test]
    fn any_text_is_read_or_refused(list in "[a1\\[\\],\\- 0-9]{0,12}|\\PC{0,20}") {
        let _ = hosts(&list);
    }
}
