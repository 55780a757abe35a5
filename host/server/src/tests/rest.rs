use weir_model::fault::{Fault, FaultKind};

use super::*;

fn local(at: SocketAddr, first: &str) -> Reply {
    request(at, first, &[LOCAL], "")
}

#[test]
fn health_and_readiness() {
    over_tcp(Fake::default(), Access::Loopback, |at| {
        let health = local(at, "GET /healthz");
        assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
        assert_eq!(local(at, "GET /readyz").status, 200);
    });
    let waits = Fake {
        waiting: vec!["stream acme/syslog".to_owned(), "the rule store".to_owned()],
        fault: Some(Fault::host(FaultKind::Ledger, "not open yet")),
        ..Fake::default()
    };
    over_tcp(waits, Access::Loopback, |at| {
        assert_eq!(local(at, "GET /healthz").status, 200);
        let ready = local(at, "GET /readyz");
        assert_eq!((ready.status, ready.json()["ready"].as_bool()), (503, Some(false)));
        assert_eq!(ready.json()["waiting"][1], "the rule store");
    });
}

#[test]
fn alarms_are_chosen_by_tenant_scenario_and_state() {
    over_tcp(Fake::default(), Access::Loopback, |at| {
        let found = |ask: &str| -> Vec<String> {
            let json = local(at, &format!("GET /api/v1/alarms{ask}")).json();
            let alarms = json["alarms"].as_array().expect("alarms");
            alarms.iter().filter_map(|a| Some(a["scenario"].as_str()?.to_owned())).collect()
        };
        assert_eq!(found(""), ["acme/s1", "acme/s2", "zeta/s1"]);
        assert_eq!(found("?tenant=acme"), ["acme/s1", "acme/s2"]);
        assert_eq!(found("?scenario=s1&cleared=true"), ["acme/s1", "zeta/s1"]);
        assert_eq!(found("?tenant=zeta&scenario=s1"), ["zeta/s1"]);
        assert!(found("?tenant=nobody").is_empty());
    });
}

#[test]
fn what_cannot_be_read_is_a_fault_too() {
    over_tcp(Fake::default(), Access::Loopback, |at| {
        for (first, body, status, why) in [
            ("GET /api/v1/nothing", "", 404, "no such resource"),
            ("POST /api/v1/status", "", 405, "does not take this method"),
            ("GET /api/v1/alarms?tenant=a%20b", "", 400, "is not a name"),
            ("GET /api/v1/alarms?color=red", "", 400, "unknown field"),
            ("GET /api/v1/scenarios/acme/s%201/history", "", 400, "is not a name"),
            ("GET /api/v1/scenarios/acme/s1/ledger?run=fast", "", 400, "a run is live"),
            ("GET /api/v1/scenarios/acme/s1/ledger?newest=true&after=3", "", 400, "exclude each other"),
            ("POST /api/v1/events", "{", 400, "JSON"),
            ("POST /api/v1/events", "{\"wait\": 1}", 422, "unknown field"),
        ] {
            let reply = request(at, first, &[LOCAL], body);
            assert_eq!(reply.status, status, "{first}: {}", reply.body);
            assert!(reply.fault().contains(why), "{first}: {}", reply.body);
        }
    });
}

#[test]
fn the_status_code_says_who_has_to_act() {
    for (fault, status) in [
        (Fault::tenant(FaultKind::Sql, "x"), 422),
        (Fault::tenant(FaultKind::NotReplayable, "x"), 410),
        (Fault::external(FaultKind::Sink, "x"), 502),
        (Fault::host(FaultKind::Ledger, "x"), 503),
        (Fault::internal("x"), 500),
    ] {
        over_tcp(Fake::failing(fault), Access::Loopback, move |at| {
            let reply = local(at, "GET /api/v1/status");
            assert_eq!((reply.status, reply.fault().as_str()), (status, "x"));
        });
    }
}

#[test]
fn events_wait_no_longer_than_is_allowed() {
    let fake = Arc::new(Fake::default());
    let runtime = runtime();
    let routes = router(&api(&fake), Access::Loopback);
    let at = runtime.block_on(async {
        let listener = crate::bind_tcp(([127, 0, 0, 1], 0).into()).await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let _serving = Serving::tcp(listener, routes);
        // Keeps serving: a dropped sender stops it, so it is leaked with the runtime.
        std::mem::forget(_serving);
        at
    });
    let body = r#"{"limit": 99999999, "wait_ms": 99999999}"#;
    assert_eq!(request(at, "POST /api/v1/events", &[LOCAL], body).status, 200);
    assert_eq!(request(at, "POST /api/v1/events", &[LOCAL], "{}").status, 200);
    assert_eq!(fake.asked(), ["events {} 10000 30000", "events {} 1000 0"]);
}

#[test]
fn metrics_tell_lag_backlog_and_stalled_scenarios() {
    over_tcp(Fake::default(), Access::Loopback, |at| {
        let reply = local(at, "GET /metrics");
        assert!(reply.head.contains("text/plain; version=0.0.4"), "{}", reply.head);
        for line in [
            "# recorded",
            "weir_status_ok 1",
            "# TYPE weir_scenario_state gauge",
            "weir_scenario_state{tenant=\"acme\",scenario=\"s1\",state=\"running\"} 1",
            "weir_scenario_state{tenant=\"acme\",scenario=\"s2\",state=\"parked\"} 1",
            "weir_scenario_state{tenant=\"acme\",scenario=\"s2\",state=\"running\"} 0",
            "weir_scenario_stalled{tenant=\"acme\",scenario=\"s1\"} 0",
            "weir_scenario_stalled{tenant=\"acme\",scenario=\"s2\"} 1",
            "weir_scenario_last_batch_timestamp_seconds{tenant=\"acme\",scenario=\"s1\"} 1796040060",
            "weir_scenario_last_batch_id{tenant=\"acme\",scenario=\"s1\"} 7",
            "weir_scenario_skipped_ticks_total{tenant=\"acme\",scenario=\"s1\"} 3",
            "weir_scenario_open_alarms{tenant=\"acme\",scenario=\"s1\"} 2",
            "weir_sink_behind_batches{tenant=\"acme\",scenario=\"s1\",sink=\"s1_results\"} 2",
            "weir_sink_stopped{tenant=\"acme\",scenario=\"s1\",sink=\"s1_results\"} 0",
            "weir_stream_lag_seconds{tenant=\"acme\",stream=\"syslog\"} 30",
            "weir_stream_unflushed_offsets{tenant=\"acme\",stream=\"syslog\"} 180",
            "weir_stream_window_rows{tenant=\"acme\",stream=\"syslog\"} 186",
            "weir_stream_dead_letters_total{tenant=\"acme\",stream=\"syslog\"} 1",
            "weir_stream_stopped{tenant=\"acme\",stream=\"syslog\"} 0",
        ] {
            assert!(reply.body.lines().any(|l| l == line), "{line} is missing in\n{}", reply.body);
        }
        // A scenario without a batch has no time of one: 0 would be an alarm about 1970.
        assert!(!reply.body.contains("last_batch_timestamp_seconds{tenant=\"acme\",scenario=\"s2\"}"));
        let types: Vec<&str> = reply.body.lines().filter(|l| l.starts_with("# TYPE")).collect();
        let distinct: std::collections::BTreeSet<&&str> = types.iter().collect();
        assert_eq!(types.len(), distinct.len(), "a family is written once");
    });
}

#[test]
fn metrics_are_there_when_the_service_is_not() {
    let broken = Fake::failing(Fault::host(FaultKind::Ledger, "gone"));
    over_tcp(broken, Access::Loopback, |at| {
        let reply = local(at, "GET /metrics");
        assert_eq!(reply.status, 200);
        assert_eq!(reply.body, "# recorded\n# TYPE weir_status_ok gauge\nweir_status_ok 0\n");
    });
}

#[test]
fn the_recorder_keeps_batch_durations_in_buckets() {
    let (scrape, tidy) = crate::metrics::install().expect("the only one in this process");
    metrics::histogram!(crate::metrics::BATCH_DURATION, "tenant" => "acme").record(0.0012);
    tidy();
    let text = scrape();
    let bucket = |le: &str, n: u32| {
        text.contains(&format!("weir_batch_duration_seconds_bucket{{tenant=\"acme\",le=\"{le}\"}} {n}"))
    };
    assert!(bucket("0.001", 0) && bucket("0.0015", 1) && bucket("+Inf", 1), "{text}");
}
