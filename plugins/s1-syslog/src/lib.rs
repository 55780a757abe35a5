//! S1: which routers log too many errors of one kind.
//!
//! Each batch counts, over the two full minutes before T, the syslog messages that match the pattern of rule `1-1`, by
//! minute and router, and has rule `1-2` judge each count. What is alarming becomes a row of `s1_results` and an alarm of
//! the router.
//!
//! Every minute is looked at by more than one batch. It is reported once per outcome: an outcome is the rule's
//! (severity, alarm_reason), and a minute whose outcome is another than the one reported last is reported again, so rows
//! that come late or an edited rule can raise it. A minute that turns out not to be alarming is never reported. With the
//! configuration `{"repeat": true}` each batch reports what it sees.
//!
//! A router has one alarm. It is raised for the latest alarming minute in every batch that sees one, and cleared when the
//! last full minute has messages of this router and is judged well. A router without messages is left to the host, which
//! clears after some quiet batches. If a count could not be judged, silence proves nothing: the verdict is `NoVerdict`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use weir_sdk::{
    Alarm, Answer, Batch, Description, Detector, Fault, Frame, Kind::*, MINUTE, Severity, Time, Verdict, config,
    state::key,
};

/// The detector, which is its configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct S1Syslog {
    /// Report a minute in every batch that sees it.
    #[serde(default)]
    repeat: bool,
}

weir_sdk::export!(S1Syslog);

/// How long a reported minute and an open alarm are remembered: far longer than any batch looks back.
const MEMORY: Option<Duration> = Some(Duration::from_secs(3600));

impl Detector for S1Syslog {
    fn describe() -> Description {
        // a tag tells apart builds of one version
        let version = match option_env!("WEIR_BUILD_TAG") {
            Some(tag) => format!("{}+{tag}", env!("CARGO_PKG_VERSION")),
            None => env!("CARGO_PKG_VERSION").to_owned(),
        };
        Description::new("s1-syslog", &version)
            .input("s1_router_syslog_events")
            .query("error_counts")
            .rule("1-1")
            .rule("1-2")
            .output("s1_results", |o| {
                o.column("alarm_time", Timestamp)
                    .nullable("router_name", Text)
                    .nullable("router_ip", Text)
                    .column("error_count", Int64)
                    .column("severity", Text)
                    .column("alarm_reason", Text)
                    .column("processing_time", Timestamp)
            })
            .alarm("syslog_errors", ["router_host", "router_ip"])
            .state(1)
    }

    fn prepare(json: &str) -> Result<Self, Fault> {
        config(json)
    }

    fn detect(&self, b: &Batch) -> Result<Verdict, Fault> {
        let t0 = b.time().floor_minute();
        let pattern = b.rule("1-1").want("pattern", Text).run()?.texts("pattern")?;
        let pattern = pattern.get(0).ok_or_else(|| Fault::config("rule 1-1 answers no pattern"))?;

        let counts =
            b.query("error_counts").bind("from", t0 - 2 * MINUTE).bind("to", t0).bind("pattern", pattern).run()?;
        let verdicts = b
            .rule("1-2")
            .each(&b.select(&counts, &["err_cnt"])?)
            .want("should_alarm", Boolean)
            .want("severity", Text)
            .want("alarm_reason", Text)
            .run()?;
        b.reject_failed(&counts, &verdicts)?;

        let mut judged = judge(b, &counts, &verdicts)?;
        mark_fresh(b, &mut judged)?;
        self.report(b, &counts, &verdicts, &judged)?;
        raise_and_clear(b, &counts, &judged, t0 - MINUTE)?;

        Ok(if judged.len() == counts.rows() { Verdict::Judged } else { Verdict::NoVerdict })
    }
}

/// A count of one router in one minute, and what the rule says of it.
struct Judged {
    row: usize,
    minute: Time,
    host: String,
    ip: String,
    err_cnt: i64,
    /// Severity and reason, where it is alarming.
    alarm: Option<(String, String)>,
    /// Whether it is alarming and was not reported like this before.
    fresh: bool,
}

impl Judged {
    fn outcome(&self) -> Option<String> {
        let (severity, reason) = self.alarm.as_ref()?;
        Some(key([severity, reason]))
    }
}

/// The counts with a verdict. A count whose evaluation failed is none; one with half an answer is put aside.
fn judge(b: &Batch, counts: &Frame, verdicts: &Answer) -> Result<Vec<Judged>, Fault> {
    let (minutes, err_cnts) = (counts.timestamps("minute")?, counts.int64s("err_cnt")?);
    let (hosts, ips) = (counts.texts("router_host")?, counts.texts("router_ip")?);
    let should_alarm = verdicts.booleans("should_alarm")?;
    let (severities, reasons) = (verdicts.texts("severity")?, verdicts.texts("alarm_reason")?);

    let (mut judged, mut halves) = (Vec::new(), Vec::new());
    for row in 0..counts.rows() {
        let alarm = match (should_alarm.get(row), severities.get(row), reasons.get(row)) {
            (Some(true), Some(severity), Some(reason)) => Some((severity.into(), reason.into())),
            (Some(false), ..) => None,
            _ if verdicts.is_failed(row) => continue,
            _ => {
                halves.push(counts.row(row));
                continue;
            }
        };
        judged.push(Judged {
            row,
            minute: minutes[row],
            host: hosts[row].to_owned(),
            ip: ips[row].to_owned(),
            err_cnt: err_cnts[row],
            alarm,
            fresh: false,
        });
    }
    b.reject(halves, "rule 1-2 answers no should_alarm, severity or alarm_reason")?;
    Ok(judged)
}

/// Finds the counts whose outcome is not the one that was reported last of their minute, and remembers that it is now.
fn mark_fresh(b: &Batch, judged: &mut [Judged]) -> Result<(), Fault> {
    let minute = |j: &Judged| key([j.minute.to_string().as_str(), &j.host, &j.ip]);
    let reported = b.state().get_many(judged.iter().map(minute))?;
    let mut now = Vec::new();
    for (j, last) in judged.iter_mut().zip(reported) {
        if let Some(outcome) = j.outcome().filter(|outcome| last.as_deref() != Some(outcome.as_bytes())) {
            j.fresh = true;
            now.push((minute(j), outcome));
        }
    }
    b.state().put_many(now, MEMORY)
}

impl S1Syslog {
    /// Rows for `s1_results`.
    fn report(&self, b: &Batch, counts: &Frame, verdicts: &Frame, judged: &[Judged]) -> Result<(), Fault> {
        let due = judged.iter().filter(|j| j.fresh || (self.repeat && j.alarm.is_some()));
        let rows: Vec<usize> = due.map(|j| j.row).collect();
        let (counts, verdicts) = (counts.take(&rows)?, verdicts.take(&rows)?);
        b.output("s1_results")
            .fill([("alarm_time", b.time())], rows.len())?
            .copy("router_name", &counts, "router_host")?
            .copy("router_ip", &counts, "router_ip")?
            .copy("error_count", &counts, "err_cnt")?
            .copy("severity", &verdicts, "severity")?
            .copy("alarm_reason", &verdicts, "alarm_reason")?
            .copy("processing_time", &counts, "minute")?
            .finish()?;
        Ok(())
    }
}

/// One alarm a router, for its latest alarming minute, unless it is known to be over.
fn raise_and_clear(b: &Batch, counts: &Frame, judged: &[Judged], last_minute: Time) -> Result<(), Fault> {
    let mut routers: BTreeMap<(&str, &str), Vec<&Judged>> = BTreeMap::new();
    for j in judged {
        routers.entry((&j.host, &j.ip)).or_default().push(j);
    }
    let open_key = |(host, ip): &(&str, &str)| key(["open", host, ip]);
    let open = b.state().get_many(routers.keys().map(open_key))?;

    let (mut alarms, mut opened, mut closed) = (Vec::new(), Vec::new(), Vec::new());
    for ((router @ (host, ip), minutes), open) in routers.iter().zip(open) {
        let over = minutes.iter().any(|j| j.minute == last_minute && j.alarm.is_none());
        let latest = minutes.iter().rev().find(|j| j.alarm.is_some());
        match latest {
            _ if over && open.is_some() => {
                alarms.push(Alarm::clear("syslog_errors", [*host, *ip]));
                closed.push(open_key(router));
            }
            // what is over and was never told, because batches were skipped, is told once
            Some(j) if !over || j.fresh => {
                alarms.push(alarm(j, counts));
                opened.push((open_key(router), ""));
            }
            _ => {}
        }
    }
    b.state().put_many(opened, MEMORY)?;
    b.state().delete(closed)?;
    b.alarms(alarms)
}

/// A severity that is none of ours is raised as a warning, so that a typing error in a rule loses no alarm; the row of
/// `s1_results` has the rule's own text.
fn alarm(j: &Judged, counts: &Frame) -> Alarm {
    let (severity, reason) = j.alarm.clone().unwrap_or_default();
    let level = severity.parse().unwrap_or(Severity::Warning);
    Alarm::raise("syslog_errors", [&j.host, &j.ip], level)
        .message(format!("{} ({}): {} lease errors in {}, {severity}: {reason}", j.host, j.ip, j.err_cnt, j.minute))
        .field("err_cnt", j.err_cnt)
        .field("minute", j.minute)
        .because(counts.row(j.row))
}
