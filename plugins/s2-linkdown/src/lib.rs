//! S2: where traffic leaves its forecast after a link went down.
//!
//! Each batch takes the links that went down in the fifth minute before T (query `linkdown_links`), the devices on them
//! (`link_devices`), and their traffic against the forecast in the third and second minute before T
//! (`traffic_anomalies`). Each query reads the rows of the one before as a table. Rule `2` gets the rows of the last one
//! and says which devices are alarming; those become rows of `s2_results` and alarms of the device.
//!
//! A device is reported once per minute and outcome: an outcome is what the rule counted of it (high_count, low_count and
//! its severity, if it answers one). With the configuration `{"repeat": true}` each batch reports what it sees.
//!
//! A device has one alarm. It is raised in every batch whose rule names the device, and cleared when a batch sees it in
//! both minutes with nothing but normal traffic. When no link goes down there is nothing to look at: that is left to the
//! host, which clears after some quiet batches.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use weir_sdk::{
    Alarm, Answer, Batch, Description, Detector, Fault, Frame, Kind::*, MINUTE, Severity, Time, Verdict, config,
    state::key,
};

/// The detector, which is its configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct S2Linkdown {
    /// Report a device in every batch that finds it alarming.
    #[serde(default)]
    repeat: bool,
}

weir_sdk::export!(S2Linkdown);

/// How long a report and an open alarm are remembered: far longer than any batch looks back.
const MEMORY: Option<Duration> = Some(Duration::from_secs(24 * 3600));

/// How bad an alarm is where the rule does not say: the traffic of a link that is gone has left its paths.
const SEVERITY: Severity = Severity::Major;

impl Detector for S2Linkdown {
    fn describe() -> Description {
        Description::new("s2-linkdown", env!("CARGO_PKG_VERSION"))
            .query("linkdown_links")
            .query("link_devices")
            .query("traffic_anomalies")
            .rule("2")
            .output("s2_results", |o| {
                o.column("created_at", Timestamp)
                    .column("router_ip", Text)
                    .column("local_device_name", Text)
                    .column("high_count", Int64)
                    .column("low_count", Int64)
            })
            .alarm("traffic_anomaly", ["router_ip", "local_device_name"])
            .state(1)
    }

    fn prepare(json: &str) -> Result<Self, Fault> {
        config(json)
    }

    fn detect(&self, b: &Batch) -> Result<Verdict, Fault> {
        let t0 = b.time().floor_minute();
        let target = t0 - 5 * MINUTE;
        let links = b.query("linkdown_links").bind("from", target).bind("to", target + MINUTE).run()?;
        if links.rows() == 0 {
            return Ok(Verdict::Judged);
        }
        let devices = b.query("link_devices").bind_rows("links", &links).run()?;
        let traffic = b
            .query("traffic_anomalies")
            .bind_rows("devices", &devices)
            .bind("from", target + 2 * MINUTE)
            .bind("to", target + 4 * MINUTE)
            .run()?;
        if traffic.rows() == 0 {
            return Ok(Verdict::Judged);
        }
        let answer = b
            .rule("2")
            .bind_rows("anomaly_results", &traffic)
            .unnest("alarms")
            .want("created_at", Timestamp)
            .want("router_ip", Text)
            .want("local_device_name", Text)
            .want("high_count", Int64)
            .want("low_count", Int64)
            .want("severity", Text)
            .run()?;

        let (alarming, whole) = alarming(b, &answer)?;
        self.report(b, &answer, &alarming, t0)?;
        raise_and_clear(b, &traffic, &alarming, target)?;
        Ok(if whole { Verdict::Judged } else { Verdict::NoVerdict })
    }
}

/// Router and device name.
type Device = (String, String);

/// What the rule says of a device.
struct Alarming {
    /// Its rows of the answer; a rule may well name a device more than once.
    rows: Vec<usize>,
    high: i64,
    low: i64,
    severity: Severity,
    outcome: String,
}

/// The devices that the rule names, and whether all of its rows could be used. One that misses a name or a count is put
/// aside.
fn alarming(b: &Batch, answer: &Answer) -> Result<(BTreeMap<Device, Alarming>, bool), Fault> {
    let (routers, devices) = (answer.texts("router_ip")?, answer.texts("local_device_name")?);
    let (highs, lows) = (answer.int64s("high_count")?, answer.int64s("low_count")?);
    let severities = answer.texts("severity")?;
    let (mut alarming, mut halves) = (BTreeMap::new(), Vec::new());
    for row in 0..answer.rows() {
        let (Some(router), Some(device), Some(high), Some(low)) =
            (routers.get(row), devices.get(row), highs.get(row), lows.get(row))
        else {
            halves.push(answer.row(row));
            continue;
        };
        // a severity that is none of ours must lose no alarm
        let severity = severities.get(row).and_then(|text| text.parse().ok()).unwrap_or(SEVERITY);
        let one = key([high.to_string().as_str(), &low.to_string(), severities.get(row).unwrap_or("")]);
        let entry = alarming.entry((router.to_owned(), device.to_owned()));
        let seen: &mut Alarming =
            entry.or_insert_with(|| Alarming { rows: Vec::new(), high, low, severity, outcome: String::new() });
        seen.rows.push(row);
        seen.high = seen.high.max(high);
        seen.low = seen.low.max(low);
        seen.severity = seen.severity.max(severity);
        seen.outcome = format!("{}{one};", seen.outcome);
    }
    let whole = halves.is_empty();
    b.reject(halves, "rule 2 answers an alarm without router_ip, local_device_name, high_count or low_count")?;
    Ok((alarming, whole))
}

impl S2Linkdown {
    /// Rows for `s2_results`: of the devices whose outcome is not the one that was reported last of this minute.
    fn report(
        &self,
        b: &Batch,
        answer: &Answer,
        alarming: &BTreeMap<Device, Alarming>,
        minute: Time,
    ) -> Result<(), Fault> {
        // one entry a device: no batch looks at a minute before the one that was looked at last
        let reported = |(router, device): &Device| key(["reported", router, device]);
        let last = b.state().get_many(alarming.keys().map(reported))?;
        let (mut rows, mut now) = (Vec::new(), Vec::new());
        for ((device, seen), last) in alarming.iter().zip(last) {
            let outcome = format!("{minute} {}", seen.outcome);
            let fresh = last.as_deref() != Some(outcome.as_bytes());
            if fresh {
                now.push((reported(device), outcome));
            }
            if fresh || self.repeat {
                rows.extend(&seen.rows);
            }
        }
        b.state().put_many(now, MEMORY)?;
        let rows = answer.take(&rows)?;
        // a rule that stamps nothing means now
        let stamps = rows.timestamps("created_at")?;
        b.output("s2_results")
            .timestamps("created_at", stamps.iter().map(|at| at.unwrap_or(b.time())))?
            .copy("router_ip", &rows, "router_ip")?
            .copy("local_device_name", &rows, "local_device_name")?
            .copy("high_count", &rows, "high_count")?
            .copy("low_count", &rows, "low_count")?
            .finish()?;
        Ok(())
    }
}

/// What the traffic of a device looks like in this batch.
#[derive(Default)]
struct Seen {
    rows: Vec<usize>,
    minutes: BTreeSet<Time>,
    anomalies: usize,
}

/// One alarm for each device that the rule names. One that is open and seen well in both minutes is over.
fn raise_and_clear(
    b: &Batch,
    traffic: &Frame,
    alarming: &BTreeMap<Device, Alarming>,
    target: Time,
) -> Result<(), Fault> {
    let (routers, devices) = (traffic.texts("router_ip")?, traffic.texts("local_device_name")?);
    let (minutes, flags) = (traffic.timestamps("minute_kst")?, traffic.texts("anomaly_flag")?);
    let mut seen: BTreeMap<(&str, &str), Seen> = BTreeMap::new();
    for row in 0..traffic.rows() {
        let device = seen.entry((&routers[row], &devices[row])).or_default();
        device.rows.push(row);
        device.minutes.insert(minutes[row]);
        device.anomalies += usize::from(&flags[row] != "normal");
    }

    let open = |router: &str, device: &str| key(["open", router, device]);
    let mut alarms = Vec::new();
    let mut opened = Vec::new();
    for ((router, device), found) in alarming {
        let rows = seen.get(&(router.as_str(), device.as_str())).map_or(&[][..], |seen| &seen.rows);
        alarms.push(alarm(router, device, found, target, traffic, rows));
        opened.push((open(router, device), ""));
    }

    let well = seen.iter().filter(|(_, seen)| seen.anomalies == 0 && seen.minutes.len() == 2);
    let well: Vec<_> = well
        .map(|(device, _)| *device)
        .filter(|(router, device)| !alarming.contains_key(&((*router).to_owned(), (*device).to_owned())))
        .collect();
    let was_open = b.state().get_many(well.iter().map(|(router, device)| open(router, device)))?;
    let mut closed = Vec::new();
    for ((router, device), _) in well.iter().zip(was_open).filter(|(_, was_open)| was_open.is_some()) {
        alarms.push(Alarm::clear("traffic_anomaly", [*router, *device]));
        closed.push(open(router, device));
    }
    b.state().put_many(opened, MEMORY)?;
    b.state().delete(closed)?;
    b.alarms(alarms)
}

fn alarm(router: &str, device: &str, found: &Alarming, target: Time, traffic: &Frame, rows: &[usize]) -> Alarm {
    let minutes = |count: i64| if count == 1 { "1 minute".to_owned() } else { format!("{count} minutes") };
    let text = match (found.high, found.low) {
        (high, 0) => format!("above the forecast in {}", minutes(high)),
        (0, low) => format!("below the forecast in {}", minutes(low)),
        (high, low) => format!("above the forecast in {}, below it in {}", minutes(high), minutes(low)),
    };
    let alarm = Alarm::raise("traffic_anomaly", [router, device], found.severity)
        .message(format!("{device} ({router}): traffic {text} after a link went down at {} UTC", target.hour_minute()))
        .field("high_count", found.high)
        .field("low_count", found.low)
        .field("linkdown_minute", target);
    rows.iter().fold(alarm, |alarm, row| alarm.because(traffic.row(*row)))
}
