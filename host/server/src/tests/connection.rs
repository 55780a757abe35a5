//! Connections that say nothing, or take nothing, over real sockets.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use hyper::body::Frame;

use super::*;
use crate::connection::{Bounds, Timely};

const LONG: Duration = Duration::from_secs(60);

/// Serves `metrics` on a free port with these bounds while `ask` runs.
fn within(bounds: Bounds, metrics: usize, ask: impl FnOnce(SocketAddr) + Send + 'static) {
    runtime().block_on(async {
        let listener = bind_tcp(([127, 0, 0, 1], 0).into()).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let api = Api::new(Arc::new(Fake::default()), Arc::new(move || "x".repeat(metrics)));
        let serving = Serving::bounded(listener, router(&api, Access::Loopback), bounds);
        let done = tokio::task::spawn_blocking(move || ask(address)).await;
        serving.stop().await;
        done.expect("no panic");
    });
}

fn connect(address: SocketAddr, says: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(says.as_bytes()).expect("sent");
    stream.set_read_timeout(Some(LONG)).expect("a timeout");
    stream
}

/// How long it takes until the other end has closed.
fn closed(mut stream: TcpStream, since: Instant) -> Duration {
    let mut rest = Vec::new();
    // Closed by a reset is closed too.
    let _ = stream.read_to_end(&mut rest);
    since.elapsed()
}

fn healthy(address: SocketAddr) -> bool {
    request(address, "GET /healthz", &["Host: localhost"], "").status == 200
}

#[test]
fn one_that_says_nothing_or_half_is_closed() {
    let head = Duration::from_millis(300);
    within(Bounds { head, ..Bounds::default() }, 0, move |at| {
        let since = Instant::now();
        let silent = connect(at, "");
        let half = connect(at, "GET /healthz HTTP/1.1\r\nHost: local");
        // Answered, and then silent: it would wait for the next request for ever.
        let idle = connect(at, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        for stream in [silent, half, idle] {
            let took = closed(stream, since);
            assert!(took >= head && took < LONG / 2, "{took:?}");
        }
        assert!(healthy(at));
    });
}

#[test]
fn more_than_there_are_places_wait_and_silent_ones_make_room() {
    let bounds = |head| Bounds { connections: 2, head, ..Bounds::default() };
    // Nobody is closed here, so the third one gets no answer until another leaves.
    within(bounds(LONG), 0, |at| {
        let (first, _second) = (connect(at, ""), connect(at, "GET /he"));
        let mut third = connect(at, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        third.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
        let mut answer = [0; 12];
        assert!(third.read(&mut answer).is_err(), "there was no place for it");
        drop(first);
        third.set_read_timeout(Some(LONG)).expect("a timeout");
        third.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 200");
    });
    within(bounds(Duration::from_millis(200)), 0, |at| {
        let _silent: Vec<TcpStream> = (0..10).map(|_| connect(at, "")).collect();
        assert!(healthy(at));
    });
}

#[test]
fn one_that_takes_nothing_of_its_answer_is_closed() {
    let bounds = Bounds { connections: 1, stall: Duration::from_millis(300), ..Bounds::default() };
    // More than the buffers of both ends hold.
    within(bounds, 64 << 20, |at| {
        let deaf = connect(at, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(healthy(at), "its place was made free");
        drop(deaf);
    });
}

/// At 2 MB/s it takes a little in every moment, but no third of what an unbounded send buffer holds within the patience.
#[test]
fn one_that_takes_its_answer_slowly_gets_all_of_it() {
    const ANSWER: usize = 12 << 20;
    within(Bounds { stall: Duration::from_millis(300), ..Bounds::default() }, ANSWER, move |at| {
        let mut slow = connect(at, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let (mut piece, mut taken) = (vec![0; 100 << 10], 0);
        loop {
            match slow.read(&mut piece).expect("not cut") {
                0 => break,
                bytes => taken += bytes,
            }
            // Real time for a real socket.
            #[allow(clippy::disallowed_methods)]
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(taken > ANSWER, "{taken} of {ANSWER}");
    });
}

#[test]
fn nobody_keeps_a_place_by_asking_again_while_others_wait() {
    const ASK: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let bounds = |connections| Bounds { connections, head: LONG, ..Bounds::default() };
    within(bounds(1), 0, |at| {
        let mut hog = connect(at, ASK);
        let mut answer = String::new();
        hog.read_to_string(&mut answer).expect("closed after its answer");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
        assert!(healthy(at));
    });
    within(bounds(2), 0, |at| {
        let mut alone = connect(at, ASK);
        for _ in 0..2 {
            let mut answer = vec![0; 4096];
            let bytes = alone.read(&mut answer).expect("an answer");
            let answer = String::from_utf8_lossy(&answer[..bytes]);
            assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("connection: close"), "{answer}");
            alone.write_all(ASK.as_bytes()).expect("still open");
        }
    });
}

/// A body that begins and never ends.
struct Endless;
impl hyper::body::Body for Endless {
    type Data = Bytes;
    type Error = axum::Error;
    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Poll::Pending
    }
}

#[test]
fn a_body_that_does_not_come_is_an_error_and_one_that_comes_is_itself() {
    runtime().block_on(async {
        let soon = Duration::from_millis(50);
        let read = to_bytes(Timely::body(Body::new(Endless), soon), 1000).await;
        assert!(read.expect_err("no end").to_string().contains("did not come in time"));
        let read = to_bytes(Timely::body(Body::from("all of it"), Duration::ZERO), 1000).await;
        assert_eq!(read.expect("it was there"), "all of it");
    });
}
