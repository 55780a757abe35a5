//! How long a run may take. Counted in the calling thread's own CPU time, so that a busy machine decides nothing; the
//! wall clock is only a backstop against waiting for ever.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use weir_model::{Fault, FaultKind};

/// The backstop, in multiples of the limit.
const BACKSTOP: u32 = 10;

/// Started on the thread that does the work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    limit: Duration,
    cpu: Duration,
    wall: Instant,
}

impl Deadline {
    pub fn start(limit: Duration) -> Self {
        Self { limit, cpu: thread_time(), wall: Instant::now() }
    }

    /// The fault of a run that took too long.
    pub fn check(&self) -> Result<(), Fault> {
        if thread_time().saturating_sub(self.cpu) > self.limit {
            return Err(Fault::tenant(FaultKind::SqlLimit, format_args!("a query needs more than {:?}", self.limit))
                .field("sql_time")
                .fix("read less, or ask the operator for more sql_time"));
        }
        if self.wall.elapsed() > self.limit.saturating_mul(BACKSTOP) {
            return Err(Fault::host(
                FaultKind::Deadline,
                format_args!("a query did not end within {:?}", self.limit.saturating_mul(BACKSTOP)),
            )
            .field("sql_time"));
        }
        Ok(())
    }

    /// Drives a future, checking whenever it gives way. Plans do so every few batches.
    pub async fn watch<F: Future>(self, work: F) -> Result<F::Output, Fault> {
        Watched { deadline: self, work: pin!(work) }.await
    }
}

struct Watched<'a, F> {
    deadline: Deadline,
    work: Pin<&'a mut F>,
}

impl<F: Future> Future for Watched<'_, F> {
    type Output = Result<F::Output, Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Err(fault) = self.deadline.check() {
            return Poll::Ready(Err(fault));
        }
        self.work.as_mut().poll(cx).map(Ok)
    }
}

fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}
