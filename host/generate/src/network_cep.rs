//! The six streams of `network-cep`: what the operator's starter data looks like, minute by minute.
//!
//! With seed 0 every minute holds exactly the starter data, so the expected alarms are known, and some rows that no
//! scenario counts (other messages, other link types, interfaces and OLTs that are in no topology). Any other seed makes
//! counts, traffic, forecasts and OLT alarms vary, with missing rows, nulls, zero baselines and clearing events among them.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use weir_model::columns::timestamp_type;
use weir_model::{Fault, Time};

use crate::dice::Dice;
use crate::sheet::Cell::{At, Float, Int, Null, Text};
use crate::sheet::{Cell, Sheet};
use crate::{MINUTE, Part};

const SECOND: i64 = 1_000_000;
/// Bytes that make one Gbps over a minute.
const GBPS_BYTES: i64 = 1_000_000_000 * 60 / 8;

/// A stream of the example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// `s1_router_syslog_events`.
    Syslog,
    /// `s2_snmp_linkdown_events`.
    Linkdown,
    /// `s2_snmp_interface_traffic`.
    CoreTraffic,
    /// `s2_traffic_forecast`.
    Forecast,
    /// `s3_olt_alarm_events`.
    OltAlarms,
    /// `s3_snmp_interface_traffic`.
    EdgeTraffic,
}

use Stream::{CoreTraffic, EdgeTraffic, Forecast, Linkdown, OltAlarms, Syslog};

impl Stream {
    /// All of them.
    pub const ALL: [Self; 6] = [Syslog, Linkdown, CoreTraffic, Forecast, OltAlarms, EdgeTraffic];

    /// Its name in the rule store.
    pub fn name(self) -> &'static str {
        match self {
            Syslog => "s1_router_syslog_events",
            Linkdown => "s2_snmp_linkdown_events",
            CoreTraffic => "s2_snmp_interface_traffic",
            Forecast => "s2_traffic_forecast",
            OltAlarms => "s3_olt_alarm_events",
            EdgeTraffic => "s3_snmp_interface_traffic",
        }
    }

    /// Its columns.
    pub fn schema(self) -> SchemaRef {
        let columns: &[(&str, char)] = match self {
            Syslog => &[("router_host", 't'), ("router_ip", 't'), ("collected_at", '@'), ("syslog_message", 't')],
            Linkdown => &[
                ("event_at", '@'),
                ("router_host", 't'),
                ("router_ip", 't'),
                ("category_2", 't'),
                ("if_name", 't'),
                ("link_type", 't'),
                ("remote_device_name", 't'),
                ("remote_device_code", 't'),
                ("first_detect_ts", '@'),
                ("last_update_ts", '@'),
            ],
            CoreTraffic | EdgeTraffic => &TRAFFIC,
            Forecast => &[
                ("router_ip", 't'),
                ("link_type", 't'),
                ("ds", '@'),
                ("y", 'f'),
                ("yhat", 'f'),
                ("yhat_lower", 'f'),
                ("yhat_upper", 'f'),
                ("phase", 't'),
                ("ds_date", 't'),
                ("run_ts", '@'),
            ],
            OltAlarms => &[
                ("eventhub_received_at", '@'),
                ("rule_id", 't'),
                ("alarm_status", 't'),
                ("facility_code", 't'),
                ("olt_ip", 't'),
            ],
        };
        let fields = columns.iter().map(|(name, ty)| {
            let ty = match ty {
                't' => DataType::Utf8,
                'i' => DataType::Int64,
                'f' => DataType::Float64,
                _ => timestamp_type(),
            };
            Field::new(*name, ty, true)
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// The rows of `[from, to)`, both full minutes.
    pub fn rows(self, from: Time, to: Time, seed: u64) -> Result<Part, Fault> {
        let mut sheet = Sheet::new(self.schema());
        let mut per_minute = Vec::new();
        let mut minute = from.micros();
        while minute < to.micros() {
            let before = sheet.rows();
            let dice = (seed != 0).then(|| Dice::new(seed, self as u64 + 1, minute / MINUTE));
            match self {
                Syslog => syslog(&mut sheet, minute, dice),
                Linkdown => linkdown(&mut sheet, minute, dice),
                CoreTraffic => core_traffic(&mut sheet, minute, dice),
                Forecast => forecast(&mut sheet, minute, dice),
                OltAlarms => olt_alarms(&mut sheet, minute, dice),
                EdgeTraffic => edge_traffic(&mut sheet, minute, dice),
            }
            per_minute.push(sheet.rows() - before);
            minute += MINUTE;
        }
        Ok(Part { rows: sheet.finish()?, per_minute })
    }
}

/// A message of S1: when in its minute, which router, what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Said {
    after: i64,
    router: i64,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Lease,
    LinkUp,
    Login,
    Clock,
    Nothing,
}

fn syslog(sheet: &mut Sheet, minute: i64, dice: Option<Dice>) {
    let mut said = match dice {
        None => starter_messages(),
        Some(mut dice) => {
            let critical = if dice.one_in(10) { dice.pick(0, 9) } else { dice.pick(30, 75) };
            let counts = [(34, critical), (33, dice.pick(0, 19)), (36, dice.pick(0, 4))];
            let mut said = Vec::new();
            for (router, count) in counts {
                for _ in 0..count {
                    said.push(Said { after: dice.pick(0, MINUTE - 1), router, what: What::Lease });
                }
            }
            for what in [What::LinkUp, What::Login, What::Clock, What::Nothing] {
                for _ in 0..dice.pick(0, 8) {
                    said.push(Said { after: dice.pick(0, MINUTE - 1), router: dice.pick(33, 41), what });
                }
            }
            said
        }
    };
    said.sort_unstable();
    let mut text = String::new();
    for (nr, Said { after, router, what }) in said.into_iter().enumerate() {
        text.clear();
        let (host, ip) = (format!("Edge-RouterA-0{router}"), format!("203.0.113.{router}"));
        match what {
            What::Lease => {
                text.push_str(
                    "WARNING: SVCMGR #2116 vprn100 \"sapDHCPLseStatePopulateErr: DHCP lease state table population error on SAP lag-",
                );
                text.push_str(&format!(
                    "{router}:{} in service 100 - number of leases exceeds the limit\"",
                    100 + nr % 900
                ));
            }
            What::LinkUp => {
                text.push_str("MINOR: SNMP #2005 Base \"linkUp: Port 1/1/4, operational state changed to up\"");
            }
            What::Login => {
                text.push_str("MINOR: USER #2001 management \"cli_user_login: User netops logged in from 192.0.2.10\"");
            }
            What::Clock => {
                text.push_str(
                    "MINOR: NTP #2007 Base \"tmnxNtpClockSync: System clock is synchronised to 192.0.2.123\"",
                );
            }
            What::Nothing => {}
        }
        let message = if what == What::Nothing { Null } else { Text(&text) };
        sheet.push(&[Text(&host), Text(&ip), At(minute + after), message]);
    }
}

/// 50, 10 and 2 messages that match, and 36 that do not.
fn starter_messages() -> Vec<Said> {
    let mut said = Vec::with_capacity(98);
    for slot in 0..12 {
        let start = slot * 5 * SECOND;
        let mut say = |after: i64, router, what| said.push(Said { after: start + after, router, what });
        if slot < 10 {
            for second in 0..5 {
                say(second * SECOND, 34, What::Lease);
            }
            say(2_500_000, 33, What::Lease);
        }
        if slot == 3 || slot == 8 {
            say(1_500_000, 36, What::Lease);
        }
        say(400_000, 33, What::LinkUp);
        say(3_400_000, 34, What::Login);
        say(4_700_000, 41, What::Clock);
    }
    said
}

/// The router of S2 and S3's service nodes.
const CORE: &str = "203.0.113.90";
/// Interface, link type and Gbps of S2's four devices.
const DEVICES: [(&str, i64); 4] = [("2/1/1.0", 70), ("2/1/2", 50), ("2/2/1", 30), ("2/2/2", 50)];
/// Link types with a forecast of 40 to 60 Gbps.
const LINKS: [&str; 2] = ["CORE-METRO", "CORE-EDGE"];

fn linkdown(sheet: &mut Sheet, minute: i64, mut dice: Option<Dice>) {
    let events = [
        (5, LINKS[0], "2/1/1", "Router-M-1"),
        (20, LINKS[1], "2/2/1", "Router-E-1"),
        // No scenario looks at this type.
        (40, "METRO-EDGE", "3/1/1", "Router-E-9"),
    ];
    for (second, link, interface, remote) in events {
        if dice.as_mut().is_some_and(|d| d.one_in(4)) {
            continue;
        }
        let at = minute + second * SECOND;
        sheet.push(&[
            At(at),
            Text("Core-RouterC-090"),
            Text(CORE),
            Text("LinkDown"),
            Text(interface),
            Text(link),
            Text(remote),
            Text("R90"),
            At(at),
            At(at + SECOND),
        ]);
    }
}

fn forecast(sheet: &mut Sheet, minute: i64, mut dice: Option<Dice>) {
    let day = Time(minute).to_string();
    let day = day.get(..10).unwrap_or(&day);
    for link in LINKS {
        let (mut low, mut high, mut phase) = (Float(40.0), Float(60.0), Text("normal"));
        if let Some(dice) = &mut dice {
            if dice.one_in(20) {
                continue;
            }
            let (l, h) = (dice.pick(30, 45), dice.pick(46, 70));
            low = if dice.one_in(30) { Null } else { Float(whole(l)) };
            high = if dice.one_in(30) { Null } else { Float(whole(h)) };
            if dice.one_in(10) {
                phase = Null;
            }
        }
        let y = Float(50.0);
        sheet.push(&[Text(CORE), Text(link), At(minute), y, y, low, high, phase, Text(day), At(minute)]);
    }
}

fn whole(n: i64) -> f64 {
    // Small numbers only.
    n as f64
}

const TRAFFIC: [(&str, char); 25] = [
    ("collected_at", '@'),
    ("router_ip", 't'),
    ("if_index", 't'),
    ("if_admin_status", 't'),
    ("if_description", 't'),
    ("rx_discard_pkts", 'i'),
    ("rx_error_pkts", 'i'),
    ("if_oper_status", 't'),
    ("tx_discard_pkts", 'i'),
    ("tx_error_pkts", 'i'),
    ("eventhub_name", 't'),
    ("eventhub_received_at", 't'),
    ("etl_completed_at", 't'),
    ("eventhub_received_date", 't'),
    ("rx_broadcast_pkts", 'i'),
    ("rx_multicast_pkts", 'i'),
    ("rx_bytes", 'i'),
    ("rx_unicast_pkts", 'i'),
    ("tx_broadcast_pkts", 'i'),
    ("tx_multicast_pkts", 'i'),
    ("tx_bytes", 'i'),
    ("tx_unicast_pkts", 'i'),
    ("if_speed", 'i'),
    ("if_name", 't'),
    ("created_at", 't'),
];

fn traffic(sheet: &mut Sheet, at: i64, router: &str, index: i64, name: &str, rx_bytes: Cell<'_>, multicast: Cell<'_>) {
    let index = (1000 + index).to_string();
    let time = Time(at).to_string();
    let day = time.get(..10).unwrap_or(&time);
    let (zero, up) = (Int(0), Text("up"));
    sheet.push(&[
        At(at),
        Text(router),
        Text(&index),
        up,
        Null,
        zero,
        zero,
        up,
        zero,
        zero,
        Text("snmp-interface"),
        Text(&time),
        Text(&time),
        Text(day),
        zero,
        zero,
        rx_bytes,
        Int(1_000_000),
        zero,
        multicast,
        Int(1_000_000_000),
        Int(1_000_000),
        Int(100_000_000_000),
        Text(name),
        Text(&time),
    ]);
}

fn core_traffic(sheet: &mut Sheet, minute: i64, mut dice: Option<Dice>) {
    let at = minute + 30 * SECOND;
    for (index, (interface, gbps)) in (1..).zip(DEVICES) {
        let mut bytes = Int(gbps * GBPS_BYTES);
        if let Some(dice) = &mut dice {
            if dice.one_in(20) {
                continue;
            }
            bytes = if dice.one_in(20) { Null } else { Int(dice.pick(0, 1200) * GBPS_BYTES / 10) };
        }
        traffic(sheet, at, CORE, index, interface, bytes, Int(0));
    }
    traffic(sheet, at, CORE, 9, "9/9/9", Int(95 * GBPS_BYTES), Int(0));
}

/// OLT of S3's starter data.
const OLT: &str = "192.0.2.23";
/// Its first hops: service node and interface.
const HOPS: [(&str, &str); 2] = [("198.51.100.212", "9/1/1"), ("198.51.100.211", "9/2/1")];

fn olt_alarms(sheet: &mut Sheet, minute: i64, dice: Option<Dice>) {
    let mut push = |second: i64, rule: &str, status: &str, olt: &str| {
        sheet.push(&[At(minute + second * SECOND), Text(rule), Text(status), Text("F-01"), Text(olt)]);
    };
    match dice {
        None => push(10, "R822", "1", OLT),
        Some(mut dice) => {
            for (second, rule) in [(10, "R822"), (15, "R001")] {
                if !dice.one_in(3) {
                    push(second, rule, if dice.one_in(2) { "1" } else { "2" }, OLT);
                }
            }
            for (second, rule) in [(40, "R822"), (45, "R001")] {
                if dice.one_in(8) {
                    push(second, rule, "0", OLT);
                }
            }
        }
    }
    // An OLT that no topology knows, and a rule that no scenario asks for.
    push(50, "R822", "1", "192.0.2.99");
    push(55, "R500", "1", OLT);
}

fn edge_traffic(sheet: &mut Sheet, minute: i64, mut dice: Option<Dice>) {
    let at = minute + 15 * SECOND;
    let power = u32::try_from((minute / MINUTE).rem_euclid(10)).unwrap_or(0);
    for (index, (router, interface)) in (1..).zip(HOPS) {
        let mut packets = Int(1000 * 10_i64.pow(power));
        if let Some(dice) = &mut dice {
            if dice.one_in(30) {
                continue;
            }
            packets = match dice.pick(0, 29) {
                0 => Null,
                1 | 2 => Int(0),
                3..=6 => Int(dice.pick(1_000, 40_000)),
                _ => Int(dice.pick(900, 1_100)),
            };
        }
        traffic(sheet, at, router, index, interface, Int(0), packets);
    }
    // Not in the inventory.
    traffic(sheet, at, "198.51.100.250", 9, "9/9/9", Int(0), Int(1_000));
}
