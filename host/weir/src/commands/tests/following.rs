use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use weir_model::alarm::AlarmEvent;
use weir_model::duration::Span;
use weir_model::fault::FaultKind;
use weir_model::time::{Time, VirtualClock};

use super::*;
use crate::cli::Tail;
use crate::commands::tail::{World, tail};
use crate::testing::{event, events, lock, status};

/// Hosts that come and go on a clock that only moves when somebody waits.
struct Stage {
    clock: VirtualClock,
    used: bool,
    hosts: Mutex<VecDeque<Option<Arc<Fake>>>>,
}

impl Stage {
    fn new(used: bool) -> Self {
        Self { clock: VirtualClock::new(Time::EPOCH), used, hosts: Mutex::default() }
    }
    /// The next host that is found.
    fn host(&self, fake: Fake) -> Arc<Fake> {
        let host = Arc::new(Fake { clock: self.clock.clone(), ..fake });
        lock(&self.hosts).push_back(Some(Arc::clone(&host)));
        host
    }
    fn nobody(&self) {
        lock(&self.hosts).push_back(None);
    }
    fn tail(&self, ask: Tail) -> (Result<(), Failure>, Printed) {
        let mut printed = Printed::default();
        let ended = tail(&ask, self, &mut printed.out(false));
        (ended, printed)
    }
}

impl World for Stage {
    fn host(&self) -> Result<Option<Arc<dyn Service>>, Fault> {
        Ok(lock(&self.hosts).pop_front().flatten().map(|h| h as _))
    }
    fn anybody(&self) -> Result<Arc<dyn Service>, Fault> {
        World::host(self)?.ok_or_else(|| Fault::internal("nobody"))
    }
    fn is_used(&self) -> bool {
        self.used
    }
    fn elapsed(&self) -> Duration {
        self.clock.monotonic()
    }
    fn pause(&self, time: Duration) {
        self.clock.advance(time);
    }
}

fn for_a_minute(from_start: bool) -> Tail {
    Tail { from_start, once: false, duration: Some(Span::secs(60)) }
}

fn raised(batch: u64) -> AlarmEvent {
    event("opened", None, "critical", batch)
}

fn at(batch: u64, pages: Vec<Result<Vec<AlarmEvent>, Fault>>) -> Fake {
    ledger("inc-1", batch, pages)
}

fn ledger(ledger: &str, batch: u64, pages: Vec<Result<Vec<AlarmEvent>, Fault>>) -> Fake {
    let pages = pages.into_iter().map(|p| p.map(|all| events(&all)));
    Fake { pages: Mutex::new(pages.collect()), ..Fake::new(status(ledger, &["acme"], Some(batch))) }
}

/// How many were printed, under one line with the columns' names.
fn changes(printed: &Printed) -> usize {
    let (stdout, names) = (printed.stdout(), |line: &&str| line.starts_with("TIME "));
    assert_eq!(stdout.lines().filter(names).count(), 1, "{stdout}");
    stdout.lines().count() - 1
}

fn gone() -> Fault {
    Fault::host(FaultKind::Cancelled, "the host does not answer")
}

#[test]
fn it_begins_now_and_ends_when_the_time_is_up() {
    let stage = Stage::new(true);
    let host = stage.host(at(7, vec![Ok(vec![raised(8)]), Ok(vec![raised(9), raised(10)])]));
    let (ended, printed) = stage.tail(for_a_minute(false));
    assert!(ended.is_ok());
    assert_eq!(changes(&printed), 3);
    let asked: Vec<String> = [7, 8, 10, 10, 10].map(|n| format!("events [\"acme/s1:{n}\"]")).into();
    assert_eq!(host.asked(), asked);
    assert_eq!(stage.clock.monotonic(), Duration::from_secs(60));
}

#[test]
fn from_the_start_asks_for_everything() {
    for (from_start, used) in [(true, true), (false, false)] {
        let stage = Stage::new(used);
        let host = stage.host(at(7, vec![Ok(vec![raised(1)])]));
        assert!(stage.tail(for_a_minute(from_start)).0.is_ok());
        assert_eq!(host.asked()[..2], ["events []", "events [\"acme/s1:1\"]"]);
    }
}

#[test]
fn once_prints_what_there_is_and_ends() {
    let stage = Stage::new(true);
    let host = stage.host(at(7, vec![Ok(vec![raised(1)]), Ok(vec![raised(2)])]));
    let (ended, printed) = stage.tail(Tail { from_start: false, once: true, duration: None });
    assert!(ended.is_ok());
    assert_eq!(changes(&printed), 2);
    assert_eq!(host.asked().len(), 3);
    assert_eq!(stage.clock.monotonic(), Duration::ZERO, "it waits for nothing");
}

#[test]
fn a_restart_loses_and_repeats_nothing() {
    let stage = Stage::new(true);
    stage.nobody();
    stage.host(at(7, vec![Ok(vec![raised(8)]), Err(gone())]));
    stage.nobody();
    // By the time it is found again, the host has gone on.
    let second = stage.host(at(11, vec![Ok(vec![raised(9), raised(10)])]));
    let (ended, printed) = stage.tail(for_a_minute(false));
    assert!(ended.is_ok());
    assert_eq!(second.asked()[..2], ["events [\"acme/s1:8\"]", "events [\"acme/s1:10\"]"]);
    assert_eq!(changes(&printed), 3);
    assert_eq!(
        printed.stderr(),
        "\
weir: no host is running; waiting for one
weir: a host is running
weir: the host is gone; waiting for it
weir: a host is running
"
    );
}

#[test]
fn another_ledger_is_shown_from_its_start() {
    let stage = Stage::new(true);
    stage.host(at(7, vec![Err(gone())]));
    let second = stage.host(ledger("inc-2", 2, vec![Ok(vec![raised(1)])]));
    let (_, printed) = stage.tail(for_a_minute(false));
    assert_eq!(second.asked()[0], "events []");
    assert!(printed.stderr().contains("another ledger"), "{}", printed.stderr());
}

#[test]
fn a_fault_ends_it() {
    let stage = Stage::new(true);
    stage.host(at(7, vec![Err(Fault::host(FaultKind::Ledger, "a hole"))]));
    let (ended, _) = stage.tail(for_a_minute(false));
    assert_eq!(ended.expect_err("a fault").exit(), Exit::Unreachable);
}
