//! The log: on stderr, for people or as JSON. A batch's progress ([`PROGRESS`]) is one compact line for people, and the
//! whole object in Spark's field names as JSON.

use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{FmtSpan, JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use crate::print::spark;

/// The target of the event that the pipeline emits once per committed batch, with fields named as in
/// [`spark::progress`]. Objects among them (`durationMs`) are given as JSON text.
pub const PROGRESS: &str = "weir::progress";

/// How the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

impl FromStr for Format {
    type Err = &'static str;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "human" => Ok(Self::Human),
            "json" => Ok(Self::Json),
            _ => Err("it is human or json"),
        }
    }
}

/// What is logged: a level, or levels by module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter(String);

impl Filter {
    /// For commands that answer and end: what they print is the answer.
    pub fn quiet() -> Self {
        Self("warn".to_owned())
    }

    /// A plain level is meant for the host's own messages. Its engines would drown them, so they only warn unless they
    /// are named.
    fn directives(&self) -> String {
        match self.0.parse::<LevelFilter>() {
            Ok(level) if level > LevelFilter::WARN => format!("warn,weir={level}"),
            _ => self.0.clone(),
        }
    }
}

impl FromStr for Filter {
    type Err = &'static str;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match EnvFilter::try_new(s) {
            Ok(_) if !s.trim().is_empty() => Ok(Self(s.to_owned())),
            _ => Err("it is neither a level nor a list of module=level"),
        }
    }
}

/// Starts logging for the whole process. A second call changes nothing.
pub fn start(format: Format, level: &Filter, colour: bool) {
    let subscriber = subscriber(format, level, colour, std::io::stderr);
    // Only a second call fails, and then the first one's log is there.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

fn subscriber<W>(format: Format, level: &Filter, colour: bool, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(level.directives()))
        .with_span_events(FmtSpan::NONE)
        .with_writer(writer)
        .with_ansi(colour);
    match format {
        Format::Human => {
            Box::new(builder.event_format(Lines { other: tracing_subscriber::fmt::format(), format }).finish())
        }
        Format::Json => Box::new(
            builder
                .fmt_fields(JsonFields::new())
                .event_format(Lines { other: tracing_subscriber::fmt::format().json().flatten_event(true), format })
                .finish(),
        ),
    }
}

/// Formats progress itself and leaves every other event to `other`.
struct Lines<F> {
    other: F,
    format: Format,
}

impl<S, N, F> FormatEvent<S, N> for Lines<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let progress = (event.metadata().target() == PROGRESS).then(|| Progress::of(event)).flatten();
        let Some(progress) = progress else {
            return self.other.format_event(context, to, event);
        };
        match self.format {
            Format::Human => {
                SystemTime.format_time(&mut to)?;
                writeln!(to, "  INFO batch {}", spark::line(&progress))
            }
            Format::Json => {
                let mut time = String::new();
                SystemTime.format_time(&mut Writer::new(&mut time))?;
                let line = json!({
                    "timestamp": time,
                    "level": "INFO",
                    "target": PROGRESS,
                    "progress": progress,
                });
                writeln!(to, "{line}")
            }
        }
    }
}

/// The fields of an event as one object.
#[derive(Default)]
struct Progress(Map<String, Value>);

impl Progress {
    /// None when it is not about a batch.
    fn of(event: &Event<'_>) -> Option<Value> {
        let mut found = Self::default();
        event.record(&mut found);
        found.0.remove("message");
        found.0.contains_key("batchId").then_some(Value::Object(found.0))
    }
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Progress {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        // `tracing` carries no objects, so those come as text.
        match serde_json::from_str(value) {
            Ok(object @ (Value::Object(_) | Value::Array(_))) => self.put(field, object),
            _ => self.put(field, value),
        }
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // A value that is given by `%` comes here, and its Debug is its Display.
        self.record_str(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use std::io;
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: Format, level: &str, emit: impl FnOnce()) -> String {
        let kept = Kept::default();
        let to = kept.clone();
        let level = level.parse().expect("a level");
        let subscriber = subscriber(format, &level, false, move || to.clone());
        tracing::subscriber::with_default(subscriber, emit);
        let bytes = kept.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8(bytes.clone()).expect("text")
    }

    fn progress() {
        tracing::info!(
            target: PROGRESS,
            name = %"acme/s1",
            batchId = 7u64,
            timestamp = %"2026-11-30T12:01:00Z",
            numInputRows = 186u64,
            processedRowsPerSecond = 140_000.5,
            alarms = 2u64,
            durationMs = %json!({"plan": 0.1, "detect": 1.2, "total": 1.3}),
            "batch"
        );
    }

    #[test]
    fn progress_is_one_compact_line_for_people() {
        let text = logged(Format::Human, "info", progress);
        let (_, line) = text.split_once("  INFO ").expect("a level");
        assert_eq!(line, "batch acme/s1 #7 2026-11-30T12:01:00Z: 186 rows, 2 alarms, 1.3 ms (plan 0.1, detect 1.2)\n");
    }

    #[test]
    fn progress_is_an_object_in_json() {
        let text = logged(Format::Json, "info", progress);
        let line: Value = serde_json::from_str(&text).expect("one object");
        assert_eq!(line["target"], PROGRESS);
        assert_eq!(line["progress"]["batchId"], 7);
        assert_eq!(line["progress"]["name"], "acme/s1");
        assert_eq!(line["progress"]["processedRowsPerSecond"], 140_000.5);
        assert_eq!(line["progress"]["durationMs"]["detect"], 1.2);
    }

    #[test]
    fn other_events_are_logged_as_usual_and_by_level() {
        let emit = || {
            tracing::info!(target: PROGRESS, "no object");
            tracing::warn!(scenario = "acme/s1", "it waits");
            tracing::debug!("not seen");
        };
        let text = logged(Format::Human, "info", emit);
        assert!(text.contains("no object") && text.contains("it waits scenario=\"acme/s1\""));
        assert!(!text.contains("not seen"));
        let text = logged(Format::Json, "warn", emit);
        let line: Value = serde_json::from_str(&text).expect("one object");
        assert_eq!((&line["message"], &line["scenario"]), (&json!("it waits"), &json!("acme/s1")));
    }

    #[test]
    fn a_plain_level_is_the_hosts_own() {
        let emit = || {
            tracing::info!(target: "weir_pipeline::stream", "ours");
            tracing::info!(target: "datafusion", "theirs");
            tracing::warn!(target: "datafusion", "their warning");
        };
        let text = logged(Format::Human, "info", emit);
        assert!(text.contains("ours") && text.contains("their warning") && !text.contains("theirs"), "{text}");
        assert!(logged(Format::Human, "info,datafusion=info", emit).contains("theirs"));
        assert!(!logged(Format::Human, "error", emit).contains("their warning"));
    }

    #[test]
    fn a_level_that_is_none_is_refused() {
        assert!("loud".parse::<Filter>().is_ok(), "a module's name alone means all of it");
        assert!("weir=loud".parse::<Filter>().is_err());
        assert!(" ".parse::<Filter>().is_err());
    }
}
