//! Random data for S2, and the test.

use serde_json::{Value, json};

use super::dice::{Dice, arrival, times};
use super::real::{Kept, Link, Real, Rows, arrived, there};
use super::s2::{Data, Forecast, Linkdown, Memory, Topology, Traffic, judge};
use super::{MINUTE, SECOND, Seen, every_seed, minute_of};

/// Topologies; each seed has one of them.
const WORLDS: u64 = 40;

const ROUTERS: [Option<&str>; 5] =
    [Some("203.0.113.90"), Some("203.0.113.90"), Some("203.0.113.90"), Some("203.0.113.91"), None];
const LINKS: [Option<&str>; 9] = [
    Some("CORE-METRO"),
    Some("CORE-METRO"),
    Some("CORE-METRO"),
    Some("CORE-EDGE"),
    Some("CORE-EDGE"),
    Some("CORE-EDGE"),
    Some("CORE-CORE"),
    Some("core-metro"),
    None,
];
const DEVICES: [Option<&str>; 8] = [
    Some("Router-A-1"),
    Some("Router-A-1"),
    Some("Router-A-2"),
    Some("Router-A-3"),
    Some("Router-A-4"),
    Some(""),
    Some("a \"b\" \\ 日"),
    None,
];
const INTERFACES: [Option<&str>; 9] = [
    Some("2/1/1"),
    Some("2/1/1.0"),
    Some("2/1/2"),
    Some("2/1/2.0"),
    Some("2/1/1.00"),
    Some("2/1/10"),
    Some("2/1/1.0.0"),
    Some(".0"),
    None,
];

/// Bytes of a Gbps over a minute.
const GBPS: i64 = 7_500_000_000;

fn owned(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}

fn topology(world: u64) -> Vec<Topology> {
    let mut dice = Dice::new("s2 topology", world);
    let mut rows = Vec::new();
    for _ in 0..dice.of(&[0, 4, 6, 7, 8, 9, 10, 11, 12, 12]) {
        let row = Topology {
            link_type: owned(dice.of(&LINKS)),
            device: owned(dice.of(&DEVICES)),
            address: owned(dice.of(&ROUTERS)),
            interface: owned(dice.of(&INTERFACES)),
        };
        match dice.below(6) {
            0 => rows.push(row.clone()),
            // a device with links of both kinds
            1 | 2 => {
                let other = if row.link_type.as_deref() == Some("CORE-EDGE") { "CORE-METRO" } else { "CORE-EDGE" };
                rows.push(Topology { link_type: owned(Some(other)), ..row.clone() });
            }
            _ => {}
        }
        rows.push(row);
    }
    rows
}

#[derive(Default)]
struct Sets {
    linkdowns: Vec<(usize, Linkdown)>,
    traffic: Vec<(usize, Traffic)>,
    forecast: Vec<(usize, Forecast)>,
}

/// Somewhere in a minute, often at an edge of it.
fn within(dice: &mut Dice, minute: i64) -> i64 {
    minute + dice.of(&[0, 20 * SECOND, 20 * SECOND, 50 * SECOND, MINUTE - 1])
}

fn data(dice: &mut Dice, topology: &[Topology], batches: &[i64]) -> Sets {
    let mut sets = Sets::default();
    if dice.one_in(25) {
        return sets;
    }
    let target = minute_of(batches[0]) - 5 * MINUTE;
    // later batches look at later minutes
    for minute in -1..=4 {
        for _ in 0..dice.of(&[0, 2, 3, 5]) {
            let at = within(dice, target + minute * MINUTE);
            let event = Linkdown { at, router: owned(dice.of(&ROUTERS)), link_type: owned(dice.of(&LINKS)) };
            sets.linkdowns.push((arrival(dice, batches.len()), event));
        }
    }
    for link in topology {
        traffic_of(dice, &mut sets, batches, link);
    }
    for router in &ROUTERS[2..] {
        for link_type in ["CORE-METRO", "CORE-EDGE", "CORE-CORE"] {
            let mood = dice.below(10);
            for minute in 1..=7 {
                forecast_of(dice, &mut sets, batches, target + minute * MINUTE, (*router, link_type), mood);
            }
        }
    }
    sets
}

/// Traffic of a link that is above, below, at or within its bounds, anything, or not there.
fn traffic_of(dice: &mut Dice, sets: &mut Sets, batches: &[i64], link: &Topology) {
    let mut mood = dice.below(6);
    // as a whole, so that the counts of a minute that was reported change
    let late = if dice.one_in(2) { batches.len() - 1 } else { 0 };
    for minute in 1..=7 {
        if minute == 4 && !dice.one_in(4) {
            mood = dice.of(&[0, 1, 2, 2, 2, 2]);
        }
        let start = minute_of(batches[0]) + (minute - 5) * MINUTE;
        let bytes = match mood {
            0 => dice.of(&[70 * GBPS, 100 * GBPS, 60 * GBPS + 8, 1_000_000 * GBPS]),
            1 => dice.of(&[0, 30 * GBPS, 40 * GBPS - 8]),
            2 => dice.of(&[40 * GBPS, 50 * GBPS, 60 * GBPS]),
            3 | 4 => dice.of(&[0, 30, 40, 50, 60, 61, 70]) * GBPS + dice.of(&[0, 0, 8, 30_000_000]),
            _ => continue,
        };
        if dice.one_in(12) {
            continue;
        }
        let mut left = bytes;
        for _ in 0..dice.of(&[0, 0, 1, 2]) {
            let rx_bytes = if dice.one_in(6) { None } else { Some(left / 2) };
            // now and then what another interface has
            let name = if dice.one_in(5) { dice.of(&INTERFACES) } else { link.interface.as_deref() };
            left -= rx_bytes.unwrap_or(0);
            let row = sample(dice, start, link, name, rx_bytes);
            sets.traffic.push((late.max(arrival(dice, batches.len())), row));
        }
        let rest = if dice.one_in(20) { None } else { Some(left) };
        let row = sample(dice, start, link, link.interface.as_deref(), rest);
        sets.traffic.push((late.max(arrival(dice, batches.len())), row));
    }
}

fn sample(dice: &mut Dice, start: i64, link: &Topology, name: Option<&str>, rx_bytes: Option<i64>) -> Traffic {
    let other_spelling = |name: &str| name.strip_suffix(".0").map_or_else(|| format!("{name}.0"), str::to_owned);
    let interface = match name {
        Some(name) if dice.one_in(5) => Some(other_spelling(name)),
        name => owned(name),
    };
    Traffic { at: within(dice, start), router: link.address.clone(), interface, rx_bytes }
}

fn forecast_of(
    dice: &mut Dice,
    sets: &mut Sets,
    batches: &[i64],
    minute: i64,
    (router, link_type): (Option<&str>, &str),
    mood: usize,
) {
    // bounds whose averages have no rounding, so that what is equal is equal
    let rows: &[(Option<f64>, Option<f64>)] = match mood {
        0 => &[],
        1 => &[(Some(30.0), Some(50.0)), (Some(50.0), Some(70.0))],
        2 => &[(None, Some(60.0))],
        3 => &[(Some(40.0), None)],
        4 => &[(None, None), (Some(40.0), Some(60.0)), (None, None)],
        5 => &[(Some(60.0), Some(40.0))],
        _ => &[(Some(40.0), Some(60.0))],
    };
    if dice.one_in(7) {
        return;
    }
    for (lower, upper) in rows {
        let row = Forecast {
            at: within(dice, minute),
            router: owned(router),
            link_type: owned(Some(link_type)),
            lower: *lower,
            upper: *upper,
            phase: owned(dice.of(&[None, Some("peak"), Some("steady"), Some("Steady"), Some("")])),
        };
        sets.forecast.push((arrival(dice, batches.len()), row));
    }
}

fn streams(sets: &Sets, batch: usize) -> Rows {
    let linkdown = |row: &Linkdown| -> Value {
        json!({ "event_at": row.at, "router_ip": row.router, "link_type": row.link_type })
    };
    let traffic = |row: &Traffic| -> Value {
        json!({
            "collected_at": row.at,
            "router_ip": row.router,
            "if_name": row.interface,
            "rx_bytes": row.rx_bytes,
        })
    };
    let forecast = |row: &Forecast| -> Value {
        json!({
            "ds": row.at,
            "router_ip": row.router,
            "link_type": row.link_type,
            "yhat_lower": row.lower,
            "yhat_upper": row.upper,
            "phase": row.phase,
        })
    };
    Rows::from([
        ("s2_snmp_linkdown_events", arrived(&sets.linkdowns, batch, linkdown)),
        ("s2_snmp_interface_traffic", arrived(&sets.traffic, batch, traffic)),
        ("s2_traffic_forecast", arrived(&sets.forecast, batch, forecast)),
    ])
}

fn table(rows: &[Topology]) -> Vec<Value> {
    let row = |row: &Topology| {
        json!({
            "link_type": row.link_type,
            "local_device_name": row.device,
            "local_device_ip": row.address,
            "local_phys_if": row.interface,
        })
    };
    rows.iter().map(row).collect()
}

#[test]
fn s2_agrees() {
    let real = Real::new("s2-linkdown");
    let world = |number: u64| {
        let rows = topology(number);
        let queries = real.queries(&[("s2_device_link_topology", table(&rows))]);
        (rows, real.prepared(Some(&queries), None))
    };
    let worlds: Vec<_> = (0..WORLDS).map(world).collect();
    every_seed("s2-linkdown", &[("rows", 200), ("silence", 300)], |seed| {
        let mut dice = Dice::new("s2", seed);
        let (topology, prepared) = &worlds[usize::try_from(seed % WORLDS).unwrap()];
        let batches = times(&mut dice);
        let sets = data(&mut dice, topology, &batches);
        let (mut seen, mut memory, mut kept) = (Seen::default(), Memory::default(), Kept::default());
        seen.when("no topology", topology.is_empty());
        seen.when("no rows", sets.linkdowns.is_empty() && sets.traffic.is_empty() && sets.forecast.is_empty());
        for (i, time) in batches.iter().enumerate() {
            let data = Data {
                linkdowns: there(&sets.linkdowns, i),
                topology,
                traffic: there(&sets.traffic, i),
                forecast: there(&sets.forecast, i),
            };
            let (for_rule, expected) = judge(&data, *time, &mut memory, &mut seen);
            let streams = streams(&sets, i);
            let context = format!("s2-linkdown, seed {seed}, batch {i} at {time}");
            let target = minute_of(*time) - 5 * MINUTE;
            let window = [("from", target + 2 * MINUTE), ("to", target + 4 * MINUTE)];
            let chain = [
                Link { query: "linkdown_links", reads: None, times: &[("from", target), ("to", target + MINUTE)] },
                Link { query: "link_devices", reads: Some("links"), times: &[] },
                Link { query: "traffic_anomalies", reads: Some("devices"), times: &window },
            ];
            // half of the sets, as this is half of the work
            if seed % 2 == 0 {
                assert_eq!(real.chain(prepared, *time, &streams, &chain), for_rule, "rows for rule 2: {context}");
            }
            assert_eq!(real.batch(prepared, *time, &streams, &mut kept, "s2_results"), expected, "{context}");
        }
        seen
    });
}
