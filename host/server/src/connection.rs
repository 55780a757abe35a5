//! Connections: how many there are at once, and how long one may take to say something. Anybody who reaches the listener
//! can open one, before any token is seen; one that says nothing, or a byte now and then, is closed, so that it takes
//! nobody's place for long.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::middleware::map_response;
use axum::response::Response;
use axum::serve::Listener;
use hyper::body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

/// How long a request's body may take to arrive.
pub(crate) const BODY: Duration = Duration::from_secs(10);
/// What a connection holds of what it has not understood yet; a request's head must fit.
const BUFFER_BYTES: usize = 64 << 10;

/// What the connections of one listener may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Connections at once. More wait until one is closed; while there is no place, a connection ends with its next answer,
    /// so that nobody keeps a place by asking again and again.
    pub connections: usize,
    /// From the connection, or the answer before, to the end of a request's head.
    pub head: Duration,
    /// How long the other end may take nothing of an answer.
    pub stall: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: 256, head: Duration::from_secs(10), stall: Duration::from_secs(30) }
    }
}

/// Serves a listener until `stopped`, then what runs on its connections. Dropped, it closes them all.
pub(crate) async fn serve<L: Listener>(
    mut listener: L,
    router: Router,
    bounds: Bounds,
    stopped: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(bounds.connections));
    // Not what the places have left: one of them is the next connection's, whether or not that comes.
    let taken = Taken::default();
    let crowd = Arc::clone(&taken.0);
    let router = router.layer(map_response(move |mut answer: Response| {
        if crowd.load(Ordering::Acquire) >= bounds.connections {
            answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        std::future::ready(answer)
    }));
    let (ending, end) = watch::channel(());
    let mut open = JoinSet::new();
    let mut stopped = pin!(stopped);
    loop {
        let accepted = async {
            // Never closed, so there is always a place in the end.
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await.0)
        };
        tokio::select! {
            (place, io) = accepted => {
                let (router, end, taken) = (router.clone(), end.clone(), taken.one_more());
                open.spawn(async move {
                    let (_place, _taken) = (place, taken);
                    connection(io, router, bounds, end).await;
                });
            }
            Some(_) = open.join_next() => {}
            () = &mut stopped => break,
        }
    }
    drop(listener);
    drop(ending);
    while open.join_next().await.is_some() {}
}

/// How many connections are open. Whatever [`Taken::one_more`] gave counts as one until it is dropped.
#[derive(Default)]
struct Taken(Arc<AtomicUsize>);

struct One(Arc<AtomicUsize>);

impl Taken {
    fn one_more(&self) -> One {
        self.0.fetch_add(1, Ordering::AcqRel);
        One(Arc::clone(&self.0))
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn connection<I>(io: I, router: Router, bounds: Bounds, mut end: watch::Receiver<()>)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(Unstalled { io, patience: bounds.stall, until: None });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(bounds.head).max_buf_size(BUFFER_BYTES);
    let mut served = pin!(http.serve_connection(io, TowerToHyperService::new(router)));
    tokio::select! {
        done = served.as_mut() => return told(&done),
        // An error: the other end is gone, which is the word.
        _ = end.changed() => served.as_mut().graceful_shutdown(),
    }
    told(&served.await);
}

/// The other end's troubles are its own; they are told to whoever looks for them.
fn told(done: &Result<(), hyper::Error>) {
    if let Err(error) = done {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// A connection that fails when the other end takes nothing of what is written for so long.
struct Unstalled<I> {
    io: I,
    patience: Duration,
    /// Set while a write waits.
    until: Option<Pin<Box<Sleep>>>,
}

impl<I> Unstalled<I> {
    fn judge<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.until = None;
            return written;
        }
        let patience = self.patience;
        let until = self.until.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(until.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Unstalled<I> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, into)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Unstalled<I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.judge(context, written)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, bytes);
        self.judge(context, written)
    }
    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.judge(context, flushed)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.io).poll_shutdown(context);
        self.judge(context, closed)
    }
}

/// A request's body that has to be there in time.
pub(crate) struct Timely {
    body: Body,
    until: Pin<Box<Sleep>>,
}

impl Timely {
    /// The body of a request whose head has just come.
    pub fn body(body: Body, within: Duration) -> Body {
        Body::new(Self { body, until: Box::pin(tokio::time::sleep_until(Instant::now() + within)) })
    }
}

impl hyper::body::Body for Timely {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        ready!(self.until.as_mut().poll(context));
        Poll::Ready(Some(Err(axum::Error::new("the request's body did not come in time"))))
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
