//! What the page makes of looks that a script gives it, as no rank would just then.

use std::sync::Arc;

use meshwork_collectives::Group;
use meshwork_status::{Server, Settings};
use meshwork_testing::{Browser, Need};
use serde_json::{Value, json};

use crate::{says, text};

/// A browser that shows the page of a job of one rank.
struct Page {
    browser: Browser,
    _server: Server,
    _group: Group,
}

/// Shows the job with other fields from now on, and counts how often it is asked for.
const GIVE: &str = "
    window.real ??= fetch;
    return real('/job.json').then((answer) => answer.json()).then((job) => {
        window.looks = 0;
        window.fetch = async (path) => {
            if (path === '/job.json') looks += 1;
            return new Response(JSON.stringify({ ...job, ...FIELDS }));
        };
        return true;
    })";

/// Runs something with the parts of the page, a clock of its own, and what drawings write.
const WITH_PARTS: &str = "
    const names = ['charts', 'ranks'];
    const all = names.map((name) => import(`${location.origin}/page/${name}.js`));
    return Promise.all(all).then(([charts, ranks]) => {
        let clock = 1e9;
        performance.now = () => clock;
        const written = (id, part) => {
            const own = CanvasRenderingContext2D.prototype;
            const [fillText, texts] = [own.fillText, []];
            own.fillText = function (text) { if (this.canvas.id === id) texts.push(text); };
            part.redraw();
            own.fillText = fillText;
            return texts;
        };
        try { BODY } finally { delete performance.now; }
    })";

impl Page {
    /// `None` where there is no browser.
    fn open() -> Option<Self> {
        let browser = Need::Chromium.or_skip(Browser::start())?;
        let group = Group::local(1).unwrap().remove(0);
        let settings = Settings::new(([127, 0, 0, 1], 0).into()).unwrap();
        let server = Server::start(&settings, Arc::new(group.observer())).unwrap();
        browser.open(&format!("http://{}/", server.address()));
        browser.until(&text("link-state"), says("live"));
        Some(Self {
            browser,
            _server: server,
            _group: group,
        })
    }

    fn give(&self, fields: &str) {
        let given = self.browser.run(&GIVE.replace("FIELDS", fields));
        assert_eq!(given, true);
    }

    fn with_parts(&self, body: &str) -> Value {
        self.browser.run(&WITH_PARTS.replace("BODY", body))
    }
}

#[test]
fn whoever_is_being_asked_is_not_asked_again_before_the_answer_and_at_once_after_it() {
    let Some(page) = Page::open() else {
        return;
    };
    let browser = &page.browser;
    let hold = "
        window.asked = [];
        window.fetch = (path) => new Promise((_, refuse) => {
            if (path === '/job.json') asked.push(refuse);
            else refuse(new Error('not asked for'));
        });
        return true";
    assert_eq!(browser.run(hold), true);
    browser.until("return asked.length", |asked| asked == 1);
    // A turn that this began would be over before what waits behind it.
    let meanwhile = "
        dispatchEvent(new Event('online'));
        return new Promise((done) => setTimeout(() => done(asked.length), 0))";
    assert_eq!(browser.run(meanwhile), 1);
    let refused = "
        const set = setTimeout;
        window.pauses = [];
        window.setTimeout = (turn, pause) => {
            if (asked.length === 1) pauses.push(pause);
            return set(turn, pause);
        };
        asked[0](new Error('cut off'));
        return true";
    assert_eq!(browser.run(refused), true);
    browser.until("return asked.length", |asked| asked == 2);
    assert_eq!(browser.run("return pauses"), json!([0]));
}

#[test]
fn a_rank_that_is_waited_for_is_one_event_however_long_it_takes() {
    let Some(page) = Page::open() else {
        return;
    };
    page.give("{ slowest: { rank: 0, seconds: looks, now: true } }");
    page.browser
        .until("return looks >= 5", |enough| enough == true);
    let verdict = page.browser.run(&text("verdict-text"));
    assert!(says("Rank 0 is waited for since")(&verdict), "{verdict}");
    let title = page.browser.run("return document.title");
    assert_eq!(title, "⚠ Rank 0 is waited for – Meshwork");
    let events = "
        const items = Array.from(document.querySelectorAll('#changes li span'));
        return items.map((item) => item.textContent)";
    let events = page.browser.run(events);
    assert_eq!(events.as_array().unwrap().len(), 1, "{events}");
    assert!(says("Rank 0 is waited for: why")(&events[0]), "{events}");
}

#[test]
fn of_a_large_group_the_page_says_how_many_ranks_it_shows() {
    let Some(page) = Page::open() else {
        return;
    };
    page.give(
        "{ world: 2, members: 2048, ranks: [0, 1].map((rank) => ({ ...job.ranks[0], rank })) }",
    );
    page.browser.until(
        &text("verdict-text"),
        says("The first 2 of 2,048 ranks are at work"),
    );
    let figures = page.browser.run(&text("figures"));
    assert!(says("2 of the first 2 of 2,048")(&figures), "{figures}");
    let title = page.browser.run("return document.title");
    assert_eq!(title, "2,048 ranks – Meshwork");
}

#[test]
fn a_rank_that_does_not_answer_is_told_with_its_own_reason() {
    let Some(page) = Page::open() else {
        return;
    };
    let give = |unanswered: &str| {
        let states = "['working', 'not asked', 'no answer']";
        page.give(&format!(
            "{{ world: 3, members: 3, unanswered: {unanswered}, ranks: {states}.map((state, rank) =>
                (rank ? {{ rank, state }} : {{ ...job.ranks[0], rank, state }})) }}",
        ));
    };
    let why = || {
        page.browser
            .until(&text("verdict-text"), says("Rank 2 does not answer"));
        page.browser
            .until("return looks >= 2", |enough| enough == true);
        page.browser.run(&text("verdict-more"))
    };
    give("['rank 1: it is nowhere', 'rank 2: it takes too long']");
    assert_eq!(why(), "Rank 2: it takes too long");
    give("['rank 1: it is nowhere', 'somebody is cut off']");
    assert_eq!(why(), "Somebody is cut off");
    give("['rank 1: it is nowhere']");
    assert_eq!(why(), "");
}

#[test]
fn the_speed_is_that_of_ranks_that_two_looks_know() {
    let Some(page) = Page::open() else {
        return;
    };
    let speeds = page.with_parts(
        "
        const silent = { state: 'no answer' };
        const [first, second, other] = ['a:1', 'b:1', 'c:1'].map((address) =>
            (bytes) => ({ address, bytes }));
        const looks = [
            [first(1e6), second(1e6)],
            [first(1e6 + 1000), second(1e6 + 1000)],
            [first(1e6 + 2000), silent],
            [first(1e6 + 3000), second(1e6 + 3000)],
            [first(1e6 + 4000), other(5e9)],
            [silent, silent],
        ];
        return looks.map((ranks) => {
            clock += 1000;
            charts.show({ view: 99, world: 2, ranks });
            return document.getElementById('speed-now').textContent.split(' of ')[0];
        });",
    );
    assert_eq!(speeds, json!(["–", "1 kB", "1 kB", "1 kB", "1 kB", "–"]));
}

#[test]
fn drawings_say_when_their_first_look_was() {
    let Some(page) = Page::open() else {
        return;
    };
    // As many as are kept: the page has had some of its own.
    let texts = page.with_parts(
        "
        const job = { view: 1, world: 1, ranks: [{ rank: 0, state: 'working', address: 'a:1' }] };
        for (let look = 0; look < 600; look += 1) {
            clock += 60000;
            for (const part of [charts, ranks]) part.show(job);
        }
        const ago = (text) => text.endsWith(' ago');
        return [
            written('speed-canvas', charts).find(ago),
            written('loss-canvas', charts).find(ago),
            written('wait-canvas', ranks).find(ago),
        ];",
    );
    let (hours, two) = ("9 h 59 min ago", "1 h 59 min ago");
    assert_eq!(texts, json!([hours, hours, two]));
}

#[test]
fn a_loss_as_large_as_a_number_can_be_is_drawn() {
    let Some(page) = Page::open() else {
        return;
    };
    let texts = page.with_parts(
        "
        charts.show({ view: 1, world: 0, ranks: [], loss: 1.75e308 });
        return written('loss-canvas', charts).map((text) => text.length);",
    );
    // Zero, and one with 308 more digits by threes.
    let lengths = [1, 309 + 102, "now".len()];
    assert_eq!(texts, json!(lengths));
}
