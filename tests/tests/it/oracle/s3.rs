//! S3 as the spec has it: OLT alarms that persist, the routers that serve those OLTs, and their multicast traffic.
//!
//! Where the spec is silent: an interface that two ways lead to is one interface; sums leave nulls out, and a group of nulls
//! alone has no sum; `last_1m_val` is the mean to the nearest whole number; what has no ratio makes no alarm; an alarm is
//! major, and over once all OLT alarms that led to it have a clearing event.

use std::collections::{BTreeMap, BTreeSet};

use weir_model::Severity;

use super::{Cell, MINUTE, Said, Seen, minute_of, sorted};

type Text = Option<String>;

#[derive(Debug, Clone)]
pub(super) struct Olt {
    pub at: i64,
    pub rule: Text,
    pub status: Text,
    pub address: Text,
}

#[derive(Debug, Clone)]
pub(super) struct Topology {
    pub link_type: Text,
    pub local: Text,
    pub interface: Text,
    pub remote: Text,
}

#[derive(Debug, Clone)]
pub(super) struct Traffic {
    pub at: i64,
    pub router: Text,
    pub interface: Text,
    pub packets: Option<i64>,
}

#[derive(Debug)]
pub(super) struct World {
    pub topology: Vec<Topology>,
    pub inventory: Vec<Text>,
}

/// OLT and rule.
type Cause = (String, String);
/// Address and name.
type Interface = Vec<String>;

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Of an interface: the minute that was reported.
    reported: BTreeMap<Interface, i64>,
    open: BTreeMap<Interface, (Severity, i64)>,
    /// The OLT alarms that led to an open alarm and were not cleared.
    causes: BTreeMap<Interface, BTreeSet<Cause>>,
}

/// OLT alarms that persist at `t0`.
fn persisting(events: &[&Olt], t0: i64, n: i64, seen: &mut Seen) -> BTreeSet<Cause> {
    let (from, since) = (t0 - (n + 1) * MINUTE, t0 - n * MINUTE);
    let mut all = BTreeSet::new();
    for event in events {
        seen.when("an OLT alarm at its minute's start", event.at == from);
        seen.when("an OLT alarm just before it", event.at == from - 1);
        if !(from..since).contains(&event.at) {
            continue;
        }
        let (Some(rule), Some(status), Some(olt)) = (&event.rule, &event.status, &event.address) else {
            seen.when("an OLT event with a null", true);
            continue;
        };
        let (known, alarming) = (["R001", "R822"].contains(&&**rule), ["1", "2"].contains(&&**status));
        seen.when("an OLT alarm of another rule", alarming && !known);
        seen.when("status 0", known && status == "0");
        seen.when("status 1", known && status == "1");
        seen.when("status 2", known && status == "2");
        seen.when("status 3", known && status == "3");
        if !known || !alarming {
            continue;
        }
        let clearing: Vec<i64> = events
            .iter()
            .filter(|e| e.status.as_deref() == Some("0") && e.rule == event.rule && e.address == event.address)
            .map(|e| e.at)
            .collect();
        let cancelled = clearing.iter().any(|at| (since..t0).contains(at));
        seen.when("an OLT alarm that is cancelled", cancelled);
        seen.when("cleared at the very start", clearing.contains(&since));
        seen.when("cleared just too late", !cancelled && clearing.contains(&t0));
        seen.when("cleared before it persists", !cancelled && clearing.iter().any(|at| *at < since));
        if !cancelled {
            let new = all.insert((olt.clone(), rule.clone()));
            seen.when("an OLT alarm that came twice", !new);
        }
    }
    all
}

/// Interfaces of service nodes, with the OLT alarms that lead to them.
fn serving(world: &World, olts: &BTreeSet<Cause>, seen: &mut Seen) -> BTreeMap<Interface, BTreeSet<Cause>> {
    let mut all: BTreeMap<Interface, BTreeSet<Cause>> = BTreeMap::new();
    for cause in olts {
        for d1 in world.topology.iter().filter(|d1| d1.remote.as_ref() == Some(&cause.0)) {
            let mut nodes: Vec<&Topology> = Vec::new();
            match d1.link_type.as_deref() {
                Some("EDGE-OLT") => {
                    let above = |d2: &Topology| d2.link_type.as_deref() == Some("EDGE-AGG") && d2.remote == d1.local;
                    seen.when("EDGE-OLT", true);
                    seen.when("EDGE-OLT below an EDGE-AGG", d1.local.is_some() && world.topology.iter().any(above));
                }
                Some("AGG-OLT") => {
                    let above = |d2: &&Topology| {
                        let edge_agg = d2.link_type.as_deref() == Some("EDGE-AGG");
                        edge_agg && d2.local.is_some() && d2.remote.is_some() && d2.remote == d1.local
                    };
                    nodes.extend(world.topology.iter().filter(above));
                    seen.when("AGG-OLT and a second hop", !nodes.is_empty());
                    seen.when("several second hops", nodes.len() > 1);
                    seen.when("AGG-OLT and no second hop", nodes.is_empty());
                }
                _ => {
                    seen.when("an OLT on another link", true);
                    continue;
                }
            }
            if nodes.is_empty() {
                nodes.push(d1);
            }
            for node in nodes {
                let known = node.local.is_some() && world.inventory.contains(&node.local);
                seen.when("a node that is not in the inventory", node.local.is_some() && !known);
                seen.when("a node without an address", node.local.is_none());
                seen.when("a node without an interface", node.interface.is_none());
                if let (true, Some(local), Some(name)) = (known, &node.local, &node.interface) {
                    let causes = all.entry(vec![local.clone(), name.clone()]).or_default();
                    let new = causes.insert(cause.clone());
                    seen.when("an interface that two ways lead to", !new);
                    seen.when("an interface behind several OLT alarms", causes.len() > 1);
                }
            }
        }
    }
    all
}

/// Mean over groups of the sum in each; a group of nulls alone has none.
fn mean_of_sums(samples: &[&Traffic], group: impl Fn(i64) -> i64) -> Option<f64> {
    let mut sums: BTreeMap<i64, i128> = BTreeMap::new();
    for sample in samples {
        if let Some(packets) = sample.packets {
            *sums.entry(group(sample.at)).or_default() += i128::from(packets);
        }
    }
    let total: i128 = sums.values().sum();
    if sums.is_empty() { None } else { Some(total as f64 / sums.len() as f64) }
}

/// `last_1m`, `avg_3nm` and `diff_ratio` of an interface, where it has all three.
fn surge(interface: &Interface, traffic: &[&Traffic], t0: i64, n: i64, seen: &mut Seen) -> Option<(f64, f64, f64)> {
    let (from, since, to) = (t0 - 4 * n * MINUTE, t0 - n * MINUTE, t0 - (n - 1) * MINUTE);
    let of_router = |s: &&&Traffic| s.router.as_ref() == Some(&interface[0]);
    let with_suffix = format!("{}.0", interface[1]);
    let suffixed = traffic.iter().filter(of_router).any(|s| s.interface.as_ref() == Some(&with_suffix));
    seen.when("traffic of a name that differs in .0", suffixed);
    let own: Vec<&Traffic> =
        traffic.iter().filter(of_router).filter(|s| s.interface.as_ref() == Some(&interface[1])).copied().collect();
    for (what, at) in [
        ("traffic at the baseline's start", from),
        ("traffic just before the baseline", from - 1),
        ("traffic at the last minute's start", since),
        ("traffic just before the last minute", since - 1),
        ("traffic just before the last minute's end", to - 1),
        ("traffic at the last minute's end", to),
    ] {
        seen.when(what, own.iter().any(|sample| sample.at == at));
    }
    let between = |from: i64, to: i64| -> Vec<&Traffic> {
        own.iter().filter(|sample| (from..to).contains(&sample.at)).copied().collect()
    };
    let (earlier, latest) = (between(from, since), between(since, to));
    let average = mean_of_sums(&earlier, minute_of);
    let last = mean_of_sums(&latest, |at| at);
    let null = |s: &&Traffic| s.packets.is_none();
    seen.when("no baseline", earlier.is_empty());
    seen.when("a baseline with gaps", average.is_some() && earlier.len() < usize::try_from(3 * n).unwrap());
    seen.when("no traffic in the last minute", latest.is_empty());
    seen.when("traffic of nulls alone", !latest.is_empty() && last.is_none());
    seen.when("a null among the last minute's traffic", last.is_some() && latest.iter().any(null));
    seen.when("a null in the baseline", average.is_some() && earlier.iter().any(null));
    seen.when("a zero baseline", average == Some(0.0) && last.is_some());
    seen.when("several samples in the last minute", latest.len() > 1);
    let (average, last) = (average.filter(|average| *average != 0.0)?, last?);
    let ratio = (last - average) / average;
    seen.when("a ratio of 0.2", ratio == 0.2);
    seen.when("a ratio just below", ratio < 0.2 && ratio > 0.15);
    seen.when("a mean that is no whole number", ratio >= 0.2 && last.fract() != 0.0);
    Some((last, average, ratio))
}

pub(super) fn judge(
    world: &World,
    (events, traffic): (&[&Olt], &[&Traffic]),
    (time, n): (i64, i64),
    memory: &mut Memory,
    seen: &mut Seen,
) -> Said {
    let t0 = minute_of(time);
    let olts = persisting(events, t0, n, seen);
    seen.when("no persisting OLT alarm", olts.is_empty());
    seen.when("several persisting OLT alarms", olts.len() > 1);

    let mut rows = Vec::new();
    let mut raised = BTreeMap::new();
    for (interface, causes) in serving(world, &olts, seen) {
        let Some((last, average, ratio)) = surge(&interface, traffic, t0, n, seen) else { continue };
        if ratio < 0.2 {
            continue;
        }
        let before = memory.reported.insert(interface.clone(), t0);
        if !seen.when("a minute that was reported", before == Some(t0)) {
            rows.push(vec![
                Cell::Time(time),
                Cell::Text(interface[0].clone()),
                Cell::Text(interface[1].clone()),
                Cell::Float(ratio),
                Cell::Int(last.round() as i64),
                Cell::Float(average),
            ]);
        }
        raised.insert(interface, causes);
    }

    let cleared: BTreeSet<Cause> = events
        .iter()
        .filter(|event| event.status.as_deref() == Some("0") && (t0 - n * MINUTE..t0).contains(&event.at))
        .filter_map(|event| Some((event.address.clone()?, event.rule.clone()?)))
        .collect();
    memory.causes.values_mut().for_each(|causes| causes.retain(|cause| !cleared.contains(cause)));
    for (interface, causes) in raised {
        memory.causes.entry(interface.clone()).or_default().extend(causes);
        memory.open.insert(interface, (Severity::Major, time));
    }
    let over = |(interface, causes): (&Interface, &BTreeSet<Cause>)| causes.is_empty().then(|| interface.clone());
    let over: Vec<Interface> = memory.causes.iter().filter_map(over).collect();
    seen.when("an alarm that a clearing event ends", !over.is_empty());
    for interface in over {
        memory.causes.remove(&interface);
        memory.open.remove(&interface);
    }
    seen.when("rows", !rows.is_empty());
    seen.when("silence", rows.is_empty());
    Said { rows: sorted(rows), open: memory.open.clone() }
}
