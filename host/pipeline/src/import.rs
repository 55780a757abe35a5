//! History that is put into a stream's bronze table before its source was ever read.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use weir_model::port::{Append, Table};
use weir_model::stream::{BronzeCursor, SourceDef, StreamDef, tick_interval};
use weir_model::{Digest, Fault, FaultKind, StreamId, Time};

use crate::engines::Engines;
use crate::generation::{first, ticks_before};
use crate::stream::{app, event_times, table_name};

/// A stream that is being filled. Rows come in offset order, all of partition 0. A host that starts on the folder goes on
/// after the last of them; what was half filled when the process ended stays as it is and is not filled again.
pub struct Import {
    id: StreamId,
    def: Arc<StreamDef>,
    table: Arc<dyn Table>,
    app: String,
    cursor: BronzeCursor,
}

impl Import {
    /// Begins it. `ticks` is how many ticks of [`weir_model::stream::TICK_ROWS`] offsets will come and `end` the time at which they end: a
    /// `generate` source goes on with the tick after them, at `end` or, where that is longer ago than its history reaches
    /// back, so much before now. Refused when the stream was read or filled before, or its table has rows. Blocks.
    pub fn begin(
        engines: &Engines,
        id: StreamId,
        def: Arc<StreamDef>,
        definition: Digest,
        ticks: u64,
        end: Time,
    ) -> Result<Self, Fault> {
        let table_name = table_name(&id, &def);
        if engines.ledger.stream(&id)?.is_some() || !engines.ledger.bronze(&id)?.flushed.0.is_empty() {
            return Err(used(&id, "was read or filled before"));
        }
        let any = format!("select 1 as found from \"{table_name}\" limit 1");
        // No table is no rows; one that cannot be read says so when it is opened below.
        if engines.adhoc.query(&id.tenant, &any, Vec::new()).is_ok_and(|rows| rows.num_rows() > 0) {
            return Err(used(&id, format_args!("has rows already, in table {table_name}")));
        }
        let now = engines.clock.now();
        let meta = first(engines, &id, definition, anchor(&def.source, ticks, end, now), now);
        let runtime = &engines.runtime;
        let table = runtime.block_on(engines.lake.table(&id.tenant, &table_name, def.positioned_schema()))?;
        let table_id = Some(runtime.block_on(table.id())?);
        engines.ledger.put_stream(&id, &meta)?;
        let app = app(engines, &meta, "bronze", 0);
        Ok(Self { id, def, table, app, cursor: BronzeCursor { table_id, ..BronzeCursor::default() } })
    }

    /// Appends rows in the stream's positioned schema, all with offsets below `next` and not below the `next` before.
    /// Blocks.
    pub fn append(&mut self, engines: &Engines, rows: RecordBatch, next: u64) -> Result<(), Fault> {
        if let Some(latest) = event_times(&rows, &self.def.event_time)?.into_iter().max() {
            let known = self.cursor.max_time.entry(0).or_insert(Time(latest));
            *known = (*known).max(Time(latest));
        }
        let version = i64::try_from(next).map_err(Fault::internal)?;
        if rows.num_rows() > 0 {
            let item = Append { app: self.app.clone(), version, rows };
            engines.runtime.block_on(self.table.append(vec![item]))?;
        }
        self.cursor.flushed.advance(0, next);
        engines.ledger.put_bronze(&self.id, &self.cursor)
    }
}

fn used(id: &StreamId, how: impl std::fmt::Display) -> Fault {
    Fault::tenant(FaultKind::Config, format_args!("stream {id} {how}: history goes into a stream that is still empty"))
        .fix("name a new data folder with --data, or remove this one if it can be made again")
}

/// The origin of the ticks such that tick `ticks` is the first one after `end`.
fn anchor(source: &SourceDef, ticks: u64, end: Time, now: Time) -> Time {
    let SourceDef::Generate { interval, rate, history, .. } = source else {
        return now;
    };
    // One without a usable interval is refused where it is opened.
    let every = tick_interval(*interval, *rate).unwrap_or(Duration::from_secs(1));
    let next = end.max(now.minus(history.get())).floor(every, Duration::ZERO).plus(every);
    ticks_before(next, every, ticks)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use weir_model::Span;

    #[test]
    fn a_source_goes_on_after_its_history_or_as_far_back_as_it_reaches() {
        let source = SourceDef::Generate {
            sql: String::new(),
            interval: Some(Span::secs(5)),
            rate: None,
            history: Span::secs(900),
        };
        let at = |text: &str| text.parse::<Time>().unwrap();
        let now = at("2026-01-31T12:00:03Z");
        let tick = |end: Time, nr: u64| anchor(&source, 1000, end, now).plus(Duration::from_secs(5 * nr));
        assert_eq!(tick(at("2026-01-31T11:58:00Z"), 1000), at("2026-01-31T11:58:05Z"));
        assert_eq!(tick(at("2026-01-30T00:00:00Z"), 1000), at("2026-01-31T11:45:05Z"));
    }
}
