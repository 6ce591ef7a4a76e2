//! The page and what it is fed by, with many ranks and with few.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

#[path = "page/given.rs"]
mod given;
#[path = "page/simulated.rs"]
mod simulated;

use std::sync::Arc;
use std::time::{Duration, Instant};

use meshwork_collectives::Group;
use meshwork_status::{Look, Server, Settings, StatusClient, Target, Token};
use meshwork_testing::{Browser, Need};
use serde_json::Value;
use simulated::{Crowd, Ranks};

/// Far longer than anything here takes, so that only a hang meets it.
const DEADLINE: Duration = Duration::from_secs(120);

fn ask(address: &str, path: &str) -> String {
    let client = StatusClient::new(None, DEADLINE).unwrap();
    let answer = client.fetch(&[Target::new(address)], path).remove(0);
    answer.unwrap()
}

/// The rank asked answers for all, once they do in its time.
#[track_caller]
fn job(ranks: &Ranks, wished: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let job: Value = serde_json::from_str(&ask(&ranks.address(0), "/job.json")).unwrap();
        if wished(&job) {
            return job;
        }
        assert!(began.elapsed() < DEADLINE, "{}", job["unanswered"]);
    }
}

fn answering(job: &Value) -> usize {
    let ranks = job["ranks"].as_array().unwrap().iter();
    ranks.filter(|rank| rank["address"].is_string()).count()
}

#[test]
fn one_rank_tells_of_all_by_way_of_some_and_of_those_whose_speaker_is_gone() {
    const WORLD: usize = 100;
    let mut ranks = Ranks::start(100);
    let all = job(&ranks, |job| answering(job) == WORLD);
    assert_eq!((&all["world"], &all["asked"]), (&100.into(), &99.into()));
    for (place, rank) in all["ranks"].as_array().unwrap().iter().enumerate() {
        assert_eq!(rank["rank"], place);
        assert_eq!(rank["host"], format!("127.0.1.{}", place / 8));
    }
    // Rank 7 speaks for those before it.
    ranks.servers[7] = None;
    let others = job(&ranks, |job| answering(job) == WORLD - 1);
    assert_eq!(others["ranks"][7]["state"], "not asked");
    // It takes its file along: nothing tells where it was.
    let why = others["unanswered"][0].as_str().unwrap();
    assert!(why.starts_with("rank 7: nothing tells where"), "{why}");
    // The last puts all of it together, and without it another does.
    ranks.servers[99] = None;
    let others = job(&ranks, |job| answering(job) == WORLD - 2);
    assert_eq!(others["asked"], 0);
    let others = job(&ranks, |job| job["asked"] == 98);
    assert_eq!(answering(&others), WORLD - 2);
}

/// Rank 7 speaks for a part of what the last rank puts together for it. Nobody is known to be slow
/// yet, so a rank that waited for itself would do so in each world.
#[test]
fn a_rank_that_speaks_for_others_does_not_wait_for_itself() {
    let began = Instant::now();
    loop {
        let ranks = Ranks::start(100);
        let job: Value = serde_json::from_str(&ask(&ranks.address(7), "/job.json")).unwrap();
        if answering(&job) == 100 {
            return;
        }
        assert!(began.elapsed() < DEADLINE / 4, "{}", job["unanswered"]);
    }
}

/// The chief sends one request and hands on what comes back, however many ranks there are.
#[test]
fn a_look_at_many_ranks_by_way_of_the_chief_is_one_request_of_its_and_32_at_most_of_the_last() {
    let crowd = Crowd::start(200);
    let address = crowd.first.address().to_string();
    let job: Value = serde_json::from_str(&ask(&address, "/job.json")).unwrap();
    assert_eq!((answering(&job), &job["asked"]), (200, &199.into()));
    // Seven ranks are one part.
    assert_eq!(crowd.spoken().0, 29);
}

#[test]
fn lines_are_those_of_the_ranks_that_are_asked_for() {
    let ranks = Ranks::start(5);
    let of = |rank: usize, path: &str| {
        let lines = ask(&ranks.address(rank), path);
        let look = Look::from_lines(0.0, lines.lines().map(Ok));
        let ranks = look.ranks().iter();
        ranks.map(|rank| rank.rank).collect::<Vec<_>>()
    };
    assert_eq!(of(3, "/ranks.jsonl"), [3]);
    assert_eq!(of(3, "/ranks.jsonl?from=1&to=4&hops=1"), [1, 2, 3]);
    assert_eq!(of(3, "/ranks.jsonl?hops=2"), [0, 1, 2, 3, 4]);
    assert_eq!(of(3, "/ranks.jsonl?from=4&to=5"), [0; 0]);
    let lines = ask(&ranks.address(0), "/operations.jsonl?from=0&to=5&hops=2");
    assert_eq!(lines.lines().count(), 5, "{lines}");
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["operations"].as_array().unwrap().len(), 8);
    assert_eq!(first["calls"], serde_json::json!(["barrier at a.rs:1"]));
}

const TEXT: &str = "return document.getElementById('ID').textContent";

fn text(id: &str) -> String {
    TEXT.replace("ID", id)
}

fn says<'a>(text: &'a str) -> impl Fn(&Value) -> bool + 'a {
    move |found| found.as_str().is_some_and(|found| found.contains(text))
}

const RIGHT: &str = "\u{e014}";
const DOWN: &str = "\u{e015}";
const END: &str = "\u{e010}";

#[test]
fn a_thousand_ranks_are_shown_at_once_chosen_by_keys_and_read_from_a_table() {
    let Some(browser) = Need::Chromium.or_skip(Browser::start()) else {
        return;
    };
    let crowd = Crowd::start(1000);
    browser.open(&format!("http://{}/", crowd.first.address()));
    browser.until(&text("figures"), says("1,000 of 1,000"));
    // Few elements, whatever the number of ranks, until the table is asked for.
    let elements = "return document.querySelectorAll('*').length";
    assert!(browser.run(elements).as_u64() < Some(1000));

    let focus = "document.getElementById('ranks-canvas').focus(); return document.activeElement.id";
    assert_eq!(browser.run(focus), "ranks-canvas");
    browser.press(RIGHT);
    browser.until(&text("rank-detail"), says("Rank 1: working"));
    browser.press(END);
    browser.until(&text("rank-detail"), says("Rank 999: working"));
    browser.press(DOWN);
    browser.until(&text("rank-detail"), says("Rank 999: working"));
    // The time line shows who is chosen.
    let from = "return document.getElementById('timeline-from').value";
    browser.until(from, says("992"));

    let look = "return performance.getEntriesByName('look').map((entry) => entry.duration).at(-1)";
    let millis = browser.until(look, Value::is_number);
    let rows = "
        document.getElementById('ranks-table-box').open = true;
        return document.querySelectorAll('#ranks-table tbody tr').length";
    browser.until(rows, |rows| rows == 1000);
    eprintln!("the page takes {millis} ms for a look at 1000 ranks");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn the_page_asks_for_the_token_and_forgets_it_from_its_address() {
    let Some(browser) = Need::Chromium.or_skip(Browser::start()) else {
        return;
    };
    let group = Group::local(1).unwrap().remove(0);
    let token = Token::new("0123456789abcdef").unwrap();
    let settings = Settings::with_token(([127, 0, 0, 1], 0).into(), token);
    let server = Server::start(&settings, Arc::new(group.observer())).unwrap();
    let page = format!("http://{}/", server.address());
    browser.open(&page);
    let form = "return document.getElementById('token-form').hidden";
    browser.until(form, |hidden| hidden == false);
    let nothing = browser.run(&text("figures"));
    assert_eq!(nothing, "");
    let given = "
        document.getElementById('token').value = '0123456789abcdef';
        document.getElementById('token-form').requestSubmit();
        return true";
    assert_eq!(browser.run(given), true);
    browser.until(&text("figures"), says("1 of 1"));
    assert_eq!(browser.run(form), true);

    let other = Need::Chromium.or_skip(Browser::start()).unwrap();
    other.open(&format!("{page}#token=0123456789abcdef"));
    other.until(&text("figures"), says("1 of 1"));
    assert_eq!(other.run("return location.href"), page.as_str());
}

#[test]
fn a_page_whose_rank_is_gone_says_how_old_it_is_and_goes_on_when_it_is_back() {
    let Some(browser) = Need::Chromium.or_skip(Browser::start()) else {
        return;
    };
    let group = Group::local(1).unwrap().remove(0);
    let start = |address| {
        let settings = Settings::new(address).unwrap();
        Server::start(&settings, Arc::new(group.observer())).unwrap()
    };
    let server = start(([127, 0, 0, 1], 0).into());
    let address = server.address();
    browser.open(&format!("http://{address}/"));
    browser.until(&text("link-state"), says("live"));
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        let page = "return getComputedStyle(document.body).backgroundColor";
        let dark = browser.run(page).as_str().unwrap().contains("14, 17, 23");
        assert_eq!(dark, scheme == "dark");
    }
    drop(server);
    browser.until(&text("stale"), says("has not answered since"));
    browser.until(&text("link-state"), says("no news for"));
    let _server = start(address);
    browser.until(&text("link-state"), says("live"));
    let hidden = browser.run("return document.getElementById('stale').hidden");
    assert_eq!(hidden, true);
}
