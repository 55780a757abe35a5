//! Random data for S3, and the test.

use serde_json::{Value, json};

use super::dice::{Dice, arrival, times};
use super::real::{Kept, Real, Rows, arrived, there};
use super::s3::{Memory, Olt, Topology, Traffic, World, judge};
use super::{MINUTE, SECOND, Seen, every_seed, minute_of};

/// Topologies with inventories; each seed has one of them.
const WORLDS: u64 = 40;

const OLTS: [&str; 3] = ["192.0.2.23", "192.0.2.24", "192.0.2.25"];
const AGGREGATIONS: [&str; 2] = ["198.51.100.1", "198.51.100.2"];
const EDGES: [&str; 4] = ["198.51.100.211", "198.51.100.212", "198.51.100.213", "198.51.100.214"];
const INTERFACES: [Option<&str>; 6] =
    [Some("9/1/1"), Some("9/1/1"), Some("9/1/1.0"), Some("9/2/1"), Some("a \"b\" 日"), None];

fn owned(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}

fn world(number: u64) -> World {
    let mut dice = Dice::new("s3 world", number);
    let mut topology = Vec::new();
    for _ in 0..dice.of(&[0, 4, 6, 7, 8, 9, 10, 12, 13, 14]) {
        let mut some = |all: &[&'static str]| if dice.one_in(20) { None } else { Some(dice.of(all)) };
        let (edge, aggregation, olt) = (some(&EDGES), some(&AGGREGATIONS), some(&OLTS));
        let lower = some(&EDGES);
        let (link_type, local, remote) = match dice.below(12) {
            0..4 => ("EDGE-OLT", edge, olt),
            4..7 => ("AGG-OLT", aggregation, olt),
            7..9 => ("EDGE-AGG", edge, aggregation),
            // above a router that serves itself: this is no second hop
            9 => ("EDGE-AGG", edge, lower),
            10 => ("CORE-EDGE", edge, olt),
            _ => ("edge-olt", edge, olt),
        };
        let row = Topology {
            link_type: if dice.one_in(15) { None } else { owned(Some(link_type)) },
            local: owned(local),
            interface: owned(dice.of(&INTERFACES)),
            remote: owned(remote),
        };
        if dice.one_in(5) {
            topology.push(row.clone());
        }
        topology.push(row);
    }
    let mut inventory = Vec::new();
    for router in EDGES.iter().chain(&AGGREGATIONS) {
        (0..dice.of(&[0, 1, 1, 1, 1, 2])).for_each(|_| inventory.push(owned(Some(router))));
    }
    if dice.one_in(3) {
        inventory.push(None);
    }
    World { topology, inventory }
}

#[derive(Default)]
struct Sets {
    olts: Vec<(usize, Olt)>,
    traffic: Vec<(usize, Traffic)>,
}

fn event(dice: &mut Dice, at: i64, (olt, rule): (&str, &str), status: &str) -> Olt {
    let mut event = Olt { at, rule: owned(Some(rule)), status: owned(Some(status)), address: owned(Some(olt)) };
    match dice.below(30) {
        0 => event.rule = None,
        1 => event.status = None,
        2 => event.address = None,
        3 => event.address = owned(Some(dice.of(&OLTS))),
        _ => {}
    }
    event
}

fn events(dice: &mut Dice, t0: i64, n: i64, batches: usize) -> Vec<(usize, Olt)> {
    let (from, since) = (t0 - (n + 1) * MINUTE, t0 - n * MINUTE);
    let mut all = Vec::new();
    for olt in OLTS {
        for rule in ["R001", "R822", "R999", "r001"] {
            if dice.one_in(3) {
                continue;
            }
            for _ in 0..dice.of(&[1, 1, 2]) {
                let at = dice.of(&[from - 1, from, from + 20 * SECOND, from + 40 * SECOND, since - 1, since])
                    + dice.of(&[0, 0, 0, 1, 2]) * MINUTE;
                let status = dice.of(&["1", "1", "1", "2", "2", "2", "3", "3", "", "10"]);
                let row = event(dice, at, (olt, rule), status);
                all.push((arrival(dice, batches), row));
            }
            if dice.one_in(2) {
                // the last two are seen by later batches only
                let at =
                    [from, since - 1, since, since, since + 30 * SECOND, t0 - 1, t0, t0 + 5 * SECOND, t0 + 65 * SECOND];
                let at = dice.of(&at);
                let row = event(dice, at, (olt, rule), "0");
                all.push((arrival(dice, batches), row));
            }
        }
    }
    all
}

/// Packets of the minutes before the last one, and of the last one.
type Mood = (&'static [i64], &'static [i64]);

const MOODS: [Mood; 12] = [
    (&[100], &[119, 120, 120, 121, 1_000]),
    (&[100], &[119, 120]),
    (&[100, 200], &[500, 501, 1_000]),
    (&[10, 20], &[50, 1_000_000]),
    (&[100, 1_000], &[100, 1_000]),
    (&[0], &[0, 1, 1_000]),
    (&[1, 10, 1_000, 1_000_000, 1_000_000_000, 1_000_000_000_000], &[1_000, 1_000_000_000_000]),
    (&[50, 150], &[50, 240, 333]),
    (&[1_000], &[0, 500, 999]),
    (&[], &[1_000]),
    (&[100], &[]),
    (&[7, 11], &[8, 9, 10, 15]),
];

fn data(dice: &mut Dice, world: &World, n: i64, batches: &[i64]) -> Sets {
    let mut sets = Sets::default();
    if dice.one_in(25) {
        return sets;
    }
    let t0 = minute_of(batches[0]);
    sets.olts = events(dice, t0, n, batches.len());
    for link in &world.topology {
        let (before, last) = dice.of(&MOODS);
        let (sparse, nulls, several) = (dice.one_in(3), dice.one_in(3), dice.one_in(2));
        for minute in -4 * n - 1..=3 - n {
            let packets = if minute < -n { before } else { last };
            if packets.is_empty() || (sparse && dice.one_in(2)) {
                continue;
            }
            for _ in 0..if several { dice.of(&[1, 1, 2]) } else { 1 } {
                let second = dice.of(&[0, 20 * SECOND, 20 * SECOND, 20 * SECOND, 50 * SECOND, MINUTE - 1]);
                let packets = if nulls && dice.one_in(2) { None } else { Some(dice.of(packets)) };
                let interface = match link.interface.as_deref() {
                    Some(name) if dice.one_in(10) => Some(format!("{name}.0")),
                    name => owned(name),
                };
                let at = t0 + minute * MINUTE + second;
                let row = Traffic { at, router: link.local.clone(), interface, packets };
                sets.traffic.push((arrival(dice, batches.len()), row));
            }
        }
    }
    sets
}

fn streams(sets: &Sets, batch: usize) -> Rows {
    let olt = |row: &Olt| -> Value {
        json!({
            "eventhub_received_at": row.at,
            "rule_id": row.rule,
            "alarm_status": row.status,
            "olt_ip": row.address,
        })
    };
    let traffic = |row: &Traffic| -> Value {
        json!({
            "collected_at": row.at,
            "router_ip": row.router,
            "if_name": row.interface,
            "tx_multicast_pkts": row.packets,
        })
    };
    Rows::from([
        ("s3_olt_alarm_events", arrived(&sets.olts, batch, olt)),
        ("s3_snmp_interface_traffic", arrived(&sets.traffic, batch, traffic)),
    ])
}

fn tables(world: &World) -> [(&'static str, Vec<Value>); 2] {
    let link = |row: &Topology| {
        json!({
            "link_type": row.link_type,
            "local_device_ip": row.local,
            "local_phys_if": row.interface,
            "remote_device_ip": row.remote,
        })
    };
    [
        ("s3_device_link_topology", world.topology.iter().map(link).collect()),
        ("s3_router_inventory", world.inventory.iter().map(|router| json!({ "router_ip": router })).collect()),
    ]
}

#[test]
fn s3_agrees() {
    let real = Real::new("s3-iptv");
    let rules: Vec<_> = (1..=5).map(|n| real.rules("3-1", &json!({ "interval": n }))).collect();
    let worlds: Vec<_> = (0..WORLDS).map(world).map(|world| (real.queries(&tables(&world)), world)).collect();
    every_seed("s3-iptv", &[("rows", 200), ("silence", 300)], |seed| {
        let mut dice = Dice::new("s3", seed);
        let (queries, world) = &worlds[usize::try_from(seed % WORLDS).unwrap()];
        let n = dice.of(&[1, 2, 3, 3, 4, 5]);
        let at = usize::try_from(n - 1).unwrap();
        let prepared = real.prepared(Some(queries), Some(&rules[at]));
        let batches = times(&mut dice);
        let sets = data(&mut dice, world, n, &batches);
        let (mut seen, mut memory, mut kept) = (Seen::default(), Memory::default(), Kept::default());
        seen.when(["n = 1", "n = 2", "n = 3", "n = 4", "n = 5"][at], true);
        seen.when("no topology", world.topology.is_empty());
        seen.when("no rows", sets.olts.is_empty() && sets.traffic.is_empty());
        for (i, time) in batches.iter().enumerate() {
            let rows = (&*there(&sets.olts, i), &*there(&sets.traffic, i));
            let expected = judge(world, rows, (*time, n), &mut memory, &mut seen);
            let said = real.batch(&prepared, *time, &streams(&sets, i), &mut kept, "s3_results");
            assert_eq!(said, expected, "s3-iptv, seed {seed}, batch {i} at {time}, n = {n}");
        }
        seen
    });
}
