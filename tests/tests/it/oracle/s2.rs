//! S2 as the spec has it: where a link went down, traffic against its forecast.
//!
//! Where the spec is silent: a row of the topology without a device's name, and a router without an address, take no part; a
//! link that the topology lists twice has its traffic counted twice, as any join does; averages leave nulls out, and a bound
//! that is null in all rows is missing; an alarm is major, and over once both minutes of its device are normal.

use std::collections::{BTreeMap, BTreeSet};

use weir_model::Severity;

use super::{Cell, MINUTE, Said, Seen, minute_of, sorted};

type Text = Option<String>;

#[derive(Debug, Clone)]
pub(super) struct Linkdown {
    pub at: i64,
    pub router: Text,
    pub link_type: Text,
}

#[derive(Debug, Clone)]
pub(super) struct Topology {
    pub link_type: Text,
    pub device: Text,
    pub address: Text,
    pub interface: Text,
}

#[derive(Debug, Clone)]
pub(super) struct Traffic {
    pub at: i64,
    pub router: Text,
    pub interface: Text,
    pub rx_bytes: Option<i64>,
}

#[derive(Debug, Clone)]
pub(super) struct Forecast {
    pub at: i64,
    pub router: Text,
    pub link_type: Text,
    pub lower: Option<f64>,
    pub upper: Option<f64>,
    pub phase: Text,
}

#[derive(Debug)]
pub(super) struct Data<'a> {
    pub linkdowns: Vec<&'a Linkdown>,
    pub topology: &'a [Topology],
    pub traffic: Vec<&'a Traffic>,
    pub forecast: Vec<&'a Forecast>,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Of a device: the minute that was evaluated and its counts.
    reported: BTreeMap<Vec<String>, (i64, i64, i64)>,
    open: BTreeMap<Vec<String>, (Severity, i64)>,
}

/// Router and link type.
type Pair = (String, String);
/// Router, link type, device.
type Device = (String, String, String);

/// What is known of a device in a minute.
#[derive(Default)]
struct Minute<'a> {
    /// None: there was no traffic.
    bytes: Option<i128>,
    forecast: Vec<&'a Forecast>,
}

/// Whether a name of traffic is that of a topology row.
fn same_interface(link_type: &str, a: &str, b: &str) -> bool {
    if link_type == "CORE-METRO" {
        a.strip_suffix(".0").unwrap_or(a) == b.strip_suffix(".0").unwrap_or(b)
    } else {
        a == b
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() { None } else { Some(values.iter().sum::<f64>() / values.len() as f64) }
}

/// Links that went down in the minute `target`.
fn down(events: &[&Linkdown], target: i64, seen: &mut Seen) -> BTreeSet<Pair> {
    let mut pairs = BTreeSet::new();
    for event in events {
        seen.when("a linkdown at its minute's start", event.at == target);
        seen.when("a linkdown at its minute's end", event.at == target + MINUTE);
        if !(target..target + MINUTE).contains(&event.at) {
            continue;
        }
        seen.when("a linkdown without a router or a link type", event.router.is_none() || event.link_type.is_none());
        let (Some(router), Some(link_type)) = (&event.router, &event.link_type) else { continue };
        if seen.when("a linkdown of another link", link_type != "CORE-METRO" && link_type != "CORE-EDGE") {
            continue;
        }
        let new = pairs.insert((router.clone(), link_type.clone()));
        seen.when("two linkdowns of one link", !new);
    }
    pairs
}

/// Devices on these links, with the names of their interfaces.
fn devices(pairs: &BTreeSet<Pair>, topology: &[Topology], seen: &mut Seen) -> BTreeMap<Device, Vec<Text>> {
    let mut all: BTreeMap<Device, Vec<Text>> = BTreeMap::new();
    for (router, link_type) in pairs {
        for link in topology {
            if link.address.as_ref() != Some(router) || link.link_type.as_ref() != Some(link_type) {
                continue;
            }
            if seen.when("a topology row without a device", link.device.is_none()) {
                continue;
            }
            let device = (router.clone(), link_type.clone(), link.device.clone().unwrap_or_default());
            let interfaces = all.entry(device).or_default();
            seen.when("a link that the topology lists twice", interfaces.contains(&link.interface));
            seen.when("a topology row without an interface", link.interface.is_none());
            interfaces.push(link.interface.clone());
        }
    }
    all
}

/// Traffic and forecast of a device, by minute in [from, to).
fn minutes<'a>(
    (router, link_type, _): &Device,
    interfaces: &[Text],
    data: &Data<'a>,
    (from, to): (i64, i64),
    seen: &mut Seen,
) -> BTreeMap<i64, Minute<'a>> {
    let mut all: BTreeMap<i64, Minute<'a>> = BTreeMap::new();
    for interface in interfaces.iter().flatten() {
        for sample in data.traffic.iter().filter(|sample| sample.router.as_ref() == Some(router)) {
            seen.when("traffic at the window's start", sample.at == from);
            seen.when("traffic just before the window", sample.at == from - 1);
            seen.when("traffic just before the window's end", sample.at == to - 1);
            seen.when("traffic at the window's end", sample.at == to);
            if !(from..to).contains(&sample.at) || seen.when("traffic without a name", sample.interface.is_none()) {
                continue;
            }
            let name = sample.interface.as_deref().unwrap_or_default();
            let same = same_interface(link_type, name, interface);
            seen.when("names that differ in .0, CORE-METRO", same && name != interface);
            seen.when("names that differ in .0, CORE-EDGE", !same && same_interface("CORE-METRO", name, interface));
            if same {
                seen.when("traffic without bytes", sample.rx_bytes.is_none());
                let minute = all.entry(minute_of(sample.at)).or_default();
                *minute.bytes.get_or_insert(0) += i128::from(sample.rx_bytes.unwrap_or(0));
            }
        }
    }
    for row in &data.forecast {
        let own = row.router.as_ref() == Some(router) && row.link_type.as_ref() == Some(link_type);
        if own && (from..to).contains(&row.at) {
            all.entry(minute_of(row.at)).or_default().forecast.push(row);
        }
    }
    all
}

/// The row that rule 2 gets of a device's minute, and its flag.
fn given(device: &Device, at: i64, minute: &Minute<'_>, seen: &mut Seen) -> (Vec<Cell>, &'static str) {
    let actual = minute.bytes.map(|bytes| bytes as f64 * 8.0 / (1e9 * 60.0));
    let rows = &minute.forecast;
    let lower = mean(&rows.iter().filter_map(|row| row.lower).collect::<Vec<_>>());
    let upper = mean(&rows.iter().filter_map(|row| row.upper).collect::<Vec<_>>());
    let phase = rows.iter().filter_map(|row| row.phase.clone()).max();
    seen.when("traffic without a forecast", rows.is_empty());
    seen.when("a forecast without traffic", actual.is_none());
    seen.when("a forecast of several rows", rows.len() > 1);
    seen.when("a forecast without a lower bound", !rows.is_empty() && lower.is_none());
    seen.when("a forecast without an upper bound", !rows.is_empty() && upper.is_none());
    seen.when("a forecast without a phase", !rows.is_empty() && phase.is_none());

    let flow = actual.unwrap_or(0.0);
    let shown = (flow * 100.0).round() / 100.0;
    seen.when("traffic that is its upper bound", upper == Some(flow));
    seen.when("traffic that is its lower bound", lower == Some(flow));
    seen.when("traffic above its bound by less than is shown", upper.is_some_and(|u| flow > u && shown <= u));
    let (high, low) = (flow > upper.unwrap_or(999_999.0), flow < lower.unwrap_or(-999_999.0));
    seen.when("traffic above its upper and below its lower bound", high && low);
    seen.when("traffic above what is taken for no bound", high && upper.is_none());
    let flag = match (high, low) {
        (true, _) => "high_anomaly",
        (false, true) => "low_anomaly",
        _ => "normal",
    };
    let text = |text: &str| Cell::Text(text.to_owned());
    let row = vec![
        Cell::Time(at),
        text(&device.0),
        text(&device.2),
        text(&device.1),
        Cell::Float(shown),
        Cell::Float(lower.unwrap_or(0.0)),
        Cell::Float(upper.unwrap_or(0.0)),
        text(flag),
        text(phase.as_deref().unwrap_or("unknown")),
    ];
    (row, flag)
}

/// What rule 2 counts of a device, over all of its links.
#[derive(Default)]
struct Counts {
    high: i64,
    low: i64,
    minutes: BTreeSet<i64>,
}

/// The rows that rule 2 gets, and what is said. The first are compared too: results alone say little of them.
pub(super) fn judge(data: &Data<'_>, time: i64, memory: &mut Memory, seen: &mut Seen) -> (Vec<Vec<Cell>>, Said) {
    let t0 = minute_of(time);
    let target = t0 - 5 * MINUTE;
    let pairs = down(&data.linkdowns, target, seen);
    seen.when("no linkdown", pairs.is_empty());

    let mut for_rule = Vec::new();
    let mut counts: BTreeMap<Vec<String>, Counts> = BTreeMap::new();
    for (device, interfaces) in devices(&pairs, data.topology, seen) {
        let window = (target + 2 * MINUTE, target + 4 * MINUTE);
        for (at, minute) in minutes(&device, &interfaces, data, window, seen) {
            let (row, flag) = given(&device, at, &minute, seen);
            for_rule.push(row);
            let counts = counts.entry(vec![device.0.clone(), device.2.clone()]).or_default();
            counts.high += i64::from(flag == "high_anomaly");
            counts.low += i64::from(flag == "low_anomaly");
            counts.minutes.insert(at);
        }
    }

    let mut rows = Vec::new();
    for (key, Counts { high, low, minutes }) in counts {
        seen.when("one minute above, one below", high == 1 && low == 1);
        seen.when("a device of several links", high + low > 2);
        if high >= 2 || low >= 2 {
            seen.when("a device that is above", high >= 2);
            seen.when("a device that is below", low >= 2);
            memory.open.insert(key.clone(), (Severity::Major, time));
            let before = memory.reported.insert(key.clone(), (t0, high, low));
            if seen.when("a minute that was reported", before == Some((t0, high, low))) {
                continue;
            }
            seen.when("other counts than were reported", before.is_some_and(|before| before.0 == t0));
            let name = |i: usize| Cell::Text(key[i].clone());
            rows.push(vec![Cell::Time(time), name(0), name(1), Cell::Int(high), Cell::Int(low)]);
        } else if high + low == 0 && minutes.len() == 2 {
            seen.when("an alarm that is over", memory.open.remove(&key).is_some());
        }
    }
    seen.when("rows", !rows.is_empty());
    seen.when("silence", rows.is_empty());
    (sorted(for_rule), Said { rows: sorted(rows), open: memory.open.clone() })
}
