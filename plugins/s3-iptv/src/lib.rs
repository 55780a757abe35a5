//! S3: multicast surges at the routers behind an OLT that keeps an alarm.
//!
//! Rule `3-1` says how many minutes n an OLT alarm must last. Each batch takes the OLT alarms that are exactly n minutes
//! old and were not cleared since (query `persisting_alarms`), walks the topology from those OLTs to the routers that
//! serve them (`service_interfaces`), and compares each interface's multicast traffic of the minute that follows the alarm
//! with the 3n minutes before (`multicast_traffic`). Each query reads the rows of the one before as a table. Rule `3-2`
//! judges each interface; what is alarming becomes a row of `s3_results` and an alarm of the interface.
//!
//! An interface is reported once per minute, or again when the rule answers another severity. With the configuration
//! `{"repeat": true}` each batch reports what it sees.
//!
//! An interface has one alarm. It is raised in every batch that judges it so. It is cleared for certain when all the OLT
//! alarms that led to it have been cleared (query `cleared_alarms`); a surge that is merely over is left to the host, which
//! clears after some quiet batches. If an interface could not be judged, silence proves nothing: the verdict is
//! `NoVerdict`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use weir_sdk::{
    Alarm, Answer, Batch, Description, Detector, Fault, Frame, Kind::*, MINUTE, Severity, Time, Verdict, config,
    state::key,
};

mod open;

use open::Open;

/// The detector, which is its configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct S3Iptv {
    /// Report an interface in every batch that finds it alarming.
    #[serde(default)]
    repeat: bool,
}

weir_sdk::export!(S3Iptv);

/// How long a report and an open alarm are remembered.
const MEMORY: Option<Duration> = Some(Duration::from_secs(24 * 3600));

/// The longest that an OLT alarm may be asked to last: a day. A batch looks back four times as far.
const LONGEST: i64 = 24 * 60;

/// How bad an alarm is where the rule does not say: an interface that floods a network with a defect.
const SEVERITY: Severity = Severity::Major;

impl Detector for S3Iptv {
    fn describe() -> Description {
        Description::new("s3-iptv", env!("CARGO_PKG_VERSION"))
            .query("persisting_alarms")
            .query("cleared_alarms")
            .query("service_interfaces")
            .query("multicast_traffic")
            .rule("3-1")
            .rule("3-2")
            .output("s3_results", |o| {
                o.column("created_at", Timestamp)
                    .column("ser_equip_ip", Text)
                    .column("ser_phys_if_nm", Text)
                    .nullable("diff_ratio", Float64)
                    .nullable("last_1m_val", Int64)
                    .nullable("avg_3nm_val", Float64)
            })
            .alarm("multicast_surge", ["ser_equip_ip", "ser_phys_if_nm"])
            .state(1)
    }

    fn prepare(json: &str) -> Result<Self, Fault> {
        config(json)
    }

    fn detect(&self, b: &Batch) -> Result<Verdict, Fault> {
        let t0 = b.time().floor_minute();
        let n = interval(b)?;
        let since = t0 - MINUTE * n;

        let mut open = Open::load(b)?;
        if !open.is_empty() {
            let cleared = b.query("cleared_alarms").bind("from", since).bind("to", t0).run()?;
            open.forget(&causes(&cleared)?);
        }
        let olts =
            b.query("persisting_alarms").bind("from", since - MINUTE).bind("since", since).bind("to", t0).run()?;
        let mut whole = true;
        if olts.rows() > 0 {
            let interfaces = b.query("service_interfaces").bind_rows("olts", &olts).run()?;
            if interfaces.rows() > 0 {
                let traffic = b
                    .query("multicast_traffic")
                    .bind_rows("interfaces", &interfaces)
                    .bind("from", t0 - MINUTE * (4 * n))
                    .bind("since", since)
                    .bind("to", since + MINUTE)
                    .run()?;
                whole = self.judge(b, &interfaces, &traffic, &mut open, t0)?;
            }
        }
        open.save(b)?;
        Ok(if whole { Verdict::Judged } else { Verdict::NoVerdict })
    }
}

/// What rule 3-1 says.
fn interval(b: &Batch) -> Result<u32, Fault> {
    let answer = b.rule("3-1").want("interval", Int64).run()?.int64s("interval")?;
    let interval = answer.get(0).ok_or_else(|| Fault::config("rule 3-1 answers no interval"))?;
    u32::try_from(interval).ok().filter(|n| (1..=LONGEST).contains(&i64::from(*n))).ok_or_else(|| {
        Fault::config(format!(
            "rule 3-1 answers the interval {interval}: how many minutes an OLT alarm must last is 1 to {LONGEST}"
        ))
    })
}

/// Address and name of an interface.
type Interface = (String, String);

/// OLT and rule of each row: what an alarm of an interface came from.
fn causes(rows: &Frame) -> Result<BTreeSet<String>, Fault> {
    let (olts, rules) = (rows.texts("olt_ip")?, rows.texts("rule_id")?);
    Ok((0..rows.rows()).map(|row| key([&olts[row], &rules[row]])).collect())
}

/// What led to an interface: its rows in `service_interfaces` and the OLT alarms they name.
#[derive(Default)]
struct Cause {
    rows: Vec<usize>,
    alarms: BTreeSet<String>,
    /// For people: `OLT 192.0.2.23 (R822)`.
    said: BTreeSet<String>,
}

fn by_interface(interfaces: &Frame) -> Result<BTreeMap<Interface, Cause>, Fault> {
    let (olts, rules) = (interfaces.texts("olt_ip")?, interfaces.texts("rule_id")?);
    let (nodes, names) = (interfaces.texts("ser_equip_ip")?, interfaces.texts("ser_phys_if_nm")?);
    let mut all: BTreeMap<Interface, Cause> = BTreeMap::new();
    for row in 0..interfaces.rows() {
        let cause = all.entry((nodes[row].to_owned(), names[row].to_owned())).or_default();
        cause.rows.push(row);
        cause.alarms.insert(key([&olts[row], &rules[row]]));
        cause.said.insert(format!("OLT {} ({})", &olts[row], &rules[row]));
    }
    Ok(all)
}

/// An interface that the rule finds alarming.
struct Alarming {
    row: usize,
    interface: Interface,
    severity: Severity,
    outcome: String,
}

impl S3Iptv {
    /// Has the rule judge each interface, reports and raises. Answers whether all could be judged.
    fn judge(
        &self,
        b: &Batch,
        interfaces: &Frame,
        traffic: &Frame,
        open: &mut Open,
        minute: Time,
    ) -> Result<bool, Fault> {
        let verdicts = b.rule("3-2").each(traffic).want("is_alarm", Boolean).want("severity", Text).run()?;
        b.reject_failed(traffic, &verdicts)?;
        let (alarming, whole) = alarming(b, traffic, &verdicts)?;
        self.report(b, traffic, &alarming, minute)?;

        let causes = by_interface(interfaces)?;
        let mut alarms = Vec::new();
        let numbers = Numbers::of(traffic)?;
        for found in &alarming {
            let Some(cause) = causes.get(&found.interface) else {
                return Err(Fault::input(format!(
                    "query 'multicast_traffic' answers the interface {} {}, which was not asked for",
                    found.interface.0, found.interface.1
                )));
            };
            open.raise(&found.interface, &cause.alarms);
            let alarm = numbers.alarm(found, cause, minute);
            let alarm = alarm.because(traffic.row(found.row));
            alarms.push(cause.rows.iter().fold(alarm, |alarm, row| alarm.because(interfaces.row(*row))));
        }
        b.alarms(alarms)?;
        Ok(whole)
    }

    /// Rows for `s3_results`: of the interfaces that were not reported like this in this minute.
    fn report(&self, b: &Batch, traffic: &Frame, alarming: &[Alarming], minute: Time) -> Result<(), Fault> {
        // one entry an interface: no batch looks at a minute before the one that was looked at last
        let reported = |found: &Alarming| key(["reported", &found.interface.0, &found.interface.1]);
        let last = b.state().get_many(alarming.iter().map(reported))?;
        let (mut rows, mut now) = (Vec::new(), Vec::new());
        for (found, last) in alarming.iter().zip(last) {
            let outcome = format!("{minute} {}", found.outcome);
            let fresh = last.as_deref() != Some(outcome.as_bytes());
            if fresh {
                now.push((reported(found), outcome));
            }
            if fresh || self.repeat {
                rows.push(found.row);
            }
        }
        b.state().put_many(now, MEMORY)?;
        let rows = traffic.take(&rows)?;
        let last = rows.float64s("last_1m_tx_multicast_pkts")?;
        b.output("s3_results")
            .fill([("created_at", b.time())], rows.rows())?
            .copy("ser_equip_ip", &rows, "ser_equip_ip")?
            .copy("ser_phys_if_nm", &rows, "ser_phys_if_nm")?
            .copy("diff_ratio", &rows, "diff_ratio")?
            .int64s("last_1m_val", last.iter().map(|mean| mean.map(whole_packets)))?
            .copy("avg_3nm_val", &rows, "avg_3nm_tx_multicast_pkts")?
            .finish()?;
        Ok(())
    }
}

/// A mean of counts to the nearest whole one. Beyond what an int64 holds it is the largest that it holds.
fn whole_packets(mean: f64) -> i64 {
    mean.round() as i64
}

/// The interfaces that the rule finds alarming, and whether all could be judged.
fn alarming(b: &Batch, traffic: &Frame, verdicts: &Answer) -> Result<(Vec<Alarming>, bool), Fault> {
    let (nodes, names) = (traffic.texts("ser_equip_ip")?, traffic.texts("ser_phys_if_nm")?);
    let (is_alarm, severities) = (verdicts.booleans("is_alarm")?, verdicts.texts("severity")?);
    let (mut alarming, mut halves) = (Vec::new(), Vec::new());
    for row in 0..traffic.rows() {
        match is_alarm.get(row) {
            Some(true) => alarming.push(Alarming {
                row,
                interface: (nodes[row].to_owned(), names[row].to_owned()),
                // a severity that is none of ours must lose no alarm
                severity: severities.get(row).and_then(|text| text.parse().ok()).unwrap_or(SEVERITY),
                outcome: key(["alarm", severities.get(row).unwrap_or("")]),
            }),
            Some(false) => {}
            None if verdicts.is_failed(row) => {}
            None => halves.push(traffic.row(row)),
        }
    }
    let whole = halves.is_empty() && verdicts.failed().is_empty();
    b.reject(halves, "rule 3-2 answers no is_alarm")?;
    Ok((alarming, whole))
}

/// What an alarm tells of its interface.
struct Numbers {
    last: weir_sdk::Column<f64>,
    average: weir_sdk::Column<f64>,
    ratio: weir_sdk::Column<f64>,
}

impl Numbers {
    fn of(traffic: &Frame) -> Result<Self, Fault> {
        Ok(Self {
            last: traffic.float64s("last_1m_tx_multicast_pkts")?,
            average: traffic.float64s("avg_3nm_tx_multicast_pkts")?,
            ratio: traffic.float64s("diff_ratio")?,
        })
    }

    fn alarm(&self, found: &Alarming, cause: &Cause, minute: Time) -> Alarm {
        let (node, name) = &found.interface;
        let number = |value: Option<f64>| value.map_or("no".to_owned(), |value| format!("{value:.0}"));
        let row = found.row;
        let said: Vec<&str> = cause.said.iter().map(String::as_str).collect();
        Alarm::raise("multicast_surge", [node, name], found.severity)
            .message(format!(
                "{node} {name}: {} multicast packets a minute, {} on average before; behind {}",
                number(self.last.get(row)),
                number(self.average.get(row)),
                said.join(", ")
            ))
            .field("diff_ratio", self.ratio.get(row))
            .field("last_1m", self.last.get(row))
            .field("avg_3nm", self.average.get(row))
            .field("minute", minute)
    }
}
