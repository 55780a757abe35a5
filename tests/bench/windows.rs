//! What a batch costs as its window grows: rows that its query counts, and rows outside of the query's time range.

use std::sync::Arc;

use arrow_array::BooleanArray;
use arrow_array::cast::AsArray as _;
use arrow_array::types::TimestampMicrosecondType;
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use weir_model::port::{BatchInputs, Ledger, Prepared};
use weir_model::stream::Chunk;
use weir_model::{FaultPoints, NoFaults, Time};
use weir_pipeline::batch;

use crate::Effort;
use crate::report::{Report, Sample};
use crate::s1::{ready, to_the_next_minute};
use crate::support::example::Example;

/// S1 looks back so far.
const LOOKS_BACK: std::time::Duration = std::time::Duration::from_secs(120);

/// The rows of a chunk before `since` or from then on, so many times.
fn grown(chunk: &Chunk, event_time: &str, since: Time, older: bool, times: usize) -> Chunk {
    let column = chunk.rows.column_by_name(event_time).unwrap().as_primitive::<TimestampMicrosecondType>();
    let wanted: BooleanArray = column.values().iter().map(|t| Some((*t < since.micros()) == older)).collect();
    let part = filter_record_batch(&chunk.rows, &wanted).unwrap();
    Chunk { rows: concat_batches(part.schema_ref(), std::iter::repeat_n(&part, times)).unwrap(), ..chunk.clone() }
}

/// The inputs with the rows from `since` on `inside` times, and those before it `outside` times; and how many these are.
fn inputs_of(inputs: &BatchInputs, since: Time, inside: usize, outside: usize) -> (BatchInputs, [usize; 2]) {
    let mut out = inputs.clone();
    let mut rows = [0, 0];
    for stream in out.streams.values_mut() {
        let event_time = stream.def.event_time.clone();
        let mut chunks = Vec::new();
        for (older, times) in [(true, outside), (false, inside)] {
            for chunk in &stream.chunks {
                let mut part = grown(chunk, &event_time, since, older, times);
                if older {
                    part.max_time = part.max_time.min(Time(since.micros() - 1));
                } else {
                    part.min_time = part.min_time.max(since);
                }
                rows[usize::from(older)] += part.rows.num_rows();
                chunks.push(part);
            }
        }
        stream.chunks = chunks;
    }
    assert!(rows[0] > 0 && rows[1] > 0, "the window holds rows of both kinds: {rows:?}");
    (out, rows)
}

/// The batch of S1 without its commit, on the example's window and on larger ones, in turns.
pub fn run(report: &mut Report, effort: Effort) {
    let example = Example::new();
    let live = example.open();
    example.batches(&live);
    to_the_next_minute(&example, &live);
    let (prepared, plan, streams) = ready(&example, &live);
    let plain = batch::inputs(&plan, &prepared, &streams);
    let since = plan.time.floor(std::time::Duration::from_secs(60), std::time::Duration::ZERO).minus(LOOKS_BACK);

    let sizes = [(1, 1), (10, 1), (100, 1), (1, 10), (1, 100)];
    let windows: Vec<_> = sizes.iter().map(|(inside, outside)| inputs_of(&plain, since, *inside, *outside)).collect();
    let mut samples = vec![Sample::default(); sizes.len()];
    for round in 0..effort.rounds(100) + 5 {
        for ((inputs, _), sample) in windows.iter().zip(&mut samples) {
            let mut one = Sample::default();
            one.time(|| execute(&prepared, &plan, inputs.clone(), live.built.ledger.state(&plan.key).unwrap()));
            if round >= 5 {
                sample.extend(one);
            }
        }
    }
    for ((_, [inside, outside]), sample) in windows.iter().zip(&samples) {
        let what = format!("S1 batch without commit: {inside} rows in the query's range, {outside} outside");
        report.durations(&what, sample, None);
    }
    report.ratio(
        "100 times the rows outside of the range, over the example's",
        samples[4].over(&samples[0]),
        Some(1.2),
    );
    let a_row = (samples[2].p50() - samples[0].p50()) / (windows[2].1[0] - windows[0].1[0]) as f64;
    let earlier = (samples[1].p50() - samples[0].p50()) / (windows[1].1[0] - windows[0].1[0]) as f64;
    report.figure(
        "a row in the range, from 10 to 100 times / from 1 to 10 times",
        &format!("{a_row:.3} us / {earlier:.3} us"),
    );
}

fn execute(
    prepared: &Arc<Prepared>,
    plan: &weir_model::batch::Plan,
    inputs: BatchInputs,
    reader: Box<dyn weir_model::port::StateReader>,
) {
    let faults: Arc<dyn FaultPoints> = Arc::new(NoFaults);
    let current = batch::current_alarms(reader.as_ref()).unwrap();
    let done = batch::execute(plan.clone(), prepared, inputs, reader, &current, &faults).unwrap();
    assert!(done.commit.raised > 0, "the batch has something to do");
}
