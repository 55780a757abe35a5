#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;

fn merge(text: &str, given: &Overrides, need: Need) -> Result<Config, Vec<Problem>> {
    Config::merge(&[Layer::file(Path::new("conf/weir.toml"), text), Layer::defaults()], given, need)
}

fn placed() -> Overrides {
    Overrides { store: Some("s".into()), data: Some("d".into()), ..Overrides::default() }
}

fn told(result: Result<Config, Vec<Problem>>) -> Vec<String> {
    result.expect_err("problems").iter().map(ToString::to_string).collect()
}

#[test]
fn the_defaults_are_whole_and_hold_nothing_unknown() {
    let config = merge("", &placed(), Need::Run).expect("the defaults");
    assert_eq!(config.listen, ([127, 0, 0, 1], 7117).into());
    assert_eq!(config.rule_store.settle, Span::secs(1));
    assert_eq!(config.rule_store.poll, Span::secs(1));
    assert_eq!((config.ingest.poll_rows, config.ingest.poll_bytes), (65_536, 8 << 20));
    assert_eq!((config.ingest.flush, config.sink.flush), (Span::secs(10), Span::secs(0)));
    assert_eq!((config.threads.cpu, config.threads.rule), (2, 2));
    assert_eq!(config.ledger.replay_horizon, Span::secs(7 * 86_400));
    assert_eq!(config.lake.checkpoint_every, 25);
    assert_eq!((config.lake.history, config.lake.file_bytes, config.lake.merge_files), (Span::secs(3600), 32 << 20, 8));
    let day = 86_400;
    assert_eq!(config.upkeep.every, Span::secs(60));
    assert_eq!((config.upkeep.keep_results, config.upkeep.keep_alarms), (Span::secs(365 * day), Span::secs(365 * day)));
    assert_eq!(config.upkeep.keep_dead_letters, Span::secs(30 * day));
    assert_eq!(config.limits, Limits::defaults());
    assert_eq!(config.log.format, Format::Human);
    assert_eq!(config.display_timezone, Zone::UTC);
}

#[test]
fn the_file_overrides_the_defaults_and_the_command_line_the_file() {
    let text = "
        store = \"rules\"
        data = \"/var/weir\"
        listen = \"127.0.0.1:1\"
        display_timezone = \"Asia/Seoul\"
        [log]
        format = \"json\"
        [threads]
        cpu = 0x10
        [limits]
        alarms = 5
        sql_time = \"2s\"
    ";
    let config = merge(text, &Overrides::default(), Need::Run).expect("good");
    assert_eq!(config.store().expect("given"), Path::new("conf/rules"), "beside the file");
    assert_eq!(config.data().expect("given"), Path::new("/var/weir"));
    assert_eq!((config.threads.cpu, config.threads.rule), (16, 2));
    assert_eq!((config.limits.alarms, config.limits.sql_time), (5, Span::secs(2)));
    assert_eq!(config.display_timezone.to_string(), "Asia/Seoul");
    let timezone = Some("Europe/Berlin".parse().expect("a zone"));
    let given = Overrides { timezone, listen: Some(([127, 0, 0, 1], 2).into()), log: Some(Format::Human), ..placed() };
    let config = merge(text, &given, Need::Run).expect("good");
    assert_eq!((config.listen.port(), config.log.format), (2, Format::Human));
    assert_eq!(config.display_timezone.to_string(), "Europe/Berlin");
    assert_eq!(config.store().expect("given"), Path::new("s"));
}

#[test]
fn everything_that_is_wrong_is_said_at_once_with_its_line() {
    let text = "\
listen = \"here\"
colour = true
ingest = 5
[rule_store]
settle = \"soon\"
poll = \"2h\"
kepp = 5
[sink]
batch_bytes = \"many\"
[threads]
cpu = 0
[log]
format = \"xml\"
level = \"weir=loud\"
[limits]
alarmz = 1
sql_time = 5
[extra.deep]
x = 1
";
    assert_eq!(
        told(merge(text, &placed(), Need::Run)),
        [
            "conf/weir.toml:1: listen: 'here': invalid socket address syntax; write an address and a port, such as \"127.0.0.1:7117\"",
            &format!("conf/weir.toml:2: colour: it is no setting; {TOP}"),
            "conf/weir.toml:3: ingest: it is a section, not a setting; write [ingest] and under it flush, poll_bytes, poll_rows, window_bytes",
            "conf/weir.toml:5: rule_store.settle: 'soon' is not a length of time; write a number with a unit, such as \"90s\" or \"15m\"",
            "conf/weir.toml:6: rule_store.poll: 2h is out of range; use 1ms to 1h",
            "conf/weir.toml:7: rule_store.kepp: it is no setting; the settings here are keep, poll, settle",
            "conf/weir.toml:9: sink.batch_bytes: it is a string; use a whole number from 1 to 4294967296",
            "conf/weir.toml:11: threads.cpu: 0 is out of range; use a whole number from 1 to 1024",
            "conf/weir.toml:13: log.format: 'xml': it is human or json; write \"human\" or \"json\"",
            "conf/weir.toml:14: log.level: 'weir=loud': it is neither a level nor a list of module=level; write a level, such as \"info\"",
            &format!("conf/weir.toml:16: limits.alarmz: {}; see host/model/defaults/limits.toml", unknown_limit()),
            "conf/weir.toml:17: limits.sql_time: invalid type: integer `5`, expected a string; see host/model/defaults/limits.toml",
            &format!("conf/weir.toml:18: extra: it is no setting; {TOP}"),
        ]
    );
}

const TOP: &str = "the settings here are data, display_timezone, ingest, lake, ledger, limits, listen, listen_token, log, rule_store, sink, \
                   store, threads, upkeep";

fn unknown_limit() -> String {
    let patch = toml::from_str("alarmz = 1").expect("toml");
    Limits::defaults().with(&patch).expect_err("unknown")
}

#[test]
fn broken_toml_is_told_with_every_line() {
    let told = told(merge("listen = \nstore = \"x\n", &placed(), Need::Run));
    assert!(told.len() >= 2, "{told:?}");
    assert!(told[0].starts_with("conf/weir.toml:1: ") && told[0].ends_with("; correct the TOML"), "{told:?}");
    assert!(told.iter().any(|t| t.starts_with("conf/weir.toml:2: ")), "{told:?}");
}

#[test]
fn what_a_command_needs_is_asked_for() {
    let none = Overrides::default();
    let run = told(merge("", &none, Need::Run));
    assert_eq!(run.len(), 2);
    assert!(run[0].starts_with("command line: --store: no rule store is given; pass --store DIR"), "{run:?}");
    assert!(run[1].contains("WEIR_DATA"), "{run:?}");
    assert_eq!(told(merge("", &none, Need::Data)).len(), 1);
    let check = merge("store = \"s\"", &none, Need::Store).expect("no data folder needed");
    assert!(check.data().is_err());
}

#[test]
fn other_machines_are_refused_without_a_token() {
    let open = "listen = \"0.0.0.0:7117\"\n";
    let file = told(merge(open, &placed(), Need::Run));
    assert_eq!(file.len(), 1);
    assert!(file[0].starts_with("conf/weir.toml:1: listen: 0.0.0.0:7117 can be reached"), "{file:?}");
    let given = Overrides { listen: Some(([0, 0, 0, 0], 1).into()), ..placed() };
    assert!(told(merge("", &given, Need::Run))[0].starts_with("command line: listen: "));
    assert!(merge(open, &placed(), Need::Data).is_ok(), "who only asks does not listen");
}

#[test]
fn a_token_is_a_reference_and_is_never_shown() {
    const SECRET: &str = "hunter2-hunter2-hunter2";
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("token"), format!("{SECRET}\n")).expect("written");
    let file = folder.path().join("token");
    let text = format!("listen = \"0.0.0.0:1\"\nlisten_token = {{ file = {:?} }}", file.display().to_string());
    let config = merge(&text, &placed(), Need::Run).expect("a token");
    assert!(config.listen_token.is_some());
    assert!(!format!("{config:?}").contains(SECRET));

    for (token, why) in [
        ("\"hunter2-hunter2-hunter2\"", "must not stand in the configuration"),
        ("{ env = \"A\", file = \"b\" }", "is no reference"),
        ("{ vault = \"x\" }", "is no reference"),
        ("{ env = \"WEIR_TEST_THAT_IS_NOT_SET\" }", "WEIR_TEST_THAT_IS_NOT_SET is not set; set WEIR_TEST"),
        ("{ file = \"missing\" }", "conf/missing cannot be read"),
    ] {
        let text = format!("listen = \"0.0.0.0:1\"\nlisten_token = {token}");
        let told = told(merge(&text, &placed(), Need::Run)).join("\n");
        assert!(told.contains(why), "{token}: {told}");
        assert!(told.starts_with("conf/weir.toml:2: listen_token: "), "{told}");
        assert!(!told.contains(SECRET), "{told}");
    }
    std::fs::write(&file, "short").expect("written");
    let told = told(merge(&text, &placed(), Need::Run)).join("\n");
    assert!(told.contains("no usable token: it is shorter than 16"), "{told}");
    assert!(merge(&text, &placed(), Need::Data).is_ok(), "who only asks needs no secret");
}

#[test]
fn a_file_that_is_missing_is_a_problem() {
    let given = Overrides { file: Some("/nowhere/weir.toml".into()), ..placed() };
    let told = told(Config::load(&given, Need::Run));
    assert!(told[0].starts_with("/nowhere/weir.toml: cannot be read"), "{told:?}");
}
