use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use serde_json::Value;
use tokio::sync::{mpsc as signals, watch};
use weir_model::fault::FaultKind;
use weir_model::time::{BoxFuture, VirtualClock};
use weir_server::RemoteService;

use super::*;
use crate::commands::run::Session;
use crate::config::{Need, Overrides};
use crate::signals::Signal;
use crate::testing::{shared, status};

/// What a host does is told it from outside.
#[derive(Clone)]
struct Plan {
    start: Result<(), Fault>,
    /// Whether stopping ever ends.
    stops: bool,
    drained: watch::Receiver<bool>,
    failed: watch::Receiver<bool>,
    stopped: Arc<AtomicUsize>,
}

impl Wiring for Plan {
    fn start(&self, _: Arc<Config>, _: Arc<dyn Clock>, _: bool) -> Result<Box<dyn RunningHost>, Fault> {
        self.start.clone().map(|()| Box::new(self.clone()) as _)
    }
    fn open_local(&self, _: &Config, _: Arc<dyn Clock>) -> Result<Arc<dyn Service>, Fault> {
        Err(Fault::internal("not asked for"))
    }
    fn check(&self, _: &Config, _: Option<&ScenarioId>) -> Result<Vec<Checked>, Fault> {
        Err(Fault::internal("not asked for"))
    }
}

impl RunningHost for Plan {
    fn service(&self) -> Arc<dyn Service> {
        shared(Fake::new(status("inc-1", &["acme"], Some(7))))
    }
    fn drained(&self) -> BoxFuture<'static, Result<(), Fault>> {
        let mut drained = self.drained.clone();
        Box::pin(async move { drained.wait_for(|d| *d).await.map(|_| ()).map_err(Fault::internal) })
    }
    fn failed(&self) -> BoxFuture<'static, Fault> {
        let mut failed = self.failed.clone();
        Box::pin(async move {
            let _ = failed.wait_for(|f| *f).await;
            Fault::host(FaultKind::Disk, "full")
        })
    }
    fn stop(&self) -> BoxFuture<'static, Result<(), Fault>> {
        self.stopped.fetch_add(1, Ordering::SeqCst);
        if self.stops { Box::pin(async { Ok(()) }) } else { Box::pin(std::future::pending()) }
    }
}

/// Says when the announcement is printed.
struct Announced(mpsc::Sender<Vec<u8>>);
impl Write for Announced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.send(bytes.to_vec());
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The test's end of a session.
struct Hand {
    signals: signals::Sender<Signal>,
    drained: watch::Sender<bool>,
    failed: watch::Sender<bool>,
    announced: mpsc::Receiver<Vec<u8>>,
}

impl Hand {
    fn signal(&self, signal: Signal) {
        self.signals.blocking_send(signal).expect("somebody listens");
    }
    /// The announcement, once it is there.
    fn announcement(&self) -> Value {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            line.extend(self.announced.recv().expect("an announcement"));
        }
        serde_json::from_slice(&line).expect("one object")
    }
}

struct Ended {
    result: Result<(), Failure>,
    stopped: usize,
    stderr: String,
}

/// Runs a session on `data` while `hand` does its part on another thread.
fn session(
    data: &Path,
    once: bool,
    start: Result<(), Fault>,
    stops: bool,
    play: impl FnOnce(&Hand) + Send + 'static,
) -> Ended {
    let overrides = Overrides { store: Some("store".into()), data: Some(data.to_owned()), ..Overrides::default() };
    let config = Arc::new(Config::load(&overrides, Need::Run).expect("settings"));
    let (to_signals, signals) = signals::channel(2);
    let (drained, is_drained) = watch::channel(false);
    let (failed, is_failed) = watch::channel(false);
    let (to_announced, announced) = mpsc::channel();
    let hand = Hand { signals: to_signals, drained, failed, announced };
    let stopped = Arc::new(AtomicUsize::new(0));
    let plan = Plan { start, stops, drained: is_drained, failed: is_failed, stopped: Arc::clone(&stopped) };
    let mut stderr = Vec::new();
    let mut stdout = Announced(to_announced);
    let mut out =
        Out { stdout: &mut stdout, stderr: &mut stderr, json: true, colour: false, zone: weir_model::zone::Zone::UTC };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let clock = Arc::new(VirtualClock::new(weir_model::Time::EPOCH));
    let result = runtime.block_on(async {
        let mut session = Session {
            config,
            listen: Some(([127, 0, 0, 1], 0).into()),
            once,
            scrape: Arc::new(String::new),
            signals,
            out: &mut out,
        };
        let play = tokio::task::spawn_blocking(move || {
            play(&hand);
            // Kept until the end: a sender that is gone must not look like a signal or an end.
            hand
        });
        let result = session.run(Arc::new(plan), clock).await;
        let hand = play.await.expect("no panic");
        drop(hand);
        result
    });
    Ended { result, stopped: stopped.load(Ordering::SeqCst), stderr: String::from_utf8_lossy(&stderr).into_owned() }
}

fn get(url: &str, path: &str) -> String {
    use std::io::Read as _;
    let address: SocketAddr = url.trim_start_matches("http://").parse().expect("an address");
    let mut stream = std::net::TcpStream::connect(address).expect("a connection");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn it_announces_itself_answers_on_both_listeners_and_stops_on_a_signal() {
    let data = tempfile::tempdir().expect("a folder");
    let path = data.path().to_owned();
    let ended = session(data.path(), false, Ok(()), true, move |hand| {
        let announced = hand.announcement();
        assert_eq!(announced["data"], path.display().to_string());
        let url = announced["listen"].as_str().expect("an address");
        assert!(get(url, "/healthz").starts_with("HTTP/1.1 200"));
        let host = RemoteService::find(&path).expect("no fault").expect("a host");
        assert_eq!(host.status().expect("a status").ledger.0, "inc-1");
        hand.signal(Signal::Terminate);
    });
    assert!(ended.result.is_ok(), "{:?}", ended.result);
    assert_eq!(ended.stopped, 1);
    assert!(ended.stderr.contains("once more stops at once"), "{}", ended.stderr);
    assert!(!data.path().join("host.sock").exists());
}

#[test]
fn a_second_signal_stops_at_once() {
    let data = tempfile::tempdir().expect("a folder");
    for (second, exit) in [(Signal::Terminate, Exit::Terminated), (Signal::Interrupt, Exit::Interrupted)] {
        let ended = session(data.path(), false, Ok(()), false, move |hand| {
            hand.announcement();
            hand.signal(Signal::Interrupt);
            hand.signal(second);
        });
        assert_eq!(ended.result.expect_err("a signal").exit(), exit);
        // It is left behind, nobody answers on it, and the next round of this test replaces it.
        assert!(data.path().join("host.sock").exists());
    }
    assert_eq!((Exit::Interrupted as u8, Exit::Terminated as u8), (130, 143));
}

#[test]
fn once_ends_when_everything_is_drained() {
    let data = tempfile::tempdir().expect("a folder");
    let ended = session(data.path(), true, Ok(()), true, |hand| {
        hand.announcement();
        let _ = hand.drained.send(true);
    });
    assert!(ended.result.is_ok(), "{:?}", ended.result);
    assert_eq!(ended.stopped, 1);
}

#[test]
fn a_host_that_cannot_go_on_is_stopped_and_says_why() {
    let data = tempfile::tempdir().expect("a folder");
    let ended = session(data.path(), false, Ok(()), true, |hand| {
        hand.announcement();
        let _ = hand.failed.send(true);
    });
    assert_eq!(ended.result.expect_err("a fault").to_string(), "full");
    assert_eq!(ended.stopped, 1);
    assert!(!data.path().join("host.sock").exists());
}

#[test]
fn a_start_that_fails_leaves_nothing_behind() {
    let data = tempfile::tempdir().expect("a folder");
    let held = Fault::host(FaultKind::Ledger, "another host holds it");
    let ended = session(data.path(), false, Err(held), true, |_| {});
    assert_eq!(ended.result.expect_err("a fault").exit(), Exit::Unreachable);
    assert_eq!(ended.stopped, 0);
    assert_eq!(std::fs::read_dir(data.path()).expect("a folder").count(), 0);
}

#[test]
fn a_socket_that_cannot_be_made_stops_the_host() {
    let data = tempfile::tempdir().expect("a folder");
    let ended = session(&data.path().join("missing"), false, Ok(()), true, |_| {});
    assert_eq!(ended.result.expect_err("no folder").exit(), Exit::Unreachable);
    assert_eq!(ended.stopped, 1);
}
