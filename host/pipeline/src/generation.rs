//! What a stream is in the ledger, over restarts and other definitions.

use std::time::Duration;

use weir_model::stream::{BronzeCursor, SourceDef, StreamMeta, TICK_ROWS, tick_interval};
use weir_model::{Digest, Fault, Incarnation, Offsets, StreamDef, StreamId, Time};

use crate::engines::Engines;

/// The stream's entry in the ledger; made, or carried on as a new generation when the definition changed.
pub(crate) fn meta(
    engines: &Engines,
    id: &StreamId,
    def: &StreamDef,
    definition: Digest,
    cursor: &BronzeCursor,
    now: Time,
) -> Result<StreamMeta, Fault> {
    let known = engines.ledger.stream(id)?;
    if let Some(meta) = known.as_ref().filter(|m| m.definition == definition) {
        return Ok(meta.clone());
    }
    let meta = match known {
        None => first(engines, id, definition, origin(&def.source, now, 0), now),
        Some(before) => StreamMeta {
            incarnation: before.incarnation,
            generation: before.generation + 1,
            definition,
            anchor: origin(&def.source, now, cursor.flushed.get(0) / TICK_ROWS),
            start: cursor.flushed.clone(),
        },
    };
    engines.ledger.put_stream(id, &meta)?;
    Ok(meta)
}

/// The entry of a stream that the ledger has not seen before.
pub(crate) fn first(engines: &Engines, id: &StreamId, definition: Digest, anchor: Time, now: Time) -> StreamMeta {
    let seed = format!("{}/{id}/{now}", engines.ledger.incarnation());
    let incarnation = Incarnation(Digest::of(seed.as_bytes()).short());
    StreamMeta { incarnation, generation: 1, definition, anchor, start: Offsets::default() }
}

/// The time so many ticks before another.
pub(crate) fn ticks_before(time: Time, every: Duration, ticks: u64) -> Time {
    let passed = every.as_micros().saturating_mul(u128::from(ticks));
    Time(time.micros().saturating_sub(i64::try_from(passed).unwrap_or(i64::MAX)))
}

/// The origin of a generated stream's ticks: the first start less its history, or, for a later generation, such that tick
/// `next` comes now.
fn origin(source: &SourceDef, now: Time, next: u64) -> Time {
    let SourceDef::Generate { interval, rate, history, .. } = source else {
        return now;
    };
    // One without a usable interval is refused where it is opened.
    let every = tick_interval(*interval, *rate).unwrap_or(Duration::from_secs(1));
    if next == 0 {
        return now.minus(history.get()).floor(every, Duration::ZERO);
    }
    ticks_before(now, every, next).floor(every, Duration::ZERO)
}
