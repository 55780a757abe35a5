//! The six streams of `network-cep`: what the operator's starter data looks like, minute by minute.
//!
//! With seed 0 every minute holds exactly the rows that the example's own sources make of it (a test compares them), so
//! history and live data fit together and the expected alarms are known. Any other seed makes counts, traffic, forecasts
//! and OLT alarms vary, with missing rows, nulls, zero baselines and clearing events among them.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use weir_model::columns::timestamp_type;
use weir_model::{Fault, Time};

use crate::dice::Dice;
use crate::sheet::Cell::{At, Float, Int, Null, Text};
use crate::sheet::Sheet;
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

/// The router of S2.
const CORE: &str = "203.0.113.90";
/// Interfaces of S2 and their Gbps. The topology has 2/1/1.0 and 2/1/2: of CORE-METRO interfaces a trailing `.0` means
/// nothing. Of others it does, so the traffic of 2/2/1.0 is nobody's.
const CORE_INTERFACES: [(&str, i64); 5] =
    [("2/1/1", 70), ("2/1/2.0", 50), ("2/2/1", 30), ("2/2/1.0", 90), ("2/2/2", 50)];
/// Link types with a forecast of 40 to 60 Gbps.
const LINKS: [&str; 2] = ["CORE-METRO", "CORE-EDGE"];

fn linkdown(sheet: &mut Sheet, minute: i64, mut dice: Option<Dice>) {
    let events = [
        (10, LINKS[0], "2/1/9", "Metro-Router-C-9", "MC9"),
        // No scenario looks at this type.
        (20, "CORE-CORE", "1/1/1", "Core-Router-D-1", "CD1"),
        (40, LINKS[1], "2/2/9", "Edge-RouterB-109", "EB109"),
    ];
    for (second, link, interface, remote, code) in events {
        if dice.as_mut().is_some_and(|d| d.one_in(4)) {
            continue;
        }
        let at = At(minute + second * SECOND);
        let (host, link, interface) = (Text("Core-Router-A-90"), Text(link), Text(interface));
        sheet.push(&[at, host, Text(CORE), Text("LINK"), interface, link, Text(remote), Text(code), at, at]);
    }
}

fn forecast(sheet: &mut Sheet, minute: i64, mut dice: Option<Dice>) {
    let day = Time(minute).to_string();
    let day = day.get(..10).unwrap_or(&day);
    let run = At(minute - minute.rem_euclid(60 * MINUTE));
    for link in LINKS {
        let (mut low, mut high, mut phase) = (Float(40.0), Float(60.0), Text("steady"));
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
        sheet.push(&[Text(CORE), Text(link), At(minute), Null, Float(50.0), low, high, phase, Text(day), run]);
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

/// What an interface counted. Other columns are empty in the example.
#[derive(Default)]
struct Counted {
    rx_bytes: Option<i64>,
    rx_unicast: Option<i64>,
    rx_errors: Option<i64>,
    tx_multicast: Option<i64>,
    tx_bytes: Option<i64>,
}

fn traffic(sheet: &mut Sheet, at: i64, router: &str, interface: &str, counted: &Counted) {
    let index = interface.replace('/', "");
    let created = Time(at).to_string();
    let int = |n: Option<i64>| n.map_or(Null, Int);
    let cells = TRAFFIC.map(|(column, _)| match column {
        "collected_at" => At(at),
        "router_ip" => Text(router),
        "if_index" => Text(&index),
        "if_admin_status" | "if_oper_status" => Text("up"),
        "rx_error_pkts" => int(counted.rx_errors),
        "rx_bytes" => int(counted.rx_bytes),
        "rx_unicast_pkts" => int(counted.rx_unicast),
        "tx_multicast_pkts" => int(counted.tx_multicast),
        "tx_bytes" => int(counted.tx_bytes),
        "if_speed" => Int(100_000_000_000),
        "if_name" => Text(interface),
        "created_at" => Text(&created),
        _ => Null,
    });
    sheet.push(&cells);
}

fn core_traffic(sheet: &mut Sheet, minute: i64, mut dice: Option<Dice>) {
    // Two samples a minute, half of its bytes in each.
    for second in [20, 50] {
        for (interface, gbps) in CORE_INTERFACES {
            let mut counted = Counted {
                rx_bytes: Some(gbps * GBPS_BYTES / 2),
                rx_unicast: Some(gbps * 3_750_000),
                rx_errors: Some(0),
                ..Counted::default()
            };
            if let Some(dice) = &mut dice {
                if dice.one_in(20) {
                    continue;
                }
                let tenths = dice.pick(0, 1200);
                counted.rx_bytes = (!dice.one_in(20)).then_some(tenths * GBPS_BYTES / 20);
            }
            traffic(sheet, minute + second * SECOND, CORE, interface, &counted);
        }
    }
}

/// The OLTs of S3: one behind two edges, one behind an aggregation node.
const OLTS: [&str; 2] = ["192.0.2.23", "192.0.2.24"];
/// Interfaces of S3's nodes; those without packets of their own have `1000 * 10^(minute mod 10)`.
const EDGE_INTERFACES: [(&str, &str, Option<i64>); 4] = [
    ("198.51.100.150", "3/1/1", Some(5_000)),
    ("198.51.100.211", "9/2/1", None),
    ("198.51.100.212", "9/1/1", None),
    ("198.51.100.213", "9/3/1", Some(5_000)),
];

fn olt_alarms(sheet: &mut Sheet, minute: i64, dice: Option<Dice>) {
    let mut push = |second: i64, rule: &str, status: &str, facility: &str, olt: &str| {
        sheet.push(&[At(minute + second * SECOND), Text(rule), Text(status), Text(facility), Text(olt)]);
    };
    let Some(mut dice) = dice else {
        push(10, "R822", "1", "FAC-23", OLTS[0]);
        push(30, "R001", "2", "FAC-24", OLTS[1]);
        return;
    };
    for (second, rule, facility, olt) in
        [(10, "R822", "FAC-23", OLTS[0]), (20, "R001", "FAC-23", OLTS[0]), (30, "R001", "FAC-24", OLTS[1])]
    {
        if !dice.one_in(3) {
            push(second, rule, if dice.one_in(2) { "1" } else { "2" }, facility, olt);
        }
    }
    // A rule that nobody asks for, and an OLT that no topology knows.
    push(35, "R500", "1", "FAC-23", OLTS[0]);
    push(36, "R822", "1", "FAC-99", "192.0.2.99");
    for (second, rule, facility, olt) in
        [(40, "R822", "FAC-23", OLTS[0]), (45, "R001", "FAC-23", OLTS[0]), (50, "R001", "FAC-24", OLTS[1])]
    {
        if dice.one_in(8) {
            push(second, rule, "0", facility, olt);
        }
    }
}

fn edge_traffic(sheet: &mut Sheet, minute: i64, mut dice: Option<Dice>) {
    let power = u32::try_from((minute / MINUTE).rem_euclid(60) % 10).unwrap_or(0);
    for (router, interface, own) in EDGE_INTERFACES {
        let mut packets = Some(own.unwrap_or(1000 * 10_i64.pow(power)));
        if let Some(dice) = &mut dice {
            if dice.one_in(30) {
                continue;
            }
            packets = match dice.pick(0, 29) {
                0 => None,
                1 | 2 => Some(0),
                3..=6 => Some(dice.pick(1_000, 40_000)),
                _ => Some(dice.pick(900, 1_100)),
            };
        }
        let counted = Counted { tx_multicast: packets, tx_bytes: packets.map(|n| n * 1000), ..Counted::default() };
        traffic(sheet, minute + 20 * SECOND, router, interface, &counted);
    }
}
