//! Whether the rows of a period are still there. Batches that see none because theirs are gone find nothing, and published
//! they would take away what was found when the rows were there.

use std::time::Duration;

use weir_model::batch::Backfill;
use weir_model::{Fault, FaultKind, Time};

use crate::engines::Engines;
use crate::side::{DAY, oldest};
use crate::stream::Stream;

/// What is known of the streams so far.
pub(super) struct Reach<'a> {
    engines: &'a Engines,
    backfill: &'a Backfill,
    /// T of the batch that comes next; none when all batches are there.
    next: Option<Time>,
    begins: Option<Time>,
    streams: usize,
}

impl<'a> Reach<'a> {
    pub fn new(engines: &'a Engines, backfill: &'a Backfill, next: Option<Time>) -> Self {
        Self { engines, backfill, next, begins: None, streams: 0 }
    }

    /// Refuses a period that begins where rows of this stream, of which a batch sees those of the last `back`, have been
    /// removed for their age. Rows that are older than the stream keeps them may still be there: a history that begins with
    /// the period is whole. Blocks.
    pub fn look(&mut self, stream: &Stream, back: Duration) -> Result<(), Fault> {
        let Some(next) = self.next else { return Ok(()) };
        let oldest = oldest(self.engines, stream)?;
        self.begins = [self.begins, oldest].into_iter().flatten().min();
        self.streams += 1;
        let kept = self.engines.clock.now().minus(DAY * stream.def.keep_days);
        let whole = oldest.is_some_and(|at| at < next.plus(self.backfill.every.get()));
        if next.minus(back) >= kept || whole {
            return Ok(());
        }
        let (name, days) = (&stream.id.stream, stream.def.keep_days);
        Err(refused(format!(
            "rows of stream {name} are kept for {days} days, and those of {next} are not there any more"
        ))
        .field("--from")
        .fix(format_args!(
            "begin at or after {}; a larger keep_days of the stream keeps its rows longer from now on",
            kept.plus(back)
        )))
    }

    /// Refuses a period that lies before the first row of all streams.
    pub fn judge(self) -> Result<(), Fault> {
        let (Some(_), 1..) = (self.next, self.streams) else { return Ok(()) };
        let to = self.backfill.range.to;
        match self.begins {
            Some(begins) if begins < to => Ok(()),
            Some(begins) => Err(refused(format!("there is no row before {to}: the earliest one is of {begins}"))
                .field("--to")
                .fix("end after the first row")),
            None => {
                Err(refused(format!("there is no row that a batch before {to} could see: its streams have none yet"))
                    .field("--to")
                    .fix("`weir status` shows what its streams have read, and what keeps them from reading"))
            }
        }
    }
}

fn refused(message: String) -> Fault {
    Fault::tenant(FaultKind::NotReplayable, message)
}
