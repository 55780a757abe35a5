//! Wires the generator of an example's history to a data folder or to files.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender, sync_channel};
use std::time::Duration;

use serde::Serialize;
use weir_generate::{Part, Stream};
use weir_model::port::RuleStore as _;
use weir_model::time::Clock;
use weir_model::{Fault, FaultKind, Name, NoFaults, StreamId, Time};
use weir_pipeline::import::Import;

use crate::config::Config;
use crate::wiring::{self, Built};

const DAY: Duration = Duration::from_secs(86_400);

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Format {
    /// Parquet.
    Parquet,
    /// JSON lines.
    Json,
}

/// What to make.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The first minute.
    pub from: Time,
    /// The end.
    pub to: Time,
    /// 0: exactly the starter data.
    pub seed: u64,
    /// Whose streams.
    pub tenant: Name,
}

/// What was made of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Made {
    /// The stream.
    pub stream: String,
    /// Its rows.
    pub rows: u64,
    /// Why nothing was made of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

/// Minutes that are done of all streams together.
pub type Tell<'a> = &'a mut dyn FnMut(u64);

/// Where the rows of a stream go, part by part.
trait Put: Send {
    fn put(&mut self, part: Part, day: Time, first: u64) -> Result<(), Fault>;
}

/// Writes files: `out/STREAM/DAY.parquet`, `out/STREAM/DAY.jsonl`. A file that is there already is refused before anything
/// is made.
pub fn into_files(ask: &Ask, out: &Path, formats: &BTreeSet<Format>, tell: Tell<'_>) -> Result<Vec<Made>, Fault> {
    let mut jobs: Vec<(Stream, Box<dyn Put>)> = Vec::new();
    for stream in Stream::ALL {
        let folder = out.join(stream.name());
        for (day, _) in days(ask) {
            for format in formats {
                let path = file(&folder, day, *format);
                if path.exists() {
                    return Err(Fault::tenant(FaultKind::Config, "the file is there already")
                        .file(path.display())
                        .fix("name another folder with --out, or remove the files"));
                }
            }
        }
        fs::create_dir_all(&folder).map_err(|e| disk(&folder, &e))?;
        jobs.push((stream, Box::new(Files { folder, formats: formats.clone() })));
    }
    run(ask, jobs, tell)
}

/// Fills the bronze tables of the streams that the rule store defines for the tenant, in a data folder that no host holds.
pub fn into_data(ask: &Ask, config: &Config, clock: Arc<dyn Clock>, tell: Tell<'_>) -> Result<Vec<Made>, Fault> {
    let store = wiring::canonical_store(config)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(|e| Fault::host(FaultKind::Resources, format_args!("no runtime: {e}")))?;
    if ask.to > clock.now() {
        return Err(Fault::tenant(FaultKind::Config, format_args!("{} has not come yet", ask.to))
            .field("--to")
            .fix("a data folder holds what has happened; end the history at or before now"));
    }
    let built = wiring::build(config, &store, clock, Arc::new(NoFaults), runtime.handle().clone())?;
    wiring::remember_store(config, &store)?;
    let wanted = Stream::ALL.into_iter().map(|stream| id_of(ask, stream)).collect::<Result<Vec<_>, _>>()?;
    wiring::settle_unless(&built.store, built.engines.clock.as_ref(), |store| {
        let known = store.streams();
        wanted.iter().all(|id| known.iter().any(|view| view.id == *id && view.def.is_some()))
    });
    let mut left_out = Vec::new();
    let mut jobs: Vec<(Stream, Box<dyn Put>)> = Vec::new();
    for stream in Stream::ALL {
        match import(ask, &built, stream)? {
            Ok(table) => jobs.push((stream, Box::new(table))),
            Err(why) => left_out.push(Made { stream: stream.name().to_owned(), rows: 0, left_out: Some(why) }),
        }
    }
    if jobs.is_empty() {
        return Err(Fault::tenant(
            FaultKind::NotFound,
            format_args!("the rule store defines none of the example's streams for tenant {}", ask.tenant),
        )
        .file(store.display())
        .fix("name the example's rule store with --store, and its tenant with --tenant"));
    }
    let mut made = run(ask, jobs, tell)?;
    made.extend(left_out);
    Ok(made)
}

fn id_of(ask: &Ask, stream: Stream) -> Result<StreamId, Fault> {
    Ok(StreamId::new(ask.tenant.clone(), Name::new(stream.name()).map_err(Fault::internal)?))
}

fn import(ask: &Ask, built: &Built, stream: Stream) -> Result<Result<Table, String>, Fault> {
    let id = id_of(ask, stream)?;
    let view = built.store.streams().into_iter().find(|v| v.id == id);
    let (Some(def), Some(digest)) = view.map(|v| (v.def, v.digest)).unwrap_or_default() else {
        return Ok(Err(format!("the rule store has no stream {id}")));
    };
    // What does not fit is seen before anything is written.
    let probe = stream.rows(ask.from, Time(ask.from.micros() + weir_generate::MINUTE), ask.seed)?;
    let here = |fault: Fault| fault.file(format_args!("{}/streams/{}.toml", id.tenant, id.stream));
    probe.positioned(&def, 0).map_err(here)?;
    let engines = built.engines.clone();
    let import = Import::begin(&engines, id, def.clone(), digest, minutes(ask), ask.to)?;
    Ok(Ok(Table { import, engines, def }))
}

/// All minutes of the history.
pub fn minutes(ask: &Ask) -> u64 {
    u64::try_from((ask.to.micros() - ask.from.micros()) / weir_generate::MINUTE).unwrap_or(0)
}

/// Days of the history as `[from, to)`; the first and the last may be parts of one.
fn days(ask: &Ask) -> Vec<(Time, Time)> {
    let mut out = Vec::new();
    let mut from = ask.from;
    while from < ask.to {
        let to = from.floor(DAY, Duration::ZERO).plus(DAY).min(ask.to);
        out.push((from, to));
        from = to;
    }
    out
}

/// Makes the streams, as many at a time as there are cores. Each is made a day ahead of what is being written.
fn run(ask: &Ask, jobs: Vec<(Stream, Box<dyn Put>)>, tell: Tell<'_>) -> Result<Vec<Made>, Fault> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let jobs: Vec<_> = jobs.into_iter().map(|job| std::sync::Mutex::new(Some(job))).collect();
    let (jobs, next) = (&jobs, &AtomicUsize::new(0));
    let (done, said) = mpsc::channel::<u64>();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let done = done.clone();
                scope.spawn(move || {
                    let mut made = Vec::new();
                    while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let job = job.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
                        if let Some((stream, put)) = job {
                            made.push(one(ask, stream, put, &done)?);
                        }
                    }
                    Ok::<_, Fault>(made)
                })
            })
            .collect();
        drop(done);
        let mut sum = 0;
        for minutes in said {
            sum += minutes;
            tell(sum);
        }
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().map_err(|_| Fault::internal("a thread that makes rows panicked"))??);
        }
        let order = |m: &Made| Stream::ALL.iter().position(|s| s.name() == m.stream);
        all.sort_by_key(order);
        Ok(all)
    })
}

fn one(ask: &Ask, stream: Stream, mut put: Box<dyn Put>, done: &Sender<u64>) -> Result<Made, Fault> {
    let minute_of = |t: Time| u64::try_from((t.micros() - ask.from.micros()) / weir_generate::MINUTE).unwrap_or(0);
    let mut rows = 0;
    std::thread::scope(|scope| {
        let (ready, parts) = sync_channel(1);
        let maker = scope.spawn(move || {
            for (from, to) in days(ask) {
                // Whoever writes has met a fault when nobody takes the day.
                if ready.send((from, stream.rows(from, to, ask.seed))).is_err() {
                    break;
                }
            }
        });
        for (day, part) in parts {
            let part = part?;
            let minutes = part.per_minute.len() as u64;
            rows += part.rows.num_rows() as u64;
            put.put(part, day, minute_of(day))?;
            // The one who is told may have gone; the rows stay made.
            let _ = done.send(minutes);
        }
        maker.join().map_err(|_| Fault::internal("a thread that makes rows panicked"))
    })?;
    Ok(Made { stream: stream.name().to_owned(), rows, left_out: None })
}

struct Table {
    import: Import,
    engines: weir_pipeline::Engines,
    def: Arc<weir_model::StreamDef>,
}

impl Put for Table {
    fn put(&mut self, part: Part, _: Time, first: u64) -> Result<(), Fault> {
        let next = Part::end(first + part.per_minute.len() as u64 - 1);
        self.import.append(&self.engines, part.positioned(&self.def, first)?, next)
    }
}

struct Files {
    folder: PathBuf,
    formats: BTreeSet<Format>,
}

impl Put for Files {
    fn put(&mut self, part: Part, day: Time, _: u64) -> Result<(), Fault> {
        for format in &self.formats {
            let path = file(&self.folder, day, *format);
            // Under its name only when it is whole: somebody may be waiting for files here.
            let partial = path.with_extension("part");
            let bytes = match format {
                Format::Parquet => weir_lake::parquet(&part.rows)?,
                Format::Json => part.json_lines()?,
            };
            let written = fs::File::create(&partial).and_then(|mut f| f.write_all(&bytes));
            written.and_then(|()| fs::rename(&partial, &path)).map_err(|e| disk(&path, &e))?;
        }
        Ok(())
    }
}

fn file(folder: &Path, day: Time, format: Format) -> PathBuf {
    let day = day.to_string();
    let ending = match format {
        Format::Parquet => "parquet",
        Format::Json => "jsonl",
    };
    folder.join(format!("{}.{ending}", day.get(..10).unwrap_or(&day)))
}

fn disk(path: &Path, e: &std::io::Error) -> Fault {
    Fault::host(FaultKind::Disk, e).file(path.display())
}
