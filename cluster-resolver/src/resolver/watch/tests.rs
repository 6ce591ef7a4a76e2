//! A watch over a source that says what comes next.

use std::collections::VecDeque;

use super::*;
use crate::cluster::Cluster;

const HOUR: Duration = Duration::from_secs(3600);

type Look = Result<&'static [&'static str], Error>;

/// A cluster that is another at each look, and tells at once that it changed.
#[derive(Debug, Default)]
struct Script {
    looks: Mutex<VecDeque<Look>>,
    waits: Mutex<VecDeque<Result<WatchSignal, Error>>>,
    waited: Mutex<Vec<usize>>,
}

impl Script {
    fn new(
        looks: impl IntoIterator<Item = Look>,
        waits: impl IntoIterator<Item = Result<WatchSignal, Error>>,
    ) -> Self {
        Self {
            looks: Mutex::new(looks.into_iter().collect()),
            waits: Mutex::new(waits.into_iter().collect()),
            waited: Mutex::default(),
        }
    }
}

impl ClusterResolver for Script {
    fn snapshot(&self) -> Result<Cluster, Error> {
        let look = self.looks.lock().unwrap().pop_front();
        let spec = ClusterSpec::from_addresses(look.expect("a look too many")?.iter().copied())?;
        Ok(Cluster::new(spec))
    }

    fn wait_for_change(
        &self,
        known: &ClusterSpec,
        _: Duration,
        stop: &Stop,
    ) -> Result<WatchSignal, Error> {
        self.waited.lock().unwrap().push(known.num_tasks("worker")?);
        self.waits.lock().unwrap().pop_front().unwrap_or_else(|| {
            stop.stop();
            Ok(WatchSignal::Quiet)
        })
    }
}

fn broken() -> Error {
    let variable = "TF_CONFIG".to_owned();
    Error::NotUnicode { variable }
}

fn sizes(update: &Result<Update, Error>) -> (usize, [usize; 3]) {
    let update = update.as_ref().unwrap();
    let difference = update.difference();
    let parts = [
        difference.added().len(),
        difference.removed().len(),
        difference.moved().len(),
    ];
    (update.spec().num_tasks("worker").unwrap(), parts)
}

#[test]
fn only_changes_are_yielded_and_the_stop_ends_the_watch() {
    let looks: [&[&str]; 4] = [&["a:1"], &["a:1"], &["a:1", "b:1"], &["c:1"]];
    let script = Script::new(looks.map(Ok), [const { Ok(WatchSignal::Changed) }; 3]);
    let updates: Vec<_> = script.watch(HOUR).collect();
    let yielded: Vec<_> = updates.iter().map(sizes).collect();
    assert_eq!(yielded, [(1, [1, 0, 0]), (2, [1, 0, 0]), (1, [0, 1, 1])]);
    assert_eq!(*script.waited.lock().unwrap(), [1, 1, 2, 1]);
}

#[test]
fn a_look_that_fails_is_yielded_and_the_next_one_is_compared_with_the_last_good_one() {
    let looks = [Ok(&["a:1"][..]), Err(broken()), Ok(&["a:1"]), Ok(&["b:1"])];
    let script = Script::new(looks, []);
    let updates: Vec<_> = script.watch(Duration::ZERO).take(3).collect();
    assert_eq!(sizes(&updates[0]), (1, [1, 0, 0]));
    assert_eq!(updates[1], Err(broken()));
    assert_eq!(sizes(&updates[2]), (1, [0, 0, 1]));
}

#[test]
fn a_source_that_cannot_wait_is_yielded_and_not_asked_to_wait_again_before_the_next_look() {
    let script = Script::new([Ok(&["a:1"][..])], [Err(broken())]);
    let mut watch = script.watch(HOUR);
    assert!(watch.next().unwrap().is_ok());
    assert_eq!(watch.next(), Some(Err(broken())));
    assert_eq!(watch.next_within(Duration::from_millis(1)), None);
    assert_eq!(*script.waited.lock().unwrap(), [1]);
}

#[test]
fn a_source_that_tells_of_changes_where_there_are_none_is_left_alone_between() {
    let looks = std::iter::repeat_with(|| Ok(&["a:1"][..])).take(1000);
    let script = Script::new(looks, [const { Ok(WatchSignal::Changed) }; 1000]);
    let mut watch = script.watch(HOUR);
    assert!(watch.next().unwrap().is_ok());
    assert_eq!(watch.next_within(Duration::from_millis(500)), None);
    // At 0, 100 and 300 ms.
    let waited = script.waited.lock().unwrap().len();
    assert!((1..=3).contains(&waited), "{waited}");
}

#[test]
fn rests_double_until_a_change_or_a_long_silence() {
    let seconds = Duration::from_secs;
    assert_eq!(rest(Duration::ZERO, Duration::ZERO), FIRST_REST);
    assert_eq!(rest(FIRST_REST, Duration::ZERO), 2 * FIRST_REST);
    assert_eq!(rest(seconds(60), seconds(9)), seconds(120));
    assert_eq!(rest(seconds(60), seconds(10)), FIRST_REST);
    assert_eq!(rest(Duration::MAX, Duration::ZERO), Duration::MAX);

    let looks: [&[&str]; 4] = [&["a:1"], &["a:1"], &["b:1"], &["b:1"]];
    let script = Script::new(looks.map(Ok), [const { Ok(WatchSignal::Changed) }; 3]);
    let mut watch = script.watch(HOUR);
    assert!(watch.next().unwrap().is_ok());
    assert!(watch.next().unwrap().is_ok());
    assert_eq!(watch.rest, Duration::ZERO);
    assert!(watch.next().is_none());
    assert_eq!(watch.rest, FIRST_REST);

    // However short the times are that it is waited for.
    let looks: [&[&str]; 2] = [&["a:1"], &["a:1"]];
    let script = Script::new(looks.map(Ok), [Ok(WatchSignal::Changed)]);
    let mut watch = script.watch(HOUR);
    assert!(watch.next().unwrap().is_ok());
    watch.rest = seconds(60);
    watch.pace = Pace::Alert(Instant::now().checked_sub(CALM).unwrap());
    assert_eq!(watch.next_within(Duration::from_millis(1)), None);
    assert_eq!(watch.rest, FIRST_REST);
}

#[test]
fn the_first_look_is_made_without_any_time_and_no_other() {
    let script = Script::new([Ok(&["a:1"][..])], []);
    let mut watch = script.watch(HOUR);
    assert!(watch.next_within(Duration::ZERO).unwrap().is_ok());
    assert_eq!(watch.next_within(Duration::ZERO), None);
}

#[test]
fn the_time_ends_whatever_the_interval() {
    let resolver = crate::SimpleResolver::new(ClusterSpec::from_addresses(["a:1"]).unwrap());
    for interval in [Duration::ZERO, HOUR, Duration::MAX] {
        let mut watch = resolver.watch(interval);
        assert!(watch.next_within(Duration::MAX).unwrap().is_ok());
        assert_eq!(watch.next_within(Duration::from_millis(1)), None);
    }
}

#[test]
fn a_stop_from_another_thread_ends_the_wait() {
    let stop = Stop::default();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| stop.wait(HOUR));
        stop.stop();
        assert_eq!(waiting.join().unwrap(), WatchSignal::Quiet);
    });
    let script = Script::new([], []);
    assert_eq!(script.watch(HOUR).until(&stop).count(), 0);
}
