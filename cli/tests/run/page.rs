//! The page of a job that runs, in Chromium: what it shows of a slow rank, of one that is killed,
//! and of the one that takes its place.

use meshwork_testing::{Browser, Need};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::trainer::Job;

const VERDICT: &str = "return document.getElementById('verdict-text').textContent";
const FIGURES: &str = "return document.getElementById('figures').textContent";
const EVENTS: &str = "return document.getElementById('changes').textContent";
/// Colours that a drawing has.
const COLOURS: &str = "
    const canvas = document.getElementById(NAME);
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size";

fn says<'a>(text: &'a str) -> impl Fn(&Value) -> bool + 'a {
    move |found| found.as_str().is_some_and(|found| found.contains(text))
}

#[test]
fn a_page_shows_who_is_slow_who_was_killed_and_who_has_come() {
    let Some(browser) = Need::Chromium.or_skip(Browser::start()) else {
        return;
    };
    let job = Job::start();
    let processes = job.processes();
    let (target, _) = job.ranks().remove(0);
    browser.open(&format!("http://{}/", target.address()));
    browser.until(FIGURES, says("3 of 3"));
    browser.until(VERDICT, says("All 3 ranks are at work"));

    job.order(processes[1], "sleep");
    browser.until(VERDICT, says("Rank 1 comes late"));
    let title = browser.run("return document.title");
    assert!(says("Rank 1 comes late")(&title), "{title}");
    let detail = "return document.getElementById('rank-detail').textContent";
    browser.until(detail, says("Rank 1: "));
    browser.until(EVENTS, says("rank 1 comes late"));
    job.order(processes[0], "nothing");
    browser.until(VERDICT, says("All 3 ranks are at work"));

    kill_process(processes[2], Signal::KILL).unwrap();
    browser.until(EVENTS, says(" left, at the end of view 1: "));
    browser.until(EVENTS, says(" came, in view "));
    browser.until(FIGURES, says("3 of 3"));
    assert_shows_numbers_and_drawings(&browser);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[track_caller]
fn assert_shows_numbers_and_drawings(browser: &Browser) {
    let speed = "return document.getElementById('speed-now').textContent";
    browser.until(speed, says("samples in a second"));
    let loss = "return document.getElementById('loss-now').textContent";
    browser.until(loss, |loss| !says("reports none")(loss));
    let scroll = "document.getElementById('timeline').scrollIntoView(); return true";
    assert_eq!(browser.run(scroll), true);
    for drawing in [
        "ranks-canvas",
        "wait-canvas",
        "speed-canvas",
        "loss-canvas",
        "timeline-canvas",
        "links-canvas",
    ] {
        let colours = COLOURS.replace("NAME", &format!("'{drawing}'"));
        browser.until(&colours, |colours| colours.as_u64() > Some(2));
    }
    let rows = "
        document.getElementById('ranks-table-box').open = true;
        return document.querySelectorAll('#ranks-table tbody tr').length";
    browser.until(rows, |rows| rows == 3);
}
